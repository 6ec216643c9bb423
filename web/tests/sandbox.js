// A sandbox that a test scripts through what it says: each message is a small program, one command a line, so that
// a story reads as it happens. `hold NAME` waits until the test opens NAME.
//   say TEXT · answer TEXT · step ID NAME [JSON] · done ID NAME RESULT · failed ID NAME ERROR · log TEXT
//   make NAME TEXT (a file, once a turn) · hold NAME · wait MS · fail CODE TEXT · many N · words N MS · hostile FROM TO
import { createServer } from 'node:http';
import { hostile } from './hostile.js';

export async function startSandbox(port = 0) {
  const gates = new Map();
  const gate = (name) => {
    if (!gates.has(name)) {
      let open;
      const opened = new Promise((resolve) => (open = resolve));
      gates.set(name, { opened, open });
    }
    return gates.get(name);
  };
  const asked = [];
  const server = createServer((request, response) => {
    let body = '';
    request.on('data', (chunk) => (body += chunk));
    request.on('end', () => {
      const envelope = JSON.parse(body);
      asked.push(envelope);
      response.writeHead(200, { 'Content-Type': 'application/x-ndjson' });
      response.flushHeaders();
      play(envelope, response, gate).catch(() => response.destroy());
    });
  });
  await new Promise((resolve) => server.listen(port, '127.0.0.1', resolve));
  return {
    url: `http://127.0.0.1:${server.address().port}`,
    asked,
    open: (name) => gate(name).open(),
    close: () => {
      server.closeAllConnections();
      server.close();
    },
  };
}

async function play(envelope, response, gate) {
  const line = (value) => response.write(`${JSON.stringify(value)}\n`);
  const pause = (ms) => new Promise((resolve) => setTimeout(resolve, ms));
  const unquote = (words) => words.join(' ').replaceAll('\\n', '\n');
  for (const command of envelope.message.content.split('\n')) {
    const [verb, ...words] = command.trim().split(' ');
    const [id, name, ...rest] = words;
    if (verb === 'say') line({ type: 'delta', text: unquote(words) });
    else if (verb === 'step') line({ type: 'step', id, name: name.replaceAll('_', ' '), status: 'running', ...(rest.length ? { args: JSON.parse(rest.join(' ')) } : {}) });
    else if (verb === 'done') line({ type: 'step', id, name: name.replaceAll('_', ' '), status: 'succeeded', result: rest.join(' '), durationMs: 420 });
    else if (verb === 'failed') line({ type: 'step', id, name: name.replaceAll('_', ' '), status: 'failed', error: rest.join(' '), durationMs: 90 });
    else if (verb === 'log') line({ type: 'log', level: 'info', message: unquote(words) });
    else if (verb === 'make') await make(envelope, id, unquote(words.slice(1)));
    else if (verb === 'hold') await gate(words[0]).opened;
    else if (verb === 'wait') await pause(Number(words[0]));
    else if (verb === 'many') for (let n = 0; n < Number(words[0]); n++) line({ type: 'delta', text: `word ${n} ` });
    else if (verb === 'words')
      for (let n = 0; n < Number(id) && !response.destroyed; n++) {
        line({ type: 'delta', text: n % 12 === 11 ? `**word ${n}**\n\n` : `word ${n} ` });
        await pause(Number(name));
      }
    else if (verb === 'hostile') return beHostile(hostile.slice(Number(id), Number(name)), line, response);
    else if (verb === 'fail') return response.end(`${JSON.stringify({ type: 'error', code: id, message: [name, ...rest].join(' ') })}\n`);
    else if (verb === 'answer') return response.end(`${JSON.stringify({ type: 'result', message: unquote(words) })}\n`);
    if (response.destroyed) return;
  }
  response.end(`${JSON.stringify({ type: 'result', message: '' })}\n`);
}

/** Writes a file back into the conversation. */
async function make({ agent_url: url, upload_otp: Authorization }, name, text) {
  const body = new FormData();
  body.append('file', new Blob([text]), name);
  const answer = await fetch(`${url}/results`, { method: 'POST', headers: { Authorization }, body });
  if (!answer.ok) throw new Error(`${answer.status} ${await answer.text()}`);
}

/** Says each text as a step's name, argument, result and error, and as an answer. */
function beHostile(texts, line, response) {
  texts.forEach((text, n) => {
    const step = { type: 'step', id: `${n}${text}`.slice(0, 200), name: text || 'x' };
    line({ ...step, status: 'running', args: { [text]: text } });
    line({ ...step, status: n % 2 ? 'failed' : 'succeeded', result: text, error: text });
    line({ type: 'delta', text: `\n\n${text}\n\n` });
  });
  response.end(`${JSON.stringify({ type: 'error', code: texts[0] || 'x', message: texts[0] || 'x' })}\n`);
}
