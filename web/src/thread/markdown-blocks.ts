// Cuts Markdown into pieces that mean the same alone as together, so that only the last one is read again while
// it grows. A cut is made at a blank line outside of code, before a line that begins something new.

const fence = /^ {0,3}(`{3,}|~{3,})/;
// What may belong to the piece above: indented lines, list items, block quotes, table rows, HTML.
const joined = /^(\s|[-*+] |\d{1,9}[.)] |>|\||<)/;
const note = /^ {0,3}\[\^[^\]]+\]:/m;
const definition = /^ {0,3}\[(?!\^)[^\]]+\]:\s*\S+.*$/gm;

export function cut(text: string, typing: boolean): string[] {
  // Footnotes are counted through the whole text and stand at its end, once that is there.
  if (!typing && note.test(text)) return [text];
  const pieces: string[] = [];
  let piece: string[] = [];
  let open: string | null = null;
  let blank = false;
  for (const line of text.split('\n')) {
    const mark = fence.exec(line)?.[1];
    if (open === null && blank && piece.length > 0 && line.trim() !== '' && !joined.test(line)) {
      pieces.push(piece.join('\n'));
      piece = [];
    }
    if (mark) {
      if (open === null) open = mark;
      else if (mark[0] === open[0] && mark.length >= open.length && line.trim() === mark) open = null;
    }
    blank = line.trim() === '';
    piece.push(line);
  }
  if (piece.length > 0) pieces.push(piece.join('\n'));
  const links = text.includes(']:') ? (text.match(definition) ?? []) : [];
  // A link's address may stand anywhere.
  return links.length === 0 ? pieces : pieces.map((one) => `${one}\n\n${links.join('\n')}`);
}
