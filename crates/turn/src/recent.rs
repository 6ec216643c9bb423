//! The newest batches of a run's log, for a database that loses them. PostgreSQL takes appends without waiting for its
//! disk: when it crashes itself it has forgotten the last of them, and this node lives on, and so do its readers. In:
//! what was stored. Out: what is to be stored again.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use store::StoreError;
use store::turns::{Batch, Held};

use crate::Turns;
use crate::error::TurnError;
use crate::live::LiveRun;
use crate::log::retry;

/// PostgreSQL has what it took on its disk after three times its `wal_writer_delay`, 0.6 s if that was left alone.
const AGE: Duration = Duration::from_secs(2);
/// As much as its readers have at hand, who share the texts.
const BYTES: usize = 256 * 1024;

#[derive(Default)]
pub(crate) struct Recent {
    batches: VecDeque<(Instant, Batch)>,
    bytes: usize,
    /// The newest entry and event that this node knows to have been stored.
    last: (i64, i64),
    /// Who writes it here.
    held: Option<Held>,
}

impl Recent {
    /// The log is written here from now on. What it holds by now is on the disk: the lease was committed after it.
    pub(crate) fn begin(&mut self, held: Held, last: (i64, i64)) {
        self.held = Some(held);
        self.last = self.last.max(last);
    }

    pub(crate) fn last(&self) -> (i64, i64) {
        self.last
    }

    /// A batch was stored that was asked for at `asked`. Those before it were there, so what is long before is safe.
    pub(crate) fn note(&mut self, batch: &Batch, asked: Instant) {
        self.bytes += batch.entries.len();
        self.batches.push_back((Instant::now(), batch.clone()));
        self.last = (batch.last_entry, batch.last_seq);
        let is_old = |at: &Instant| *at + AGE < asked;
        while self.batches.len() > 1
            && self.batches.front().is_some_and(|(at, _)| is_old(at) || self.bytes > BYTES)
        {
            let dropped = self.batches.pop_front().map_or(0, |(_, batch)| batch.entries.len());
            self.bytes -= dropped;
        }
    }

    /// The newest of all, with its writer.
    fn newest(&self) -> Option<(Held, Batch)> {
        self.held.zip(self.batches.back().map(|(_, batch)| batch.clone()))
    }

    /// All after an entry, in one batch; none when they do not reach back that far.
    fn after(&self, entry: i64) -> Option<Batch> {
        let missing = self.batches.partition_point(|(_, batch)| batch.first_entry <= entry);
        let mut missing = self.batches.range(missing..).map(|(_, batch)| batch);
        let mut all = missing.next().filter(|first| first.first_entry == entry + 1)?.clone();
        let mut text = all.entries.to_string();
        for batch in missing {
            text.push('\n');
            text.push_str(&batch.entries);
            (all.last_entry, all.last_seq) = (batch.last_entry, batch.last_seq);
        }
        all.entries = text.into();
        Some(all)
    }

    /// What comes after an entry was stored anew.
    fn renew(&mut self, entry: i64) {
        let now = Instant::now();
        for (at, _) in self.batches.iter_mut().filter(|(_, batch)| batch.first_entry > entry) {
            *at = now;
        }
    }
}

impl Turns {
    /// What the database lost of a log after entry `last` is appended again, as it was. `Behind` when it is no longer known
    /// here.
    pub(crate) async fn append_again(
        &self,
        held: &Held,
        live: &LiveRun,
        mut last: i64,
    ) -> Result<(), TurnError> {
        while last < live.recent().last().0 {
            let batch = live.recent().after(last).ok_or(StoreError::Behind { last_entry: last })?;
            match retry(live, || self.inner.store.append_events(held, &batch)).await {
                // It crashed once more.
                Err(TurnError::Store(StoreError::Behind { last_entry })) => last = last_entry,
                appended => {
                    appended?;
                    live.recent().renew(last);
                    let (run, entries) = (held.lease.run, batch.last_entry - last);
                    tracing::warn!(%run, entries, "the database had lost the end of a run's log; it was appended again");
                    return Ok(());
                }
            }
        }
        Ok(())
    }

    /// The database may have crashed: what it lost of the logs written here is there again before anybody misses it.
    pub(crate) async fn mend_logs(&self) {
        for run in self.inner.live.driven() {
            let Some(live) = self.inner.live.find(run) else { continue };
            let Some((held, newest)) = live.recent().newest() else { continue };
            let stored = retry(&live, || self.inner.store.append_events(&held, &newest)).await;
            let mended = match stored {
                Ok(()) => {
                    // It may have been stored just now.
                    live.recent().renew(newest.first_entry - 1);
                    Ok(())
                }
                Err(TurnError::Store(StoreError::Behind { last_entry })) => {
                    self.append_again(&held, &live, last_entry).await
                }
                stored => stored,
            };
            // Whatever is wrong, the run's own writer meets with it too, or has gone on meanwhile.
            if let Err(error) = mended {
                tracing::debug!(%run, %error, "a log was not mended beside its writer");
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn batch(first: i64, last: i64, text: &str) -> Batch {
        Batch { first_entry: first, last_entry: last, first_seq: first, last_seq: last, entries: text.into() }
    }

    #[test]
    fn what_is_missing_is_one_batch_as_long_as_it_is_known() {
        let (mut recent, now) = (Recent::default(), Instant::now());
        for (first, last, text) in [(2, 2, "two"), (3, 4, "three\nfour"), (5, 5, "five")] {
            recent.note(&batch(first, last, text), now);
        }
        assert_eq!(recent.after(2), Some(batch(3, 5, "three\nfour\nfive")));
        assert_eq!(recent.after(4), Some(batch(5, 5, "five")));
        assert_eq!(recent.after(1), Some(batch(2, 5, "two\nthree\nfour\nfive")));
        // Nothing is missing, it begins within a batch, it was before the first.
        assert_eq!((recent.after(5), recent.after(3), recent.after(0)), (None, None, None));
    }

    #[test]
    fn what_is_on_the_disk_by_now_and_what_is_too_much_is_let_go() {
        let (mut recent, now) = (Recent::default(), Instant::now());
        recent.note(&batch(2, 2, "two"), now);
        // However long nothing came: only what came after it says that it is safe.
        recent.note(&batch(3, 3, "three"), now + AGE / 2);
        assert_eq!(recent.batches.len(), 2);
        recent.note(&batch(4, 4, "four"), now + 3 * AGE);
        assert_eq!((recent.batches.len(), recent.bytes), (1, 4));
        let large = "x".repeat(BYTES / 2);
        for n in 5..9 {
            recent.note(&batch(n, n, &large), now);
        }
        assert_eq!((recent.batches.len(), recent.bytes, recent.last), (2, BYTES, (8, 8)));
    }
}
