// Agents: instructions, a model and tools under one name.
import { useMutation, useQuery, useQueryClient } from '@tanstack/react-query';
import { Plus, Trash2 } from 'lucide-react';
import { useState } from 'react';
import { createAgent, listAgents, removeAgent, updateAgent, type Agent, type AgentSettings } from '../client/api';
import { Choice, Field, Spinner } from '../ui/bits';
import { Button, IconButton } from '../ui/button';
import { Dialog } from '../ui/dialog';
import { complain, toast } from '../ui/toast';
import { AgentTools, toolName } from './agent-tools';
import { Empty, Item, List, ModelChoice, Section } from './parts';

const blank: AgentSettings = { name: '', instructions: '', model: null, runner: 'model', tools: [], approval: [] };

const toolsTold = ({ tools, approval }: Agent) =>
  [tools.length === 0 ? 'no tools' : `tools: ${tools.map(toolName).join(', ')}`, ...(approval.length > 0 ? [`asks before ${approval.join(', ')}`] : [])].join(' · ');

export function Agents({ admin }: { admin: boolean }) {
  const client = useQueryClient();
  const [open, setOpen] = useState<Agent | 'new' | null>(null);
  const { data, error } = useQuery({ queryKey: ['agents'], queryFn: listAgents, retry: false });
  const settle = () => client.invalidateQueries({ queryKey: ['agents'] });
  const save = useMutation({
    mutationFn: ({ id, settings }: { id: string | null; settings: AgentSettings }) => (id ? updateAgent(id, settings) : createAgent(settings)),
    onSuccess: () => setOpen(null),
    onError: complain,
    onSettled: settle,
  });
  const remove = useMutation({
    mutationFn: (agent: Agent) => removeAgent(agent.id),
    onSuccess: (_, agent) => toast(`The agent “${agent.name}” is gone.`),
    onError: complain,
    onSettled: settle,
  });
  return (
    <Section
      title="Agents"
      about="An agent has instructions, a model and tools of its own. Everybody in the workspace may choose one for a thread."
      actions={
        admin && (
          <Button look="solid" onClick={() => setOpen('new')}>
            <Plus size={15} aria-hidden />
            New agent
          </Button>
        )
      }
    >
      {error && <p className="text-small text-danger">{error.message}</p>}
      {!data && !error && <Spinner label="Loading the agents" />}
      {data && data.length === 0 && <Empty>There are no agents yet. An agent is chosen beside the message field.</Empty>}
      {data && data.length > 0 && (
        <List label="Agents">
          {data.map((agent) => (
            <Item key={agent.id}>
              <span className="min-w-0 grow">
                <bdi className="block truncate font-medium">{agent.name}</bdi>
                <bdi className="block truncate text-tiny text-faint">
                  {agent.runner === 'sandbox' ? 'in a sandbox' : 'a model'} · {agent.model ?? 'default model'} · {toolsTold(agent)}
                </bdi>
              </span>
              {admin && (
                <>
                  <Button onClick={() => setOpen(agent)}>Edit</Button>
                  <IconButton name={`Remove ${agent.name}`} onClick={() => remove.mutate(agent)}>
                    <Trash2 size={16} aria-hidden />
                  </IconButton>
                </>
              )}
            </Item>
          ))}
        </List>
      )}
      {open && (
        <Dialog title={open === 'new' ? 'New agent' : open.name} onClose={() => setOpen(null)} wide>
          <AgentForm agent={open === 'new' ? blank : open} onSave={(settings) => save.mutate({ id: open === 'new' ? null : open.id, settings })} />
        </Dialog>
      )}
    </Section>
  );
}

function AgentForm({ agent, onSave }: { agent: AgentSettings; onSave: (settings: AgentSettings) => void }) {
  const [settings, setSettings] = useState(agent);
  const set = (change: Partial<AgentSettings>) => setSettings((now) => ({ ...now, ...change }));
  return (
    <form
      className="grid gap-4"
      onSubmit={(event) => {
        event.preventDefault();
        const { name, instructions, model, runner, tools, approval } = settings;
        onSave({ name: name.trim(), instructions, model, runner, tools, approval });
      }}
    >
      <Field label="Name" value={settings.name} maxLength={255} onChange={(event) => set({ name: event.target.value })} />
      <label className="block">
        <span className="mb-1.5 block text-small font-medium">Instructions</span>
        <textarea rows={6} value={settings.instructions} onChange={(event) => set({ instructions: event.target.value })} className="w-full rounded-md border border-line-strong bg-raised p-3 text-small outline-none focus:border-accent focus:ring-2 focus:ring-accent/25" />
      </label>
      <div className="grid gap-4 sm:grid-cols-2">
        <Choice label="Runs as" value={settings.runner} onChange={(event) => set({ runner: event.target.value as AgentSettings['runner'] })}>
          <option value="model">a model with tools</option>
          <option value="sandbox">an agent in a sandbox</option>
        </Choice>
        <ModelChoice value={settings.model} onChange={(model) => set({ model })} />
      </div>
      <AgentTools tools={settings.tools} approval={settings.approval} onChange={set} />
      <div className="flex justify-end">
        <Button look="solid" type="submit" disabled={!settings.name.trim()}>
          Save
        </Button>
      </div>
    </form>
  );
}
