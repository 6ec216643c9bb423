// axe on every screen, in both themes.
import assert from 'node:assert/strict';
import { readFileSync } from 'node:fs';
import { createRequire } from 'node:module';
import { after, afterEach, before, test } from 'node:test';
import { eventually, leave, say, settled, startWorld, visit } from './world.js';

let world;
before(async () => (world = await startWorld()));
afterEach(() => leave(world));
after(() => world?.stop());

const axe = readFileSync(createRequire(import.meta.url).resolve('axe-core/axe.min.js'), 'utf8');

async function check(page, screen) {
  await page.evaluate(() => Promise.all(document.getAnimations().filter((one) => one.effect?.getTiming().iterations !== Infinity).map((one) => one.finished.catch(() => {}))));
  await page.evaluate(axe);
  const { violations } = await page.evaluate(() => window.axe.run(document, { resultTypes: ['violations'] }));
  const told = violations.map(({ id, nodes }) => `${id}: ${nodes.map((node) => `${node.html.slice(0, 160)} ${node.any[0]?.message ?? ''}`).slice(0, 3).join(' | ')}`);
  assert.deepEqual(told, [], screen);
}

for (const colorScheme of ['light', 'dark']) {
  test(`axe finds nothing on any screen, ${colorScheme}`, { timeout: 60_000 }, async () => {
    const { page } = await visit(world, { colorScheme, bypassCSP: true, reducedMotion: 'reduce' });
    await check(page, 'empty');
    const text = 'say ## Title\\n\\nText with `code` and [a link](https://example.com).\\n\\n- [x] done\\n- [ ] open\\n\\n| a | b |\\n|---|---|\\n| 1 | 2 |\\n\\nAnd another:\\n\\n| c | d |\\n|---|---|\\n| 3 | 4 |\\n\\n```js\\nconst x = "y" // z\\n```\\n\\n> quote\\n\\n#### Deep';
    await say(page, `step a look {"a":1}\ndone a look fine\nstep b break {}\nfailed b break it broke\n${text}\nhold ${colorScheme}`);
    await page.getByText('quote', { exact: true }).waitFor();
    await say(page, 'answer waits');
    await page.locator('[data-queued]').waitFor();
    await check(page, 'live, with a queue');
    world.sandbox.open(colorScheme);
    await eventually(async () => assert.equal(await page.locator('article').count(), 4));
    await settled(page);
    await page.locator('[data-steps] > button').first().click();
    await page.locator('li[data-block=step] > button').first().click();
    await check(page, 'settled, steps open');
    await page.getByRole('button', { name: 'Show the run’s trace' }).first().click();
    await page.getByText('succeeded').first().waitFor();
    await check(page, 'trace');
    await page.keyboard.press('Escape');
    await say(page, 'fail some_code It broke.');
    await page.getByRole('button', { name: 'Retry' }).waitFor();
    await check(page, 'failed');
    await page.locator('article[data-role=user]').last().hover();
    await page.getByRole('button', { name: 'Edit message' }).last().click();
    await check(page, 'editing');
    await page.getByRole('searchbox').fill('some');
    await page.locator('[data-history] mark').first().waitFor();
    await check(page, 'search');
    await page.getByRole('button', { name: /^Mode:/ }).click();
    await page.getByRole('menu').waitFor();
    await check(page, 'menu');
    for (const section of ['general', 'members', 'keys', 'audit']) {
      await page.goto(`${world.server.url}/settings/${section}`);
      await page.getByRole('heading', { level: 2 }).first().waitFor();
      await check(page, section);
    }
    await page.goto(`${world.server.url}/c/01a1ded4-0b72-71da-b177-5da4caf99e0f`);
    await page.getByText('There is no such thread').waitFor();
    await check(page, 'missing');
    await page.setViewportSize({ width: 390, height: 844 });
    await page.goto(world.server.url);
    await page.getByRole('button', { name: 'Show the history' }).click();
    await check(page, 'phone, history');
    await page.context().clearCookies();
    await page.reload();
    await page.getByRole('textbox', { name: 'Token' }).waitFor();
    await check(page, 'door');
  });
}
