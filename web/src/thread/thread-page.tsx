// A thread with its header.
import { useQueryClient } from '@tanstack/react-query';
import { Ellipsis, Lock, PanelLeftOpen, SquarePen, Trash2, Users, WifiOff } from 'lucide-react';
import { useEffect, useState, useSyncExternalStore } from 'react';
import { updateConversation } from '../client/api';
import type { Thread, ThreadState } from '../client/thread';
import type { Conversation } from '../client/types';
import { remove, settle } from '../history/history-data';
import { go, paths } from '../router';
import type { Session } from '../session';
import { IconButton } from '../ui/button';
import { Menu, MenuItem } from '../ui/menu';
import { complain, toast } from '../ui/toast';
import { owns } from './rights';
import { Tabs } from './tabs';
import { ThreadView } from './thread-view';
import { freshThread, threadOf } from './threads';

export function ThreadPage({ id, session, onMenu }: { id: string | null; session: Session; onMenu: (() => void) | null }) {
  const thread = id === null ? freshThread() : threadOf(id);
  return (
    <>
      <Header thread={thread} session={session} onMenu={onMenu} />
      <ThreadView key={keyOf(thread)} thread={thread} me={session.me.user ?? null} />
    </>
  );
}

/** One view for one thread, from before it has an id. */
const keys = new WeakMap<Thread, number>();
let last = 0;
function keyOf(thread: Thread): number {
  if (!keys.has(thread)) keys.set(thread, ++last);
  return keys.get(thread) as number;
}

function useOffline(): boolean {
  const [offline, setOffline] = useState(!navigator.onLine);
  useEffect(() => {
    const look = () => setOffline(!navigator.onLine);
    window.addEventListener('online', look);
    window.addEventListener('offline', look);
    return () => {
      window.removeEventListener('online', look);
      window.removeEventListener('offline', look);
    };
  }, []);
  return offline;
}

function titleOf({ conversation, messages, phase, sending }: ThreadState): string {
  if (phase === 'new' && !sending) return 'New thread';
  const first = messages[0]?.blocks[0];
  return conversation?.attributes.title || (first?.type === 'text' ? (first.text.split('\n')[0] ?? '') : '') || 'New thread';
}

function Header({ thread, session, onMenu }: { thread: Thread; session: Session; onMenu: (() => void) | null }) {
  const state = useSyncExternalStore(thread.subscribe, thread.get);
  const offline = useOffline();
  const title = titleOf(state);
  useEffect(() => {
    document.title = `${state.live ? '● ' : ''}${title} · Threadkeep`;
  }, [title, state.live]);
  const lost = offline || state.unreachable || state.live?.connected === false;
  return (
    <>
      <header className="z-10 flex h-14 shrink-0 items-center gap-1 px-3">
        {onMenu && (
          <IconButton name="Show the history" onClick={onMenu} data-fold>
            <PanelLeftOpen size={18} aria-hidden />
          </IconButton>
        )}
        <h1 className="min-w-0 grow truncate px-2 text-small font-medium text-soft" dir="auto">
          {title}
        </h1>
        {lost && (
          <p role="status" data-offline className="flex shrink-0 items-center gap-1.5 rounded-full bg-warn-wash px-3 py-1 text-tiny font-medium text-warn">
            <WifiOff size={13} aria-hidden />
            {offline ? 'Offline' : 'Reconnecting…'}
          </p>
        )}
        {state.conversation && owns(session, state.conversation) && <ThreadMenu conversation={state.conversation} onChanged={() => thread.refresh()} />}
        <IconButton name="New thread" onClick={() => go(paths.fresh)}>
          <SquarePen size={17} aria-hidden />
        </IconButton>
      </header>
      {state.conversation && <Tabs conversation={state.conversation} onChanged={() => thread.refresh()} />}
    </>
  );
}

function ThreadMenu({ conversation, onChanged }: { conversation: Conversation; onChanged: () => Promise<void> }) {
  const client = useQueryClient();
  const shared = conversation.attributes.visibility === 'workspace';
  const share = async () => {
    await updateConversation(conversation.id, { visibility: shared ? 'private' : 'workspace' });
    await Promise.all([onChanged(), settle(client)]);
    toast(shared ? 'Only you see this thread now.' : 'Everybody in the workspace sees this thread now.');
  };
  const leave = async () => {
    const address = paths.thread(conversation.id);
    const gone = await remove(client, conversation, () => go(address));
    if (gone && location.pathname.startsWith(address)) go(paths.fresh);
  };
  return (
    <Menu
      align="end"
      trigger={
        <button type="button" aria-label="More for this thread" className="grid size-9 shrink-0 place-items-center rounded-md text-soft hover:bg-hover hover:text-ink">
          <Ellipsis size={18} aria-hidden />
        </button>
      }
    >
      <MenuItem icon={shared ? <Lock size={15} aria-hidden /> : <Users size={15} aria-hidden />} onSelect={() => void share().catch(complain)}>
        {shared ? 'Make private' : 'Share with the workspace'}
      </MenuItem>
      <MenuItem
        icon={<Trash2 size={15} aria-hidden />}
        danger
        onSelect={() => void leave()}
      >
        Delete
      </MenuItem>
    </Menu>
  );
}
