// How fast the web app is: `npm run bench`. A thread of 10,000 messages is opened and scrolled, typing is watched
// while 200 events a second stream in, and what a first visit loads is weighed.
import { startWorld, visit, say, composer } from './world.js';

const MESSAGES = Number(process.env.MESSAGES ?? 10_000);
const world = await startWorld();
const told = (name, value) => console.log(`${name.padEnd(58)} ${value}`);

let conversation;
for (let n = 0; n < MESSAGES / 2; n++) {
  const answer = n % 5 ? `A short answer, number ${n}, with **some** \`Markdown\`.` : `## Answer ${n}\\n\\n| a | b |\\n|---|---|\\n| ${n} | 2 |\\n\\n\`\`\`js\\nconst n = ${n};\\n\`\`\`\\n\\n- one\\n- two`;
  ({ conversation } = await world.server.turn(`answer ${answer}`, conversation));
}

/** The longest tasks of the page while something is done, in ms. */
async function longest(page, doing) {
  await page.evaluate(() => {
    window.tasks = [];
    window.watching = new PerformanceObserver((list) => window.tasks.push(...list.getEntries().map((entry) => entry.duration)));
    window.watching.observe({ type: 'longtask' });
  });
  await doing();
  return page.evaluate(() => {
    window.watching.disconnect();
    return Math.round(Math.max(0, ...window.tasks));
  });
}

const { page } = await visit(world);
let bytes = 0;
const fresh = await (await visit(world)).context.newPage();
const session = await fresh.context().newCDPSession(fresh);
await session.send('Network.enable');
await session.send('Network.setCacheDisabled', { cacheDisabled: true });
session.on('Network.loadingFinished', (event) => (bytes += event.encodedDataLength));
await fresh.goto(world.server.url);
await fresh.getByRole('textbox', { name: 'Message' }).waitFor();
await fresh.waitForTimeout(500);
told('first visit, all of it', `${(bytes / 1000).toFixed(0)} kB`);

const times = [];
for (let n = 0; n < 5; n++) {
  const began = Date.now();
  await page.goto(`${world.server.url}/c/${conversation}`);
  await page.waitForFunction(() => document.querySelectorAll('article').length > 2);
  times.push(Date.now() - began);
}
times.sort((a, b) => a - b);
told(`open a thread of ${MESSAGES} messages, median of 5`, `${times[2]} ms`);

await page.locator('[aria-label=Messages]').hover();
const scrolling = await longest(page, async () => {
  for (let n = 0; n < 150; n++) {
    await page.mouse.wheel(0, -1500);
    await page.waitForTimeout(16);
  }
});
told('longest task while scrolling 225,000 px up', `${scrolling} ms`);
told('rows in the page after that', await page.locator('article').count());

await page.goto(world.server.url);
await say(page, 'words 2000 5');
await page.waitForTimeout(1500);
let slowest = 0;
const typing = await longest(page, async () => {
  for (const letter of 'typing while the answer streams in ') {
    const began = Date.now();
    await composer(page).press(letter === ' ' ? 'Space' : letter);
    await page.evaluate(() => new Promise((resolve) => requestAnimationFrame(resolve)));
    slowest = Math.max(slowest, Date.now() - began);
  }
});
told('longest task while typing beside 200 events a second', `${typing} ms`);
told('slowest key, until it is drawn', `${slowest} ms`);
await world.stop();
