// A text with its matches marked. The server counts in characters, not in UTF-16 units.
import type { Highlight } from '../client/types';

export function Marked({ highlight }: { highlight: Highlight }) {
  const letters = [...highlight.text];
  const parts: React.ReactNode[] = [];
  let at = 0;
  highlight.ranges.forEach(([start = 0, end = 0], number) => {
    parts.push(letters.slice(at, start).join(''));
    parts.push(<mark key={number}>{letters.slice(start, end).join('')}</mark>);
    at = end;
  });
  parts.push(letters.slice(at).join(''));
  return <>{parts}</>;
}

const BEFORE = 24;

/** The same text from shortly before its first match: of a few lines that match must not be the part that is cut off. */
export function fromMatch(highlight: Highlight): Highlight {
  const letters = [...highlight.text];
  const start = highlight.ranges[0]?.[0] ?? 0;
  if (start <= BEFORE) return highlight;
  const space = letters.indexOf(' ', start - BEFORE);
  const from = space >= 0 && space < start ? space + 1 : start - BEFORE;
  const text = `…${letters.slice(from).join('')}`;
  return { ...highlight, text, ranges: highlight.ranges.map((range) => range.map((at) => at - from + 1)) };
}
