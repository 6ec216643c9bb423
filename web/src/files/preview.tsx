// A look into a file: pictures as such, PDF page by page, CSV as a table, text as text; anything else is offered for
// download.
import { useQuery } from '@tanstack/react-query';
import { Download } from 'lucide-react';
import { lazy, Suspense } from 'react';
import { fileAddress, fileLink } from '../client/api';
import { send } from '../client/http';
import type { Attachment } from '../client/types';
import { bytes, Spinner } from '../ui/bits';
import { Dialog } from '../ui/dialog';
import { Guard } from '../ui/guard';
import { KindIcon } from './kind';
import { parseCsv } from './csv';
import { decode } from './decode';

const PdfPreview = lazy(() => import('./pdf-preview'));

const LONGEST = 200_000;
const ROWS = 200;
export const raster = /^image\/(png|jpeg|gif|webp|avif|bmp)$/;
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
  if (raster.test(file.mimeType)) return <img src={url} alt={file.name} className="mx-auto max-h-[65vh] rounded-md" />;
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
  return table ? <Csv name={file.name} text={data} cut={file.size > LONGEST} /> : <Text text={data} cut={file.size > LONGEST} />;
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

const Text = ({ text, cut }: { text: string; cut: boolean }) => (
  <>
    <pre tabIndex={0} dir="auto" className="max-h-[60vh] overflow-auto rounded-md bg-code p-4 font-mono text-small whitespace-pre-wrap [overflow-wrap:anywhere]">
      {text}
    </pre>
    {cut && <Cut />}
  </>
);
