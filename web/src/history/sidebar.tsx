// The left side: a new thread, the search, the history, who is here.
import { PanelLeftClose, Search, Settings, SquarePen, X } from 'lucide-react';
import { useDeferredValue, useEffect, useState, type RefObject } from 'react';
import { useQueryClient } from '@tanstack/react-query';
import { listen } from '../client/windows';
import { follow, go, paths } from '../router';
import { IconButton } from '../ui/button';
import { Mark } from '../ui/mark';
import { WorkspaceMenu } from '../settings/workspace-menu';
import type { Session } from '../session';
import { HistoryList } from './history-list';

/** What was typed, a moment after it was typed. */
function useSettled(value: string, ms: number): string {
  const [settled, setSettled] = useState(value);
  useEffect(() => {
    const timer = setTimeout(() => setSettled(value), value === '' ? 0 : ms);
    return () => clearTimeout(timer);
  }, [value, ms]);
  return useDeferredValue(settled);
}

export function Sidebar({ session, current, searchRef, onClose, onOpen }: {
  session: Session;
  current: string | null;
  searchRef: RefObject<HTMLInputElement | null>;
  onClose: () => void;
  onOpen: () => void;
}) {
  const [typed, setTyped] = useState('');
  const query = useSettled(typed.trim(), 120);
  /** What Enter was pressed for: its best hit is opened once it is found. */
  const [asked, setAsked] = useState<string | null>(null);
  const client = useQueryClient();

  useEffect(() => {
    const again = () => void client.invalidateQueries({ queryKey: ['history'] });
    window.addEventListener('threadkeep:history', again);
    const unlisten = listen((news) => news.history && again());
    return () => {
      window.removeEventListener('threadkeep:history', again);
      unlisten();
    };
  }, [client]);

  return (
    <nav aria-label="Threads" className="flex h-full w-full flex-col bg-sunken">
      <div className="flex items-center gap-2.5 px-3 pt-3 pb-2">
        <Mark size={26} />
        <span className="grow text-[0.95rem] font-semibold tracking-tight">Threadkeep</span>
        <IconButton name="Hide the history" onClick={onClose} data-fold>
          <PanelLeftClose size={18} aria-hidden />
        </IconButton>
      </div>
      <div className="grid gap-1 px-2 pb-1">
        <a
          href={paths.fresh}
          onClick={(event) => {
            follow(event);
            onOpen();
          }}
          className="flex h-9 items-center gap-2.5 rounded-md px-3 text-small font-medium hover:bg-hover"
        >
          <SquarePen size={16} aria-hidden className="text-accent" />
          New thread
        </a>
        <div className="relative" role="search">
          <Search size={15} aria-hidden className="absolute top-2.5 left-3 text-faint" />
          <input
            ref={searchRef}
            type="search"
            aria-label="Search threads"
            placeholder="Search"
            value={typed}
            onChange={(event) => {
              setTyped(event.target.value);
              setAsked(null);
            }}
            onKeyDown={(event) => {
              if (event.key === 'Escape' && typed) {
                event.stopPropagation();
                setTyped('');
              }
              if (event.key === 'Enter' && typed.trim() && !event.nativeEvent.isComposing) setAsked(typed.trim());
              if (event.key === 'ArrowDown') {
                event.preventDefault();
                document.querySelector<HTMLElement>('[data-history] a')?.focus();
              }
            }}
            className="h-9 w-full rounded-md border border-transparent bg-transparent pr-8 pl-9 text-small outline-none placeholder:text-soft hover:bg-hover focus:border-accent focus:bg-raised [&::-webkit-search-cancel-button]:hidden"
          />
          {typed && (
            <button type="button" aria-label="Clear the search" onClick={() => setTyped('')} className="absolute top-1.5 right-1.5 grid size-6 place-items-center rounded-sm text-soft hover:bg-hover">
              <X size={14} aria-hidden />
            </button>
          )}
        </div>
      </div>
      <HistoryList query={query} session={session} current={current} asked={asked} onOpen={onOpen} />
      <div className="flex items-center gap-1 border-t border-line p-2">
        <WorkspaceMenu session={session} />
        <IconButton
          name="Settings"
          side="top"
          onClick={() => {
            go(paths.settings());
            onOpen();
          }}
        >
          <Settings size={17} aria-hidden />
        </IconButton>
      </div>
    </nav>
  );
}
