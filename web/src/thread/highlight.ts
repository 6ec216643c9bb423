// Colours for code, loaded when the first code is shown. The result is a tree, never markup.
import type { Root } from 'hast';
import { common, createLowlight } from 'lowlight';

const lowlight = createLowlight(common);

/** Null where the language is not known. */
export function highlight(text: string, language: string): Root | null {
  return lowlight.registered(language) ? lowlight.highlight(language, text) : null;
}
