// The history as the page keeps it: pages from the server, changed at once and settled with the server after.
import { useInfiniteQuery, type InfiniteData, type QueryClient } from '@tanstack/react-query';
import { deleteConversation, listConversations, restoreConversation, updateConversation } from '../client/api';
import { announce } from '../client/windows';
import type { Conversation } from '../client/types';
import { complain, toast } from '../ui/toast';

type Found = Awaited<ReturnType<typeof listConversations>>;
type Pages = InfiniteData<Found, string | null>;

/** Sooner while an answer is awaited; long histories seldom. */
function lookAgain(pages: Found[]): number {
  if (pages.length > 2) return 60_000;
  return pages.some(({ data }) => data.some(({ meta }) => meta?.answering)) ? 3_000 : 15_000;
}

export const useHistory = (query: string, workspace: string | null) =>
  useInfiniteQuery({
    queryKey: ['history', workspace, query],
    queryFn: ({ pageParam, signal }) => listConversations(query, pageParam, signal),
    initialPageParam: null as string | null,
    getNextPageParam: (page) => page.next,
    refetchInterval: ({ state: { data } }) => lookAgain(data?.pages ?? []),
    placeholderData: (before) => before,
  });

function change(client: QueryClient, each: (found: Conversation[]) => Conversation[]): void {
  client.setQueriesData<Pages>({ queryKey: ['history'] }, (pages) =>
    pages ? { ...pages, pages: pages.pages.map((page) => ({ ...page, data: each(page.data) })) } : pages,
  );
}

export const settle = (client: QueryClient) => {
  announce({ history: true });
  return client.invalidateQueries({ queryKey: ['history'] });
};

export async function rename(client: QueryClient, id: string, title: string): Promise<void> {
  await client.cancelQueries({ queryKey: ['history'] });
  change(client, (found) =>
    found.map((one) => (one.id === id ? { ...one, attributes: { ...one.attributes, title } } : one)),
  );
  await updateConversation(id, { title }).catch(complain);
  announce({ thread: id });
  await settle(client);
}

export async function remove(client: QueryClient, { id, attributes }: Conversation, onUndone: () => void): Promise<boolean> {
  await client.cancelQueries({ queryKey: ['history'] });
  change(client, (found) => found.filter((one) => one.id !== id));
  try {
    await deleteConversation(id);
  } catch (error) {
    complain(error);
    void settle(client);
    return false;
  }
  const undo = () => void restoreConversation(id).then(() => settle(client)).then(onUndone, complain);
  toast(`Deleted “${attributes.title || 'New thread'}”`, { action: { label: 'Undo', run: undo }, ms: 10_000 });
  void settle(client);
  return true;
}
