// The rows of a thread: its messages, then what is on its way.
import type { Thread, ThreadState } from '../client/thread';
import type { Message } from '../client/types';

export type Row =
  | { kind: 'user'; key: string; message: Message; last: boolean; pending: boolean }
  | { kind: 'assistant'; key: string; message: Message; last: boolean }
  | { kind: 'live'; key: string };

export function rowsOf(state: ThreadState, keyOf: Thread['keyOf']): Row[] {
  const { messages, sending, live } = state;
  const last = messages.length - 1;
  const rows: Row[] = messages.flatMap((message, at): Row[] => {
    if (message.role === 'system') return [];
    const ends = at === last && !sending;
    if (message.role === 'user') return [{ kind: 'user', key: message.id, message, last: ends, pending: false }];
    return [{ kind: 'assistant', key: keyOf(message), message, last: ends }];
  });
  if (sending && !sending.again) {
    const blocks = sending.text ? [{ type: 'text' as const, text: sending.text }] : [];
    const message: Message = { id: 'sending', role: 'user', blocks, attachments: sending.attachments, createdAt: 0 };
    rows.push({ kind: 'user', key: 'sending', message, last: false, pending: true });
  }
  if (sending) rows.push({ kind: 'live', key: 'sending-live' });
  // The run answers the last message; on another branch it goes on unseen.
  else if (live && messages[last]?.id === live.message) rows.push({ kind: 'live', key: live.run });
  return rows;
}
