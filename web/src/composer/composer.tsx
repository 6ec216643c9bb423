// Where the user writes: text, files, the mode, and Send or Stop.
import { ArrowUp, Paperclip, Square } from 'lucide-react';
import { useEffect, useEffectEvent, useRef, useState } from 'react';
import type { Thread, ThreadState } from '../client/thread';
import type { Mode } from '../client/types';
import { Spinner } from '../ui/bits';
import { GrowingText } from '../ui/growing';
import { IconButton } from '../ui/button';
import { complain } from '../ui/toast';
import { AttachmentList } from './attachment-list';
import { obstacle, useAttachments } from './attachments';
import { keepChosen, keepDraft, onPutBack, placeIn, placeOf, readChosen, readDraft, type Chosen } from './drafts';
import { DropArea } from './drop-area';
import { toComposer } from './focus';
import { ModePicker } from './mode';
import { ModelPicker, type Choice } from './model';
import { post } from './outbox';
import { pastedFiles } from './paste';

/** Only what was chosen here: the conversation remembers the rest. */
const named = (choice: Choice | null) => ({
  ...(choice?.model ? { model: choice.model } : {}),
  ...(choice?.agent ? { agent: choice.agent } : {}),
});

/** What the conversation remembers and is to forget: a turn can name another model or agent, but not none. */
const unnamed = (choice: Choice | null, was: Choice) => ({
  ...(choice && !choice.model && was.model ? { model: null } : {}),
  ...(choice && !choice.agent && was.agent ? { agent_id: null } : {}),
});

/** `offered` is a text to begin with, each time another object. */
export function Composer({ thread, state, offered }: { thread: Thread; state: ThreadState; offered: { text: string } | null }) {
  const [text, setText] = useState(() => readDraft(placeOf(thread)));
  const [chosen, setChosen] = useState(() => readChosen(placeOf(thread)));
  const field = useRef<HTMLTextAreaElement>(null);
  const picker = useRef<HTMLInputElement>(null);
  const { files, add, remove, take } = useAttachments(thread);

  const stored = state.conversation?.attributes.mode as Mode | null | undefined;
  const { answering } = chosen;
  const mode = chosen.mode ?? stored ?? 'agent';
  const { model = null, agent_id: agent = null } = state.conversation?.attributes ?? {};
  const remembered = { model, agent };
  const choice = answering ?? remembered;
  const running = state.live !== null;
  const uploading = files.some((file) => !file.done);
  const blocked = obstacle(files);
  const said = (text.trim() !== '' || files.length > 0) && state.phase !== 'loading' && !state.sending;
  const ready = said && !uploading;
  // Sent too early: it goes when the files are there.
  const [eager, setEager] = useState(false);
  const waiting = eager && uploading;
  // Without the file that was refused it may no longer be what was meant.
  if (eager && blocked) setEager(false);

  const write = (next: string) => {
    setEager(false);
    setText(next);
    keepDraft(placeOf(thread), next);
  };

  const choose = (change: Partial<Chosen>) => {
    const next = { ...chosen, ...change };
    setChosen(next);
    keepChosen(placeOf(thread), next);
  };

  const taken = useRef(offered);
  useEffect(() => {
    if (!offered || taken.current === offered) return;
    taken.current = offered;
    setText(offered.text);
    keepDraft(placeOf(thread), offered.text);
    field.current?.focus();
  }, [offered, thread]);

  const send = () => {
    setEager(said && uploading && !blocked);
    if (!ready) return;
    const place = placeOf(thread);
    const files = take();
    // A turn needs words: files alone are named.
    const words = text.trim() ? text : files.map((file) => file.name).join(', ');
    const conversation = files[0]?.conversation;
    const turn = thread.say({ text: words, mode, attachments: files, forget: unnamed(answering, remembered), ...(conversation ? { conversation } : {}), ...named(answering) });
    post(thread, turn, { text, files, chosen }).catch(complain);
    setText('');
    keepDraft(place, '');
    keepChosen(place, null);
    field.current?.focus();
  };

  useEffect(() => {
    const again = () => {
      setText(readDraft(placeOf(thread)));
      setChosen(readChosen(placeOf(thread)));
    };
    return onPutBack(() => placeOf(thread), again);
  }, [thread]);

  // What was written while the first message was on its way stays with the thread.
  const settle = useEffectEvent(() => {
    const before = placeIn(thread.workspace, null);
    if (!text || readDraft(before) !== text) return;
    keepDraft(placeOf(thread), text);
    keepDraft(before, '');
  });
  const begun = useRef(state.id !== null);
  useEffect(() => {
    if (begun.current || state.id === null) return;
    begun.current = true;
    settle();
  }, [state.id]);

  const stop = () => {
    thread.stop().catch(complain);
    toComposer();
  };

  const sendNow = useEffectEvent(send);
  useEffect(() => {
    if (!eager || uploading) return;
    const timer = setTimeout(() => sendNow());
    return () => clearTimeout(timer);
  }, [eager, uploading]);

  useEffect(() => {
    const key = (event: KeyboardEvent) => {
      const typing = (event.target as HTMLElement).closest?.('input, textarea, select, [contenteditable], dialog, [role="menu"]');
      if (event.key === '/' && !typing && !event.ctrlKey && !event.metaKey) {
        event.preventDefault();
        field.current?.focus();
      }
    };
    window.addEventListener('keydown', key);
    return () => window.removeEventListener('keydown', key);
  }, []);

  return (
    <DropArea onDrop={add}>
      <form
        aria-label="Write a message"
        data-composer
        onSubmit={(event) => {
          event.preventDefault();
          send();
        }}
        className="rounded-xl border border-line-strong bg-raised p-2 shadow-float transition-colors focus-within:border-accent"
      >
        <div className="px-2 pt-1.5">
          <AttachmentList
            files={files}
            onRemove={(key) => {
              remove(key);
              toComposer();
            }}
          />
          <p role="status" className="text-small text-danger not-empty:mb-2">
            {blocked}
          </p>
          <GrowingText
            label="Message"
            fieldRef={field}
            autoFocus={!matchMedia('(pointer: coarse)').matches}
            value={text}
            onChange={write}
            placeholder={running ? 'Write what comes next…' : 'Write a message…'}
            onPaste={(event) => {
              const pasted = pastedFiles(event.clipboardData);
              if (pasted.length === 0) return;
              event.preventDefault();
              add(pasted);
            }}
            onEnter={send}
            onKeyDown={(event) => {
              if (event.key === 'ArrowUp' && text === '') {
                // The key would go on in the field of the edit and take the caret up from the end.
                event.preventDefault();
                const edits = document.querySelectorAll<HTMLButtonElement>('[data-edit]:not(:disabled)');
                edits[edits.length - 1]?.click();
              }
            }}
          />
        </div>
        <div className="mt-1.5 flex items-center gap-1">
          <IconButton name="Attach files" side="top" onClick={() => picker.current?.click()}>
            <Paperclip size={18} aria-hidden />
          </IconButton>
          <input
            ref={picker}
            type="file"
            multiple
            hidden
            tabIndex={-1}
            aria-hidden
            onChange={(event) => {
              if (event.target.files) add([...event.target.files]);
              event.target.value = '';
            }}
          />
          <ModePicker value={mode} onChange={(next) => choose({ mode: next })} />
          <ModelPicker value={choice} onChange={(next) => choose({ answering: next })} />
          <span className="grow" />
          {running && (
            <IconButton name="Stop" side="top" disabled={state.stopping} onClick={stop} className="rounded-full! border border-line-strong text-ink!">
              <Square size={13} fill="currentColor" aria-hidden />
            </IconButton>
          )}
          {(!running || said) && (
            <IconButton name={waiting ? 'Sent when the files are there' : running ? 'Send after this answer' : 'Send'} type="submit" side="top" title={blocked ?? undefined} disabled={!said || blocked !== null || waiting} className="rounded-full! bg-accent text-on-accent! enabled:hover:bg-accent-strong! disabled:bg-active! disabled:text-faint! disabled:opacity-100">
              {waiting ? <Spinner size={16} /> : <ArrowUp size={18} aria-hidden />}
            </IconButton>
          )}
        </div>
      </form>
    </DropArea>
  );
}
