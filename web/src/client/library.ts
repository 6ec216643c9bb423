// What a workspace keeps beside its threads: pages, tables, tools; what it used, and all of it as a download.
import { all } from './api';
import { linked, request } from './http';
import type { Json } from './json';
import type { Page as Listed } from './types';

export type Document = { id: string; title: string; body: string; url: string | null; updated_at: string };
export type DocumentText = { title: string; body: string; url: string | null };

const pages = '/v1/pages';
export const listPages = (query: string, after?: string, signal?: AbortSignal) =>
  request<Listed<Document>>(pages, { query: { limit: 50, after, query: query || undefined }, signal });
export const getPage = (id: string) => request<Document>(`${pages}/${id}`);
export const createPage = (page: DocumentText) => request<Document>(pages, { method: 'POST', body: page });
export const updatePage = (id: string, page: DocumentText) => request<Document>(`${pages}/${id}`, { method: 'PUT', body: page });
export const removePage = (id: string) => request<void>(`${pages}/${id}`, { method: 'DELETE' });

export const TYPES = ['text', 'number', 'boolean', 'date'] as const;
export type Column = { name: string; type: (typeof TYPES)[number] };
export type Table = { id: string; name: string; columns: Column[]; row_count: number; updated_at?: string };
export type TableRow = { _id: string } & Record<string, Json>;

const tables = '/v1/tables';
export const listTables = () => all<Table>(tables);
export const getTable = (id: string) => request<Table>(`${tables}/${id}`);
export const createTable = (name: string, columns: Column[]) => request<Table>(tables, { method: 'POST', body: { name, columns } });
export const removeTable = (id: string) => request<void>(`${tables}/${id}`, { method: 'DELETE' });
export const listRows = (id: string, after?: string, signal?: AbortSignal) =>
  request<Listed<TableRow>>(`${tables}/${id}/rows`, { query: { limit: 100, after }, signal });
export const addRow = (id: string, row: Record<string, Json>) =>
  request<unknown>(`${tables}/${id}/rows`, { method: 'POST', body: { rows: [row] } });
export const updateRow = (id: string, row: string, cells: Record<string, Json>) =>
  request<unknown>(`${tables}/${id}/rows/${row}`, { method: 'PUT', body: cells });
export const removeRow = (id: string, row: string) => request<void>(`${tables}/${id}/rows/${row}`, { method: 'DELETE' });
export const importRows = (id: string, file: Blob, type: 'text/csv' | 'application/json') =>
  request<unknown>(`${tables}/${id}/import`, { method: 'POST', raw: file, type });
export const exportLink = (id: string, format: 'csv' | 'json') => linked(`${tables}/${id}/export`, { format });

export type Tool = { name: string; description: string; read_only: boolean; source?: string; server: string | null };
export type ToolServer = { name: string; url: string | null; source: 'operator' | 'workspace' };
export const listTools = () => all<Tool>('/v1/tools');
export const listToolServers = () => all<ToolServer>('/v1/tool-servers');
export const addToolServer = (server: { name: string; url: string; token?: string }) => request<ToolServer>('/v1/tool-servers', { method: 'POST', body: server });
export const removeToolServer = (name: string) => request<void>(`/v1/tool-servers/${encodeURIComponent(name)}`, { method: 'DELETE' });

export type Spent = { day: string; input_tokens: number; output_tokens: number; total_tokens: number; runs: number };
export type Allowance = { used: number; limit: number | null; resets_at: string };
export type Usage = { data: Spent[]; today: { user: Allowance; workspace: Allowance } };
export const getUsage = () => request<Usage>('/v1/usage');

export const archiveLink = (format: string) => linked('/v1/export', { format });
