// The steps of a run as bars on one line of time.
import { toNumber } from '../client/json';
import type { TraceLine } from '../client/types';
import { duration } from '../ui/bits';

type Bar = { id: string; name: string; from: number; to: number; failed: boolean };

export function bars(lines: TraceLine[]): Bar[] {
  const found = new Map<string, Bar>();
  const end = lines.at(-1)?.ts ?? 0;
  for (const { kind, ts, line } of lines) {
    if (kind !== 'step') continue;
    const id = String(line.id);
    const at = toNumber(line.ts) ?? ts;
    const bar = found.get(id) ?? { id, name: String(line.name), from: at, to: end, failed: false };
    if (line.status !== 'running') {
      bar.to = at;
      const took = toNumber(line.durationMs);
      if (took !== undefined && bar.from === at) bar.from = at - took;
    }
    bar.failed = line.status === 'failed';
    found.set(id, bar);
  }
  return [...found.values()];
}

const SHOWN = 60;

export function Timeline({ lines }: { lines: TraceLine[] }) {
  const all = bars(lines);
  if (all.length === 0) return null;
  const start = Math.min(lines[0]?.ts ?? 0, ...all.map((bar) => bar.from));
  const span = Math.max(1, Math.max(lines.at(-1)?.ts ?? 0, ...all.map((bar) => bar.to)) - start);
  return (
    <figure aria-label="Timeline of the steps" className="mb-2 rounded-lg border border-line bg-sunken p-3">
      <ul className="grid gap-1.5">
        {all.slice(0, SHOWN).map((bar) => (
          <li key={bar.id} className="grid grid-cols-[7rem_1fr_3.5rem] items-center gap-2 text-tiny">
            <bdi className="truncate text-soft">{bar.name}</bdi>
            <span className="relative h-2 rounded-full bg-active">
              <span
                className={`absolute inset-y-0 min-w-1 rounded-full ${bar.failed ? 'bg-danger' : 'bg-accent'}`}
                style={{ left: `${((bar.from - start) / span) * 100}%`, width: `${(Math.max(0, bar.to - bar.from) / span) * 100}%` }}
              />
            </span>
            <span className="text-right text-faint tabular-nums">{duration(Math.max(0, bar.to - bar.from))}</span>
          </li>
        ))}
      </ul>
      {all.length > SHOWN && <figcaption className="mt-2 text-tiny text-faint">and {all.length - SHOWN} more</figcaption>}
    </figure>
  );
}
