// A workspace is named and made: the first one by who is in none yet, others from the menu.
import { useQueryClient } from '@tanstack/react-query';
import { LogOut } from 'lucide-react';
import { useState } from 'react';
import { createWorkspace } from '../client/api';
import { go, paths } from '../router';
import { logOutHere, type Session } from '../session';
import { Field } from '../ui/bits';
import { Button } from '../ui/button';
import { Mark } from '../ui/mark';
import { complain } from '../ui/toast';

export function NewWorkspace({ session, onMade }: { session: Session; onMade?: () => void }) {
  const client = useQueryClient();
  const [name, setName] = useState('');
  const [busy, setBusy] = useState(false);
  const [error, setError] = useState<string | null>(null);
  const create = async () => {
    setBusy(true);
    setError(null);
    try {
      const { id } = await createWorkspace(name.trim());
      await client.refetchQueries({ queryKey: ['session'] });
      onMade?.();
      session.choose(id);
      go(paths.fresh);
    } catch (failure) {
      setError(failure instanceof Error ? failure.message : String(failure));
      setBusy(false);
    }
  };
  return (
    <form
      className="grid gap-3"
      onSubmit={(event) => {
        event.preventDefault();
        void create();
      }}
    >
      <Field label="Name of the workspace" placeholder="Your team, or what it works on" maxLength={255} autoFocus data-first autoComplete="off" value={name} onChange={(event) => setName(event.target.value)} />
      {error && (
        <p role="alert" className="text-small text-danger [overflow-wrap:anywhere]">
          {error}
        </p>
      )}
      <Button look="solid" type="submit" disabled={busy || !name.trim()}>
        Create the workspace
      </Button>
    </form>
  );
}

/** What there is for who is in no workspace. */
export function FirstWorkspace({ session }: { session: Session }) {
  return (
    <main className="grid min-h-full place-items-center bg-sunken p-5">
      <div className="w-full max-w-sm rounded-xl border border-line bg-raised p-7 shadow-float">
        <Mark size={38} />
        <h1 className="mt-4 text-xl font-semibold tracking-tight">Name your workspace</h1>
        <p className="mt-2 mb-5 text-small text-soft">Threads, files, pages and agents are kept in a workspace. You will be its admin, and can let others in.</p>
        <NewWorkspace session={session} />
        <p className="mt-5 text-small text-soft">
          Or ask an admin of a workspace to let you in, as <bdi className="font-medium text-ink [overflow-wrap:anywhere]">{session.me.user}</bdi>. It opens here by itself.
        </p>
        <Button look="quiet" className="mt-3 -ml-3.5" onClick={() => logOutHere(session).catch(complain)}>
          <LogOut size={15} aria-hidden />
          Log out
        </Button>
      </div>
    </main>
  );
}
