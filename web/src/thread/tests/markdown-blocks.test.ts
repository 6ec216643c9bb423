import { describe, expect, it } from 'vitest';
import { cut } from '../markdown-blocks';

describe('Markdown in pieces', () => {
  it('is cut where something new begins, each piece with the addresses of the links', () => {
    expect(cut('One [a].\n\n- two\n\nThree.', false)).toEqual(['One [a].\n\n- two\n', 'Three.']);
    expect(cut('One [a].\n\n[a]: https://a.example', false)[0]).toBe('One [a].\n\n\n[a]: https://a.example');
  });

  it('stays whole with footnotes, so that there is one list of them, but not while it grows', () => {
    const text = 'One[^a].\n\nTwo[^b].\n\n[^a]: First.\n[^b]: Second.';
    expect(cut(text, false)).toEqual([text]);
    expect(cut(text, true)).toEqual(['One[^a].\n', 'Two[^b].\n', '[^a]: First.\n[^b]: Second.']);
  });
});
