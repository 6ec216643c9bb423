// Hostile text from everywhere.
import assert from 'node:assert/strict';
import { after, afterEach, before, test } from 'node:test';
import { hostile } from './hostile.js';
import { eventually, leave, say, settled, startWorld, visit } from './world.js';

let world;
before(async () => (world = await startWorld()));
afterEach(() => leave(world));
after(() => world?.stop());

test(`${hostile.length} hostile texts: nothing runs, nothing leaves, nothing breaks the page`, { timeout: 90_000 }, async () => {
  assert.ok(hostile.length >= 200);
  const { page, wrong, elsewhere } = await visit(world);
  await page.evaluate(() => (window.hurt = 0));
  page.on('dialog', (dialog) => wrong.push(`dialog: ${dialog.message()}`));
  for (let from = 0; from < hostile.length; from += 30) {
    await say(page, `hostile ${from} ${from + 30}`);
    await eventually(async () => assert.equal(await page.locator('article[data-role=assistant]').last().getAttribute('data-live'), null), 20_000);
    await settled(page);
    await page.evaluate(async () => {
      const [last] = [...document.querySelectorAll('article[data-role=assistant]')].slice(-1);
      for (const rows of ['[data-steps] > button', 'li[data-block=step] > button']) {
        last.querySelectorAll(rows).forEach((button) => button.click());
        await new Promise((resolve) => requestAnimationFrame(() => requestAnimationFrame(resolve)));
      }
    });
    const broken = await page.evaluate(() => {
      const inside = document.querySelector('[aria-label=Messages]');
      return { wide: document.documentElement.scrollWidth > innerWidth, thread: inside.scrollWidth > inside.clientWidth + 1, links: [...document.querySelectorAll('article a')].map((a) => a.protocol).filter((p) => !['http:', 'https:', 'mailto:'].includes(p)), embedded: document.querySelectorAll('article :is(img, iframe, script, style, object, form, link, meta, base)').length };
    });
    assert.deepEqual(broken, { wide: false, thread: false, links: [], embedded: 0 }, `texts from ${from}`);
  }
  // As names of files, too: on the chip, in the thread, over the preview.
  const files = hostile.filter((text) => text.trim() && text.length < 200).slice(0, 10).map((name) => ({ name: `${name}.txt`, mimeType: 'text/plain', buffer: Buffer.from(name) }));
  await page.locator('input[type=file]').setInputFiles(files);
  await say(page, 'answer thank you');
  await eventually(async () => assert.equal(await page.locator('article[data-role=user]').last().getByRole('listitem').count(), 10), 20_000);
  await settled(page);
  await page.locator('article[data-role=user]').last().getByRole('listitem').first().getByRole('button').click();
  await page.getByRole('dialog').locator('pre').waitFor();
  assert.equal(await page.evaluate(() => document.documentElement.scrollWidth > innerWidth), false);
  await page.keyboard.press('Escape');
  assert.equal(await page.evaluate(() => window.hurt), 0);
  assert.deepEqual(elsewhere, []);
  assert.deepEqual(wrong, []);
});
