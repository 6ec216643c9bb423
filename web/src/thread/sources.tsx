// What an answer cites.
import { ExternalLink, FileText } from 'lucide-react';
import type { SourceBlock } from '../client/types';

const web = /^https?:\/\//i;
const host = (url: string) => {
  try {
    return new URL(url).host;
  } catch {
    return url;
  }
};

export function Sources({ sources }: { sources: SourceBlock[] }) {
  return (
    <ul className="my-3 flex flex-wrap gap-2" aria-label="Sources">
      {sources.map((source, at) => {
        const linked = source.url !== undefined && web.test(source.url);
        const where = source.url && linked ? host(source.url) : (source.locator ?? '');
        const inside = (
          <>
            {linked ? <ExternalLink size={13} aria-hidden className="mt-1 shrink-0 text-faint" /> : <FileText size={13} aria-hidden className="mt-1 shrink-0 text-faint" />}
            <span className="min-w-0">
              <bdi className="block truncate font-medium">{source.title}</bdi>
              <bdi className="block truncate text-tiny text-faint">{where}</bdi>
            </span>
          </>
        );
        const look = 'flex max-w-64 gap-2 rounded-md border border-line bg-raised px-3 py-1.5 text-small';
        return (
          <li key={at} data-block="source" title={source.snippet}>
            {linked ? (
              <a className={`${look} hover:bg-hover`} href={source.url} target="_blank" rel="noopener noreferrer nofollow">
                {inside}
              </a>
            ) : (
              <span className={look}>{inside}</span>
            )}
          </li>
        );
      })}
    </ul>
  );
}
