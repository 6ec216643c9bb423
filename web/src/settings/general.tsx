// How it looks, and the workspace itself.
import { useQuery, useQueryClient } from '@tanstack/react-query';
import { Download, Monitor, Moon, Sun } from 'lucide-react';
import { useState } from 'react';
import { getWorkspace, updateWorkspace } from '../client/api';
import { archiveLink } from '../client/library';
import type { Workspace } from '../client/types';
import type { Session } from '../session';
import { Choice, Field, Kbd, Spinner } from '../ui/bits';
import { Button } from '../ui/button';
import { complain, toast } from '../ui/toast';
import { ModelChoice, Section } from './parts';
import { setTheme, useTheme, type Theme } from './theme';

const themes: { value: Theme; name: string; Icon: typeof Sun }[] = [
  { value: 'system', name: 'System', Icon: Monitor },
  { value: 'light', name: 'Light', Icon: Sun },
  { value: 'dark', name: 'Dark', Icon: Moon },
];

const shortcuts: [string, string[]][] = [
  ['Search threads', ['Ctrl', 'K']],
  ['New thread', ['Ctrl', 'Shift', 'O']],
  ['Write a message', ['/']],
  ['New line in a message', ['Shift', 'Enter']],
  ['Edit your last message', ['↑']],
  ['Rename or delete the focused thread', ['F2', 'Del']],
];

export function General({ session, admin }: { session: Session; admin: boolean }) {
  const theme = useTheme();
  const { workspace } = session;
  return (
    <>
      <Section title="Appearance">
        <div role="radiogroup" aria-label="Theme" className="grid grid-cols-3 gap-2">
          {themes.map(({ value, name, Icon }) => (
            <label key={value} className="flex cursor-pointer items-center justify-center gap-2 rounded-lg border border-line bg-raised py-3 text-small hover:bg-hover has-checked:border-accent has-checked:bg-accent-wash has-checked:font-medium has-focus-visible:outline-2 has-focus-visible:outline-accent">
              <input type="radio" name="theme" className="sr-only" checked={theme === value} onChange={() => setTheme(value)} />
              <Icon size={16} aria-hidden />
              {name}
            </label>
          ))}
        </div>
      </Section>
      {workspace && admin && <WorkspaceSection key={workspace.id} id={workspace.id} />}
      {admin && <Archive />}
      <Section title="Keyboard">
        <dl className="divide-y divide-line rounded-lg border border-line bg-raised">
          {shortcuts.map(([name, keys]) => (
            <div key={name} className="flex items-center justify-between px-4 py-2.5 text-small">
              <dt>{name}</dt>
              <dd className="flex gap-1">
                {keys.map((key) => (
                  <Kbd key={key}>{key}</Kbd>
                ))}
              </dd>
            </div>
          ))}
        </dl>
      </Section>
    </>
  );
}

const formats = [
  { format: 'jsonl', name: 'Archive', about: 'everything, to be imported again' },
  { format: 'markdown', name: 'Markdown', about: 'to read and to search' },
  { format: 'html', name: 'HTML', about: 'to read in a browser' },
];

function Archive() {
  return (
    <Section title="Export" about="All threads of the workspace as one download; the archive has their files, too.">
      <ul className="grid gap-2 sm:grid-cols-3">
        {formats.map(({ format, name, about }) => (
          <li key={format}>
            <a href={archiveLink(format)} download className="flex items-start gap-2.5 rounded-lg border border-line bg-raised px-4 py-3 text-small hover:bg-hover">
              <Download size={16} aria-hidden className="mt-0.5 shrink-0 text-accent" />
              <span>
                <span className="block font-medium">{name}</span>
                <span className="block text-soft">{about}</span>
              </span>
            </a>
          </li>
        ))}
      </ul>
    </Section>
  );
}

function WorkspaceSection({ id }: { id: string }) {
  const { data, error } = useQuery({ queryKey: ['workspace', id], queryFn: () => getWorkspace(id) });
  return (
    <Section title="Workspace">
      {error && <p className="text-small text-danger">{error.message}</p>}
      {!data && !error && <Spinner label="Loading the workspace" />}
      {data && <WorkspaceForm workspace={data} />}
    </Section>
  );
}

function WorkspaceForm({ workspace }: { workspace: Workspace }) {
  const client = useQueryClient();
  const [name, setName] = useState(workspace.name);
  const [visibility, setVisibility] = useState(workspace.default_visibility);
  const [model, setModel] = useState(workspace.model ?? null);
  const changed = name.trim() !== workspace.name || visibility !== workspace.default_visibility || model !== (workspace.model ?? null);
  const save = async () => {
    await updateWorkspace(workspace.id, { name: name.trim(), default_visibility: visibility, model });
    await Promise.all([client.invalidateQueries({ queryKey: ['session'] }), client.invalidateQueries({ queryKey: ['workspace'] })]);
    toast('Saved.');
  };
  return (
    <form
      className="grid gap-4"
      onSubmit={(event) => {
        event.preventDefault();
        void save().catch(complain);
      }}
    >
      <Field label="Name" value={name} maxLength={255} onChange={(event) => setName(event.target.value)} />
      <Choice label="New threads are" value={visibility} onChange={(event) => setVisibility(event.target.value as Workspace['default_visibility'])}>
        <option value="private">private to who starts them</option>
        <option value="workspace">visible to the workspace</option>
      </Choice>
      <ModelChoice value={model} onChange={setModel} />
      <div>
        <Button look="solid" type="submit" disabled={!changed || !name.trim()}>
          Save
        </Button>
      </div>
    </form>
  );
}
