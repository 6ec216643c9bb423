// The columns that a file of rows asks for: their names, and the narrowest type that all of their values have.
import type { Column } from '../client/library';
import { parseCsv } from '../files/csv';

/** What a file of rows is, by its name first: browsers often do not know CSV. */
export const kindOf = (file: File) => (/\.json$/i.test(file.name) || file.type === 'application/json' ? 'application/json' : 'text/csv');

const LOOKED_AT = 1000;
const number = /^-?(0|[1-9]\d*)(\.\d+)?([eE][+-]?\d+)?$/;
const date = /^\d{4}-\d{2}-\d{2}$/;
const kinds: [Column['type'], (value: string) => boolean][] = [
  ['number', (value) => number.test(value)],
  ['boolean', (value) => value === 'true' || value === 'false'],
  ['date', (value) => date.test(value) && !Number.isNaN(Date.parse(value))],
];

function typeOf(values: string[]): Column['type'] {
  const said = values.filter((value) => value !== '');
  return (said.length > 0 && kinds.find(([, fits]) => said.every(fits))?.[0]) || 'text';
}

export function columnsOfCsv(text: string): Column[] {
  const [head = [], ...rows] = parseCsv(text.replace(/^\ufeff/, ''), LOOKED_AT);
  return head.map((name, at) => ({ name: name.trim(), type: typeOf(rows.map((row) => (row[at] ?? '').trim())) }));
}

/** Of a list of objects; null for anything else. */
export function columnsOfJson(text: string): Column[] | null {
  let rows: unknown;
  try {
    rows = JSON.parse(text);
  } catch {
    return null;
  }
  if (rows !== null && typeof rows === 'object' && 'rows' in rows) rows = rows.rows;
  if (!Array.isArray(rows) || !rows.every((row) => row !== null && typeof row === 'object' && !Array.isArray(row))) return null;
  const values = new Map<string, string[]>();
  for (const row of rows.slice(0, LOOKED_AT) as Record<string, unknown>[]) {
    for (const [name, value] of Object.entries(row)) {
      if (name.startsWith('_')) continue;
      const seen = values.get(name) ?? [];
      // A text that looks like a number is a text here.
      seen.push(value === null ? '' : typeof value === 'string' && number.test(value) ? 'text' : String(value));
      values.set(name, seen);
    }
  }
  return [...values].map(([name, seen]) => ({ name, type: typeOf(seen) }));
}
