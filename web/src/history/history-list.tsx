// The history: grouped by the reader's own dates, thousands of threads long, of which those in sight are drawn.
import { useQueryClient } from '@tanstack/react-query';
import { useVirtualizer } from '@tanstack/react-virtual';
import { useEffect, useEffectEvent, useMemo, useRef } from 'react';
import { flushSync } from 'react-dom';
import type { Conversation } from '../client/types';
import { lodgings } from '../composer/outbox';
import { go, paths } from '../router';
import type { Session } from '../session';
import { owns } from '../thread/rights';
import { Spinner } from '../ui/bits';
import { remove, rename, useHistory } from './history-data';
import { addressOf, HistoryItem } from './history-item';

type Row = { kind: 'group'; name: string } | { kind: 'thread'; conversation: Conversation };

const groups: Record<string, string> = {
  today: 'Today',
  yesterday: 'Yesterday',
  previous_7_days: 'Previous 7 days',
  previous_30_days: 'Previous 30 days',
};

function groupName(group: string): string {
  const [year, month] = group.split('-').map(Number);
  if (groups[group] || !year || !month) return groups[group] ?? group;
  return new Date(year, month - 1).toLocaleDateString(undefined, { year: 'numeric', month: 'long' });
}

function rowsOf(found: Conversation[], searching: boolean): Row[] {
  const rows: Row[] = [];
  let group: string | null | undefined;
  for (const conversation of found) {
    const next = conversation.meta?.group;
    if (!searching && next && next !== group) rows.push({ kind: 'group', name: groupName(next) });
    group = next;
    rows.push({ kind: 'thread', conversation });
  }
  return rows;
}

/** By arrow from one thread to the next. */
function walk(event: React.KeyboardEvent<HTMLElement>): void {
  const way = event.key === 'ArrowDown' ? 1 : event.key === 'ArrowUp' ? -1 : 0;
  const links = [...event.currentTarget.querySelectorAll<HTMLElement>('a')];
  const at = links.indexOf(event.target as HTMLElement);
  if (way === 0 || at < 0) return;
  event.preventDefault();
  links[at + way]?.focus();
}

export function HistoryList({ query, session, current, asked, onOpen }: {
  query: string;
  session: Session;
  current: string | null;
  asked: string | null;
  onOpen: () => void;
}) {
  const client = useQueryClient();
  const workspace = session.workspace?.id ?? null;
  const frame = useRef<HTMLDivElement>(null);
  const { data, error, hasNextPage, isFetchingNextPage, fetchNextPage, isPlaceholderData } = useHistory(query, workspace);
  const found = useMemo(() => {
    // Where the files of a new thread lie is no thread yet.
    const seen = lodgings(workspace);
    // A thread that moved between two pages is shown once.
    return (data?.pages ?? []).flatMap((page) => page.data).filter(({ id }) => !seen.has(id) && seen.add(id));
  }, [data, workspace]);
  const rows = useMemo(() => rowsOf(found, query !== ''), [found, query]);
  const list = useVirtualizer({
    count: rows.length,
    getScrollElement: () => frame.current,
    getItemKey: (at) => {
      const row = rows[at] as Row;
      return row.kind === 'group' ? `group ${row.name}` : row.conversation.id;
    },
    estimateSize: (at) => (rows[at]?.kind === 'group' ? 36 : 34),
    overscan: 10,
  });
  const items = list.getVirtualItems();
  const last = items.at(-1)?.index ?? 0;
  useEffect(() => {
    if (hasNextPage && !isFetchingNextPage && last >= rows.length - 10) void fetchNextPage();
  }, [last, rows.length, hasNextPage, isFetchingNextPage, fetchNextPage]);

  const opened = useRef<string | null>(null);
  const openFirst = useEffectEvent(() => {
    const [best] = found;
    opened.current = asked;
    if (!best || !asked) return;
    go(addressOf(best));
    onOpen();
  });
  const ready = asked === query && data !== undefined && !isPlaceholderData;
  useEffect(() => {
    if (asked === null) opened.current = null;
    else if (ready && opened.current !== asked) openFirst();
  }, [asked, ready]);

  const removeOne = (conversation: Conversation) => {
    const { id } = conversation;
    const open = current === id;
    if (open) {
      const here = document.activeElement as HTMLElement | null;
      flushSync(() => go(paths.fresh));
      // The new thread takes the focus; who works through the history stays there.
      here?.focus();
    }
    void remove(client, conversation, () => open && go(paths.thread(id)));
  };

  return (
    <div ref={frame} className="min-h-0 grow overflow-y-auto overscroll-contain px-2 pb-3" data-history aria-busy={isPlaceholderData}>
      {!data && !error && (
        <div className="flex justify-center p-6">
          <Spinner label="Loading the history" />
        </div>
      )}
      {error && !data && <p className="p-3 text-small text-danger">{error.message}</p>}
      {data && rows.length === 0 && <p className="px-3 py-6 text-small text-faint">{query ? 'Nothing was found.' : 'Your threads will be here.'}</p>}
      {/* oxlint-disable-next-line jsx-a11y/no-noninteractive-element-interactions -- arrows go between what is interactive in it */}
      <ul aria-label={query ? 'Found threads' : 'Threads'} className="relative" style={{ height: list.getTotalSize() }} onKeyDown={walk}>
        {items.map((item) => {
          const row = rows[item.index] as Row;
          return (
            <li key={item.key} ref={list.measureElement} data-index={item.index} className="absolute inset-x-0 top-0 pb-px" style={{ transform: `translateY(${item.start}px)` }}>
              {row.kind === 'group' ? (
                <h3 className="px-3 pt-4 pb-1 text-tiny font-semibold text-faint">{row.name}</h3>
              ) : (
                <HistoryItem
                  conversation={row.conversation}
                  current={row.conversation.id === current}
                  onOpen={onOpen}
                  onRename={(title) => void rename(client, row.conversation.id, title)}
                  onDelete={owns(session, row.conversation) ? () => removeOne(row.conversation) : null}
                />
              )}
            </li>
          );
        })}
      </ul>
      {isFetchingNextPage && (
        <div className="flex justify-center p-3">
          <Spinner label="Loading more" />
        </div>
      )}
    </div>
  );
}
