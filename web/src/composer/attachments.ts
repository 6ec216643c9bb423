// Files on their way into the next message: checked at once, sent one by one, with progress; each can be taken back.
import { useCallback, useEffect, useRef, useState } from 'react';
import { createConversation, deleteConversation, deleteFile } from '../client/api';
import type { Thread } from '../client/thread';
import type { Attachment } from '../client/types';
import { limits, upload } from '../client/upload';
import { shownName } from '../files/name';
import { bytes } from '../ui/bits';
import { toast } from '../ui/toast';

export type Attaching = {
  key: number;
  name: string;
  size: number;
  type: string;
  progress: number;
  done: Attachment | null;
  error: string | null;
};

/** Why this file cannot go with the message, told before a byte is sent. */
function refusal(file: File, already: number): string | null {
  if (already >= limits.max_files_per_message) return `A message takes at most ${limits.max_files_per_message} files.`;
  if (file.size > limits.max_file_bytes) return `${shownName(file.name)} is larger than ${bytes(limits.max_file_bytes)}.`;
  return null;
}

/** Which files keep the message from being sent, and what to do about it. */
export function obstacle(files: Attaching[]): string | null {
  // Each name keeps its direction to itself.
  const refused = files.filter((file) => file.error).map((file) => `\u2068${file.name}\u2069`);
  if (refused.length === 0) return null;
  return `${refused.join(', ')} cannot be sent. Remove ${refused.length === 1 ? 'it' : 'them'} to send the message.`;
}

/** A file needs a conversation to lie in. One that is made for it is no thread before its first message, and goes if there is none. */
function useLodging(thread: Thread) {
  const made = useRef<Promise<string> | null>(null);
  const sent = useRef(false);
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
    if (!made.current || sent.current) return false;
    made.current.then(deleteConversation).catch(() => undefined);
    made.current = null;
    return true;
  }, []);
  /** From now on it is the thread's, unless that gives it back. */
  const hand = useCallback((over: boolean) => {
    sent.current = over;
    return made.current;
  }, []);
  return { find, leave, hand };
}

export function useAttachments(thread: Thread) {
  const [files, setFiles] = useState<Attaching[]>([]);
  const { find, leave, hand } = useLodging(thread);
  const stops = useRef(new Map<number, AbortController>());
  const last = useRef(0);
  const change = useCallback(
    (key: number, with_: Partial<Attaching>) =>
      setFiles((now) => now.map((file) => (file.key === key ? { ...file, ...with_ } : file))),
    [],
  );

  const add = useCallback(
    (chosen: Iterable<File>) => {
      let count = files.length;
      for (const file of chosen) {
        const refused = refusal(file, count);
        if (refused) {
          toast(refused, { bad: true });
          continue;
        }
        count++;
        const key = ++last.current;
        const stop = new AbortController();
        stops.current.set(key, stop);
        const entry = { key, name: shownName(file.name), size: file.size, type: file.type, progress: 0, done: null, error: null };
        setFiles((now) => [...now, entry]);
        find()
          .then((id) => upload(id, file, (progress) => change(key, { progress }), stop.signal))
          .then(({ id: fileId, name, mimeType, size, sha256 }) =>
            change(key, { progress: 1, done: { fileId, name, mimeType, size, sha256 } }),
          )
          .catch((error: unknown) => {
            if (!stop.signal.aborted) change(key, { error: error instanceof Error ? error.message : String(error) });
          });
      }
    },
    [files.length, find, change],
  );

  const remove = useCallback(
    (key: number) => {
      stops.current.get(key)?.abort();
      const gone = files.find((file) => file.key === key)?.done;
      const left = files.length === 1 && leave();
      if (gone && !left) void find().then((id) => deleteFile(id, gone.fileId)).catch(() => undefined);
      setFiles((now) => now.filter((file) => file.key !== key));
    },
    [files, find, leave],
  );

  // The page is left, or the thread, with files that were not sent.
  useEffect(() => {
    const abandon = () => {
      for (const stop of stops.current.values()) stop.abort();
      leave();
      setFiles([]);
    };
    window.addEventListener('pagehide', abandon);
    return () => {
      window.removeEventListener('pagehide', abandon);
      abandon();
    };
  }, [leave]);

  /** Hands the files over, with the conversation that they lie in if it is no thread yet; `back` takes them again. */
  const take = () => {
    const lodging = hand(true);
    setFiles([]);
    const back = () => {
      hand(false);
      setFiles((now) => [...files, ...now]);
    };
    return { attachments: files.flatMap((file) => (file.done ? [file.done] : [])), lodging, back };
  };
  return { files, add, remove, take };
}
