// Word between the windows of one browser, so that none has to wait until it looks again by itself.

export type News = { thread?: string | null; history?: boolean; session?: boolean };

const channel = typeof BroadcastChannel === 'undefined' ? null : new BroadcastChannel('threadkeep');
const readers = new Set<(news: News) => void>();
channel?.addEventListener('message', (event: MessageEvent<News>) => readers.forEach((reader) => reader(event.data)));

/** Tells the other windows, not this one. */
export const announce = (news: News) => channel?.postMessage(news);

export function listen(reader: (news: News) => void): () => void {
  readers.add(reader);
  return () => readers.delete(reader);
}
