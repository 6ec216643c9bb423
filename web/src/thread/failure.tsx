// The end of a run that did not succeed, in words for people; what it wrote until then stays above.
import { CirclePause, CircleStop, RotateCcw, TriangleAlert } from 'lucide-react';
import type { ErrorBlock } from '../client/types';
import { Button } from '../ui/button';

const titles: Record<string, string> = {
  sandbox_unreachable: 'The assistant could not be reached',
  sandbox_timeout: 'The assistant went silent',
  sandbox_no_result: 'The assistant broke off',
  sandbox_protocol: 'The assistant was not understood',
  model_unreachable: 'The model could not be reached',
  model_timeout: 'The model went silent',
  model_error: 'The model refused',
  tool_rounds_exhausted: 'Too many rounds of tools',
  run_timeout: 'This took too long',
  internal: 'Something went wrong here',
};

const isStop = ({ code }: ErrorBlock) => code === 'cancelled';
const isPause = ({ code }: ErrorBlock) => code === 'interrupted';

function titleOf(error: ErrorBlock): string {
  if (isStop(error)) return 'Stopped';
  return isPause(error) ? 'Interrupted by a restart of the server' : (titles[error.code] ?? 'The assistant failed');
}

/** The same in a sentence, for who cannot see it. */
export const told = (error: ErrorBlock) => (isStop(error) || isPause(error) ? `${titleOf(error)}.` : `${titleOf(error)}: ${error.message}`);

export function RunFailure({ error, onRetry }: { error: ErrorBlock; onRetry: (() => void) | undefined }) {
  const [stopped, paused] = [isStop(error), isPause(error)];
  const Icon = stopped ? CircleStop : paused ? CirclePause : TriangleAlert;
  const look = stopped ? 'border-line text-soft' : paused ? 'border-line bg-warn-wash text-warn' : 'border-line bg-danger-wash text-danger';
  return (
    <div className={`mt-4 flex flex-wrap items-center gap-x-4 gap-y-2 rounded-lg border px-4 py-2.5 ${look}`}>
      <Icon size={17} aria-hidden className="shrink-0" />
      <div className="min-w-40 grow basis-0">
        <p className="text-small font-semibold">{titleOf(error)}</p>
        {!stopped && (
          <p dir="auto" className="text-small text-soft [overflow-wrap:anywhere]">
            {paused ? 'What was written until then is kept.' : error.message}
            {!paused && <span className="text-faint"> ({error.code})</span>}
          </p>
        )}
      </div>
      {onRetry && (
        <Button onClick={onRetry}>
          <RotateCcw size={14} aria-hidden />
          Retry
        </Button>
      )}
    </div>
  );
}
