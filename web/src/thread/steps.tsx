// What the assistant did: a fold of rows that change in place. Open while it works, folded when it is done, as long
// as nobody says otherwise.
import { ChevronRight, CircleAlert, CircleCheck, CircleSlash, Lightbulb } from 'lucide-react';
import { memo, useEffect, useState } from 'react';
import { pretty, toNumber, type Json } from '../client/json';
import type { ReasoningBlock, StepBlock, ToolCallBlock } from '../client/types';
import { duration, Spinner } from '../ui/bits';
import { CopyButton } from './code';
import { Markdown } from './markdown';

export type Work = StepBlock | ToolCallBlock | ReasoningBlock;
type State = 'running' | 'succeeded' | 'failed' | 'interrupted';

function stateOf(block: Work, last: boolean, live: boolean): State {
  if (block.type === 'step') return block.status;
  if (block.type === 'reasoning') return live && last ? 'running' : 'succeeded';
  if (block.error !== null) return block.error === 'interrupted' ? 'interrupted' : 'failed';
  return live && block.result === null ? 'running' : 'succeeded';
}

const words: Record<State, string> = { running: 'running', succeeded: 'done', failed: 'failed', interrupted: 'interrupted' };

function StateIcon({ state, reasoning }: { state: State; reasoning: boolean }) {
  if (state === 'running') return <Spinner label="running" size={15} />;
  const shared = { size: 15, role: 'img', 'aria-label': words[state], className: 'shrink-0' } as const;
  if (state === 'failed') return <CircleAlert {...shared} className="shrink-0 text-danger" />;
  if (state === 'interrupted') return <CircleSlash {...shared} className="shrink-0 text-warn" />;
  return reasoning ? (
    <Lightbulb {...shared} className="shrink-0 text-faint" />
  ) : (
    <CircleCheck {...shared} className="shrink-0 text-accent" />
  );
}

/** Runs of `Date.now()` only while something is under way. */
function useNow(active: boolean): number {
  const [now, setNow] = useState(() => Date.now());
  useEffect(() => {
    if (!active) return;
    const timer = setInterval(() => setNow(Date.now()), 100);
    return () => clearInterval(timer);
  }, [active]);
  return now;
}

function Took({ block, state }: { block: Work; state: State }) {
  const now = useNow(block.type === 'step' && state === 'running');
  if (block.type !== 'step') return null;
  const told = toNumber(block.durationMs);
  const ms = told ?? (state === 'running' ? Math.max(0, now - block.startedAt) : undefined);
  return ms === undefined ? null : <span data-took className="shrink-0 whitespace-nowrap text-faint tabular-nums">{duration(ms)}</span>;
}

function Value({ name, value }: { name: string; value: Json }) {
  const text = typeof value === 'string' ? value : pretty(value);
  return (
    <div className="group/value relative">
      <div className="mb-1 text-tiny font-medium text-faint">{name}</div>
      <pre dir="auto" tabIndex={0} aria-label={name} role="group" className="max-h-72 overflow-auto rounded-md bg-code p-3 font-mono text-[0.78rem] leading-5 whitespace-pre-wrap [overflow-wrap:anywhere]">
        {text}
      </pre>
      <CopyButton text={text} label={`Copy ${name.toLowerCase()}`} className="absolute top-6 right-1 bg-raised opacity-0 group-focus-within/value:opacity-100 group-hover/value:opacity-100" />
    </div>
  );
}

function Details({ block }: { block: Work }) {
  if (block.type === 'reasoning') {
    return (
      <div className="text-small text-soft">
        <Markdown text={block.text} />
      </div>
    );
  }
  const has = (value: Json | undefined): value is Json => value !== undefined && value !== null;
  const cut = block.type === 'tool_call' && block.truncated;
  const nothing = !has(block.args) && !has(block.result) && !block.error;
  return (
    <>
      {has(block.args) && <Value name="Arguments" value={block.args} />}
      {has(block.result) && <Value name={cut ? 'Result (shortened; the trace has all of it)' : 'Result'} value={block.result} />}
      {block.error && <Value name="Error" value={block.error} />}
      {nothing && <p className="text-small text-faint">It said nothing more.</p>}
    </>
  );
}

const Row = memo(function Row({ block, state }: { block: Work; state: State }) {
  const [open, setOpen] = useState(false);
  const name = block.type === 'reasoning' ? (state === 'running' ? 'Thinking' : 'Thought about it') : block.name;
  const hint = block.type === 'reasoning' ? '' : summary(block);
  return (
    <li data-block={block.type} data-status={state}>
      <button
        type="button"
        aria-expanded={open}
        onClick={() => setOpen(!open)}
        className="group flex w-full items-center gap-2.5 rounded-md px-2 py-1.5 text-left text-small hover:bg-hover"
      >
        <StateIcon state={state} reasoning={block.type === 'reasoning'} />
        <bdi className="max-w-[60%] shrink-0 truncate font-medium">{name || 'Step'}</bdi>
        <bdi className="min-w-0 grow truncate text-faint">{state === 'failed' && block.type !== 'reasoning' ? block.error : hint}</bdi>
        <Took block={block} state={state} />
        <ChevronRight size={14} aria-hidden className={`shrink-0 text-faint transition-transform ${open ? 'rotate-90' : ''}`} />
      </button>
      {open && (
        <div className="mt-1 mb-2 ml-8 grid gap-3">
          <Details block={block} />
        </div>
      )}
    </li>
  );
});

/** The arguments in one line. */
function summary(block: StepBlock | ToolCallBlock): string {
  const { args } = block;
  if (args === undefined || args === null) return '';
  if (typeof args !== 'object' || Array.isArray(args)) return pretty(args).replace(/\s+/g, ' ').slice(0, 200);
  const values = Object.values(args as Record<string, Json>).filter((value) => value !== null);
  return values
    .map((value) => (typeof value === 'string' ? value : pretty(value).replace(/\s+/g, ' ')))
    .join(' · ')
    .slice(0, 200);
}

function headline(work: Work[], states: State[]): string {
  const steps = work.filter((block) => block.type !== 'reasoning').length;
  const failed = states.filter((state) => state === 'failed').length;
  const thought = states.includes('running') ? 'Thinking…' : 'Thought about it';
  const count = steps === 0 ? thought : `${steps} ${steps === 1 ? 'step' : 'steps'}`;
  return failed > 0 && steps > 0 ? `${count}, ${failed} failed` : count;
}

/** How long it took, where every step says so. */
function total(work: Work[]): number | null {
  let sum = 0;
  for (const block of work) {
    const ms = block.type === 'step' ? toNumber(block.durationMs) : undefined;
    if (ms === undefined) return null;
    sum += ms;
  }
  return sum;
}

const SHOWN = 100;

export function Steps({ work, live, working }: { work: Work[]; live: boolean; working: boolean }) {
  const [chosen, setChosen] = useState<boolean | null>(null);
  const [all, setAll] = useState(false);
  const states = work.map((block, at) => stateOf(block, at === work.length - 1 && working, live));
  const open = chosen ?? (live && working);
  const running = states.includes('running');
  const thoughts = work.every((block) => block.type === 'reasoning');
  const current = work[states.lastIndexOf('running')] ?? work.at(-1);
  const name = current && current.type !== 'reasoning' ? current.name : 'Thinking';
  const ms = running ? null : total(work);
  const skipped = all ? 0 : Math.max(0, work.length - SHOWN);
  return (
    <div className="my-3" data-steps={work.length}>
      <button
        type="button"
        aria-expanded={open}
        onClick={() => setChosen(!open)}
        className="-ml-2 flex max-w-full items-center gap-2 rounded-md px-2 py-1 text-small text-soft hover:bg-hover hover:text-ink"
      >
        <ChevronRight size={15} aria-hidden className={`shrink-0 transition-transform ${open ? 'rotate-90' : ''}`} />
        <bdi className={`truncate ${running && !open ? 'shimmer' : ''}`}>{running && !open ? name : headline(work, states)}</bdi>
        {ms !== null && <span className="shrink-0 text-faint tabular-nums">{duration(ms)}</span>}
        {!running && states.includes('interrupted') && <span className="shrink-0 text-warn">unfinished</span>}
      </button>
      {open && thoughts && (
        <div data-block="reasoning" className="mt-1 ml-[0.4rem] border-l border-line py-1 pl-4 text-small text-soft">
          {work.map((block, at) => block.type === 'reasoning' && <Markdown key={at} text={block.text} />)}
        </div>
      )}
      {open && !thoughts && (
        <ul className="mt-1 ml-[0.4rem] border-l border-line pl-3">
          {skipped > 0 && (
            <li>
              <button type="button" className="rounded-md px-2 py-1 text-small text-accent hover:bg-hover" onClick={() => setAll(true)}>
                Show {skipped} earlier steps
              </button>
            </li>
          )}
          {work.slice(skipped).map((block, at) => (
            <Row key={skipped + at} block={block} state={states[skipped + at] as State} />
          ))}
        </ul>
      )}
    </div>
  );
}
