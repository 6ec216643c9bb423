// Agents: instructions, a model and tools under one name.
import { useMutation, useQuery, useQueryClient } from '@tanstack/react-query';
import { Plus, Trash2 } from 'lucide-react';
import { useState } from 'react';
import { createAgent, listAgents, listModels, removeAgent, updateAgent, type Agent, type AgentSettings } from '../client/api';
import { Choice, Field, Spinner } from '../ui/bits';
import { Button, IconButton } from '../ui/button';
import { Dialog } from '../ui/dialog';
import { complain, toast } from '../ui/toast';
import { Item, List, Section } from './parts';

const NATIVE = ['search_pages', 'search_user_tables', 'read_file', 'save_to_table'];
const blank: AgentSettings = { name: '', instructions: '', model: null, runner: 'model', tools: [], approval: [] };

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
    <Section title="Agents" about="An agent has instructions, a model and tools of its own. Everybody in the workspace may choose one for a thread.">
      {error && <p className="text-small text-danger">{error.message}</p>}
      {!data && !error && <Spinner label="Loading the agents" />}
      {data && data.length === 0 && <p className="mb-4 text-small text-faint">There are no agents.</p>}
      {data && data.length > 0 && (
        <List label="Agents">
          {data.map((agent) => (
            <Item key={agent.id}>
              <span className="min-w-0 grow">
                <bdi className="block truncate font-medium">{agent.name}</bdi>
                <bdi className="block truncate text-tiny text-faint">
                  {agent.runner} · {agent.model ?? 'default model'} · {agent.tools.length} tools
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
      {admin && data && (
        <Button className="mt-4" onClick={() => setOpen('new')}>
          <Plus size={15} aria-hidden />
          New agent
        </Button>
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
  const models = useQuery({ queryKey: ['models'], queryFn: listModels, retry: false }).data ?? [];
  const set = (change: Partial<AgentSettings>) => setSettings((now) => ({ ...now, ...change }));
  const toggle = (list: 'tools' | 'approval', tool: string, on: boolean) =>
    set({ [list]: on ? [...settings[list], tool] : settings[list].filter((one) => one !== tool) });
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
        <Choice label="Model" value={settings.model ?? ''} onChange={(event) => set({ model: event.target.value || null })}>
          <option value="">Default</option>
          {[...new Set([...models.map(({ id }) => id), ...(settings.model ? [settings.model] : [])])].map((id) => (
            <option key={id}>{id}</option>
          ))}
        </Choice>
      </div>
      <fieldset>
        <legend className="mb-1.5 text-small font-medium">Tools</legend>
        <ul className="divide-y divide-line rounded-lg border border-line">
          {NATIVE.map((tool) => (
            <li key={tool} className="flex flex-wrap items-center justify-between gap-3 px-3 py-2 text-small">
              <label className="flex items-center gap-2.5">
                <input type="checkbox" className="size-4 accent-accent" checked={settings.tools.includes(tool)} onChange={(event) => toggle('tools', tool, event.target.checked)} />
                {tool}
              </label>
              <label className="flex items-center gap-2 text-soft">
                <input type="checkbox" className="size-4 accent-accent" checked={settings.approval.includes(tool)} onChange={(event) => toggle('approval', tool, event.target.checked)} />
                ask before each call<span className="sr-only"> of {tool}</span>
              </label>
            </li>
          ))}
        </ul>
      </fieldset>
      <div className="flex justify-end">
        <Button look="solid" type="submit" disabled={!settings.name.trim()}>
          Save
        </Button>
      </div>
    </form>
  );
}
