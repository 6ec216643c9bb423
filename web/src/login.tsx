// The door, for those who are not logged in; and what stands there when the server is away.
import { useQueryClient } from '@tanstack/react-query';
import { CloudOff } from 'lucide-react';
import { useState } from 'react';
import { logIn } from './client/api';
import { Field, Notice, Spinner } from './ui/bits';
import { Button } from './ui/button';
import { Mark } from './ui/mark';

export function Login() {
  const client = useQueryClient();
  const [token, setToken] = useState('');
  const [error, setError] = useState<string | null>(null);
  const enter = async () => {
    setError(null);
    try {
      await logIn(token.trim());
      await client.resetQueries({ queryKey: ['session'] });
    } catch (failure) {
      setError(failure instanceof Error ? failure.message : String(failure));
    }
  };
  return (
    <main className="grid min-h-full place-items-center bg-sunken p-5">
      <div className="w-full max-w-sm rounded-xl border border-line bg-raised p-7 shadow-float">
        <Mark size={38} />
        <h1 className="mt-4 text-xl font-semibold tracking-tight">Log in to Threadkeep</h1>
        <p className="mt-2 text-small text-soft">
          On your own machine, open the address that the server printed when it started: it logs this browser in. Elsewhere, use the token that your
          organisation gave you.
        </p>
        <form
          className="mt-5 grid gap-3"
          onSubmit={(event) => {
            event.preventDefault();
            void enter();
          }}
        >
          <Field label="Token" type="password" autoComplete="off" spellCheck={false} value={token} onChange={(event) => setToken(event.target.value)} />
          {error && (
            <p role="alert" className="text-small text-danger [overflow-wrap:anywhere]">
              {error}
            </p>
          )}
          <Button look="solid" type="submit" disabled={!token.trim()}>
            Log in
          </Button>
        </form>
      </div>
    </main>
  );
}

export function Unreachable() {
  const client = useQueryClient();
  const [trying, setTrying] = useState(false);
  const again = () => {
    setTrying(true);
    void client.refetchQueries({ queryKey: ['session'] }).finally(() => setTrying(false));
  };
  return (
    <main className="grid h-full">
      <h1 className="sr-only">Threadkeep</h1>
      <Notice icon={<CloudOff size={34} aria-hidden />} title="The server cannot be reached">
        <p className="mb-4">Nothing is lost: an answer that was under way is kept.</p>
        <Button onClick={again} disabled={trying}>
          {trying && <Spinner size={14} />}
          Try again
        </Button>
      </Notice>
    </main>
  );
}
