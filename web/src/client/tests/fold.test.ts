import { readdirSync, readFileSync } from 'node:fs';
import { describe, expect, it } from 'vitest';
import { Fold, fold, timeOf } from '../fold';
import { parse } from '../json';
import type { Block, RunEvent } from '../types';

// The server's fold runs over these same files.
const folder = new URL('../../../../vectors/fold/', import.meta.url);
type Case = { name: string; repeat?: number; events: Omit<RunEvent, 'seq'>[]; blocks: Block[] };

function filled<T>(list: T[], repeat: number | undefined): T[] {
  if (repeat === undefined) return list;
  const text = JSON.stringify(list);
  const lists = Array.from({ length: repeat }, (_, i) =>
    JSON.parse(text.replaceAll('"{ts}"', String(i)).replaceAll('{i}', String(i))),
  );
  return lists.flat();
}

const cases = readdirSync(folder).flatMap((file) => JSON.parse(readFileSync(new URL(file, folder), 'utf8')) as Case[]);

describe('the fold', () => {
  it('finds the vectors', () => expect(cases.length).toBeGreaterThan(60));

  it.each(cases.map((c) => [c.name, c] as const))('%s', (_, { events, blocks, repeat }) => {
    const sent = filled(events, repeat);
    // As texts, so that the order of the fields counts.
    expect(JSON.stringify(fold(sent))).toBe(JSON.stringify(filled(blocks, repeat)));
  });

  it.each([
    ['{}', 7],
    ['{"ts":12.7}', 12],
    ['{"ts":-5}', 0],
    ['{"ts":1e12}', 1_000_000_000_000],
    ['{"ts":1e400}', 8_640_000_000_000_000],
  ])('counts the time of %s in whole milliseconds', (data, ts) => {
    expect(timeOf(parse(data) as Record<string, unknown>, 7)).toBe(ts);
  });

  it('never changes a block that it has shown', () => {
    for (const { events, repeat } of cases) {
      if (repeat) continue;
      const folding = new Fold();
      const shown: [Block[], string][] = [];
      for (const event of events) {
        folding.push(event);
        const blocks = folding.live();
        shown.push([blocks, JSON.stringify(blocks)]);
      }
      folding.finish();
      for (const [blocks, text] of shown) expect(JSON.stringify(blocks)).toBe(text);
    }
  });
});
