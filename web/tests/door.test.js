// A server with JWT: the first user names a workspace; what one user wrote is not shown to the next.
import assert from 'node:assert/strict';
import { after, afterEach, before, test } from 'node:test';
import { composer, eventually, leave, say, settled, startWorld, visit } from './world.js';

let world;
before(async () => (world = await startWorld({ env: { THREADKEEP_JWT_SECRET: 'x'.repeat(40), THREADKEEP_SECRET: 'y'.repeat(40) } })));
afterEach(() => leave(world));
after(() => world?.stop());

const logIn = async (page, user) => {
  await page.getByRole('textbox', { name: 'Token' }).fill(world.server.token(user));
  await page.keyboard.press('Enter');
};
const asUser = async (user, method, path, body) => {
  const headers = { Authorization: `Bearer ${world.server.token(user)}`, 'Content-Type': 'application/json' };
  const answer = await fetch(world.server.url + path, { method, headers, body: body && JSON.stringify(body) });
  assert.ok(answer.ok, `${method} ${path}: ${answer.status}`);
  return answer.json();
};
const stored = (page) => page.evaluate(() => Object.keys(localStorage));

test('who is in no workspace names one, or is let into one', async () => {
  const { page, wrong } = await visit(world, { viewport: { width: 360, height: 640 } });
  await logIn(page, 'ada');
  await page.getByRole('heading', { name: 'Name your workspace' }).waitFor();
  const name = page.getByRole('textbox', { name: 'Name of the workspace' });
  await eventually(async () => assert.ok(await name.evaluate((field) => field === document.activeElement)));
  await name.fill('Engines');
  await page.keyboard.press('Enter');
  await say(page, 'answer the first');
  await settled(page);
  const [engines] = (await asUser('ada', 'GET', '/v1/workspaces')).data;
  assert.deepEqual([engines.name, engines.role], ['Engines', 'admin']);

  const bob = (await visit(world)).page;
  await logIn(bob, 'bob');
  await bob.getByText('Or ask an admin of a workspace to let you in, as bob').waitFor();
  await asUser('ada', 'POST', `/v1/workspaces/${engines.id}/members`, { user: 'bob', role: 'member' });
  await composer(bob).waitFor();
  await bob.getByRole('button', { name: /^Engines/ }).waitFor();
  assert.deepEqual(wrong, []);
});

test('another workspace is made from the menu, and each has its own draft', async () => {
  const { page, wrong } = await visit(world);
  await logIn(page, 'carol');
  await page.getByRole('textbox', { name: 'Name of the workspace' }).fill('First');
  await page.getByRole('button', { name: 'Create the workspace' }).click();
  await composer(page).fill('a draft of the first');
  const menu = page.getByRole('button', { name: /^(First|Second)/ });
  const make = async () => {
    await menu.click();
    await page.getByRole('menuitem', { name: 'New workspace…' }).click();
    const name = page.getByRole('dialog').getByRole('textbox', { name: 'Name of the workspace' });
    await eventually(async () => assert.ok(await name.evaluate((field) => field === document.activeElement)));
  };
  await make();
  await page.keyboard.press('Escape');
  await eventually(async () => assert.match(await page.evaluate(() => `${document.activeElement?.tagName} ${document.activeElement?.textContent}`), /^BUTTON .*First/));
  await make();
  await page.keyboard.type('Second');
  await page.keyboard.press('Enter');
  await page.getByRole('button', { name: /^Second/ }).waitFor();
  assert.equal(await composer(page).inputValue(), '');
  await say(page, 'answer in the second');
  await settled(page);
  await page.reload();
  await page.getByRole('button', { name: /^Second/ }).waitFor();
  await menu.click();
  await page.getByRole('menuitemradio', { name: /^First/ }).click();
  await page.getByRole('button', { name: /^First/ }).waitFor();
  await eventually(async () => assert.equal(await composer(page).inputValue(), 'a draft of the first'));
  await page.getByText('Your threads will be here.').waitFor();
  assert.deepEqual(wrong, []);
});

test('a message that is on its way goes to the workspace where it was said', async () => {
  const { page, context, wrong } = await visit(world);
  await asUser('dora', 'POST', '/v1/workspaces', { name: 'One' });
  await logIn(page, 'dora');
  await asUser('dora', 'POST', '/v1/workspaces', { name: 'Two' });
  await composer(page).waitFor();
  await page.reload();
  await context.route('**/v1/turns', (route) => route.abort('connectionrefused'));
  await say(page, 'answer said in One');
  await page.locator('[data-waiting]', { hasText: 'Reconnecting…' }).waitFor();
  const choose = async (from, to) => {
    await page.getByRole('button', { name: new RegExp(`^${from}`) }).click();
    await page.getByRole('menuitemradio', { name: new RegExp(`^${to}`) }).click();
    await page.getByRole('button', { name: new RegExp(`^${to}`) }).waitFor();
  };
  await choose('One', 'Two');
  await page.getByRole('heading', { name: 'What shall we work on?' }).waitFor();
  const sent = [];
  page.on('request', (request) => request.url().endsWith('/v1/turns') && sent.push([request.postDataJSON().message, request.headers()['threadkeep-workspace']]));
  await context.unroute('**/v1/turns');
  await page.evaluate(() => window.dispatchEvent(new Event('online')));
  await say(page, 'answer said in Two');
  await settled(page);
  await choose('Two', 'One');
  await settled(page);
  const { data } = await asUser('dora', 'GET', '/v1/workspaces');
  assert.deepEqual(sent, ['Two', 'One'].map((name) => [`answer said in ${name}`, data.find((one) => one.name === name).id]));
  assert.deepEqual(wrong, []);
});

test('a log-out takes the drafts along, in every window', async () => {
  const { page, open, wrong } = await visit(world);
  await asUser('erin', 'POST', '/v1/workspaces', { name: 'Erins' });
  await logIn(page, 'erin');
  await composer(page).fill('a secret of erin');
  await page.getByRole('button', { name: /^Mode:/ }).click();
  await page.getByRole('menuitemradio', { name: /^Ask/ }).click();
  const other = await open('/');
  await other.locator('input[type=file]').setInputFiles([{ name: 'secret.txt', mimeType: 'text/plain', buffer: Buffer.from('a secret') }]);
  await other.locator('form').getByText('8 B', { exact: true }).waitFor();
  await eventually(async () => assert.ok((await stored(page)).length >= 3));
  await page.getByRole('button', { name: /^Erins/ }).click();
  await page.getByRole('menuitem', { name: 'Log out' }).click();
  for (const each of [page, other]) await each.getByRole('textbox', { name: 'Token' }).waitFor();
  assert.deepEqual(await stored(page), []);
  // Where the file lay is no thread that stays.
  assert.deepEqual((await asUser('erin', 'GET', '/v1/chat-conversations')).data, []);
  assert.deepEqual(wrong, []);
});

test('who logs in after a session has ended finds nothing of the one before', async () => {
  const { page, context, wrong } = await visit(world);
  await asUser('fred', 'POST', '/v1/workspaces', { name: 'Shared' });
  await logIn(page, 'fred');
  await say(page, 'answer for fred');
  await settled(page);
  await composer(page).fill('a secret of fred');
  const [{ id }] = (await asUser('fred', 'GET', '/v1/workspaces')).data;
  await asUser('fred', 'POST', `/v1/workspaces/${id}/members`, { user: 'gina', role: 'member' });
  await page.evaluate(() => localStorage.setItem('threadkeep.theme', 'dark'));
  await context.clearCookies();
  await logIn(page, 'gina');
  await page.getByText('There is no such thread').waitFor();
  await page.getByRole('link', { name: 'New thread', exact: true }).click();
  await composer(page).waitFor();
  assert.equal(await composer(page).inputValue(), '');
  assert.deepEqual(await stored(page), ['threadkeep.theme']);
  assert.deepEqual(wrong, []);
});
