// Messages on their way. Each is kept until the server has it, so that neither a reload nor a closed window loses one:
// the next page sends it again, with the same key, so that it is the same run. What does not go is a draft again.
import { inWorkspace } from '../client/http';
import { Unsent, type Thread, type Turn } from '../client/thread';
import { keep, names, read } from '../storage';
import { idleThread, threadOf } from '../thread/threads';
import { complain } from '../ui/toast';
import { placeIn, placeOf, putBack, readFiles, type Draft } from './drafts';

/** What is changed in place or answered again was no draft. */
type Posted = { thread: string | null; turn: Turn; draft: Draft | null; at: number };

/** The server knows a key for a day. What is older is not sent without a word. */
const KNOWN_MS = 20 * 3600 * 1000;

const under = (workspace: string | null) => `sending/${workspace}/`;
const going = new Set<Thread>();

function find(name: string): Posted | null {
  try {
    return JSON.parse(read(name)) as Posted;
  } catch {
    return null;
  }
}

async function deliver(name: string, thread: Thread, { turn, draft }: Posted): Promise<void> {
  going.add(thread);
  try {
    await thread.deliver(turn);
  } catch (error) {
    const unsent = error instanceof Unsent;
    // It stays kept, for the next time that somebody is in this workspace.
    if (unsent && !error.back) return;
    if (draft) putBack(placeOf(thread), draft);
    keep(name, '');
    if (!unsent) throw error;
  } finally {
    going.delete(thread);
  }
  keep(name, '');
}

/** Sends a turn. The draft that it was is what comes back if it is refused or taken back. */
export function post(thread: Thread, turn: Turn, draft: Draft | null): Promise<void> {
  const name = under(thread.workspace) + turn.key;
  const posted = { thread: thread.get().id, turn, draft, at: Date.now() };
  keep(name, JSON.stringify(posted));
  const work = deliver(name, thread, posted);
  // As long as this page sends it no other one does.
  void navigator.locks.request(name, () => work.catch(() => undefined));
  return work;
}

/** Takes up what pages that are gone have left on its way. */
export function takeUp(signal: AbortSignal): void {
  const workspace = inWorkspace();
  for (const name of names(under(workspace))) {
    const work = navigator.locks.request(name, { signal }, async () => {
      const posted = find(name);
      if (!posted || signal.aborted) return;
      if (Date.now() - posted.at < KNOWN_MS) return deliver(name, posted.thread ? threadOf(posted.thread) : idleThread(), posted);
      if (posted.draft) putBack(placeIn(workspace, posted.thread), posted.draft);
      keep(name, '');
    });
    work.catch((error: unknown) => {
      if (!signal.aborted) complain(error);
    });
  }
}

/** The page goes to another workspace: nothing of this one is sent there. */
export const pause = () => going.forEach((thread) => thread.leave());

/** The conversations where files of messages lie that are no threads yet. */
export function lodgings(workspace: string | null): Set<string> {
  const posted = names(under(workspace)).map(find).filter((one) => one?.thread === null);
  const files = [...readFiles(placeIn(workspace, null)), ...posted.flatMap((one) => one?.draft?.files ?? [])];
  return new Set(files.map((file) => file.conversation));
}
