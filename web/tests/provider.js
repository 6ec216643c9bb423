// A model that a test scripts: an OpenAI-compatible provider. The newest user message says what it answers:
// `call NAME JSON` calls a tool and then tells what came back; anything else is said again.
import { createServer } from 'node:http';

export async function startProvider() {
  const asked = [];
  const server = createServer((request, response) => {
    let body = '';
    request.on('data', (chunk) => (body += chunk));
    request.on('end', () => {
      if (request.method === 'GET') return response.end(JSON.stringify({ object: 'list', data: [{ id: 'scripted', object: 'model' }] }));
      const sent = JSON.parse(body);
      asked.push(sent);
      response.writeHead(200, { 'Content-Type': 'text/event-stream' });
      const chunk = (delta, more = {}) => response.write(`data: ${JSON.stringify({ id: 'c', object: 'chat.completion.chunk', model: 'scripted', choices: [{ index: 0, delta, finish_reason: null, ...more }] })}\n\n`);
      answer(sent.messages, chunk);
      response.end('data: [DONE]\n\n');
    });
  });
  await new Promise((resolve) => server.listen(0, '127.0.0.1', resolve));
  const close = () => {
    server.closeAllConnections();
    server.close();
  };
  return { url: `http://127.0.0.1:${server.address().port}/v1`, asked, close };
}

const textOf = (content) => (typeof content === 'string' ? content : (content ?? []).map((part) => part.text ?? '').join(''));

function answer(messages, chunk) {
  const last = messages.at(-1);
  if (last.role === 'tool') {
    chunk({ role: 'assistant', content: `The tool said: ${textOf(last.content)}` });
    return chunk({}, { finish_reason: 'stop' });
  }
  const text = textOf(messages.findLast((message) => message.role === 'user').content);
  const [, name, args] = /^call (\S+) (.*)$/m.exec(text) ?? [];
  if (!name) {
    chunk({ role: 'assistant', content: `You said: ${text}` });
    return chunk({}, { finish_reason: 'stop' });
  }
  chunk({ role: 'assistant', content: 'Let me look. ' });
  chunk({ tool_calls: [{ index: 0, id: `call-${messages.length}`, type: 'function', function: { name, arguments: args } }] });
  chunk({}, { finish_reason: 'tool_calls' });
}
