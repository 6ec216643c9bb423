// The page is a view of the event log: whoever loads it at any moment sees the same blocks as who watched.
import assert from 'node:assert/strict';
import { after, afterEach, before, test } from 'node:test';
import { blocks, eventually, leave, say, settled, startWorld, visit } from './world.js';

let world;
before(async () => (world = await startWorld()));
afterEach(() => leave(world));
after(() => world?.stop());

const pick = (list) => list[Math.floor(Math.random() * list.length)];

/** A turn of this many moments, a gate after each. */
function script(turn, moments) {
  const lines = [];
  const open = [];
  for (let n = 0; n < moments; n++) {
    const kind = pick(['text', 'text', 'step', 'end', 'markdown']);
    if (kind === 'step') {
      open.push(`s${n}`);
      lines.push(`step s${n} look_at_${n} {"n":${n}}`);
    } else if (kind === 'end' && open.length > 0) {
      lines.push(Math.random() < 0.7 ? `done ${open.pop()} looked_${n} fine ${n}` : `failed ${open.pop()} looked_${n} broken ${n}`);
    } else if (kind === 'markdown') {
      lines.push(`say ${pick(['\\n\\n## Part ', '\\n\\n- item ', ' **bold** ', '\\n\\n```js\\nlet x = ', '\\n\\n| a | b |\\n|---|---|\\n| 1 | '])}${n}`);
    } else lines.push(`say moment ${n} `);
    lines.push(`hold ${turn}-${n}`);
  }
  lines.push(pick(['answer The end.', 'answer', 'fail some_code It broke.']));
  return lines.join('\n');
}

test('fifty reloads at random moments show what the live page shows', { timeout: 240_000 }, async () => {
  // Tall enough to draw a whole thread.
  const { page, context, wrong } = await visit(world, { viewport: { width: 700, height: 2600 } });
  const other = await context.newPage();
  const [threads, moments] = [5, 10];
  for (let thread = 0; thread < threads; thread++) {
    await page.getByRole('button', { name: 'New thread' }).click();
    await say(page, script(thread, moments));
    await page.waitForFunction(() => document.querySelector('[data-live]') && location.pathname.startsWith('/c/'));
    const run = (await world.server.api('GET', `/v1${new URL(page.url()).pathname.replace('/c/', '/chat-conversations/')}/runs`)).data[0];
    for (let n = 0; n < moments; n++) {
      // All that is sent until the gate is here when two looks in a row are the same and the log says so.
      await eventually(async () => {
        const { last_event: last } = await world.server.api('GET', `/v1/runs/${run.id}`);
        assert.ok(last >= n + 2, `event ${last} of moment ${n}`);
      });
      await other.goto(page.url(), { waitUntil: 'commit' });
      await eventually(async () => {
        const [live, reloaded] = await Promise.all([blocks(page), blocks(other)]);
        assert.deepEqual(reloaded, live);
        assert.match(live.at(-1), /^assistant: ./);
        assert.equal(live.length, 2);
      });
      world.sandbox.open(`${thread}-${n}`);
    }
    await settled(page);
    const live = await blocks(page);
    await page.reload();
    await settled(page);
    await eventually(async () => assert.deepEqual(await blocks(page), live));
  }
  assert.deepEqual(wrong, []);
});

test('reloads in the middle of a stream lose and repeat nothing', { timeout: 60_000 }, async () => {
  const { page, context, wrong } = await visit(world);
  await say(page, 'words 150 15\nanswer');
  await page.waitForURL('**/c/*');
  const others = await Promise.all([0, 1].map(() => context.newPage()));
  for (let n = 0; n < 6; n++) {
    for (const other of others) await other.goto(page.url());
    await page.waitForTimeout(Math.random() * 200);
  }
  await settled(page);
  const text = await page.locator('[data-blocks]').last().innerText();
  const words = [...text.matchAll(/word (\d+)/g)].map((match) => Number(match[1]));
  assert.deepEqual(words, Array.from({ length: 150 }, (_, n) => n));
  for (const other of others) {
    await settled(other);
    assert.deepEqual(await blocks(other), await blocks(page));
  }
  assert.deepEqual(wrong, []);
});
