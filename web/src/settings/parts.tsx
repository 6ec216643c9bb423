// The parts that settings are laid out with.
import { useId, type ReactNode } from 'react';

export function Section({ title, about, children }: { title: string; about?: string; children: ReactNode }) {
  const id = useId();
  return (
    <section aria-labelledby={id} className="mb-10">
      <h2 id={id} className="text-base font-semibold tracking-tight">
        {title}
      </h2>
      {about && <p className="mt-1 text-small text-soft">{about}</p>}
      <div className="mt-4">{children}</div>
    </section>
  );
}

export const List = ({ children, label }: { children: ReactNode; label: string }) => (
  <ul aria-label={label} className="divide-y divide-line rounded-lg border border-line bg-raised">
    {children}
  </ul>
);

export const Item = ({ children }: { children: ReactNode }) => <li className="flex min-h-13 flex-wrap items-center gap-3 px-4 py-2 text-small">{children}</li>;

export const day = (time: string) => new Date(time).toLocaleDateString(undefined, { dateStyle: 'medium' });
