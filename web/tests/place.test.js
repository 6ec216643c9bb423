// Where things are: the place in a thread is kept over a reload and on the way back, the chosen tab is in sight, the history
// tells which threads are answering, and an address that leads nowhere says so.
import assert from 'node:assert/strict';
import { after, afterEach, before, test } from 'node:test';
import { eventually, leave, say, settled, startWorld, visit } from './world.js';

let world;
before(async () => {
  world = await startWorld();
  const messages = Array.from({ length: 400 }, (_, n) => `line ${n}.\n\n${'More words to fill it. '.repeat(n % 40)}`);
  await world.server.take([
    { title: 'long', at: Date.now(), messages },
    { title: 'other', at: Date.now() - 1000, messages: ['one', 'two'] },
  ]);
});
afterEach(() => leave(world));
after(() => world?.stop());

/** The first message in sight, and how far it is from the top. */
const place = (page) =>
  page.getByRole('region', { name: 'Messages' }).evaluate((frame) => {
    const top = frame.getBoundingClientRect().top;
    const first = [...frame.querySelectorAll('article')].find((node) => node.getBoundingClientRect().bottom > top + 1);
    return first && { message: first.dataset.message, offset: Math.round(first.getBoundingClientRect().top - top) };
  });
const still = async (page) => {
  let before;
  return eventually(async () => {
    const now = await place(page);
    const same = JSON.stringify(now) === JSON.stringify(before);
    before = now;
    await page.waitForTimeout(300);
    assert.ok(now && same);
    return now;
  });
};
const near = (found, wanted) => assert.ok(found?.message === wanted.message && Math.abs(found.offset - wanted.offset) < 4, `${JSON.stringify(found)} instead of ${JSON.stringify(wanted)}`);

test('a reload and Back find the place in the thread', { timeout: 60_000 }, async () => {
  const { page, wrong } = await visit(world);
  const open = (title) => page.locator('[data-history]').getByRole('link', { name: title, exact: true }).click();
  await open('long');
  await settled(page);
  await page.getByText('line 399.').waitFor();
  await page.getByRole('region', { name: 'Messages' }).hover();
  // Near the end, and where it must be loaded first.
  for (const [way, line] of [[-2500, 380], [-12_000, 250]]) {
    await eventually(async () => {
      await page.mouse.wheel(0, way / 5);
      await page.waitForTimeout(60);
      const first = await page.locator('article').first().innerText();
      assert.ok(Number(/line (\d+)/.exec(first)?.[1]) < line, first.slice(0, 40));
    }, 20_000);
    const was = await still(page);
    await page.reload();
    await eventually(async () => near(await place(page), was));
    near(await still(page), was);
    await open('other');
    await page.getByText('two', { exact: true }).waitFor();
    await page.goBack();
    await eventually(async () => near(await place(page), was));
    near(await still(page), was);
    await page.getByRole('region', { name: 'Messages' }).hover();
  }
  // Who follows the answers is at the end again.
  await page.getByRole('button', { name: 'To the newest message' }).click();
  await page.getByText('line 399.').waitFor();
  await still(page);
  await page.reload();
  await page.getByText('line 399.').waitFor();
  // And who comes anew begins there.
  await page.mouse.wheel(0, -2500);
  await open('other');
  await open('long');
  await page.getByText('line 399.').waitFor();
  assert.deepEqual(wrong, []);
});

test('the chosen one of many tabs is in sight', async () => {
  const { page, wrong } = await visit(world);
  const { conversation: id } = await world.server.turn('answer with many tabs');
  const tabs = Array.from({ length: 40 }, (_, n) => ({ key: `destination ${n}`, destinationId: `destination ${n}` }));
  await world.server.api('PATCH', `/v1/chat-conversations/${id}`, { data: { type: 'chat_conversation', id, attributes: { tabs, active_tab_key: 'destination 30' } } }, 'application/vnd.api+json');
  await page.goto(`${world.server.url}/c/${id}`);
  const chosen = page.getByRole('button', { name: 'destination 30', exact: true });
  await eventually(async () => {
    const { x, width } = await chosen.boundingBox();
    assert.ok(x > 260 && x + width < 1280, `${x}`);
  });
  assert.deepEqual(wrong, []);
});

test('the history tells which threads are answering', async () => {
  const { page, open, wrong } = await visit(world);
  const answering = (where) => where.locator('[data-history] li', { has: where.getByRole('img', { name: 'answering' }) });
  for (const name of ['one', 'two']) {
    await page.getByRole('button', { name: 'New thread' }).click();
    await say(page, `say thread ${name}\nhold ${name}`);
    await page.waitForURL('**/c/*');
  }
  const other = await open('/');
  for (const where of [page, other]) await eventually(async () => assert.equal(await answering(where).count(), 2));
  world.sandbox.open('one');
  for (const where of [page, other]) await eventually(async () => assert.equal(await answering(where).count(), 1));
  world.sandbox.open('two');
  for (const where of [page, other]) await eventually(async () => assert.equal(await answering(where).count(), 0));
  assert.deepEqual(wrong, []);
});

test('an address that leads nowhere says so', async () => {
  const { page, wrong } = await visit(world);
  await page.goto(`${world.server.url}/nonsense`);
  await page.getByRole('heading', { name: 'There is no such page' }).waitFor();
  await page.getByRole('main').getByRole('button', { name: 'New thread' }).click();
  await page.getByRole('textbox', { name: 'Message' }).waitFor();
  assert.equal(new URL(page.url()).pathname, '/');
  assert.deepEqual(wrong, []);
});
