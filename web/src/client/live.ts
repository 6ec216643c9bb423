// A run under way as a page shows it: its events, folded as they come. Events are drawn at most once a frame,
// however many there are.
import { follow } from './follow';
import { Fold } from './fold';
import type { Approval, Block, Message, RunEvent, RunStatus } from './types';
import { fromEvent } from './api';

export type LiveView = {
  run: string;
  /** The user message that it answers. */
  message: string | null;
  blocks: Block[];
  approvals: Approval[];
  connected: boolean;
};

export type Ended = { run: string; status: RunStatus | 'gone'; assistant: Message | null; blocks: Block[] };

const frame: (draw: () => void) => void =
  typeof requestAnimationFrame === 'undefined'
    ? (draw) => void setTimeout(draw, 16)
    : (draw) => {
        // A page in the background gets no frames.
        if (document.hidden) setTimeout(draw, 250);
        else requestAnimationFrame(draw);
      };

export class LiveRun {
  private fold = new Fold();
  private after = 0;
  private approvals: Approval[] = [];
  private connected = true;
  private assistant: Message | null = null;
  private status: RunStatus | null = null;
  private following: AbortController | null = null;
  private drawing = false;
  private over = false;

  constructor(
    readonly run: string,
    private message: string | null,
    private onView: (view: LiveView) => void,
    private onEnd: (ended: Ended) => void,
    private onFailure: (error: unknown) => void,
  ) {}

  /** Follows from where it is; `first` is a response that already carries the events. */
  resume(first?: Response): void {
    if (this.following || this.over) return;
    const stop = new AbortController();
    this.following = stop;
    follow({
      run: this.run,
      after: this.after,
      first,
      signal: stop.signal,
      onEvents: (events) => this.take(events),
      onReset: () => this.reset(),
      onConnection: (connected) => {
        this.connected = connected;
        this.draw();
      },
    }).then(
      (end) => this.finish(end),
      (error: unknown) => {
        if (stop.signal.aborted) return;
        this.following = null;
        this.onFailure(error);
      },
    );
  }

  /** Lets go of the connection; the run goes on by itself. */
  pause(): void {
    this.following?.abort();
    this.following = null;
  }

  stop(): void {
    this.over = true;
    this.pause();
  }

  view(): LiveView {
    const { run, message, approvals, connected } = this;
    return { run, message, blocks: this.fold.live(), approvals, connected };
  }

  private take(events: RunEvent[]): void {
    for (const event of events) {
      this.after = event.seq;
      this.fold.push(event);
      this.note(event);
    }
    this.draw();
  }

  private note({ event, data }: RunEvent): void {
    if (event === 'turn') this.message = (data.message as string | null) ?? this.message;
    else if (event === 'approval') this.ask(data as unknown as Approval);
    else if (event === 'tool_result') this.approvals = this.approvals.filter((asked) => asked.call.id !== data.id);
    else if (event === 'done') this.status = data.status as RunStatus;
    else if ((event === 'result' || event === 'error') && data.assistant) {
      this.assistant = fromEvent(data.assistant as Parameters<typeof fromEvent>[0]);
    }
  }

  /** A restart asks again for what nobody has decided. A call of a client's own tool asks nobody. */
  private ask(approval: Approval): void {
    if (approval.client) return;
    this.approvals = [...this.approvals.filter(({ call }) => call.id !== approval.call.id), approval];
  }

  private reset(): void {
    this.fold = new Fold();
    this.after = 0;
    this.approvals = [];
    this.draw();
  }

  private draw(): void {
    if (this.drawing || this.over) return;
    this.drawing = true;
    frame(() => {
      this.drawing = false;
      if (!this.over) this.onView(this.view());
    });
  }

  private finish(end: 'done' | 'gone'): void {
    if (this.over) return;
    this.over = true;
    const status = end === 'gone' ? 'gone' : (this.status ?? 'succeeded');
    this.onEnd({ run: this.run, status, assistant: this.assistant, blocks: this.fold.finish() });
  }
}
