// Short words at the top of the page, below its title bar: what happened, and how to undo it.
import { X } from 'lucide-react';
import { useEffect, useRef, useState, useSyncExternalStore } from 'react';
import { toComposer } from '../composer/focus';
import { IconButton } from './button';
import { nowhere } from './kept-focus';

type Action = { label: string; run: () => void };
/** Without `ms` it stays until it is dismissed. */
export type Toast = { id: number; text: string; bad: boolean; ms: number | null; action: Action | null };

let toasts: Toast[] = [];
let last = 0;
const readers = new Set<() => void>();
const set = (next: Toast[]) => {
  toasts = next;
  readers.forEach((reader) => reader());
};
export const dismiss = (id: number) => set(toasts.filter((toast) => toast.id !== id));

export function toast(text: string, { bad = false, action = null, ms = bad ? null : 7000 }: { bad?: boolean; action?: Action | null; ms?: number | null } = {}): void {
  // Said again, it is the same.
  const others = toasts.filter((other) => other.text !== text || other.action !== null);
  set([...others.slice(-2), { id: ++last, text, bad, ms, action }]);
}

/** Says why something failed. */
export const complain = (error: unknown) => toast(error instanceof Error ? error.message : String(error), { bad: true });

const subscribe = (reader: () => void) => {
  readers.add(reader);
  return () => readers.delete(reader);
};

const seen = (reader: () => void) => {
  document.addEventListener('visibilitychange', reader);
  return () => document.removeEventListener('visibilitychange', reader);
};

export function Toasts() {
  const shown = useSyncExternalStore(subscribe, () => toasts);
  const before = useRef<HTMLElement | null>(null);
  /** The focus goes back to where it was before it came here. */
  const leave = (id: number) => {
    dismiss(id);
    requestAnimationFrame(() => {
      if (nowhere()) before.current?.focus();
      if (nowhere()) toComposer();
    });
  };
  return (
    // oxlint-disable-next-line jsx-a11y/no-noninteractive-element-interactions -- it only looks where the focus comes from
    <div
      role="status"
      onFocus={({ relatedTarget, currentTarget }) => {
        if (!currentTarget.contains(relatedTarget)) before.current = relatedTarget as HTMLElement | null;
      }}
      className="pointer-events-none fixed inset-x-0 top-15 z-50 flex flex-col items-center gap-2 px-4"
    >
      {shown.map((one) => (
        <Told key={one.id} toast={one} onLeave={() => leave(one.id)} />
      ))}
    </div>
  );
}

function Told({ toast: { id, text, bad, ms, action }, onLeave }: { toast: Toast; onLeave: () => void }) {
  const [pointed, setPointed] = useState(false);
  const [focused, setFocused] = useState(false);
  const hidden = useSyncExternalStore(seen, () => document.hidden);
  // Its time does not run while somebody is at it, or nobody can see it.
  const held = pointed || focused || hidden;
  useEffect(() => {
    if (ms === null || held) return;
    const timer = setTimeout(() => dismiss(id), ms);
    return () => clearTimeout(timer);
  }, [id, ms, held]);
  return (
    <div
      onPointerEnter={() => setPointed(true)}
      onPointerLeave={() => setPointed(false)}
      onFocus={() => setFocused(true)}
      onBlur={() => setFocused(false)}
      className="appear pointer-events-auto flex max-w-full items-center gap-1 rounded-lg border border-line bg-raised py-1 pr-1 pl-4 text-small shadow-float"
    >
      <span className={`min-w-0 overflow-hidden text-ellipsis ${bad ? 'text-danger' : ''}`}>{text}</span>
      {action && (
        <button
          type="button"
          className="ml-2 h-8 rounded-md px-2.5 font-semibold text-accent hover:bg-accent-wash"
          onClick={() => {
            onLeave();
            action.run();
          }}
        >
          {action.label}
        </button>
      )}
      <IconButton name="Dismiss" small side="top" onClick={onLeave}>
        <X size={14} aria-hidden />
      </IconButton>
    </div>
  );
}
