// A look into a file: pictures as such, CSV as a table, text as text; anything else is offered for download.
import { useQuery } from '@tanstack/react-query';
import { Download } from 'lucide-react';
import { fileAddress } from '../client/api';
import { address, send } from '../client/http';
import type { Attachment } from '../client/types';
import { bytes, Spinner } from '../ui/bits';
import { Dialog } from '../ui/dialog';
import { parseCsv } from './csv';

const LONGEST = 200_000;
const raster = /^image\/(png|jpeg|gif|webp|avif)$/;
const texts = /^text\/|json|xml|yaml|javascript|toml|sql/;

export function Preview({ file, thread, onClose }: { file: Attachment; thread: string; onClose: () => void }) {
  const url = address(fileAddress(thread, file.fileId));
  return (
    <Dialog title={file.name} onClose={onClose} wide>
      <div className="min-h-40">
        {raster.test(file.mimeType) ? (
          <img src={url} alt={file.name} className="mx-auto max-h-[65vh] rounded-md" />
        ) : texts.test(file.mimeType) && !file.mimeType.includes('svg') ? (
          <TextPreview file={file} thread={thread} />
        ) : (
          <p className="py-12 text-center text-small text-soft">There is no preview for {file.mimeType}.</p>
        )}
      </div>
      <a href={url} download={file.name} className="mt-4 inline-flex h-9 items-center gap-2 rounded-md border border-line-strong px-3.5 text-small font-medium hover:bg-hover">
        <Download size={15} aria-hidden />
        Download ({bytes(file.size)})
      </a>
    </Dialog>
  );
}

function TextPreview({ file, thread }: { file: Attachment; thread: string }) {
  const { data, error } = useQuery({
    queryKey: ['file', file.fileId],
    queryFn: async ({ signal }) => {
      const headers = { Range: `bytes=0-${LONGEST - 1}` };
      const response = await send(fileAddress(thread, file.fileId), { headers, signal });
      return response.text();
    },
    staleTime: Infinity,
  });
  if (error) return <p className="text-small text-danger">{error.message}</p>;
  if (data === undefined) return <Spinner label="Loading" />;
  const cut = file.size > LONGEST ? <p className="mt-2 text-tiny text-faint">Only the beginning is shown.</p> : null;
  if (file.mimeType.includes('csv')) {
    const [head = [], ...rows] = parseCsv(data, 200);
    return (
      <div className="prose">
        <div className="table-frame max-h-[60vh]" role="group" aria-label={file.name} tabIndex={0}>
          <table>
            <thead>
              <tr>{head.map((cell, at) => <th key={at}>{cell}</th>)}</tr>
            </thead>
            <tbody>
              {rows.map((row, at) => (
                <tr key={at}>{row.map((cell, column) => <td key={column}>{cell}</td>)}</tr>
              ))}
            </tbody>
          </table>
        </div>
        {cut}
      </div>
    );
  }
  return (
    <>
      <pre tabIndex={0} className="max-h-[60vh] overflow-auto rounded-md bg-code p-4 font-mono text-small whitespace-pre-wrap [overflow-wrap:anywhere]">
        {data}
      </pre>
      {cut}
    </>
  );
}
