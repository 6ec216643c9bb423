// An upload with progress: `XMLHttpRequest`, for `fetch` does not tell how far a body has come.
import { address, Failure, readFailure, shared } from './http';
import { filesAddress } from './api';
import type { StoredFile, Whoami } from './types';

/** What the server takes, as it told with the session. */
export const limits: Pick<Whoami['limits'], 'max_file_bytes' | 'max_files_per_message'> = {
  max_file_bytes: Infinity,
  max_files_per_message: Infinity,
};

export function upload(
  conversation: string,
  file: File,
  onProgress: (fraction: number) => void,
  signal: AbortSignal,
): Promise<StoredFile> {
  return new Promise((resolve, reject) => {
    signal.throwIfAborted();
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
