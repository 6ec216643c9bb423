// A program that speaks MCP on its standard input and output, and misbehaves as its first argument says.
import { spawn } from 'node:child_process';
import { createInterface } from 'node:readline';

const [how, secret = ''] = process.argv.slice(2);
const say = (message) => process.stdout.write(`${JSON.stringify({ jsonrpc: '2.0', ...message })}\n`);
const tool = (name) => ({ name, description: name, inputSchema: { type: 'object' } });

console.error(`started with ${secret} and ${process.env.RUDE_CANARY ?? ''}`);
if (how === 'dies-at-once') process.exit(3);
// A child of its own, which does not end when its input does.
if (how === 'breeds') {
  const child = spawn('sleep', ['1000'], { stdio: 'ignore' });
  process.on('SIGTERM', () => {});
  setInterval(() => {}, 1000);
  console.error(`child ${child.pid}`);
  globalThis.child = child.pid;
}

const calls = {
  echo: (id, args) => say({ id, result: { content: [{ type: 'text', text: args.text ?? process.pid.toString() }] } }),
  pids: (id) => say({ id, result: { content: [{ type: 'text', text: `${process.pid} ${globalThis.child}` }] } }),
  die: () => process.exit(7),
  hang: () => {
    for (;;);
  },
  late: () => {},
  flood: () => {
    const block = 'x'.repeat(1 << 20);
    const more = () => process.stdout.write(block, more);
    more();
  },
  garbage: (id) => {
    process.stdout.write('this is not JSON\n\n{"id": 1\n[]\n');
    say({ id: 123456, result: {} });
    say({ id: 'p', method: 'ping' });
    calls.echo(id, { text: 'after garbage' });
  },
};

createInterface({ input: process.stdin }).on('line', (line) => {
  const { id, method, params } = JSON.parse(line);
  if (method === 'initialize') {
    if (how === 'never-greets') return;
    say({ id, result: { protocolVersion: '2025-06-18', capabilities: { tools: {} }, serverInfo: { name: 'r', version: '1' } } });
  } else if (method === 'tools/list') say({ id, result: { tools: Object.keys(calls).map(tool) } });
  else if (method === 'tools/call') calls[params.name](id, params.arguments);
  else if (method === 'ping') say({ id, result: {} });
});
