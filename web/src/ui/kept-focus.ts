// The focus is never lost: when what had it is gone, it goes to what has come into its place.
import { useEffect, type RefObject } from 'react';
import { toComposer } from '../composer/focus';

const CONTROLS = 'a[href], button:enabled, input:enabled, select:enabled, textarea:enabled';
const controls = (node: Element): HTMLElement[] => [...node.querySelectorAll<HTMLElement>(CONTROLS)];

export const nowhere = () => document.activeElement === null || document.activeElement === document.body;

/** What stood beside it, the nearest first: what came after, then what came before. */
function* beside({ nextSibling, previousSibling }: MutationRecord): Generator<Element> {
  for (let node = nextSibling; node; node = node.nextSibling) if (node instanceof Element) yield node;
  for (let node = previousSibling; node; node = node.previousSibling) if (node instanceof Element) yield node;
}

type Had = { control: Element; row: Element | null; at: number; section: Element | null };

function remember(control: Element): Had {
  const row = control.closest('li, tr');
  return { control, row, at: row ? controls(row).indexOf(control as HTMLElement) : -1, section: control.closest('section') };
}

/** The same control of the row beside one that was taken away. */
function neighbour({ row, at }: Had, records: MutationRecord[]): HTMLElement | undefined {
  const record = row && records.find(({ removedNodes }) => [...removedNodes].includes(row));
  for (const other of record ? beside(record) : []) {
    const found = controls(other);
    if (other.isConnected && found.length > 0) return found[at] ?? found[0];
  }
}

export function useKeptFocus(frame: RefObject<HTMLElement | null>): void {
  useEffect(() => {
    const element = frame.current;
    if (!element) return;
    let had: Had | null = null;
    const note = (event: FocusEvent) => (had = remember(event.target as Element));
    // Who went elsewhere by themselves are left there; what was taken away is gone before this is asked.
    const leave = () =>
      queueMicrotask(() => {
        if (had?.control.isConnected && document.activeElement !== had.control) had = null;
      });
    const watch = new MutationObserver((records) => {
      if (!had || had.control.isConnected) return;
      const lost = had;
      had = null;
      if (!nowhere()) return;
      const next = neighbour(lost, records);
      if (next) return next.focus({ preventScroll: true });
      // Whoever took it away may still say where to go.
      requestAnimationFrame(() => {
        if (nowhere() && lost.section?.isConnected) lost.section.querySelector<HTMLElement>('h2[tabindex]')?.focus();
        if (nowhere()) toComposer();
        if (nowhere()) document.getElementById('main')?.focus({ preventScroll: true });
      });
    });
    element.addEventListener('focusin', note);
    element.addEventListener('focusout', leave);
    watch.observe(element, { childList: true, subtree: true });
    return () => {
      element.removeEventListener('focusin', note);
      element.removeEventListener('focusout', leave);
      watch.disconnect();
    };
  }, [frame]);
}
