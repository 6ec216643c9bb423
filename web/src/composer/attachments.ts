// Files on their way into the next message: checked at once, sent one by one, with progress; each can be taken back.
import { useCallback, useRef, useState } from 'react';
import { deleteFile } from '../client/api';
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

/** `conversation` gives the thread to upload to; it may have to be made first. */
export function useAttachments(conversation: () => Promise<string>) {
  const [files, setFiles] = useState<Attaching[]>([]);
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
        conversation()
          .then((id) => upload(id, file, (progress) => change(key, { progress }), stop.signal))
          .then(({ id: fileId, name, mimeType, size, sha256 }) =>
            change(key, { progress: 1, done: { fileId, name, mimeType, size, sha256 } }),
          )
          .catch((error: unknown) => {
            if (!stop.signal.aborted) change(key, { error: error instanceof Error ? error.message : String(error) });
          });
      }
    },
    [files.length, conversation, change],
  );

  const remove = useCallback(
    (key: number) => {
      stops.current.get(key)?.abort();
      const gone = files.find((file) => file.key === key)?.done;
      if (gone) void conversation().then((id) => deleteFile(id, gone.fileId)).catch(() => undefined);
      setFiles((now) => now.filter((file) => file.key !== key));
    },
    [files, conversation],
  );

  const clear = useCallback(() => setFiles([]), []);
  return { files, add, remove, clear };
}
