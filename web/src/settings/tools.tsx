// What agents can be given to work with: the server's own tools, and those of tool servers.
import { useMutation, useQuery, useQueryClient } from '@tanstack/react-query';
import { Trash2 } from 'lucide-react';
import { useState } from 'react';
import { addToolServer, listTools, listToolServers, removeToolServer, type Tool } from '../client/library';
import { Field, Spinner } from '../ui/bits';
import { Button, IconButton } from '../ui/button';
import { complain, toast } from '../ui/toast';
import { Badge, Empty, Item, List, Section } from './parts';

export function Tools({ admin }: { admin: boolean }) {
  const { data, error } = useQuery({ queryKey: ['tools'], queryFn: listTools });
  const servers = [...new Set((data ?? []).map((tool) => tool.server ?? ''))];
  return (
    <>
      <Section title="Tools" about="What agents can be given to work with. Which agent has which tool, and which calls wait for a person, is set in the agent.">
        {error && <p className="text-small text-danger">{error.message}</p>}
        {!data && !error && <Spinner label="Loading the tools" />}
        {servers.map((server) => (
          <div key={server} className="mb-4">
            <h3 className="mb-2 text-small font-medium text-soft">{server ? <bdi>{server}</bdi> : 'Built in'}</h3>
            <List label={`Tools of ${server || 'this server'}`}>
              {(data ?? []).filter((tool) => (tool.server ?? '') === server).map((tool) => (
                <ToolItem key={tool.name} tool={tool} />
              ))}
            </List>
          </div>
        ))}
      </Section>
      {admin && <ToolServers />}
    </>
  );
}

const ToolItem = ({ tool }: { tool: Tool }) => (
  <Item>
    <span className="min-w-0 grow basis-60">
      <bdi className="block font-mono text-[0.78rem] font-medium [overflow-wrap:anywhere]">{tool.name}</bdi>
      <bdi className="line-clamp-2 text-soft">{tool.description}</bdi>
    </span>
    <Badge>{tool.read_only ? 'reads only' : 'changes things'}</Badge>
  </Item>
);

function ToolServers() {
  const client = useQueryClient();
  const [name, setName] = useState('');
  const [url, setUrl] = useState('');
  const [token, setToken] = useState('');
  const { data, error } = useQuery({ queryKey: ['tool-servers'], queryFn: listToolServers });
  const settle = () => Promise.all([client.invalidateQueries({ queryKey: ['tool-servers'] }), client.invalidateQueries({ queryKey: ['tools'] })]);
  const add = useMutation({
    mutationFn: () => addToolServer({ name: name.trim(), url: url.trim(), ...(token.trim() ? { token: token.trim() } : {}) }),
    onSuccess: () => {
      setName('');
      setUrl('');
      setToken('');
    },
    onError: complain,
    onSettled: settle,
  });
  const remove = useMutation({ mutationFn: removeToolServer, onSuccess: (_, gone) => toast(`The tool server “${gone}” is gone.`), onError: complain, onSettled: settle });
  return (
    <Section title="Tool servers" about="MCP servers over HTTP. Their tools can be given to every agent of this workspace.">
      <form
        className="mb-4 flex flex-wrap items-end gap-2"
        onSubmit={(event) => {
          event.preventDefault();
          add.mutate();
        }}
      >
        <Field label="Name" className="w-40 grow" placeholder="docs" value={name} maxLength={64} onChange={(event) => setName(event.target.value)} />
        <Field label="Address" className="min-w-48 grow-3" type="url" placeholder="https://example.com/mcp" value={url} onChange={(event) => setUrl(event.target.value)} />
        <Field label="Token (optional)" className="w-40 grow" type="password" autoComplete="off" value={token} onChange={(event) => setToken(event.target.value)} />
        <Button look="solid" type="submit" className="h-10" disabled={!name.trim() || !url.trim() || add.isPending}>
          Add
        </Button>
      </form>
      {error && <p className="text-small text-danger">{error.message}</p>}
      {!data && !error && <Spinner label="Loading the tool servers" />}
      {data && data.length === 0 && <Empty>There are no tool servers.</Empty>}
      {data && data.length > 0 && (
        <List label="Tool servers">
          {data.map((server) => (
            <Item key={server.name}>
              <span className="min-w-0 grow">
                <bdi className="block truncate font-medium">{server.name}</bdi>
                <bdi className="block truncate text-tiny text-faint">{server.url ?? 'set up by the operator'}</bdi>
              </span>
              {server.source === 'workspace' && (
                <IconButton name={`Remove ${server.name}`} onClick={() => remove.mutate(server.name)}>
                  <Trash2 size={16} aria-hidden />
                </IconButton>
              )}
            </Item>
          ))}
        </List>
      )}
    </Section>
  );
}
