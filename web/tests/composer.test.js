// Writing: many files, a low window, a keyboard on glass, a paste with text beside its picture, a long list of models.
import assert from 'node:assert/strict';
import { after, afterEach, before, test } from 'node:test';
import { dot } from './paper.js';
import { blocks, composer, eventually, leave, settled, startWorld, visit } from './world.js';

let world;
before(async () => (world = await startWorld()));
afterEach(() => leave(world));
after(() => world?.stop());

const chips = (page) => page.locator('form').getByRole('list', { name: 'Attachments' }).getByRole('listitem');
const files = (count) => Array.from({ length: count }, (_, n) => ({ name: `a file with a long name ${n}.txt`, mimeType: 'text/plain', buffer: Buffer.from('x') }));

test('as many files as there may be leave the message and Send in sight', async () => {
  const { page, wrong } = await visit(world, { viewport: { width: 360, height: 640 } });
  await page.locator('input[type=file]').setInputFiles(files(10));
  await eventually(async () => assert.equal(await chips(page).count(), 10));
  await composer(page).fill('answer all ten');
  const inSight = async (locator, height) => {
    const box = await locator.boundingBox();
    assert.ok(box.y >= 0 && box.y + box.height <= height + 1, `${box.y} to ${box.y + box.height} of ${height}`);
  };
  for (const [width, height] of [[360, 640], [640, 400], [844, 390]]) {
    await page.setViewportSize({ width, height });
    await inSight(composer(page), height);
    await inSight(page.getByRole('button', { name: 'Send' }), height);
    await inSight(page.getByRole('button', { name: 'Attach files' }), height);
  }
  // At 400 %, what has no room is scrolled to.
  await page.setViewportSize({ width: 320, height: 256 });
  await composer(page).fill('one\ntwo\nthree\nfour\nfive\nsix\nseven\neight');
  await page.getByRole('button', { name: 'Send' }).scrollIntoViewIfNeeded();
  await inSight(page.getByRole('button', { name: 'Send' }), 256);
  // The last of them can be taken away.
  await page.getByRole('button', { name: 'Remove a file with a long name 9.txt' }).click();
  await eventually(async () => assert.equal(await chips(page).count(), 9));
  assert.deepEqual(wrong, []);
});

test('on a keyboard on glass Enter is a new line, and the button sends', async () => {
  const { page, wrong } = await visit(world, { viewport: { width: 390, height: 844 }, isMobile: true, hasTouch: true });
  await composer(page).tap();
  await page.keyboard.type('log one');
  await page.keyboard.press('Enter');
  await page.keyboard.type('answer two');
  assert.equal(await composer(page).inputValue(), 'log one\nanswer two');
  await page.getByRole('button', { name: 'Send' }).tap();
  await settled(page);
  await page.getByRole('button', { name: 'Edit message' }).tap();
  const edit = page.getByRole('textbox', { name: 'Edit message' });
  await edit.press('Enter');
  await page.keyboard.type('answer three');
  assert.equal(await edit.inputValue(), 'log one\nanswer two\nanswer three');
  // Who has a keyboard there sends with it.
  await edit.fill('answer four');
  await edit.press('Control+Enter');
  await eventually(async () => assert.match((await blocks(page))[1] ?? '', /four/));
  assert.deepEqual(wrong, []);
});

test('copied cells are pasted as text, and a copied picture is attached', async () => {
  const { page, context, wrong } = await visit(world);
  await context.grantPermissions(['clipboard-read', 'clipboard-write']);
  const copy = (types) =>
    page.evaluate(
      async ([list, png]) => {
        const picture = new Blob([Uint8Array.from(png)], { type: 'image/png' });
        const parts = { 'text/plain': new Blob(['river\tkm\nVolga\t3530'], { type: 'text/plain' }), 'text/html': new Blob(['<table><tr><td>river</td></tr></table>'], { type: 'text/html' }), 'image/png': picture };
        await navigator.clipboard.write([new ClipboardItem(Object.fromEntries(list.map((type) => [type, parts[type]])))]);
      },
      [types, [...dot]],
    );
  await copy(['text/plain', 'text/html', 'image/png']);
  await composer(page).press('Control+v');
  await eventually(async () => assert.equal(await composer(page).inputValue(), 'river\tkm\nVolga\t3530'));
  assert.equal(await chips(page).count(), 0);
  await copy(['image/png']);
  await composer(page).press('Control+v');
  await eventually(async () => assert.equal(await chips(page).count(), 1));
  assert.equal(await composer(page).inputValue(), 'river\tkm\nVolga\t3530');
  assert.deepEqual(wrong, []);
});

test('one of many models is found by a part of its name', async () => {
  const { page, wrong } = await visit(world);
  const data = Array.from({ length: 180 }, (_, n) => ({ id: `openai/vendor-${n}-large` }));
  await page.route('**/v1/models', (route) => route.fulfill({ contentType: 'application/json', body: JSON.stringify({ data }) }));
  await page.reload();
  const pick = page.getByRole('button', { name: /^Model:/ });
  await pick.click();
  const find = page.getByRole('combobox', { name: 'Find a model' });
  await eventually(async () => assert.ok(await find.evaluate((field) => field === document.activeElement)));
  assert.equal(await page.getByRole('option').count(), 181);
  await page.keyboard.type('vendor-17');
  await eventually(async () => assert.equal(await page.getByRole('option').count(), 11));
  await page.keyboard.press('ArrowDown');
  await page.keyboard.press('ArrowDown');
  const active = await find.getAttribute('aria-activedescendant');
  assert.equal(await page.locator(`[id="${active}"]`).innerText(), 'openai/vendor-171-large');
  await page.keyboard.press('Enter');
  await page.getByRole('button', { name: 'Model: vendor-171-large' }).waitFor();
  await eventually(async () => assert.ok(await pick.evaluate((button) => button === document.activeElement)));
  await page.keyboard.press('Enter');
  assert.equal(await page.getByRole('option', { selected: true }).innerText(), 'openai/vendor-171-large');
  await page.keyboard.type('no such');
  await page.getByText('Nothing has this name.').waitFor();
  await page.keyboard.press('Escape');
  await page.getByRole('dialog').waitFor({ state: 'detached' });
  await pick.click();
  await page.getByRole('option', { name: 'Default' }).click();
  await page.getByRole('button', { name: 'Model: Default' }).waitFor();
  assert.deepEqual(wrong, []);
});

test('a new key is not closed by a click beside it', async () => {
  const { page, wrong } = await visit(world);
  await page.goto(`${world.server.url}/settings/keys`);
  await page.getByRole('textbox', { name: 'Name' }).fill('shown once');
  await page.getByRole('button', { name: 'Create' }).click();
  const key = page.getByRole('dialog', { name: 'Your new key' });
  await key.waitFor();
  await page.mouse.click(5, 5);
  await page.mouse.click(600, 780);
  assert.ok(await key.isVisible());
  await key.getByRole('button', { name: 'Close' }).click();
  await key.waitFor({ state: 'detached' });
  assert.deepEqual(wrong, []);
});
