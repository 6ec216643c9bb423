// How fast the web app is: `npm run bench`, or `make bench ARGS=web` with a release build. A thread of 10,000 messages
// is opened and scrolled, typing is watched while 200 events a second stream in, and what a first visit loads is
// weighed. It fails when a figure is over its limit.
import { composer, firstVisit, say, startWorld, visit } from './world.js';

const MESSAGES = 10_000;

function told(name, value, unit, most) {
  const over = most !== undefined && value > most;
  if (over) process.exitCode = 1;
  console.log(`${name.padEnd(58)} ${`${value} ${unit}`.padStart(10)}${most === undefined ? '' : `   at most ${most}${over ? '  MISSED' : ''}`}`);
}

export async function fill(server) {
  let conversation;
  for (let n = 0; n < MESSAGES / 2; n++) {
    const answer = n % 5 ? `A short answer, number ${n}, with **some** \`Markdown\`.` : `## Answer ${n}\\n\\n| a | b |\\n|---|---|\\n| ${n} | 2 |\\n\\n\`\`\`js\\nconst n = ${n};\\n\`\`\`\\n\\n- one\\n- two`;
    ({ conversation } = await server.turn(`answer ${answer}`, conversation));
  }
  return conversation;
}

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

async function scroll(page) {
  await page.locator('[aria-label=Messages]').hover();
  const worst = await longest(page, async () => {
    for (let n = 0; n < 150; n++) {
      await page.mouse.wheel(0, -1500);
      await frame(page);
    }
  });
  told('longest task while scrolling up 225,000 px', worst, 'ms', 100);
  told('messages in the page after that', await page.locator('article').count(), '');
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

export async function measure(world, conversation) {
  const { page } = await visit(world);
  told('first visit, all that is loaded', Math.round((await firstVisit(world)) / 1000), 'kB', 250);
  await open(world, page, conversation);
  await scroll(page);
  await type(world, page);
}

if (process.argv[1] === new URL(import.meta.url).pathname) {
  const world = await startWorld();
  try {
    await measure(world, await fill(world.server));
  } finally {
    await world.stop();
  }
}
