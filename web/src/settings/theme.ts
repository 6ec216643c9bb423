// Light, dark, or as the system says; kept in this browser.
import { useSyncExternalStore } from 'react';

export type Theme = 'system' | 'light' | 'dark';
const KEY = 'threadkeep.theme';
const readers = new Set<() => void>();

export const readTheme = (): Theme => (document.documentElement.dataset.theme as Theme | undefined) ?? 'system';

export function setTheme(theme: Theme): void {
  const { dataset } = document.documentElement;
  if (theme === 'system') delete dataset.theme;
  else dataset.theme = theme;
  try {
    if (theme === 'system') localStorage.removeItem(KEY);
    else localStorage.setItem(KEY, theme);
  } catch {
    // It lasts as long as the page.
  }
  readers.forEach((reader) => reader());
}

const subscribe = (reader: () => void) => {
  readers.add(reader);
  return () => readers.delete(reader);
};
export const useTheme = () => useSyncExternalStore(subscribe, readTheme);
