// The typical app: a Node server that streams a model's answer through the AI SDK and keeps each chat as one array
// of messages in a JSON column. It saves what was said before it asks the model, and the whole array again at the end.
// First line on stdout: its address.
//   MODEL_URL  where the model is, with /v1        DB  the SQLite file, or the postgres:// address

import { createServer } from 'node:http';
import Database from 'better-sqlite3';
import pg from 'pg';
import { convertToModelMessages, generateId, streamText } from 'ai';
import { createOpenAICompatible } from '@ai-sdk/openai-compatible';

const REPLAYED = 40;

const UPSERT = (values) => `INSERT INTO chat VALUES (${values})
  ON CONFLICT (id) DO UPDATE SET messages = excluded.messages, updated_at = excluded.updated_at`;

function sqlite(file) {
  const db = new Database(file);
  db.pragma('journal_mode = WAL');
  db.pragma('synchronous = FULL');
  db.exec('CREATE TABLE chat (id TEXT PRIMARY KEY, messages TEXT NOT NULL, updated_at INTEGER NOT NULL)');
  const read = db.prepare('SELECT messages FROM chat WHERE id = ?').pluck();
  const write = db.prepare(UPSERT('?, ?, ?'));
  return {
    load: (id) => JSON.parse(read.get(id) ?? '[]'),
    save: (id, messages) => write.run(id, JSON.stringify(messages), Date.now()),
  };
}

async function postgres(url) {
  const pool = new pg.Pool({ connectionString: url, max: 16 });
  await pool.query('CREATE TABLE chat (id TEXT PRIMARY KEY, messages JSONB NOT NULL, updated_at BIGINT NOT NULL)');
  const read = { name: 'read', text: 'SELECT messages FROM chat WHERE id = $1' };
  const write = { name: 'write', text: UPSERT('$1, $2, $3') };
  return {
    load: async (id) => (await pool.query({ ...read, values: [id] })).rows[0]?.messages ?? [],
    save: (id, messages) => pool.query({ ...write, values: [id, JSON.stringify(messages), Date.now()] }),
  };
}

const { load, save } = process.env.DB.startsWith('postgres://') ? await postgres(process.env.DB) : sqlite(process.env.DB);

const model = createOpenAICompatible({ name: 'bench', baseURL: process.env.MODEL_URL, apiKey: 'none' })('bench');
const message = (role, text) => ({ id: generateId(), role, parts: [{ type: 'text', text }] });

async function turn(request, response) {
  const { id, text } = request;
  const messages = [...(await load(id)), message('user', text)];
  await save(id, messages);
  const answer = streamText({ model, messages: await convertToModelMessages(messages.slice(-REPLAYED)) });
  answer.pipeUIMessageStreamToResponse(response, {
    originalMessages: messages,
    generateMessageId: generateId,
    onFinish: (finished) => save(id, finished.messages),
  });
}

// A chat with `count` messages, for measuring a long one.
async function fill({ id, count, text }, response) {
  await save(id, Array.from({ length: count }, (_, n) => message(n % 2 ? 'assistant' : 'user', text)));
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
    if (request.method === 'POST' && request.url === '/fill') return await fill(await body(request), response);
    if (request.method === 'GET' && request.url.startsWith('/chat/')) {
      return response.end(JSON.stringify(await load(request.url.slice(6))));
    }
    response.writeHead(404).end();
  } catch (error) {
    console.error(error);
    response.headersSent ? response.destroy() : response.writeHead(500).end(String(error));
  }
});
server.listen(0, '127.0.0.1', 4096, () => console.log(`http://127.0.0.1:${server.address().port}`));
