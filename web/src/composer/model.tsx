// Which model or agent answers, where the server offers a choice.
import { useQuery } from '@tanstack/react-query';
import { ChevronDown, Cpu } from 'lucide-react';
import { listAgents, listModels } from '../client/api';
import { Menu, MenuChoice, MenuLabel } from '../ui/menu';

export type Choice = { model: string | null; agent: string | null };

/** A list that the server may not have: then there is nothing to choose. */
const useOffered = <T,>(name: string, list: () => Promise<T[]>) =>
  useQuery({ queryKey: [name], queryFn: list, retry: false, staleTime: 60_000 }).data ?? [];

export function ModelPicker({ value, onChange }: { value: Choice; onChange: (choice: Choice) => void }) {
  const models = useOffered('models', listModels);
  const agents = useOffered('agents', listAgents);
  if (models.length + agents.length === 0) return null;
  const agent = agents.find((one) => one.id === value.agent);
  const name = agent?.name ?? value.model?.split('/').slice(1).join('/') ?? 'Default';
  return (
    <Menu
      side="top"
      trigger={
        <button type="button" aria-label={`Model: ${name}`} className="flex h-9 min-w-0 items-center gap-1.5 rounded-md px-2.5 text-small text-soft hover:bg-hover hover:text-ink">
          <Cpu size={16} aria-hidden className="shrink-0" />
          <bdi className="max-w-36 truncate max-sm:max-w-20">{name}</bdi>
          <ChevronDown size={14} aria-hidden className="shrink-0 text-faint" />
        </button>
      }
    >
      {agents.length > 0 && (
        <>
          <MenuLabel>Agent</MenuLabel>
          <MenuChoice
            value={value.agent ?? ''}
            options={[{ value: '', label: 'No agent' }, ...agents.map(({ id, name: label, model }) => ({ value: id, label, hint: model ?? '' }))]}
            onChange={(id) => onChange({ ...value, agent: id || null })}
          />
        </>
      )}
      {models.length > 0 && (
        <>
          <MenuLabel>Model</MenuLabel>
          <MenuChoice
            value={value.model ?? ''}
            options={[{ value: '', label: 'Default' }, ...models.map(({ id }) => ({ value: id, label: id }))]}
            onChange={(id) => onChange({ ...value, model: id || null })}
          />
        </>
      )}
    </Menu>
  );
}
