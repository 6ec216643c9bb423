// What was typed and chosen and not sent, kept for each thread: a reload loses nothing.
import type { Thread } from '../client/thread';
import type { Attachment, Mode } from '../client/types';
import { keep, read, watch } from '../storage';
import type { Choice } from './model';

/** Null where nothing was chosen: then the conversation's own counts. */
export type Chosen = { mode: Mode | null; answering: Choice | null };

/** A file that is there, and the conversation it lies in. */
export type Lying = Attachment & { conversation: string };

export type Draft = { text: string; files: Lying[]; chosen: Chosen };

/** Where a draft lies: in a thread, or with the next new one of a workspace. */
export const placeIn = (workspace: string | null, thread: string | null) => `${workspace}/${thread ?? 'new'}`;
export const placeOf = (thread: Thread) => placeIn(thread.workspace, thread.get().id);

export const readDraft = (place: string): string => read(`draft/${place}`);
export const keepDraft = (place: string, text: string): void => keep(`draft/${place}`, text);

export function readChosen(place: string): Chosen {
  try {
    return JSON.parse(read(`chosen/${place}`)) as Chosen;
  } catch {
    return { mode: null, answering: null };
  }
}

export const keepChosen = (place: string, chosen: Chosen | null): void =>
  keep(`chosen/${place}`, chosen ? JSON.stringify(chosen) : '');

export function readFiles(place: string): Lying[] {
  try {
    return JSON.parse(read(`files/${place}`) || '[]') as Lying[];
  } catch {
    return [];
  }
}

export const keepFiles = (place: string, files: Lying[]): void =>
  keep(`files/${place}`, files.length > 0 ? JSON.stringify(files) : '');

const RETURNED = 'threadkeep:returned';

/** What was sent and did not go is a draft again, before what was written since. */
export function putBack(place: string, { text, files, chosen }: Draft): void {
  keepDraft(place, [text, readDraft(place)].filter(Boolean).join('\n\n'));
  keepFiles(place, [...files, ...readFiles(place)]);
  keepChosen(place, chosen);
  window.dispatchEvent(new CustomEvent(RETURNED, { detail: place }));
}

export function onPutBack(place: () => string, changed: () => void): () => void {
  const look = (event: Event) => {
    if ((event as CustomEvent<string>).detail === place()) changed();
  };
  window.addEventListener(RETURNED, look);
  return () => window.removeEventListener(RETURNED, look);
}

/** Tells when something else than the composer has changed them: another window, or what was put back. */
export function onFiles(place: () => string, changed: (files: Lying[]) => void): () => void {
  const look = () => changed(readFiles(place()));
  const stops = [watch(() => `files/${place()}`, look), onPutBack(place, look)];
  return () => stops.forEach((stop) => stop());
}
