// Calls that wait for a person: asked in every window, over reloads and a restart, and decided once.
import assert from 'node:assert/strict';
import { after, afterEach, before, test } from 'node:test';
import { blocks, composer, eventually, lastAnswer, leave, say, settled, startWorld, visit } from './world.js';

let world;
before(async () => {
  world = await startWorld({ models: true });
  await world.server.api('POST', '/v1/agents', { name: 'Careful', instructions: '', model: 'openai/scripted', runner: 'model', tools: ['read_file'], approval: ['read_file'] });
});
afterEach(() => leave(world));
after(() => world?.stop());

const card = (page) => page.getByRole('region', { name: 'Approval for read_file' });

const writes = (page) => composer(page).evaluate((field) => field === document.activeElement);

/** A thread that waits for somebody to allow the agent's call. */
async function asked() {
  // The file is still on its way when the message is sent: it waits for it.
  const visitor = await visit(world);
  const { page } = visitor;
  await page.getByRole('button', { name: /^Model:/ }).click();
  await page.getByRole('menuitemradio', { name: /Careful/ }).click();
  await page.locator('input[type=file]').setInputFiles([{ name: 'note.txt', mimeType: 'text/plain', buffer: Buffer.from('the secret is 42') }]);
  await say(page, 'call read_file {"name":"note.txt"}');
  await card(page).waitFor();
  await page.getByRole('link', { name: /^call read_file/ }).first().waitFor();
  return visitor;
}

test('a call waits for a person over reloads and a killed server, and any window may allow it', { timeout: 60_000 }, async () => {
  const { page, open, wrong } = await asked();
  assert.match(await card(page).innerText(), /May the assistant use\s+read_file\s*\?.*"name": "note.txt"/s);
  assert.ok((await lastAnswer(page)).includes('Let me look.'));
  const second = await open(new URL(page.url()).pathname);
  await card(second).waitFor();
  await page.reload();
  await card(page).waitFor();
  assert.deepEqual(await blocks(page), await blocks(second));
  assert.equal(world.provider.asked.length, 1);

  await world.server.kill();
  await page.locator('[data-offline]').waitFor();
  await world.server.up();
  await page.locator('[data-offline]').waitFor({ state: 'detached' });
  for (const each of [page, second]) await card(each).waitFor();

  await card(second).getByRole('button', { name: 'Allow' }).click();
  assert.ok(await writes(second));
  for (const each of [page, second]) {
    await card(each).waitFor({ state: 'detached' });
    await eventually(async () => assert.match(await lastAnswer(each), /The tool said: .*the secret is 42/s));
    await settled(each);
  }
  const seen = await blocks(page);
  assert.deepEqual(await blocks(second), seen);
  await page.reload();
  await settled(page);
  await eventually(async () => assert.deepEqual(await blocks(page), seen));
  assert.equal(await card(page).count(), 0);
  assert.deepEqual(wrong, []);
});

test('a refusal tells the model why, and nothing is called', async () => {
  const { page, open, wrong } = await asked();
  const second = await open(new URL(page.url()).pathname);
  await card(second).waitFor();
  await card(page).getByRole('textbox', { name: /Why it is refused/ }).fill('not before Monday');
  await page.keyboard.press('Enter');
  assert.ok(await writes(page));
  for (const each of [page, second]) {
    await eventually(async () => assert.match(await lastAnswer(each), /The tool said: .*not before Monday/s));
    await settled(each);
    assert.equal(await card(each).count(), 0);
  }
  const told = world.provider.asked.at(-1).messages.filter(({ role }) => role === 'tool');
  assert.ok(told.length === 1 && !JSON.stringify(told).includes('the secret is 42'), JSON.stringify(told));
  await page.locator('[data-steps] > button').click();
  await page.locator('[data-block=tool_call][data-status=failed]').waitFor();
  assert.deepEqual(wrong, []);
});

test('stopping a run that waits leaves nothing to decide', async () => {
  const { page, wrong } = await asked();
  await page.getByRole('button', { name: 'Stop' }).click();
  await page.getByText('Stopped', { exact: true }).waitFor();
  assert.equal(await card(page).count(), 0);
  await page.reload();
  await page.getByText('Stopped', { exact: true }).waitFor();
  assert.equal(await card(page).count(), 0);
  assert.deepEqual(wrong, []);
});
