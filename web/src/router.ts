// Where the page is: its address, and nothing else.
import { useSyncExternalStore } from 'react';

export type Route =
  | { page: 'thread'; id: string | null; run: string | null }
  | { page: 'unknown' }
  | { page: 'settings'; section: string; item: string | null; row: string | null };

export function read(path: string): Route {
  const [first, second, third, fourth] = path.split('/').filter(Boolean);
  if (first === 'settings') return { page: 'settings', section: second ?? 'general', item: null, row: null };
  // Where citations of pages and rows point.
  if (first === 'pages') return { page: 'settings', section: 'pages', item: second ?? null, row: null };
  if (first === 'tables') return { page: 'settings', section: 'tables', item: second ?? null, row: third === 'rows' ? (fourth ?? null) : null };
  if (first === 'c' && second) return { page: 'thread', id: second, run: third === 'run' ? (fourth ?? null) : null };
  return first === undefined ? { page: 'thread', id: null, run: null } : { page: 'unknown' };
}

export const paths = {
  fresh: '/',
  thread: (id: string, message?: string) => `/c/${id}${message ? `#${message}` : ''}`,
  run: (id: string, run: string) => `/c/${id}/run/${run}`,
  settings: (section = 'general') => (section === 'pages' || section === 'tables' ? `/${section}` : `/settings/${section}`),
  page: (id: string) => `/pages/${id}`,
  table: (id: string) => `/tables/${id}`,
};

const readers = new Set<() => void>();
const tell = () => readers.forEach((reader) => reader());
window.addEventListener('popstate', tell);
window.addEventListener('hashchange', tell);

export function go(path: string, { replace = false } = {}): void {
  const { pathname, hash } = new URL(path, location.href);
  // Beside the same thread its place is the same.
  const same = threadIn(pathname) !== null && threadIn(pathname) === threadIn(location.pathname) && !hash;
  if (path !== location.pathname + location.hash) history[replace ? 'replaceState' : 'pushState'](same ? history.state : null, '', path);
  tell();
}

function threadIn(path: string): string | null {
  const route = read(path);
  return route.page === 'thread' ? route.id : null;
}

/** Where the reader is in a thread, kept with the address: a reload and Back find it. */
export type Place = { message: string; offset: number };

export const readPlace = (): Place | null => (history.state as { place?: Place } | null)?.place ?? null;

export function keepPlace(place: Place | null): void {
  if (!place && !readPlace()) return;
  try {
    history.replaceState(place && { place }, '');
  } catch {
    // Some browsers take only so many in a while.
  }
}

const subscribe = (reader: () => void) => {
  readers.add(reader);
  return () => readers.delete(reader);
};

export const usePath = () => useSyncExternalStore(subscribe, () => location.pathname);
/** The message that the address points at. */
export const useTarget = () => useSyncExternalStore(subscribe, () => location.hash.slice(1));
export const useRoute = (): Route => read(usePath());

/** For links: leaves new tabs, downloads and the like to the browser. */
export function follow(event: React.MouseEvent<HTMLAnchorElement>): void {
  if (event.defaultPrevented || event.button !== 0 || event.metaKey || event.ctrlKey || event.shiftKey || event.altKey) return;
  event.preventDefault();
  const { pathname, hash } = new URL(event.currentTarget.href);
  go(pathname + hash);
}
