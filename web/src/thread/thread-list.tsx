// The rows of a thread, of which only those in sight are drawn. It stays at the end while the answer grows, unless
// the reader has scrolled away; older messages come as they are scrolled to.
import { useVirtualizer } from '@tanstack/react-virtual';
import { ArrowDown } from 'lucide-react';
import { useEffect, useEffectEvent, useRef, useState, type ReactNode } from 'react';
import { keepPlace, readPlace } from '../router';
import { Spinner } from '../ui/bits';
import { IconButton } from '../ui/button';
import { Guard } from '../ui/guard';
import type { Row } from './rows';

type Props = { rows: Row[]; hasOlder: boolean; loadingOlder: boolean; onOlder: (limit?: number) => void; target: string; draw: (row: Row) => ReactNode };

const NEAR_END = 60;

const isTarget = (row: Row | undefined, target: string) => row !== undefined && row.kind !== 'live' && row.message.id === target;

const isStored = (row: Row | undefined) => row !== undefined && row.kind !== 'live' && !(row.kind === 'user' && row.pending);

/** From what is in sight to the end. */
const distance = (element: Element) => element.scrollHeight - element.scrollTop - element.clientHeight;

export function ThreadList({ rows, hasOlder, loadingOlder, onOlder, target, draw }: Props) {
  const frame = useRef<HTMLDivElement>(null);
  const [atEnd, setAtEnd] = useState(true);
  const list = useVirtualizer({
    count: rows.length,
    getScrollElement: () => frame.current,
    getItemKey: (at) => (rows[at] as Row).key,
    estimateSize: (at) => (rows[at]?.kind === 'user' ? 100 : 260),
    overscan: 4,
    anchorTo: 'end',
    followOnAppend: true,
    scrollEndThreshold: NEAR_END,
  });
  const items = list.getVirtualItems();

  // Whether the reader wants to see the end. Where the end is now does not tell it: the composer grows and shrinks and
  // rows come between two looks. Only who scrolls up leaves it.
  const following = useRef(true);
  const seen = useRef({ top: 0, height: 0 });
  const look = (element: Element) => {
    const { top, height } = seen.current;
    seen.current = { top: element.scrollTop, height: element.clientHeight };
    const end = distance(element) < NEAR_END;
    setAtEnd(end);
    // In a frame of another height the browser has moved it.
    if (end) following.current = true;
    else if (element.scrollTop < top && element.clientHeight === height) following.current = false;
    clearTimeout(noting.current);
    noting.current = setTimeout(note, 200);
  };

  const placed = useRef(false);
  const reached = useRef('');

  // After a reload and on the way back the first look is where the reader was.
  const place = useRef(readPlace());
  const [sought, setSought] = useState(place.current !== null);
  const noting = useRef<ReturnType<typeof setTimeout>>(undefined);
  const note = useEffectEvent(() => {
    clearTimeout(noting.current);
    const top = frame.current?.scrollTop ?? 0;
    if (sought) return;
    let at = following.current ? -1 : (list.getVirtualItemForOffset(top)?.index ?? -1);
    while (at >= 0 && !isStored(rows[at])) at -= 1;
    const row = rows[at];
    const start = list.measurementsCache[at]?.start;
    keepPlace(row && row.kind !== 'live' && start !== undefined ? { message: row.message.id, offset: Math.round(top - start) } : null);
  });
  useEffect(() => {
    const leave = () => note();
    window.addEventListener('pagehide', leave);
    return () => {
      window.removeEventListener('pagehide', leave);
      clearTimeout(noting.current);
    };
  }, []);
  const returnTo = useEffectEvent(() => {
    const at = place.current ? rows.findIndex((row) => isTarget(row, place.current?.message ?? '')) : -1;
    const start = list.measurementsCache[at]?.start;
    if (place.current && start !== undefined) list.scrollToOffset(start + place.current.offset);
  });
  useEffect(() => {
    if (!sought || rows.length === 0) return;
    const at = rows.findIndex((row) => isTarget(row, place.current?.message ?? ''));
    if (at < 0 && hasOlder) {
      if (!loadingOlder) onOlder(1000);
      return;
    }
    setSought(false);
    if (at < 0) return;
    placed.current = true;
    reached.current = target;
    following.current = false;
    list.scrollToIndex(at, { align: 'start' });
    // Once it is drawn it is known how high it is; what is drawn anew after that moves it for a while.
    requestAnimationFrame(() => requestAnimationFrame(returnTo));
    setTimeout(() => (place.current = null), 2_000);
  }, [sought, rows, hasOlder, loadingOlder, onOlder, target, list]);

  // Else at the newest message.
  useEffect(() => {
    if (placed.current || sought || rows.length === 0) return;
    placed.current = true;
    list.scrollToEnd();
  }, [rows.length, sought, list]);

  // Or at the message that the address points at, once it is there.
  useEffect(() => {
    const at = target && target !== reached.current ? rows.findIndex((row) => isTarget(row, target)) : -1;
    if (at < 0) return;
    reached.current = target;
    place.current = null;
    following.current = false;
    list.scrollToIndex(at, { align: 'start' });
  }, [target, rows, list]);

  // What the reader has just said is always shown.
  const saying = rows.at(-1)?.key === 'sending-live';
  useEffect(() => {
    if (!saying) return;
    following.current = true;
    list.scrollToEnd();
  }, [saying, list]);

  // When the frame gets smaller (the composer grows, a queue appears) or rows come, the end stays in sight.
  useEffect(() => {
    const element = frame.current;
    const inside = element?.firstElementChild;
    if (!element || !inside) return;
    let height = element.clientHeight;
    const watch = new ResizeObserver(() => {
      const shrunk = element.clientHeight < height;
      height = element.clientHeight;
      returnTo();
      if (following.current && (shrunk || distance(element) >= NEAR_END)) list.scrollToEnd();
      setAtEnd(distance(element) < NEAR_END);
    });
    watch.observe(element);
    watch.observe(inside);
    const moved = () => (place.current = null);
    const moves = ['wheel', 'pointerdown', 'keydown'] as const;
    for (const name of moves) element.addEventListener(name, moved, { passive: true });
    return () => {
      watch.disconnect();
      for (const name of moves) element.removeEventListener(name, moved);
    };
  }, [list]);

  const first = items[0]?.index ?? 0;
  useEffect(() => {
    if (first < 8 && hasOlder && !loadingOlder && placed.current) onOlder();
  }, [first, hasOlder, loadingOlder, onOlder]);

  return (
    <div className="relative min-h-0 grow">
      <div
        ref={frame}
        tabIndex={0}
        role="region"
        aria-label="Messages"
        onScroll={(event) => look(event.currentTarget)}
        className="h-full overflow-x-hidden overflow-y-auto overscroll-contain [overflow-anchor:none] focus-visible:outline-offset-[-3px]"
      >
        <div className="relative w-full" style={{ height: list.getTotalSize() }}>
          <div className="absolute inset-x-0 top-0" style={{ transform: `translateY(${items[0]?.start ?? 0}px)` }}>
            {items.map((item) => (
              <div key={item.key} ref={list.measureElement} data-index={item.index} className={`${isTarget(rows[item.index], target) ? 'found' : ''} mx-auto w-full max-w-thread px-4 md:px-6 ${item.index === 0 ? 'pt-4' : ''} ${item.index === rows.length - 1 ? 'pb-6' : ''}`}>
                <Guard instead={<p className="py-4 text-small text-danger">This message cannot be shown.</p>}>{draw(rows[item.index] as Row)}</Guard>
              </div>
            ))}
          </div>
        </div>
      </div>
      {loadingOlder && (
        <div className="absolute inset-x-0 top-2 z-10 flex justify-center">
          <Spinner label="Loading older messages" />
        </div>
      )}
      {!atEnd && (
        <div className="pointer-events-none absolute inset-x-0 bottom-3 flex justify-center">
          <IconButton name="To the newest message" side="top" onClick={() => list.scrollToEnd({ behavior: 'smooth' })} className="pointer-events-auto rounded-full! border border-line bg-raised shadow-float">
            <ArrowDown size={17} aria-hidden />
          </IconButton>
        </div>
      )}
    </div>
  );
}
