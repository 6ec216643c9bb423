// Which agent answers, and which model, where there is a choice.
import { useQuery } from '@tanstack/react-query';
import { ChevronDown, Cpu } from 'lucide-react';
import { useState } from 'react';
import { listAgents, listModels } from '../client/api';
import { Dialog } from '../ui/dialog';
import { Menu, MenuChoice, MenuLabel } from '../ui/menu';
import { ModelList, type Offer } from './model-list';

export type Choice = { model: string | null; agent: string | null };

/** More than a menu shows at once are searched. */
const MANY = 12;

/** A list that the server may not have: then there is nothing to choose. */
const useOffered = <T,>(name: string, list: () => Promise<T[]>) =>
  useQuery({ queryKey: [name], queryFn: list, retry: false, staleTime: 60_000 }).data ?? [];

export function ModelPicker({ value, onChange }: { value: Choice; onChange: (choice: Choice) => void }) {
  const models = useOffered('models', listModels);
  const agents = useOffered('agents', listAgents);
  const [open, setOpen] = useState(false);
  if (models.length + agents.length === 0) return null;
  const agent = agents.find((one) => one.id === value.agent);
  const name = agent?.name ?? value.model?.split('/').slice(1).join('/') ?? 'Default';
  const many = models.length + agents.length > MANY;
  const chooseAgent = (id: string) => onChange({ ...value, agent: id || null });
  const chooseModel = (id: string) => onChange({ ...value, model: id || null });
  const agentOptions = [{ value: '', label: 'No agent' }, ...agents.map(({ id, name: label, model }) => ({ value: id, label, hint: model ?? '' }))];
  const modelOptions = [{ value: '', label: 'Default' }, ...models.map(({ id }) => ({ value: id, label: id }))];
  const trigger = (
    <button
      type="button"
      aria-label={`Model: ${name}`}
      {...(many ? { 'aria-haspopup': 'dialog', onClick: () => setOpen(true) } : {})}
      className="flex h-9 min-w-0 items-center gap-1.5 rounded-md px-2.5 text-small text-soft hover:bg-hover hover:text-ink"
    >
      <Cpu size={16} aria-hidden className="shrink-0" />
      <bdi className="max-w-36 truncate max-sm:max-w-20">{name}</bdi>
      <ChevronDown size={14} aria-hidden className="shrink-0 text-faint" />
    </button>
  );
  if (many) {
    const offers: Offer[] = [
      ...(agents.length > 0 ? agentOptions : []).map((one) => ({ ...one, key: `agent-${one.value}`, group: 'Agent', chosen: one.value === (value.agent ?? ''), choose: () => chooseAgent(one.value) })),
      ...(models.length > 0 ? modelOptions : []).map((one) => ({ ...one, key: `model-${one.value}`, group: 'Model', chosen: one.value === (value.model ?? ''), choose: () => chooseModel(one.value) })),
    ];
    const close = () => setOpen(false);
    return (
      <>
        {trigger}
        {open && (
          <Dialog title={agents.length > 0 ? 'Agent and model' : 'Model'} onClose={close}>
            <ModelList offers={offers} onDone={close} />
          </Dialog>
        )}
      </>
    );
  }
  return (
    <Menu side="top" trigger={trigger}>
      {agents.length > 0 && (
        <>
          <MenuLabel>Agent</MenuLabel>
          <MenuChoice value={value.agent ?? ''} options={agentOptions} onChange={chooseAgent} />
        </>
      )}
      {models.length > 0 && (
        <>
          <MenuLabel>Model</MenuLabel>
          <MenuChoice value={value.model ?? ''} options={modelOptions} onChange={chooseModel} />
        </>
      )}
    </Menu>
  );
}
