// Where a browser has few connections its windows take turns at streaming: with HTTP/1.1 it opens six to a server, for
// all of them together, and a stream holds one as long as it lasts. What is left is for everything else.

const PLACES = 3;
/** How long a window streams while others wait. */
const TURN_MS = 1_500;

/** `over` when another window waits for it. */
export type Place = { over: AbortSignal; leave: () => void };

const name = (n: number) => `threadkeep stream ${n}`;

function hold(which: string, options: LockOptions): Promise<(() => void) | null> {
  return new Promise((resolve, reject) => {
    const held = navigator.locks.request(which, options, (lock) => {
      if (!lock) return resolve(null);
      return new Promise<void>((leave) => resolve(leave));
    });
    held.catch(reject);
  });
}

function few(): boolean {
  if (typeof window === 'undefined' || !navigator.locks) return false;
  // What came from the cache came by no protocol.
  const loaded = performance.getEntriesByType('resource') as PerformanceResourceTiming[];
  return loaded.find((one) => one.nextHopProtocol)?.nextHopProtocol === 'http/1.1';
}

/** Waits for a place; `onWait` is told when there is none at once. */
export async function takePlace(signal: AbortSignal, onWait: () => void): Promise<Place> {
  const over = new AbortController();
  if (!few()) return { over: over.signal, leave: () => {} };
  let which = '';
  let free: (() => void) | null = null;
  for (let n = 0; n < PLACES && !free; n++) {
    which = name(n);
    free = await hold(which, { ifAvailable: true });
  }
  if (!free) {
    onWait();
    which = name(Math.floor(Math.random() * PLACES));
    free = await hold(which, { signal });
  }
  const look = setInterval(() => {
    void navigator.locks.query().then(({ pending = [] }) => pending.some((one) => one.name === which) && over.abort());
  }, TURN_MS);
  const leave = () => {
    clearInterval(look);
    free?.();
  };
  return { over: over.signal, leave };
}
