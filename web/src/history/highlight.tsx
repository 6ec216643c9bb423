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

// What Markdown writes around words, and how a line of it begins.
const marks = /```[\w-]*|:?-{3,}:?|[`|]|\*{1,3}|~~|^[ \t]*(#{1,6}|>|[-+]|\|)[ \t]+|\]\([^)\s]*\)|!?\[(?=[^\]]*\]\()|[ \t]*\n\s*/gm;

/** The same text without the marks of its Markdown, but for those that were searched for. */
export function plain({ text, ranges, ...rest }: Highlight): Highlight {
  const letters = [...text];
  const place = letters.flatMap((letter, at) => Array<number>(letter.length).fill(at));
  const gone = new Set<number>();
  const spaces = new Set<number>();
  for (const match of text.matchAll(marks)) {
    const [from, to] = [place[match.index] as number, place[match.index + match[0].length - 1] as number];
    if (ranges.some(([start = 0, end = 0]) => start <= to && from < end)) continue;
    for (let at = from; at <= to; at++) gone.add(at);
    if (/\s|\|/.test(match[0])) spaces.add(from);
  }
  // Where each letter is afterwards.
  const after: number[] = [];
  let kept = '';
  let count = 0;
  letters.forEach((letter, at) => {
    after.push(count);
    const next = gone.has(at) ? (spaces.has(at) ? ' ' : '') : letter;
    if (next === '' || (next === ' ' && (kept === '' || kept.endsWith(' ')))) return;
    kept += next;
    count += 1;
  });
  after.push(count);
  return { ...rest, text: kept.trimEnd(), ranges: ranges.map((range) => range.map((at) => after[at] ?? count)) };
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
