// Who is here, and in which workspace.
import { useQuery, useQueryClient, type QueryClient } from '@tanstack/react-query';
import { useCallback, useEffect, useState } from 'react';
import { deleteConversation, listWorkspaces, logOut, whoami } from './client/api';
import { Failure, setWorkspace } from './client/http';
import { limits } from './client/upload';
import { announce, listen } from './client/windows';
import { lodgings, pause } from './composer/outbox';
import { enter, keep, leave, read } from './storage';
import { forgetThreads } from './thread/threads';
import type { Whoami, Workspace } from './client/types';

export type Session = {
  me: Whoami;
  workspaces: Workspace[];
  workspace: Workspace | null;
  choose: (id: string) => void;
};

const KEY = 'workspace';

export type Door = { at: 'loading' } | { at: 'outside' } | { at: 'unreachable' } | { at: 'inside'; session: Session };

/** The one that was chosen, if it is still there. */
const among = (workspaces: Workspace[]) => workspaces.find((one) => one.id === read(KEY)) ?? workspaces[0] ?? null;

/** Nothing of another user or workspace is shown or sent here. */
function forget(client: QueryClient): void {
  pause();
  client.removeQueries({ predicate: ({ queryKey }) => queryKey[0] !== 'session' });
  forgetThreads();
}

/** The way out. Drafts go with it, and where the files of those lie that are no threads. */
export async function logOutHere({ workspace }: Session): Promise<void> {
  await Promise.allSettled([...lodgings(workspace?.id ?? null)].map(deleteConversation));
  await logOut();
  leave();
  announce({ session: true });
  location.assign('/');
}

export function useSession(): Door {
  const client = useQueryClient();
  const [, setChosen] = useState('');
  const { data, error } = useQuery({
    queryKey: ['session'],
    queryFn: async () => {
      const [me, workspaces] = await Promise.all([whoami(), listWorkspaces()]);
      Object.assign(limits, me.limits);
      // A key that acts for a workspace is no user's.
      if (enter(me.user ?? `key ${me.key}`)) forget(client);
      setWorkspace(among(workspaces)?.id ?? null);
      return { me, workspaces };
    },
    staleTime: 60_000,
    // Who is in no workspace may be let into one.
    refetchInterval: ({ state }) => (state.data?.workspaces.length === 0 ? 5_000 : false),
    retry: (count, failure) => failure instanceof Failure && failure.passing && count < 3,
  });
  const choose = useCallback(
    (id: string) => {
      keep(KEY, id);
      forget(client);
      setWorkspace(id);
      setChosen(id);
    },
    [client],
  );
  // Another window has logged out.
  useEffect(
    () =>
      listen((news) => {
        if (!news.session) return;
        leave();
        void client.resetQueries({ queryKey: ['session'] });
      }),
    [client],
  );
  if (error instanceof Failure && error.status === 401) return { at: 'outside' };
  if (!data) return error ? { at: 'unreachable' } : { at: 'loading' };
  return { at: 'inside', session: { ...data, workspace: among(data.workspaces), choose } };
}
