// Which tools an agent has, and which of their calls wait for a person.
import { useQuery } from '@tanstack/react-query';
import type { AgentTool } from '../client/api';
import { listTools, type Tool } from '../client/library';
import { Spinner } from '../ui/bits';

export const toolName = (tool: AgentTool): string => (typeof tool === 'string' ? tool : 'mcp' in tool ? tool.mcp : tool.composio);

/** A tool server's tool under its own name: what models know it as begins with the server's. */
const bare = ({ name, server }: Tool) => (server && name.startsWith(`${server}__`) ? name.slice(server.length + 2) : name);

const ofServer = (tools: AgentTool[], server: string) => tools.find((one) => typeof one === 'object' && 'mcp' in one && one.mcp === server) as { mcp: string; allow?: string[] } | undefined;

function has(tools: AgentTool[], tool: Tool): boolean {
  if (!tool.server) return tools.includes(tool.name);
  const given = ofServer(tools, tool.server);
  return given !== undefined && (!given.allow || given.allow.includes(bare(tool)));
}

/** All tools of a server are the server itself; fewer are listed. */
function toggled(tools: AgentTool[], tool: Tool, on: boolean, siblings: Tool[]): AgentTool[] {
  const { server } = tool;
  if (!server) return on ? [...tools, tool.name] : tools.filter((one) => one !== tool.name);
  const allow = siblings.filter((one) => (one.name === tool.name ? on : has(tools, one))).map(bare);
  const rest = tools.filter((one) => one !== ofServer(tools, server));
  if (allow.length === 0) return rest;
  return [...rest, allow.length === siblings.length ? { mcp: server } : { mcp: server, allow }];
}

type Props = { tools: AgentTool[]; approval: string[]; onChange: (change: { tools?: AgentTool[]; approval?: string[] }) => void };

export function AgentTools({ tools, approval, onChange }: Props) {
  const { data, error } = useQuery({ queryKey: ['tools'], queryFn: listTools });
  // A toolkit is given as a whole.
  const known = (data ?? []).filter((tool) => tool.source !== 'composio');
  const others = tools.filter((one) => data && !known.some((tool) => (typeof one === 'string' ? tool.name === one : tool.server === toolName(one))));
  return (
    <fieldset>
      <legend className="mb-1.5 text-small font-medium">Tools</legend>
      {error && <p className="text-small text-danger">{error.message}</p>}
      {!data && !error && <Spinner label="Loading the tools" />}
      {data && (
        <ul className="max-h-80 divide-y divide-line overflow-auto rounded-lg border border-line">
          {known.map((tool) => (
            <li key={tool.name} className="flex flex-wrap items-center justify-between gap-x-3 gap-y-1 px-3 py-2 text-small">
              <label className="flex min-w-0 items-center gap-2.5" title={tool.description}>
                <input
                  type="checkbox"
                  className="size-4 shrink-0 accent-accent"
                  checked={has(tools, tool)}
                  onChange={(event) => onChange({ tools: toggled(tools, tool, event.target.checked, known.filter((one) => one.server === tool.server)) })}
                />
                <bdi className="[overflow-wrap:anywhere]">{tool.name}</bdi>
              </label>
              <label className="flex items-center gap-2 text-soft">
                <input
                  type="checkbox"
                  className="size-4 accent-accent"
                  checked={approval.includes(tool.name)}
                  onChange={(event) => onChange({ approval: event.target.checked ? [...approval, tool.name] : approval.filter((one) => one !== tool.name) })}
                />
                ask before each call<span className="sr-only"> of {tool.name}</span>
              </label>
            </li>
          ))}
          {others.map((one) => (
            <li key={toolName(one)} className="flex items-center justify-between gap-3 px-3 py-2 text-small">
              <label className="flex min-w-0 items-center gap-2.5">
                <input type="checkbox" className="size-4 shrink-0 accent-accent" checked onChange={() => onChange({ tools: tools.filter((other) => other !== one) })} />
                <bdi className="[overflow-wrap:anywhere]">{toolName(one)}</bdi>
              </label>
              <span className="text-tiny text-faint">{typeof one === 'object' && 'composio' in one ? 'Composio' : 'not there now'}</span>
            </li>
          ))}
        </ul>
      )}
    </fieldset>
  );
}
