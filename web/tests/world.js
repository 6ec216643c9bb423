// The real binary with a data folder of its own, a scripted sandbox, and Debian's Chromium.
import assert from 'node:assert/strict';
import { execFile, spawn } from 'node:child_process';
import { createHmac } from 'node:crypto';
import { existsSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { createServer } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { promisify } from 'node:util';
import { chromium } from 'playwright-core';
import { startProvider } from './provider.js';
import { startSandbox } from './sandbox.js';

const root = new URL('../../', import.meta.url).pathname;
const target = process.env.CARGO_TARGET_DIR ?? join(root, 'target');
export const binary =
  process.env.THREADKEEP_BIN ?? ['debug', 'release'].map((kind) => join(target, kind, 'threadkeep')).find((path) => existsSync(path));

const freePort = () =>
  new Promise((resolve) => {
    const probe = createServer();
    probe.listen(0, '127.0.0.1', () => {
      const { port } = probe.address();
      probe.close(() => resolve(port));
    });
  });

export class Server {
  constructor(env, data, port) {
    Object.assign(this, { env, data, port, url: `http://127.0.0.1:${port}` });
  }

  static async start(env) {
    const data = mkdtempSync(join(tmpdir(), 'threadkeep-web-'));
    const server = new Server(env, data, await freePort());
    await server.up();
    return server;
  }

  environment() {
    return { ...this.env, PATH: process.env.PATH, HOME: this.data, THREADKEEP_DATA: this.data, THREADKEEP_LISTEN: `127.0.0.1:${this.port}`, RUST_LOG: 'warn' };
  }

  /** Starts the process; the address that it prints logs a browser in. */
  async up() {
    this.process = spawn(binary, ['serve'], { env: this.environment(), stdio: ['ignore', 'pipe', 'pipe'] });
    this.process.stderr.on('data', (text) => (this.log = (this.log ?? '') + text));
    // Where tokens are checked nobody is logged in by an address.
    if (this.env.THREADKEEP_JWT_SECRET) return eventually(async () => assert.ok((await fetch(`${this.url}/readyz`)).ok));
    let printed = '';
    this.login = await new Promise((resolve, reject) => {
      this.process.stdout.on('data', (text) => {
        printed += text;
        const address = /http:\/\/\S+ticket=\S+/.exec(printed)?.[0];
        if (address) resolve(address);
      });
      this.process.on('exit', (code) => reject(new Error(`the server ended with ${code}: ${this.log}`)));
    });
    this.key = readFileSync(join(this.data, 'local.key'), 'utf8').trim();
  }

  /** What a user of a server with JWT logs in with. */
  token(sub) {
    const part = (value) => Buffer.from(JSON.stringify(value)).toString('base64url');
    const signed = `${part({ alg: 'HS256', typ: 'JWT' })}.${part({ sub, org_id: 'acme', exp: Math.floor(Date.now() / 1000) + 3600 })}`;
    return `${signed}.${createHmac('sha256', this.env.THREADKEEP_JWT_SECRET).update(signed).digest('base64url')}`;
  }

  /** kill -9, and gone. */
  async kill() {
    const gone = new Promise((resolve) => this.process.removeAllListeners('exit').once('exit', resolve));
    this.process.kill('SIGKILL');
    await gone;
  }

  async stop() {
    await this.kill();
    rmSync(this.data, { recursive: true, force: true });
  }

  async api(method, path, body, type = 'application/json', key = this.key) {
    const headers = { Authorization: `Bearer ${key}`, ...(body ? { 'Content-Type': type } : {}) };
    const response = await fetch(this.url + path, { method, headers, body: body && JSON.stringify(body) });
    const text = await response.text();
    if (!response.ok) throw new Error(`${method} ${path}: ${response.status} ${text}`);
    return text && (response.headers.get('content-type') ?? '').includes('json') ? JSON.parse(text) : text;
  }

  /** Takes in many threads at once: `{ title, at, messages: [text, …] }`, the user's and the assistant's by turns. */
  async take(threads) {
    const file = join(this.data, 'threads.json');
    const id = (n) => `00000000-0000-4000-8000-${String(n).padStart(12, '0')}`;
    let last = 0;
    const written = threads.map(({ title, at, messages }) => {
      const created_at = new Date(at).toISOString();
      const chat_messages = messages.map((text, n) => ({ uuid: id(++last), sender: n % 2 ? 'assistant' : 'human', text, content: [{ type: 'text', text }], created_at }));
      return { uuid: id(++last), name: title, created_at, updated_at: created_at, chat_messages };
    });
    writeFileSync(file, JSON.stringify(written));
    await promisify(execFile)(binary, ['import', '--format', 'claude', file], { env: this.environment() });
    rmSync(file);
  }

  /** A whole turn, waited for; answers the ids. */
  async turn(message, conversation) {
    const headers = { Authorization: `Bearer ${this.key}`, 'Content-Type': 'application/json' };
    const response = await fetch(`${this.url}/v1/turns`, { method: 'POST', headers, body: JSON.stringify({ message, conversation }) });
    await response.text();
    return { conversation: response.headers.get('threadkeep-conversation'), run: response.headers.get('threadkeep-run') };
  }
}

/** With `models`, a scripted provider answers beside the built-in model; `env` is the server's. */
export async function startWorld({ models = false, env: more = {} } = {}) {
  if (!binary) throw new Error('no threadkeep binary: run `cargo build -p threadkeep-server --bin threadkeep`, or set THREADKEEP_BIN');
  const sandbox = await startSandbox();
  const provider = models ? await startProvider() : null;
  const env = { ...more, SANDBOX_URL: sandbox.url, ...(provider ? { OPENAI_API_KEY: 'a-key', OPENAI_BASE_URL: provider.url } : {}) };
  const starting = Server.start(env);
  const browser = await chromium.launch({
    executablePath: process.env.CHROMIUM ?? '/usr/bin/chromium',
    args: ['--no-sandbox', '--disable-dev-shm-usage', '--disable-gpu', '--force-color-profile=srgb', '--hide-scrollbars'],
  });
  const server = await starting;
  const stop = async () => {
    await browser.close();
    sandbox.close();
    provider?.close();
    await server.stop();
  };
  return { sandbox, provider, server, browser, stop };
}

/** A browser of its own: logged in, where tokens are checked with `token`, else before the door. What goes wrong in its pages fails the test that opened it. */
export async function visit(world, { token = null, ...options } = {}) {
  const context = await world.browser.newContext({ viewport: { width: 1280, height: 800 }, locale: 'en-GB', ...options });
  (world.contexts ??= []).push(context);
  const wrong = [];
  const elsewhere = [];
  context.on('weberror', (error) => wrong.push(String(error.error())));
  context.on('console', (message) => {
    const text = message.text();
    // A request that fails is part of many stories; the page says what it makes of it.
    if (message.type() === 'error' && !/Failed to load resource|net::ERR/.test(text)) wrong.push(text);
  });
  context.on('request', (request) => {
    if (!request.url().startsWith(world.server.url) && !request.url().startsWith('blob:')) elsewhere.push(request.url());
  });
  const open = async (path = '/') => {
    const page = await context.newPage();
    page.setDefaultTimeout(10_000);
    await page.goto(world.server.url + path);
    return page;
  };
  const first = await context.newPage();
  first.setDefaultTimeout(10_000);
  await first.goto((token ? null : world.server.login) ?? world.server.url);
  if (token) {
    await first.getByRole('textbox', { name: 'Token' }).fill(token);
    await first.getByRole('button', { name: 'Log in' }).click();
  }
  await first.getByRole('textbox', { name: token || world.server.login ? 'Message' : 'Token' }).waitFor();
  return { context, page: first, open, wrong, elsewhere };
}

/** The bytes that a first visit transfers, headers and answers of the API too. */
export async function firstVisit(world) {
  const page = await (await visit(world)).context.newPage();
  const session = await page.context().newCDPSession(page);
  let bytes = 0;
  await session.send('Network.enable');
  await session.send('Network.setCacheDisabled', { cacheDisabled: true });
  session.on('Network.loadingFinished', (event) => (bytes += event.encodedDataLength));
  await page.goto(world.server.url);
  await page.getByRole('textbox', { name: 'Message' }).waitFor();
  await page.waitForLoadState('networkidle');
  return bytes;
}

/** Closes what a test has opened: pages that are left open go on asking. */
export async function leave(world) {
  for (const context of world?.contexts?.splice(0) ?? []) await context.close();
}

export const composer = (page) => page.getByRole('textbox', { name: 'Message', exact: true });

export async function say(page, text) {
  await composer(page).fill(text);
  await composer(page).press('Enter');
}

/** Waits until the check no longer throws. */
export async function eventually(check, ms = 10_000) {
  const end = Date.now() + ms;
  for (;;) {
    try {
      return await check();
    } catch (error) {
      if (Date.now() > end) throw error;
      await new Promise((resolve) => setTimeout(resolve, 50));
    }
  }
}

/** What a reader sees of the thread: each message's role, and its blocks with their state, text and markup. */
export const blocks = (page) =>
  page.evaluate(() => {
    const plain = (node) => {
      if (node.nodeType === Node.TEXT_NODE) return node.textContent;
      if (node.nodeType !== Node.ELEMENT_NODE || node.matches('[data-took], svg, button[title]')) return '';
      const state = node.dataset.status ?? node.getAttribute('aria-expanded') ?? '';
      return `<${node.localName}${state && ` ${state}`}>${[...node.childNodes].map(plain).join('')}</>`;
    };
    const part = (article) => article.querySelector('[data-blocks]') ?? article.querySelector('[data-block]') ?? article;
    return [...document.querySelectorAll('article[data-role]')].map((article) => `${article.dataset.role}: ${plain(part(article))}`);
  });

/** The plain text of the last answer. */
export const lastAnswer = (page) =>
  page.evaluate(() => [...document.querySelectorAll('article[data-role=assistant] [data-blocks]')].at(-1)?.textContent ?? '');

/** Waits for the answer to be complete. */
export const settled = (page) => page.waitForFunction(() => document.querySelector('article[data-role]') && !document.querySelector('[data-live]'));
