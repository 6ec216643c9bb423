// A real server on loopback whose answers a test scripts, one connection after the other.
import { createServer, type IncomingMessage, type ServerResponse } from 'node:http';
import type { AddressInfo } from 'node:net';

export type Handler = (request: IncomingMessage, response: ServerResponse) => void;

export async function scripted(handlers: Handler[]) {
  const seen: IncomingMessage[] = [];
  const server = createServer((request, response) => {
    const handler = handlers[Math.min(seen.length, handlers.length - 1)];
    seen.push(request);
    handler?.(request, response);
  });
  await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve));
  const { port } = server.address() as AddressInfo;
  const close = () =>
    new Promise<void>((resolve) => {
      server.closeAllConnections();
      server.close(() => resolve());
    });
  return { url: `http://127.0.0.1:${port}`, seen, close };
}

export const frame = (id: number, event: string, data: unknown) =>
  `id: ${id}\nevent: ${event}\ndata: ${JSON.stringify(data)}\n\n`;

/** Sends the text and ends, or tears the connection down after it. */
export const stream =
  (text: string, torn = false): Handler =>
  (_, response) => {
    response.writeHead(200, { 'Content-Type': 'text/event-stream' });
    response.write(text, () => (torn ? response.socket?.destroy() : response.end()));
  };

export const problem =
  (status: number, code: string): Handler =>
  (_, response) => {
    response.writeHead(status, { 'Content-Type': 'application/problem+json' });
    response.end(JSON.stringify({ type: `urn:threadkeep:problem:${code}`, title: code, status, code, detail: code }));
  };

export const json =
  (body: unknown): Handler =>
  (_, response) => {
    response.writeHead(200, { 'Content-Type': 'application/json' });
    response.end(JSON.stringify(body));
  };
