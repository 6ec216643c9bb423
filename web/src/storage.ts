// What the browser keeps for who is logged in. It belongs to that user alone and goes with the log-out; only the theme
// is the browser's.
const THEME = 'threadkeep.theme';

let user: string | null = null;
/** Where nothing can be stored, it lives as long as the page. */
const memory = new Map<string, string>();

const home = () => `threadkeep/${encodeURIComponent(user ?? '')}/`;

function keys(): string[] {
  try {
    return [...Object.keys(localStorage), ...memory.keys()];
  } catch {
    return [...memory.keys()];
  }
}

function remove(key: string): void {
  memory.delete(key);
  try {
    localStorage.removeItem(key);
  } catch {
    // Then it was only in memory.
  }
}

function clear(mine: string | null): void {
  for (const key of keys()) {
    if (key.startsWith('threadkeep') && key !== THEME && !(mine && key.startsWith(mine))) remove(key);
  }
}

/** From now on it is this user's, and what others left is gone. Answers whether it was not before. */
export function enter(who: string): boolean {
  const other = user !== who;
  user = who;
  clear(home());
  return other;
}

/** Nothing stays, and nothing is kept until somebody enters. */
export function leave(): void {
  user = null;
  clear(null);
}

export function read(name: string): string {
  const key = home() + name;
  try {
    return memory.get(key) ?? localStorage.getItem(key) ?? '';
  } catch {
    return '';
  }
}

export function keep(name: string, text: string): void {
  if (user === null) return;
  const key = home() + name;
  if (!text) return remove(key);
  try {
    localStorage.setItem(key, text);
    memory.delete(key);
  } catch {
    memory.set(key, text);
  }
}

/** What is kept under names that begin so. */
export function names(start: string): string[] {
  const from = home() + start;
  return keys().flatMap((key) => (key.startsWith(from) ? [key.slice(home().length)] : []));
}

/** Tells when another window has changed what `name` says. */
export function watch(name: () => string, changed: () => void): () => void {
  const look = ({ key }: StorageEvent) => {
    if (key === home() + name()) changed();
  };
  window.addEventListener('storage', look);
  return () => window.removeEventListener('storage', look);
}
