// Small parts that many screens share.
import { ChevronDown, LoaderCircle } from 'lucide-react';
import type { ComponentProps, ReactNode } from 'react';

export const Spinner = ({ size = 16, label }: { size?: number; label?: string }) => (
  <LoaderCircle size={size} className="spin shrink-0 text-faint" {...(label ? { role: 'img', 'aria-label': label } : { 'aria-hidden': true })} />
);

const field =
  'h-10 w-full rounded-md border border-line-strong bg-raised px-3 text-small outline-none placeholder:text-faint focus:border-accent focus:ring-2 focus:ring-accent/25';

export function Field({ label, hidden = false, className = '', ...rest }: ComponentProps<'input'> & { label: string; hidden?: boolean }) {
  return (
    <label className={`block min-w-0 ${className}`}>
      <span className={hidden ? 'sr-only' : 'mb-1.5 block text-small font-medium'}>{label}</span>
      <input {...rest} className={field} />
    </label>
  );
}

export function Choice({ label, hidden = false, className = '', children, ...rest }: ComponentProps<'select'> & { label: string; hidden?: boolean }) {
  return (
    <label className={`block ${className}`}>
      <span className={hidden ? 'sr-only' : 'mb-1.5 block text-small font-medium'}>{label}</span>
      <span className="relative block">
        <select {...rest} className={`${field} appearance-none pr-9`}>
          {children}
        </select>
        <ChevronDown size={15} aria-hidden className="pointer-events-none absolute top-3 right-3 text-faint" />
      </span>
    </label>
  );
}

/** What a screen shows when it has nothing to show. */
export function Notice({ icon, title, children }: { icon?: ReactNode; title: string; children?: ReactNode }) {
  return (
    <div className="m-auto flex max-w-md flex-col items-center gap-3 p-8 text-center">
      {icon && <div className="text-faint">{icon}</div>}
      <h2 className="text-base font-semibold">{title}</h2>
      <div className="text-small text-soft">{children}</div>
    </div>
  );
}

export const Kbd = ({ children }: { children: ReactNode }) => (
  <kbd className="rounded-sm border border-line-strong bg-sunken px-1.5 py-0.5 font-sans text-tiny text-soft">{children}</kbd>
);

const isToday = (date: Date) => date.toDateString() === new Date().toDateString();

/** When a message was said, for who looks for it. */
export function Time({ at }: { at: number }) {
  if (!at) return null;
  const date = new Date(at);
  const text = date.toLocaleString(undefined, isToday(date) ? { timeStyle: 'short' } : { dateStyle: 'medium', timeStyle: 'short' });
  return (
    <time dateTime={date.toISOString()} title={date.toLocaleString()} className="px-1.5 text-tiny whitespace-nowrap text-faint tabular-nums">
      {text}
    </time>
  );
}

/** A duration in words that fit a narrow column. */
export function duration(ms: number): string {
  if (ms < 1000) return `${Math.round(ms)} ms`;
  if (ms < 60_000) return `${(ms / 1000).toFixed(1)} s`;
  return `${Math.floor(ms / 60_000)} min ${Math.round((ms % 60_000) / 1000)} s`;
}

export function bytes(size: number): string {
  if (size < 1024) return `${size} B`;
  const units = ['KiB', 'MiB', 'GiB'];
  let value = size;
  let unit = 'B';
  for (const next of units) {
    if (value < 1024) break;
    value /= 1024;
    unit = next;
  }
  return `${Number(value.toFixed(value < 10 ? 1 : 0))} ${unit}`;
}
