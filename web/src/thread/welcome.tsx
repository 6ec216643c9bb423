// An empty thread.
import { Mark } from '../ui/mark';

export function Welcome({ empty }: { empty: boolean }) {
  return (
    <div className="flex min-h-0 grow flex-col items-center justify-center gap-4 overflow-y-auto p-6 text-center">
      <Mark size={44} />
      <h2 className="text-2xl font-semibold tracking-tight">{empty ? 'Nothing was said here yet' : 'What shall we work on?'}</h2>
      <p className="max-w-sm text-small text-soft">Every step is kept as it happens. Close the page whenever you like: the answer goes on, and is here when you come back.</p>
    </div>
  );
}
