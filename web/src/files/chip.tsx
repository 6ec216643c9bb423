// A file as a chip: its kind, name and size, or a small picture of what it shows; opens a preview.
import { useState } from 'react';
import { fileLink } from '../client/api';
import type { Attachment } from '../client/types';
import { bytes } from '../ui/bits';
import { KindIcon } from './kind';
import { Preview, raster } from './preview';

/** Larger pictures are loaded when somebody wants to see them. */
const SMALL = 4 * 1024 * 1024;

export function FileChip({ file, thread }: { file: Attachment; thread: string | null }) {
  const [open, setOpen] = useState(false);
  const [broken, setBroken] = useState(false);
  const pictured = thread !== null && raster.test(file.mimeType) && file.size <= SMALL && !broken;
  return (
    <>
      {pictured ? (
        <button type="button" aria-label={`${file.name}, ${bytes(file.size)}`} title={file.name} onClick={() => setOpen(true)} className="block h-32 overflow-hidden rounded-lg border border-line bg-sunken shadow-low hover:opacity-90">
          <img src={fileLink(thread, file.fileId)} alt="" loading="lazy" onError={() => setBroken(true)} className="h-full max-w-64 min-w-16 object-cover" />
        </button>
      ) : (
        <button
          type="button"
          onClick={() => setOpen(true)}
          className="flex max-w-64 items-center gap-2.5 rounded-lg border border-line bg-raised py-2 pr-4 pl-3 text-left text-small shadow-low hover:bg-hover"
        >
          <KindIcon type={file.mimeType} />
          <span className="min-w-0">
            <bdi className="block truncate font-medium">{file.name}</bdi>
            <span className="block text-tiny text-faint">{bytes(file.size)}</span>
          </span>
        </button>
      )}
      {open && thread && <Preview file={file} thread={thread} onClose={() => setOpen(false)} />}
    </>
  );
}
