// A part of the page that is loaded when it is first wanted.
import { useEffect, useState } from 'react';

/** A hook that answers the part, or null as long as it is not there. What failed to load is tried again by the next who wants it. */
export function later<T>(load: () => Promise<T>): (wanted?: boolean) => T | null {
  let loaded: T | null = null;
  return (wanted = true) => {
    const [part, setPart] = useState(() => loaded);
    useEffect(() => {
      if (part !== null || !wanted) return;
      let here = true;
      load().then(
        (found) => {
          loaded = found;
          if (here) setPart(() => found);
        },
        () => undefined,
      );
      return () => {
        here = false;
      };
    }, [part, wanted]);
    return part;
  };
}
