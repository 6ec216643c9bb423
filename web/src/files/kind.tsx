// What kind of file it is, as a picture.
import { File, FileArchive, FileAudio, FileImage, FileSpreadsheet, FileText, FileVideo } from 'lucide-react';

export function KindIcon({ type, size = 18 }: { type: string; size?: number }) {
  const props = { size, 'aria-hidden': true, className: 'shrink-0 text-accent' } as const;
  if (type.startsWith('image/')) return <FileImage {...props} />;
  if (type.startsWith('audio/')) return <FileAudio {...props} />;
  if (type.startsWith('video/')) return <FileVideo {...props} />;
  if (/csv|sheet|excel/.test(type)) return <FileSpreadsheet {...props} />;
  if (/zip|tar|gzip|compressed/.test(type)) return <FileArchive {...props} />;
  if (/^text\/|json|pdf|document/.test(type)) return <FileText {...props} />;
  return <File {...props} />;
}
