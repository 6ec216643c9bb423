// GitHub's dialect of Markdown, to be read: tables, tasks, footnotes, strikethrough, plain links. The usual plugin can
// write it, too, and weighs as much again.
import { gfmFromMarkdown } from 'mdast-util-gfm';
import { gfm } from 'micromark-extension-gfm';

type Reader = { data: () => { micromarkExtensions?: unknown[]; fromMarkdownExtensions?: unknown[] } };

export function readGfm(this: Reader): void {
  const data = this.data();
  (data.micromarkExtensions ??= []).push(gfm());
  (data.fromMarkdownExtensions ??= []).push(gfmFromMarkdown());
}
