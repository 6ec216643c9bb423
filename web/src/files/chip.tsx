// A file as a chip: its kind, name and size; opens a preview.
import { File, FileArchive, FileImage, FileSpreadsheet, FileText } from 'lucide-react';
import { useState } from 'react';
import type { Attachment } from '../client/types';
import { bytes } from '../ui/bits';
import { Preview } from './preview';

export function KindIcon({ type, size = 18 }: { type: string; size?: number }) {
  const props = { size, 'aria-hidden': true, className: 'shrink-0 text-accent' } as const;
  if (type.startsWith('image/')) return <FileImage {...props} />;
  if (/csv|sheet|excel/.test(type)) return <FileSpreadsheet {...props} />;
  if (/zip|tar|gzip|compressed/.test(type)) return <FileArchive {...props} />;
  if (/^text\/|json|pdf|document/.test(type)) return <FileText {...props} />;
  return <File {...props} />;
}

export function FileChip({ file, thread }: { file: Attachment; thread: string | null }) {
  const [open, setOpen] = useState(false);
  return (
    <>
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
      {open && thread && <Preview file={file} thread={thread} onClose={() => setOpen(false)} />}
    </>
  );
}
