// The words of the API: what the generated schema has, and what it leaves open (blocks and events).
import type { components } from './schema';
import type { Json } from './json';

type Schemas = components['schemas'];

export type Run = Omit<Schemas['RunView'], 'status' | 'error'> & {
  status: RunStatus;
  error?: { code: string; message: string } | null;
};
/** With its files, which the list only names by their ids. */
export type Queued = Run & { text?: string | null; attachments: string[]; files: StoredFile[] };
export type Branch = Schemas['BranchView'];
export type Workspace = Schemas['WorkspaceView'];
export type Member = Schemas['MemberView'];
export type ApiKey = Schemas['KeyView'];
export type AuditEntry = Schemas['AuditView'];
export type Whoami = Schemas['Whoami'];
export type Highlight = Schemas['SearchHighlight'];
export type Conversation = Schemas['ConversationResource'];
export type Tab = Schemas['OpenTab'];
export type Mode = Schemas['Mode'];
/** A message is a text here, never blocks. */
export type TurnRequest = Omit<Schemas['TurnRequest'], 'message'> & { message?: string | null };
export type Trace = Omit<Schemas['TraceView'], 'data'> & { data: TraceLine[] };
export type TraceLine = { seq: number; ts: number; kind: string; line: Record<string, Json> };
export type Page<T> = { data: T[]; next?: string | null };

export type RunStatus = 'queued' | 'running' | 'succeeded' | 'failed' | 'cancelled' | 'interrupted';

export type Attachment = { fileId: string; name: string; mimeType: string; size: number; sha256: string };
export type Source = { id: string; title: string; url?: string; locator?: string; snippet: string };

export type TextBlock = { type: 'text'; text: string };
export type ReasoningBlock = { type: 'reasoning'; text: string };
export type StepBlock = {
  type: 'step';
  id: string;
  name: string;
  status: 'running' | 'succeeded' | 'failed' | 'interrupted';
  args?: Json;
  result?: Json;
  error?: string;
  durationMs?: Json;
  startedAt: number;
};
export type ToolCallBlock = {
  type: 'tool_call';
  id: string;
  name: string;
  args: Json;
  result: Json;
  error: string | null;
  truncated: boolean;
  round: number;
};
export type SourceBlock = { type: 'source' } & Source;
export type FileBlock = { type: 'file' } & Attachment;
export type ErrorBlock = { type: 'error'; code: string; message: string };

export type Block =
  | TextBlock
  | ReasoningBlock
  | StepBlock
  | ToolCallBlock
  | SourceBlock
  | FileBlock
  | ErrorBlock;

/** A message of a thread: `blocks` is what the API calls `parts` here and `content` in an event. */
export type Message = {
  id: string;
  role: 'user' | 'assistant' | 'system';
  blocks: Block[];
  attachments: Attachment[];
  createdAt: number;
};

export type StoredFile = {
  id: string;
  chatId: string | null;
  messageId: string | null;
  name: string;
  mimeType: string;
  size: number;
  sha256: string;
  source: 'user' | 'sandbox';
  createdAt: number | string;
};

/** One event of a run, as the `envelope` wire has it. */
export type RunEvent = { seq: number; ts: number; event: string; data: Record<string, unknown> };

export type Approval = { id: string; call: { id: string; name: string; args: Json }; client?: boolean };
