// A run's events from after a number on, over as many connections as it takes: a stream that breaks off is taken
// up where it was, with `Last-Event-ID`. Ends with the event `done`, or when there is no such run any more.
import { timeOf } from './fold';
import { Failure, request, send } from './http';
import { parse } from './json';
import { takePlace } from './places';
import { Frames } from './sse';
import type { Run, RunEvent } from './types';

export type FollowOptions = {
  run: string;
  after?: number;
  /** A response that already carries the events: the one of the turn itself. */
  first?: Response | undefined;
  signal: AbortSignal;
  onEvents: (events: RunEvent[]) => void;
  /** What was heard so far does not count: the events come again from the first one. */
  onReset: () => void;
  /** Whether a connection is there. */
  onConnection?: (connected: boolean) => void;
  times?: Partial<typeof TIMES>;
};

export const TIMES = {
  /** The pause after the n-th failure in a row is about first * 2^n, at most longest. */
  first: 300,
  longest: 10_000,
  /** Heartbeats come every 15 seconds; a connection that is silent for longer is dead. */
  silence: 40_000,
  /** After this long the log may be gone and numbers mean something else: read from the beginning. */
  forget: 20 * 60_000,
};

export async function follow(options: FollowOptions): Promise<'done' | 'gone'> {
  const { run, signal, onEvents, onReset, onConnection } = options;
  const times = { ...TIMES, ...options.times };
  let after = options.after ?? 0;
  let first = options.first;
  let failures = 0;
  let heard = Date.now();

  const restart = () => {
    after = 0;
    onReset();
  };

  for (;;) {
    signal.throwIfAborted();
    let empty = true;
    const place = await takePlace(signal, () => {
      first?.body?.cancel().catch(() => undefined);
      first = undefined;
    });
    try {
      const response = first ?? (await open(run, after, signal));
      first = undefined;
      onConnection?.(true);
      for await (const events of read(response, times.silence, AbortSignal.any([signal, place.over]))) {
        heard = Date.now();
        // A repeat can come only from a mistake; it must not be folded twice.
        const fresh = events.filter((event) => event.seq > after);
        const last = fresh.at(-1);
        if (!last) continue;
        after = last.seq;
        empty = false;
        failures = 0;
        onEvents(fresh);
        if (last.event === 'done') return 'done';
      }
      // It is another window's turn.
      if (place.over.aborted) continue;
      // A clean end without `done` and without anything: perhaps the settled message is told in fewer events.
      if (empty && after > 0 && (await settled(run, signal))) restart();
    } catch (error) {
      if (signal.aborted) throw error;
      if (error instanceof Failure && !error.passing) {
        if (error.status === 404) return 'gone';
        if (error.status !== 400 || after === 0) throw error;
        restart();
      }
    } finally {
      place.leave();
    }
    onConnection?.(false);
    const pause = Math.min(times.first * 2 ** failures++, times.longest);
    await wait(pause * (0.75 + Math.random() / 2), signal);
    if (after > 0 && Date.now() - heard > times.forget) {
      heard = Date.now();
      restart();
    }
  }
}

const open = (run: string, after: number, signal: AbortSignal) =>
  send(`/v1/runs/${run}/events`, {
    headers: { Accept: 'text/event-stream', ...(after > 0 ? { 'Last-Event-ID': String(after) } : {}) },
    signal,
  });

async function settled(run: string, signal: AbortSignal): Promise<boolean> {
  const { status } = await request<Run>(`/v1/runs/${run}`, { signal });
  return status !== 'queued' && status !== 'running';
}

/** The events of one response, as many together as came together. */
async function* read(response: Response, silence: number, signal: AbortSignal): AsyncGenerator<RunEvent[]> {
  const reader = response.body?.getReader();
  if (!reader) return;
  const frames = new Frames();
  const dead = Symbol('dead');
  try {
    for (;;) {
      let timer: ReturnType<typeof setTimeout> | undefined;
      const quiet = new Promise<typeof dead>((resolve) => {
        timer = setTimeout(() => resolve(dead), silence);
      });
      const cut = offline(signal);
      const got = await Promise.race([reader.read(), quiet, cut.happened.then(() => dead)]).finally(() => {
        clearTimeout(timer);
        cut.stop();
      });
      if (typeof got === 'symbol' || got.done) return;
      const events = frames.push(got.value).map((frame): RunEvent => {
        const data = parse(frame.data) as Record<string, unknown>;
        return { seq: Number(frame.id), event: frame.event, data, ts: timeOf(data, Date.now()) };
      });
      if (events.length > 0) yield events;
    }
  } finally {
    reader.cancel().catch(() => undefined);
  }
}

const page: EventTarget | undefined = typeof window === 'undefined' ? undefined : window;

/** The browser lost its network, or the reader is not wanted, any more or for now. */
function offline(signal: AbortSignal): { happened: Promise<void>; stop: () => void } {
  let stop = () => {};
  const happened = new Promise<void>((resolve) => {
    const now = () => resolve();
    if (signal.aborted) now();
    page?.addEventListener('offline', now);
    signal.addEventListener('abort', now);
    stop = () => {
      page?.removeEventListener('offline', now);
      signal.removeEventListener('abort', now);
    };
  });
  return { happened, stop };
}

/** Pauses; the network's return or the reader's own ends the pause. */
export function wait(ms: number, signal: AbortSignal): Promise<void> {
  return new Promise((resolve, reject) => {
    const end = () => {
      clearTimeout(timer);
      page?.removeEventListener('online', end);
      page?.removeEventListener('focus', end);
      signal.removeEventListener('abort', end);
      if (signal.aborted) reject(signal.reason as Error);
      else resolve();
    };
    const timer = setTimeout(end, ms);
    page?.addEventListener('online', end);
    page?.addEventListener('focus', end);
    signal.addEventListener('abort', end);
  });
}
