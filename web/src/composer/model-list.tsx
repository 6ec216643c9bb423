// A long list of agents and models, filtered while one types.
import { Check } from 'lucide-react';
import { useId, useRef, useState } from 'react';

export type Offer = { key: string; group: string; label: string; hint?: string; chosen: boolean; choose: () => void };

/** Those that have every word, whatever is between. */
export function matching(offers: Offer[], query: string): Offer[] {
  const words = query.toLowerCase().split(/\s+/).filter(Boolean);
  return offers.filter(({ label, hint }) => words.every((word) => `${label} ${hint ?? ''}`.toLowerCase().includes(word)));
}

export function ModelList({ offers, onDone }: { offers: Offer[]; onDone: () => void }) {
  const id = useId();
  const list = useRef<HTMLDivElement>(null);
  const [query, setQuery] = useState('');
  const found = matching(offers, query);
  const groups = [...new Set(found.map(({ group }) => group))];
  const [current, setCurrent] = useState(() => offers.find(({ chosen }) => chosen)?.key ?? null);
  const at = Math.max(0, found.findIndex(({ key }) => key === current));
  const active = found[at];
  const go = (next: number) => {
    const to = found[(next + found.length) % found.length];
    if (!to) return;
    setCurrent(to.key);
    list.current?.querySelector(`[id="${id}${to.key}"]`)?.scrollIntoView({ block: 'nearest' });
  };
  const take = (offer: Offer | undefined) => {
    if (!offer) return;
    offer.choose();
    onDone();
  };
  return (
    <>
      <input
        type="text"
        role="combobox"
        aria-label="Find a model"
        aria-expanded
        aria-controls={id}
        aria-activedescendant={active ? id + active.key : undefined}
        autoComplete="off"
        spellCheck={false}
        placeholder="Find a model"
        data-first
        value={query}
        onChange={(event) => {
          setQuery(event.target.value);
          setCurrent(null);
          list.current?.scrollTo(0, 0);
        }}
        onKeyDown={(event) => {
          if (event.nativeEvent.isComposing) return;
          if (event.key === 'ArrowDown') go(at + 1);
          else if (event.key === 'ArrowUp') go(at - 1);
          else if (event.key === 'Enter') take(active);
          else return;
          event.preventDefault();
        }}
        className="h-10 w-full rounded-md border border-line-strong bg-raised px-3 text-small outline-none placeholder:text-faint focus:border-accent focus:ring-2 focus:ring-accent/25"
      />
      <div ref={list} id={id} role="listbox" aria-label="Agents and models" className="mt-3 max-h-[min(22rem,50vh)] overflow-y-auto">
        {groups.map((group) => (
          <div key={group} role="group" aria-label={group}>
            {groups.length > 1 && (
              <p aria-hidden className="px-2.5 pt-2 pb-1 text-tiny font-semibold text-faint">
                {group}
              </p>
            )}
            {found
              .filter((offer) => offer.group === group)
              .map((offer) => (
                // oxlint-disable-next-line jsx-a11y/click-events-have-key-events, jsx-a11y/interactive-supports-focus -- the keys are the field's, which keeps the focus
                <div
                  key={offer.key}
                  id={id + offer.key}
                  role="option"
                  aria-selected={offer.chosen}
                  onClick={() => take(offer)}
                  className={`flex cursor-default items-center gap-2.5 rounded-md px-2.5 py-1.5 text-small hover:bg-hover ${offer === active ? 'bg-active' : ''}`}
                >
                  <span className="min-w-0 grow">
                    <bdi className="block font-medium [overflow-wrap:anywhere]">{offer.label}</bdi>
                    {offer.hint && <bdi className="block text-soft [overflow-wrap:anywhere]">{offer.hint}</bdi>}
                  </span>
                  {offer.chosen && <Check size={16} aria-hidden className="shrink-0 text-accent" />}
                </div>
              ))}
          </div>
        ))}
      </div>
      <p role="status" className="px-2.5 text-small text-soft not-empty:py-3">
        {found.length === 0 ? 'Nothing has this name.' : ''}
      </p>
    </>
  );
}
