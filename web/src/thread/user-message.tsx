// What the user said; it can be changed in place.
import { GitFork, Pencil, Sparkles } from 'lucide-react';
import { memo, useState } from 'react';
import type { Siblings } from '../client/branches';
import type { Message } from '../client/types';
import { toComposer } from '../composer/focus';
import { FileChip } from '../files/chip';
import { Time } from '../ui/bits';
import { Button, IconButton } from '../ui/button';
import { GrowingText } from '../ui/growing';
import { CopyButton } from './code';
import type { Author } from './authors';
import { Versions } from './versions';

export const textOf = (message: Message) =>
  message.blocks.flatMap((block) => (block.type === 'text' ? [block.text] : [])).join('\n\n');

export type UserActions = {
  onEdit: (message: Message, text: string) => void;
  onAnswer: (message: Message) => void;
  onFork: (message: Message) => void;
  onShow: (id: string) => void;
};

type Props = UserActions & { message: Message; thread: string | null; siblings: Siblings | undefined; busy: boolean; last: boolean; pending?: boolean; author?: Author };

export const UserMessage = memo(function UserMessage({ message, thread, siblings, busy, last, pending, author = null, onEdit, onAnswer, onFork, onShow }: Props) {
  const [editing, setEditing] = useState(false);
  const text = textOf(message);
  const close = () => {
    setEditing(false);
    toComposer();
  };
  return (
    <article aria-label={author ?? 'You'} className="group flex flex-col items-end pt-3" data-role="user" data-message={message.id}>
      <h2 className={author === null ? 'sr-only' : 'mb-1 max-w-[85%] truncate px-1 text-tiny font-medium text-soft'}>
        {author === null ? 'You' : <bdi>{author}</bdi>}
        <span className="sr-only"> said</span>
      </h2>
      {message.attachments.length > 0 && (
        <ul className="mb-2 flex flex-wrap items-end justify-end gap-2" aria-label="Attachments">
          {message.attachments.map((file) => (
            <li key={file.fileId}>
              <FileChip file={file} thread={thread} />
            </li>
          ))}
        </ul>
      )}
      {editing ? (
        <EditBox
          text={text}
          onCancel={close}
          onSave={(next) => {
            close();
            if (next !== text) onEdit(message, next);
          }}
        />
      ) : (
        text && (
          <div dir="auto" data-block="text" className={`max-w-[85%] rounded-xl bg-bubble px-4 py-2.5 whitespace-pre-wrap [overflow-wrap:anywhere] ${pending ? 'opacity-70' : ''}`}>
            {text}
          </div>
        )
      )}
      {!editing && !pending && (
        <div className="mt-1 flex h-7 items-center gap-0.5">
          <div className="flex items-center opacity-0 transition-opacity group-focus-within:opacity-100 group-hover:opacity-100 pointer-coarse:opacity-100">
            <Time at={message.createdAt} />
            <CopyButton text={text} label="Copy message" />
            <IconButton name="Edit message" small disabled={busy} onClick={() => setEditing(true)} data-edit>
              <Pencil size={15} aria-hidden />
            </IconButton>
            <IconButton name="Fork from here" small onClick={() => onFork(message)}>
              <GitFork size={15} aria-hidden />
            </IconButton>
          </div>
          {siblings && <Versions siblings={siblings} onShow={onShow} disabled={busy} />}
        </div>
      )}
      {/* A fork can end here, and what was imported. */}
      {last && !busy && !editing && (
        <p className="mt-3 flex flex-wrap items-center gap-x-3 gap-y-2 self-start text-small text-soft">
          This message has no answer yet.
          <Button onClick={() => onAnswer(message)}>
            <Sparkles size={14} aria-hidden />
            Answer it
          </Button>
        </p>
      )}
    </article>
  );
});

function EditBox({ text, onCancel, onSave }: { text: string; onCancel: () => void; onSave: (text: string) => void }) {
  const [value, setValue] = useState(text);
  const save = () => {
    if (value.trim()) onSave(value);
  };
  return (
    <form
      className="w-full rounded-xl bg-bubble p-3"
      onSubmit={(event) => {
        event.preventDefault();
        save();
      }}
    >
      <GrowingText
        label="Edit message"
        value={value}
        onChange={setValue}
        autoFocus
        onEnter={save}
        onKeyDown={(event) => event.key === 'Escape' && onCancel()}
      />
      <div className="mt-2 flex items-center justify-end gap-2">
        <span className="mr-auto pl-1 text-tiny text-faint">The old version is kept.</span>
        <Button look="quiet" onClick={onCancel}>
          Cancel
        </Button>
        <Button look="solid" type="submit" disabled={!value.trim()}>
          Send
        </Button>
      </div>
    </form>
  );
}
