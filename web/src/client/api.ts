// The server's endpoints, one function each.
import { Failure, JSON_API, linked, request, send, type Options } from './http';
import { parse } from './json';
import type {
  ApiKey,
  AuditEntry,
  Block,
  Branch,
  Conversation,
  Attachment,
  Member,
  Message,
  Page,
  Queued,
  Run,
  StoredFile,
  Trace,
  TurnRequest,
  Whoami,
  Workspace,
} from './types';

const conversations = '/v1/chat-conversations';
type Document = { data: Conversation };
type ListDocument = { data: Conversation[]; links: { next?: string | null } };

export const timeZone = () => Intl.DateTimeFormat().resolvedOptions().timeZone || 'UTC';

/** A page of the history, or of what a search found. */
export async function listConversations(query: string, after: string | null, signal?: AbortSignal) {
  const found = await request<ListDocument>(conversations, {
    query: {
      timeZone: timeZone(),
      'page[size]': 50,
      'page[after]': after ?? undefined,
      'filter[query]': query || undefined,
      'fields[chat_conversation]': 'title,preview,updated_at,mode,visibility,user_id,message_count',
    },
    signal,
  });
  const next = found.links.next ? new URL(found.links.next).searchParams.get('page[after]') : null;
  return { data: found.data, next };
}

export const createConversation = (attributes: Record<string, unknown>) =>
  request<Document>(conversations, {
    method: 'POST',
    type: JSON_API,
    body: { data: { type: 'chat_conversation', attributes } },
  }).then((document) => document.data);

export const updateConversation = (id: string, attributes: Record<string, unknown>) =>
  request<Document>(`${conversations}/${id}`, {
    method: 'PATCH',
    type: JSON_API,
    body: { data: { type: 'chat_conversation', id, attributes } },
  }).then((document) => document.data);

export const deleteConversation = (id: string) => request<void>(`${conversations}/${id}`, { method: 'DELETE', keepalive: true });

export const restoreConversation = (id: string) =>
  request<Document>(`${conversations}/${id}/restore`, { method: 'POST' }).then((document) => document.data);

export const forkConversation = (id: string, through: string) =>
  request<Document>(`${conversations}/${id}/fork`, { method: 'POST', body: { through } }).then((d) => d.data);

type StoredMessage = Omit<Message, 'blocks' | 'attachments'> & { parts: Block[]; fileAttachments: Attachment[] };
type EventMessage = Omit<StoredMessage, 'parts'> & { content: Block[] };

const fromStored = ({ id, role, parts, fileAttachments, createdAt }: StoredMessage): Message => ({
  id,
  role,
  blocks: parts,
  attachments: fileAttachments,
  createdAt,
});

/** The message in a `result` or `error` event. */
export const fromEvent = ({ id, role, content, fileAttachments, createdAt }: EventMessage): Message => ({
  id,
  role,
  blocks: content,
  attachments: fileAttachments,
  createdAt,
});

export type Retrieved = { etag: string | null; conversation: Conversation; messages: Message[] };

/** The conversation with its newest messages, or those before one; null when it is still at `etag`. */
export async function getConversation(
  id: string,
  { limit, before, branch, etag, signal }: {
    limit: number;
    before?: string;
    branch?: string;
    etag?: string | null;
    signal?: AbortSignal;
  },
): Promise<Retrieved | null> {
  const response = await send(`${conversations}/${id}`, {
    query: { 'page[messages]': limit, 'page[messages_before]': before, branchId: branch },
    headers: etag ? { 'If-None-Match': etag } : {},
    signal,
  });
  if (response.status === 304) return null;
  let document: Document;
  try {
    document = parse(await response.text()) as Document;
  } catch (error) {
    if (signal?.aborted) throw error;
    throw new Failure(0, 'unreachable', 'The answer broke off.');
  }
  const messages = (document.data.attributes.messages ?? []) as unknown as StoredMessage[];
  return { etag: response.headers.get('etag'), conversation: document.data, messages: messages.map(fromStored) };
}

export const listRuns = (id: string, after?: string, signal?: AbortSignal) =>
  request<Page<Run>>(`${conversations}/${id}/runs`, { query: { limit: 20, after }, signal });
/** Who said the messages that are others', as the runs of the thread tell it: the first run of a message is that of its author. */
export async function listAuthors(id: string): Promise<Map<string, string>> {
  const authors = new Map<string, string>();
  let after: string | undefined;
  for (let pages = 0; pages < 10; pages++) {
    const page = await request<Page<Run>>(`${conversations}/${id}/runs`, { query: { limit: 100, after } });
    for (const { message, user } of page.data) if (message && user !== undefined) authors.set(message, user ?? '');
    if (!page.next) break;
    after = page.next;
  }
  return authors;
}

export const listQueue = (id: string, signal?: AbortSignal) =>
  request<Page<Omit<Queued, 'files'>>>(`${conversations}/${id}/queue`, { query: { limit: 100 }, signal }).then((page) => page.data);
export const listBranches = (id: string) => all<Branch>(`${conversations}/${id}/branches`);
export const selectBranch = (id: string, branch: string) =>
  request<Branch>(`${conversations}/${id}/branches/${branch}/select`, { method: 'POST' });

/** Starts a turn: the response is the run's event stream, its ids are in the headers. */
export const startTurn = (body: TurnRequest, key: string, signal: AbortSignal) =>
  send('/v1/turns', {
    method: 'POST',
    body: { ...body, on_disconnect: 'continue' },
    headers: { Accept: 'text/event-stream', 'Idempotency-Key': key },
    signal,
  });

/** Starts a turn that waits its time, and answers with its ids. */
export const enqueueTurn = (body: TurnRequest, key: string) =>
  request<{ conversation: string; run: string; message: string | null; status: string }>('/v1/turns', {
    method: 'POST',
    body: { ...body, on_busy: 'enqueue', on_disconnect: 'continue' },
    headers: { Prefer: 'respond-async', 'Idempotency-Key': key },
  });

export const getRun = (id: string) => request<Run>(`/v1/runs/${id}`);
export const cancelRun = (id: string) => request<Run>(`/v1/runs/${id}/cancel`, { method: 'POST' });
export const editQueued = (id: string, message: string) =>
  request<Run>(`/v1/runs/${id}`, { method: 'PATCH', body: { message } });
export const decideApproval = (run: string, id: string, approve: boolean, reason?: string) =>
  request<void>(`/v1/runs/${run}/approvals`, { method: 'POST', body: { id, approve, ...(reason ? { reason } : {}) } });
export const listApprovals = (run: string) => all<{ id: string; status: string }>(`/v1/runs/${run}/approvals`);
export const listModels = () => request<{ data: { id: string }[] }>('/v1/models').then((list) => list.data);

/** One of the server's own tools, those of a tool server (some of them), or those of a Composio toolkit. */
export type AgentTool = string | { mcp: string; allow?: string[] } | { composio: string };
export type AgentSettings = {
  name: string;
  instructions: string;
  model: string | null;
  runner: 'model' | 'sandbox';
  tools: AgentTool[];
  approval: string[];
};
export type Agent = AgentSettings & { id: string };
export const listAgents = () => all<Agent>('/v1/agents');
export const createAgent = (agent: AgentSettings) => request<Agent>('/v1/agents', { method: 'POST', body: agent });
export const updateAgent = (id: string, agent: AgentSettings) =>
  request<Agent>(`/v1/agents/${id}`, { method: 'PATCH', body: agent });
export const removeAgent = (id: string) => request<void>(`/v1/agents/${id}`, { method: 'DELETE' });

export const getTrace = (id: string, after?: string) =>
  request<Trace>(`/v1/runs/${id}/trace`, { query: { limit: 100, after } });

export const whoami = () => request<Whoami>('/v1/session', { everywhere: true });
export const logIn = (token: string) =>
  request<void>('/v1/session', { method: 'POST', headers: { Authorization: `Bearer ${token}` } });
export const logOut = () => request<void>('/v1/session', { method: 'DELETE' });

/** Every page of a short list. */
export async function all<T>(path: string, options: Options = {}): Promise<T[]> {
  const found: T[] = [];
  let after: string | null | undefined;
  do {
    const page: Page<T> = await request(path, { ...options, query: { limit: 100, after: after ?? undefined } });
    found.push(...page.data);
    after = page.next;
  } while (after);
  return found;
}

export const listWorkspaces = () => all<Workspace>('/v1/workspaces', { everywhere: true });
export const createWorkspace = (name: string) =>
  request<Workspace>('/v1/workspaces', { method: 'POST', body: { name }, everywhere: true });
/** With its model, which lists leave out. */
export const getWorkspace = (id: string) => request<Workspace>(`/v1/workspaces/${id}`);
export const updateWorkspace = (id: string, change: { name: string; default_visibility: string; model: string | null }) =>
  request<Workspace>(`/v1/workspaces/${id}`, { method: 'PATCH', body: change });
export const listMembers = (id: string) => all<Member>(`/v1/workspaces/${id}/members`);
export const addMember = (id: string, user: string, role: string) =>
  request<Member>(`/v1/workspaces/${id}/members`, { method: 'POST', body: { user, role } });
export const removeMember = (id: string, user: string) =>
  request<void>(`/v1/workspaces/${id}/members/${encodeURIComponent(user)}`, { method: 'DELETE' });
export const listKeys = () => all<ApiKey>('/v1/api-keys');
export const createKey = (name: string, role: string) =>
  request<ApiKey>('/v1/api-keys', { method: 'POST', body: { name, role } });
export const removeKey = (id: string) => request<void>(`/v1/api-keys/${id}`, { method: 'DELETE' });
export const listAudit = (after?: string) => request<Page<AuditEntry>>('/v1/audit', { query: { limit: 100, after } });

export const listFiles = (id: string) => all<StoredFile>(`${conversations}/${id}/files`);
export const deleteFile = (id: string, file: string) =>
  request<void>(`${conversations}/${id}/files/${file}`, { method: 'DELETE' });
export const fileAddress = (id: string, file: string) => `${conversations}/${id}/files/${file}/content`;
/** For images and downloads. */
export const fileLink = (id: string, file: string) => linked(fileAddress(id, file));
export const filesAddress = (id: string) => `${conversations}/${id}/files`;
