// One cell of a table, changed in place: kept when the field is left or on Enter, given up on Escape.
import { useState } from 'react';
import type { Column } from '../client/library';
import { Exact, type Json } from '../client/json';
import { toast } from '../ui/toast';

const number = /^-?(0|[1-9]\d*)(\.\d+)?([eE][+-]?\d+)?$/;

export const shown = (value: Json | undefined): string => (value === null || value === undefined ? '' : String(value));

/** What was typed as a value of the column; undefined when it is none. */
export function read(text: string, type: Column['type']): Json | undefined {
  const trimmed = text.trim();
  if (type === 'text') return text === '' ? null : text;
  if (trimmed === '') return null;
  if (type === 'number') return number.test(trimmed) ? new Exact(trimmed) : undefined;
  if (type === 'boolean') return trimmed === 'true' ? true : trimmed === 'false' ? false : undefined;
  return trimmed;
}

const look = 'h-9 w-full min-w-28 bg-transparent px-3 text-small outline-none focus:bg-accent-wash';

export function Cell({ label, column, value, onSave }: { label: string; column: Column; value: Json | undefined; onSave: (value: Json) => void }) {
  const was = shown(value);
  const [typed, setTyped] = useState<string | null>(null);
  const text = typed ?? was;
  const keep = (next: string) => {
    setTyped(null);
    if (next === was) return;
    const told = read(next, column.type);
    if (told === undefined) toast(`“${next}” is no ${column.type}.`, { bad: true });
    else onSave(told);
  };
  if (column.type === 'boolean') {
    return (
      <select aria-label={label} value={was} onChange={(event) => keep(event.target.value)} className={`${look} appearance-none`}>
        <option value="">–</option>
        <option>true</option>
        <option>false</option>
      </select>
    );
  }
  return (
    <input
      aria-label={label}
      dir="auto"
      inputMode={column.type === 'number' ? 'decimal' : 'text'}
      placeholder={column.type === 'date' ? 'YYYY-MM-DD' : undefined}
      value={text}
      onChange={(event) => setTyped(event.target.value)}
      onBlur={() => typed !== null && keep(typed)}
      onKeyDown={(event) => {
        if (event.key === 'Enter' && !event.nativeEvent.isComposing) event.currentTarget.blur();
        if (event.key === 'Escape') setTyped(null);
      }}
      className={`${look} placeholder:text-transparent focus:placeholder:text-faint ${column.type === 'number' ? 'text-right tabular-nums' : column.type === 'text' ? 'min-w-44' : ''}`}
    />
  );
}
