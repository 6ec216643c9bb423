// Short words at the top of the page, below its title bar: what happened, and how to undo it.
import { X } from 'lucide-react';
import { useSyncExternalStore } from 'react';
import { IconButton } from './button';

export type Toast = { id: number; text: string; bad: boolean; action?: { label: string; run: () => void } };

let toasts: Toast[] = [];
let last = 0;
const readers = new Set<() => void>();
const set = (next: Toast[]) => {
  toasts = next;
  readers.forEach((reader) => reader());
};
export const dismiss = (id: number) => set(toasts.filter((toast) => toast.id !== id));

export function toast(text: string, { bad = false, action, ms = 7000 }: { bad?: boolean; action?: Toast['action']; ms?: number } = {}): void {
  const id = ++last;
  set([...toasts.slice(-2), { id, text, bad, ...(action ? { action } : {}) }]);
  setTimeout(() => dismiss(id), ms);
}

/** Says why something failed. */
export const complain = (error: unknown) => toast(error instanceof Error ? error.message : String(error), { bad: true });

const subscribe = (reader: () => void) => {
  readers.add(reader);
  return () => readers.delete(reader);
};

export function Toasts() {
  const shown = useSyncExternalStore(subscribe, () => toasts);
  return (
    <div role="status" className="pointer-events-none fixed inset-x-0 top-15 z-50 flex flex-col items-center gap-2 px-4">
      {shown.map(({ id, text, bad, action }) => (
        <div
          key={id}
          className="appear pointer-events-auto flex max-w-full items-center gap-1 rounded-lg border border-line bg-raised py-1 pr-1 pl-4 text-small shadow-float"
        >
          <span className={`min-w-0 overflow-hidden text-ellipsis ${bad ? 'text-danger' : ''}`}>{text}</span>
          {action && (
            <button
              type="button"
              className="ml-2 h-8 rounded-md px-2.5 font-semibold text-accent hover:bg-accent-wash"
              onClick={() => {
                dismiss(id);
                action.run();
              }}
            >
              {action.label}
            </button>
          )}
          <IconButton name="Dismiss" small side="top" onClick={() => dismiss(id)}>
            <X size={14} aria-hidden />
          </IconButton>
        </div>
      ))}
    </div>
  );
}
