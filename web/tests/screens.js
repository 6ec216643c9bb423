// Pictures of the web app for docs/web-app.md, in docs/screens: `npm run screens`. Conversations are told as people
// would have them, so the sandbox answers by what it is asked.
import { mkdirSync, rmSync, writeFileSync } from 'node:fs';
import { createServer } from 'node:http';
import { say, settled, startWorld, visit } from './world.js';

const out = new URL('../../docs/screens/', import.meta.url).pathname;
rmSync(out, { recursive: true, force: true });
mkdirSync(out, { recursive: true });

const invoices = `## Two invoices are still open

Both are from May, together **€ 4,310.00**. Northwind’s is past its date by [more than 30 days](https://example.com/terms).

| Customer | Invoice | Due | Amount |
|---|---|---|---:|
| Northwind | 2026-0512 | 14 May | 3,150.00 |
| Lakeside | 2026-0519 | 28 May | 1,160.00 |

This is how I summed them:

\`\`\`python
import csv

def unpaid(rows):
    # only what is still open
    return [row for row in rows if row["status"] != "paid"]

rows = csv.DictReader(open("invoices.csv"))
print(sum(float(row["amount"]) for row in unpaid(rows)))
\`\`\`

1. Remind Northwind first
2. Then Lakeside, who usually pay late

Shall I draft the reminders?`;

const step = (id, name, args) => ({ type: 'step', id, name, status: 'running', args });
const done = (id, name, result, durationMs) => ({ type: 'step', id, name, status: 'succeeded', result, durationMs });
const stories = {
  'Which invoices of May are still unpaid?': [
    { type: 'log', level: 'info', message: 'workspace ready' },
    step('1', 'Read invoices.csv', { path: 'assets/invoices.csv' }), 300, done('1', 'Read invoices.csv', { rows: 48, columns: ['customer', 'invoice', 'due', 'amount', 'status'] }, 312),
    step('2', 'Filter unpaid', { where: 'status != paid', month: '2026-05' }), 200, done('2', 'Filter unpaid', { rows: 2 }, 187),
    step('3', 'Check payments', { since: '2026-05-01' }), 150, { type: 'step', id: '3', name: 'Check payments', status: 'failed', error: 'the bank’s interface is closed on Sundays', durationMs: 1450 },
    { type: 'delta', text: invoices }, { type: 'result', message: invoices },
  ],
  'Draft both reminders, friendly but clear.': [
    step('1', 'Look up contacts', { customers: ['Northwind', 'Lakeside'] }), 200, done('1', 'Look up contacts', { found: 2 }, 240),
    step('2', 'Write reminder to Northwind', { tone: 'friendly', invoice: '2026-0512' }), 400,
    { type: 'delta', text: 'Here is the first one:\n\n> Dear Northwind team,\n>\n> a short reminder that invoice **2026-0512** over € 3,150.00 was due on 14 May. If it has crossed with your payment, please ignore th' },
    'hold',
  ],
  'Summarise the quarter': [step('1', 'Read 12 files', { folder: 'assets' }), 300, done('1', 'Read 12 files', { files: 12 }, 312), { type: 'delta', text: 'The quarter closed **4 % above plan**. The three largest changes' }, 'hold'],
  'Check the bank again': [{ type: 'delta', text: 'I asked the bank for payments since 1 May' }, { type: 'error', code: 'bank_closed', message: 'The bank’s interface is closed on Sundays.' }],
};

let release;
const held = new Promise((resolve) => (release = resolve));
async function tell(story, response) {
  for (const line of story) {
    if (line === 'hold') await held;
    else if (typeof line === 'number') await new Promise((resolve) => setTimeout(resolve, line));
    else response.write(`${JSON.stringify(line)}\n`);
  }
  const ended = ['result', 'error'].includes(story.at(-1).type);
  response.end(ended ? '' : `${JSON.stringify({ type: 'result', message: '' })}\n`);
}

const MIB = 1024 * 1024;
const world = await startWorld({ env: { THREADKEEP_MAX_FILE_BYTES: String(2 * MIB), THREADKEEP_TOKENS_PER_DAY_PER_USER: '200000' } });
world.sandbox.close();
const server = createServer((request, response) => {
  let body = '';
  request.on('data', (chunk) => (body += chunk));
  request.on('end', () => {
    const { content } = JSON.parse(body).message;
    response.writeHead(200);
    void tell(stories[content] ?? [{ type: 'result', message: `Here is what I found on “${content}”.` }], response);
  });
});
await new Promise((resolve) => server.listen(new URL(world.sandbox.url).port, '127.0.0.1', resolve));

const asked = ['Table of European rivers by length', 'Reply to the landlord about the lease', 'Why does the nightly import take longer since Tuesday?', 'Compare the three quotes for the office move', 'Plan the spring release', 'Summarise the minutes of the board meeting'];
const day = 24 * 3600 * 1000;
await world.server.take(asked.map((title, n) => ({ title, at: Date.now() - n * n * day, messages: [title, `Here is what I found on “${title}”.`] })));
const post = (path, body) => world.server.api('POST', path, body);
await post('/v1/agents', { name: 'Bookkeeper', instructions: 'Ask before you open a file.', model: 'demo/assistant', runner: 'model', tools: ['read_file', 'search_pages', 'search_user_tables'], approval: ['read_file'] });
await post('/v1/pages', { title: 'Reminders', body: 'A first reminder goes out 14 days after an invoice was due, a second one after 30 days.' });
const table = await post('/v1/tables', { name: 'Invoices', columns: [{ name: 'customer', type: 'text' }, { name: 'amount', type: 'number' }, { name: 'paid', type: 'boolean' }, { name: 'due', type: 'date' }] });
await post(`/v1/tables/${table.id}/rows`, { rows: [{ customer: 'Northwind', amount: 3150, paid: false, due: '2026-05-14' }, { customer: 'Lakeside', amount: 1160, paid: false, due: '2026-05-28' }, { customer: 'Harbour', amount: 920.5, paid: true, due: '2026-05-02' }] });
const csv = 'customer,invoice,due,amount,status\nNorthwind,2026-0512,2026-05-14,3150.00,open\nLakeside,2026-0519,2026-05-28,1160.00,open\nHarbour,2026-0503,2026-05-02,920.50,paid\n';

const painter = await world.browser.newPage();
/** As WebP, which is a third of the size. */
async function shoot(page, name) {
  await page.waitForTimeout(500);
  const png = (await page.screenshot()).toString('base64');
  const webp = await painter.evaluate(async (base64) => {
    const picture = await createImageBitmap(new Blob([Uint8Array.from(atob(base64), (char) => char.charCodeAt(0))]));
    const canvas = Object.assign(document.createElement('canvas'), { width: picture.width, height: picture.height });
    canvas.getContext('2d').drawImage(picture, 0, 0);
    return canvas.toDataURL('image/webp', 0.9).split(',')[1];
  }, png);
  writeFileSync(`${out}${name}.webp`, Buffer.from(webp, 'base64'));
}

const { page, context } = await visit(world, { colorScheme: 'light' });
const click = (role, name) => page.getByRole(role, { name }).first().click();
const go = (path) => page.goto(world.server.url + path);
await shoot(page, 'new');

// Files: told early what is too large, looked into.
await page.locator('input[type=file]').setInputFiles([{ name: 'invoices.csv', mimeType: 'text/csv', buffer: Buffer.from(csv) }, { name: 'board-meeting.mov', mimeType: 'video/quicktime', buffer: Buffer.alloc(2 * MIB + 1) }]);
await shoot(page, 'refused');
await click('button', 'Dismiss');
await say(page, 'Which invoices of May are still unpaid?');
await page.locator('article[data-role=assistant]').waitFor();
await settled(page);
await page.locator('article').getByRole('button', { name: /^invoices.csv/ }).click();
await page.getByRole('dialog').getByText('Harbour').waitFor();
await shoot(page, 'preview');
await page.keyboard.press('Escape');

// Steps and their trace.
await page.locator('[data-steps] > button').first().click();
await page.locator('li[data-block=step] > button').first().click();
await page.locator('[aria-label=Messages]').hover();
await page.mouse.wheel(0, -5000);
await shoot(page, 'steps');
await click('button', 'Show the run’s trace');
await shoot(page, 'trace');
await page.keyboard.press('Escape');
await say(page, 'Check the bank again');
await settled(page);
await shoot(page, 'failed');

// Under way, with a message that waits; without a network; in the dark and on a phone.
await say(page, 'Draft both reminders, friendly but clear.');
await page.getByText('a short reminder').waitFor();
await say(page, 'Then put both into one document.');
await shoot(page, 'live');
await context.setOffline(true);
await page.locator('[data-offline]').waitFor();
await shoot(page, 'offline');
await context.setOffline(false);
const address = new URL(page.url()).pathname;
await page.emulateMedia({ colorScheme: 'dark' });
await page.locator('[data-offline]').waitFor({ state: 'detached' });
await shoot(page, 'live-dark');
const phone = (await visit(world, { colorScheme: 'dark', viewport: { width: 390, height: 844 }, hasTouch: true, isMobile: true })).page;
await phone.goto(world.server.url + address);
await phone.getByText('a short reminder').waitFor();
await shoot(phone, 'phone-dark');
await phone.emulateMedia({ colorScheme: 'light' });
await phone.getByRole('button', { name: 'Show the history' }).click();
await phone.getByRole('searchbox').fill('import');
await phone.locator('mark').first().waitFor();
await shoot(phone, 'phone-search');
await phone.close();
await page.emulateMedia({ colorScheme: 'light' });

// A call that waits for a person; what an answer cites.
await go('/');
await page.getByRole('button', { name: /^Model:/ }).click();
await page.getByRole('menuitemradio', { name: /Bookkeeper/ }).click();
await page.locator('input[type=file]').setInputFiles([{ name: 'invoices.csv', mimeType: 'text/csv', buffer: Buffer.from(csv) }]);
await say(page, 'read invoices.csv');
await page.getByRole('region', { name: /^Approval/ }).waitFor();
await shoot(page, 'approval');
await click('button', 'Allow');
await settled(page);
await say(page, 'search reminder northwind');
await page.getByRole('list', { name: 'Sources' }).waitFor();
await settled(page);
await shoot(page, 'citations');

// The settings.
await go(`/tables/${table.id}`);
await page.getByLabel('customer, row 3').waitFor();
await shoot(page, 'table');
await go('/settings/usage');
await page.getByText('By day').waitFor();
await page.emulateMedia({ colorScheme: 'dark' });
await shoot(page, 'usage-dark');
await page.emulateMedia({ colorScheme: 'light' });
await go('/settings/agents');
await click('button', 'Edit');
await page.getByRole('checkbox').first().waitFor();
await shoot(page, 'agent');

// A server that was killed in the middle of an answer; a thread that was deleted.
await go('/');
await say(page, 'Summarise the quarter');
await page.getByText('three largest changes').waitFor();
await world.server.kill();
await world.server.up();
await page.getByText('Interrupted by a restart').waitFor();
await shoot(page, 'interrupted');
await page.locator('[data-history] a').nth(2).focus();
await page.keyboard.press('Delete');
await page.getByRole('button', { name: 'Undo' }).waitFor();
await shoot(page, 'undo');

release();
server.closeAllConnections();
server.close();
await world.stop();
