// What an answer cites: pages of the web open beside the app, pages and rows of the workspace inside it.
import { ExternalLink, FileText, Table2 } from 'lucide-react';
import type { SourceBlock } from '../client/types';
import { follow } from '../router';

const web = /^https?:\/\//i;
const own = /^\/(pages\/[0-9a-f-]{36}|tables\/[0-9a-f-]{36}(\/rows\/[0-9a-f-]{36})?)$/i;
const host = (url: string) => {
  try {
    return new URL(url).host;
  } catch {
    return url;
  }
};

function Inside({ source }: { source: SourceBlock }) {
  const { title, url, locator = '' } = source;
  const inApp = own.test(locator);
  const where = inApp ? (locator.startsWith('/tables') ? 'Table' : url ? host(url) : 'Page') : url && web.test(url) ? host(url) : locator;
  const Icon = !inApp && url && web.test(url) ? ExternalLink : locator.startsWith('/tables') ? Table2 : FileText;
  return (
    <>
      <Icon size={13} aria-hidden className="mt-1 shrink-0 text-faint" />
      <span className="min-w-0">
        <bdi className="block truncate font-medium">{title}</bdi>
        <bdi className="block truncate text-tiny text-faint">{where}</bdi>
      </span>
    </>
  );
}

export function Sources({ sources }: { sources: SourceBlock[] }) {
  const look = 'flex max-w-64 gap-2 rounded-md border border-line bg-raised px-3 py-1.5 text-small';
  return (
    <ul className="my-3 flex flex-wrap gap-2" aria-label="Sources">
      {sources.map((source, at) => (
        <li key={at} data-block="source" title={source.snippet}>
          {source.locator && own.test(source.locator) ? (
            <a className={`${look} hover:bg-hover`} href={source.locator} onClick={follow}>
              <Inside source={source} />
            </a>
          ) : source.url && web.test(source.url) ? (
            <a className={`${look} hover:bg-hover`} href={source.url} target="_blank" rel="noopener noreferrer nofollow">
              <Inside source={source} />
            </a>
          ) : (
            <span className={look}>
              <Inside source={source} />
            </span>
          )}
        </li>
      ))}
    </ul>
  );
}
