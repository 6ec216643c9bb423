// Which of several versions of a message is shown, and the way to the others.
import { ChevronLeft, ChevronRight } from 'lucide-react';
import type { Siblings } from '../client/branches';
import { IconButton } from '../ui/button';

export function Versions({ siblings, onShow, disabled }: { siblings: Siblings; onShow: (id: string) => void; disabled: boolean }) {
  const { ids, at } = siblings;
  const before = ids[at - 1];
  const after = ids[at + 1];
  return (
    <div className="flex items-center text-tiny text-faint tabular-nums" role="group" aria-label="Versions">
      <IconButton name="Previous version" small disabled={disabled || !before} onClick={() => before && onShow(before)}>
        <ChevronLeft size={15} aria-hidden />
      </IconButton>
      <span>
        {at + 1} / {ids.length}
      </span>
      <IconButton name="Next version" small disabled={disabled || !after} onClick={() => after && onShow(after)}>
        <ChevronRight size={15} aria-hidden />
      </IconButton>
    </div>
  );
}
