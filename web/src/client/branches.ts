// Which versions of a message there are: the branches of a thread, laid beside each other.
import type { Branch } from './types';

export type Siblings = { ids: string[]; at: number };

/** The threads of all branches, oldest branch first, each as its message ids in order; `cut` where older ones are left out. */
export type Threads = { branch: Branch; ids: string[]; cut?: boolean }[];

const ROOT = '';

/** For each message of the current thread that has other versions: those versions, in the order they came. */
export function siblings(threads: Threads, current: string[]): Map<string, Siblings> {
  const children = new Map<string, string[]>();
  const parents = new Map<string, string>();
  for (const { ids, cut } of threads) {
    ids.forEach((id, at) => {
      if (at === 0 && cut) return;
      const parent = at === 0 ? ROOT : (ids[at - 1] as string);
      parents.set(id, parent);
      const known = children.get(parent) ?? [];
      if (!known.includes(id)) known.push(id);
      children.set(parent, known);
    });
  }
  const found = new Map<string, Siblings>();
  // What is loaded of the current thread may begin anywhere, so the branches say what stands before it.
  for (const id of current) {
    const ids = children.get(parents.get(id) ?? ROOT) ?? [];
    if (ids.length > 1 && ids.includes(id)) found.set(id, { ids, at: ids.indexOf(id) });
  }
  return found;
}

/** The newest branch that this message is on. */
export function branchWith(threads: Threads, message: string): Branch | undefined {
  return threads.findLast(({ ids }) => ids.includes(message))?.branch;
}
