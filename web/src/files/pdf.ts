// PDF files, drawn by a library and not by the browser's viewer, which would need a frame and a file that is sent to
// be shown. Scripts and forms of a file are left alone. The worker's address is the only one that the trusted types
// policy lets through.
import { getDocument, PDFWorker, version, type PDFDocumentProxy } from 'pdfjs-dist';
import workerUrl from './pdf-worker?worker&url';

type Policies = { createPolicy: (name: string, rules: { createScriptURL: (url: string) => string }) => { createScriptURL: (url: string) => unknown } };

const policies = (globalThis as { trustedTypes?: Policies }).trustedTypes;
const policy = policies?.createPolicy('threadkeep-pdf', {
  createScriptURL: (url) => {
    if (url !== workerUrl) throw new TypeError('no such worker');
    return url;
  },
});

let shared: PDFWorker | null = null;
function worker(): PDFWorker {
  if (!shared || shared.destroyed) {
    const port = new Worker((policy?.createScriptURL(workerUrl) ?? workerUrl) as string, { type: 'module' });
    shared = PDFWorker.create({ port });
  }
  return shared;
}

export type Pdf = PDFDocumentProxy;

export const openPdf = (data: ArrayBuffer): Promise<Pdf> =>
  getDocument({
    data,
    worker: worker(),
    isEvalSupported: false,
    useWasm: false,
    enableXfa: false,
    useWorkerFetch: false,
    stopAtErrors: false,
    cMapUrl: `/assets/pdf-${version}/cmaps/`,
    standardFontDataUrl: `/assets/pdf-${version}/standard_fonts/`,
  }).promise;
