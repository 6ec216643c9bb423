// Server-sent events out of a response's bytes. Only what our own wire uses: LF or CRLF line ends, `id`, `event`,
// one or more `data` lines, comments. A frame that the stream broke off in does not count.

export type Frame = { id: string; event: string; data: string };

export class Frames {
  private rest = '';
  private decoder = new TextDecoder();
  private frame: Frame = empty();
  private filled = false;

  /** The frames that these bytes complete. */
  push(bytes: Uint8Array): Frame[] {
    const text = this.rest + this.decoder.decode(bytes, { stream: true });
    const lines = text.split('\n');
    this.rest = lines.pop() ?? '';
    const done: Frame[] = [];
    for (const line of lines) {
      const frame = this.line(line.endsWith('\r') ? line.slice(0, -1) : line);
      if (frame) done.push(frame);
    }
    return done;
  }

  private line(line: string): Frame | undefined {
    if (line === '') {
      const { frame, filled } = this;
      this.frame = empty();
      this.filled = false;
      return filled ? frame : undefined;
    }
    if (line.startsWith(':')) return;
    const colon = line.indexOf(':');
    const field = colon < 0 ? line : line.slice(0, colon);
    const value = colon < 0 ? '' : line.slice(colon + 1).replace(/^ /, '');
    if (field === 'id') this.frame.id = value;
    else if (field === 'event') this.frame.event = value;
    else if (field === 'data') {
      this.frame.data = this.filled ? `${this.frame.data}\n${value}` : value;
      this.filled = true;
    }
  }
}

const empty = (): Frame => ({ id: '', event: 'message', data: '' });
