// Three thousand threads, one of them with ten thousand messages: what is far away is found, shown and changed like what is near.
import assert from 'node:assert/strict';
import { after, afterEach, before, test } from 'node:test';
import { eventually, leave, settled, startWorld, visit } from './world.js';

const THREADS = 3000;
const MESSAGES = 10_000;
const DAY = 24 * 3600 * 1000;

let world;
before(async () => {
  world = await startWorld();
  const long = Array.from({ length: MESSAGES }, (_, n) => (n === 7 ? 'the haystack has a needle' : `straw ${n}.`));
  const threads = Array.from({ length: THREADS }, (_, n) => ({ title: `thread ${n}`, at: Date.now() - n * DAY / 4, messages: [`question ${n}`, `answer ${n}`] }));
  await world.server.take([{ title: 'the long one', at: Date.now(), messages: long }, ...threads]);
});
afterEach(() => leave(world));
after(() => world?.stop());

const inSight = (locator) => locator.evaluate((node) => node.getBoundingClientRect().top < innerHeight && node.getBoundingClientRect().bottom > 0);

test('thousands of threads are scrolled through, few of them drawn, and changed at the far end', { timeout: 150_000 }, async () => {
  const { page, wrong } = await visit(world);
  const list = page.locator('[data-history]');
  const item = (name) => list.getByRole('link', { name, exact: true });
  await item('thread 0').waitFor();
  let most = 0;
  await eventually(async () => {
    most = Math.max(most, await list.locator('li').count());
    await list.evaluate((node) => node.scrollTo(0, node.scrollHeight));
    assert.ok(await item(`thread ${THREADS - 1}`).isVisible());
  }, 100_000);
  assert.ok(most < 100, `${most} rows in the page`);
  const group = new Date(Date.now() - (THREADS - 1) * DAY / 4).toLocaleDateString('en-GB', { year: 'numeric', month: 'long' });
  await list.getByRole('heading', { name: group }).waitFor();

  // Changed at once, before the server has heard of it.
  const held = [];
  let hold = true;
  await page.route('**/v1/chat-conversations/*', (route) => (hold && route.request().method() !== 'GET' ? held.push(route) : route.fallback()));
  const release = () => held.splice(0).map((route) => route.fallback());
  await item(`thread ${THREADS - 1}`).focus();
  await page.keyboard.press('Delete');
  await item(`thread ${THREADS - 1}`).waitFor({ state: 'detached' });
  assert.equal(held.length, 1);
  release();
  await page.getByRole('button', { name: 'Undo' }).click();
  await eventually(async () => {
    await list.evaluate((node) => node.scrollTo(0, node.scrollHeight));
    assert.equal(await item(`thread ${THREADS - 2}`).count(), 1);
  });
  await item(`thread ${THREADS - 2}`).focus();
  await page.keyboard.press('F2');
  await page.getByRole('textbox', { name: 'Title' }).fill('a name for the old one');
  await page.keyboard.press('Enter');
  await item('a name for the old one').waitFor();
  assert.equal(held.length, 1);
  hold = false;
  release();

  // The newest write is first, and search finds it as it is typed.
  await page.getByRole('searchbox').pressSequentially('old one');
  await eventually(async () => assert.deepEqual(await list.locator('mark').allInnerTexts(), ['old', 'one']));
  assert.deepEqual(wrong, []);
});

test('a hit in a message leads to that message, however far up', { timeout: 150_000 }, async () => {
  const { page, wrong } = await visit(world);
  await page.getByRole('searchbox').fill('needle');
  await page.getByRole('link', { name: /needle/ }).click();
  const hit = page.locator('article', { hasText: 'the haystack has a needle' });
  await hit.waitFor({ timeout: 20_000 });
  await eventually(async () => assert.ok(await inSight(hit)));
  // The same from its address alone; and from there down to the newest.
  await page.reload();
  await hit.waitFor({ timeout: 20_000 });
  await page.getByRole('button', { name: 'To the newest message' }).click();
  await eventually(async () => assert.ok(await inSight(page.locator('article', { hasText: `straw ${MESSAGES - 1}.` }))));
  assert.ok((await page.locator('article').count()) < 60);
  assert.deepEqual(wrong, []);
});

test('older messages come as they are scrolled to', { timeout: 150_000 }, async () => {
  const { page, wrong } = await visit(world);
  await page.getByRole('link', { name: 'the long one', exact: true }).click();
  await settled(page);
  const frame = page.locator('[aria-label=Messages]');
  const first = () => page.locator('article').first().evaluate((node) => Number(/straw (\d+)\./.exec(node.textContent)?.[1]));
  const seen = new Set();
  await frame.hover();
  await eventually(async () => {
    await page.mouse.wheel(0, -2000);
    seen.add(await first());
    assert.ok((await first()) < MESSAGES - 1000);
  }, 60_000);
  assert.ok(seen.size > 10, `${seen.size} places`);
  assert.deepEqual(wrong, []);
});
