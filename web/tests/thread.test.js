// The first visit; edit, regenerate, fork; rename, delete, undo; search; the trace; the settings.
import assert from 'node:assert/strict';
import { after, afterEach, before, test } from 'node:test';
import { blocks, composer, eventually, firstVisit, lastAnswer, leave, say, settled, startWorld, visit } from './world.js';

let world;
before(async () => (world = await startWorld()));
afterEach(() => leave(world));
after(() => world?.stop());

const count = (page) => page.getByRole('group', { name: 'Versions' });

test('a first visit loads at most 250 kB', async () => {
  const bytes = await firstVisit(world);
  assert.ok(bytes > 50_000 && bytes < 250_000, `${bytes} bytes`);
});

test('edit, answer again, and go between the versions', async () => {
  const { page, wrong } = await visit(world);
  await say(page, 'answer first answer');
  await settled(page);
  await say(page, 'answer second answer');
  await eventually(async () => assert.ok((await lastAnswer(page)).includes('second answer')));
  await settled(page);
  const before = await blocks(page);

  await page.locator('article[data-role=user]').last().hover();
  await page.getByRole('button', { name: 'Edit message' }).last().click();
  await page.getByRole('textbox', { name: 'Edit message' }).fill('answer edited answer');
  await page.keyboard.press('Enter');
  await eventually(async () => assert.ok((await lastAnswer(page)).includes('edited answer')));
  await settled(page);
  await eventually(async () => assert.match(await count(page).innerText(), /2 \/ 2/));
  const edited = await blocks(page);
  assert.equal(edited.length, 4);

  await count(page).getByRole('button', { name: 'Previous version' }).click();
  await eventually(async () => assert.deepEqual(await blocks(page), before));
  await page.reload();
  await settled(page);
  await eventually(async () => assert.deepEqual(await blocks(page), before));
  await count(page).getByRole('button', { name: 'Next version' }).click();
  await eventually(async () => assert.deepEqual(await blocks(page), edited));

  await page.locator('article[data-role=assistant]').last().hover();
  await page.getByRole('button', { name: 'Answer again' }).last().click();
  await eventually(async () => assert.equal(await count(page).count(), 2));
  assert.match(await count(page).last().innerText(), /2 \/ 2/);
  await settled(page);

  // What search finds on another branch is shown there.
  await page.getByRole('searchbox').fill('second answer');
  await page.locator('[data-history]').getByRole('link', { name: /second answer/ }).click();
  await eventually(async () => assert.deepEqual(await blocks(page), before));
  assert.deepEqual(wrong, []);
});

test('a message far up in a long thread keeps its versions', async () => {
  await world.server.take([{ title: 'long', at: Date.now(), messages: Array.from({ length: 400 }, (_, n) => `line ${n}`) }]);
  const [{ id }] = (await world.server.api('GET', '/v1/chat-conversations?filter[query]=long')).data;
  const path = `/v1/chat-conversations/${id}`;
  const { messages } = (await world.server.api('GET', path)).data.attributes;
  const [long] = (await world.server.api('GET', `${path}/branches`)).data;
  await world.server.api('POST', '/v1/turns', { conversation: id, replace: messages[2].id, mode: 'agent', message: 'answer instead' });
  await world.server.api('POST', `${path}/branches/${long.id}/select`);
  const { page, wrong } = await visit(world);
  await page.getByRole('link', { name: 'long', exact: true }).click();
  await settled(page);
  await page.locator('[aria-label=Messages]').hover();
  await eventually(async () => {
    await page.mouse.wheel(0, -3000);
    assert.ok(await page.getByText('line 2', { exact: true }).isVisible());
  });
  assert.match(await count(page).innerText(), /1 \/ 2/);
  await count(page).getByRole('button', { name: 'Next version' }).click();
  await eventually(async () => assert.equal(await lastAnswer(page), 'instead'));
  assert.deepEqual(wrong, []);
});

test('a fork has the thread up to there and goes on by itself', async () => {
  const { page, wrong } = await visit(world);
  await say(page, 'answer the root');
  await settled(page);
  await say(page, 'answer the branch');
  await eventually(async () => assert.ok((await lastAnswer(page)).includes('the branch')));
  await settled(page);
  const whole = await blocks(page);
  const from = page.url();
  await page.locator('article[data-role=assistant]').first().hover();
  await page.getByRole('button', { name: 'Fork from here' }).nth(1).click();
  await page.waitForURL((url) => String(url) !== from);
  await eventually(async () => assert.deepEqual(await blocks(page), whole.slice(0, 2)));
  await say(page, 'answer only in the fork');
  await eventually(async () => assert.equal((await blocks(page)).length, 4));
  await page.goto(from);
  await eventually(async () => assert.deepEqual(await blocks(page), whole));
  assert.deepEqual(wrong, []);
});

test('a fork that ends in what the user said can be answered', async () => {
  const { page, wrong } = await visit(world);
  await say(page, 'answer the root');
  await settled(page);
  await say(page, 'answer the branch');
  await eventually(async () => assert.ok((await lastAnswer(page)).includes('the branch')));
  await settled(page);
  const whole = await blocks(page);
  const from = page.url();
  const offer = page.getByRole('button', { name: 'Answer it' });
  assert.equal(await offer.count(), 0);
  await page.locator('article[data-role=user]').last().hover();
  await page.locator('article[data-role=user]').last().getByRole('button', { name: 'Fork from here' }).click();
  await page.waitForURL((url) => String(url) !== from);
  await eventually(async () => assert.deepEqual(await blocks(page), whole.slice(0, 3)));
  await offer.click();
  await eventually(async () => assert.deepEqual(await blocks(page), whole));
  await settled(page);
  assert.equal(await offer.count(), 0);
  assert.equal(await count(page).count(), 0);
  await page.reload();
  await settled(page);
  assert.deepEqual(await blocks(page), whole);
  assert.deepEqual(wrong, []);
});

test('rename, delete and undo, in this window and in the other', async () => {
  const { page, open, wrong } = await visit(world);
  await say(page, 'answer about to be renamed');
  await settled(page);
  const second = await open('/');
  const item = (where, name) => where.getByRole('link', { name, exact: true });
  await item(page, 'answer about to be renamed').hover();
  await page.getByRole('button', { name: 'More for answer about to be renamed' }).click();
  await page.getByRole('menuitem', { name: 'Rename' }).click();
  await page.getByRole('textbox', { name: 'Title' }).fill('A better name');
  // Enter first takes what an input method offers.
  await page.getByRole('textbox', { name: 'Title' }).dispatchEvent('keydown', { key: 'Enter', isComposing: true });
  await page.getByRole('textbox', { name: 'Title' }).press('Enter');
  await item(page, 'A better name').waitFor();
  await item(second, 'A better name').waitFor();
  await eventually(async () => assert.equal(await page.getByRole('heading', { level: 1 }).innerText(), 'A better name'));

  const address = page.url();
  await item(page, 'A better name').focus();
  await page.keyboard.press('Delete');
  await item(page, 'A better name').waitFor({ state: 'detached' });
  await item(second, 'A better name').waitFor({ state: 'detached' });
  assert.notEqual(page.url(), address);
  await page.getByRole('button', { name: 'Undo' }).click();
  await page.waitForURL(address);
  await item(page, 'A better name').waitFor();
  await eventually(async () => assert.ok((await lastAnswer(page)).includes('about to be renamed')));
  assert.deepEqual(wrong, []);
});

test('search as you type marks what it found', async () => {
  const { page, wrong } = await visit(world);
  await world.server.turn('answer Das Café an der Straße 🙂 hat offen');
  await page.getByRole('searchbox', { name: 'Search threads' }).pressSequentially('cafe stra');
  await eventually(async () => assert.deepEqual(await page.locator('[data-history] mark').allInnerTexts(), ['Café', 'Stra', 'Café', 'Stra']));
  // Far from the beginning of a long message, too, it is within the lines that are shown.
  await world.server.turn(`answer\n${'many words before '.repeat(6)}the zebra 🙂 crossing`);
  await page.getByRole('searchbox').fill('zebra');
  const mark = page.locator('[data-history] mark');
  await eventually(async () => assert.deepEqual(await mark.allInnerTexts(), ['zebra']));
  assert.ok(await mark.evaluate((node) => node.getBoundingClientRect().bottom <= node.closest('bdi').getBoundingClientRect().bottom), 'the match is cut off');
  await page.getByRole('searchbox').fill('nowhere to be found');
  await page.getByText('Nothing was found.').waitFor();
  assert.deepEqual(wrong, []);
});

test('everything is within reach of the keyboard', async () => {
  const { page, wrong } = await visit(world);
  const press = async (...keys) => {
    for (const key of keys) await page.keyboard.press(key);
  };
  const focused = () => page.evaluate(() => document.activeElement?.getAttribute('aria-label') ?? document.activeElement?.textContent);
  const tab = async (name, key = 'Tab') => {
    for (let n = 0; n < 60; n++) {
      if ((await focused())?.startsWith(name)) return;
      await press(key);
    }
    assert.fail(`no ${name}`);
  };
  await page.keyboard.type('step a peek {"n":1}');
  await press('Shift+Enter');
  await page.keyboard.type('answer by keyboard');
  await press('Enter');
  await settled(page);
  await tab('Messages', 'Shift+Tab');
  await tab('1 step');
  await press('Enter');
  await tab('peek');
  await press('Enter');
  await page.getByText('"n": 1').waitFor();
  await tab('Show the run’s trace');
  await press('Enter');
  await page.getByRole('complementary', { name: 'Trace of the run' }).waitFor();
  await press('Escape');
  await page.getByRole('complementary').waitFor({ state: 'detached' });
  await press('Control+Shift+O');
  await page.getByRole('heading', { name: 'What shall we work on?' }).waitFor();
  await press('Control+k');
  await page.keyboard.type('by keyboard');
  await page.locator('[data-history] mark').first().waitFor();
  await tab('step a peek');
  await press('Enter');
  await eventually(async () => assert.ok((await lastAnswer(page)).includes('by keyboard')));
  await page.reload();
  await settled(page);
  await tab('Skip to the page', 'Shift+Tab');
  await press('Enter', 'Tab');
  assert.equal(await page.evaluate(() => document.activeElement?.closest('main')?.id), 'main');
  await tab('Attach files');
  await press('Shift+Tab', 'ArrowUp');
  await page.getByRole('textbox', { name: 'Edit message' }).waitFor();
  assert.deepEqual(wrong, []);
});

test('search and a new thread are a key away while the history is hidden', async () => {
  const { page, wrong } = await visit(world);
  const search = page.getByRole('searchbox', { name: 'Search threads' });
  const fresh = page.getByRole('heading', { name: 'What shall we work on?' });
  await say(page, 'answer with the history hidden');
  await settled(page);
  for (const width of [1280, 600]) {
    await page.setViewportSize({ width, height: 800 });
    if (width > 767) await page.getByRole('button', { name: 'Hide the history' }).click();
    else await page.reload();
    await settled(page);
    await search.waitFor({ state: 'detached' });
    await composer(page).focus();
    // With Caps Lock on it is another letter.
    await page.keyboard.press(width > 767 ? 'Control+k' : 'Control+K');
    await page.keyboard.type('history hidden');
    assert.equal(await search.inputValue(), 'history hidden');
    await page.locator('[data-history] mark').first().waitFor();
    await page.keyboard.press('Control+Shift+O');
    await fresh.waitFor();
    await page.keyboard.type('x');
    assert.equal(await composer(page).inputValue(), 'x');
    await composer(page).fill('');
    if (width > 767) await page.getByRole('button', { name: 'Hide the history' }).click();
    await page.goBack();
    await settled(page);
    await search.waitFor({ state: 'detached' });
    await page.keyboard.press('Control+Shift+O');
    await fresh.waitFor();
    await page.goBack();
  }
  assert.deepEqual(wrong, []);
});

test('an edit begins at the end of the message', async () => {
  const { page, wrong } = await visit(world);
  await say(page, 'log two lines\nanswer some words');
  await settled(page);
  const edit = page.getByRole('textbox', { name: 'Edit message' });
  const begin = [
    () => composer(page).press('ArrowUp'),
    async () => {
      await page.locator('article[data-role=user]').hover();
      await page.getByRole('button', { name: 'Edit message' }).click();
    },
    () => page.getByRole('button', { name: 'Edit message' }).press('Enter'),
  ];
  for (const by of begin) {
    await by();
    await edit.waitFor();
    await page.keyboard.type(' and more');
    assert.equal(await edit.inputValue(), 'log two lines\nanswer some words and more');
    await page.keyboard.press('Escape');
  }
  assert.deepEqual(wrong, []);
});

test('the focus goes on where what had it is gone', async () => {
  const { page, wrong } = await visit(world);
  const focused = (name) => eventually(async () => assert.equal(await page.evaluate(() => document.activeElement?.getAttribute('aria-label')), name), 3000);
  const button = (name) => page.getByRole('button', { name });
  const edit = async () => {
    await page.locator('article[data-role=user]').last().hover();
    await button('Edit message').last().click();
    await focused('Edit message');
  };
  await say(page, 'say so far\nhold forever');
  await page.getByText('so far', { exact: true }).waitFor();
  await say(page, 'answer waits');
  await button('Edit waiting message').click();
  await focused('Edit waiting message');
  await page.keyboard.press('Escape');
  await focused('Message');
  await button('Take back waiting message').click();
  await focused('Message');
  await button('Stop').click();
  await page.getByText('Stopped', { exact: true }).waitFor();
  await focused('Message');
  await button('Retry').click();
  await focused('Message');
  await button('Stop').click();
  await count(page).waitFor();
  await settled(page);
  await edit();
  await page.keyboard.press('Escape');
  await focused('Message');
  await edit();
  await page.getByRole('textbox', { name: 'Edit message' }).fill('answer edited');
  await page.keyboard.press('Enter');
  await focused('Message');
  await settled(page);
  await button('Hide the history').click();
  await focused('Show the history');
  // Its name is told to who comes by key, not after a click.
  assert.equal(await page.getByRole('tooltip').count(), 0);
  await page.keyboard.press('Enter');
  await focused('Hide the history');
  await page.setViewportSize({ width: 600, height: 800 });
  await page.keyboard.press('Escape');
  await focused('Show the history');
  await button('Show the history').click();
  await focused('Hide the history');
  assert.deepEqual(wrong, []);
});

test('text from right to left hangs its marks on the right', async () => {
  const { page, wrong } = await visit(world);
  const text = 'שלום עולם\\n\\n- אחת\\n- שתיים\\n\\n  ```js\\n  let x;\\n  ```\\n\\nציטוט\\n\\n> שלוש\\n\\nטבלה\\n\\n| ארבע | חמש |\\n|---|---|\\n| שש | שבע |';
  await say(page, `answer ${text}`);
  await settled(page);
  const style = (selector, ...names) =>
    page.locator(`article[data-role=assistant] .prose ${selector}`).first().evaluate((node, all) => all.map((name) => getComputedStyle(node)[name]), names);
  await page.locator('article td').first().waitFor();
  const [left, right] = await style('ul', 'paddingLeft', 'paddingRight');
  assert.ok(left === '0px' && parseFloat(right) > 16, `${left}, ${right}`);
  assert.deepEqual(await style('blockquote', 'borderLeftWidth', 'borderRightWidth'), ['0px', '3px']);
  assert.deepEqual(await style('td', 'textAlign', 'direction'), ['start', 'rtl']);
  assert.deepEqual(await style('pre', 'direction'), ['ltr']);
  assert.deepEqual(wrong, []);
});

test('a long title leaves the buttons beside it their size on a phone', async () => {
  const { page, wrong } = await visit(world, { viewport: { width: 390, height: 844 } });
  await say(page, `answer ${'with a title that is long '.repeat(8)}`);
  await settled(page);
  for (const name of ['Show the history', 'More for this thread', 'New thread']) {
    const { width, height } = await page.getByRole('button', { name }).boundingBox();
    assert.deepEqual([width, height], [36, 36], name);
  }
  assert.deepEqual(wrong, []);
});

test('a notice leaves the buttons of the title bar free', async () => {
  const { page, wrong } = await visit(world, { viewport: { width: 360, height: 640 } });
  await say(page, 'answer to be shared');
  await settled(page);
  await page.getByRole('button', { name: 'More for this thread' }).click();
  await page.getByRole('menuitem', { name: 'Share with the workspace' }).click();
  await page.getByText('Everybody in the workspace sees this thread now.').waitFor();
  for (const name of ['Show the history', 'More for this thread', 'New thread']) {
    await page.getByRole('button', { name }).click({ trial: true, timeout: 2_000 });
  }
  assert.deepEqual(wrong, []);
});

test('the end stays in sight however the page around it moves, until the reader scrolls up', async () => {
  const { page, wrong } = await visit(world);
  const text = 'a line of it\\n\\n'.repeat(60);
  await say(page, `say ${text}\nhold more\nsay ${text}\nhold end\nanswer ${text}${text}`);
  const region = page.getByRole('region', { name: 'Messages' });
  await region.getByText('a line of it').last().waitFor();
  const distance = () => region.evaluate((node) => Math.round(node.scrollHeight - node.scrollTop - node.clientHeight));
  const atEnd = () => eventually(async () => assert.ok((await distance()) < 5, `${await distance()} from the end`));
  await atEnd();
  // The composer is high, is emptied, and something else comes before the next frame.
  await page.evaluate(async () => {
    const form = document.querySelector('form[data-composer]');
    const drawn = async (frames) => {
      for (let n = 0; n < frames; n++) await new Promise(requestAnimationFrame);
    };
    form.style.marginTop = '300px';
    await drawn(10);
    form.style.marginTop = '0';
    form.getBoundingClientRect();
    form.style.marginTop = '200px';
    await drawn(2);
  });
  await atEnd();
  await page.evaluate(() => (document.querySelector('form[data-composer]').style.marginTop = ''));

  await region.hover();
  await page.mouse.wheel(0, -600);
  await eventually(async () => assert.ok((await distance()) > 300));
  const before = await eventually(async () => {
    const [first, then] = [await region.evaluate((node) => node.scrollTop), await region.evaluate((node) => new Promise((done) => setTimeout(() => done(node.scrollTop), 200)))];
    assert.equal(first, then);
    return then;
  });
  world.sandbox.open('more');
  await eventually(async () => assert.ok((await distance()) > 1500));
  assert.equal(await region.evaluate((node) => node.scrollTop), before);
  world.sandbox.open('end');
  await settled(page);
  // What is said next is shown.
  await say(page, 'answer fine');
  await settled(page);
  await atEnd();
  assert.deepEqual(wrong, []);
});

test('footnotes are counted through and stand at the end, a click away and back', async () => {
  const { page, wrong } = await visit(world);
  await say(page, 'answer First[^a] words.\\n\\n[^a]: The first note.\\n\\nThen[^b] others, as before[^a].\\n\\n[^b]: The second note.\\n\\nThe end, and [no note](#here).');
  await settled(page);
  const answer = page.locator('article[data-role=assistant] .prose');
  await answer.locator('li').first().waitFor();
  assert.deepEqual(await answer.locator('sup > a').allInnerTexts(), ['1', '2', '1']);
  assert.equal(await answer.locator('section').count(), 1);
  assert.match(await answer.innerText(), /First.*Then.*The end, and no note.*The first note.*The second note/s);
  assert.equal(await answer.getByRole('link', { name: 'no note' }).count(), 0);
  const [address, focused] = [page.url(), () => page.evaluate(() => document.activeElement?.closest('li, sup')?.textContent)];
  await answer.locator('sup > a').nth(1).click();
  assert.match(await focused(), /The second note/);
  await page.keyboard.press('Enter');
  assert.equal(await focused(), '2');
  assert.equal(page.url(), address);
  assert.deepEqual(wrong, []);
});

test('the trace has the logs and survives a reload', async () => {
  const { page, wrong } = await visit(world);
  await say(page, 'log a word in the log\nstep a look {"id":12345678901234567890}\ndone a look fine\nanswer done');
  await settled(page);
  await page.getByRole('button', { name: 'Show the run’s trace' }).click();
  const trace = page.getByRole('complementary', { name: 'Trace of the run' });
  await trace.getByText('info: a word in the log').waitFor();
  await page.reload();
  await trace.getByText('info: a word in the log').waitFor();
  await page.keyboard.press('Escape');
  await trace.waitFor({ state: 'detached' });
  await page.locator('[data-steps] > button').click();
  await page.getByRole('button', { name: /look/ }).click();
  await page.getByText('12345678901234567890').waitFor();
  assert.deepEqual(wrong, []);
});

test('tabs are there as they were left', async () => {
  const { page, wrong } = await visit(world);
  const { conversation: id } = await world.server.turn('answer with tabs');
  const tabs = [{ key: 'invoices', destinationId: 'invoices', subPath: 'may' }, { key: 'people', destinationId: 'people' }];
  const attributes = { tabs, active_tab_key: 'people' };
  await world.server.api('PATCH', `/v1/chat-conversations/${id}`, { data: { type: 'chat_conversation', id, attributes } }, 'application/vnd.api+json');
  await page.goto(`${world.server.url}/c/${id}`);
  const pressed = () => page.getByRole('list', { name: 'Tabs of this thread' }).locator('[aria-pressed=true]').allInnerTexts();
  await eventually(async () => assert.deepEqual(await pressed(), ['people']));
  await page.getByRole('button', { name: 'invoices may', exact: true }).click();
  await eventually(async () => assert.deepEqual(await pressed(), ['invoices may']));
  await page.getByRole('button', { name: 'Close invoices may' }).click();
  await page.reload();
  await eventually(async () => assert.deepEqual(await pressed(), ['people']));
  assert.deepEqual(wrong, []);
});

test('members and keys', async () => {
  const { page, wrong } = await visit(world);
  await page.goto(`${world.server.url}/settings/members`);
  await page.getByRole('textbox', { name: 'User id' }).fill('bob');
  await page.getByRole('button', { name: 'Add' }).click();
  await page.getByRole('combobox', { name: 'Role of bob' }).selectOption('admin');
  await eventually(async () => {
    const { data } = await world.server.api('GET', '/v1/audit');
    assert.ok(data.some((entry) => entry.action === 'member.add' && entry.target === 'bob' && entry.detail === 'admin'));
  });
  await page.getByRole('button', { name: 'Remove bob' }).click();
  await page.getByRole('combobox', { name: 'Role of bob' }).waitFor({ state: 'detached' });

  await page.getByRole('link', { name: 'API keys' }).click();
  await page.getByRole('textbox', { name: 'Name' }).fill('for the tests');
  await page.getByRole('button', { name: 'Create' }).click();
  const key = await page.getByRole('dialog').locator('code').innerText();
  const answer = await fetch(`${world.server.url}/v1/session`, { headers: { Authorization: `Bearer ${key}` } });
  assert.equal(answer.status, 200);
  await page.keyboard.press('Escape');
  await page.getByRole('button', { name: 'Remove the key for the tests' }).click();
  await page.getByRole('dialog').getByRole('button', { name: 'Remove', exact: true }).click();
  await page.getByRole('button', { name: 'Remove the key for the tests' }).waitFor({ state: 'detached' });
  assert.deepEqual(wrong, []);
});

test('the settings fit a phone', async () => {
  const { page, wrong } = await visit(world, { viewport: { width: 360, height: 640 } });
  await say(page, 'answer something to count');
  await settled(page);
  await page.goto(`${world.server.url}/settings/usage`);
  const { x, width } = await page.getByRole('columnheader', { name: 'Together' }).boundingBox();
  assert.ok(x + width <= 360, `the last column ends at ${x + width}`);
  await page.goto(`${world.server.url}/settings/audit`);
  const { height } = await page.getByRole('row', { name: /workspace.create/ }).boundingBox();
  assert.ok(height < 70, `${height}`);
  assert.deepEqual(wrong, []);
});

test('without a session there is a door, and a wrong token does not open it', async () => {
  const context = await world.browser.newContext();
  const page = await context.newPage();
  await page.goto(world.server.url);
  await page.getByRole('textbox', { name: 'Token' }).fill('not.a.token');
  await page.getByRole('button', { name: 'Log in' }).click();
  await page.getByRole('alert').waitFor();
});
