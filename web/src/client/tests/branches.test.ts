import { describe, expect, it } from 'vitest';
import { branchWith, siblings, type Threads } from '../branches';
import type { Branch } from '../types';

const branch = (id: string): Branch => ({ id, current: false, created_at: '' });
const threads: Threads = [
  { branch: branch('first'), ids: ['q1', 'a1', 'q2', 'a2'] },
  { branch: branch('edited'), ids: ['q1', 'a1', 'q2b', 'a2b'] },
  { branch: branch('again'), ids: ['q1', 'a1', 'q2', 'a2c'] },
  { branch: branch('start'), ids: ['q0', 'a0'] },
];

describe('siblings', () => {
  it('are the versions of each message', () => {
    const found = siblings(threads, ['q1', 'a1', 'q2', 'a2c']);
    expect(Object.fromEntries(found)).toEqual({
      q1: { ids: ['q1', 'q0'], at: 0 },
      q2: { ids: ['q2', 'q2b'], at: 0 },
      a2c: { ids: ['a2', 'a2c'], at: 1 },
    });
  });

  it('are found wherever what is loaded of the thread begins', () => {
    const found = siblings(threads, ['q2', 'a2']);
    expect(Object.fromEntries(found)).toEqual({ q2: { ids: ['q2', 'q2b'], at: 0 }, a2: { ids: ['a2', 'a2c'], at: 0 } });
  });

  it('are not made of where the threads were cut', () => {
    const long: Threads = [
      { branch: branch('first'), ids: ['q2', 'a2'], cut: true },
      { branch: branch('longer'), ids: ['a2', 'q3'], cut: true },
    ];
    expect(siblings(long, ['q2', 'a2', 'q3']).size).toBe(0);
  });

  it('lead to the newest branch that has them', () => {
    expect(branchWith(threads, 'q2')?.id).toBe('again');
    expect(branchWith(threads, 'a2')?.id).toBe('first');
    expect(branchWith(threads, 'q0')?.id).toBe('start');
    expect(branchWith(threads, 'nowhere')).toBeUndefined();
  });
});
