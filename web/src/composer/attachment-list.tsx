// The files of the message that is being written.
import { CircleAlert, X } from 'lucide-react';
import { KindIcon } from '../files/kind';
import { bytes } from '../ui/bits';
import type { Attaching } from './attachments';

export function AttachmentList({ files, onRemove }: { files: Attaching[]; onRemove: (key: number) => void }) {
  if (files.length === 0) return null;
  return (
    <ul aria-label="Attachments" className="mb-2 flex max-h-[min(9rem,25vh)] flex-wrap gap-2 overflow-y-auto">
      {files.map((file) => (
        <li key={file.key} className={`relative flex max-w-60 items-center gap-2 overflow-hidden rounded-lg border py-1.5 pr-1.5 pl-3 text-small ${file.error ? 'border-danger bg-danger-wash' : 'border-line bg-sunken'}`}>
          {file.error ? <CircleAlert size={17} aria-hidden className="shrink-0 text-danger" /> : <KindIcon type={file.type} size={17} />}
          <span className="min-w-0">
            <bdi className="block truncate font-medium">{file.name}</bdi>
            <span className="block truncate text-tiny text-faint" title={file.error ?? undefined}>
              {file.error ?? (file.done ? bytes(file.size) : `${Math.round(file.progress * 100)} % of ${bytes(file.size)}`)}
            </span>
          </span>
          <button type="button" aria-label={`Remove ${file.name}`} onClick={() => onRemove(file.key)} className="grid size-6 shrink-0 place-items-center rounded-sm text-soft hover:bg-hover hover:text-ink">
            <X size={14} aria-hidden />
          </button>
          {!file.done && !file.error && (
            <progress aria-label={`Upload of ${file.name}`} value={file.progress} max={1} className="absolute inset-x-0 bottom-0 h-0.5 w-full appearance-none bg-line [&::-moz-progress-bar]:bg-accent [&::-webkit-progress-bar]:bg-line [&::-webkit-progress-value]:bg-accent" />
          )}
        </li>
      ))}
    </ul>
  );
}
