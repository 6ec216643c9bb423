// A block of code: its language, its text, and a button that copies it.
import type { Element, Root, Text } from 'hast';
import { Check, Copy } from 'lucide-react';
import { useEffect, useState, type ReactNode } from 'react';
import { later } from '../ui/later';
import { complain } from '../ui/toast';

// Longer code stays plain: colouring it would hold up the page.
const LONGEST = 30_000;
const useHighlight = later(() => import('./highlight').then((module) => module.highlight));

const draw = (node: Element | Text | Root['children'][number], key: number): ReactNode => {
  if (node.type === 'text') return node.value;
  if (node.type !== 'element') return null;
  return (
    <span key={key} className={(node.properties.className as string[] | undefined)?.join(' ')}>
      {node.children.map((child, at) => draw(child as Element | Text, at))}
    </span>
  );
};

export function CodeBlock({ text, language }: { text: string; language: string }) {
  const coloured = language !== '' && text.length <= LONGEST;
  const highlight = useHighlight(coloured);
  const tree = coloured && highlight ? highlight(text, language) : null;
  return (
    <div dir="ltr" className="code-frame my-4 overflow-hidden rounded-lg border border-line bg-code">
      <div className="flex h-9 items-center justify-between border-b border-line pr-1 pl-4 text-tiny text-faint">
        <span>{language || 'text'}</span>
        <CopyButton text={text} label="Copy code" />
      </div>
      <pre tabIndex={0} className="overflow-x-auto p-4 font-mono text-small focus-visible:outline-offset-[-2px]">
        <code>{tree ? tree.children.map((child, at) => draw(child, at)) : text}</code>
      </pre>
    </div>
  );
}

/** Says that it has copied, for a moment. */
export function CopyButton({ text, label, className = '' }: { text: string; label: string; className?: string }) {
  const [copied, setCopied] = useState(false);
  useEffect(() => {
    if (!copied) return;
    const timer = setTimeout(() => setCopied(false), 1500);
    return () => clearTimeout(timer);
  }, [copied]);
  return (
    <button
      type="button"
      aria-label={copied ? 'Copied' : label}
      title={label}
      onClick={() => navigator.clipboard.writeText(text).then(() => setCopied(true), complain)}
      className={`inline-flex size-7 items-center justify-center rounded-md text-soft hover:bg-hover hover:text-ink ${className}`}
    >
      {copied ? <Check size={15} aria-hidden /> : <Copy size={15} aria-hidden />}
    </button>
  );
}
