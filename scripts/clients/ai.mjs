// The Vercel AI SDK against a server: its transport, its reader, and in version 7 its chat.
import assert from 'node:assert/strict';

const [url, key, library] = process.argv.slice(2);
const sdk = await import(library);
const { DefaultChatTransport, readUIMessageStream, AbstractChat } = sdk;
const headers = { Authorization: `Bearer ${key}` };
const api = `${url}/v1/ai/chat`;
const transport = (body) => new DefaultChatTransport({ api, headers, body });
const user = (id, text) => ({ id, role: 'user', parts: [{ type: 'text', text }] });
const texts = (message) => message.parts.filter((part) => part.type === 'text').map((part) => part.text);

async function send(chatId, messages, body, options = {}) {
  return transport(body).sendMessages({ trigger: 'submit-message', chatId, messages, ...options });
}

async function read(stream) {
  let last;
  const errors = [];
  const reading = readUIMessageStream({ stream, onError: (error) => errors.push(error), terminateOnError: false });
  for await (const message of reading) last = message;
  return { message: last, errors };
}

// A sandbox's steps are tool parts.
const chat = `steps-${library}`;
const { message } = await read(await send(chat, [user('u1', 'look')]));
assert.equal(message.role, 'assistant');
assert.deepEqual(message.parts.map((part) => part.type), ['step-start', 'text', 'dynamic-tool', 'dynamic-tool', 'text']);
const tool = message.parts[2];
assert.deepEqual([tool.toolName, tool.state, tool.input, tool.output], ['look', 'output-available', { y: 2 }, [1]]);
const late = message.parts[3];
assert.deepEqual([late.toolName, late.state, late.input, late.output], ['late', 'output-available', { z: 3 }, 'r']);
assert.deepEqual(texts(message), ['I look.', 'It is.']);
const stored = await (await fetch(`${url}/v1/runs/${message.id}`, { headers })).json();
assert.equal(stored.assistant_message, message.id);
assert.equal(await transport().reconnectToStream({ chatId: chat }), null, 'nothing is under way');
const page = await (await fetch(`${api}/${chat}`, { headers })).json();
const shown = await sdk.validateUIMessages({ messages: page.messages });
assert.deepEqual(shown.map((one) => one.id), ['u1', message.id]);
assert.deepEqual(page.messages[1].parts, JSON.parse(JSON.stringify(message.parts)), 'as it was streamed');

// A page that goes away in the middle finds the whole stream again.
const slow = { mode: 'ask', model: 'demo/assistant' };
const gone = new AbortController();
const first = await send(`slow ${library}/é`, [user('u1', 'think 200 words')], slow, { abortSignal: gone.signal });
const reader = first.getReader();
for (let n = 0; n < 5; n++) await reader.read();
gone.abort();
await reader.cancel().catch(() => {});
const again = await transport().reconnectToStream({ chatId: `slow ${library}/é` });
assert.notEqual(again, null, 'the run went on');
const resumed = (await read(again)).message;
assert.deepEqual(texts(resumed), ['I thought 200 words.']);
assert.equal(resumed.parts.find((part) => part.type === 'reasoning').text.split(' ').length, 200);

// Stopping is a request of its own.
const stopped = await send(`stop-${library}`, [user('u1', 'think 2000 words')], slow);
const stop = fetch(`${api}/stop-${library}/stop`, { method: 'POST', headers });
const chunks = [];
for await (const chunk of stopped) chunks.push(chunk.type);
assert.equal((await stop).status, 200);
assert.deepEqual(chunks.slice(-3), ['abort', 'finish-step', 'finish']);

// A failure of the run is a chunk, one of the request is a sentence.
const failed = await read(await send(`fail-${library}`, [user('u1', 'fail')], slow));
assert.match(String(failed.errors[0]), /The demo model failed, as it was asked to/);
await assert.rejects(send(`bad-${library}`, [user('u1', ' ')]), (error) => {
  assert.equal(error.message, 'The message is empty: it has no text and no file.');
  return true;
});

if (library === 'ai') {
  class State {
    status = 'ready';
    error = undefined;
    messages = [];
    pushMessage = (message) => (this.messages = [...this.messages, message]);
    popMessage = () => (this.messages = this.messages.slice(0, -1));
    replaceMessage = (index, message) => (this.messages = this.messages.with(index, message));
    snapshot = (value) => structuredClone(value);
  }
  class Chat extends AbstractChat {
    constructor(init) {
      super({ ...init, state: new State() });
    }
  }
  const ready = async (chat) => {
    while (chat.status === 'submitted' || chat.status === 'streaming') await new Promise((go) => setTimeout(go, 10));
    assert.equal(chat.error, undefined);
  };

  // Sent, answered again, edited.
  const page = new Chat({ id: 'page', transport: transport(slow) });
  await page.sendMessage({ text: 'think 1 words' });
  await page.regenerate();
  assert.deepEqual(texts(page.lastMessage), ['I thought 1 word.']);
  await page.sendMessage({ text: 'think 2 words', messageId: page.messages[0].id });
  await page.sendMessage({ text: 'think 3 words', files: [{ type: 'file', mediaType: 'text/plain', filename: 'a.txt', url: 'data:text/plain;base64,aGk=' }] });
  assert.equal(page.messages.length, 4);
  assert.deepEqual(texts(page.lastMessage), ['I thought 3 words.']);

  // A call that waits for the user of the page.
  const agent = await (await fetch(`${url}/v1/agents`, {
    method: 'POST',
    headers: { ...headers, 'content-type': 'application/json' },
    body: JSON.stringify({ name: 'Careful', runner: 'model', model: 'demo/assistant', tools: ['list_files'], approval: ['list_files'] }),
  })).json();
  const careful = new Chat({
    id: 'careful',
    transport: transport({ agent: agent.id }),
    sendAutomaticallyWhen: sdk.lastAssistantMessageIsCompleteWithApprovalResponses,
  });
  await careful.sendMessage({ text: 'list files' });
  const waiting = careful.lastMessage.parts.find((part) => part.type === 'dynamic-tool');
  assert.equal(waiting.state, 'approval-requested');
  const before = careful.lastMessage.id;
  await careful.addToolApprovalResponse({ id: waiting.approval.id, approved: true });
  await new Promise((go) => setTimeout(go, 50));
  await ready(careful);
  const done = careful.lastMessage.parts.find((part) => part.type === 'dynamic-tool');
  assert.equal(done.state, 'output-available');
  assert.equal(careful.lastMessage.id, before);
  assert.equal(careful.messages.length, 2);
  await careful.sendMessage({ text: 'list files' });
  const asked = careful.lastMessage.parts.find((part) => part.type === 'dynamic-tool');
  await careful.addToolApprovalResponse({ id: asked.approval.id, approved: false, reason: 'no' });
  await new Promise((go) => setTimeout(go, 50));
  await ready(careful);
  const denied = careful.lastMessage.parts.find((part) => part.type === 'dynamic-tool');
  assert.equal(denied.state, 'output-denied');
  const reloaded = await (await fetch(`${url}/v1/ai/chat/careful`, { headers })).json();
  const kept = reloaded.messages.at(-1).parts.find((part) => part.type === 'dynamic-tool');
  assert.equal(kept.state, 'output-denied');
  assert.deepEqual(kept.approval, { id: asked.approval.id, approved: false, reason: 'no' });
  await sdk.validateUIMessages({ messages: reloaded.messages });
}
console.log('ok');
