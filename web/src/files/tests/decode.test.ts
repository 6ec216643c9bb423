import { expect, it } from 'vitest';
import { decode } from '../decode';

it('reads UTF-8, and UTF-16 by its mark', () => {
  const told = [
    [0xff, 0xfe, 0x61, 0, 0xfc, 0],
    [0xfe, 0xff, 0, 0x61, 0, 0xfc],
    [0xef, 0xbb, 0xbf, 0x61, 0xc3, 0xbc],
    [0x61, 0xc3, 0xbc],
  ].map((bytes) => decode(new Uint8Array(bytes)));
  expect(told).toEqual(['aü', 'aü', 'aü', 'aü']);
  expect(decode(new Uint8Array())).toBe('');
});
