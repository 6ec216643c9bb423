// Files dropped anywhere on the page.
import { FileUp } from 'lucide-react';
import { useEffect, useRef, useState, type ReactNode } from 'react';
import { limits } from '../client/upload';
import { bytes } from '../ui/bits';

export function DropArea({ onDrop, children }: { onDrop: (files: FileList) => void; children: ReactNode }) {
  const [over, setOver] = useState(false);
  const drop = useRef(onDrop);
  useEffect(() => {
    drop.current = onDrop;
  });
  useEffect(() => {
    let depth = 0;
    const files = (event: DragEvent) => event.dataTransfer?.types.includes('Files') ?? false;
    const enter = (event: DragEvent) => {
      if (files(event) && ++depth === 1) setOver(true);
    };
    const leave = (event: DragEvent) => {
      if (files(event) && --depth <= 0) setOver(false);
    };
    const hover = (event: DragEvent) => {
      if (files(event)) event.preventDefault();
    };
    const dropped = (event: DragEvent) => {
      if (!files(event)) return;
      event.preventDefault();
      depth = 0;
      setOver(false);
      if (event.dataTransfer?.files.length) drop.current(event.dataTransfer.files);
    };
    const all = { dragenter: enter, dragleave: leave, dragover: hover, drop: dropped };
    for (const [name, listener] of Object.entries(all)) window.addEventListener(name, listener as EventListener);
    return () => {
      for (const [name, listener] of Object.entries(all)) window.removeEventListener(name, listener as EventListener);
    };
  }, []);
  return (
    <>
      {children}
      {over && (
        <div className="pointer-events-none fixed inset-3 z-40 grid place-items-center rounded-xl border-2 border-dashed border-accent bg-accent-wash/95">
          <div className="flex flex-col items-center gap-2 text-accent">
            <FileUp size={36} aria-hidden />
            <p className="font-semibold">Drop to attach</p>
            <p className="text-small">
              At most {limits.max_files_per_message} files of {bytes(limits.max_file_bytes)} each
            </p>
          </div>
        </div>
      )}
    </>
  );
}
