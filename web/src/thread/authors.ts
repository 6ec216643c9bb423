// Who said what in a thread that others write in, too.
import { useQuery } from '@tanstack/react-query';
import { listAuthors } from '../client/api';
import type { Conversation, Message } from '../client/types';

/** Null for the reader; in a thread that others see a message may be of somebody who is not known. */
export type Author = string | null;
export const SOMEBODY = 'A member';

export function useAuthors(conversation: Conversation | null, messages: Message[], me: string | null): (message: Message) => Author {
  const shared = conversation?.attributes.visibility === 'workspace';
  const newest = messages.findLast(({ role }) => role === 'user')?.id;
  const { data, isPlaceholderData } = useQuery({
    queryKey: ['authors', conversation?.id, newest],
    queryFn: () => listAuthors(conversation?.id as string),
    enabled: shared && newest !== undefined,
    staleTime: Infinity,
    placeholderData: (before, query) => (query?.queryKey[1] === conversation?.id ? before : undefined),
  });
  const named = (user: string | undefined) => (user === me ? null : (user || SOMEBODY));
  if (!conversation || !shared) return () => (conversation ? named(conversation.attributes.user_id) : null);
  const told = data !== undefined && !isPlaceholderData;
  return ({ id }) => named(data?.get(id) ?? (told ? (me ?? undefined) : undefined));
}
