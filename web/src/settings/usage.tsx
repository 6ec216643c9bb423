// What was used: today against its limits, and the days before.
import { useQuery } from '@tanstack/react-query';
import { getUsage, type Allowance, type Spent } from '../client/library';
import { Spinner } from '../ui/bits';
import { Empty, Section } from './parts';

const count = (value: number) => value.toLocaleString();

export function UsageSection() {
  const { data, error } = useQuery({ queryKey: ['usage'], queryFn: getUsage });
  return (
    <>
      {error && <p className="text-small text-danger">{error.message}</p>}
      {!data && !error && <Spinner label="Loading the usage" />}
      {data && (
        <>
          <Section title="Today" about="Tokens that models have read and written.">
            <div className="grid gap-3 sm:grid-cols-2">
              <Meter name="You" allowance={data.today.user} />
              <Meter name="The workspace" allowance={data.today.workspace} />
            </div>
          </Section>
          <Section title="By day">{data.data.length === 0 ? <Empty>Nothing was used yet.</Empty> : <Days days={data.data} />}</Section>
        </>
      )}
    </>
  );
}

function Meter({ name, allowance: { used, limit, resets_at: resets } }: { name: string; allowance: Allowance }) {
  const over = limit !== null && used >= limit;
  return (
    <div className="rounded-lg border border-line bg-raised px-4 py-3">
      <p className="text-small text-soft">{name}</p>
      <p className="mt-0.5 text-xl font-semibold tracking-tight tabular-nums">{count(used)}</p>
      {limit !== null && <progress aria-label={`${name}: used of the limit`} value={Math.min(used, limit)} max={limit} className={`mt-2 h-1.5 w-full appearance-none overflow-hidden rounded-full bg-active [&::-webkit-progress-bar]:bg-active ${over ? '[&::-moz-progress-bar]:bg-danger [&::-webkit-progress-value]:bg-danger' : '[&::-moz-progress-bar]:bg-accent [&::-webkit-progress-value]:bg-accent'}`} />}
      <p className="mt-1 text-tiny text-faint">
        {limit === null ? 'There is no limit.' : `of ${count(limit)}; begins anew at ${new Date(resets).toLocaleTimeString(undefined, { hour: '2-digit', minute: '2-digit' })}`}
      </p>
    </div>
  );
}

function Days({ days }: { days: Spent[] }) {
  const most = Math.max(1, ...days.map((day) => day.total_tokens));
  return (
    <div className="overflow-x-auto rounded-lg border border-line bg-raised" role="group" aria-label="Tokens by day" tabIndex={0}>
      <table className="w-full text-small tabular-nums">
        <thead className="bg-sunken text-left">
          <tr>
            {['Day', 'Runs', 'Read', 'Written', 'Together'].map((name) => (
              <th key={name} scope="col" className={`px-1.5 py-2 first:pl-3 sm:px-4 font-semibold ${name === 'Day' ? '' : 'text-right'}`}>
                {name}
              </th>
            ))}
            <td aria-hidden className="w-1/4 max-sm:hidden" />
          </tr>
        </thead>
        <tbody className="divide-y divide-line">
          {days.map((day) => (
            <tr key={day.day}>
              <td className="px-1.5 py-2 first:pl-3 sm:px-4 whitespace-nowrap">{new Date(`${day.day}T00:00:00`).toLocaleDateString(undefined, { dateStyle: 'medium' })}</td>
              <td className="px-1.5 py-2 first:pl-3 sm:px-4 text-right">{count(day.runs)}</td>
              <td className="px-1.5 py-2 first:pl-3 sm:px-4 text-right">{count(day.input_tokens)}</td>
              <td className="px-1.5 py-2 first:pl-3 sm:px-4 text-right">{count(day.output_tokens)}</td>
              <td className="px-1.5 py-2 first:pl-3 sm:px-4 text-right font-medium">{count(day.total_tokens)}</td>
              <td className="pr-4 max-sm:hidden" aria-hidden>
                <svg className="h-1.5 w-full" preserveAspectRatio="none" viewBox="0 0 100 1">
                  <rect width={(100 * day.total_tokens) / most} height="1" className="fill-accent" />
                </svg>
              </td>
            </tr>
          ))}
        </tbody>
      </table>
    </div>
  );
}
