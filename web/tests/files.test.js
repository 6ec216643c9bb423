// Files: limits told before anything is sent, progress, cancel, chips, previews.
import assert from 'node:assert/strict';
import { after, afterEach, before, test } from 'node:test';
import { dot, pdf } from './paper.js';
import { blocks, composer, eventually, leave, say, settled, startWorld, visit } from './world.js';

const MIB = 1024 * 1024;
let world;
before(async () => (world = await startWorld({ env: { THREADKEEP_MAX_FILE_BYTES: String(3 * MIB), THREADKEEP_MAX_BAG_BYTES: String(2 * MIB), THREADKEEP_MAX_FILES_PER_MESSAGE: '8' } })));
afterEach(() => leave(world));
after(() => world?.stop());

const file = (name, mimeType, content) => ({ name, mimeType, buffer: Buffer.from(content) });
const chips = (page) => page.locator('form').getByRole('list', { name: 'Attachments' }).getByRole('listitem');

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
  await give(page, 'drop', [{ name: 'huge.bin', type: '', size: 3 * MIB + 1 }]);
  await page.getByText(/huge\.bin.? is larger than 3 MiB\./).waitFor();
  assert.equal(await chips(page).count(), 0);
  assert.deepEqual(sent, []);
  await page.locator('input[type=file]').setInputFiles(Array.from({ length: 12 }, (_, n) => file(`${n}.txt`, 'text/plain', String(n))));
  // Told once, with all that was left out.
  await page.getByText('A message takes at most 8 files. Left out:').waitFor();
  const told = await page.getByText('A message takes at most 8 files.').allInnerTexts();
  assert.deepEqual(told.map((text) => text.replace(/[\u2068\u2069]/g, '')), ['A message takes at most 8 files. Left out: 8.txt, 9.txt, 10.txt, 11.txt.']);
  await eventually(async () => assert.equal(await chips(page).count(), 8));
  await composer(page).fill('');
  assert.deepEqual(wrong, []);
});

test('an upload that the server refuses is told on its chip, and can be taken away', async () => {
  const { page, wrong } = await visit(world);
  await page.route('**/files', (route) => (route.request().method() === 'POST' ? route.fulfill({ status: 413, contentType: 'application/problem+json', body: '{"status":413,"code":"bag_full","detail":"The bag is full."}' }) : route.fallback()));
  await page.locator('input[type=file]').setInputFiles([file('note.txt', 'text/plain', 'a note')]);
  await chips(page).getByText('The bag is full.').waitFor();
  await composer(page).fill('answer without it');
  assert.ok(await page.getByRole('button', { name: 'Send' }).isDisabled());
  await page.getByRole('button', { name: 'Remove note.txt' }).click();
  await composer(page).press('Enter');
  await settled(page);
  assert.deepEqual(wrong, []);
});

test('a refused file says that it keeps the message, and is not passed over', async () => {
  const { page, wrong } = await visit(world);
  await page.locator('input[type=file]').setInputFiles([file('much.txt', 'text/plain', 'x'.repeat(2 * MIB + 1))]);
  const told = page.locator('form').getByRole('status');
  await eventually(async () => assert.equal(await told.innerText(), '\u2068much.txt\u2069 cannot be sent. Remove it to send the message.'));
  await say(page, 'answer without it');
  assert.equal(await page.getByRole('button', { name: 'Send' }).getAttribute('title'), await told.innerText());
  await page.getByRole('button', { name: 'Remove much.txt' }).click();
  await eventually(async () => assert.equal(await told.innerText(), ''));
  // That sends nothing yet; the next Enter does.
  await page.evaluate(() => new Promise((drawn) => requestAnimationFrame(() => requestAnimationFrame(drawn))));
  assert.equal(await composer(page).inputValue(), 'answer without it');
  await page.keyboard.press('Enter');
  await settled(page);
  assert.deepEqual(wrong, []);
});

test('what is attached to a new thread and not sent leaves no thread behind', async () => {
  const { page, open, wrong } = await visit(world);
  const threads = async () => (await world.server.api('GET', '/v1/chat-conversations')).data.length;
  const before = await threads();
  const attach = async (where) => {
    await where.locator('input[type=file]').setInputFiles([file('note.txt', 'text/plain', 'a note')]);
    await chips(where).getByText('6 B', { exact: true }).waitFor();
    assert.equal(await threads(), before + 1);
  };
  const none = () => eventually(async () => assert.equal(await threads(), before));

  await attach(page);
  await page.getByRole('button', { name: 'Remove note.txt' }).click();
  await none();
  const slow = await open('/');
  const begun = new Promise((called) => slow.route('**/files', called));
  await slow.locator('input[type=file]').setInputFiles([file('note.txt', 'text/plain', 'a note')]);
  await begun;
  assert.equal(await threads(), before + 1);
  await slow.close({ runBeforeUnload: true });
  await none();

  // Refused, it is all there again; sent, it is a thread.
  await attach(page);
  await page.route('**/v1/turns', (route) => route.fulfill({ status: 429, contentType: 'application/problem+json', body: '{"status":429,"code":"rate_limited","detail":"Too much."}' }));
  await say(page, 'answer with a note');
  await page.getByText('Too much.').waitFor();
  await eventually(async () => assert.equal(await composer(page).inputValue(), 'answer with a note'));
  await page.unroute('**/v1/turns');
  await composer(page).press('Enter');
  await settled(page);
  await page.locator('article').getByRole('button', { name: /note.txt/ }).waitFor();
  assert.equal(await threads(), before + 1);
  await page.goto(world.server.url);
  await composer(page).waitFor();
  assert.equal(await composer(page).inputValue(), '');
  assert.equal(await threads(), before + 1);
  assert.deepEqual(wrong, []);
});

test('what is attached and not sent is a part of the draft', async () => {
  const { page, open, wrong } = await visit(world);
  const attach = async (name) => {
    await page.locator('input[type=file]').setInputFiles([file(name, 'text/plain', 'a note')]);
    await chips(page).filter({ hasText: name }).getByText('6 B', { exact: true }).waitFor();
  };
  const shows = (where, ...names) =>
    eventually(async () => assert.deepEqual(await chips(where).locator('bdi').allInnerTexts(), names));

  // In a new thread, over a reload, another page of the app and a window of its own.
  await attach('first.txt');
  await attach('second.txt');
  await page.reload();
  await shows(page, 'first.txt', 'second.txt');
  await page.getByRole('button', { name: 'Settings' }).click();
  await page.goBack();
  const other = await open('/');
  await shows(other, 'first.txt', 'second.txt');
  // Where they lie is no thread of the history.
  const [newest, next] = (await world.server.api('GET', '/v1/chat-conversations')).data;
  await other.locator(`[data-history] a[href="/c/${next.id}"]`).waitFor();
  assert.equal(await other.locator(`[data-history] a[href="/c/${newest.id}"]`).count(), 0);
  await page.getByRole('button', { name: 'Remove first.txt' }).click();
  await shows(other, 'second.txt');
  await page.reload();
  await shows(page, 'second.txt');
  await say(page, 'answer with a note');
  await settled(page);
  await page.locator('article').getByRole('button', { name: /second.txt/ }).waitFor();
  await shows(other);
  await other.reload();
  await composer(other).waitFor();
  await shows(other);

  // In a thread, and only there. One that is gone is not offered.
  await attach('third.txt');
  await attach('fourth.txt');
  await page.getByRole('button', { name: 'New thread', exact: true }).click();
  await shows(page);
  await page.goBack();
  await shows(page, 'third.txt', 'fourth.txt');
  const files = `/v1${new URL(page.url()).pathname.replace('/c/', '/chat-conversations/')}/files`;
  const { data } = await world.server.api('GET', files);
  await world.server.api('DELETE', `${files}/${data.find(({ name }) => name === 'third.txt').id}`);
  await page.reload();
  await shows(page, 'fourth.txt');
  await composer(page).fill('answer with another');
  await composer(page).press('Enter');
  await settled(page);
  await page.locator('article').getByRole('button', { name: /fourth.txt/ }).waitFor();
  assert.deepEqual(wrong, []);
});

test('a file name does not turn itself around, on its way or sent', async () => {
  const { page, wrong } = await visit(world);
  await page.locator('input[type=file]').setInputFiles([file('photo_\u202egpj.exe', 'application/octet-stream', 'x')]);
  await chips(page).getByText('photo_gpj.exe', { exact: true }).waitFor();
  await page.getByRole('button', { name: 'Remove photo_gpj.exe', exact: true }).waitFor();
  await say(page, 'answer no picture');
  await page.locator('article').getByText('photo_gpj.exe', { exact: true }).waitFor();
  await settled(page);
  assert.deepEqual(wrong, []);
});

test('attach, paste, take back, send, and look into each kind of file after a reload', async () => {
  const { page, wrong, elsewhere } = await visit(world);
  await page.locator('input[type=file]').setInputFiles([
    file('rivers.csv', 'text/csv', 'river,km\nVolga,3530\n"Danube, the",2850\n'),
    file('note.txt', 'text/plain', 'a note'),
    file('dot.png', 'image/png', dot),
    file('paper.pdf', 'application/pdf', pdf(['The first page', '你好，世界'])),
    file('drawing.svg', 'image/svg+xml', '<svg xmlns="http://www.w3.org/2000/svg"><script>window.hurt=1</script></svg>'),
    file('broken.pdf', 'application/pdf', '%PDF-1.4\nnothing of it is right'),
  ]);
  await give(page, 'paste', [{ name: 'pasted.bin', type: 'application/octet-stream', size: 10 }]);
  await eventually(async () => assert.equal(await chips(page).count(), 7));
  await page.getByRole('button', { name: 'Remove pasted.bin' }).click();
  await eventually(async () => assert.equal(await chips(page).count(), 6));
  await say(page, 'answer read');
  await settled(page);
  await page.reload();
  const look = async (name) => {
    await page.locator('article').getByRole('button', { name }).click();
    return page.getByRole('dialog');
  };

  const csv = await look(/rivers.csv/);
  await eventually(async () => assert.deepEqual(await csv.getByRole('cell').allInnerTexts(), ['Volga', '3530', 'Danube, the', '2850']));
  await page.keyboard.press('Escape');
  await (await look(/note.txt/)).getByText('a note', { exact: true }).waitFor();
  await page.keyboard.press('Escape');

  const picture = await look(/dot.png/);
  await eventually(async () => assert.equal(await picture.getByRole('img', { name: 'dot.png' }).evaluate((img) => img.naturalWidth), 1));
  await page.keyboard.press('Escape');

  // Drawn page by page, with its words for who cannot see it.
  const paper = await look(/paper.pdf/);
  await paper.getByText('你好，世界').waitFor({ state: 'attached' });
  assert.equal(await paper.getByRole('img', { name: /^Page/ }).count(), 2);
  const ink = (number) => paper.getByRole('img', { name: `Page ${number}` }).evaluate((canvas) => canvas.getContext('2d').getImageData(0, 0, canvas.width, canvas.height).data.filter((value, at) => at % 4 === 0 && value < 100).length);
  for (const number of [1, 2]) assert.ok((await ink(number)) > 100, `${await ink(number)} dark pixels on page ${number}`);
  await page.keyboard.press('Escape');

  await (await look(/broken.pdf/)).getByText('This PDF cannot be shown').waitFor();
  await page.keyboard.press('Escape');
  await (await look(/drawing.svg/)).getByRole('img', { name: 'drawing.svg' }).waitFor();
  assert.equal(await page.evaluate(() => window.hurt), undefined);
  assert.deepEqual(elsewhere, []);
  assert.deepEqual(wrong, []);
});

test('a script is shown as text, and a workbook is not', async () => {
  const { page, wrong } = await visit(world);
  const bytes = Buffer.concat([Buffer.from('PK\x03\x04'), Buffer.alloc(26), Buffer.from('xl/workbook.xml'), Buffer.from([1, 2, 0xff])]);
  await page.locator('input[type=file]').setInputFiles([file('deploy.sh', 'text/x-sh', '#!/bin/sh\necho deployed\n'), file('paper.tex', 'text/x-tex', '\\section{Rivers}'), { name: 'rivers.xlsx', mimeType: '', buffer: bytes }]);
  await eventually(async () => assert.equal(await chips(page).count(), 3));
  await say(page, 'answer read');
  await settled(page);
  const look = async (name) => {
    await page.locator('article').getByRole('button', { name }).click();
    return page.getByRole('dialog');
  };
  await (await look(/deploy.sh/)).getByText('echo deployed').waitFor();
  await page.keyboard.press('Escape');
  await (await look(/paper.tex/)).getByText('section{Rivers}').waitFor();
  await page.keyboard.press('Escape');
  await (await look(/rivers.xlsx/)).getByText('There is no preview for').waitFor();
  assert.deepEqual(wrong, []);
});

/** A second of silence. */
function wav() {
  const head = Buffer.alloc(44);
  head.write('RIFF', 0);
  head.writeUInt32LE(36 + 8000, 4);
  head.write('WAVEfmt ', 8);
  for (const [at, value] of [[16, 16], [24, 8000], [28, 8000], [40, 8000]]) head.writeUInt32LE(value, at);
  for (const [at, value] of [[20, 1], [22, 1], [32, 1], [34, 8]]) head.writeUInt16LE(value, at);
  head.write('data', 36);
  return Buffer.concat([head, Buffer.alloc(8000, 128)]);
}

test('a drawing is a picture that does nothing, sound can be played, code has its colours and Markdown its form', async () => {
  const { page, wrong, elsewhere } = await visit(world);
  const svg = '<svg xmlns="http://www.w3.org/2000/svg" width="40" height="20" onload="window.hurt = 1"><script>window.hurt = 2</script><image href="https://example.com/x.png"/><rect width="40" height="20" style="fill:red"/></svg>';
  const files = [file('map.svg', 'image/svg+xml', svg), file('half.svg', 'image/svg+xml', '<svg xmlns="http://www.w3.org/2000/svg"><rect'), { name: 'second.wav', mimeType: 'audio/wav', buffer: wav() }, file('sums.py', 'text/x-python', 'def add(a, b):\n    return a + b\n'), file('notes.md', 'text/markdown', '# Notes\n\n- one **bold** word\n')];
  await page.locator('input[type=file]').setInputFiles(files);
  await eventually(async () => assert.equal(await chips(page).count(), files.length));
  await say(page, 'answer read');
  await settled(page);
  const dialog = page.getByRole('dialog');
  const look = async (name) => {
    await page.keyboard.press('Escape');
    await page.locator('article').getByRole('button', { name }).click();
  };
  await look(/map.svg/);
  await eventually(async () => assert.ok(await dialog.getByRole('img', { name: 'map.svg' }).evaluate((node) => node.complete && node.naturalWidth === 40)));
  // What is no drawing is text.
  await look(/half.svg/);
  await dialog.getByText('<rect').waitFor();
  await look(/second.wav/);
  await eventually(async () => assert.equal(await dialog.locator('audio').evaluate((node) => Math.round(node.duration)), 1));
  await look(/sums.py/);
  await dialog.locator('.hljs-keyword', { hasText: 'def' }).waitFor();
  await look(/notes.md/);
  await dialog.locator('strong', { hasText: 'bold' }).waitFor();
  await dialog.getByRole('heading', { name: 'Notes', exact: true }).waitFor();
  assert.equal(await page.evaluate(() => window.hurt), undefined);
  assert.deepEqual(elsewhere, []);
  assert.deepEqual(wrong, []);
});

test('a file that the assistant made is shown where it was made, live and after a reload', async () => {
  const { page, wrong } = await visit(world);
  await say(page, 'step a write_the_table {}\nmake rivers.tsv river\tkm\\nVolga\t3530\ndone a write_the_table fine\nsay Here it is.\nhold made\nanswer Here it is.');
  await page.getByText('Here it is.', { exact: true }).waitFor();
  const order = () => page.locator('article[data-role=assistant] :is([data-steps], [data-block=file], [data-block=text])').evaluateAll((all) => all.map((one) => one.dataset.block ?? 'steps'));
  await eventually(async () => assert.deepEqual(await order(), ['steps', 'file', 'text']));
  world.sandbox.open('made');
  await settled(page);
  const live = await blocks(page);
  await page.reload();
  await settled(page);
  await eventually(async () => assert.deepEqual(await blocks(page), live));
  await page.locator('article').getByRole('button', { name: /rivers.tsv/ }).click();
  await eventually(async () => assert.deepEqual(await page.getByRole('dialog').getByRole('cell').allInnerTexts(), ['Volga', '3530']));
  assert.deepEqual(wrong, []);
});
