// Settings: how it looks, and what the workspace is, knows, uses and allows.
import { PanelLeftOpen } from 'lucide-react';
import { useEffect, useRef } from 'react';
import { follow, paths, type Route } from '../router';
import type { Session } from '../session';
import { IconButton } from '../ui/button';
import { Agents } from './agents';
import { Audit } from './audit';
import { General } from './general';
import { Keys } from './keys';
import { Members } from './members';
import { Pages } from './pages';
import { Tables } from './tables';
import { Tools } from './tools';
import { UsageSection } from './usage';

const sections = [
  { id: 'general', name: 'General', admin: false },
  { id: 'agents', name: 'Agents', admin: false },
  { id: 'tools', name: 'Tools', admin: false },
  { id: 'pages', name: 'Pages', admin: false },
  { id: 'tables', name: 'Tables', admin: false },
  { id: 'usage', name: 'Usage', admin: false },
  { id: 'members', name: 'Members', admin: false },
  { id: 'keys', name: 'API keys', admin: true },
  { id: 'audit', name: 'Audit log', admin: true },
] as const;

type Props = { route: Extract<Route, { page: 'settings' }>; session: Session; onMenu: (() => void) | null };

export default function SettingsPage({ route, session, onMenu }: Props) {
  const admin = session.workspace?.role === 'admin';
  const offered = sections.filter((one) => admin || !one.admin);
  const chosen = offered.find((one) => one.id === route.section) ?? sections[0];
  const current = useRef<HTMLAnchorElement>(null);
  useEffect(() => {
    document.title = `${chosen.name} · Threadkeep`;
    current.current?.scrollIntoView({ block: 'nearest', inline: 'center' });
  }, [chosen]);
  return (
    <>
      <header className="flex h-14 shrink-0 items-center gap-1 px-3">
        {onMenu && (
          <IconButton name="Show the history" onClick={onMenu} data-fold>
            <PanelLeftOpen size={18} aria-hidden />
          </IconButton>
        )}
        <h1 className="px-2 text-small font-medium text-soft">Settings</h1>
      </header>
      <div className="min-h-0 grow overflow-y-auto">
        <div className="mx-auto flex max-w-4xl flex-col px-5 pb-16 lg:flex-row lg:gap-12">
          <nav aria-label="Settings" className="mb-6 flex shrink-0 gap-1 overflow-x-auto border-b border-line max-lg:-mx-5 max-lg:px-5 max-lg:[mask-image:linear-gradient(90deg,transparent,#000_1.25rem_calc(100%-2rem),transparent)] lg:sticky lg:top-2 lg:mb-0 lg:w-36 lg:flex-col lg:self-start lg:border-b-0">
            {offered.map((one) => (
              <a
                key={one.id}
                ref={one === chosen ? current : null}
                href={paths.settings(one.id)}
                onClick={follow}
                aria-current={one === chosen ? 'page' : undefined}
                className="-mb-px border-b-2 border-transparent px-3 py-2 text-small whitespace-nowrap text-soft last:mr-8 hover:text-ink focus-visible:outline-offset-[-2px] aria-[current=page]:border-accent aria-[current=page]:font-medium aria-[current=page]:text-ink lg:mb-0 lg:rounded-md lg:border-b-0 lg:py-1.5 lg:last:mr-0 lg:hover:bg-hover lg:aria-[current=page]:bg-active"
              >
                {one.name}
              </a>
            ))}
          </nav>
          <div className="min-w-0 grow">
            {chosen.id === 'general' && <General session={session} admin={admin} />}
            {chosen.id === 'agents' && <Agents admin={admin} />}
            {chosen.id === 'tools' && <Tools admin={admin} />}
            {chosen.id === 'pages' && <Pages id={route.item} />}
            {chosen.id === 'tables' && <Tables id={route.item} row={route.row} />}
            {chosen.id === 'usage' && <UsageSection />}
            {chosen.id === 'members' && <Members session={session} admin={admin} />}
            {chosen.id === 'keys' && <Keys />}
            {chosen.id === 'audit' && <Audit />}
          </div>
        </div>
      </div>
    </>
  );
}
