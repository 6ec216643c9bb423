// Back to where the user writes.

/** For what vanishes once it is pressed: the focus would fall out of the page with it. Not where it opens a keyboard on the glass. */
export function toComposer(): void {
  if (matchMedia('(pointer: coarse)').matches) return;
  document.querySelector<HTMLElement>('form[data-composer] textarea')?.focus();
}
