// The threads that this page has open, by their id, so that going back to one finds it as it was; and the one that has
// no id yet.
import { Thread } from '../client/thread';
import { go, paths, read } from '../router';

const known = new Map<string, Thread>();
const KEPT = 8;
let fresh: Thread | null = null;

function created(thread: Thread, id: string): void {
  keep(id, thread);
  // Only if the reader is still there.
  const here = read(location.pathname);
  if (thread === fresh && here.page === 'thread' && here.id === null) go(paths.thread(id), { replace: true });
}

function keep(id: string, thread: Thread): void {
  known.delete(id);
  known.set(id, thread);
  const [oldest] = known.keys();
  if (known.size > KEPT && oldest !== undefined) known.delete(oldest);
}

/** The new thread: the same one, with what is on its way, until it has got its id. */
export function freshThread(): Thread {
  if (!fresh || fresh.get().id !== null) fresh = new Thread(null, created);
  return fresh;
}

/** A new thread for a message that is to be sent now. */
export const idleThread = () => (freshThread().get().sending ? new Thread(null, created) : freshThread());

export function threadOf(id: string): Thread {
  const thread = known.get(id) ?? new Thread(id);
  keep(id, thread);
  return thread;
}

/** After a change of workspace nothing of the old one is shown. */
export function forgetThreads(): void {
  known.clear();
  fresh = null;
}
