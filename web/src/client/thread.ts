// One thread as a page shows it: the stored messages, the run under way, the queue and the branches. It stays true
// by itself: it follows the run's events, looks for what other windows and devices did, and lets go of its
// connection while nobody looks.
import * as api from './api';
import { branchWith, siblings, type Siblings, type Threads } from './branches';
import { wait } from './follow';
import { Failure, inWorkspace } from './http';
import { LiveRun, type Ended, type LiveView } from './live';
import { announce, listen } from './windows';
import type { Attachment, Branch, Conversation, Message, Mode, Queued, Run, StoredFile, TurnRequest } from './types';

export type Sending = { text: string; attachments: Attachment[]; waiting: boolean; again: boolean };

export type ThreadState = {
  id: string | null;
  phase: 'new' | 'loading' | 'ready' | 'missing' | 'failed';
  conversation: Conversation | null;
  messages: Message[];
  hasOlder: boolean;
  loadingOlder: boolean;
  /** A turn that the server has not accepted yet. */
  sending: Sending | null;
  live: LiveView | null;
  stopping: boolean;
  queue: Queued[];
  versions: Map<string, Siblings>;
  /** The server does not answer; what is shown may be old. */
  unreachable: boolean;
};

/** `conversation` is one without a message, where the attachments of a new thread lie; `forget` is what it is no longer to remember. */
export type Said = { text: string; mode?: Mode; attachments?: Attachment[]; conversation?: string; model?: string; agent?: string; forget?: Record<string, null> };

/** All that it takes to send a turn, and to send it again: with one key the server has it once. */
export type Turn = { key: string; body: TurnRequest; attachments: Attachment[]; forget: Record<string, null>; waits: boolean };

/** Why a turn is no longer being sent: it was taken back, or the page has left its workspace. */
export class Unsent extends Error {
  constructor(readonly back: boolean) {
    super('It was not sent.');
  }
}

const WINDOW = 60;
/** How much of a branch is laid beside the others. */
const LAID = 1000;
const LOOK_MS = 2_500;
const LET_GO_MS = 20_000;

const initial: ThreadState = {
  id: null,
  phase: 'new',
  conversation: null,
  messages: [],
  hasOlder: false,
  loadingOlder: false,
  sending: null,
  live: null,
  stopping: false,
  queue: [],
  versions: new Map(),
  unreachable: false,
};

export class Thread {
  private state: ThreadState;
  private readers = new Set<() => void>();
  private live: LiveRun | null = null;
  private runs = new Map<string, Run>();
  private files = new Map<string, StoredFile>();
  private keys = new Map<string, string>();
  private etag: string | null = null;
  private branches: Branch[] = [];
  private threads = new Map<string, string[]>();
  private laid: Threads = [];
  private looking: AbortController | null = null;
  private refreshing: Promise<void> | null = null;
  private older: Promise<void> | null = null;
  private stale = false;
  private delivering: AbortController | null = null;
  /** Done when the turn that is being sent is accepted or refused. */
  sent: Promise<void> = Promise.resolve();
  readonly workspace = inWorkspace();

  constructor(
    id: string | null,
    private onCreated: (thread: Thread, id: string) => void = () => {},
  ) {
    this.state = { ...initial, id, phase: id ? 'loading' : 'new' };
  }

  get = (): ThreadState => this.state;

  /** The first reader opens the thread, the last one closes it. */
  subscribe = (reader: () => void): (() => void) => {
    this.readers.add(reader);
    if (this.readers.size === 1) this.open();
    return () => {
      this.readers.delete(reader);
      if (this.readers.size === 0) this.close();
    };
  };

  /** The same for a message while it is written and when it is stored, so that a view can keep its place. */
  keyOf = (message: Message): string => this.keys.get(message.id) ?? message.id;

  private set(change: Partial<ThreadState>): void {
    this.state = { ...this.state, ...change };
    for (const reader of this.readers) reader();
  }

  private open(): void {
    const stop = new AbortController();
    this.looking = stop;
    const { signal } = stop;
    const again = () => void this.refresh();
    const unlisten = listen((news) => {
      if (news.thread === this.state.id) again();
    });
    let hidden: ReturnType<typeof setTimeout> | undefined;
    const seen = () => {
      clearTimeout(hidden);
      if (document.hidden) hidden = setTimeout(() => this.live?.pause(), LET_GO_MS);
      else {
        this.live?.resume();
        again();
      }
    };
    document.addEventListener('visibilitychange', seen);
    window.addEventListener('online', again);
    signal.addEventListener('abort', () => {
      unlisten();
      clearTimeout(hidden);
      document.removeEventListener('visibilitychange', seen);
      window.removeEventListener('online', again);
    });
    this.live?.resume();
    void this.look(signal);
  }

  private close(): void {
    this.looking?.abort();
    this.looking = null;
    this.live?.pause();
  }

  /** Looks now and then for what others did. */
  private async look(signal: AbortSignal): Promise<void> {
    try {
      for (;;) {
        if (!document.hidden || this.state.phase === 'loading') await this.refresh();
        await wait(this.state.unreachable ? LOOK_MS / 2 : LOOK_MS, signal);
      }
    } catch (error) {
      if (!signal.aborted) throw error;
    }
  }

  /** Brings everything up to date. Calls that come together share the work; none comes too early for its caller. */
  refresh(): Promise<void> {
    if (this.refreshing) {
      this.stale = true;
      return this.refreshing;
    }
    const work = async () => {
      do {
        this.stale = false;
        await this.update();
      } while (this.stale);
    };
    this.refreshing = work().finally(() => (this.refreshing = null));
    return this.refreshing;
  }

  private async update(): Promise<void> {
    const { id } = this.state;
    if (!id || this.state.sending) return;
    try {
      const got = await api.getConversation(id, { limit: WINDOW, etag: this.etag });
      if (got) {
        const [runs, branches] = await Promise.all([api.listRuns(id), api.listBranches(id)]);
        if (this.state.sending) return;
        this.apply(got, runs.data, branches);
        // Settled in between: the answer is not among the messages yet.
        const newest = runs.data[0];
        if (newest?.assistant_message && this.state.messages.at(-1)?.id === newest.message && !this.live) {
          this.etag = null;
          this.stale = true;
        }
        await this.lay(id, branches);
      }
      if (this.live || this.state.queue.length > 0) this.set({ queue: await this.listQueue(id) });
      if (this.state.unreachable) this.set({ unreachable: false });
    } catch (error) {
      this.failed(error);
    }
  }

  private async listQueue(id: string): Promise<Queued[]> {
    const queue = await api.listQueue(id);
    const unknown = queue.some(({ attachments }) => attachments.some((file) => !this.files.has(file)));
    if (unknown) for (const file of await api.listFiles(id)) this.files.set(file.id, file);
    return queue.map((one) => ({ ...one, files: one.attachments.flatMap((file) => this.files.get(file) ?? []) }));
  }

  private failed(error: unknown): void {
    if (error instanceof Failure && error.status === 404) this.set({ phase: 'missing', live: null });
    else if (error instanceof Failure && error.passing) this.set({ unreachable: true });
    else if (error instanceof Failure) this.set({ phase: this.state.phase === 'loading' ? 'failed' : this.state.phase });
    else throw error;
  }

  private apply(got: api.Retrieved, runs: Run[], branches: Branch[]): void {
    this.etag = got.etag;
    this.branches = branches;
    for (const run of runs) if (run.assistant_message) this.runs.set(run.assistant_message, run);
    const { messages, hasOlder } = merge(this.state, got.messages);
    const running = runs.find((run) => run.status === 'running');
    if (this.live && this.live.run !== running?.id) {
      const settled = runs.find((run) => run.id === this.live?.run);
      if (settled?.assistant_message && messages.some((message) => message.id === settled.assistant_message)) {
        this.keys.set(settled.assistant_message, settled.id);
        this.drop();
      }
    }
    this.set({ phase: 'ready', conversation: got.conversation, messages, hasOlder });
    if (running && !this.live) this.attach(running.id, running.message ?? null);
  }

  private attach(run: string, message: string | null, first?: Response): void {
    this.live?.stop();
    this.live = new LiveRun(
      run,
      message,
      (view) => this.set({ live: view }),
      (ended) => this.settled(ended),
      (error) => this.failed(error),
    );
    this.set({ live: this.live.view(), stopping: false });
    if (this.looking) this.live.resume(first);
  }

  private drop(): void {
    this.live?.stop();
    this.live = null;
    this.set({ live: null, stopping: false });
  }

  private settled({ run, assistant, status }: Ended): void {
    this.live = null;
    const { messages, live } = this.state;
    const answered = assistant && messages.at(-1)?.id === live?.message;
    if (assistant && answered && !messages.some((message) => message.id === assistant.id)) {
      this.keys.set(assistant.id, run);
      this.set({ messages: [...messages, assistant], live: null, stopping: false });
    } else if (status !== 'gone') {
      this.set({ live: null, stopping: false });
    }
    this.etag = null;
    this.tell();
    void this.refresh();
  }

  private tell(): void {
    announce({ thread: this.state.id, history: true });
    window.dispatchEvent(new Event('threadkeep:history'));
  }

  /** Reads which messages are on which branch, and lays the branches beside each other. */
  private async lay(id: string, branches: Branch[]): Promise<void> {
    const threads: Threads = [];
    // One alone has no other versions.
    for (const branch of branches.length < 2 ? [] : branches) {
      const key = `${branch.id} ${branch.head}`;
      let ids = this.threads.get(key);
      if (!ids) {
        const got = await api.getConversation(id, { limit: LAID, branch: branch.id });
        ids = got?.messages.map((message) => message.id) ?? [];
        this.threads.set(key, ids);
      }
      threads.push({ branch, ids, cut: ids.length === LAID });
    }
    this.laid = threads;
    this.set({ versions: this.versionsOf(this.state.messages) });
  }

  private versionsOf(messages: Message[]): Map<string, Siblings> {
    return siblings(this.laid, messages.map((message) => message.id));
  }

  /** Calls that come together share the work. */
  loadOlder(limit = 200): Promise<void> {
    this.older ??= this.readOlder(limit).finally(() => (this.older = null));
    return this.older;
  }

  private async readOlder(limit: number): Promise<void> {
    const { id, messages, hasOlder } = this.state;
    const first = messages[0];
    if (!id || !hasOlder || !first) return;
    this.set({ loadingOlder: true });
    try {
      const got = await api.getConversation(id, { limit, before: first.id });
      const older = got?.messages ?? [];
      if (this.state.messages[0]?.id === first.id) {
        const all = [...older, ...this.state.messages];
        this.set({ messages: all, hasOlder: older.length === limit, versions: this.versionsOf(all) });
      }
    } catch (error) {
      this.failed(error);
    } finally {
      this.set({ loadingOlder: false });
    }
  }

  /** Brings a message into what is shown: from further up, else from the branch that it is on. */
  async reach(message: string): Promise<void> {
    await this.refresh();
    if (await this.climb(message)) return;
    await this.show(message);
    await this.climb(message);
  }

  private async climb(message: string): Promise<boolean> {
    for (;;) {
      const { messages } = this.state;
      if (messages.some(({ id }) => id === message)) return true;
      await this.loadOlder(1000);
      if (this.state.messages[0] === messages[0]) return false;
    }
  }

  /** Whether a new turn has to wait. */
  get busy(): boolean {
    return this.live !== null || this.state.sending !== null || this.state.queue.length > 0;
  }

  /** Something said: at once, or after what is under way. */
  say({ text, attachments = [], conversation, forget = {}, ...more }: Said): Turn {
    const { id } = this.state;
    const into = id ?? conversation;
    const body: TurnRequest = {
      message: text,
      ...(into ? { conversation: into } : { source: 'web' }),
      ...(attachments.length ? { attachments: attachments.map((file) => file.fileId) } : {}),
      ...more,
    };
    return { key: crypto.randomUUID(), body, attachments, forget, waits: id !== null && this.busy };
  }

  /** A message of the user's in other words: the thread goes on from there, what was there stays on its branch. */
  edit(message: Message, text: string): Turn {
    return this.instead(message, { message: text }, message.attachments);
  }

  /** A message of the user's, to be answered again. */
  regenerate(message: Message): Turn {
    return this.instead(message, {}, []);
  }

  private instead(message: Message, by: Partial<TurnRequest>, attachments: Attachment[]): Turn {
    const body = { conversation: this.state.id as string, replace: message.id, ...by };
    return { key: crypto.randomUUID(), body, attachments, forget: {}, waits: false };
  }

  /** Sends a turn until the server has it or refuses it. */
  deliver(turn: Turn): Promise<void> {
    const work = this.deliverTurn(turn);
    this.sent = work.catch(() => undefined);
    return work;
  }

  private async deliverTurn(turn: Turn): Promise<void> {
    const stop = new AbortController();
    this.delivering = stop;
    try {
      if (this.state.phase === 'loading') await this.loaded(stop.signal);
      if (turn.waits) return await this.enqueue(turn);
      await this.begin(turn, stop.signal);
    } catch (error) {
      // Another window was quicker.
      if (!(error instanceof Failure && error.code === 'conversation_busy' && !turn.body.replace)) throw error;
      await this.enqueue(turn);
    } finally {
      if (this.delivering === stop) this.delivering = null;
    }
  }

  private async loaded(signal: AbortSignal): Promise<void> {
    for (;;) {
      await this.refresh();
      if (this.state.phase !== 'loading') return;
      await wait(LOOK_MS, signal);
    }
  }

  /** The reader does not want it sent any more. */
  takeBack = (): void => this.delivering?.abort(new Unsent(true));

  /** It is not sent from here any more. */
  leave(): void {
    this.delivering?.abort(new Unsent(false));
  }

  private async enqueue({ key, body, forget }: Turn): Promise<void> {
    const id = this.state.id as string;
    await this.forget(forget);
    await api.enqueueTurn(body, `${key}-waits`);
    this.etag = null;
    this.set({ queue: await this.listQueue(id) });
    this.tell();
    void this.refresh();
  }

  /** A turn can name another model or agent, but not none. */
  private async forget(what: Turn['forget']): Promise<void> {
    if (this.state.id && Object.keys(what).length > 0) await api.updateConversation(this.state.id, what);
  }

  private async begin(turn: Turn, signal: AbortSignal): Promise<void> {
    const { message: text, replace } = turn.body;
    const was = this.state.messages;
    const again = text == null;
    const at = was.findIndex((other) => other.id === replace);
    const before = at < 0 ? was : was.slice(0, at + (again ? 1 : 0));
    const sending = { text: text ?? '', attachments: turn.attachments, waiting: false, again };
    this.set({ sending, messages: before });
    try {
      const response = await this.accepted(turn, sending, signal);
      const [conversation, run, message] = ['Conversation', 'Run', 'Message'].map((name) =>
        response.headers.get(`Threadkeep-${name}`),
      ) as [string, string, string];
      const blocks = sending.text === '' ? [] : [{ type: 'text' as const, text: sending.text }];
      const said: Message = { id: message, role: 'user', blocks, attachments: turn.attachments, createdAt: Date.now() };
      const created = this.state.id === null;
      // What is sent again may have been there already.
      const there = again || before.some((other) => other.id === message);
      this.etag = null;
      this.set({ id: conversation, phase: 'ready', sending: null, unreachable: false, messages: there ? before : [...before, said] });
      this.attach(run, message, response);
      if (created) this.onCreated(this, conversation);
      this.tell();
    } catch (error) {
      this.set({ sending: null, unreachable: false, messages: was });
      void this.refresh();
      throw error;
    }
  }

  private async accepted(turn: Turn, sending: Sending, signal: AbortSignal): Promise<Response> {
    for (let pause = 500; ; pause = Math.min(pause * 2, 8_000)) {
      try {
        await this.forget(turn.forget);
        return await api.startTurn(turn.body, turn.key, signal);
      } catch (error) {
        signal.throwIfAborted();
        const passing = error instanceof Failure && (error.status === 0 || error.status === 503);
        if (!passing) throw error;
        this.set({ sending: { ...sending, waiting: true }, unreachable: true });
        await wait(pause, signal);
      }
    }
  }

  async stop(): Promise<void> {
    if (!this.live) return;
    this.set({ stopping: true });
    await api.cancelRun(this.live.run).catch((error: unknown) => {
      this.set({ stopping: false });
      throw error;
    });
  }

  async editQueued(run: string, text: string): Promise<void> {
    await api.editQueued(run, text).finally(() => this.refreshQueue());
  }

  async removeQueued(run: string): Promise<void> {
    this.set({ queue: this.state.queue.filter((queued) => queued.id !== run) });
    await api.cancelRun(run).finally(() => this.refreshQueue());
  }

  private async refreshQueue(): Promise<void> {
    this.set({ queue: await this.listQueue(this.state.id as string) });
    this.tell();
  }

  /** Shows another version of a message. */
  async show(version: string): Promise<void> {
    const { id } = this.state;
    const threads = this.branches.map((branch) => ({
      branch,
      ids: this.threads.get(`${branch.id} ${branch.head}`) ?? [],
    }));
    const branch = branchWith(threads, version);
    if (!id || !branch) return;
    await api.selectBranch(id, branch.id);
    this.etag = null;
    await this.refresh();
    this.tell();
  }

  /** The run that wrote this message; older ones are looked for. */
  async runOf(message: string): Promise<string | null> {
    let after: string | undefined;
    while (!this.runs.has(message)) {
      const page = await api.listRuns(this.state.id as string, after);
      for (const run of page.data) if (run.assistant_message) this.runs.set(run.assistant_message, run);
      if (!page.next) break;
      after = page.next;
    }
    return this.runs.get(message)?.id ?? null;
  }
}

/** The newest messages laid over those that are there: older ones stay as long as the thread is the same. */
function merge(state: ThreadState, newest: Message[]): Pick<ThreadState, 'messages' | 'hasOlder'> {
  const first = newest[0];
  const at = first ? state.messages.findIndex((message) => message.id === first.id) : -1;
  if (at < 0) return { messages: newest, hasOlder: newest.length === WINDOW };
  const known = new Map(state.messages.map((message) => [message.id, message]));
  // A message never changes, so the object that a view has drawn stays.
  const same = newest.map((message) => known.get(message.id) ?? message);
  return { messages: [...state.messages.slice(0, at), ...same], hasOlder: state.hasOlder || (at === 0 && newest.length === WINDOW) };
}
