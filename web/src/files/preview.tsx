// A look into a file: pictures as such, sound and film in the browser's player, PDF page by page, CSV as a table, Markdown
// as it is meant, code with colours, text as text; anything else is offered for download.
import { useQuery } from '@tanstack/react-query';
import { Download } from 'lucide-react';
import { lazy, Suspense, useState } from 'react';
import { fileAddress, fileLink } from '../client/api';
import { send } from '../client/http';
import type { Attachment } from '../client/types';
import { CodeBlock } from '../thread/code';
import { Markdown } from '../thread/markdown';
import { bytes, Spinner } from '../ui/bits';
import { Dialog } from '../ui/dialog';
import { Guard } from '../ui/guard';
import { KindIcon } from './kind';
import { parseCsv } from './csv';
import { decode } from './decode';
import { languageOf } from './language';

const PdfPreview = lazy(() => import('./pdf-preview'));

const LONGEST = 200_000;
const ROWS = 200;
export const raster = /^image\/(png|jpeg|gif|webp|avif|bmp)$/;
const svg = /^image\/svg\+xml$/;
/** Whole types: a workbook is `openxmlformats`, and no XML. */
const texts =
  /^(text\/.+|message\/rfc822|application\/(.+\+(json|xml)|(x-)?(csh|ecmascript|graphql|httpd-php|javascript|json5?|jsonl|latex|ndjson|perl|python|sh|sql|subrip|tcl|tex|texinfo|toml|typescript|xml|yaml)))$/;

export function Preview({ file, thread, onClose }: { file: Attachment; thread: string; onClose: () => void }) {
  const url = fileLink(thread, file.fileId);
  return (
    <Dialog title={file.name} onClose={onClose} wide>
      <Guard instead={<Nothing file={file} />}>
        <Inside file={file} thread={thread} url={url} />
      </Guard>
      <a href={url} download={file.name} className="mt-4 inline-flex h-9 items-center gap-2 rounded-md border border-line-strong px-3.5 text-small font-medium hover:bg-hover">
        <Download size={15} aria-hidden />
        Download ({bytes(file.size)})
      </a>
    </Dialog>
  );
}

function Inside({ file, thread, url }: { file: Attachment; thread: string; url: string }) {
  const [broken, setBroken] = useState(false);
  if (broken && svg.test(file.mimeType)) return <TextPreview file={file} thread={thread} />;
  if (broken) return <Nothing file={file} />;
  const failed = () => setBroken(true);
  if (raster.test(file.mimeType)) return <img src={url} alt={file.name} onError={failed} className="mx-auto max-h-[65vh] rounded-md" />;
  // As an image it runs nothing and loads nothing. It may have no size of its own.
  if (svg.test(file.mimeType)) return <img src={url} alt={file.name} onError={failed} className="mx-auto max-h-[65vh] w-full rounded-md bg-[#fff] object-contain" />;
  // oxlint-disable-next-line jsx-a11y/media-has-caption -- nobody has written any
  if (file.mimeType.startsWith('audio/')) return <audio src={url} aria-label={file.name} controls preload="metadata" onError={failed} className="w-full" />;
  // oxlint-disable-next-line jsx-a11y/media-has-caption -- nobody has written any
  if (file.mimeType.startsWith('video/')) return <video src={url} aria-label={file.name} controls preload="metadata" onError={failed} className="mx-auto max-h-[65vh] rounded-md" />;
  if (file.mimeType === 'application/pdf') {
    return (
      <Suspense fallback={<Spinner label="Loading" />}>
        <PdfPreview file={file} thread={thread} />
      </Suspense>
    );
  }
  if (texts.test(file.mimeType)) return <TextPreview file={file} thread={thread} />;
  return <Nothing file={file} />;
}

const Nothing = ({ file }: { file: Attachment }) => (
  <div className="flex flex-col items-center gap-3 py-10 text-center text-small text-soft">
    <KindIcon type={file.mimeType} size={32} />
    There is no preview for {file.mimeType}.
  </div>
);

function TextPreview({ file, thread }: { file: Attachment; thread: string }) {
  const { data, error } = useQuery({
    queryKey: ['file', file.fileId],
    queryFn: async ({ signal }) => {
      const headers = { Range: `bytes=0-${LONGEST - 1}` };
      const response = await send(fileAddress(thread, file.fileId), { headers, signal });
      return decode(new Uint8Array(await response.arrayBuffer()));
    },
    staleTime: Infinity,
    // An empty file has no range.
    enabled: file.size > 0,
  });
  if (file.size === 0) return <p className="py-8 text-center text-small text-soft">The file is empty.</p>;
  if (error) return <p className="text-small text-danger">{error.message}</p>;
  if (data === undefined) return <Spinner label="Loading" />;
  const table = /csv|tab-separated/.test(file.mimeType) || /\.(csv|tsv)$/i.test(file.name);
  const cut = file.size > LONGEST;
  if (table) return <Csv name={file.name} text={data} cut={cut} />;
  return <Text name={file.name} text={data} cut={cut} markdown={file.mimeType === 'text/markdown' || /\.(md|markdown)$/i.test(file.name)} />;
}

const Cut = () => <p className="mt-2 text-tiny text-faint">Only the beginning is shown.</p>;

const isNumber = (cell: string) => /^-?[\d.,\s']*\d\s?%?$/.test(cell);

function Csv({ name, text, cut }: { name: string; text: string; cut: boolean }) {
  const all = parseCsv(text, ROWS + 1);
  const [head = [], ...rows] = all.slice(0, ROWS + 1);
  const side = head.map((_, column) => (rows.length > 0 && rows.every((row) => !row[column] || isNumber(row[column])) ? 'text-right!' : ''));
  return (
    <div className="prose">
      <div className="table-frame max-h-[60vh]" role="group" aria-label={name} tabIndex={0}>
        <table>
          <thead>
            <tr>{head.map((cell, at) => <th key={at} scope="col" className={side[at]}>{cell}</th>)}</tr>
          </thead>
          <tbody>
            {rows.map((row, at) => (
              <tr key={at}>{row.map((cell, column) => <td key={column} className={side[column]}>{cell}</td>)}</tr>
            ))}
          </tbody>
        </table>
      </div>
      {(cut || all.length > ROWS + 1) && <Cut />}
    </div>
  );
}

function Text({ name, text, cut, markdown }: { name: string; text: string; cut: boolean; markdown: boolean }) {
  const language = languageOf(name);
  return (
    <>
      {markdown ? (
        <div role="group" aria-label={name} tabIndex={0} className="max-h-[60vh] overflow-auto rounded-md border border-line px-4 py-1">
          <Markdown text={text} />
        </div>
      ) : language ? (
        <div className="max-h-[60vh] overflow-auto rounded-lg *:my-0!">
          <CodeBlock text={text} language={language} />
        </div>
      ) : (
        <pre tabIndex={0} dir="auto" className="max-h-[60vh] overflow-auto rounded-md bg-code p-4 font-mono text-small whitespace-pre-wrap [overflow-wrap:anywhere]">
          {text}
        </pre>
      )}
      {cut && <Cut />}
    </>
  );
}
