// One thread of the history: opens it, renames it in place, deletes it.
import { Ellipsis, PencilLine, Trash2, Users } from 'lucide-react';
import { useRef, useState } from 'react';
import type { Conversation } from '../client/types';
import { follow, paths } from '../router';
import { Spinner } from '../ui/bits';
import { Menu, MenuItem } from '../ui/menu';
import { fromMatch, Marked, plain } from './highlight';

type Props = {
  conversation: Conversation;
  current: boolean;
  onOpen: () => void;
  onRename: (title: string) => void;
  /** None where the reader may not. */
  onDelete: (() => void) | null;
};

export const titleOf = ({ attributes }: Conversation) => attributes.title || attributes.preview || 'New thread';

const hitIn = ({ meta }: Conversation, field: string) => meta?.highlights?.find((one) => one.field === field);
/** The thread, at the message that was found. */
export const addressOf = (conversation: Conversation) => paths.thread(conversation.id, hitIn(conversation, 'message')?.message_id ?? undefined);

export function HistoryItem({ conversation, current, onOpen, onRename, onDelete }: Props) {
  const [editing, setEditing] = useState(false);
  const link = useRef<HTMLAnchorElement>(null);
  const chosen = useRef<(() => void) | null>(null);
  const title = titleOf(conversation);
  const inTitle = hitIn(conversation, 'title');
  const inMessage = hitIn(conversation, 'message');

  if (editing) {
    return (
      <Rename
        title={title}
        onDone={(next) => {
          setEditing(false);
          if (next !== null) onRename(next);
          requestAnimationFrame(() => link.current?.focus());
        }}
      />
    );
  }
  return (
    <div className={`group relative flex items-center rounded-md ${current ? 'bg-active' : 'hover:bg-hover'}`}>
      <a
        ref={link}
        href={addressOf(conversation)}
        aria-current={current ? 'page' : undefined}
        onClick={(event) => {
          follow(event);
          onOpen();
        }}
        onKeyDown={(event) => {
          if (event.key === 'F2') setEditing(true);
          if (event.key === 'Delete') onDelete?.();
        }}
        className="min-w-0 grow rounded-md py-1.5 pr-9 pl-3 focus-visible:outline-offset-[-2px]"
      >
        <span className="flex items-center gap-1.5">
          <bdi className="truncate text-small">{inTitle ? <Marked highlight={inTitle} /> : title}</bdi>
          {conversation.meta?.answering && <Spinner size={13} label="answering" />}
          {conversation.attributes.visibility === 'workspace' && <Users size={12} role="img" aria-label="shared with the workspace" className="shrink-0 text-faint" />}
        </span>
        {inMessage && (
          <bdi className="mt-0.5 line-clamp-2 text-tiny text-soft">
            <Marked highlight={fromMatch(plain(inMessage))} />
          </bdi>
        )}
      </a>
      <Menu
        align="end"
        onClosed={() => {
          link.current?.focus();
          chosen.current?.();
          chosen.current = null;
        }}
        trigger={
          <button
            type="button"
            aria-label={`More for ${title}`}
            className="absolute right-1 grid size-7 place-items-center rounded-sm text-soft opacity-0 group-focus-within:opacity-100 group-hover:opacity-100 hover:bg-active hover:text-ink focus-visible:opacity-100 data-[state=open]:opacity-100 pointer-coarse:opacity-100"
          >
            <Ellipsis size={16} aria-hidden />
          </button>
        }
      >
        <MenuItem icon={<PencilLine size={15} aria-hidden />} onSelect={() => (chosen.current = () => setEditing(true))}>
          Rename
        </MenuItem>
        {onDelete && (
          <MenuItem icon={<Trash2 size={15} aria-hidden />} danger onSelect={() => (chosen.current = onDelete)}>
            Delete
          </MenuItem>
        )}
      </Menu>
    </div>
  );
}

function Rename({ title, onDone }: { title: string; onDone: (title: string | null) => void }) {
  const [value, setValue] = useState(title);
  const over = useRef(false);
  const end = (save: boolean) => {
    if (over.current) return;
    over.current = true;
    const next = value.trim();
    onDone(save && next !== '' && next !== title ? next : null);
  };
  return (
    <input
      aria-label="Title"
      value={value}
      maxLength={255}
      ref={(node) => {
        if (node && document.activeElement !== node && !over.current) {
          node.focus();
          node.select();
        }
      }}
      onChange={(event) => setValue(event.target.value)}
      onBlur={() => end(true)}
      onKeyDown={(event) => {
        if (event.key === 'Enter' && !event.nativeEvent.isComposing) end(true);
        if (event.key === 'Escape') {
          // It ends this, and closes nothing else.
          event.stopPropagation();
          end(false);
        }
      }}
      className="h-8 w-full rounded-md border border-accent bg-raised px-2.5 text-small outline-none"
    />
  );
}
