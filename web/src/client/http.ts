// Requests. The session is the browser's HttpOnly cookie; the server's defence against other sites' requests is
// the `Origin` that a browser adds by itself, so nothing more is sent here. Every failure is a `Failure`.
import { parse } from './json';

/** One of several things that were wrong with a request. */
export type Fault = { row?: number; column?: string; message: string };

/** A refusal of the server, with its stable code; `status` is 0 when it was not reached. */
export class Failure extends Error {
  constructor(
    readonly status: number,
    readonly code: string,
    message: string,
    readonly more: { run?: string; limit?: number; retry_after?: number; errors?: Fault[] } = {},
  ) {
    super(message);
    this.name = 'Failure';
  }
  /** Worth trying again with the same request. */
  get passing(): boolean {
    return this.status === 0 || this.status === 429 || this.status >= 500;
  }
}

let base = '';
let workspace: string | null = null;

/** Tests run outside a page and name the server. */
export const setBase = (url: string) => (base = url);
export const setWorkspace = (id: string | null) => (workspace = id);
export const inWorkspace = () => workspace;

let unauthenticated = () => {};
/** Called when the session is over. */
export const onUnauthenticated = (tell: () => void) => (unauthenticated = tell);

export const JSON_API = 'application/vnd.api+json';

export type Options = {
  method?: string;
  body?: unknown;
  /** A body that is sent as it is. */
  raw?: BodyInit;
  type?: string;
  headers?: Record<string, string>;
  signal?: AbortSignal | undefined;
  /** Goes out even when the page is being left. */
  keepalive?: boolean;
  query?: Record<string, string | number | undefined>;
  /** It is about no workspace, whichever the page is in. */
  everywhere?: boolean;
};

export function address(path: string, query: Options['query'] = {}): string {
  const search = new URLSearchParams();
  for (const [name, value] of Object.entries(query)) if (value !== undefined) search.set(name, String(value));
  const text = search.toString();
  return base + path + (text && (path.includes('?') ? '&' : '?') + text);
}

/** An address for an image or a download: the browser asks for it, without our headers. */
export const linked = (path: string, query: Options['query'] = {}) => address(path, { ...query, workspace: workspace ?? undefined });

/** What every request carries beside its own. */
export const shared = (): Record<string, string> => (workspace ? { 'Threadkeep-Workspace': workspace } : {});

/** A response with a 2xx or 304 status; anything else is thrown. */
export async function send(path: string, options: Options = {}): Promise<Response> {
  const { method = 'GET', body, raw, type = 'application/json', headers = {}, signal, keepalive = false, query, everywhere = false } = options;
  const init: RequestInit = {
    method,
    headers: { ...(everywhere ? {} : shared()), ...(body === undefined && raw === undefined ? {} : { 'Content-Type': type }), ...headers },
    credentials: 'same-origin',
    cache: 'no-store',
    keepalive,
  };
  if (signal) init.signal = signal;
  if (raw !== undefined) init.body = raw;
  else if (body !== undefined) init.body = JSON.stringify(body);
  let response: Response;
  try {
    response = await fetch(address(path, query), init);
  } catch (error) {
    if (signal?.aborted) throw error;
    throw new Failure(0, 'unreachable', 'The server cannot be reached.');
  }
  if (response.ok || response.status === 304) return response;
  if (response.status === 401) unauthenticated();
  throw await failure(response);
}

/** The JSON of an answer; undefined where there is none. */
export async function request<T>(path: string, options: Options = {}): Promise<T> {
  const response = await send(path, options);
  let text: string;
  try {
    text = await response.text();
  } catch (error) {
    if (options.signal?.aborted) throw error;
    throw new Failure(0, 'unreachable', 'The server cannot be reached.');
  }
  return (text === '' ? undefined : parse(text)) as T;
}

async function failure(response: Response): Promise<Failure> {
  const text = await response.text().catch(() => '');
  return readFailure(response.status, text);
}

/** A problem document, a JSON:API error document, or neither. */
export function readFailure(status: number, text: string): Failure {
  try {
    const body = JSON.parse(text);
    const several = Array.isArray(body.errors);
    const told = several && body.detail === undefined ? { ...body.errors[0]?.meta, ...body.errors[0] } : body;
    const { run, limit, retry_after } = told;
    return new Failure(status, String(told.code ?? 'unknown'), String(told.detail ?? told.title ?? status), {
      run,
      limit,
      retry_after,
      ...(several ? { errors: body.errors } : {}),
    });
  } catch {
    return new Failure(status, 'unknown', `The server answered ${status}.`);
  }
}
