// Buttons. Every icon button has a name, for screen readers and as its tooltip.
import type { ComponentProps, ReactNode } from 'react';
import { Tip } from './tip';

type Look = 'solid' | 'plain' | 'quiet' | 'danger';

const looks: Record<Look, string> = {
  solid: 'bg-accent text-on-accent enabled:hover:bg-accent-strong',
  plain: 'border border-line-strong bg-raised enabled:hover:bg-hover',
  quiet: 'text-soft enabled:hover:bg-hover enabled:hover:text-ink',
  danger: 'border border-line-strong bg-raised text-danger enabled:hover:bg-danger-wash',
};

type ButtonProps = ComponentProps<'button'> & { look?: Look };

export function Button({ look = 'plain', className = '', ...rest }: ButtonProps) {
  return (
    <button
      type="button"
      {...rest}
      className={`inline-flex h-9 items-center justify-center gap-2 rounded-md px-3.5 text-small font-medium whitespace-nowrap transition-colors disabled:opacity-50 ${looks[look]} ${className}`}
    />
  );
}

type IconProps = ComponentProps<'button'> & { name: string; children: ReactNode; side?: 'top' | 'bottom' | 'right'; small?: boolean };

export function IconButton({ name, children, className = '', side = 'bottom', small = false, ...rest }: IconProps) {
  return (
    <Tip text={name} side={side}>
      <button
        type="button"
        aria-label={name}
        {...rest}
        className={`inline-flex shrink-0 items-center justify-center rounded-md text-soft transition-colors enabled:hover:bg-hover enabled:hover:text-ink disabled:opacity-40 ${small ? 'size-7' : 'size-9'} ${className}`}
      >
        {children}
      </button>
    </Tip>
  );
}
