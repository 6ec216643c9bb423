// Anthropic's library against the gateway.
import assert from 'node:assert/strict';
import Anthropic from '@anthropic-ai/sdk';

const [url, key] = process.argv.slice(2);
const client = new Anthropic({ baseURL: url, apiKey: key, maxRetries: 0 });
const ask = (content) => ({ model: 'demo/assistant', max_tokens: 100, messages: [{ role: 'user', content }] });

const whole = await client.messages.create(ask('think 2 words'));
assert.equal(whole.content.at(-1).text, 'I thought 2 words.');
const stream = client.messages.stream(ask('think 3 words'));
assert.equal(await stream.finalText(), 'I thought 3 words.');
const cut = client.messages.stream(ask('think 2000 words'));
let events = 0;
await assert.rejects(async () => {
  for await (const _ of cut) if (++events === 5) cut.abort();
}, Anthropic.APIUserAbortError);
await assert.rejects(client.messages.create({ ...ask('hi'), model: 'nobody/nothing' }), Anthropic.NotFoundError);
await assert.rejects(client.messages.create(ask('fail')), (error) => error.status === 502);
console.log('ok');
