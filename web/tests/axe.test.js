// axe on every screen, in both themes.
import assert from 'node:assert/strict';
import { readFileSync } from 'node:fs';
import { createRequire } from 'node:module';
import { after, afterEach, before, test } from 'node:test';
import { dot, pdf } from './paper.js';
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
  await post('/v1/api-keys', { name: 'for axe', role: 'member' });
});
afterEach(() => leave(world));
after(() => world?.stop());

const axe = readFileSync(createRequire(import.meta.url).resolve('axe-core/axe.min.js'), 'utf8');

/** Everything in the light theme; in the dark one, which changes nothing else, the colours. */
async function check(page, screen) {
  if (!(await page.evaluate(() => 'axe' in window))) {
    await page.evaluate(axe);
    // A change of theme is looked at when it is over.
    await page.addStyleTag({ content: '*, ::before, ::after { transition: none !important }' });
  }
  for (const [colorScheme, rules] of [['dark', { runOnly: ['color-contrast', 'link-in-text-block'] }], ['light', {}]]) {
    await page.emulateMedia({ colorScheme });
    const { violations } = await page.evaluate(async (options) => {
      await Promise.all(document.getAnimations().filter((one) => one.effect?.getTiming().iterations !== Infinity).map((one) => one.finished.catch(() => {})));
      return window.axe.run(document, { ...options, resultTypes: ['violations'] });
    }, rules);
    const told = violations.map(({ id, nodes }) => `${id}: ${nodes.map((node) => `${node.html.slice(0, 160)} ${node.any[0]?.message ?? ''}`).slice(0, 3).join(' | ')}`);
    assert.deepEqual(told, [], `${screen}, ${colorScheme}`);
  }
}

const look = { bypassCSP: true, reducedMotion: 'reduce' };
const phone = { width: 390, height: 844 };
const desk = { width: 1280, height: 800 };

test('axe finds nothing in a thread', { timeout: 180_000 }, async () => {
  const { page, context } = await visit(world, look);
  await page.route('**/v1/models', (route) => route.fulfill({ contentType: 'application/json', body: '{"data":[{"id":"demo/assistant"}]}' }));
  await page.reload();
  await page.getByRole('list', { name: 'Things to try' }).waitFor();
  await check(page, 'empty');
  const text = 'say ## Title\\n\\nText with `code` and [a link](https://example.com).\\n\\n- [x] done\\n- [ ] open\\n\\n| a | b |\\n|---|---|\\n| 1 | 2 |\\n\\nAnd another:\\n\\n| c | d |\\n|---|---|\\n| 3 | 4 |\\n\\n```js\\nconst x = "y" // z\\n```\\n\\n> quote\\n\\n#### Deep';
  await say(page, `step a look {"a":1}\ndone a look fine\nstep b break {}\nfailed b break it broke\nstep c wait\nsay so far \nhold one\n${text}\nhold two`);
  await page.getByText('so far', { exact: true }).waitFor();
  await page.locator('[data-steps] > button').click();
  await say(page, 'answer waits');
  await say(page, 'answer waits longer');
  await page.getByRole('button', { name: 'Edit waiting message' }).last().click();
  await check(page, 'live, steps open, a queue that is edited');
  await page.keyboard.press('Escape');
  world.sandbox.open('one');
  await page.getByText('quote', { exact: true }).waitFor();
  await context.setOffline(true);
  await page.locator('[data-offline]').waitFor();
  await check(page, 'live, offline');
  await context.setOffline(false);
  world.sandbox.open('two');
  await eventually(async () => assert.equal(await page.locator('article').count(), 6));
  await settled(page);
  await page.locator('[data-steps] > button').first().click();
  await page.locator('li[data-block=step] > button').first().click();
  await check(page, 'settled, steps open');
  await page.getByRole('button', { name: 'Show the run’s trace' }).first().click();
  await page.getByRole('figure', { name: 'Timeline of the steps' }).waitFor();
  await page.getByRole('complementary').locator('ol button').first().click();
  await check(page, 'trace with its timeline');
  await page.setViewportSize(phone);
  await page.reload();
  await page.getByRole('figure', { name: 'Timeline of the steps' }).waitFor();
  await check(page, 'phone, trace');
  await page.keyboard.press('Escape');
  await check(page, 'phone, thread');
  await page.setViewportSize(desk);
  await page.reload();
  await page.locator('article').last().waitFor();
  await say(page, 'say a part of it\nfail some_code It broke.');
  await page.getByRole('button', { name: 'Retry' }).waitFor();
  await check(page, 'failed');
  await page.locator('article[data-role=user]').last().hover();
  await page.getByRole('button', { name: 'Edit message' }).last().click();
  await check(page, 'editing');
  await page.keyboard.press('Escape');
  await say(page, 'say cut off\nhold stopped');
  await page.getByText('cut off', { exact: true }).waitFor();
  await page.getByRole('button', { name: 'Stop' }).click();
  await page.getByText('Stopped', { exact: true }).waitFor();
  await page.getByRole('button', { name: 'Retry' }).click();
  await page.getByRole('button', { name: 'Stop' }).click();
  await page.getByRole('group', { name: 'Versions' }).waitFor();
  await check(page, 'stopped, with versions');
  await page.getByRole('searchbox').fill('waits');
  await page.locator('[data-history] mark').first().waitFor();
  await check(page, 'search');
  await page.getByRole('searchbox').fill('');
  await page.locator('[data-history] a').first().focus();
  await page.keyboard.press('F2');
  await check(page, 'rename');
  await page.keyboard.press('Escape');
  await page.getByRole('button', { name: /^Mode:/ }).click();
  await page.getByRole('menu').waitFor();
  await check(page, 'menu');
  await page.keyboard.press('Escape');
  await page.locator('[data-history] a').first().focus();
  await page.keyboard.press('Delete');
  await page.getByRole('button', { name: 'Undo' }).waitFor();
  await check(page, 'deleted, with undo');
  await page.goto(`${world.server.url}/c/01a1ded4-0b72-71da-b177-5da4caf99e0f`);
  await page.getByText('There is no such thread').waitFor();
  await check(page, 'missing');
});

test('axe finds nothing where a person is asked, in previews and at the door', { timeout: 180_000 }, async () => {
  const { page } = await visit(world, look);
  await page.evaluate(() => {
    const dataTransfer = new DataTransfer();
    dataTransfer.items.add(new File(['x'], 'x.txt'));
    window.dispatchEvent(new DragEvent('dragenter', { dataTransfer }));
  });
  await page.getByText('Drop to attach').waitFor();
  await check(page, 'dragging files');
  await page.reload();
  await page.getByRole('button', { name: /^Model:/ }).click();
  await page.getByRole('menuitemradio', { name: /Careful/ }).click();
  const files = [
    ['rivers.csv', 'text/csv', Buffer.from('river,km\nVolga,3530\n'), 'Volga'],
    ['paper.pdf', 'application/pdf', pdf(['A page']), 'A page'],
    ['note.txt', 'text/plain', Buffer.from('a note to read'), 'a note to read'],
    ['dot.png', 'image/png', dot, null],
    ['some.bin', 'application/octet-stream', Buffer.from([0, 1, 2]), 'There is no preview'],
  ];
  await page.route('**/files', (route) => (route.request().postData()?.includes('refused.txt') ? route.fulfill({ status: 413, contentType: 'application/problem+json', body: '{"status":413,"code":"bag_full","detail":"The bag is full."}' }) : route.fallback()));
  await page.locator('input[type=file]').setInputFiles([...files.map(([name, mimeType, buffer]) => ({ name, mimeType, buffer })), { name: 'refused.txt', mimeType: 'text/plain', buffer: Buffer.from('no') }]);
  await page.getByText('The bag is full.').waitFor();
  await check(page, 'files in the composer, one of them refused');
  await page.getByRole('button', { name: 'Remove refused.txt' }).click();
  await say(page, 'call read_file {"name":"rivers.csv"}');
  await page.getByRole('region', { name: 'Approval for read_file' }).waitFor();
  await check(page, 'approval');
  await page.getByRole('button', { name: 'Refuse' }).click();
  await settled(page);
  for (const [name, , , there] of files) {
    await page.locator('article').getByRole('button', { name: new RegExp(name) }).click();
    const dialog = page.getByRole('dialog');
    await (there ? dialog.getByText(there).first() : dialog.getByRole('img', { name })).waitFor({ state: 'attached' });
    await check(page, `preview of ${name}`);
    await page.keyboard.press('Escape');
  }
  await page.getByRole('button', { name: /^Mode:/ }).click();
  await page.getByRole('menuitemradio', { name: /^Ask/ }).click();
  await page.getByRole('button', { name: /^Local/ }).click();
  await page.getByRole('menu').waitFor();
  await check(page, 'menu of the workspace');
  await page.getByRole('menuitem', { name: 'New workspace…' }).click();
  await page.getByRole('dialog').waitFor();
  await check(page, 'new workspace');
  await page.keyboard.press('Escape');
  const many = { data: Array.from({ length: 60 }, (_, n) => ({ id: `vendor/model-${n}` })) };
  await page.route('**/v1/models', (route) => route.fulfill({ contentType: 'application/json', body: JSON.stringify(many) }));
  await page.route('**/v1/turns', (route) => route.abort());
  await page.reload();
  await page.getByRole('button', { name: /^Model:/ }).click();
  await page.getByRole('option').first().waitFor();
  await check(page, 'many models');
  await page.keyboard.press('Escape');
  await say(page, 'answer what cannot be sent');
  await page.getByRole('button', { name: 'Take back' }).waitFor();
  await check(page, 'a message that cannot be sent');
  await page.getByRole('button', { name: 'Take back' }).click();
  await page.unroute('**/v1/turns');
  await page.route('**/v1/workspaces?*', (route) => route.fulfill({ contentType: 'application/json', body: '{"data":[]}' }));
  await page.reload();
  await page.getByRole('heading', { name: 'Name your workspace' }).waitFor();
  await check(page, 'no workspace');
  await page.unroute('**/v1/workspaces?*');
  await page.unroute('**/v1/models');
  await page.setViewportSize(phone);
  await page.goto(world.server.url);
  await page.getByRole('button', { name: 'Show the history' }).click();
  await check(page, 'phone, history');
  await page.context().clearCookies();
  await page.reload();
  await page.getByRole('textbox', { name: 'Token' }).fill('not.a.token');
  await page.getByRole('button', { name: 'Log in' }).click();
  await page.getByRole('alert').waitFor();
  await check(page, 'door');
  await page.route('**/v1/**', (route) => route.abort());
  await page.reload();
  await page.getByText('The server cannot be reached').waitFor({ timeout: 15_000 });
  await check(page, 'no server');
});

test('axe finds nothing in the settings', { timeout: 180_000 }, async () => {
  const { page } = await visit(world, look);
  const screens = ['/settings/general', '/settings/agents', '/settings/tools', '/pages', `/pages/${made.page.id}`, '/tables', `/tables/${made.table.id}`, '/settings/usage', '/settings/members', '/settings/keys', '/settings/audit', '/pages/01a1ded4-0b72-71da-b177-5da4caf99e0f'];
  for (const screen of screens) {
    await page.goto(world.server.url + screen);
    await page.locator('main h2, main p').first().waitFor();
    await eventually(async () => assert.equal(await page.getByRole('img', { name: /^Loading/ }).count(), 0));
    await check(page, screen);
  }
  const forms = [['/settings/agents', 'Edit'], ['/tables', 'New table'], ['/pages', 'New page'], [`/pages/${made.page.id}`, 'Remove the page A page'], ['/settings/keys', 'Remove the key for axe']];
  for (const [screen, button] of forms) {
    await page.goto(world.server.url + screen);
    await page.getByRole('button', { name: button }).first().click();
    await page.locator('main form, dialog').first().waitFor();
    await check(page, `${screen}, ${button}`);
  }
  await page.setViewportSize(phone);
  for (const screen of ['/settings/members', `/tables/${made.table.id}`]) {
    await page.goto(world.server.url + screen);
    await page.getByRole('heading', { level: 2 }).first().waitFor();
    await check(page, `phone, ${screen}`);
  }
});
