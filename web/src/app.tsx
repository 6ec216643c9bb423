// The frame: history on the left, the page on the right, and the door before both.
import { CircleHelp, MessageSquarePlus, PanelLeftOpen } from 'lucide-react';
import { lazy, Suspense, useEffect, useEffectEvent, useRef, useState } from 'react';
import { flushSync } from 'react-dom';
import { toComposer } from './composer/focus';
import { takeUp } from './composer/outbox';
import { Sidebar } from './history/sidebar';
import { Login, Unreachable } from './login';
import { go, paths, useRoute } from './router';
import { useSession, type Session } from './session';
import { FirstWorkspace } from './settings/new-workspace';
import { ThreadPage } from './thread/thread-page';
import { Notice, Spinner } from './ui/bits';
import { Button, IconButton } from './ui/button';
import { useKeptFocus } from './ui/kept-focus';
import { Toasts } from './ui/toast';

const SettingsPage = lazy(() => import('./settings/settings-page'));
const TracePanel = lazy(() => import('./trace/trace-panel'));

export function App() {
  const door = useSession();
  return (
    <>
      {door.at === 'loading' && (
        <main className="grid h-full place-items-center">
          <Spinner size={24} label="Loading" />
        </main>
      )}
      {door.at === 'outside' && <Login />}
      {door.at === 'unreachable' && <Unreachable />}
      {door.at === 'inside' &&
        (door.session.workspace ? <House key={door.session.workspace.id} session={door.session} /> : <FirstWorkspace session={door.session} />)}
      <Toasts />
    </>
  );
}

const narrow = () => matchMedia('(max-width: 767px)').matches;

function House({ session }: { session: Session }) {
  const route = useRoute();
  const [open, setOpen] = useState(() => !narrow());
  const current = route.page === 'thread' ? route.id : null;

  const search = useRef<HTMLInputElement>(null);
  const house = useRef<HTMLDivElement>(null);
  useKeptFocus(house);

  useEffect(() => {
    const stop = new AbortController();
    takeUp(stop.signal);
    return () => stop.abort();
  }, []);

  /** Shows or hides the history; the focus goes from the button that is gone to the one that undoes it. */
  const fold = (next: boolean) => {
    flushSync(() => setOpen(next));
    document.querySelector<HTMLElement>('[data-fold]')?.focus();
  };

  // Here and not in the history, for they work while it is hidden, too.
  const key = useEffectEvent((event: KeyboardEvent) => {
    if (event.key === 'Escape' && open && narrow()) {
      event.preventDefault();
      fold(false);
    }
    if (!(event.ctrlKey || event.metaKey)) return;
    if (!event.shiftKey && event.key.toLowerCase() === 'k') {
      event.preventDefault();
      // Drawn at once: what is typed next goes into it.
      flushSync(() => setOpen(true));
      search.current?.focus();
      search.current?.select();
    }
    if (event.shiftKey && event.key.toLowerCase() === 'o') {
      event.preventDefault();
      flushSync(() => {
        go(paths.fresh);
        if (narrow()) setOpen(false);
      });
      toComposer();
    }
  });
  useEffect(() => {
    const press = (event: KeyboardEvent) => key(event);
    window.addEventListener('keydown', press);
    return () => window.removeEventListener('keydown', press);
  }, []);

  const show = () => fold(true);
  const hide = () => fold(false);
  return (
    <div ref={house} className="flex h-full overflow-hidden">
      <a href="#main" className="sr-only z-50 rounded-md bg-raised px-4 py-2 shadow-float focus:not-sr-only focus:fixed focus:top-3 focus:left-3">
        Skip to the page
      </a>
      {open && (
        <>
          <button type="button" aria-label="Close the history" tabIndex={-1} onClick={hide} className="fixed inset-0 z-20 bg-shade md:hidden" />
          <div className="fixed inset-y-0 left-0 z-30 w-[min(85vw,var(--spacing-sidebar))] shrink-0 border-r border-line md:static md:w-sidebar">
            <Sidebar session={session} current={current} searchRef={search} onClose={hide} onOpen={() => narrow() && setOpen(false)} />
          </div>
        </>
      )}
      <main id="main" tabIndex={-1} inert={open && narrow()} className="relative flex min-w-0 grow outline-none">
        <div className="flex min-w-0 grow flex-col">
          {route.page === 'unknown' && <Unknown onMenu={open ? null : show} />}
          {route.page === 'thread' && <ThreadPage id={route.id} session={session} onMenu={open ? null : show} />}
          {route.page === 'settings' && (
            <Suspense fallback={<Waiting />}>
              <SettingsPage route={route} session={session} onMenu={open ? null : show} />
            </Suspense>
          )}
        </div>
        {route.page === 'thread' && route.id && route.run && (
          <Suspense fallback={null}>
            <TracePanel key={route.run} thread={route.id} run={route.run} />
          </Suspense>
        )}
      </main>
    </div>
  );
}

/** An address that leads nowhere. */
function Unknown({ onMenu }: { onMenu: (() => void) | null }) {
  useEffect(() => {
    document.title = 'No such page · Threadkeep';
  }, []);
  return (
    <>
      <header className="flex h-14 shrink-0 items-center px-3">
        {onMenu && (
          <IconButton name="Show the history" onClick={onMenu} data-fold>
            <PanelLeftOpen size={18} aria-hidden />
          </IconButton>
        )}
        <h1 className="sr-only">No such page</h1>
      </header>
      <Notice icon={<CircleHelp size={32} aria-hidden />} title="There is no such page">
        <p className="mb-4">The address leads nowhere.</p>
        <Button onClick={() => go(paths.fresh)}>
          <MessageSquarePlus size={15} aria-hidden />
          New thread
        </Button>
      </Notice>
    </>
  );
}

const Waiting = () => (
  <div className="grid grow place-items-center">
    <Spinner size={22} label="Loading" />
  </div>
);
