// A text field that grows with its text. Where the browser cannot do it by itself, the height is set by hand. Enter is
// done with it; on a keyboard on glass, which has no Shift Enter, it is a new line.
import { useLayoutEffect, useRef, type KeyboardEvent, type ClipboardEvent, type RefObject } from 'react';

type Props = {
  label: string;
  value: string;
  onChange: (value: string) => void;
  onEnter: () => void;
  onKeyDown?: (event: KeyboardEvent<HTMLTextAreaElement>) => void;
  onPaste?: (event: ClipboardEvent<HTMLTextAreaElement>) => void;
  placeholder?: string;
  autoFocus?: boolean;
  fieldRef?: RefObject<HTMLTextAreaElement | null>;
};

const meant = ({ ctrlKey, metaKey, shiftKey, nativeEvent }: KeyboardEvent) =>
  !nativeEvent.isComposing && (ctrlKey || metaKey || (!shiftKey && !matchMedia('(pointer: coarse)').matches));

const sizes = typeof CSS !== 'undefined' && CSS.supports('field-sizing', 'content');

export function GrowingText({ label, value, onChange, onEnter, onKeyDown, autoFocus = false, fieldRef, ...rest }: Props) {
  const own = useRef<HTMLTextAreaElement | null>(null);
  const element = fieldRef ?? own;
  useLayoutEffect(() => {
    if (sizes || !element.current) return;
    element.current.style.height = 'auto';
    element.current.style.height = `${element.current.scrollHeight}px`;
  }, [value, element]);
  useLayoutEffect(() => {
    if (!autoFocus || !element.current) return;
    element.current.focus();
    element.current.setSelectionRange(element.current.value.length, element.current.value.length);
  }, [autoFocus, element]);
  return (
    <textarea
      {...rest}
      ref={element}
      aria-label={label}
      rows={1}
      dir="auto"
      value={value}
      onChange={(event) => onChange(event.target.value)}
      onKeyDown={(event) => {
        if (event.key === 'Enter' && meant(event)) {
          event.preventDefault();
          onEnter();
        }
        onKeyDown?.(event);
      }}
      className="block field-sizing-content max-h-[40vh] min-h-7 w-full resize-none bg-transparent px-1 outline-none placeholder:text-faint"
    />
  );
}
