import { describe, expect, it } from 'vitest';
import { Frames } from '../sse';

const wire = 'id: 1\nevent: turn\ndata: {"a":"é\\n"}\n\n: heartbeat\n\nid: 2\r\nevent: delta\r\ndata: x\r\ndata: y\r\n\r\nid: 3\ndata: cut';

describe('frames', () => {
  it('are the same however the bytes are cut', () => {
    const bytes = new TextEncoder().encode(wire);
    const expected = [
      { id: '1', event: 'turn', data: '{"a":"é\\n"}' },
      { id: '2', event: 'delta', data: 'x\ny' },
    ];
    for (let size = 1; size <= bytes.length; size++) {
      const frames = new Frames();
      const got = [];
      for (let at = 0; at < bytes.length; at += size) got.push(...frames.push(bytes.subarray(at, at + size)));
      expect(got, `${size} bytes at a time`).toEqual(expected);
    }
  });
});
