// By keyboard and by ear: the focus is never lost, whatever is closed, removed or taken back; and what a notice offers waits for it.
import assert from 'node:assert/strict';
import { after, afterEach, before, test } from 'node:test';
import { composer, eventually, leave, say, settled, startWorld, visit } from './world.js';

let world;
before(async () => (world = await startWorld()));
afterEach(() => leave(world));
after(() => world?.stop());

const name = (page) =>
  page.evaluate(() => {
    const at = document.activeElement;
    return at === document.body ? 'BODY' : (at?.getAttribute('aria-label') ?? at?.textContent);
  });
const focused = (page, wanted) => eventually(async () => assert.equal(await name(page), wanted), 4000);
const button = (page, of) => page.getByRole('button', { name: of, exact: true });
const item = (page, title) => page.locator('[data-history]').getByRole('link', { name: title, exact: true });
const gone = (locator) => locator.waitFor({ state: 'detached' });

test('who deletes threads by key stays in the history, and comes back there from Undo', async () => {
  for (const title of ['a', 'b', 'c', 'd', 'e']) await world.server.turn(`answer thread ${title}`);
  const { page, wrong } = await visit(world);
  const title = (letter) => `answer thread ${letter}`;
  await item(page, title('c')).focus();
  await page.keyboard.press('Delete');
  await gone(item(page, title('c')));
  await focused(page, title('b'));
  // By the menu.
  await page.keyboard.press('Tab');
  await page.keyboard.press('Enter');
  await page.getByRole('menuitem', { name: 'Delete' }).press('Enter');
  await gone(item(page, title('b')));
  await focused(page, title('a'));
  // The open one, and the last of the list.
  await page.keyboard.press('Enter');
  await page.waitForURL('**/c/*');
  await item(page, title('a')).focus();
  await page.keyboard.press('Delete');
  await gone(item(page, title('a')));
  await focused(page, title('d'));
  const address = page.url();
  const undo = button(page, 'Undo');
  await undo.first().focus();
  await page.keyboard.press('Enter');
  await item(page, title('c')).waitFor();
  await focused(page, title('d'));
  // It was not the open one.
  assert.equal(page.url(), address);
  assert.deepEqual(wrong, []);
});

test('the trace takes the focus, covers what lies below it, and gives the focus back', async () => {
  const { page, wrong } = await visit(world);
  await say(page, 'step a look\ndone a look fine\nanswer traced');
  await settled(page);
  const open = button(page, 'Show the run’s trace');
  for (const width of [1280, 800]) {
    await page.setViewportSize({ width, height: 800 });
    for (const close of ['Escape', 'Enter']) {
      await open.focus();
      await page.keyboard.press('Enter');
      await focused(page, 'Trace');
      assert.equal(await composer(page).evaluate((node) => node.closest('[inert]') !== null), width < 1024);
      if (width < 1024) {
        for (let n = 0; n < 30; n++) {
          await page.keyboard.press('Tab');
          assert.equal(await page.evaluate(() => document.activeElement?.closest('form[data-composer], article') ?? null), null);
        }
      }
      await button(page, 'Close the trace').focus();
      await page.keyboard.press(close);
      await page.getByRole('complementary').waitFor({ state: 'detached' });
      await focused(page, 'Show the run’s trace');
      assert.equal(await page.locator('[inert]').count(), 0);
    }
  }
  assert.deepEqual(wrong, []);
});

test('a tab that is closed gives the focus to the next, the last one to the composer', async () => {
  const { page, wrong } = await visit(world);
  const { conversation: id } = await world.server.turn('answer with three tabs');
  const tabs = ['one', 'two', 'three'].map((key) => ({ key, destinationId: key }));
  await world.server.api('PATCH', `/v1/chat-conversations/${id}`, { data: { type: 'chat_conversation', id, attributes: { tabs, active_tab_key: 'one' } } }, 'application/vnd.api+json');
  await page.goto(`${world.server.url}/c/${id}`);
  for (const [close, next] of [['two', 'Close three'], ['three', 'Close one'], ['one', 'Message']]) {
    await button(page, `Close ${close}`).focus();
    await page.keyboard.press('Enter');
    await gone(button(page, `Close ${close}`));
    await focused(page, next);
  }
  assert.deepEqual(wrong, []);
});

test('what is removed in the settings gives the focus to what stands beside it', async () => {
  const { page, wrong } = await visit(world);
  for (const key of ['one', 'two', 'three']) await world.server.api('POST', '/v1/api-keys', { name: key, role: 'member' });
  await page.goto(`${world.server.url}/settings/keys`);
  const remove = async (key) => {
    await button(page, `Remove the key ${key}`).focus();
    await page.keyboard.press('Enter');
    await page.getByRole('dialog').getByRole('button', { name: 'Remove', exact: true }).press('Enter');
    await gone(button(page, `Remove the key ${key}`));
  };
  await button(page, 'Remove the key two').click();
  await page.getByRole('dialog').getByRole('button', { name: 'Keep it' }).press('Enter');
  await focused(page, 'Remove the key two');
  await remove('two');
  await eventually(async () => assert.match(await name(page), /^Remove the key (one|three)$/));
  await remove('one');
  await focused(page, 'Remove the key three');
  await remove('three');
  await focused(page, 'Remove the key local.key');
  // Nothing stands beside the last one.
  await world.server.api('POST', '/v1/agents', { name: 'Only', instructions: '', model: null, runner: 'model', tools: [], approval: [] });
  await page.goto(`${world.server.url}/settings/agents`);
  await button(page, 'Remove Only').focus();
  await page.keyboard.press('Enter');
  await page.getByText('There are no agents yet.', { exact: false }).waitFor();
  await focused(page, 'Agents');
  // From a list to what is in it, and back.
  const { id } = await world.server.api('POST', '/v1/pages', { title: 'A page', body: 'text', url: null });
  await page.goto(`${world.server.url}/pages`);
  await page.getByRole('link', { name: /^A page/ }).press('Enter');
  await page.waitForURL(`**/pages/${id}`);
  await eventually(async () => assert.notEqual(await name(page), 'BODY'));
  await page.getByRole('link', { name: 'All pages' }).press('Enter');
  await page.waitForURL('**/pages');
  await eventually(async () => assert.notEqual(await name(page), 'BODY'));
  assert.deepEqual(wrong, []);
});

test('a notice waits for who is at it; a refusal until it is dismissed', async () => {
  const { page, wrong } = await visit(world);
  await page.clock.install();
  const undo = button(page, 'Undo');
  const remove = async (title) => {
    await world.server.turn(title);
    await page.reload();
    await item(page, title).focus();
    await page.keyboard.press('Delete');
    await undo.waitFor();
  };
  await remove('answer for the keyboard');
  await undo.focus();
  await page.clock.runFor(30_000);
  assert.ok(await undo.isVisible());
  await composer(page).focus();
  await page.clock.runFor(30_000);
  assert.equal(await undo.count(), 0);
  await remove('answer for the mouse');
  await undo.hover();
  await page.clock.runFor(30_000);
  assert.ok(await undo.isVisible());
  await page.mouse.move(5, 700);
  await page.clock.runFor(30_000);
  assert.equal(await undo.count(), 0);

  await page.route('**/v1/chat-conversations/*', (route) => (route.request().method() === 'DELETE' ? route.fulfill({ status: 409, contentType: 'application/problem+json', body: '{"status":409,"code":"x","detail":"Not now."}' }) : route.fallback()));
  await world.server.turn('answer that stays');
  await page.reload();
  await item(page, 'answer that stays').focus();
  await page.keyboard.press('Delete');
  await page.getByText('Not now.').waitFor();
  await item(page, 'answer that stays').waitFor();
  await page.clock.runFor(60_000);
  assert.equal(await page.getByText('Not now.').count(), 1);
  await button(page, 'Dismiss').press('Enter');
  assert.equal(await page.getByText('Not now.').count(), 0);
  await eventually(async () => assert.notEqual(await name(page), 'BODY'));
  assert.deepEqual(wrong, []);
});

test('how an answer ended is announced', async () => {
  const { page, wrong } = await visit(world);
  const announced = (words) => eventually(async () => assert.equal(await page.locator('main p[role=status]').first().innerText(), words));
  await say(page, 'answer fine');
  await announced('The answer is complete.');
  await say(page, 'say so far\nfail some_code It broke.');
  await announced('The assistant failed: It broke.');
  await say(page, 'say so far\nhold announced');
  await announced('The assistant is answering.');
  await button(page, 'Stop').click();
  await announced('Stopped.');
  assert.deepEqual(wrong, []);
});

test('Escape ends a rename and the search, and only then closes the history of a phone', async () => {
  await world.server.turn('answer on a phone');
  const { page, wrong } = await visit(world, { viewport: { width: 360, height: 640 } });
  await button(page, 'Show the history').click();
  await item(page, 'answer on a phone').focus();
  await page.keyboard.press('F2');
  await page.keyboard.type('not kept');
  await page.keyboard.press('Escape');
  await focused(page, 'answer on a phone');
  await page.getByRole('searchbox').fill('phone');
  await page.keyboard.press('Escape');
  assert.equal(await page.getByRole('searchbox').inputValue(), '');
  await page.keyboard.press('Escape');
  await gone(page.locator('[data-history]'));
  assert.deepEqual(wrong, []);
});

test('the search is gone through by arrow, and Enter opens the best hit', async () => {
  await world.server.turn('answer a quokka of `words` and **more**');
  const { conversation } = await world.server.turn('answer another quokka');
  await world.server.turn('answer nothing of the kind');
  const { page, wrong } = await visit(world);
  const search = page.getByRole('searchbox', { name: 'Search threads' });
  await search.fill('another quokka');
  // Before it is found.
  await page.keyboard.press('Enter');
  await page.waitForURL(`**/c/${conversation}*`);
  await search.fill('quokka');
  await eventually(async () => assert.equal(await page.locator('[data-history] a').count(), 2));
  assert.match(await page.locator('[data-history] li', { hasText: 'words' }).innerText(), /\na quokka of words and more$/);
  await search.focus();
  const at = () => page.evaluate(() => [...document.querySelectorAll('[data-history] a')].indexOf(document.activeElement));
  const walked = [];
  for (const key of ['ArrowDown', 'ArrowDown', 'ArrowDown', 'ArrowUp']) {
    await page.keyboard.press(key);
    walked.push(await at());
  }
  assert.deepEqual(walked, [0, 1, 1, 0]);
  assert.deepEqual(wrong, []);
});

test('who was removed comes back with their role', async () => {
  const { page, wrong } = await visit(world);
  const [{ id }] = (await world.server.api('GET', '/v1/workspaces')).data;
  await world.server.api('POST', `/v1/workspaces/${id}/members`, { user: 'dora', role: 'admin' });
  await page.goto(`${world.server.url}/settings/members`);
  await button(page, 'Remove dora').click();
  await button(page, 'Undo').click();
  await page.getByRole('combobox', { name: 'Role of dora' }).waitFor();
  const { data } = await world.server.api('GET', `/v1/workspaces/${id}/members`);
  assert.equal(data.find(({ user }) => user === 'dora').role, 'admin');
  assert.deepEqual(wrong, []);
});
