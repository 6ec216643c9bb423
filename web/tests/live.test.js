// Two windows, no network for a while, a server that is killed: the page stays true.
import assert from 'node:assert/strict';
import { after, afterEach, before, test } from 'node:test';
import { blocks, composer, eventually, lastAnswer, leave, say, settled, startWorld, visit } from './world.js';

let world;
before(async () => (world = await startWorld()));
afterEach(() => leave(world));
after(() => world?.stop());

const shows = (page, text) => eventually(async () => assert.ok((await lastAnswer(page)).includes(text), `${text} in ${await lastAnswer(page)}`));

test('two windows and another device on one thread stay live', async () => {
  const { page, open, wrong } = await visit(world);
  await say(page, 'say first part\nhold two\nsay , second part\nhold three\nanswer first part, second part, end');
  await page.waitForURL('**/c/*');
  const path = new URL(page.url()).pathname;
  const second = await open(path);
  const device = (await visit(world)).page;
  await device.goto(world.server.url + path);
  for (const each of [page, second, device]) await shows(each, 'first part');
  world.sandbox.open('two');
  for (const each of [page, second, device]) await shows(each, 'second part');

  // A message that has to wait is seen, changed and taken back everywhere.
  await say(second, 'answer queued, to be changed');
  await say(second, 'answer never said');
  for (const each of [page, second, device]) await eventually(async () => assert.equal(await each.locator('[data-queued]').count(), 2));
  await device.getByRole('button', { name: 'Edit waiting message' }).first().click();
  await device.getByRole('textbox', { name: 'Edit waiting message' }).fill('answer changed in the queue');
  await device.getByRole('button', { name: 'Save' }).click();
  await page.getByRole('button', { name: 'Take back waiting message' }).nth(1).click();
  for (const each of [page, second, device]) await eventually(async () => assert.equal(await each.locator('[data-queued]').count(), 1));
  world.sandbox.open('three');
  for (const each of [page, second, device]) {
    await shows(each, 'changed in the queue');
    await settled(each);
    await eventually(async () => assert.equal(await each.locator('[data-queued]').count(), 0));
  }
  const seen = await blocks(page);
  assert.equal(seen.length, 4);
  assert.deepEqual(await blocks(second), seen);
  assert.deepEqual(await blocks(device), seen);

  // A turn that another device starts appears by itself.
  await say(device, 'answer from the device');
  for (const each of [page, second]) await shows(each, 'from the device');
  assert.deepEqual(wrong, []);
});

test('two windows that speak at once are both heard, one after the other', async () => {
  const { page, wrong } = await visit(world);
  await say(page, 'answer the beginning');
  await settled(page);
  const other = (await visit(world)).page;
  await other.goto(page.url());
  await settled(other);
  await Promise.all([say(page, 'wait 200\nanswer to the first'), say(other, 'wait 200\nanswer to the second')]);
  for (const each of [page, other]) {
    await eventually(async () => assert.equal((await blocks(each)).length, 6));
    await settled(each);
  }
  const heard = await blocks(page);
  assert.deepEqual(await blocks(other), heard);
  assert.ok(heard.join().includes('to the first') && heard.join().includes('to the second'));
  assert.deepEqual(wrong, []);
});

test('as many windows as one likes stream, stop and load: they take turns', { timeout: 180_000 }, async () => {
  const { page, open, wrong } = await visit(world);
  const pages = [page];
  const number = async (each) => Number(/.*word (\d+)/s.exec(await lastAnswer(each))?.[1] ?? -1);
  for (let n = 0; n < 8; n++) {
    // Four runs, each in two windows.
    const each = n === 0 ? page : await open(n % 2 ? new URL(pages.at(-1).url()).pathname : '/');
    if (n > 0) pages.push(each);
    await composer(each).waitFor();
    if (n % 2 === 0) {
      await say(each, 'words 3000 100');
      await each.waitForURL('**/c/*');
    }
    await eventually(async () => assert.ok((await number(each)) >= 0), 30_000);
  }
  // Each of them goes on.
  const before = await Promise.all(pages.map(number));
  await eventually(async () => {
    const now = await Promise.all(pages.map(number));
    assert.ok(now.every((reached, n) => reached > before[n]), `${now} after ${before}`);
  }, 30_000);
  for (const [n, each] of pages.entries()) {
    if (n % 2 === 0) await each.getByRole('button', { name: 'Stop' }).click();
    await each.getByText('Stopped', { exact: true }).waitFor();
  }
  assert.deepEqual(wrong, []);
});

test('Stop keeps what was written, and Retry answers again', async () => {
  const { page, wrong } = await visit(world);
  await say(page, 'hold thought\nstep a dig {"deep":true}\nsay half an answer\nhold never');
  await page.locator('[data-waiting]', { hasText: 'Thinking…' }).waitFor();
  world.sandbox.open('thought');
  await shows(page, 'half an answer');
  await page.getByRole('button', { name: 'Stop' }).click();
  await page.getByText('Stopped', { exact: true }).waitFor();
  assert.match(await lastAnswer(page), /unfinished.*half an answer/s);
  const stopped = await blocks(page);
  await page.reload();
  await settled(page);
  await eventually(async () => assert.deepEqual(await blocks(page), stopped));
  world.sandbox.open('never');
  await page.getByRole('button', { name: 'Retry' }).click();
  await page.getByRole('group', { name: 'Versions' }).waitFor();
  assert.match(await page.getByRole('group', { name: 'Versions' }).innerText(), /2 \/ 2/);
  assert.deepEqual(wrong, []);
});

test('offline and back: the stream goes on where it was', async () => {
  const { page, context, wrong } = await visit(world);
  await say(page, 'say one \nhold off\nsay two \nsay three \nhold on\nanswer one two three four');
  await shows(page, 'one');
  await context.setOffline(true);
  await page.locator('[data-offline]').waitFor();
  world.sandbox.open('off');
  const [run] = (await world.server.api('GET', `/v1${new URL(page.url()).pathname.replace('/c/', '/chat-conversations/')}/runs`)).data;
  await eventually(async () => assert.ok((await world.server.api('GET', `/v1/runs/${run.id}`)).last_event >= 4));
  assert.equal((await lastAnswer(page)).includes('two'), false);
  await context.setOffline(false);
  await shows(page, 'three');
  await page.locator('[data-offline]').waitFor({ state: 'detached' });
  // What is said without a network is sent when it is back, once.
  world.sandbox.open('on');
  await settled(page);
  await context.setOffline(true);
  await say(page, 'answer after the gap');
  await page.locator('[data-waiting]', { hasText: 'Reconnecting…' }).waitFor();
  await context.setOffline(false);
  await shows(page, 'after the gap');
  await settled(page);
  assert.equal((await blocks(page)).length, 4);
  assert.deepEqual(wrong, []);
});

test('kill -9 in the middle of a stream: the partial answer is kept, and the page comes back by itself', async () => {
  const { page, wrong } = await visit(world);
  await say(page, 'step a compute {"n":1}\nsay this much was written\nhold killed');
  await shows(page, 'this much was written');
  await world.server.kill();
  await page.locator('[data-offline]').waitFor();
  assert.ok((await lastAnswer(page)).includes('this much was written'));
  await world.server.up();
  await page.getByText('Interrupted by a restart of the server', { exact: true }).waitFor();
  await page.locator('[data-offline]').waitFor({ state: 'detached' });
  const kept = await blocks(page);
  assert.ok(kept.at(-1).includes('this much was written'));
  await page.reload();
  await settled(page);
  await eventually(async () => assert.deepEqual(await blocks(page), kept));
  world.sandbox.open('killed');
  await page.getByRole('button', { name: 'Retry' }).click();
  await page.getByRole('group', { name: 'Versions' }).waitFor();
  assert.ok((await lastAnswer(page)).includes('this much was written'));
  assert.deepEqual(wrong, []);
});

test('a draft is kept over a reload, with how and by whom it is to be answered', async () => {
  const { page } = await visit(world);
  await composer(page).fill('answer half a thought');
  await page.getByRole('button', { name: /^Mode:/ }).click();
  await page.getByRole('menuitemradio', { name: /Task flow/ }).click();
  await page.getByRole('button', { name: /^Model:/ }).click();
  await page.getByRole('menuitemradio', { name: 'demo/assistant' }).click();
  await page.reload();
  await eventually(async () => assert.equal(await composer(page).inputValue(), 'answer half a thought'));
  await page.getByRole('button', { name: 'Mode: Task flow' }).waitFor();
  await page.getByRole('button', { name: 'Model: assistant' }).waitFor();
  // Sent, it is no draft any more.
  await composer(page).press('Enter');
  await settled(page);
  await page.goto(world.server.url);
  await page.getByRole('button', { name: 'Mode: Agent' }).waitFor();
  assert.equal(await composer(page).inputValue(), '');
});
