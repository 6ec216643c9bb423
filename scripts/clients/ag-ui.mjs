// The AG-UI client against a server: runs, interrupts, and joining again.
import assert from 'node:assert/strict';
import { HttpAgent } from '@ag-ui/client';

const [url, key] = process.argv.slice(2);
const headers = { Authorization: `Bearer ${key}` };
const make = (threadId, path = '') => new HttpAgent({ url: `${url}/v1/ag-ui${path}`, headers, threadId });
const say = (agent, id, content) => agent.addMessage({ id, role: 'user', content });
const shape = (messages) => messages.map((message) => [message.role, message.content ?? '']);

// A sandbox's steps are calls, turn after turn.
const agent = make('thread-1');
for (const turn of ['u1', 'u2']) {
  say(agent, turn, 'look');
  const { newMessages } = await agent.runAgent({ runId: `run-${turn}` });
  assert.deepEqual(shape(newMessages), [['assistant', 'I look.'], ['tool', '[1]'], ['tool', 'r'], ['assistant', 'It is.']]);
  assert.equal(newMessages[0].toolCalls[0].function.name, 'look');
  const calls = newMessages.flatMap((message) => message.toolCalls ?? []);
  assert.deepEqual(calls.map((call) => call.function.arguments), ['{"y":2}', '{"z":3}']);
}
assert.equal(agent.messages.length, 10);

// Another page has the same messages.
const other = make('thread-1', '/connect');
await other.runAgent();
assert.deepEqual(other.messages, agent.messages);

// Cut in the middle, and joined.
const slow = make('thread-2');
say(slow, 'u1', 'think 200 words');
let seen = 0;
const cut = slow.runAgent(
  { forwardedProps: { mode: 'ask', model: 'demo/assistant' } },
  { onReasoningMessageContentEvent: () => { if (++seen === 5) slow.abortRun(); } },
);
await cut.catch(() => {});
const joined = make('thread-2', '/connect');
await joined.runAgent();
assert.deepEqual(shape(joined.messages).at(-1), ['assistant', 'I thought 200 words.']);
assert.equal(joined.messages.find((message) => message.role === 'reasoning').content.split(' ').length, 200);

// A call that waits for a person.
const made = await (await fetch(`${url}/v1/agents`, {
  method: 'POST',
  headers: { ...headers, 'content-type': 'application/json' },
  body: JSON.stringify({ name: 'Careful', runner: 'model', model: 'demo/assistant', tools: ['list_files'], approval: ['list_files'] }),
})).json();
const careful = make('thread-3');
say(careful, 'u1', 'list files');
await careful.runAgent({ forwardedProps: { agent: made.id } });
const [interrupt] = careful.pendingInterrupts;
assert.ok(interrupt.toolCallId);
const { newMessages } = await careful.runAgent({ resume: [{ interruptId: interrupt.id, status: 'resolved', payload: { approve: true } }] });
assert.equal(newMessages.find((message) => message.role === 'tool').toolCallId, interrupt.toolCallId);
assert.equal(newMessages.at(-1).role, 'assistant');
assert.equal(careful.pendingInterrupts.length, 0);

// A run that fails, and a request that is refused.
const failing = make('thread-4');
say(failing, 'u1', 'fail');
const errors = [];
await failing.runAgent({ forwardedProps: { mode: 'ask', model: 'demo/assistant' } }, { onRunErrorEvent: ({ event }) => errors.push(event.code) }).catch(() => {});
assert.deepEqual(errors, ['model_error']);
const refused = make('thread-5');
say(refused, 'u1', ' ');
await assert.rejects(refused.runAgent());
console.log('ok');
