// What a workspace keeps beside its threads: pages, tables, tools, agents, usage, the export; and citations that lead there.
import assert from 'node:assert/strict';
import { after, afterEach, before, test } from 'node:test';
import { eventually, leave, say, settled, startWorld, visit } from './world.js';

let world;
before(async () => (world = await startWorld()));
afterEach(() => leave(world));
after(() => world?.stop());

const file = (name, mimeType, text) => ({ name, mimeType, buffer: Buffer.from(text) });
const at = (path) => (url) => url.pathname === path;

test('pages are written, changed, imported, found and removed', async () => {
  const { page, wrong } = await visit(world);
  await page.goto(`${world.server.url}/pages`);
  await page.getByText('There are no pages yet').waitFor();
  await page.getByRole('button', { name: 'New page' }).click();
  await page.getByRole('textbox', { name: 'Title' }).fill('Release process');
  await page.getByRole('textbox', { name: 'Text (Markdown)' }).fill('First **freeze**, then ship.\n\n<img src=x onerror=window.hurt=1>');
  await page.getByRole('button', { name: 'Save' }).click();
  await page.getByRole('heading', { name: 'Release process' }).waitFor();
  await page.locator('strong', { hasText: 'freeze' }).waitFor();
  const address = page.url();
  await page.reload();
  await page.getByRole('button', { name: 'Edit' }).click();
  await page.getByRole('textbox', { name: 'Address (optional)' }).fill('https://example.com/release');
  await page.getByRole('textbox', { name: 'Title' }).fill('How we release');
  await page.getByRole('button', { name: 'Save' }).click();
  await page.getByRole('heading', { name: 'How we release' }).waitFor();
  await page.getByRole('link', { name: 'https://example.com/release' }).waitFor();

  await page.getByRole('link', { name: 'All pages' }).click();
  await page.locator('input[type=file]').setInputFiles([file('travel.md', 'text/markdown', '# Travel policy\n\nTrains before planes.'), file('notes.md', 'text/markdown', 'nothing but words')]);
  const list = page.getByRole('list', { name: 'Pages' }).getByRole('link');
  await eventually(async () => assert.deepEqual((await list.allInnerTexts()).map((text) => text.split('\n')[0]).sort(), ['How we release', 'Travel policy', 'notes']));
  await page.getByRole('searchbox', { name: 'Search pages' }).fill('trains');
  await eventually(async () => assert.equal(await list.count(), 1));
  await list.first().click();
  await page.getByRole('button', { name: 'Remove the page Travel policy' }).click();
  await page.getByRole('dialog').getByRole('button', { name: 'Remove', exact: true }).click();
  await page.waitForURL(at('/pages'));
  await eventually(async () => assert.equal(await list.count(), 2));
  await page.goto(address);
  await page.getByRole('heading', { name: 'How we release' }).waitFor();
  assert.equal(await page.evaluate(() => window.hurt), undefined);
  assert.deepEqual(wrong, []);
});

test('a table is made of a file, changed in place, filled and given out', async () => {
  const { page, wrong } = await visit(world);
  await page.goto(`${world.server.url}/tables`);
  await page.getByText('There are no tables yet').waitFor();
  await page.locator('input[type=file]').setInputFiles([file('rivers.csv', 'text/csv', 'river,km,dammed,seen\nVolga,3530,true,2024-05-01\n"Danube, the",2850,false,\n')]);
  await page.getByRole('heading', { name: 'rivers' }).waitFor();
  const cell = (column, row) => page.getByLabel(`${column}, row ${row}`, { exact: true });
  await eventually(async () => assert.equal(await cell('river', 2).inputValue(), 'Danube, the'));
  assert.deepEqual(await page.getByRole('columnheader').allInnerTexts().then((all) => all.slice(0, 4)), ['river text', 'km number', 'dammed boolean', 'seen date']);
  const { pathname } = new URL(page.url());
  const rows = async () => (await world.server.api('GET', `/v1${pathname}/rows`)).data.map(({ _id, ...row }) => row);

  await cell('km', 2).fill('2857.5');
  await page.keyboard.press('Enter');
  await eventually(async () => assert.deepEqual((await rows())[1], { river: 'Danube, the', km: 2857.5, dammed: false, seen: null }));
  await cell('km', 1).fill('long');
  await page.keyboard.press('Enter');
  await page.getByText('“long” is no number.').waitFor();
  assert.equal(await cell('km', 1).inputValue(), '3530');
  await cell('dammed', 2).selectOption('true');
  await eventually(async () => assert.equal((await rows())[1].dammed, true));
  await page.getByRole('button', { name: 'Add a row' }).click();
  await cell('river', 3).fill('Rhine');
  await page.keyboard.press('Enter');
  await eventually(async () => assert.equal((await rows())[2].river, 'Rhine'));
  await page.getByRole('button', { name: 'Remove row 1' }).click();
  await eventually(async () => assert.equal((await rows()).length, 2));

  // What is wrong with a file is told row by row, and nothing of it is taken.
  const picker = page.locator('input[type=file]');
  await picker.setInputFiles([file('more.csv', 'text/csv', 'river,km\nElbe,1094\nOder,very long\n')]);
  await page.getByRole('dialog', { name: 'Nothing was imported' }).getByText(/Row 2.*km/s).waitFor();
  await page.keyboard.press('Escape');
  assert.equal((await rows()).length, 2);
  await picker.setInputFiles([file('more.json', 'application/json', '[{"river":"Elbe","km":1094}]')]);
  await eventually(async () => assert.equal((await rows()).length, 3));

  const csv = await page.evaluate((url) => fetch(url).then((response) => response.text()), await page.getByRole('link', { name: 'CSV' }).getAttribute('href'));
  assert.match(csv, /^river,km,dammed,seen\r?\n/);
  assert.match(csv, /Elbe,1094/);
  await page.getByRole('button', { name: 'Remove the table rivers' }).click();
  await page.getByRole('dialog').getByRole('button', { name: 'Remove', exact: true }).click();
  await page.getByText('There are no tables yet').waitFor();
  assert.deepEqual(wrong, []);
});

test('a citation opens the page or the row that it is of', async () => {
  const { id } = await world.server.api('POST', '/v1/pages', { title: 'Holiday calendar', body: 'The office is closed on Whit Monday.' });
  const table = await world.server.api('POST', '/v1/tables', { name: 'Closures', columns: [{ name: 'place', type: 'text' }, { name: 'reason', type: 'text' }] });
  await world.server.api('POST', `/v1/tables/${table.id}/rows`, { rows: [{ place: 'Berlin', reason: 'Whit Monday' }, { place: 'Porto', reason: 'Carnival' }] });
  const { page, wrong } = await visit(world);
  await page.getByRole('button', { name: /^Mode:/ }).click();
  await page.getByRole('menuitemradio', { name: /^Ask/ }).click();
  await say(page, 'search Whit Monday');
  await settled(page);
  const thread = page.url();
  const source = (name) => page.getByRole('list', { name: 'Sources' }).getByRole('link', { name });
  await source(/Holiday calendar/).first().click();
  await page.waitForURL(at(`/pages/${id}`));
  await page.getByText('The office is closed').waitFor();
  await page.goBack();
  assert.equal(page.url(), thread);
  await source(/Closures/).first().click();
  await page.waitForURL((url) => url.pathname.startsWith(`/tables/${table.id}/rows/`));
  assert.equal(await page.locator('tr[aria-current=true] input').first().inputValue(), 'Berlin');
  assert.deepEqual(wrong, []);
});

test('agents are given tools and told which calls wait; tool servers come and go; the workspace has a model', async () => {
  const { page, wrong } = await visit(world);
  await page.goto(`${world.server.url}/settings/tools`);
  await page.getByRole('list', { name: 'Tools of this server' }).getByText('search_pages').waitFor();
  await page.getByRole('textbox', { name: 'Name' }).fill('docs');
  await page.getByRole('textbox', { name: 'Address' }).fill('https://tools.example/mcp');
  await page.getByRole('button', { name: 'Add' }).click();
  await page.getByRole('button', { name: 'Remove docs' }).click();
  await page.getByText('There are no tool servers.').waitFor();

  await page.getByRole('link', { name: 'Agents' }).click();
  await page.getByRole('button', { name: 'New agent' }).click();
  const form = page.getByRole('dialog');
  await form.getByRole('textbox', { name: 'Name' }).fill('Librarian');
  await form.getByRole('textbox', { name: 'Instructions' }).fill('Cite what you find.');
  await form.getByRole('checkbox', { name: 'search_pages', exact: true }).check();
  await form.getByRole('checkbox', { name: 'save_to_table', exact: true }).check();
  await form.getByRole('checkbox', { name: 'ask before each call of save_to_table' }).check();
  await form.getByRole('button', { name: 'Save' }).click();
  await page.getByRole('list', { name: 'Agents' }).getByText('asks before save_to_table').waitFor();
  await page.getByRole('link', { name: 'General' }).click();
  await page.getByRole('combobox', { name: 'Model' }).selectOption('demo/assistant');
  await page.getByRole('button', { name: 'Save' }).click();
  await page.getByText('Saved.').waitFor();
  const [{ id }] = (await world.server.api('GET', '/v1/workspaces')).data;
  assert.equal((await world.server.api('GET', `/v1/workspaces/${id}`)).model, 'demo/assistant');

  const [agent] = (await world.server.api('GET', '/v1/agents')).data;
  assert.deepEqual([agent.tools, agent.approval], [['search_pages', 'save_to_table'], ['save_to_table']]);
  assert.deepEqual(wrong, []);
});

test('an agent that was chosen can be let go of in its thread', async () => {
  const { page, wrong } = await visit(world);
  const { id: agent } = await world.server.api('POST', '/v1/agents', { name: 'Gardener', instructions: 'Speak of plants.', model: 'demo/assistant', runner: 'sandbox', tools: [], approval: [] });
  await page.reload();
  const choose = async (name) => {
    await page.getByRole('button', { name: /^Model:/ }).click();
    await page.getByRole('menuitemradio', { name }).click();
  };
  const stored = async () => (await world.server.api('GET', `/v1/chat-conversations/${new URL(page.url()).pathname.split('/')[2]}`)).data.attributes;
  await choose(/Gardener/);
  await say(page, 'answer with it');
  await page.getByText('with it', { exact: true }).waitFor();
  await settled(page);
  assert.equal((await stored()).agent_id, agent);
  await choose('No agent');
  await say(page, 'answer without it');
  await page.getByText('without it', { exact: true }).waitFor();
  await settled(page);
  assert.equal((await stored()).agent_id, null);
  await page.reload();
  await page.getByRole('button', { name: 'Model: Default' }).waitFor();
  assert.deepEqual(wrong, []);
});

test('another workspace shows nothing of the one before', async () => {
  const { page, wrong } = await visit(world);
  await world.server.api('POST', '/v1/agents', { name: 'Old hand', instructions: '', model: 'demo/assistant', runner: 'model', tools: [], approval: [] });
  const made = await page.evaluate(() => fetch('/v1/workspaces', { method: 'POST', headers: { 'Content-Type': 'application/json' }, body: '{"name":"Elsewhere"}' }).then((response) => response.status));
  assert.equal(made, 201);
  await page.reload();
  const offered = async () => {
    await page.getByRole('button', { name: /^Model:/ }).click();
    await page.getByRole('menuitemradio', { name: 'demo/assistant', exact: true }).waitFor();
    return page.getByRole('menuitemradio', { name: /Old hand/ });
  };
  await (await offered()).click();
  await page.getByRole('button', { name: /^L Local|^Local/ }).click();
  await page.getByRole('menuitemradio', { name: /Elsewhere/ }).click();
  await page.getByRole('button', { name: 'Model: Default' }).waitFor();
  assert.equal(await (await offered()).count(), 0);
  assert.deepEqual(wrong, []);
});

test('what was used, and all threads as a download', async () => {
  const { page, wrong } = await visit(world);
  await page.getByRole('button', { name: /^Mode:/ }).click();
  await page.getByRole('menuitemradio', { name: /^Ask/ }).click();
  await say(page, 'think 20 words');
  await settled(page);
  await page.goto(`${world.server.url}/settings/usage`);
  await page.getByText('There is no limit.').first().waitFor();
  await eventually(async () => assert.match(await page.getByRole('row').nth(1).innerText(), /\d/));
  await page.goto(world.server.url);
  await page.getByRole('button', { name: /^Local/ }).click();
  const download = page.waitForEvent('download');
  await page.getByRole('menuitem', { name: 'Export all threads' }).click();
  assert.equal(await (await download).failure(), null);
  assert.deepEqual(wrong, []);
});
