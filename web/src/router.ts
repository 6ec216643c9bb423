// Where the page is: its address, and nothing else.
import { useSyncExternalStore } from 'react';

export type Route =
  | { page: 'thread'; id: string | null; run: string | null }
  | { page: 'settings'; section: string; item: string | null; row: string | null };

export function read(path: string): Route {
  const [first, second, third, fourth] = path.split('/').filter(Boolean);
  if (first === 'settings') return { page: 'settings', section: second ?? 'general', item: null, row: null };
  // Where citations of pages and rows point.
  if (first === 'pages') return { page: 'settings', section: 'pages', item: second ?? null, row: null };
  if (first === 'tables') return { page: 'settings', section: 'tables', item: second ?? null, row: third === 'rows' ? (fourth ?? null) : null };
  if (first === 'c' && second) return { page: 'thread', id: second, run: third === 'run' ? (fourth ?? null) : null };
  return { page: 'thread', id: null, run: null };
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
  if (path !== location.pathname + location.hash) history[replace ? 'replaceState' : 'pushState'](null, '', path);
  tell();
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
