// Files: limits told before anything is sent, progress, cancel, chips, previews.
import assert from 'node:assert/strict';
import { after, afterEach, before, test } from 'node:test';
import { composer, eventually, leave, say, settled, startWorld, visit } from './world.js';

let world;
let uploads;
before(async () => {
  world = await startWorld();
  uploads = '/v1/chat-conversations/{id}/files' in (await world.server.api('GET', '/openapi.json')).paths;
});
afterEach(() => leave(world));
after(() => world?.stop());

const file = (name, mimeType, text) => ({ name, mimeType, buffer: Buffer.from(text) });
const chips = (page) => page.getByRole('list', { name: 'Attachments' }).getByRole('listitem');

/** As if dropped or pasted: files that a page is given. */
const give = (page, event, files) =>
  page.evaluate(
    ([kind, list]) => {
      const data = new DataTransfer();
      for (const { name, type, size } of list) data.items.add(new File([new Uint8Array(size)], name, { type }));
      const target = document.querySelector('form[aria-label="Write a message"] textarea');
      const init = { bubbles: true, cancelable: true };
      if (kind === 'paste') target.dispatchEvent(new ClipboardEvent('paste', { ...init, clipboardData: data }));
      else for (const name of ['dragenter', 'dragover', 'drop']) target.dispatchEvent(new DragEvent(name, { ...init, dataTransfer: data }));
    },
    [event, files],
  );

test('what is too large or too many is told before a byte is sent', async () => {
  const { page, wrong } = await visit(world);
  const sent = [];
  page.on('request', (request) => request.method() === 'POST' && sent.push(request.url()));
  await give(page, 'drop', [{ name: 'huge.bin', type: '', size: 50 * 1024 * 1024 + 1 }]);
  await page.getByText('huge.bin is larger than 50 MiB.').waitFor();
  assert.equal(await chips(page).count(), 0);
  assert.deepEqual(sent, []);
  assert.deepEqual(wrong, []);
});

test('attach, send, preview, remove', async (t) => {
  if (!uploads) return t.skip('this server has no uploads');
  const { page, wrong } = await visit(world);
  const picker = page.locator('input[type=file]');
  await picker.setInputFiles([file('rivers.csv', 'text/csv', 'river,km\nVolga,3530\n"Danube, the",2850\n'), file('note.txt', 'text/plain', 'a note')]);
  await eventually(async () => assert.match(await chips(page).allInnerTexts().then((all) => all.join()), /39 B.*6 B/s));
  await give(page, 'paste', [{ name: 'pasted.bin', type: 'application/octet-stream', size: 10 }]);
  await eventually(async () => assert.equal(await chips(page).count(), 3));
  await page.getByRole('button', { name: 'Remove pasted.bin' }).click();
  await eventually(async () => assert.equal(await chips(page).count(), 2));
  await say(page, 'answer read');
  await settled(page);
  await page.reload();
  await page.getByRole('button', { name: /rivers.csv/ }).click();
  await page.getByRole('cell', { name: 'Danube, the' }).waitFor();
  await page.keyboard.press('Escape');
  await page.getByRole('button', { name: /note.txt/ }).click();
  await page.getByText('a note', { exact: true }).waitFor();
  await page.keyboard.press('Escape');

  // More than a message takes.
  await picker.setInputFiles(Array.from({ length: 12 }, (_, n) => file(`${n}.txt`, 'text/plain', String(n))));
  await page.getByText('A message takes at most 10 files.').first().waitFor();
  await eventually(async () => assert.equal(await page.locator('form').getByRole('list', { name: 'Attachments' }).getByRole('listitem').count(), 10));
  await composer(page).fill('');
  assert.deepEqual(wrong, []);
});
