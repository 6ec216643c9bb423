// Two people in one workspace: what each may do is what each is offered, and everybody is called by their name.
import assert from 'node:assert/strict';
import { createHmac } from 'node:crypto';
import { after, afterEach, before, test } from 'node:test';
import { eventually, leave, say, settled, startWorld, visit } from './world.js';

const secret = 'x'.repeat(40);
const part = (value) => Buffer.from(JSON.stringify(value)).toString('base64url');
function token(sub) {
  const said = `${part({ alg: 'HS256', typ: 'JWT' })}.${part({ sub, org_id: 'acme', exp: Math.floor(Date.now() / 1000) + 3600 })}`;
  return `${said}.${createHmac('sha256', secret).update(said).digest('base64url')}`;
}

let world;
before(async () => {
  world = await startWorld({ env: { THREADKEEP_JWT_SECRET: secret, THREADKEEP_SECRET: 'y'.repeat(40) } });
  const alice = (method, path, body) => world.server.api(method, path, body, undefined, token('alice'));
  const { id } = await alice('POST', '/v1/workspaces', { name: 'Acme' });
  await alice('POST', `/v1/workspaces/${id}/members`, { user: 'bob', role: 'member' });
});
afterEach(() => leave(world));
after(() => world?.stop());

test('a member is offered what a member may do, and sees who said what', async () => {
  const { page: alice, wrong } = await visit(world, { token: token('alice') });
  await say(alice, 'answer shared words');
  await settled(alice);
  await alice.getByRole('button', { name: 'More for this thread' }).click();
  await alice.getByRole('menuitem', { name: 'Share with the workspace' }).click();
  await alice.getByText('Everybody in the workspace sees this thread now.').waitFor();

  const { page: bob, wrong: wrongToo } = await visit(world, { token: token('bob') });
  const link = bob.locator('[data-history]').getByRole('link', { name: /answer shared words/ });
  await link.click();
  await settled(bob);
  const said = (page) => page.locator('article[data-role=user]').evaluateAll((all) => all.map((node) => [node.getAttribute('aria-label'), node.querySelector('h2').textContent]));
  await eventually(async () => assert.deepEqual(await said(bob), [['alice', 'alice said']]));
  await say(bob, 'answer bob is here');
  await eventually(async () => assert.deepEqual(await said(bob), [['alice', 'alice said'], ['You', 'You said']]));
  await eventually(async () => assert.deepEqual(await said(alice), [['You', 'You said'], ['bob', 'bob said']]));
  await settled(bob);
  await bob.reload();
  await eventually(async () => assert.deepEqual(await said(bob), [['alice', 'alice said'], ['You', 'You said']]));

  // He may call it otherwise, and no more.
  assert.equal(await bob.getByRole('button', { name: 'More for this thread' }).count(), 0);
  await bob.getByRole('button', { name: 'More for answer shared words' }).focus();
  await bob.keyboard.press('Enter');
  assert.deepEqual(await bob.getByRole('menuitem').allInnerTexts(), ['Rename']);
  await bob.keyboard.press('Escape');
  await link.focus();
  await bob.keyboard.press('Delete');
  await bob.keyboard.press('F2');
  await bob.getByRole('textbox', { name: 'Title' }).fill('Our thread');
  await bob.keyboard.press('Enter');
  await eventually(async () => assert.equal(await alice.getByRole('heading', { level: 1 }).innerText(), 'Our thread'));

  // What is refused all the same leaves the reader where they are.
  const address = alice.url();
  await alice.route('**/v1/chat-conversations/*', (route) => (route.request().method() === 'DELETE' ? route.fulfill({ status: 403, contentType: 'application/problem+json', body: '{"status":403,"code":"forbidden","detail":"Not yours any more."}' }) : route.fallback()));
  await alice.getByRole('button', { name: 'More for this thread' }).click();
  await alice.getByRole('menuitem', { name: 'Delete' }).click();
  await alice.getByText('Not yours any more.').waitFor();
  assert.equal(alice.url(), address);
  await alice.unrouteAll();
  await alice.getByRole('button', { name: 'More for this thread' }).click();
  await alice.getByRole('menuitem', { name: 'Delete' }).click();
  await alice.waitForURL((url) => url.pathname === '/');
  assert.deepEqual([...wrong, ...wrongToo], []);
});
