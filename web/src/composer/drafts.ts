// What was typed and not sent, kept for each thread: a reload loses nothing.
const key = (thread: string | null) => `threadkeep.draft.${thread ?? 'new'}`;

export function readDraft(thread: string | null): string {
  try {
    return localStorage.getItem(key(thread)) ?? '';
  } catch {
    return '';
  }
}

export function keepDraft(thread: string | null, text: string): void {
  try {
    if (text) localStorage.setItem(key(thread), text);
    else localStorage.removeItem(key(thread));
  } catch {
    // Without storage a draft lives as long as the page.
  }
}
