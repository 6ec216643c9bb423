// A tool call that waits for a person's word.
import { useQuery } from '@tanstack/react-query';
import { ShieldQuestion } from 'lucide-react';
import { useState } from 'react';
import { decideApproval, listApprovals } from '../client/api';
import { pretty } from '../client/json';
import type { Approval } from '../client/types';
import { toComposer } from '../composer/focus';
import { Button } from '../ui/button';
import { complain } from '../ui/toast';

/** Those that nobody has decided yet, here or in another window. */
export function Approvals({ run, approvals }: { run: string; approvals: Approval[] }) {
  const { data } = useQuery({ queryKey: ['approvals', run, approvals.length], queryFn: () => listApprovals(run), refetchInterval: 2000 });
  const decided = new Set(data?.filter(({ status }) => status !== 'pending').map(({ id }) => id));
  return approvals.filter(({ id }) => !decided.has(id)).map((approval) => <Ask key={approval.id} run={run} approval={approval} />);
}

function Ask({ run, approval: { id, call } }: { run: string; approval: Approval }) {
  const [decided, setDecided] = useState(false);
  const [reason, setReason] = useState('');
  const decide = (approve: boolean) => {
    setDecided(true);
    toComposer();
    decideApproval(run, id, approve, approve ? '' : reason.trim()).catch((error: unknown) => {
      setDecided(false);
      complain(error);
    });
  };
  return (
    <section aria-label={`Approval for ${call.name}`} className="my-3 rounded-lg border border-line bg-warn-wash p-4">
      <p className="flex items-center gap-2 text-small font-semibold">
        <ShieldQuestion size={17} aria-hidden className="text-warn" />
        <span>
          May the assistant use <bdi>{call.name}</bdi>?
        </span>
      </p>
      <pre tabIndex={0} dir="auto" className="my-3 max-h-60 overflow-auto rounded-md bg-code p-3 font-mono text-[0.78rem] leading-5 whitespace-pre-wrap [overflow-wrap:anywhere]">
        {pretty(call.args)}
      </pre>
      <div className="flex flex-wrap gap-2">
        <Button look="solid" disabled={decided} onClick={() => decide(true)}>
          Allow
        </Button>
        <form
          className="flex min-w-56 grow gap-2"
          onSubmit={(event) => {
            event.preventDefault();
            decide(false);
          }}
        >
          <Button type="submit" disabled={decided}>
            Refuse
          </Button>
          <input
            aria-label="Why it is refused (optional)"
            placeholder="…because (optional)"
            maxLength={1000}
            disabled={decided}
            value={reason}
            onChange={(event) => setReason(event.target.value)}
            className="h-9 min-w-0 grow rounded-md border border-line-strong bg-raised px-3 text-small outline-none placeholder:text-faint focus:border-accent"
          />
        </form>
      </div>
    </section>
  );
}
