// The fold: a run's events to the blocks of its message. The server stores what its own fold makes of the same
// events; `vectors/fold` holds both to the same result. Blocks are never changed in place: what a view has
// drawn and what is new can be told apart by identity.
import { toNumber, type Json } from './json';
import type { Block, FileBlock, RunEvent, Source, StepBlock, ToolCallBlock } from './types';

type StepLine = Omit<StepBlock, 'type' | 'startedAt' | 'status'> & { status: StepBlock['status'] };
type Calls = { round: number; calls: { id: string; name: string; args: Json }[] };
type Ended = Omit<ToolCallBlock, 'type' | 'args'>;

export class Fold {
  private blocks: Block[] = [];
  private steps = new Map<string, number>();
  private calls = new Map<string, { at: number; open: boolean }>();
  private ended = false;

  push({ event, data, ts }: Pick<RunEvent, 'event' | 'data' | 'ts'>): void {
    if (this.ended) return;
    switch (event) {
      case 'delta':
        return this.join('text', data.text as string);
      case 'reasoning':
        return this.join('reasoning', data.text as string);
      case 'step':
        return this.step(ts, data as unknown as StepLine);
      case 'tool_calls':
        return this.announce(data as unknown as Calls);
      case 'tool_result':
        return this.finishCall(data as unknown as Ended);
      case 'sources':
        for (const source of data.sources as Source[]) this.blocks.push(sourceBlock(source));
        return;
      case 'file':
        this.blocks.push(fileBlock(data as unknown as FileBlock));
        return;
      case 'result':
        return this.result(data.message as string);
      case 'error':
        this.ended = true;
        this.blocks.push({ type: 'error', code: data.code as string, message: data.message as string });
    }
  }

  /** The blocks of a run under way. */
  live(): Block[] {
    return this.blocks.slice();
  }

  /** The run has ended: what is open stays unfinished for good. */
  finish(): Block[] {
    const open = new Set([...this.calls.values()].filter((call) => call.open).map((call) => call.at));
    return this.blocks.map((block, at) => {
      if (block.type === 'step' && block.status === 'running') return { ...block, status: 'interrupted' };
      if (block.type === 'tool_call' && open.has(at)) return { ...block, error: 'interrupted' };
      return block;
    });
  }

  private join(type: 'text' | 'reasoning', delta: string): void {
    if (delta === '') return;
    const last = this.blocks.at(-1);
    if (last?.type === type) this.blocks[this.blocks.length - 1] = { type, text: last.text + delta };
    else this.blocks.push({ type, text: delta });
  }

  private result(message: string): void {
    this.ended = true;
    if (message === '') return;
    const last = this.blocks.at(-1);
    if (last?.type === 'text') this.blocks[this.blocks.length - 1] = { type: 'text', text: message };
    else this.blocks.push({ type: 'text', text: message });
  }

  private step(ts: number, line: StepLine): void {
    let at = this.steps.get(line.id);
    const before = at === undefined ? undefined : (this.blocks[at] as StepBlock);
    const block: StepBlock = {
      type: 'step',
      id: line.id,
      name: line.name,
      status: line.status,
      ...kept('args', line, before),
      ...kept('result', line, before),
      ...(line.error == null ? kept('error', {}, before) : { error: line.error }),
      ...kept('durationMs', line, before),
      startedAt: before?.startedAt ?? ts,
    };
    if (at === undefined) {
      at = this.blocks.length;
      this.steps.set(line.id, at);
    }
    this.blocks[at] = block;
  }

  private announce({ round, calls }: Calls): void {
    for (const call of calls) {
      const { at } = this.call(round, call.id);
      const block = this.blocks[at] as ToolCallBlock;
      this.blocks[at] = { ...block, name: call.name, args: call.args };
    }
  }

  private finishCall(ended: Ended): void {
    const call = this.call(ended.round, ended.id);
    call.open = false;
    const { name, result, error, truncated } = ended;
    const block = this.blocks[call.at] as ToolCallBlock;
    this.blocks[call.at] = { ...block, name, result: result ?? null, error: error ?? null, truncated };
  }

  /** The call's place; a new one gets its block here. */
  private call(round: number, id: string): { at: number; open: boolean } {
    const key = `${round} ${id}`;
    let call = this.calls.get(key);
    if (!call) {
      call = { at: this.blocks.length, open: true };
      this.calls.set(key, call);
      this.blocks.push({ type: 'tool_call', id, name: '', args: null, result: null, error: null, truncated: false, round });
    }
    return call;
  }
}

/** The blocks of a run that has ended. */
export function fold(events: Pick<RunEvent, 'event' | 'data' | 'ts'>[]): Block[] {
  const folding = new Fold();
  for (const event of events) folding.push(event);
  return folding.finish();
}

/** The last instant a date can hold. */
const LAST = 8_640_000_000_000_000;

/** The time of an event in whole milliseconds: steps bring their own, as their sandbox spelled it. */
export function timeOf(data: Record<string, unknown>, now: number): number {
  const ts = toNumber(data.ts);
  return ts === undefined ? now : Math.min(Math.max(Math.trunc(ts), 0), LAST);
}

/** A field that the new line has, else the one that was there; a null that was sent counts. */
function kept<K extends string>(field: K, line: object, before: object | undefined): object {
  for (const from of [line, before]) {
    const value = (from as Record<string, unknown> | undefined)?.[field];
    if (value !== undefined) return { [field]: value };
  }
  return {};
}

function sourceBlock({ id, title, url, locator, snippet }: Source): Block {
  return {
    type: 'source',
    id,
    title,
    ...(url == null ? {} : { url }),
    ...(locator == null ? {} : { locator }),
    snippet,
  };
}

function fileBlock({ fileId, name, mimeType, size, sha256 }: FileBlock): Block {
  return { type: 'file', fileId, name, mimeType, size, sha256 };
}
