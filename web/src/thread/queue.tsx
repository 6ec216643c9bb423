// Messages that wait for their turn; each can be changed or taken back until it starts.
import { Clock, Paperclip, Pencil, X } from 'lucide-react';
import { useState } from 'react';
import type { Thread } from '../client/thread';
import type { Queued } from '../client/types';
import { toComposer } from '../composer/focus';
import { Button, IconButton } from '../ui/button';
import { GrowingText } from '../ui/growing';
import { complain } from '../ui/toast';

export function Queue({ thread, queue }: { thread: Thread; queue: Queued[] }) {
  if (queue.length === 0) return null;
  return (
    <section aria-label="Waiting messages" className="mb-2 rounded-lg border border-line bg-sunken px-3 py-2">
      <h2 className="flex items-center gap-2 px-1 text-tiny font-medium text-faint">
        <Clock size={13} aria-hidden />
        {queue.length === 1 ? 'Next, when this answer is done' : `${queue.length} messages wait for this answer`}
      </h2>
      <ul className="max-h-[min(10rem,20vh)] overflow-y-auto">
        {queue.map((queued) => (
          <Waiting key={queued.id} queued={queued} thread={thread} />
        ))}
      </ul>
    </section>
  );
}

function Waiting({ queued, thread }: { queued: Queued; thread: Thread }) {
  const [draft, setDraft] = useState<string | null>(null);
  const close = () => {
    setDraft(null);
    toComposer();
  };
  const save = () => {
    if (draft?.trim()) thread.editQueued(queued.id, draft).catch(complain);
    close();
  };
  if (draft !== null) {
    return (
      <li className="flex items-end gap-2 py-1">
        <div className="min-w-0 grow rounded-md border border-line-strong bg-raised px-2 py-1">
          <GrowingText
            label="Edit waiting message"
            value={draft}
            onChange={setDraft}
            autoFocus
            onEnter={save}
            onKeyDown={(event) => event.key === 'Escape' && close()}
          />
        </div>
        <Button onClick={save}>Save</Button>
      </li>
    );
  }
  return (
    <li className="flex items-center gap-1 py-0.5" data-queued>
      <p dir="auto" className="min-w-0 grow truncate px-1 text-small">
        {queued.text ?? 'An answer is made anew'}
      </p>
      {queued.files.length > 0 && (
        <p className="flex max-w-[45%] min-w-0 shrink-0 items-center gap-1 text-tiny text-faint">
          <Paperclip size={13} aria-hidden className="shrink-0" />
          <span className="sr-only">With</span>
          <bdi className="truncate">{queued.files.map((file) => file.name).join(', ')}</bdi>
        </p>
      )}
      {queued.text != null && (
        <IconButton name="Edit waiting message" small side="top" onClick={() => setDraft(queued.text ?? '')}>
          <Pencil size={14} aria-hidden />
        </IconButton>
      )}
      <IconButton
        name="Take back waiting message"
        small
        side="top"
        onClick={() => {
          thread.removeQueued(queued.id).catch(complain);
          toComposer();
        }}
      >
        <X size={14} aria-hidden />
      </IconButton>
    </li>
  );
}
