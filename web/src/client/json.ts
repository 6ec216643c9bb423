// JSON as it was sent: a number that JavaScript cannot hold keeps its spelling, so that an id of 19 digits in a
// step's arguments is shown as it is.

export type Json = null | boolean | number | string | Exact | Json[] | { [key: string]: Json };

/** A number whose spelling a double would change. */
export class Exact {
  constructor(readonly text: string) {}
  toString() {
    return this.text;
  }
  /** Sent as it came, where the browser can. */
  toJSON(): unknown {
    const { rawJSON } = JSON as unknown as { rawJSON?: (text: string) => unknown };
    return rawJSON ? rawJSON(this.text) : Number(this.text);
  }
}

type Context = { source?: string } | undefined;

// The third argument is young; where it is missing numbers are doubles, as everywhere.
const reviver = (_key: string, value: unknown, context: Context) =>
  typeof value === 'number' && context?.source !== undefined && String(value) !== context.source
    ? new Exact(context.source)
    : value;

/** Parses; numbers inside `args`, `result` and the like stay exact. */
export function parse(text: string): unknown {
  return JSON.parse(text, reviver as (key: string, value: unknown) => unknown);
}

/** A number of ours (a time, a size), whatever its spelling. */
export function toNumber(value: unknown): number | undefined {
  if (typeof value === 'number') return value;
  return value instanceof Exact ? Number(value.text) : undefined;
}

/** For people: indented, exact numbers. */
export function pretty(value: Json, indent = ''): string {
  if (value instanceof Exact) return value.text;
  const deeper = indent + '  ';
  if (Array.isArray(value)) {
    if (value.length === 0) return '[]';
    return `[\n${value.map((item) => deeper + pretty(item, deeper)).join(',\n')}\n${indent}]`;
  }
  if (value !== null && typeof value === 'object') {
    const entries = Object.entries(value);
    if (entries.length === 0) return '{}';
    const lines = entries.map(([key, item]) => `${deeper}${JSON.stringify(key)}: ${pretty(item, deeper)}`);
    return `{\n${lines.join(',\n')}\n${indent}}`;
  }
  return JSON.stringify(value);
}
