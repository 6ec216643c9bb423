// Every change of who may do what.
import { useInfiniteQuery } from '@tanstack/react-query';
import { listAudit } from '../client/api';
import { Spinner } from '../ui/bits';
import { Button } from '../ui/button';
import { Section } from './parts';

const when = (time: string) => new Date(time).toLocaleString(undefined, { dateStyle: 'medium', timeStyle: 'short' });

export function Audit() {
  const { data, error, hasNextPage, isFetchingNextPage, fetchNextPage } = useInfiniteQuery({
    queryKey: ['audit'],
    queryFn: ({ pageParam }) => listAudit(pageParam),
    initialPageParam: undefined as string | undefined,
    getNextPageParam: (page) => page.next ?? undefined,
  });
  const entries = data?.pages.flatMap((page) => page.data) ?? [];
  return (
    <Section title="Audit log" about="Every change of who may do what, oldest first. Each entry is chained to the one before it.">
      {error && <p className="text-small text-danger">{error.message}</p>}
      {!data && !error && <Spinner label="Loading the audit log" />}
      <div className="prose text-small">
        <div className="table-frame" role="group" aria-label="Audit log" tabIndex={0}>
          <table>
            <thead>
              <tr>
                <th>When</th>
                <th>Who</th>
                <th>What</th>
                <th>To whom</th>
              </tr>
            </thead>
            <tbody>
              {entries.map((entry) => (
                <tr key={entry.seq}>
                  <td className="whitespace-nowrap">{when(entry.at)}</td>
                  <td>{entry.user}</td>
                  <td>{entry.action}</td>
                  <td className="min-w-56">
                    {entry.target} {entry.detail && <span className="text-faint">({entry.detail})</span>}
                  </td>
                </tr>
              ))}
            </tbody>
          </table>
        </div>
      </div>
      {hasNextPage && (
        <Button className="mt-3" disabled={isFetchingNextPage} onClick={() => void fetchNextPage()}>
          Load more
        </Button>
      )}
    </Section>
  );
}
