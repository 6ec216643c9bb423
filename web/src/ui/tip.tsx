// A tooltip: the name of what has only an icon.
import * as Tooltip from '@radix-ui/react-tooltip';
import type { ReactElement } from 'react';

export const TipProvider = Tooltip.Provider;

export function Tip({ text, side, children }: { text: string; side: 'top' | 'bottom' | 'right'; children: ReactElement }) {
  return (
    <Tooltip.Root delayDuration={450} disableHoverableContent>
      {/* Not where the focus only came after a click elsewhere. */}
      <Tooltip.Trigger asChild onFocus={(event) => !event.currentTarget.matches(':focus-visible') && event.preventDefault()}>
        {children}
      </Tooltip.Trigger>
      <Tooltip.Portal container={document.getElementById('overlays')}>
        <Tooltip.Content
          side={side}
          sideOffset={6}
          collisionPadding={8}
          className="appear pointer-events-none z-50 rounded-sm bg-ink px-2 py-1 text-tiny font-medium text-canvas"
        >
          {text}
        </Tooltip.Content>
      </Tooltip.Portal>
    </Tooltip.Root>
  );
}
