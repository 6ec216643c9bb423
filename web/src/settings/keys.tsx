// API keys: made, shown once, removed.
import { useMutation, useQuery, useQueryClient } from '@tanstack/react-query';
import { Trash2 } from 'lucide-react';
import { useState } from 'react';
import { createKey, listKeys, removeKey } from '../client/api';
import type { ApiKey } from '../client/types';
import { CopyButton } from '../thread/code';
import { Choice, Field, Spinner } from '../ui/bits';
import { Button, IconButton } from '../ui/button';
import { Dialog } from '../ui/dialog';
import { complain, toast } from '../ui/toast';
import { day, Item, List, Section } from './parts';

export function Keys() {
  const client = useQueryClient();
  const [made, setMade] = useState<ApiKey | null>(null);
  const [doomed, setDoomed] = useState<ApiKey | null>(null);
  const { data, error } = useQuery({ queryKey: ['keys'], queryFn: listKeys });
  const settle = () => client.invalidateQueries({ queryKey: ['keys'] });
  const create = useMutation({ mutationFn: ({ name, role }: { name: string; role: string }) => createKey(name, role), onSuccess: setMade, onError: complain, onSettled: settle });
  const remove = useMutation({ mutationFn: (key: ApiKey) => removeKey(key.id), onSuccess: (_, key) => toast(`The key “${key.name}” is gone.`), onError: complain, onSettled: settle });
  return (
    <Section title="API keys" about="For programs. A member or admin key acts as you; a service key acts for the workspace.">
      <NewKey onCreate={(name, role) => create.mutate({ name, role })} />
      {error && <p className="text-small text-danger">{error.message}</p>}
      {!data && !error && <Spinner label="Loading the keys" />}
      {data && data.length === 0 && <p className="text-small text-faint">There are no keys.</p>}
      {data && data.length > 0 && (
        <List label="API keys">
          {data.map((key) => (
            <Item key={key.id}>
              <span className="min-w-0 grow">
                <bdi className="block truncate font-medium">{key.name}</bdi>
                <span className="text-tiny text-faint">
                  {key.role} · made by {key.created_by} on {day(key.created_at)}
                </span>
              </span>
              <IconButton name={`Remove the key ${key.name}`} onClick={() => setDoomed(key)}>
                <Trash2 size={16} aria-hidden />
              </IconButton>
            </Item>
          ))}
        </List>
      )}
      {made?.key && (
        <Dialog title="Your new key" firm onClose={() => setMade(null)}>
          <p className="text-small text-soft">Copy it now. It is shown this once; the server keeps only a hash of it.</p>
          <div className="mt-4 flex items-center gap-2 rounded-md border border-line bg-code py-1 pr-1 pl-3">
            <code className="min-w-0 grow font-mono text-small [overflow-wrap:anywhere]">{made.key}</code>
            <CopyButton text={made.key} label="Copy the key" />
          </div>
        </Dialog>
      )}
      {doomed && (
        <Dialog title={`Remove the key “${doomed.name}”?`} onClose={() => setDoomed(null)}>
          <p className="text-small text-soft">Whatever uses it stops working at once. This cannot be undone.</p>
          <div className="mt-5 flex justify-end gap-2">
            <Button onClick={() => setDoomed(null)}>Keep it</Button>
            <Button
              look="danger"
              onClick={() => {
                remove.mutate(doomed);
                setDoomed(null);
              }}
            >
              Remove
            </Button>
          </div>
        </Dialog>
      )}
    </Section>
  );
}

function NewKey({ onCreate }: { onCreate: (name: string, role: string) => void }) {
  const [name, setName] = useState('');
  const [role, setRole] = useState('member');
  return (
    <form
      className="mb-4 flex flex-wrap items-end gap-2"
      onSubmit={(event) => {
        event.preventDefault();
        onCreate(name.trim(), role);
        setName('');
      }}
    >
      <Field label="Name" className="min-w-48 grow" placeholder="What it is for" value={name} maxLength={255} onChange={(event) => setName(event.target.value)} />
      <Choice label="Role" className="w-32" value={role} onChange={(event) => setRole(event.target.value)}>
        <option value="member">Member</option>
        <option value="admin">Admin</option>
        <option value="service">Service</option>
      </Choice>
      <Button look="solid" type="submit" className="h-10" disabled={!name.trim()}>
        Create
      </Button>
    </form>
  );
}
