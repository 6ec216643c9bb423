// Files on their way into the next message: checked at once, sent one by one, with progress; each can be taken back.
import { useCallback, useEffect, useRef, useState } from 'react';
import { createConversation, deleteConversation, deleteFile, listFiles } from '../client/api';
import { Failure } from '../client/http';
import type { Thread } from '../client/thread';
import { limits, upload } from '../client/upload';
import { shownName } from '../files/name';
import { bytes } from '../ui/bits';
import { toast } from '../ui/toast';
import { keepFiles, onFiles, placeOf, readFiles, type Lying } from './drafts';

export type Attaching = {
  key: number;
  name: string;
  size: number;
  type: string;
  progress: number;
  done: Lying | null;
  error: string | null;
};

const NAMED = 5;

/** Each name keeps its direction to itself. */
function listed(files: { name: string }[]): string {
  const names = files.slice(0, NAMED).map((file) => `\u2068${shownName(file.name)}\u2069`).join(', ');
  return files.length > NAMED ? `${names} and ${files.length - NAMED} more` : names;
}

/** Those of the files that can go with the message, and why the others cannot: told once, before a byte is sent. */
function choose(files: File[], already: number): { taken: File[]; refusals: string[] } {
  const { max_file_bytes: largest, max_files_per_message: most } = limits;
  const large = files.filter((file) => file.size > largest);
  const fit = files.filter((file) => file.size <= largest);
  const left = fit.slice(Math.max(0, most - already));
  const refusals = [
    ...(large.length > 0 ? [`${listed(large)} ${large.length === 1 ? 'is' : 'are'} larger than ${bytes(largest)}.`] : []),
    ...(left.length > 0 ? [`A message takes at most ${most} files. Left out: ${listed(left)}.`] : []),
  ];
  return { taken: fit.slice(0, Math.max(0, most - already)), refusals };
}

/** Which files keep the message from being sent, and what to do about it. */
export function obstacle(files: Attaching[]): string | null {
  const refused = files.filter((file) => file.error);
  if (refused.length === 0) return null;
  return `${listed(refused)} cannot be sent. Remove ${refused.length === 1 ? 'it' : 'them'} to send the message.`;
}

/** A file needs a conversation to lie in. One that is made for it is no thread before its first message, and goes with its last file. */
function useLodging(thread: Thread, kept: Lying[]) {
  const made = useRef(kept[0] ? Promise.resolve(kept[0].conversation) : null);
  const find = useCallback(async () => {
    // A first message on its way makes one, too.
    await thread.sent;
    const { id } = thread.get();
    if (id) return id;
    made.current ??= createConversation({ source: 'web' }).then((created) => created.id);
    made.current.catch(() => (made.current = null));
    return made.current;
  }, [thread]);
  /** Whether there was one to let go of. */
  const leave = useCallback(() => {
    if (!made.current || thread.get().id) return false;
    made.current.then(deleteConversation).catch(() => undefined);
    made.current = null;
    return true;
  }, [thread]);
  /** It is the thread's from now on, or there is another. */
  const hand = useCallback((to: Promise<string> | null = null) => {
    made.current = to;
  }, []);
  return { find, leave, hand };
}

const shown = (file: Lying, key: number): Attaching => ({
  key,
  name: shownName(file.name),
  size: file.size,
  type: file.mimeType,
  progress: 1,
  done: file,
  error: null,
});

const lying = (files: Attaching[]) => files.flatMap((file) => (file.done ? [file.done] : []));

/** Those of them that cannot be sent any more. */
async function lost(files: Lying[]): Promise<Set<string>> {
  const [first] = files;
  if (!first) return new Set();
  const there = await listFiles(first.conversation).catch((error: unknown) => {
    if (error instanceof Failure && error.status === 404) return [];
    throw error;
  });
  const free = new Set(there.filter((file) => file.messageId === null).map((file) => file.id));
  return new Set(files.map((file) => file.fileId).filter((id) => !free.has(id)));
}

export function useAttachments(thread: Thread) {
  const place = useCallback(() => placeOf(thread), [thread]);
  const [kept] = useState(() => readFiles(place()));
  const [files, setFiles] = useState(() => kept.map(shown));
  const { find, leave, hand } = useLodging(thread, kept);
  const stops = useRef(new Map<number, AbortController>());
  const last = useRef(kept.length);

  const now = useRef(files);
  const set = useCallback(
    (next: Attaching[]) => {
      now.current = next;
      setFiles(next);
      keepFiles(place(), lying(next));
    },
    [place],
  );
  const change = useCallback(
    (key: number, with_: Partial<Attaching>) =>
      set(now.current.map((file) => (file.key === key ? { ...file, ...with_ } : file))),
    [set],
  );

  const add = useCallback(
    (chosen: Iterable<File>) => {
      const { taken, refusals } = choose([...chosen], now.current.length);
      for (const refusal of refusals) toast(refusal, { bad: true });
      for (const file of taken) {
        const key = ++last.current;
        const stop = new AbortController();
        stops.current.set(key, stop);
        const entry = { key, name: shownName(file.name), size: file.size, type: file.type, progress: 0, done: null, error: null };
        set([...now.current, entry]);
        find()
          .then(async (conversation) => {
            const stored = await upload(conversation, file, (progress) => change(key, { progress }), stop.signal);
            const { id: fileId, name, mimeType, size, sha256 } = stored;
            change(key, { progress: 1, done: { fileId, name, mimeType, size, sha256, conversation } });
          })
          .catch((error: unknown) => {
            if (!stop.signal.aborted) change(key, { error: error instanceof Error ? error.message : String(error) });
          });
      }
    },
    [find, change, set],
  );

  const remove = useCallback(
    (key: number) => {
      stops.current.get(key)?.abort();
      const gone = now.current.find((file) => file.key === key)?.done;
      set(now.current.filter((file) => file.key !== key));
      const left = now.current.length === 0 && leave();
      if (gone && !left) void deleteFile(gone.conversation, gone.fileId).catch(() => undefined);
    },
    [leave, set],
  );

  // What was kept may have been sent or deleted elsewhere meanwhile.
  useEffect(() => {
    lost(kept)
      .then((gone) => {
        if (gone.size === 0) return;
        if (gone.size === kept.length) hand();
        set(now.current.filter((file) => !file.done || !gone.has(file.done.fileId)));
      })
      .catch(() => undefined);
  }, [kept, hand, set]);

  // The draft is one for all windows, and takes back what did not go.
  useEffect(
    () =>
      onFiles(place, (there) => {
        hand(there[0] ? Promise.resolve(there[0].conversation) : null);
        set([...there.map((file) => shown(file, ++last.current)), ...now.current.filter((file) => !file.done)]);
      }),
    [place, hand, set],
  );

  // The page is left, or the thread: what is on its way is given up, what is there stays with the draft.
  useEffect(() => {
    const abandon = () => {
      for (const stop of stops.current.values()) stop.abort();
      set(now.current.filter((file) => file.done));
      if (now.current.length === 0) leave();
    };
    window.addEventListener('pagehide', abandon);
    return () => {
      window.removeEventListener('pagehide', abandon);
      abandon();
    };
  }, [leave, set]);

  /** Hands the files over, with the conversation that they lie in. */
  const take = (): Lying[] => {
    const taken = lying(now.current);
    hand();
    set([]);
    return taken;
  };
  return { files, add, remove, take };
}
