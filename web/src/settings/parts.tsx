// The parts that settings are laid out with.
import { useQuery } from '@tanstack/react-query';
import { Trash2, Upload } from 'lucide-react';
import { useId, useRef, useState, type ReactNode } from 'react';
import { listModels } from '../client/api';
import { Choice } from '../ui/bits';
import { Button } from '../ui/button';
import { Dialog } from '../ui/dialog';

export function Section({ title, about, actions, children }: { title: string; about?: string; actions?: ReactNode; children: ReactNode }) {
  const id = useId();
  return (
    <section aria-labelledby={id} className="mb-10">
      <div className="flex flex-wrap items-start gap-x-4 gap-y-3">
        <div className="min-w-56 grow basis-0">
          <h2 id={id} tabIndex={-1} className="text-base outline-none font-semibold tracking-tight [overflow-wrap:anywhere]">
            {title}
          </h2>
          {about && <p className="mt-1 text-small text-soft">{about}</p>}
        </div>
        {actions && <div className="flex flex-wrap gap-2">{actions}</div>}
      </div>
      <div className="mt-4">{children}</div>
    </section>
  );
}

export const List = ({ children, label }: { children: ReactNode; label: string }) => (
  <ul aria-label={label} className="divide-y divide-line rounded-lg border border-line bg-raised">
    {children}
  </ul>
);

export const Item = ({ children }: { children: ReactNode }) => <li className="flex min-h-13 flex-wrap items-center gap-3 px-4 py-2 text-small">{children}</li>;

/** A place that has nothing yet, and what to do about it. */
export const Empty = ({ children }: { children: ReactNode }) => (
  <p className="rounded-lg border border-dashed border-line-strong px-6 py-8 text-center text-small text-soft">{children}</p>
);

export const Badge = ({ children }: { children: ReactNode }) => (
  <span className="shrink-0 rounded-full border border-line px-2 py-0.5 text-tiny whitespace-nowrap text-soft">{children}</span>
);

export const day = (time: string) => new Date(time).toLocaleDateString(undefined, { dateStyle: 'medium' });

/** A button that asks for files. */
export function FileButton({ name, accept, multiple = false, onFiles }: { name: string; accept: string; multiple?: boolean; onFiles: (files: File[]) => void }) {
  const picker = useRef<HTMLInputElement>(null);
  return (
    <>
      <Button onClick={() => picker.current?.click()}>
        <Upload size={15} aria-hidden />
        {name}
      </Button>
      <input
        ref={picker}
        type="file"
        accept={accept}
        multiple={multiple}
        hidden
        tabIndex={-1}
        aria-hidden
        onChange={(event) => {
          const files = [...(event.target.files ?? [])];
          event.target.value = '';
          if (files.length > 0) onFiles(files);
        }}
      />
    </>
  );
}

/** A button that asks once more before something is gone for good. */
export function RemoveButton({ name, question, about, onRemove }: { name: string; question: string; about: string; onRemove: () => void }) {
  const [asked, setAsked] = useState(false);
  return (
    <>
      <Button look="danger" aria-label={name} onClick={() => setAsked(true)}>
        <Trash2 size={15} aria-hidden />
        Remove
      </Button>
      {asked && (
        <Dialog title={question} onClose={() => setAsked(false)}>
          <p className="text-small text-soft">{about}</p>
          <div className="mt-5 flex justify-end gap-2">
            <Button onClick={() => setAsked(false)}>Keep it</Button>
            <Button
              look="danger"
              onClick={() => {
                setAsked(false);
                onRemove();
              }}
            >
              Remove
            </Button>
          </div>
        </Dialog>
      )}
    </>
  );
}

/** Which model; what is chosen is offered even where no provider lists it. */
export function ModelChoice({ value, onChange }: { value: string | null; onChange: (model: string | null) => void }) {
  const models = useQuery({ queryKey: ['models'], queryFn: listModels, retry: false }).data ?? [];
  const offered = new Set([...models.map(({ id }) => id), ...(value ? [value] : [])]);
  return (
    <Choice label="Model" value={value ?? ''} onChange={(event) => onChange(event.target.value || null)}>
      <option value="">Default</option>
      {[...offered].map((id) => (
        <option key={id}>{id}</option>
      ))}
    </Choice>
  );
}
