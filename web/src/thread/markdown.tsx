// Markdown of an answer. What reads it is loaded with the first thread; until it is there the text stands as it came.
import { later } from '../ui/later';

export const useReader = later(() => import('./markdown-reader'));

export function Markdown({ text, typing = false }: { text: string; typing?: boolean }) {
  const reader = useReader();
  return <div className={typing ? 'prose typing' : 'prose'}>{reader ? <reader.Reader text={text} typing={typing} /> : <p className="whitespace-pre-wrap">{text}</p>}</div>;
}
