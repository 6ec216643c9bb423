// Everything a run did, logs too, on the line of its time.
import { useInfiniteQuery, useQuery } from '@tanstack/react-query';
import { X } from 'lucide-react';
import { memo, useEffect, useMemo, useRef, useState, type RefObject } from 'react';
import { getRun, getTrace } from '../client/api';
import { pretty, type Json } from '../client/json';
import type { Run, TraceLine } from '../client/types';
import { toComposer } from '../composer/focus';
import { go, paths } from '../router';
import { duration, Spinner } from '../ui/bits';
import { Button } from '../ui/button';
import { nowhere } from '../ui/kept-focus';
import { Timeline } from './timeline';

const active = (run: Run | undefined) => run?.status === 'running' || run?.status === 'queued';

export default function TracePanel({ thread, run }: { thread: string; run: string }) {
  const [kind, setKind] = useState<'all' | 'steps' | 'logs'>('all');
  const about = useQuery({
    queryKey: ['run', run],
    queryFn: () => getRun(run),
    refetchInterval: ({ state }) => (active(state.data) ? 1500 : false),
  });
  const trace = useInfiniteQuery({
    queryKey: ['trace', run, about.data?.status],
    queryFn: ({ pageParam }) => getTrace(run, pageParam),
    initialPageParam: undefined as string | undefined,
    getNextPageParam: (page) => page.next ?? undefined,
    refetchInterval: active(about.data) ? 1500 : false,
    placeholderData: (before) => before,
  });
  const lines = useMemo(() => trace.data?.pages.flatMap((page) => page.data) ?? [], [trace.data]);
  const shown = lines.filter(({ kind: one }) => kind === 'all' || (kind === 'steps' ? one === 'step' || one.startsWith('tool') : one === 'log'));
  const close = () => go(paths.thread(thread));
  const panel = useRef<HTMLElement>(null);

  useEffect(() => {
    // What was left open elsewhere, such as a tooltip, does not keep who is in here.
    const inside = (event: KeyboardEvent) => panel.current?.contains(event.target as Node);
    const escape = (event: KeyboardEvent) => event.key === 'Escape' && (!event.defaultPrevented || inside(event)) && close();
    window.addEventListener('keydown', escape);
    return () => window.removeEventListener('keydown', escape);
  });

  useTakenFocus(panel);

  return (
    <aside ref={panel} aria-label="Trace of the run" className="absolute inset-0 z-20 flex flex-col border-l border-line bg-canvas lg:static lg:w-[27rem] lg:shrink-0">
      <header className="flex h-14 shrink-0 items-center gap-2 border-b border-line pr-3 pl-5">
        <h2 tabIndex={-1} className="grow text-small font-semibold outline-none">
          Trace
        </h2>
        {/* Without a tooltip: that would take the Escape which closes the trace. */}
        <button type="button" aria-label="Close the trace" onClick={close} className="grid size-9 shrink-0 place-items-center rounded-md text-soft hover:bg-hover hover:text-ink">
          <X size={17} aria-hidden />
        </button>
      </header>
      <div className="min-h-0 grow overflow-y-auto px-5 pb-6">
        {(about.error ?? trace.error) && <p className="py-4 text-small text-danger">{(about.error ?? trace.error)?.message}</p>}
        {about.data && <About run={about.data} rejected={trace.data?.pages[0]?.rejected ?? 0} />}
        <Timeline lines={lines} />
        <div role="group" aria-label="Show" className="sticky top-0 z-10 flex gap-1 bg-canvas py-2">
          {(['all', 'steps', 'logs'] as const).map((one) => (
            <button key={one} type="button" aria-pressed={kind === one} onClick={() => setKind(one)} className="rounded-md px-2.5 py-1 text-small text-soft capitalize hover:bg-hover aria-pressed:bg-active aria-pressed:font-medium aria-pressed:text-ink">
              {one}
            </button>
          ))}
        </div>
        {!trace.data && !trace.error && <Spinner label="Loading the trace" />}
        <ol>
          {shown.map((line) => (
            <Line key={line.seq} line={line} start={lines[0]?.ts ?? line.ts} />
          ))}
        </ol>
        {trace.hasNextPage && (
          <Button className="mt-3" disabled={trace.isFetchingNextPage} onClick={() => void trace.fetchNextPage()}>
            Load more
          </Button>
        )}
      </div>
    </aside>
  );
}

/** The panel has the focus while it is open. Where it covers the thread, nothing below it can be reached. */
function useTakenFocus(panel: RefObject<HTMLElement | null>): void {
  useEffect(() => {
    const covered = panel.current?.previousElementSibling as HTMLElement | null;
    const covers = matchMedia('(max-width: 1023px)');
    const opener = document.activeElement as HTMLElement | null;
    panel.current?.querySelector('h2')?.focus({ preventScroll: true });
    const look = () => covered?.toggleAttribute('inert', covers.matches);
    look();
    covers.addEventListener('change', look);
    return () => {
      covers.removeEventListener('change', look);
      covered?.removeAttribute('inert');
      if (nowhere()) opener?.focus({ preventScroll: true });
      if (nowhere()) toComposer();
    };
  }, [panel]);
}

function About({ run, rejected }: { run: Run; rejected: number }) {
  const took = run.started_at && run.ended_at ? Date.parse(run.ended_at) - Date.parse(run.started_at) : null;
  const facts: [string, string][] = [
    ['Status', run.error ? `${run.status}: ${run.error.message}` : run.status],
    ['Took', took === null ? '…' : duration(took)],
    ['Tokens', String(run.usage.total_tokens)],
    ['Run', run.id],
  ];
  if (rejected > 0) facts.push(['Rejected lines', String(rejected)]);
  return (
    <dl className="grid grid-cols-[6.5rem_1fr] gap-y-1 py-4 text-small">
      {facts.map(([name, value]) => (
        <div key={name} className="contents">
          <dt className="text-faint">{name}</dt>
          <dd className="[overflow-wrap:anywhere] tabular-nums">{value}</dd>
        </div>
      ))}
    </dl>
  );
}

const colours: Record<string, string> = { error: 'text-danger', rejected: 'text-danger', ignored: 'text-warn', step: 'text-accent', result: 'text-accent' };

const Line = memo(function Line({ line, start }: { line: TraceLine; start: number }) {
  const [open, setOpen] = useState(false);
  return (
    <li className="border-t border-line first:border-t-0">
      <button type="button" aria-expanded={open} onClick={() => setOpen(!open)} className="grid w-full grid-cols-[3.6rem_4.8rem_1fr] items-baseline gap-2 rounded-sm py-1.5 text-left text-[0.78rem] hover:bg-hover">
        <span className="text-faint tabular-nums">+{duration(Math.max(0, line.ts - start))}</span>
        <span className={`truncate font-medium ${colours[line.kind] ?? 'text-soft'}`}>{line.kind}</span>
        <bdi className="min-w-0 truncate">{gist(line)}</bdi>
      </button>
      {open && (
        <pre tabIndex={0} dir="auto" className="mb-2 max-h-80 overflow-auto rounded-md bg-code p-3 font-mono text-[0.75rem] leading-5 whitespace-pre-wrap [overflow-wrap:anywhere]">
          {pretty(line.line as Json)}
        </pre>
      )}
    </li>
  );
});

function gist({ kind, line }: TraceLine): string {
  const text = (name: string) => (typeof line[name] === 'string' ? (line[name] as string) : '');
  if (kind === 'log') return `${text('level')}: ${text('message')}`;
  if (kind === 'step') return `${text('name')} · ${text('status')}`;
  if (kind === 'rejected') return text('reason');
  if (kind === 'result') return text('message');
  if (kind === 'turn' || kind === 'dispatch') return '';
  return text('message') || text('text') || text('status') || text('name') || JSON.stringify(line).slice(0, 120);
}
