// Reads Markdown. The text is anybody's: raw HTML stays text but for `<br>`, links lead to the web or to mail alone, and no
// picture is fetched from elsewhere, for its address would carry what the answer knows.
import type { Element } from 'hast';
import { Image, Square, SquareCheck } from 'lucide-react';
import { memo, useEffect, useId, useLayoutEffect, useMemo, useRef, useState } from 'react';
import ReactMarkdown, { defaultUrlTransform, type Components } from 'react-markdown';
import remend from 'remend';
import { Guard } from '../ui/guard';
import { CodeBlock } from './code';
import { readGfm } from './gfm';
import { breakLines } from './line-breaks';
import { cut } from './markdown-blocks';
import { readMath } from './math';

const plugins = [readGfm as never, readMath as never, breakLines];
const allowed = /^(https?:|mailto:)/i;
/** Made for a footnote; no text can make one by itself. */
const isNote = ({ properties: { dataFootnoteRef: to, dataFootnoteBackref: back } }: Element) => to !== undefined || back !== undefined;
const address = (url: string, _name: string, node: Element) => {
  if (isNote(node)) return url;
  return allowed.test(url) && URL.canParse(url) ? defaultUrlTransform(url) : '';
};

function Away({ href, children }: { href?: string | undefined; children?: React.ReactNode }) {
  if (!href) return <span>{children}</span>;
  return (
    <a href={href} target="_blank" rel="noopener noreferrer nofollow" title={href}>
      {children}
    </a>
  );
}

/** To a footnote, where the link back takes the focus, or from there to the text. The page's address names a message and stays. */
function ToNote({ href = '', children, ...rest }: { href?: string | undefined; id?: string | undefined; 'aria-label'?: string | undefined; children?: React.ReactNode }) {
  const jump = (event: React.MouseEvent) => {
    event.preventDefault();
    const there = document.getElementById(decodeURIComponent(href.slice(1)));
    (there?.querySelector<HTMLElement>('a[aria-label][href^="#"]') ?? there)?.focus();
  };
  return (
    <a {...rest} href={href} onClick={jump}>
      {children}
    </a>
  );
}

const components: Components = {
  a: ({ href, id, 'aria-label': label, children, node }) =>
    node && isNote(node) ? (
      <ToNote href={href} id={id} aria-label={label}>
        {children}
      </ToNote>
    ) : (
      <Away href={href}>{children}</Away>
    ),
  img: ({ src, alt }) => (
    <Away href={typeof src === 'string' ? src : undefined}>
      <Image size={14} aria-hidden className="me-1 inline align-[-2px]" />
      {alt || 'Image'}
    </Away>
  ),
  // Below a message's own heading all are of one level; their size tells them apart.
  h1: ({ children }) => <h3 data-level="1">{children}</h3>,
  h2: ({ children }) => <h3 data-level="1">{children}</h3>,
  h3: ({ children }) => <h3 data-level="2">{children}</h3>,
  h4: ({ children }) => <h3>{children}</h3>,
  h5: ({ children }) => <h3>{children}</h3>,
  h6: ({ children }) => <h3>{children}</h3>,
  input: ({ checked }) => {
    const Box = checked ? SquareCheck : Square;
    return <Box size={16} role="img" aria-label={checked ? 'done' : 'to do'} className="me-2 inline align-[-3px] text-faint" />;
  },
  table: ({ children }) => (
    <div className="table-frame" role="group" aria-label="Table" tabIndex={0}>
      <table>{children}</table>
    </div>
  ),
  pre: ({ children, node }) => {
    const code = node?.children[0];
    if (code?.type !== 'element') return <pre>{children}</pre>;
    const classes = code.properties.className;
    const language = Array.isArray(classes) ? String(classes[0] ?? '').replace(/^language-/, '') : '';
    const text = code.children.map((child) => (child.type === 'text' ? child.value : '')).join('');
    return <CodeBlock text={text.replace(/\n$/, '')} language={language} />;
  },
};

const Piece = memo(function Piece({ text, prefix }: { text: string; prefix: string }) {
  const options = useMemo(() => ({ clobberPrefix: `${prefix}-` }), [prefix]);
  return (
    <div dir="auto">
      <Guard instead={<p className="whitespace-pre-wrap">{text}</p>}>
        <ReactMarkdown remarkPlugins={plugins} remarkRehypeOptions={options} components={components} urlTransform={address}>
          {text}
        </ReactMarkdown>
      </Guard>
    </div>
  );
});

/** How much of the time may go into reading again what grows. */
const SHARE = 0.3;

/**
 * What grows, as seldom as reading it is slow: a list or a table of thousands is one piece, and to read it again for every
 * word that comes would leave no time for anything else.
 */
function useBearable(text: string, typing: boolean): string {
  const [shown, setShown] = useState(text);
  const free = useRef(0);
  const began = performance.now();
  useLayoutEffect(() => {
    const now = performance.now();
    free.current = now + (now - began) / SHARE;
    // Only what was drawn anew tells how long that takes.
    // oxlint-disable-next-line react-hooks/exhaustive-deps
  }, [shown]);
  useEffect(() => {
    if (!typing || text === shown) return;
    const timer = setTimeout(() => setShown(text), Math.max(0, free.current - performance.now()));
    return () => clearTimeout(timer);
  }, [text, shown, typing]);
  return typing ? shown : text;
}

export function Reader({ text: whole, typing }: { text: string; typing: boolean }) {
  const text = useBearable(whole, typing);
  const prefix = useId();
  const pieces = useMemo(() => cut(text, typing), [text, typing]);
  return pieces.map((piece, at) => (
    // What is still being written is closed as it will be: a half of **bold** shows bold.
    <Piece key={at} prefix={`${prefix}${at}`} text={typing && at === pieces.length - 1 ? remend(piece) : piece} />
  ));
}
