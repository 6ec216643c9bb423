// An upload with progress: `XMLHttpRequest`, for `fetch` does not tell how far a body has come.
import { address, Failure, readFailure, shared } from './http';
import { filesAddress } from './api';
import type { StoredFile } from './types';

/** What the server takes unless its operator said otherwise; its own answer decides. */
export const LIMITS = { fileBytes: 50 * 1024 * 1024, filesPerMessage: 10 };

/** Why this file cannot go with the message, told before a byte is sent. */
export function refusal(file: { name: string; size: number }, already: number): string | null {
  if (already >= LIMITS.filesPerMessage) return `A message takes at most ${LIMITS.filesPerMessage} files.`;
  if (file.size > LIMITS.fileBytes) return `${file.name} is larger than ${LIMITS.fileBytes / 1024 / 1024} MiB.`;
  return null;
}

export function upload(
  conversation: string,
  file: File,
  onProgress: (fraction: number) => void,
  signal: AbortSignal,
): Promise<StoredFile> {
  return new Promise((resolve, reject) => {
    const request = new XMLHttpRequest();
    request.open('POST', address(filesAddress(conversation)));
    for (const [name, value] of Object.entries(shared())) request.setRequestHeader(name, value);
    request.upload.onprogress = (event) => {
      if (event.lengthComputable) onProgress(event.loaded / event.total);
    };
    request.onload = () => {
      if (request.status !== 201) return reject(readFailure(request.status, request.responseText));
      try {
        resolve((JSON.parse(request.responseText) as { files: [StoredFile] }).files[0]);
      } catch {
        reject(new Failure(request.status, 'unknown', 'The server’s answer was not understood.'));
      }
    };
    request.onerror = () => reject(new Failure(0, 'unreachable', 'The server cannot be reached.'));
    request.onabort = () => reject(signal.reason as Error);
    signal.addEventListener('abort', () => request.abort());
    const form = new FormData();
    form.append('file', file, file.name);
    request.send(form);
  });
}
