// The typical app: a Node server that streams a model's answer through the AI SDK and keeps each chat as one array
// of messages in a JSON column of SQLite. It saves what was said before it asks the model, and the whole array again
// at the end. First line on stdout: its address.
//   MODEL_URL  where the model is, with /v1        DB  the SQLite file

import { createServer } from 'node:http';
import Database from 'better-sqlite3';
import { convertToModelMessages, generateId, streamText } from 'ai';
import { createOpenAICompatible } from '@ai-sdk/openai-compatible';

const REPLAYED = 40;

const db = new Database(process.env.DB);
db.pragma('journal_mode = WAL');
db.pragma('synchronous = FULL');
db.exec('CREATE TABLE chat (id TEXT PRIMARY KEY, messages TEXT NOT NULL, updated_at INTEGER NOT NULL)');
const read = db.prepare('SELECT messages FROM chat WHERE id = ?').pluck();
const write = db.prepare(`INSERT INTO chat VALUES (?, ?, ?)
  ON CONFLICT (id) DO UPDATE SET messages = excluded.messages, updated_at = excluded.updated_at`);
const load = (id) => JSON.parse(read.get(id) ?? '[]');
const save = (id, messages) => write.run(id, JSON.stringify(messages), Date.now());

const model = createOpenAICompatible({ name: 'bench', baseURL: process.env.MODEL_URL, apiKey: 'none' })('bench');
const message = (role, text) => ({ id: generateId(), role, parts: [{ type: 'text', text }] });

async function turn(request, response) {
  const { id, text } = request;
  const messages = [...load(id), message('user', text)];
  save(id, messages);
  const answer = streamText({ model, messages: await convertToModelMessages(messages.slice(-REPLAYED)) });
  answer.pipeUIMessageStreamToResponse(response, {
    originalMessages: messages,
    generateMessageId: generateId,
    onFinish: (finished) => save(id, finished.messages),
  });
}

// A chat with `count` messages, for measuring a long one.
function fill({ id, count, text }, response) {
  save(id, Array.from({ length: count }, (_, n) => message(n % 2 ? 'assistant' : 'user', text)));
  response.end();
}

async function body(request) {
  const pieces = [];
  for await (const piece of request) pieces.push(piece);
  return JSON.parse(Buffer.concat(pieces));
}

const server = createServer(async (request, response) => {
  try {
    if (request.method === 'POST' && request.url === '/turn') return await turn(await body(request), response);
    if (request.method === 'POST' && request.url === '/fill') return fill(await body(request), response);
    if (request.method === 'GET' && request.url.startsWith('/chat/')) {
      return response.end(JSON.stringify(load(request.url.slice(6))));
    }
    response.writeHead(404).end();
  } catch (error) {
    console.error(error);
    response.headersSent ? response.destroy() : response.writeHead(500).end(String(error));
  }
});
server.listen(0, '127.0.0.1', 4096, () => console.log(`http://127.0.0.1:${server.address().port}`));
