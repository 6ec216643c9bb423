// The blocks of a message in their order: text as Markdown, work folded together, files, sources, errors.
import { memo, useMemo } from 'react';
import type { Block, ErrorBlock, FileBlock, SourceBlock } from '../client/types';
import { FileChip } from '../files/chip';
import { Markdown } from './markdown';
import { Steps, type Work } from './steps';
import { Sources } from './sources';

export type Part =
  | { kind: 'text'; text: string }
  | { kind: 'work'; work: Work[] }
  | { kind: 'sources'; sources: SourceBlock[] }
  | { kind: 'files'; files: FileBlock[] }
  | { kind: 'error'; error: ErrorBlock };

/** Neighbours of one kind stand together. */
export function parts(blocks: Block[]): Part[] {
  const found: Part[] = [];
  for (const block of blocks) {
    const last = found.at(-1);
    if (block.type === 'text') found.push({ kind: 'text', text: block.text });
    else if (block.type === 'error') found.push({ kind: 'error', error: block });
    else if (block.type === 'source') {
      if (last?.kind === 'sources') last.sources.push(block);
      else found.push({ kind: 'sources', sources: [block] });
    } else if (block.type === 'file') {
      if (last?.kind === 'files') last.files.push(block);
      else found.push({ kind: 'files', files: [block] });
    } else if (last?.kind === 'work') last.work.push(block);
    else found.push({ kind: 'work', work: [block] });
  }
  return found;
}

type BlocksProps = { blocks: Block[]; thread: string | null; live: boolean; failure: (error: ErrorBlock) => React.ReactNode };

export const Blocks = memo(function Blocks({ blocks, thread, live, failure }: BlocksProps) {
  const shown = useMemo(() => parts(blocks), [blocks]);
  const last = shown.length - 1;
  return (
    <>
      {shown.map((part, at) => {
        if (part.kind === 'text') {
          return (
            <div key={at} data-block="text">
              <Markdown text={part.text} typing={live && at === last} />
            </div>
          );
        }
        if (part.kind === 'work') return <Steps key={at} work={part.work} live={live} working={live && at === last} />;
        if (part.kind === 'sources') return <Sources key={at} sources={part.sources} />;
        if (part.kind === 'files') {
          return (
            <ul key={at} className="my-3 flex flex-wrap gap-2" aria-label="Files">
              {part.files.map((file) => (
                <li key={file.fileId} data-block="file">
                  <FileChip file={file} thread={thread} />
                </li>
              ))}
            </ul>
          );
        }
        return <div key={at} data-block="error">{failure(part.error)}</div>;
      })}
    </>
  );
});
