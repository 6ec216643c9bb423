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
