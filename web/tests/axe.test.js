// axe on every screen, in both themes.
import assert from 'node:assert/strict';
import { readFileSync } from 'node:fs';
import { createRequire } from 'node:module';
import { after, afterEach, before, test } from 'node:test';
import { pdf } from './paper.js';
import { eventually, leave, say, settled, startWorld, visit } from './world.js';

let world;
const made = {};
before(async () => {
  world = await startWorld({ models: true });
  const { api } = world.server;
  const post = (path, body) => api.call(world.server, 'POST', path, body);
  made.agent = await post('/v1/agents', { name: 'Careful', instructions: '', model: 'openai/scripted', runner: 'model', tools: ['read_file'], approval: ['read_file'] });
  made.page = await post('/v1/pages', { title: 'A page', body: '# A page\n\nWith `code`, a list:\n\n- one\n- two\n\n| a | b |\n|---|---|\n| 1 | 2 |', url: 'https://example.com' });
  const columns = ['text', 'number', 'boolean', 'date'].map((type) => ({ name: `a ${type}`, type }));
  made.table = await post('/v1/tables', { name: 'A table', columns });
  await post(`/v1/tables/${made.table.id}/rows`, { rows: [{ 'a text': 'x', 'a number': 1, 'a boolean': true, 'a date': '2026-05-01' }, {}] });
});
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
  const look = { colorScheme, bypassCSP: true, reducedMotion: 'reduce' };
  test(`axe finds nothing in a thread, ${colorScheme}`, { timeout: 60_000 }, async () => {
    const { page } = await visit(world, look);
    await page.route('**/v1/models', (route) => route.fulfill({ contentType: 'application/json', body: '{"data":[{"id":"demo/assistant"}]}' }));
    await page.reload();
    await page.getByRole('list', { name: 'Things to try' }).waitFor();
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
    await page.keyboard.press('Escape');
    await page.getByRole('searchbox').fill('some');
    await page.locator('[data-history] mark').first().waitFor();
    await check(page, 'search');
    await page.getByRole('button', { name: /^Mode:/ }).click();
    await page.getByRole('menu').waitFor();
    await check(page, 'menu');
    await page.goto(`${world.server.url}/c/01a1ded4-0b72-71da-b177-5da4caf99e0f`);
    await page.getByText('There is no such thread').waitFor();
    await check(page, 'missing');
  });

  test(`axe finds nothing where a person is asked, in previews and at the door, ${colorScheme}`, { timeout: 60_000 }, async () => {
    const { page } = await visit(world, look);
    await page.getByRole('button', { name: /^Model:/ }).click();
    await page.getByRole('menuitemradio', { name: /Careful/ }).click();
    await page.locator('input[type=file]').setInputFiles([
      { name: 'rivers.csv', mimeType: 'text/csv', buffer: Buffer.from('river,km\nVolga,3530\n') },
      { name: 'paper.pdf', mimeType: 'application/pdf', buffer: pdf(['A page']) },
    ]);
    await say(page, 'call read_file {"name":"rivers.csv"}');
    await page.getByRole('region', { name: 'Approval for read_file' }).waitFor();
    await check(page, 'approval');
    await page.getByRole('button', { name: 'Refuse' }).click();
    await settled(page);
    for (const [name, there] of [['rivers.csv', 'Volga'], ['paper.pdf', 'A page']]) {
      await page.locator('article').getByRole('button', { name: new RegExp(name) }).click();
      await page.getByRole('dialog').getByText(there).first().waitFor({ state: 'attached' });
      await check(page, `preview of ${name}`);
      await page.keyboard.press('Escape');
    }
    await page.setViewportSize({ width: 390, height: 844 });
    await page.goto(world.server.url);
    await page.getByRole('button', { name: 'Show the history' }).click();
    await check(page, 'phone, history');
    await page.context().clearCookies();
    await page.reload();
    await page.getByRole('textbox', { name: 'Token' }).waitFor();
    await check(page, 'door');
  });

  test(`axe finds nothing in the settings, ${colorScheme}`, { timeout: 60_000 }, async () => {
    const { page } = await visit(world, look);
    const screens = ['/settings/general', '/settings/agents', '/settings/tools', '/pages', `/pages/${made.page.id}`, '/tables', `/tables/${made.table.id}`, '/settings/usage', '/settings/members', '/settings/keys', '/settings/audit', '/pages/01a1ded4-0b72-71da-b177-5da4caf99e0f'];
    for (const screen of screens) {
      await page.goto(world.server.url + screen);
      await page.locator('main h2, main p').first().waitFor();
      await eventually(async () => assert.equal(await page.getByRole('img', { name: /^Loading/ }).count(), 0));
      await check(page, screen);
    }
    const forms = [['/settings/agents', 'Edit'], ['/tables', 'New table'], ['/pages', 'New page'], [`/pages/${made.page.id}`, 'Remove the page A page']];
    for (const [screen, button] of forms) {
      await page.goto(world.server.url + screen);
      await page.getByRole('button', { name: button }).first().click();
      await page.locator('main form, dialog').first().waitFor();
      await check(page, `${screen}, ${button}`);
    }
  });
}
