// A dialog: the browser's own, which keeps the focus inside and closes on Escape.
import { X } from 'lucide-react';
import { useId, useLayoutEffect, useRef, type ReactNode } from 'react';

/** A `firm` one is not closed by a click beside it. What is marked `data-first` has the focus first. */
type DialogProps = { title: string; onClose: () => void; children: ReactNode; wide?: boolean; firm?: boolean };

export function Dialog({ title, onClose, children, wide = false, firm = false }: DialogProps) {
  const element = useRef<HTMLDialogElement>(null);
  const id = useId();
  // Closed while it is still in the page: it gives the focus back to what opened it.
  useLayoutEffect(() => {
    const dialog = element.current;
    dialog?.showModal();
    dialog?.querySelector<HTMLElement>('[data-first]')?.focus();
    return () => dialog?.close();
  }, []);
  return (
    // oxlint-disable-next-line jsx-a11y/no-noninteractive-element-interactions, jsx-a11y/click-events-have-key-events -- the backdrop; Escape does the same
    <dialog
      ref={element}
      aria-labelledby={id}
      onClose={onClose}
      onClick={(event) => !firm && event.target === element.current && element.current.close()}
      className={`appear m-auto w-[calc(100%-2rem)] rounded-lg border border-line bg-raised p-0 shadow-float backdrop:bg-shade ${wide ? 'max-w-3xl' : 'max-w-md'}`}
    >
      <div className="p-5">
        <div className="mb-3 flex items-start justify-between gap-4">
          <h2 id={id} className="min-w-0 pt-1 text-base font-semibold [overflow-wrap:anywhere]">
            {title}
          </h2>
          {/* Without a tooltip: that would take the Escape which closes the dialog. */}
          <button type="button" aria-label="Close" onClick={() => element.current?.close()} className="grid size-9 shrink-0 place-items-center rounded-md text-soft hover:bg-hover hover:text-ink">
            <X size={17} aria-hidden />
          </button>
        </div>
        {children}
      </div>
    </dialog>
  );
}
