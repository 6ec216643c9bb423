// A menu under a button.
import * as Dropdown from '@radix-ui/react-dropdown-menu';
import { Check } from 'lucide-react';
import type { ReactElement, ReactNode } from 'react';

type MenuProps = { trigger: ReactElement; children: ReactNode; align?: 'start' | 'end'; side?: 'top' | 'bottom'; onClosed?: () => void };

// Not modal: that would put a style element into the page, which the content security policy forbids.
export function Menu({ trigger, children, align = 'start', side = 'bottom', onClosed }: MenuProps) {
  return (
    <Dropdown.Root modal={false}>
      <Dropdown.Trigger asChild>{trigger}</Dropdown.Trigger>
      <Dropdown.Portal container={document.getElementById('overlays')}>
        <Dropdown.Content
          align={align}
          side={side}
          sideOffset={6}
          collisionPadding={8}
          onCloseAutoFocus={(event) => {
            if (!onClosed) return;
            event.preventDefault();
            onClosed();
          }}
          className="appear z-50 max-h-[min(60vh,var(--radix-dropdown-menu-content-available-height))] min-w-44 overflow-y-auto rounded-lg border border-line bg-raised p-1 shadow-float"
        >
          {children}
        </Dropdown.Content>
      </Dropdown.Portal>
    </Dropdown.Root>
  );
}

const item =
  'flex items-center gap-2.5 rounded-md px-2.5 py-1.5 text-small outline-none select-none data-[highlighted]:bg-hover data-[disabled]:opacity-40';

export function MenuItem({ icon, danger, children, onSelect, disabled }: {
  icon?: ReactNode;
  danger?: boolean;
  disabled?: boolean;
  children: ReactNode;
  onSelect: () => void;
}) {
  return (
    <Dropdown.Item onSelect={onSelect} disabled={disabled ?? false} className={`${item} ${danger ? 'text-danger' : ''}`}>
      {icon}
      {children}
    </Dropdown.Item>
  );
}

export function MenuChoice<T extends string>({ value, options, onChange }: {
  value: T;
  options: { value: T; label: string; hint?: string; icon?: ReactNode }[];
  onChange: (value: T) => void;
}) {
  return (
    <Dropdown.RadioGroup value={value} onValueChange={(next) => onChange(next as T)}>
      {options.map((option) => (
        <Dropdown.RadioItem key={option.value} value={option.value} className={`${item} max-w-72 items-start`}>
          {option.icon && <span className="mt-0.5 text-soft">{option.icon}</span>}
          <span className="grow">
            <span className="block font-medium">{option.label}</span>
            {option.hint && <span className="block text-soft">{option.hint}</span>}
          </span>
          <span className="mt-0.5 size-4 text-accent">
            <Dropdown.ItemIndicator>
              <Check size={16} aria-hidden />
            </Dropdown.ItemIndicator>
          </span>
        </Dropdown.RadioItem>
      ))}
    </Dropdown.RadioGroup>
  );
}

export const MenuLine = () => <Dropdown.Separator className="m-1 h-px bg-line" />;

export const MenuLabel = ({ children }: { children: ReactNode }) => (
  <Dropdown.Label className="px-2.5 pt-2 pb-1 text-tiny font-semibold text-faint">{children}</Dropdown.Label>
);
