// The threads that this page has open, by their id, so that going back to one finds it as it was.
import { Thread } from '../client/thread';
import { go, paths } from '../router';

const known = new Map<string, Thread>();
const KEPT = 8;

function created(thread: Thread, id: string): void {
  keep(id, thread);
  // Only if the reader is still there.
  if (location.pathname === paths.fresh) go(paths.thread(id), { replace: true });
}

function keep(id: string, thread: Thread): void {
  known.delete(id);
  known.set(id, thread);
  const [oldest] = known.keys();
  if (known.size > KEPT && oldest !== undefined) known.delete(oldest);
}

export const freshThread = () => new Thread(null, created);

export function threadOf(id: string): Thread {
  const thread = known.get(id) ?? new Thread(id);
  keep(id, thread);
  return thread;
}

/** After a change of workspace nothing of the old one is shown. */
export const forgetThreads = () => known.clear();
