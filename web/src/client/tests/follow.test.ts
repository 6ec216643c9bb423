import { afterEach, describe, expect, it } from 'vitest';
import { follow } from '../follow';
import { setBase } from '../http';
import type { RunEvent } from '../types';
import { frame, json, problem, scripted, stream, type Handler } from './server';

let close: (() => Promise<void>) | undefined;
afterEach(async () => {
  await close?.();
  close = undefined;
});

const text = (n: number) => frame(n, 'delta', { text: `${n} ` });
const done = (n: number) => frame(n, 'done', { status: 'succeeded' });
const times = { first: 1, longest: 5 };

async function run(handlers: Handler[], more: { after?: number; times?: object } = {}) {
  const server = await scripted(handlers);
  close = server.close;
  setBase(server.url);
  let events: RunEvent[] = [];
  let resets = 0;
  const end = await follow({
    run: 'r',
    signal: new AbortController().signal,
    onEvents: (batch) => events.push(...batch),
    onReset: () => {
      resets++;
      events = [];
    },
    ...more,
    times: { ...times, ...more.times },
  });
  const asked = server.seen.map((request) => request.headers['last-event-id']);
  return { end, resets, asked, seqs: events.map((event) => event.seq), paths: server.seen.map((request) => request.url) };
}

describe('follow', () => {
  it('reads to done', async () => {
    const got = await run([stream(text(1) + text(2) + done(3))]);
    expect(got).toMatchObject({ end: 'done', seqs: [1, 2, 3], asked: [undefined] });
  });

  it('begins after the number it is given', async () => {
    const got = await run([stream(text(8) + done(9))], { after: 7 });
    expect(got).toMatchObject({ seqs: [8, 9], asked: ['7'] });
  });

  it('takes up a torn stream where it was, also in the middle of a frame', async () => {
    const cut = text(3).slice(0, 20);
    const got = await run([stream(text(1) + text(2) + cut, true), stream('', true), stream(text(3) + done(4))]);
    expect(got).toMatchObject({ seqs: [1, 2, 3, 4], asked: [undefined, '2', '2'], resets: 0 });
  });

  it('waits for a server that is away or busy', async () => {
    const away = stream(text(1), true);
    const got = await run([away, problem(503, 'unavailable'), problem(429, 'rate_limited'), stream(done(2))]);
    expect(got).toMatchObject({ end: 'done', seqs: [1, 2] });
  });

  it('drops a connection that is silent for too long', async () => {
    const silent: Handler = (_, response) => {
      response.writeHead(200, { 'Content-Type': 'text/event-stream' });
      response.write(text(1));
    };
    const got = await run([silent, stream(done(2))], { times: { silence: 50 } });
    expect(got).toMatchObject({ seqs: [1, 2], asked: [undefined, '1'] });
  });

  it('skips what it has', async () => {
    const got = await run([stream(text(1) + text(2), true), stream(text(2) + done(3))]);
    expect(got.seqs).toEqual([1, 2, 3]);
  });

  it('starts over when its number is not one of the run any more', async () => {
    const got = await run([stream(text(1) + text(5), true), problem(400, 'invalid_parameter'), stream(text(1) + done(2))]);
    expect(got).toMatchObject({ resets: 1, seqs: [1, 2], asked: [undefined, '5', undefined] });
  });

  it('starts over when the end is told in fewer events than it has', async () => {
    const got = await run([stream(text(3), true), stream(''), json({ status: 'succeeded' }), stream(text(1) + done(2))]);
    expect(got).toMatchObject({ resets: 1, seqs: [1, 2] });
    expect(got.paths[2]).toBe('/v1/runs/r');
  });

  it('says when the run is gone', async () => {
    expect(await run([stream(text(1), true), problem(404, 'not_found')])).toMatchObject({ end: 'gone', seqs: [1] });
  });

  it('gives up on what does not pass', async () => {
    await expect(run([problem(401, 'unauthenticated')])).rejects.toMatchObject({ status: 401, code: 'unauthenticated' });
  });

  it('stops when it is told to', async () => {
    const server = await scripted([stream(text(1), true)]);
    close = server.close;
    setBase(server.url);
    const stop = new AbortController();
    const following = follow({
      run: 'r',
      signal: stop.signal,
      onEvents: () => stop.abort(),
      onReset: () => {},
      times,
    });
    await expect(following).rejects.toThrow();
  });
});
