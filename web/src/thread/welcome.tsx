// An empty thread. Where only the built-in model answers, it says so and offers what that one can show.
import { useQuery } from '@tanstack/react-query';
import { FilePlus2, ListChecks, Search, SquareTerminal } from 'lucide-react';
import { listModels } from '../client/api';
import { Mark } from '../ui/mark';

const shows = [
  { text: 'plan a small release', about: 'Plans, then works through the plan', Icon: ListChecks },
  { text: 'write hello.md: # Hello\n\nA file made here.', about: 'Writes a file', Icon: FilePlus2 },
  { text: 'run uname -a && ls -la', about: 'Runs a command in its sandbox', Icon: SquareTerminal },
  { text: 'search release notes', about: 'Searches pages and tables', Icon: Search },
];

export function Welcome({ onTry }: { onTry: (text: string) => void }) {
  const models = useQuery({ queryKey: ['models'], queryFn: listModels, retry: false, staleTime: 60_000 }).data ?? [];
  const demo = models.length > 0 && models.every(({ id }) => id.startsWith('demo/'));
  return (
    <div className="flex min-h-0 grow flex-col overflow-y-auto p-6">
      <div className="m-auto flex w-full max-w-xl flex-col items-center gap-4 text-center">
        <Mark size={44} />
        <h2 className="text-2xl font-semibold tracking-tight">What shall we work on?</h2>
        <p className="max-w-sm text-small text-soft">Every step is kept as it happens. Close the page whenever you like: the answer goes on, and is here when you come back.</p>
        {demo && (
          <>
            <ul aria-label="Things to try" className="mt-3 grid w-full gap-2 text-left sm:grid-cols-2">
              {shows.map(({ text, about, Icon }) => (
                <li key={text}>
                  <button type="button" onClick={() => onTry(text)} className="flex h-full w-full items-start gap-3 rounded-lg border border-line bg-raised px-4 py-3 text-left text-small shadow-low transition-colors hover:bg-hover">
                    <Icon size={16} aria-hidden className="mt-0.5 shrink-0 text-accent" />
                    <span className="min-w-0">
                      <span className="block truncate font-medium">{text.split('\n')[0]}</span>
                      <span className="block text-soft">{about}</span>
                    </span>
                  </button>
                </li>
              ))}
            </ul>
            <p className="text-tiny text-faint">The built-in demo model answers: no key is set, and nothing leaves this machine.</p>
          </>
        )}
      </div>
    </div>
  );
}
