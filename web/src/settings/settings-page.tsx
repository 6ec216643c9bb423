// Settings: how it looks, the workspace, its agents, its members, its keys, what was changed.
import { useQuery } from '@tanstack/react-query';
import { PanelLeftOpen } from 'lucide-react';
import { useEffect } from 'react';
import { listAgents } from '../client/api';
import { follow, paths } from '../router';
import type { Session } from '../session';
import { IconButton } from '../ui/button';
import { Agents } from './agents';
import { Audit } from './audit';
import { General } from './general';
import { Keys } from './keys';
import { Members } from './members';

const sections = [
  { id: 'general', name: 'General', admin: false },
  { id: 'agents', name: 'Agents', admin: false },
  { id: 'members', name: 'Members', admin: false },
  { id: 'keys', name: 'API keys', admin: true },
  { id: 'audit', name: 'Audit log', admin: true },
] as const;

export default function SettingsPage({ section, session, onMenu }: { section: string; session: Session; onMenu: (() => void) | null }) {
  const admin = session.workspace?.role === 'admin';
  // A server without agents has nothing to set up there.
  const agents = useQuery({ queryKey: ['agents'], queryFn: listAgents, retry: false });
  const offered = sections.filter((one) => (admin || !one.admin) && (one.id !== 'agents' || agents.data));
  const chosen = offered.find((one) => one.id === section) ?? sections[0];
  useEffect(() => {
    document.title = `${chosen.name} · Threadkeep`;
  }, [chosen]);
  return (
    <>
      <header className="flex h-14 shrink-0 items-center gap-1 px-3">
        {onMenu && (
          <IconButton name="Show the history" onClick={onMenu}>
            <PanelLeftOpen size={18} aria-hidden />
          </IconButton>
        )}
        <h1 className="px-2 text-small font-medium text-soft">Settings</h1>
      </header>
      <div className="min-h-0 grow overflow-y-auto">
        <div className="mx-auto max-w-2xl px-5 pb-16">
          <nav aria-label="Settings" className="mb-8 flex gap-1 overflow-x-auto border-b border-line">
            {offered.map((one) => (
              <a
                key={one.id}
                href={paths.settings(one.id)}
                onClick={follow}
                aria-current={one === chosen ? 'page' : undefined}
                className="-mb-px border-b-2 border-transparent px-3 py-2 text-small whitespace-nowrap text-soft hover:text-ink focus-visible:outline-offset-[-2px] aria-[current=page]:border-accent aria-[current=page]:font-medium aria-[current=page]:text-ink"
              >
                {one.name}
              </a>
            ))}
          </nav>
          {chosen.id === 'general' && <General session={session} />}
          {chosen.id === 'agents' && <Agents admin={admin} />}
          {chosen.id === 'members' && <Members session={session} admin={admin} />}
          {chosen.id === 'keys' && <Keys />}
          {chosen.id === 'audit' && <Audit />}
        </div>
      </div>
    </>
  );
}
