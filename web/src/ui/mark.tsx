// The sign of the house: three threads.
export const Mark = ({ size = 24 }: { size?: number }) => (
  <svg width={size} height={size} viewBox="0 0 32 32" aria-hidden="true" className="shrink-0">
    <rect width="32" height="32" rx="9" className="fill-accent" />
    <path d="M9 11.5c4.5-3 9.5 3 14 0M9 16.5c4.5-3 9.5 3 14 0M9 21.5c4.5-3 9.5 3 14 0" className="fill-none stroke-on-accent" strokeWidth="2.4" strokeLinecap="round" />
  </svg>
);
