// The tabs that a thread was left with, by this app or another one; choosing and closing them is kept with the thread.
import { PanelTop, X } from 'lucide-react';
import { useEffect, useRef } from 'react';
import { updateConversation } from '../client/api';
import type { Conversation, Tab } from '../client/types';
import { complain } from '../ui/toast';

const label = ({ destinationId, subPath }: Tab) => (destinationId === 'new_tab' ? 'New tab' : destinationId) + (subPath ? ` ${subPath}` : '');

export function Tabs({ conversation, onChanged }: { conversation: Conversation; onChanged: () => Promise<void> }) {
  const tabs = conversation.attributes.tabs ?? [];
  const active = conversation.attributes.active_tab_key ?? null;
  const chosen = useRef<HTMLLIElement>(null);
  useEffect(() => chosen.current?.scrollIntoView({ block: 'nearest', inline: 'center' }), [conversation.id, active]);
  if (tabs.length === 0) return null;
  const change = (attributes: Record<string, unknown>) => void updateConversation(conversation.id, attributes).then(onChanged, complain);
  const close = (key: string) => {
    const left = tabs.filter((tab) => tab.key !== key);
    change({ tabs: left, active_tab_key: active === key ? (left.at(-1)?.key ?? null) : active });
  };
  return (
    <ul aria-label="Tabs of this thread" className="flex shrink-0 gap-1 overflow-x-auto px-4 pb-2">
      {tabs.map((tab) => (
        <li key={tab.key} ref={tab.key === active ? chosen : null} className={`flex shrink-0 items-center rounded-md border text-tiny ${tab.key === active ? 'border-accent bg-accent-wash' : 'border-line bg-raised'}`}>
          <button type="button" aria-pressed={tab.key === active} onClick={() => change({ active_tab_key: tab.key })} className="flex h-7 max-w-52 items-center gap-1.5 rounded-md pl-2 hover:text-accent">
            <PanelTop size={13} aria-hidden className="shrink-0 text-faint" />
            <bdi className="truncate">{label(tab)}</bdi>
          </button>
          <button type="button" aria-label={`Close ${label(tab)}`} onClick={() => close(tab.key)} className="grid size-7 place-items-center rounded-md text-faint hover:text-ink">
            <X size={12} aria-hidden />
          </button>
        </li>
      ))}
    </ul>
  );
}
