// The rows of a thread, of which only those in sight are drawn. It stays at the end while the answer grows, unless
// the reader has scrolled away; older messages come as they are scrolled to.
import { useVirtualizer } from '@tanstack/react-virtual';
import { ArrowDown } from 'lucide-react';
import { useEffect, useRef, useState, type ReactNode } from 'react';
import { Spinner } from '../ui/bits';
import { IconButton } from '../ui/button';
import { Guard } from '../ui/guard';
import type { Row } from './rows';

type Props = { rows: Row[]; hasOlder: boolean; loadingOlder: boolean; onOlder: () => void; target: string; draw: (row: Row) => ReactNode };

const NEAR_END = 60;

const isTarget = (row: Row | undefined, target: string) => row !== undefined && row.kind !== 'live' && row.message.id === target;

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
  };

  // The first look is at the newest message.
  const placed = useRef(false);
  useEffect(() => {
    if (placed.current || rows.length === 0) return;
    placed.current = true;
    list.scrollToEnd();
  }, [rows.length, list]);

  // Then at the message that the address points at, once it is there.
  const reached = useRef('');
  useEffect(() => {
    const at = target && target !== reached.current ? rows.findIndex((row) => isTarget(row, target)) : -1;
    if (at < 0) return;
    reached.current = target;
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
      if (following.current && (shrunk || distance(element) >= NEAR_END)) list.scrollToEnd();
      setAtEnd(distance(element) < NEAR_END);
    });
    watch.observe(element);
    watch.observe(inside);
    return () => watch.disconnect();
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
