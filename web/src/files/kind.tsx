// What kind of file it is, as a picture.
import { File, FileArchive, FileImage, FileSpreadsheet, FileText } from 'lucide-react';

export function KindIcon({ type, size = 18 }: { type: string; size?: number }) {
  const props = { size, 'aria-hidden': true, className: 'shrink-0 text-accent' } as const;
  if (type.startsWith('image/')) return <FileImage {...props} />;
  if (/csv|sheet|excel/.test(type)) return <FileSpreadsheet {...props} />;
  if (/zip|tar|gzip|compressed/.test(type)) return <FileArchive {...props} />;
  if (/^text\/|json|pdf|document/.test(type)) return <FileText {...props} />;
  return <File {...props} />;
}
