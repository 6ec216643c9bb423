// How the assistant works on the next message.
import { Bot, ChevronDown, ListChecks, MessageCircleQuestion } from 'lucide-react';
import type { Mode } from '../client/types';
import { Menu, MenuChoice } from '../ui/menu';

export const modes: { value: Mode; label: string; hint: string; icon: React.ReactNode }[] = [
  { value: 'agent', label: 'Agent', hint: 'Works on it with tools and files', icon: <Bot size={16} aria-hidden /> },
  { value: 'ask', label: 'Ask', hint: 'Answers, and changes nothing', icon: <MessageCircleQuestion size={16} aria-hidden /> },
  { value: 'task_flow', label: 'Task flow', hint: 'Plans first, then works through the plan', icon: <ListChecks size={16} aria-hidden /> },
];

export function ModePicker({ value, onChange }: { value: Mode; onChange: (mode: Mode) => void }) {
  const chosen = modes.find((mode) => mode.value === value) ?? modes[0];
  return (
    <Menu
      side="top"
      trigger={
        <button type="button" aria-label={`Mode: ${chosen?.label}`} className="flex h-9 items-center gap-1.5 rounded-md px-2.5 text-small text-soft hover:bg-hover hover:text-ink">
          {chosen?.icon}
          {chosen?.label}
          <ChevronDown size={14} aria-hidden className="text-faint" />
        </button>
      }
    >
      <MenuChoice value={value} options={modes} onChange={onChange} />
    </Menu>
  );
}
