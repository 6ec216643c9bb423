// A text field that grows with its text. Where the browser cannot do it by itself, the height is set by hand.
import { useLayoutEffect, useRef, type KeyboardEvent, type ClipboardEvent, type Ref } from 'react';

type Props = {
  label: string;
  value: string;
  onChange: (value: string) => void;
  onKeyDown?: (event: KeyboardEvent<HTMLTextAreaElement>) => void;
  onPaste?: (event: ClipboardEvent<HTMLTextAreaElement>) => void;
  placeholder?: string;
  autoFocus?: boolean;
  fieldRef?: Ref<HTMLTextAreaElement>;
};

const sizes = typeof CSS !== 'undefined' && CSS.supports('field-sizing', 'content');

export function GrowingText({ label, value, onChange, autoFocus = false, fieldRef, ...rest }: Props) {
  const element = useRef<HTMLTextAreaElement | null>(null);
  useLayoutEffect(() => {
    if (sizes || !element.current) return;
    element.current.style.height = 'auto';
    element.current.style.height = `${element.current.scrollHeight}px`;
  }, [value]);
  useLayoutEffect(() => {
    if (!autoFocus || !element.current) return;
    element.current.focus();
    element.current.setSelectionRange(element.current.value.length, element.current.value.length);
  }, [autoFocus]);
  return (
    <textarea
      {...rest}
      ref={(node) => {
        element.current = node;
        if (typeof fieldRef === 'function') fieldRef(node);
        else if (fieldRef) fieldRef.current = node;
      }}
      aria-label={label}
      rows={1}
      dir="auto"
      value={value}
      onChange={(event) => onChange(event.target.value)}
      className="block field-sizing-content max-h-[40vh] min-h-7 w-full resize-none bg-transparent px-1 outline-none placeholder:text-faint"
    />
  );
}
