// A thread on the page: its messages, its state, and the composer.
import { CircleHelp, MessageSquarePlus, Undo2 } from 'lucide-react';
import { useCallback, useEffect, useMemo, useState, useSyncExternalStore } from 'react';
import { forkConversation } from '../client/api';
import type { Thread, ThreadState } from '../client/thread';
import { announce } from '../client/windows';
import type { Message } from '../client/types';
import { Composer } from '../composer/composer';
import { toComposer } from '../composer/focus';
import { post } from '../composer/outbox';
import { go, paths, useTarget } from '../router';
import { Notice, Spinner } from '../ui/bits';
import { Button } from '../ui/button';
import { complain, toast } from '../ui/toast';
import { AssistantMessage, LiveMessage } from './assistant-message';
import { useAuthors } from './authors';
import { told } from './failure';
import { useReader } from './markdown';
import { Queue } from './queue';
import { rowsOf, type Row } from './rows';
import { ThreadList } from './thread-list';
import { UserMessage } from './user-message';
import { Welcome } from './welcome';

const none: never[] = [];

function useActions(thread: Thread) {
  return useMemo(() => {
    const id = () => thread.get().id as string;
    const answer = (asked: Message) => {
      post(thread, thread.regenerate(asked), null).catch(complain);
      toComposer();
    };
    return {
      onEdit: (message: Message, text: string) => void post(thread, thread.edit(message, text), null).catch(complain),
      onAnswer: answer,
      onRegenerate: (assistant: Message) => {
        const { messages } = thread.get();
        const at = messages.findIndex((message) => message.id === assistant.id);
        const asked = messages.slice(0, at).findLast((message) => message.role === 'user');
        if (asked) answer(asked);
      },
      onFork: (message: Message) =>
        void forkConversation(id(), message.id).then((fork) => {
          announce({ history: true });
          window.dispatchEvent(new Event('threadkeep:history'));
          go(paths.thread(fork.id));
          toast('This is a fork: the thread up to there, to go on from by itself.');
        }, complain),
      onTrace: (message: Message) =>
        void thread.runOf(message.id).then((run) => {
          if (run) go(paths.run(id(), run));
          else toast('There is no run behind this message.');
        }, complain),
      onShow: (version: string) => void thread.show(version).catch(complain),
    };
  }, [thread]);
}

function status(state: ThreadState): string {
  if (state.unreachable) return 'The connection is lost; trying again.';
  if (state.sending) return 'Sending.';
  if (state.live) return 'The assistant is answering.';
  const last = state.messages.at(-1);
  if (last?.role !== 'assistant') return '';
  const end = last.blocks.at(-1);
  return end?.type === 'error' ? told(end) : 'The answer is complete.';
}

export function ThreadView({ thread, me }: { thread: Thread; me: string | null }) {
  const state = useSyncExternalStore(thread.subscribe, thread.get);
  const actions = useActions(thread);
  const [tried, setTried] = useState<{ text: string } | null>(null);
  const { id, live, sending, versions, stopping } = state;
  const busy = live !== null || sending !== null;
  const rows = useMemo(() => rowsOf(state, thread.keyOf), [state, thread]);
  const target = useTarget();
  const authorOf = useAuthors(state.conversation, state.messages, me);
  // Beside the messages, not after them.
  useReader(id !== null || sending !== null);
  useEffect(() => {
    if (target) thread.reach(target).catch(complain);
  }, [thread, target]);
  const older = useCallback((limit?: number) => void thread.loadOlder(limit), [thread]);

  if (state.phase === 'missing') return <Missing />;
  if (state.phase === 'failed') return <Notice title="This thread cannot be shown">The server refused to show it.</Notice>;

  const draw = (row: Row) => {
    if (row.kind === 'live') {
      return (
        <>
          <LiveMessage
            blocks={sending ? none : (live?.blocks ?? none)}
            approvals={sending ? none : (live?.approvals ?? none)}
            run={live?.run ?? null}
            thread={id}
            stopping={stopping}
            connected={sending ? !sending.waiting : (live?.connected ?? true)}
          />
          {sending?.waiting && <TakeBack thread={thread} />}
        </>
      );
    }
    const siblings = versions.get(row.message.id);
    if (row.kind === 'user') {
      return <UserMessage message={row.message} thread={id} siblings={siblings} busy={busy} last={row.last} pending={row.pending} author={row.pending ? null : authorOf(row.message)} {...actions} />;
    }
    return <AssistantMessage message={row.message} thread={id} siblings={siblings} busy={busy} last={row.last} {...actions} />;
  };

  return (
    <>
      <p role="status" className="sr-only">
        {status(state)}
      </p>
      {state.phase === 'loading' ? (
        <div className="grid grow place-items-center">
          <Spinner size={22} label="Loading the thread" />
        </div>
      ) : rows.length === 0 ? (
        <Welcome onTry={(text) => setTried({ text })} />
      ) : (
        <ThreadList rows={rows} hasOlder={state.hasOlder} loadingOlder={state.loadingOlder} onOlder={older} target={target} draw={draw} />
      )}
      {/* In a window so low that not all of it has room, it is what scrolls. */}
      <div className="mx-auto w-full max-w-thread px-3 pb-[max(0.75rem,env(safe-area-inset-bottom))] md:px-6 [@media(max-height:30rem)]:max-h-[calc(100dvh-3.5rem)] [@media(max-height:30rem)]:shrink-0 [@media(max-height:30rem)]:overflow-y-auto">
        <Queue thread={thread} queue={state.queue} />
        <Composer thread={thread} state={state} offered={tried} />
      </div>
    </>
  );
}

/** What cannot be sent need not wait for ever. */
function TakeBack({ thread }: { thread: Thread }) {
  return (
    <Button
      className="mb-3"
      onClick={() => {
        thread.takeBack();
        toComposer();
      }}
    >
      <Undo2 size={15} aria-hidden />
      Take back
    </Button>
  );
}

function Missing() {
  return (
    <Notice icon={<CircleHelp size={32} aria-hidden />} title="There is no such thread">
      <p className="mb-4">It may have been deleted, or it is not shared with you.</p>
      <Button onClick={() => go(paths.fresh)}>
        <MessageSquarePlus size={15} aria-hidden />
        New thread
      </Button>
    </Notice>
  );
}
