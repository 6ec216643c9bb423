//! A run's log while this node writes it: events get their numbers here, are stored, and only then published.

use std::sync::Arc;
use std::time::{Duration, Instant};

use domain::entry::{Entry, EntryError, Trace, Written, decode, write_event, write_trace};
use domain::event::{File, Raw, RunEvent};
use domain::fold::Fold;
use store::StoreError;
use store::turns::{Batch, Held};
use upstream::trace::{self, Kind, Value};

use crate::Turns;
use crate::error::TurnError;
use crate::failpoint::point;
use crate::live::{LiveEvent, LiveRun, Piece};

/// How long what a run was given waits for the first of its answer, to be stored with it in one write.
pub(crate) const OPENING: Duration = Duration::from_millis(5);
/// What a trace says of an entry that nobody has any more.
const LOST: &str = "an entry that the database lost in a crash";

pub(crate) struct RunLog {
    turns: Turns,
    pub(crate) held: Held,
    live: Arc<LiveRun>,
    pub(crate) fold: Fold,
    /// The terminal line of an execution, until its end is written.
    pub(crate) last_line: Option<Raw>,
    /// Whether what the sandbox sent back is in the log.
    pub(crate) files_logged: bool,
    next_entry: i64,
    next_seq: i64,
    pending: Pending,
}

/// A place in the batch under way.
#[derive(Clone, Copy)]
pub(crate) struct End {
    entry: i64,
    seq: i64,
    text: usize,
}

/// What was pushed and not yet stored.
struct Pending {
    first_entry: i64,
    first_seq: i64,
    text: Vec<u8>,
    events: Vec<Unstored>,
}

/// An event whose text is in `Pending`.
struct Unstored {
    seq: i64,
    ts: i64,
    kind: &'static str,
    written: Written,
}

impl RunLog {
    /// The log of a run that was begun just now: its readers get its first event.
    pub(crate) fn opened(turns: Turns, held: Held, live: Arc<LiveRun>, opening: &Batch) -> Self {
        let last = (opening.last_entry, opening.last_seq);
        let log = Self::going_on(turns, held, live, Fold::default(), last);
        let entries = opening.entries.lines().filter_map(|line| decode(line).ok());
        let events = entries.filter_map(|Entry { seq, ts, kind, data, .. }| {
            Some(LiveEvent { seq: seq?, ts, kind, data: data.get().into(), line: None })
        });
        log.publish(events.collect(), false);
        log
    }

    /// A log that was written up to here before: newest entry and newest event.
    pub(crate) fn going_on(
        turns: Turns,
        held: Held,
        live: Arc<LiveRun>,
        fold: Fold,
        (last_entry, last_seq): (i64, i64),
    ) -> Self {
        let (next_entry, next_seq) = (last_entry + 1, last_seq + 1);
        live.recent().begin(held, (last_entry, last_seq));
        let pending =
            Pending { first_entry: next_entry, first_seq: next_seq, text: Vec::new(), events: Vec::new() };
        Self { turns, held, live, fold, last_line: None, files_logged: false, next_entry, next_seq, pending }
    }

    /// Whether something was added that is not stored yet.
    pub(crate) fn is_pending(&self) -> bool {
        !self.pending.text.is_empty()
    }

    pub(crate) fn live(&self) -> &Arc<LiveRun> {
        &self.live
    }

    /// Adds an event to the batch under way, and to the fold.
    pub(crate) fn event(&mut self, ts: i64, event: &RunEvent) -> Result<(), TurnError> {
        self.fold.push(ts, event);
        self.event_unfolded(ts, event, None)
    }

    /// As `event`, of an execution: with the sandbox's own line, which its readers get.
    pub(crate) fn forward(&mut self, ts: i64, event: &RunEvent, line: Raw) -> Result<(), TurnError> {
        self.fold.push(ts, event);
        self.event_unfolded(ts, event, Some(line))
    }

    /// As `event`, for terminal events that the fold has already seen.
    pub(crate) fn event_unfolded(
        &mut self,
        ts: i64,
        event: &RunEvent,
        line: Option<Raw>,
    ) -> Result<(), TurnError> {
        let numbers = (self.next_entry, self.next_seq, ts);
        let written =
            write_event(&mut self.pending.text, numbers, event, line.as_deref()).map_err(unwritable)?;
        self.pending.events.push(Unstored { seq: self.next_seq, ts, kind: event.name(), written });
        self.next_entry += 1;
        self.next_seq += 1;
        Ok(())
    }

    /// Adds an event for each file that the sandbox sent back, once.
    pub(crate) async fn log_results(&mut self) -> Result<(), TurnError> {
        if self.files_logged {
            return Ok(());
        }
        let store = Arc::clone(&self.turns.inner.store);
        let files = retry(&self.live, || store.list_results(&self.held)).await?;
        // The upload token works once: when there are any, there are all.
        self.files_logged = !files.is_empty();
        for file in files {
            let event = File {
                file_id: file.id,
                sha256: file.sha256_hex(),
                name: file.name,
                mime_type: file.mime_type,
                size: file.digest.size,
            };
            self.event(file.created_at.as_millisecond(), &RunEvent::File(event))?;
        }
        if self.files_logged {
            self.live.note_results_logged();
        }
        self.flush().await
    }

    /// Adds something that only the trace shows.
    pub(crate) fn trace(&mut self, ts: i64, trace: &Trace) -> Result<(), TurnError> {
        write_trace(&mut self.pending.text, (self.next_entry, ts), trace).map_err(unwritable)?;
        self.next_entry += 1;
        Ok(())
    }

    /// The batch under way, and a new one begun.
    fn take(&mut self) -> Option<(Batch, Vec<LiveEvent>)> {
        let empty = Pending {
            first_entry: self.next_entry,
            first_seq: self.next_seq,
            text: Vec::new(),
            events: Vec::new(),
        };
        let taken = std::mem::replace(&mut self.pending, empty);
        if taken.text.is_empty() {
            return None;
        }
        // JSON is UTF-8: nothing is lost.
        let entries: Arc<str> = String::from_utf8(taken.text).unwrap_or_default().into();
        let events = taken.events.into_iter().map(|event| LiveEvent {
            seq: event.seq,
            ts: event.ts,
            kind: event.kind,
            data: Piece::new(&entries, event.written.data),
            line: event.written.line.map(|line| Piece::new(&entries, line)),
        });
        let events = events.collect();
        let batch = Batch {
            first_entry: taken.first_entry,
            last_entry: self.next_entry - 1,
            first_seq: taken.first_seq,
            last_seq: self.next_seq - 1,
            entries,
        };
        Some((batch, events))
    }

    /// Stores what was pushed, then tells the readers. A database that is away is waited for, until the lease is
    /// someone else's.
    pub(crate) async fn flush(&mut self) -> Result<(), TurnError> {
        let Some((batch, events)) = self.take() else { return Ok(()) };
        self.append(&batch, events).await
    }

    async fn append(&self, batch: &Batch, events: Vec<LiveEvent>) -> Result<(), TurnError> {
        point!("append.before");
        let append = self.write(batch);
        trace::span(
            || "turn.append".into(),
            Kind::Internal,
            append,
            |appended, attributes| {
                attributes.push(("threadkeep.events", Value::Number(events.len() as i64)));
                appended.is_err()
            },
        )
        .await?;
        point!("append.after");
        self.publish(events, false);
        point!("append.published");
        Ok(())
    }

    /// A database that lost what came before gets that again first.
    async fn write(&self, batch: &Batch) -> Result<(), TurnError> {
        let store = &self.turns.inner.store;
        loop {
            let asked = Instant::now();
            match retry(&self.live, || store.append_events(&self.held, batch)).await {
                Err(TurnError::Store(StoreError::Behind { last_entry })) => {
                    Box::pin(self.turns.append_again(&self.held, &self.live, last_entry)).await?;
                }
                // The embedded store loses nothing while this process lives.
                Ok(()) if store.is_shared() => {
                    self.live.recent().note(batch, asked);
                    return Ok(());
                }
                written => return written,
            }
        }
    }

    /// Goes on after what was lost for good: its numbers are not given to other events. For each entry a note stands in
    /// the trace, so that it has no gap.
    pub(crate) fn pass_over(&mut self, ts: i64, (entry, seq): (i64, i64)) -> Result<(), TurnError> {
        let lost = seq - self.next_seq + 1;
        // No event's number is above its entry's.
        let entry = entry.max(self.next_entry - 1 + lost);
        while self.next_entry <= entry {
            self.trace(ts, &Trace::Note { text: LOST.into() })?;
        }
        self.next_seq += lost.max(0);
        Ok(())
    }

    /// What is pending is not stored with the end after all, but before it: the part of the last batch up to `end`.
    pub(crate) async fn flush_before(
        &self,
        end: End,
        (mut batch, mut events): (Batch, Vec<LiveEvent>),
    ) -> Result<(), TurnError> {
        let Some(before) = batch.entries.get(..end.text).filter(|text| !text.is_empty()) else {
            return Ok(());
        };
        batch.entries = before.into();
        (batch.last_entry, batch.last_seq) = (end.entry - 1, end.seq - 1);
        events.retain(|event| event.seq < end.seq);
        self.append(&batch, events).await
    }

    /// Where the end of the run will stand in the last batch.
    pub(crate) fn end(&self) -> End {
        End { entry: self.next_entry, seq: self.next_seq, text: self.pending.text.len() }
    }

    /// The last batch, for the settlement that stores it.
    pub(crate) fn last_batch(&mut self) -> (Batch, Vec<LiveEvent>) {
        let Pending { first_entry, first_seq, .. } = self.pending;
        self.take().unwrap_or_else(|| {
            let entries = "".into();
            let (last_entry, last_seq) = (self.next_entry - 1, self.next_seq - 1);
            (Batch { first_entry, last_entry, first_seq, last_seq, entries }, Vec::new())
        })
    }

    /// Makes stored events known; with the last of them, that it is over.
    pub(crate) fn publish(&self, events: Vec<LiveEvent>, ended: bool) {
        self.turns.inner.live.publish(self.held.lease.run, &self.live, events, ended);
    }
}

fn unwritable(error: EntryError) -> TurnError {
    StoreError::Internal(error.to_string()).into()
}

/// Tries again while the store is away; the heartbeat says when to give up.
pub(crate) async fn retry<T, F: Future<Output = Result<T, StoreError>>>(
    live: &LiveRun,
    attempt: impl Fn() -> F,
) -> Result<T, TurnError> {
    let mut wait = Duration::from_millis(20);
    loop {
        match attempt().await {
            Err(StoreError::Unavailable(reason)) if !live.lost.is_cancelled() => {
                tracing::warn!(reason, "the store is away; trying again");
                tokio::select! { () = tokio::time::sleep(wait) => {}, () = live.lost.cancelled() => {} }
                wait = (wait * 2).min(Duration::from_secs(1));
            }
            done => return Ok(done?),
        }
    }
}
