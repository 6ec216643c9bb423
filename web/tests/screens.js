// Pictures of the web app for the README, in docs/screens: `npm run screens`. Conversations are told as people would
// have them, so the sandbox answers by what it is asked.
import { mkdirSync } from 'node:fs';
import { createServer } from 'node:http';
import { say, settled, startWorld, visit } from './world.js';

const out = new URL('../../docs/screens/', import.meta.url).pathname;
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

const world = await startWorld();
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

for (const asked of ['Table of European rivers by length', 'Reply to the landlord about the lease', 'Why does the nightly import take longer since Tuesday?', 'Compare the three quotes for the office move', 'Plan the spring release', 'Summarise the minutes of the board meeting']) {
  await world.server.turn(asked);
}
const shoot = (page, name) => page.waitForTimeout(500).then(() => page.screenshot({ path: `${out}${name}.png` }));
const { page } = await visit(world, { colorScheme: 'light' });
await shoot(page, 'new-light');
await say(page, 'Which invoices of May are still unpaid?');
await settled(page);
await page.locator('[data-steps] > button').first().click();
await page.locator('li[data-block=step] > button').first().click();
await page.locator('[aria-label=Messages]').hover();
await page.mouse.wheel(0, -5000);
await shoot(page, 'steps-light');
await page.getByRole('button', { name: 'Show the run’s trace' }).click();
await shoot(page, 'trace-light');
await page.keyboard.press('Escape');
await say(page, 'Check the bank again');
await settled(page);
await shoot(page, 'failed-light');
await say(page, 'Draft both reminders, friendly but clear.');
await page.getByText('a short reminder').waitFor();
await say(page, 'Then put both into one document.');
await shoot(page, 'live-light');
const address = new URL(page.url()).pathname;
const dark = (await visit(world, { colorScheme: 'dark' })).page;
await dark.goto(world.server.url + address);
await dark.getByText('a short reminder').waitFor();
await shoot(dark, 'live-dark');
await dark.goto(`${world.server.url}/settings/members`);
await shoot(dark, 'settings-dark');
for (const colorScheme of ['light', 'dark']) {
  const phone = (await visit(world, { colorScheme, viewport: { width: 390, height: 844 }, hasTouch: true, isMobile: true })).page;
  await phone.goto(world.server.url + address);
  await phone.getByText('a short reminder').waitFor();
  await shoot(phone, `phone-${colorScheme}`);
  await phone.getByRole('button', { name: 'Show the history' }).click();
  await phone.getByRole('searchbox').fill('import');
  await phone.locator('mark').first().waitFor();
  await shoot(phone, `phone-search-${colorScheme}`);
}
release();
server.closeAllConnections();
server.close();
await world.stop();
