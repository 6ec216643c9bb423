import { describe, expect, it } from 'vitest';
import { Exact, parse, pretty, type Json } from '../json';

describe('json', () => {
  it('is shown as it is', () => {
    const value: Json = { id: new Exact('1234567890123456789'), list: [], nested: { a: [1, null, 'x"y'] }, none: {} };
    expect(pretty(value)).toBe(
      '{\n  "id": 1234567890123456789,\n  "list": [],\n  "nested": {\n    "a": [\n      1,\n      null,\n      "x\\"y"\n    ]\n  },\n  "none": {}\n}',
    );
  });

  it('keeps plain numbers as numbers', () => expect(parse('{"a":[1,2.5,-3]}')).toEqual({ a: [1, 2.5, -3] }));
});
