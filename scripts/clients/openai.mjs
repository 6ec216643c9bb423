// OpenAI's library against a server: responses, conversations, chat completions.
import assert from 'node:assert/strict';
import OpenAI from 'openai';

const [url, key] = process.argv.slice(2);
const client = new OpenAI({ baseURL: `${url}/v1`, apiKey: key, maxRetries: 0 });
const model = 'demo/assistant';

const [offered] = (await client.models.list()).data.filter((one) => one.id === model);
assert.deepEqual(await client.models.retrieve(model), offered);
await assert.rejects(client.models.retrieve('demo/nothing'), (error) => error instanceof OpenAI.NotFoundError && error.code === 'model_not_found');

// Chat completions are the gateway's.
const completion = client.chat.completions.stream({ model, messages: [{ role: 'user', content: 'think 2 words' }] });
assert.equal(await completion.finalContent(), 'I thought 2 words.');

// A response, whole and streamed.
const whole = await client.responses.create({ model, input: 'think 1 words', metadata: { a: 'b' } });
assert.deepEqual([whole.status, whole.output_text, whole.metadata], ['completed', 'I thought 1 word.', { a: 'b' }]);
const stream = client.responses.stream({ model, input: 'think 3 words', previous_response_id: whole.id });
let deltas = '';
let thoughts = '';
stream.on('response.output_text.delta', (event) => (deltas += event.delta));
stream.on('response.reasoning_text.delta', (event) => (thoughts += event.delta));
const final = await stream.finalResponse();
assert.deepEqual([final.output_text, deltas, final.conversation.id], ['I thought 3 words.', 'I thought 3 words.', whole.conversation.id]);
assert.ok(final.usage.total_tokens > 0);
assert.deepEqual((await client.responses.retrieve(final.id)).output, JSON.parse(JSON.stringify(final.output.map(({ parsed, ...item }) => ({ ...item, ...(item.content ? { content: item.content.map(({ parsed: _, ...part }) => part) } : {}) })))));
assert.equal((await client.responses.inputItems.list(final.id)).data[0].content[0].text, 'think 3 words');

// A thought is the text of a reasoning item, and the items are the conversation's.
const [thought] = final.output;
assert.deepEqual([thought.type, thought.summary, thought.content], ['reasoning', [], [{ type: 'reasoning_text', text: thoughts }]]);
const kept = (await client.conversations.items.list(final.conversation.id, { limit: 2 })).data.reverse();
assert.deepEqual(kept, (await client.responses.retrieve(final.id)).output);

// A sandbox's steps are calls with their outputs.
const looked = await client.responses.stream({ model: 'agent', input: 'look' }).finalResponse();
assert.deepEqual(looked.output.map((item) => item.type), ['message', 'function_call', 'function_call_output', 'function_call', 'message', 'function_call_output']);
assert.deepEqual([looked.output[1].name, looked.output[1].arguments, looked.output[2].output], ['look', '{"y":2}', '[1]']);
assert.deepEqual([looked.output[3].name, looked.output[3].arguments, looked.output[5].output], ['late', '{"z":3}', 'r']);

// Cut in the middle, and gone on with.
const background = await client.responses.create({ model, input: 'think 200 words', background: true, stream: true });
let seen = 0;
let id;
for await (const event of background) {
  id ??= event.response.id;
  seen = event.sequence_number;
  if (seen > 20) break;
}
const next = [];
for await (const event of await client.responses.retrieve(id, { stream: true, starting_after: seen })) next.push(event);
assert.deepEqual(next.map((event) => event.sequence_number), next.map((_, n) => seen + 1 + n));
assert.equal(next.at(-1).response.output_text ?? next.at(-1).response.output.at(-1).content[0].text, 'I thought 200 words.');
const helper = client.responses.stream({ response_id: id, starting_after: 5 });
assert.equal((await helper.finalResponse()).status, 'completed');

// Cancelled.
const long = await client.responses.create({ model, input: 'think 2000 words', background: true });
assert.equal((await client.responses.cancel(long.id)).status, 'cancelled');

// Conversations.
const made = await client.conversations.create({ metadata: { topic: 'x' }, items: [{ type: 'message', role: 'user', content: 'hi' }] });
assert.deepEqual((await client.conversations.retrieve(made.id)).metadata, { topic: 'x' });
await client.conversations.items.create(made.id, { items: [{ type: 'message', role: 'assistant', content: 'Hello.' }] });
await client.responses.create({ model, input: 'think 1 words', conversation: made.id });
const items = [];
for await (const item of client.conversations.items.list(made.id, { order: 'asc', limit: 2 })) items.push(item);
assert.deepEqual(items.map((item) => item.type), ['message', 'message', 'message', 'reasoning', 'message']);
assert.equal((await client.conversations.items.retrieve(items[0].id, { conversation_id: made.id })).id, items[0].id);
assert.deepEqual((await client.conversations.update(made.id, { metadata: { topic: 'y' } })).metadata, { topic: 'y' });

// Images and files are kept.
const image_url = 'data:image/png;base64,iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg==';
const content = [{ type: 'input_text', text: 'see' }, { type: 'input_image', detail: 'auto', image_url }, { type: 'input_file', filename: 'a.txt', file_data: 'data:text/plain;base64,aGk=' }];
const added = await client.conversations.items.create(made.id, { items: [{ type: 'message', role: 'user', content }] });
assert.deepEqual(added.data[0].content.map((part) => [part.type, part.filename]), [['input_text', undefined], ['input_image', undefined], ['input_file', 'a.txt']]);

// Busy, unknown, wrong.
const busy = await client.responses.create({ model, input: 'think 2000 words', conversation: made.id, background: true });
await assert.rejects(client.responses.create({ model, input: 'hi', conversation: made.id }), (error) => {
  assert.ok(error instanceof OpenAI.BadRequestError);
  assert.deepEqual([error.code, error.param, error.type], ['conversation_locked', 'conversation', 'invalid_request_error']);
  return true;
});
await client.responses.cancel(busy.id);
await assert.rejects(client.responses.create({ model: 'nobody/nothing', input: 'hi' }), OpenAI.NotFoundError);
await assert.rejects(client.responses.create({ model, input: [] }), OpenAI.BadRequestError);
const far = [{ role: 'user', content: [{ type: 'input_image', detail: 'auto', image_url: 'https://example.com/a.png' }] }];
await assert.rejects(client.responses.create({ model, input: far }), OpenAI.BadRequestError);
await assert.rejects(client.responses.inputTokens.count({ model, input: 'hi' }), OpenAI.NotFoundError);
await assert.rejects(client.responses.compact({ model, input: 'hi' }), OpenAI.NotFoundError);
await assert.rejects(new OpenAI({ baseURL: `${url}/v1`, apiKey: 'wrong', maxRetries: 0 }).responses.create({ model, input: 'hi' }), OpenAI.AuthenticationError);
const failed = await client.responses.create({ model, input: 'fail' });
assert.deepEqual([failed.status, failed.error.code], ['failed', 'model_error']);

// A call that waits for a person ends the response; the next request decides, and it goes on.
const agent = await (await fetch(`${url}/v1/agents`, {
  method: 'POST',
  headers: { authorization: `Bearer ${key}`, 'content-type': 'application/json' },
  body: JSON.stringify({ name: 'Careful', runner: 'model', model, tools: ['list_files'], approval: ['list_files'] }),
})).json();
const decides = (response) => ({
  model: agent.id,
  previous_response_id: response.id,
  input: [{
    type: 'mcp_approval_response',
    approval_request_id: response.output.find((item) => item.type === 'mcp_approval_request').id,
    approve: true,
  }],
});
const asking = await client.responses.create({ model: agent.id, input: 'list files' });
const answered = await client.responses.create(decides(asking));
assert.deepEqual([asking.status, asking.output_text, answered.status], ['completed', '', 'completed']);
assert.ok(answered.output_text);
const listed = (await client.conversations.items.list(answered.conversation.id, { order: 'asc' })).data;
assert.deepEqual(listed.slice(1), (await client.responses.retrieve(answered.id)).output);
assert.ok(listed.some((item) => item.type === 'mcp_approval_request'));
const asks = await client.responses.stream({ model: agent.id, input: 'list files' }).finalResponse();
assert.ok((await client.responses.stream(decides(asks)).finalResponse()).output_text);

await client.responses.delete(whole.id);
await assert.rejects(client.responses.retrieve(whole.id), OpenAI.NotFoundError);
assert.equal((await client.conversations.delete(made.id)).deleted, true);
await assert.rejects(client.conversations.retrieve(made.id), OpenAI.NotFoundError);
console.log('ok');
