// Who is here, and in which workspace.
import { useQuery, useQueryClient } from '@tanstack/react-query';
import { useCallback, useState } from 'react';
import { listWorkspaces, whoami } from './client/api';
import { Failure, setWorkspace } from './client/http';
import { limits } from './client/upload';
import { keepChosen } from './composer/drafts';
import { forgetThreads } from './thread/threads';
import type { Whoami, Workspace } from './client/types';

export type Session = {
  me: Whoami;
  workspaces: Workspace[];
  workspace: Workspace | null;
  choose: (id: string) => void;
};

const KEY = 'threadkeep.workspace';
const remembered = () => {
  try {
    return localStorage.getItem(KEY);
  } catch {
    return null;
  }
};

export type Door = { at: 'loading' } | { at: 'outside' } | { at: 'unreachable' } | { at: 'inside'; session: Session };

export function useSession(): Door {
  const client = useQueryClient();
  const [chosen, setChosen] = useState(remembered);
  const { data, error } = useQuery({
    queryKey: ['session'],
    queryFn: async () => {
      setWorkspace(null);
      const [me, workspaces] = await Promise.all([whoami(), listWorkspaces()]);
      Object.assign(limits, me.limits);
      setWorkspace((workspaces.find((one) => one.id === remembered()) ?? workspaces[0])?.id ?? null);
      return { me, workspaces };
    },
    staleTime: 60_000,
    retry: (count, failure) => failure instanceof Failure && failure.passing && count < 3,
  });
  const choose = useCallback(
    (id: string) => {
      try {
        localStorage.setItem(KEY, id);
      } catch {
        // It lasts as long as the page.
      }
      setWorkspace(id);
      setChosen(id);
      // Nothing of the old workspace is shown or chosen in the new one.
      client.removeQueries({ predicate: ({ queryKey }) => queryKey[0] !== 'session' });
      forgetThreads();
      keepChosen(null, null);
    },
    [client],
  );
  if (error instanceof Failure && error.status === 401) return { at: 'outside' };
  if (!data) return error ? { at: 'unreachable' } : { at: 'loading' };
  const workspace = data.workspaces.find((one) => one.id === chosen) ?? data.workspaces[0] ?? null;
  return { at: 'inside', session: { ...data, workspace, choose } };
}
