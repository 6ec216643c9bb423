// What was typed and chosen and not sent, kept for each thread: a reload loses nothing.
import type { Attachment, Mode } from '../client/types';
import type { Choice } from './model';

/** Null where nothing was chosen: then the conversation's own counts. */
export type Chosen = { mode: Mode | null; answering: Choice | null };

const textKey = (thread: string | null) => `threadkeep.draft.${thread ?? 'new'}`;
const chosenKey = (thread: string | null) => `threadkeep.chosen.${thread ?? 'new'}`;

function read(key: string): string {
  try {
    return localStorage.getItem(key) ?? '';
  } catch {
    return '';
  }
}

function keep(key: string, text: string): void {
  try {
    if (text) localStorage.setItem(key, text);
    else localStorage.removeItem(key);
  } catch {
    // Without storage a draft lives as long as the page.
  }
}

export const readDraft = (thread: string | null): string => read(textKey(thread));
export const keepDraft = (thread: string | null, text: string): void => keep(textKey(thread), text);

export function readChosen(thread: string | null): Chosen {
  try {
    return JSON.parse(read(chosenKey(thread))) as Chosen;
  } catch {
    return { mode: null, answering: null };
  }
}

export const keepChosen = (thread: string | null, chosen: Chosen | null): void =>
  keep(chosenKey(thread), chosen ? JSON.stringify(chosen) : '');

/** A file that is there, and the conversation it lies in. */
export type Lying = Attachment & { conversation: string };

/** What a new thread has instead of an id: its files lie in a conversation of this workspace. */
export const newIn = (workspace: string | null) => `new.${workspace}`;

const filesKey = (place: string) => `threadkeep.files.${place}`;

export function readFiles(place: string): Lying[] {
  try {
    return JSON.parse(read(filesKey(place)) || '[]') as Lying[];
  } catch {
    return [];
  }
}

export const keepFiles = (place: string, files: Lying[]): void =>
  keep(filesKey(place), files.length > 0 ? JSON.stringify(files) : '');

/** Tells when another window has changed them. */
export function onFiles(place: () => string, changed: (files: Lying[]) => void): () => void {
  const look = ({ key }: StorageEvent) => key === filesKey(place()) && changed(readFiles(place()));
  window.addEventListener('storage', look);
  return () => window.removeEventListener('storage', look);
}
