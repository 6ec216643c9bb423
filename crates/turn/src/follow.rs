//! Reading a run: replay, then live, without a gap. A reader pulls: what it is told is only that there is news, so
//! one that is slow or dead costs nobody anything.

use std::sync::Arc;
use std::time::Duration;

use domain::answer::{replay_events, stored_json};
use domain::entry::decode;
use domain::event::{Done, Failed, Finished, RunEvent, Turn};
use domain::message::Message;
use domain::run::{Lease, OnDisconnect, Run, RunStatus};
use domain::scope::Scope;
use store::turns::{Held, LogPage, News};
use store::{StoreError, ThreadRead};
use tokio::sync::watch;
use uuid::Uuid;

use crate::Turns;
use crate::error::TurnError;
use crate::live::{LiveEvent, LiveRun, Progress};
use crate::news::HEARING;

/// How much of a stored log is read at a time.
const CHUNK_BYTES: usize = 256 * 1024;
/// What is told of a run without a log: the turn, why it ended, and that it did.
const UNSTARTED: i64 = 3;
/// How often a reader looks at the log when nothing wakes it: a lost wake-up costs this much, never an event.
const POLL_REMOTE: Duration = Duration::from_millis(500);

/// An event as a reader sees it.
pub type Seen = LiveEvent;

/// A place among the streams that a user may have open; given back when it is dropped.
pub struct Stream {
    turns: Turns,
    scope: Scope,
}

/// One reader of one run. It counts as a reader until it is dropped.
pub struct Follower {
    stream: Stream,
    run: Uuid,
    live: Arc<LiveRun>,
    progress: watch::Receiver<Progress>,
    after: i64,
    finished: bool,
    /// Whether the run's node was asked to tell of its movements.
    asked: bool,
}

impl Turns {
    /// Takes a place for one more stream of the caller.
    pub fn open_stream(&self, scope: &Scope) -> Result<Stream, TurnError> {
        let limit = self.inner.limits.max_streams_per_user;
        if !self.inner.live.open_stream(&scope.user, limit) {
            return Err(TurnError::TooManyStreams { limit });
        }
        Ok(Stream { turns: self.clone(), scope: scope.clone() })
    }

    /// Follows a run from after event `after`; 0 is the whole of it.
    pub async fn follow(&self, stream: Stream, run: Uuid, after: i64) -> Result<Follower, TurnError> {
        // Subscribed before the log is read, so that nothing falls between.
        let mut follower = self.follow_new(stream, run, after);
        let found = self.inner.store.get_run(&follower.stream.scope, run).await?;
        let newest = if is_unstarted(&found) { UNSTARTED } else { found.last_event };
        if after < 0 || after > newest.max(follower.progress.borrow().last_seq) {
            let detail = "the event to resume after is not one of this run";
            return Err(StoreError::Invalid { input: "after", detail }.into());
        }
        // The run's node counts this reader before it is served: it may be the last one.
        if !found.status.is_settled() && !follower.live.is_driven() {
            follower.ask().await;
        }
        Ok(follower)
    }

    /// Follows a run that the stream's own caller has just begun.
    pub fn follow_started(&self, stream: Stream, run: Uuid) -> Follower {
        self.follow_new(stream, run, 0)
    }

    fn follow_new(&self, stream: Stream, run: Uuid, after: i64) -> Follower {
        let live = self.inner.live.read(run);
        let progress = live.progress();
        Follower { stream, run, progress, live, after, finished: false, asked: false }
    }
}

impl Turns {
    /// The last reader here of a run that is not driven here has gone. Its node is told; and one that only waits for
    /// its turn is cancelled, if nobody else reads it and that is what it was to be.
    async fn leave(&self, scope: &Scope, run: Uuid) {
        let (inner, mut grace) =
            (&self.inner, Duration::from_secs(self.inner.limits.disconnect_grace_seconds));
        // Whoever was sent away because this node stops comes back to the next one.
        if inner.draining.is_cancelled() {
            return;
        }
        // Held while it is asked who else follows.
        let place = inner.live.run(run);
        if inner.store.is_shared() {
            self.tell(&[News::Left(run)]).await;
            grace = grace.max(HEARING);
        }
        tokio::select! {
            () = tokio::time::sleep(grace) => {}
            () = inner.draining.cancelled() => {}
        }
        let unheld = Held { workspace: scope.workspace, lease: Lease { run, fence: 0 } };
        let alone = !place.is_followed_elsewhere() && *place.readers().borrow() == 0;
        if alone
            && !inner.draining.is_cancelled()
            && let Ok(found) = inner.store.get_run(scope, run).await
            && (found.status, found.on_disconnect) == (RunStatus::Queued, OnDisconnect::Cancel)
            && let Err(error) = inner.store.cancel_unread(&unheld, inner.clock.now()).await
        {
            tracing::warn!(%run, %error, "a queued run that nobody reads could not be cancelled");
        }
        inner.live.release(run, &place);
    }
}

impl Follower {
    /// Goes back to the first event; answers the one that it would have gone on after.
    pub fn rewind(&mut self) -> i64 {
        std::mem::take(&mut self.after)
    }

    /// The number of the last event that it was given.
    pub fn last_seen(&self) -> i64 {
        self.after
    }

    /// Whether there is nothing after what it was given.
    pub fn is_finished(&self) -> bool {
        self.finished
    }

    /// The next events, as many as are there; `None` after the last, or when this node stops.
    pub async fn next(&mut self) -> Result<Option<Vec<Seen>>, TurnError> {
        while !self.finished {
            self.progress.borrow_and_update();
            let events = match self.at_hand() {
                Some(events) => events,
                None => self.stored().await?,
            };
            if let Some(last) = events.last() {
                if self.after == 0 {
                    // Whoever drives it did not before, and has not heard.
                    self.asked = false;
                }
                self.after = last.seq;
                self.live.note_sent(last.seq);
                self.finished |= last.kind == "done";
                return Ok(Some(events));
            }
            if !self.finished && !self.wait().await {
                return Ok(None);
            }
        }
        Ok(None)
    }

    /// Waits for news. False when this node is to stop and the run is not its own: the reader goes on elsewhere.
    async fn wait(&mut self) -> bool {
        if self.live.is_driven() {
            // Its writer is here, and says so when it stops being that.
            let _ = self.progress.changed().await;
            return true;
        }
        self.ask().await;
        tokio::select! {
            biased;
            () = self.stream.turns.inner.draining.cancelled() => false,
            _ = tokio::time::timeout(POLL_REMOTE, self.progress.changed()) => true,
        }
    }

    /// Asks the run's node for wake-ups; from then on this node says again by itself that it has readers.
    async fn ask(&mut self) {
        if !std::mem::replace(&mut self.asked, true) {
            self.stream.turns.ask_for_news(self.run).await;
        }
    }

    /// What comes next, if that is known without the log: it is in memory, or the writer has not written it yet.
    fn at_hand(&self) -> Option<Vec<Seen>> {
        // Asked before the events: what is written while this node stops to drive is in the log.
        let driven = self.live.is_driven();
        let batches = self.live.after(self.after)?;
        let newer = |event: &&Seen| event.seq > self.after;
        let events: Vec<Seen> =
            batches.iter().flat_map(|batch| batch.iter()).filter(newer).cloned().collect();
        (driven || !events.is_empty()).then_some(events)
    }

    async fn stored(&mut self) -> Result<Vec<Seen>, TurnError> {
        let store = &self.stream.turns.inner.store;
        let page = loop {
            match store.read_log(&self.stream.scope, self.run, self.after, CHUNK_BYTES).await {
                // The run itself waits for a store that is away for a while; so do those who read it.
                Err(StoreError::Unavailable(reason)) if !self.stream.turns.inner.draining.is_cancelled() => {
                    tracing::debug!(reason, run = %self.run, "the log cannot be read; trying again");
                    tokio::time::sleep(POLL_REMOTE).await;
                }
                read => break read?,
            }
        };
        if page.entries.is_empty() && (page.expired || is_unstarted(&page.run)) {
            // Past the last event of a log, or of a run that came without one.
            let scope = &self.stream.scope;
            let unlogged =
                self.after == 0 || store.read_trace(scope, self.run, 0, 1).await?.entries.is_empty();
            let events = if unlogged { self.replayed(&page.run).await? } else { Vec::new() };
            // Not before: this may be given up at any of those, and asked again.
            self.finished = true;
            return Ok(events);
        }
        let events = self.missed(&page)?;
        self.finished |= events.is_empty() && page.run.status.is_settled();
        Ok(events)
    }

    /// The events of a stretch of the log that the reader has not seen.
    fn missed(&self, page: &LogPage) -> Result<Vec<Seen>, TurnError> {
        let mut events = Vec::new();
        for line in page.entries.iter().flat_map(|entries| entries.lines()) {
            let entry = decode(line).map_err(|error| StoreError::Internal(error.to_string()))?;
            if let Some(seq) = entry.seq.filter(|seq| *seq > self.after) {
                events.push(Seen {
                    seq,
                    ts: entry.ts,
                    kind: entry.kind,
                    data: entry.data.get().into(),
                    line: entry.line.map(|line| line.get().into()),
                });
            }
        }
        Ok(events)
    }

    /// The run's conversation's first message, and its answer, on whichever branch it stands.
    async fn answer(&self, run: &Run) -> Result<(Option<Uuid>, Option<Message>), TurnError> {
        let Some(conversation) = run.conversation else { return Ok((None, None)) };
        let (store, scope) = (&self.stream.turns.inner.store, &self.stream.scope);
        let first =
            store.get_thread(scope, conversation, ThreadRead::default()).await?.conversation.first_message;
        let Some(message) = run.assistant_message else { return Ok((first, None)) };
        match store.get_message(scope, conversation, message).await {
            Ok(found) => Ok((first, Some(found))),
            Err(StoreError::NotFound) => Ok((first, None)),
            Err(error) => Err(error.into()),
        }
    }

    /// The settled message as events: of a run that never had a log here, because it was imported without or never
    /// began. They are the same each time, under the same numbers.
    async fn replayed(&self, run: &Run) -> Result<Vec<Seen>, TurnError> {
        let (first_message, message) = self.answer(run).await?;
        let turn = Turn {
            conversation: run.conversation,
            run: run.id,
            message: run.message,
            conversation_id: first_message,
        };
        let mut events = vec![RunEvent::Turn(turn)];
        let assistant = message.as_ref().and_then(stored_json);
        let (blocks, closing) = match (message, run.execution) {
            (Some(message), _) => replay_events(&message.content),
            (None, Some(execution)) => {
                let (store, scope) = (&self.stream.turns.inner.store, &self.stream.scope);
                (Vec::new(), store.get_execution(scope, execution).await?.response.unwrap_or_default())
            }
            (None, None) => (Vec::new(), String::new()),
        };
        events.extend(blocks);
        events.push(match &run.error {
            None => RunEvent::Result(Finished { message: closing, assistant }),
            Some(error) => {
                let (code, message) = (error.code.clone(), error.message.clone());
                RunEvent::Error(Failed { code, message, assistant })
            }
        });
        events.push(RunEvent::Done(Done { status: run.status }));
        let ts = run.ended_at.unwrap_or(run.created_at).as_millisecond();
        let numbered = events.iter().zip(1..).map(|(event, seq)| Seen {
            seq,
            ts,
            kind: event.name(),
            data: serde_json::to_string(event).unwrap_or_default().into(),
            line: None,
        });
        Ok(numbered.filter(|event| event.seq > self.after).collect())
    }
}

/// A run that ended before it began, in the queue: it has no log.
fn is_unstarted(run: &Run) -> bool {
    run.status.is_settled() && run.last_event == 0
}

impl Drop for Follower {
    fn drop(&mut self) {
        let turns = &self.stream.turns;
        if turns.inner.live.stop_reading(self.run, &self.live) && !self.finished {
            let (turns, scope, run) = (turns.clone(), self.stream.scope.clone(), self.run);
            turns.inner.tasks.clone().spawn(async move { turns.leave(&scope, run).await });
        }
    }
}

impl Drop for Stream {
    fn drop(&mut self) {
        self.turns.inner.live.close_stream(&self.scope.user);
    }
}
