// How fast the web app is: `npm run bench`, or `make bench ARGS=web` with a release build. A thread of 10,000 messages
// is opened and scrolled, a history of 3,000 threads is scrolled, typing is watched while 200 events a second stream
// in and while a list of thousands does, and what a first visit loads is weighed. It fails when a figure is over its limit.
import { composer, firstVisit, say, startWorld, visit } from './world.js';

const MESSAGES = 10_000;
const THREADS = 3_000;

function told(name, value, unit, most) {
  const over = most !== undefined && value > most;
  if (over) process.exitCode = 1;
  console.log(`${name.padEnd(58)} ${`${value} ${unit}`.padStart(10)}${most === undefined ? '' : `   at most ${most}${over ? '  MISSED' : ''}`}`);
}

/** Answers as people get them: short ones, and every fifth with headings, a table, code and a list. */
const answer = (n) => (n % 5 ? `A short answer, number ${n}, with **some** \`Markdown\`.` : `## Answer ${n}\n\n| a | b |\n|---|---|\n| ${n} | 2 |\n\n\`\`\`js\nconst n = ${n};\n\`\`\`\n\n- one\n- two`);

/** The long thread, which is the newest, and many more. */
const fill = (server) =>
  server.take([
    { title: 'long', at: Date.now(), messages: Array.from({ length: MESSAGES }, (_, n) => (n % 2 ? answer((n - 1) / 2) : `question ${n / 2}`)) },
    ...Array.from({ length: THREADS }, (_, n) => ({ title: `thread ${n}`, at: Date.now() - (n + 1) * 3_600_000, messages: [`question ${n}`, answer(n)] })),
  ]);

/** The longest task of the page while something is done, in ms. */
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

const frame = (page) => page.evaluate(() => new Promise((resolve) => requestAnimationFrame(resolve)));

async function open(world, page, conversation) {
  const times = [];
  for (let n = 0; n < 5; n++) {
    const began = Date.now();
    await page.goto(`${world.server.url}/c/${conversation}`);
    await page.waitForFunction(() => document.querySelectorAll('article').length > 2);
    times.push(Date.now() - began);
  }
  times.sort((a, b) => a - b);
  told(`a thread of ${MESSAGES.toLocaleString('en')} messages opens, median of 5`, times[2], 'ms', 1000);
}

const wheel = (page, by, times) =>
  longest(page, async () => {
    for (let n = 0; n < times; n++) {
      await page.mouse.wheel(0, by);
      await frame(page);
    }
  });

async function scroll(page) {
  await page.locator('[aria-label=Messages]').hover();
  told('longest task while scrolling up 225,000 px', await wheel(page, -1500, 150), 'ms', 100);
  told('messages in the page after that', await page.locator('article').count(), '');
  await page.locator('[data-history]').hover();
  told(`longest task while scrolling through ${THREADS.toLocaleString('en')} threads`, await wheel(page, 700, 200), 'ms', 100);
}

async function type(world, page) {
  await page.goto(world.server.url);
  await say(page, 'words 4000 5');
  // Long enough for the answer to be long.
  await page.waitForFunction(() => document.querySelector('[data-live]')?.textContent.includes('word 400 '), null, { timeout: 30_000 });
  let slowest = 0;
  const worst = await longest(page, async () => {
    for (const letter of 'typing while the answer streams in ') {
      const began = Date.now();
      await composer(page).press(letter === ' ' ? 'Space' : letter);
      await frame(page);
      slowest = Math.max(slowest, Date.now() - began);
    }
  });
  told('longest task while typing beside 200 events a second', worst, 'ms', 100);
  told('slowest key until it is drawn', slowest, 'ms');
}

/** A list is one piece of Markdown, however long: it must not take all of the time to read it again as it grows. */
async function list(world, page) {
  await page.goto(world.server.url);
  const items = (from) => Array.from({ length: 15 }, (_, n) => `- item ${from + n} of **many**\\n`).join('');
  await say(page, Array.from({ length: 200 }, (_, n) => `say ${items(n * 15)}\nwait 40`).join('\n'));
  await page.waitForFunction(() => document.querySelector('[data-live]')?.textContent.includes('item 1 '), null, { timeout: 60_000 });
  const began = Date.now();
  let slowest = 0;
  await longest(page, async () => {
    while (await page.evaluate(() => document.querySelector('[data-live]') !== null)) {
      const pressed = Date.now();
      await composer(page).press('x');
      await frame(page);
      slowest = Math.max(slowest, Date.now() - pressed);
    }
  });
  const busy = await page.evaluate(() => window.tasks.reduce((sum, ms) => sum + ms, 0));
  told('share of long tasks while a list of 3,000 comes', Math.round((busy / (Date.now() - began)) * 100), '%', 60);
  told('slowest key until it is drawn', slowest, 'ms');
}

const world = await startWorld();
try {
  await fill(world.server);
  const { data } = await world.server.api('GET', '/v1/chat-conversations?page[size]=1');
  const { page } = await visit(world);
  told('first visit, all that is loaded', Math.round((await firstVisit(world)) / 1000), 'kB', 250);
  await open(world, page, data[0].id);
  await scroll(page);
  await type(world, page);
  await list(world, page);
} finally {
  await world.stop();
}
