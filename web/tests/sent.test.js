// What was sent and is not yet accepted: kept over a reload and a closed window, sent once, and taken back.
import assert from 'node:assert/strict';
import { after, afterEach, before, test } from 'node:test';
import { blocks, composer, eventually, lastAnswer, leave, say, settled, startWorld, visit } from './world.js';

let world;
before(async () => (world = await startWorld()));
afterEach(() => leave(world));
after(() => world?.stop());

const note = { name: 'note.txt', mimeType: 'text/plain', buffer: Buffer.from('a note') };
const chips = (page) => page.locator('form').getByRole('list', { name: 'Attachments' }).getByRole('listitem');
const waits = (page) => page.locator('[data-waiting]', { hasText: 'Reconnecting…' }).waitFor();
const threads = async () => (await world.server.api('GET', '/v1/chat-conversations')).data;

const attach = async (page) => {
  await page.locator('input[type=file]').setInputFiles([note]);
  await chips(page).getByText('6 B', { exact: true }).waitFor();
};

/** The server takes turns, and none of its answers comes: or it does not even hear of them. */
async function lose(context, { heard }) {
  const keys = [];
  await context.route('**/v1/turns', async (route) => {
    keys.push(route.request().headers()['idempotency-key']);
    if (heard) await fetch(route.request().url(), { method: 'POST', headers: { ...(await route.request().allHeaders()) }, body: route.request().postData() }).then((answer) => answer.body.cancel());
    await route.abort('connectionrefused');
  });
  return keys;
}

for (const heard of [false, true]) {
  test(`a first message with a file is there after a reload and is one run, ${heard ? 'where only the answer was lost' : 'where nothing was heard of it'}`, async () => {
    const { page, context, wrong } = await visit(world);
    const before = (await threads()).length;
    await attach(page);
    const lost = await lose(context, { heard });
    await say(page, 'answer the note was read');
    await waits(page);
    await page.reload();
    await waits(page);
    assert.equal(await composer(page).inputValue(), '');
    const [said] = await blocks(page);
    assert.match(said, /answer the note was read/);
    await page.locator('article').getByRole('button', { name: /note.txt/ }).waitFor();
    const sent = [];
    page.on('request', (request) => request.url().endsWith('/v1/turns') && sent.push(request.headers()['idempotency-key']));
    await context.unroute('**/v1/turns');
    await page.waitForURL('**/c/*');
    await eventually(async () => assert.equal(await lastAnswer(page), 'the note was read'));
    await settled(page);
    assert.equal(new Set([...lost, ...sent]).size, 1);
    assert.equal((await blocks(page)).length, 2);
    assert.equal((await threads()).length, before + 1);
    await page.reload();
    await settled(page);
    assert.equal((await blocks(page)).length, 2);
    await page.locator('article').getByRole('button', { name: /note.txt/ }).waitFor();
    assert.deepEqual(wrong, []);
  });
}

test('in a thread, too, another window takes it up when the first one is closed', async () => {
  const { page, context, open, wrong } = await visit(world);
  await say(page, 'answer the beginning');
  await settled(page);
  await lose(context, { heard: false });
  await say(page, 'answer the end');
  await waits(page);
  const other = await open(new URL(page.url()).pathname);
  await settled(other);
  assert.equal((await blocks(other)).length, 2);
  await page.close();
  await waits(other);
  await context.unroute('**/v1/turns');
  await eventually(async () => assert.equal(await lastAnswer(other), 'the end'));
  await other.reload();
  await settled(other);
  assert.equal((await blocks(other)).length, 4);
  assert.deepEqual(await other.evaluate(() => Object.keys(localStorage).filter((key) => key.includes('/sending/'))), []);
  assert.deepEqual(wrong, []);
});

test('what is not accepted is taken back into the composer, with its files, before and after a reload', async () => {
  const { page, context, wrong } = await visit(world);
  const before = (await threads()).length;
  await attach(page);
  await lose(context, { heard: false });
  for (const reload of [false, true]) {
    await say(page, 'answer not yet');
    await waits(page);
    if (reload) await page.reload();
    await page.getByRole('button', { name: 'Take back' }).click();
    await eventually(async () => assert.equal(await composer(page).inputValue(), 'answer not yet'));
    await chips(page).getByText('note.txt').waitFor();
    assert.equal(await page.locator('article').count(), 0);
    await page.getByRole('heading', { name: 'What shall we work on?' }).waitFor();
    assert.equal(await page.evaluate(() => document.activeElement?.getAttribute('aria-label')), 'Message');
  }
  await page.reload();
  await eventually(async () => assert.equal(await composer(page).inputValue(), 'answer not yet'));
  await context.unroute('**/v1/turns');
  await composer(page).press('Enter');
  await settled(page);
  assert.equal((await threads()).length, before + 1);
  await page.locator('article').getByRole('button', { name: /note.txt/ }).waitFor();
  assert.deepEqual(wrong, []);
});

test('it goes on while the reader is elsewhere in the app, and what is written meanwhile is kept', async () => {
  const { page, context, wrong } = await visit(world);
  await lose(context, { heard: false });
  await say(page, 'answer from elsewhere');
  await waits(page);
  await composer(page).fill('and then this');
  await page.getByRole('button', { name: 'Settings' }).click();
  await page.getByRole('heading', { name: 'Appearance' }).waitFor();
  await page.goBack();
  await waits(page);
  assert.match((await blocks(page))[0], /answer from elsewhere/);
  await context.unroute('**/v1/turns');
  await page.waitForURL('**/c/*');
  await settled(page);
  assert.equal(await composer(page).inputValue(), 'and then this');
  await page.reload();
  await settled(page);
  await eventually(async () => assert.equal(await composer(page).inputValue(), 'and then this'));
  await page.goto(world.server.url);
  await composer(page).waitFor();
  assert.equal(await composer(page).inputValue(), '');
  assert.deepEqual(wrong, []);
});

test('an edit that is not accepted is there after a reload', async () => {
  const { page, context, wrong } = await visit(world);
  await say(page, 'answer as it was');
  await settled(page);
  await lose(context, { heard: false });
  await page.locator('article[data-role=user]').hover();
  await page.getByRole('button', { name: 'Edit message' }).click();
  await page.getByRole('textbox', { name: 'Edit message' }).fill('answer as it is');
  await page.keyboard.press('Enter');
  await waits(page);
  await page.reload();
  await waits(page);
  assert.equal((await blocks(page)).length, 2);
  assert.match((await blocks(page))[0], /answer as it is/);
  await context.unroute('**/v1/turns');
  await eventually(async () => assert.equal(await lastAnswer(page), 'as it is'));
  await page.getByRole('group', { name: 'Versions' }).waitFor();
  assert.deepEqual(wrong, []);
});

test('a waiting message shows its files', async () => {
  const { page, wrong } = await visit(world);
  await say(page, 'say so far\nhold shown\nanswer so far');
  await page.getByText('so far', { exact: true }).waitFor();
  await attach(page);
  await say(page, 'answer read');
  const waiting = page.locator('[data-queued]');
  await waiting.getByText('note.txt', { exact: true }).waitFor();
  await page.reload();
  await waiting.getByText('note.txt', { exact: true }).waitFor();
  world.sandbox.open('shown');
  await eventually(async () => assert.equal(await lastAnswer(page), 'read'));
  assert.deepEqual(wrong, []);
});
