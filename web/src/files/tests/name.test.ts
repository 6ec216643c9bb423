import { describe, expect, it } from 'vitest';
import { shownName } from '../name';

describe('the name of a file that is shown before it is sent', () => {
  it('is without what cannot be seen', () => {
    expect(shownName('\u202egpj.exe')).toBe('gpj.exe');
    expect(shownName('a\u2066b\u2069\u200f\u0007\ufeff\n.txt')).toBe('ab.txt');
    expect(shownName('\u202e')).toBe('file');
  });

  it('is otherwise as it was given', () => {
    for (const name of ['note.txt', 'קובץ.txt', 'Straße 🙂.pdf', '你好.md']) expect(shownName(name)).toBe(name);
  });
});
