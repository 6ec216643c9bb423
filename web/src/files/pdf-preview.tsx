// A PDF page by page. A page is drawn when it comes into sight; its words are beside it for screen readers.
import { useQuery } from '@tanstack/react-query';
import { useEffect, useRef, useState } from 'react';
import { fileAddress } from '../client/api';
import { send } from '../client/http';
import type { Attachment } from '../client/types';
import { Spinner } from '../ui/bits';
import { openPdf, type Pdf } from './pdf';

const PAGES = 200;
/** A page may claim to be as large as a house. */
const MOST_PIXELS = 4_000_000;

export default function PdfPreview({ file, thread }: { file: Attachment; thread: string }) {
  const { data, error } = useQuery({
    queryKey: ['file', file.fileId],
    queryFn: async ({ signal }) => openPdf(await (await send(fileAddress(thread, file.fileId), { signal })).arrayBuffer()),
    staleTime: Infinity,
    gcTime: 0,
    retry: false,
  });
  useEffect(() => () => void data?.destroy(), [data]);
  if (error) return <p className="py-8 text-center text-small text-soft">This PDF cannot be shown ({error.message}).</p>;
  if (!data) return <Spinner label="Loading" />;
  const count = Math.min(data.numPages, PAGES);
  return (
    <>
      <div role="group" aria-label={file.name} tabIndex={0} className="grid max-h-[70vh] gap-3 overflow-auto rounded-md bg-sunken p-3">
        {Array.from({ length: count }, (_, at) => (
          <PdfPage key={at} pdf={data} number={at + 1} />
        ))}
      </div>
      {data.numPages > PAGES && <p className="mt-2 text-tiny text-faint">Only the first {PAGES} pages are shown.</p>}
    </>
  );
}

async function draw(pdf: Pdf, number: number, canvas: HTMLCanvasElement): Promise<string> {
  const page = await pdf.getPage(number);
  const plain = page.getViewport({ scale: 1 });
  const width = (canvas.parentElement?.clientWidth ?? 600) * Math.min(devicePixelRatio, 2);
  const scale = Math.min(width / plain.width, Math.sqrt(MOST_PIXELS / (plain.width * plain.height)));
  const viewport = page.getViewport({ scale });
  canvas.width = Math.max(1, Math.floor(viewport.width));
  canvas.height = Math.max(1, Math.floor(viewport.height));
  await page.render({ canvas, viewport }).promise;
  const { items } = await page.getTextContent();
  return items.map((item) => ('str' in item ? item.str + (item.hasEOL ? '\n' : '') : '')).join('');
}

function PdfPage({ pdf, number }: { pdf: Pdf; number: number }) {
  const canvas = useRef<HTMLCanvasElement>(null);
  const [words, setWords] = useState<string | null>(null);
  useEffect(() => {
    const element = canvas.current;
    if (!element) return;
    const watch = new IntersectionObserver(
      ([entry]) => {
        if (!entry?.isIntersecting) return;
        watch.disconnect();
        draw(pdf, number, element).then(setWords, () => setWords('This page cannot be shown.'));
      },
      { rootMargin: '400px' },
    );
    watch.observe(element);
    return () => watch.disconnect();
  }, [pdf, number]);
  return (
    <div data-pdf-page={number}>
      <canvas ref={canvas} role="img" aria-label={`Page ${number}`} width={600} height={848} className="w-full rounded-sm bg-[#fff] shadow-low" />
      {words !== null && <p className="sr-only">{words}</p>}
    </div>
  );
}
