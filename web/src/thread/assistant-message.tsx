// What the assistant answered, live or stored: the same blocks by the same parts.
import { Activity, GitFork, RefreshCw } from 'lucide-react';
import { memo, useCallback } from 'react';
import type { Siblings } from '../client/branches';
import type { Approval, Block, ErrorBlock, Message } from '../client/types';
import { Time } from '../ui/bits';
import { IconButton } from '../ui/button';
import { Approvals } from './approvals';
import { Blocks } from './blocks';
import { CopyButton } from './code';
import { RunFailure } from './failure';
import { textOf } from './user-message';
import { Versions } from './versions';

export type AssistantActions = {
  onRegenerate: (assistant: Message) => void;
  onFork: (message: Message) => void;
  onTrace: (message: Message) => void;
  onShow: (id: string) => void;
};

type StoredProps = AssistantActions & { message: Message; thread: string | null; siblings: Siblings | undefined; busy: boolean; last: boolean };

export const AssistantMessage = memo(function AssistantMessage(props: StoredProps) {
  const { message, thread, siblings, busy, last, onRegenerate, onFork, onTrace, onShow } = props;
  const failure = useCallback(
    (error: ErrorBlock) => <RunFailure error={error} onRetry={last && !busy ? () => onRegenerate(message) : undefined} />,
    [last, busy, message, onRegenerate],
  );
  const text = textOf(message);
  return (
    <article aria-label="Assistant" className="group pt-1 pb-3" data-role="assistant" data-message={message.id}>
      <h2 className="sr-only">The assistant answered</h2>
      <div data-blocks>
        <Blocks blocks={message.blocks} thread={thread} live={false} failure={failure} />
        {message.blocks.length === 0 && <p className="text-small text-faint">It answered nothing.</p>}
      </div>
      <div className="mt-2 -ml-1.5 flex h-7 items-center gap-0.5">
        {siblings && <Versions siblings={siblings} onShow={onShow} disabled={busy} />}
        <div className={`flex items-center transition-opacity group-focus-within:opacity-100 group-hover:opacity-100 pointer-coarse:opacity-100 ${last ? '' : 'opacity-0'}`}>
          {text && <CopyButton text={text} label="Copy answer" />}
          <IconButton name="Answer again" small disabled={busy} onClick={() => onRegenerate(message)}>
            <RefreshCw size={15} aria-hidden />
          </IconButton>
          <IconButton name="Fork from here" small onClick={() => onFork(message)}>
            <GitFork size={15} aria-hidden />
          </IconButton>
          <IconButton name="Show the run’s trace" small onClick={() => onTrace(message)}>
            <Activity size={15} aria-hidden />
          </IconButton>
          <Time at={message.createdAt} />
        </div>
      </div>
    </article>
  );
});

type LiveProps = { blocks: Block[]; approvals: Approval[]; run: string | null; thread: string | null; stopping: boolean; connected: boolean };

const noFailure = (error: ErrorBlock) => <RunFailure error={error} onRetry={undefined} />;

/** What stands at the end while nothing is being written. */
function waitingFor(blocks: Block[], { stopping, connected, approvals }: LiveProps): string | null {
  if (stopping) return 'Stopping…';
  if (!connected) return 'Reconnecting…';
  if (approvals.length > 0) return null;
  const last = blocks.at(-1);
  if (last?.type === 'text') return null;
  const running = blocks.some((block) => block.type === 'step' && block.status === 'running');
  return running ? null : 'Thinking…';
}

export function LiveMessage(props: LiveProps) {
  const { blocks, approvals, run, thread } = props;
  const waiting = waitingFor(blocks, props);
  return (
    <article aria-label="Assistant" aria-busy="true" className="pt-1 pb-3" data-role="assistant" data-live>
      <h2 className="sr-only">The assistant is answering</h2>
      <div data-blocks>
        <Blocks blocks={blocks} thread={thread} live failure={noFailure} />
      </div>
      {approvals.length > 0 && run && <Approvals run={run} approvals={approvals} />}
      <p className="mt-2 h-7 text-small" data-waiting>
        {waiting && <span className="shimmer">{waiting}</span>}
      </p>
    </article>
  );
}
