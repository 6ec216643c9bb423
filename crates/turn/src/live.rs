//! The runs that this node drives or serves readers of, in memory: who waits for news, who reads, who must stop.
//! Nothing here is the truth; the log is. A reader that finds nothing here reads the log.

use std::collections::{HashMap, HashSet, VecDeque};
use std::ops::{Deref, Range};
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use domain::run::Usage;
use tokio::sync::{Notify, watch};
use tokio_util::sync::CancellationToken;
use uuid::Uuid;

use crate::news::{HEARING, INTEREST};
use crate::recent::Recent;

/// One event as every wire starts from it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LiveEvent {
    pub seq: i64,
    pub ts: i64,
    pub kind: &'static str,
    /// The event's data as JSON text.
    pub data: Piece,
    /// Of an execution, the line as the sandbox sent it.
    pub line: Option<Piece>,
}

/// A part of a batch's text, which the store and all readers share.
#[derive(Debug, Clone)]
pub struct Piece {
    text: Arc<str>,
    place: Range<usize>,
}

impl Piece {
    pub(crate) fn new(text: &Arc<str>, place: Range<usize>) -> Self {
        Self { text: Arc::clone(text), place }
    }
}

impl Deref for Piece {
    type Target = str;

    fn deref(&self) -> &str {
        self.text.get(self.place.clone()).unwrap_or_default()
    }
}

impl<T: Into<Arc<str>>> From<T> for Piece {
    fn from(text: T) -> Self {
        let text = text.into();
        Self { place: 0..text.len(), text }
    }
}

impl PartialEq for Piece {
    fn eq(&self, other: &Self) -> bool {
        **self == **other
    }
}

impl Eq for Piece {}

/// How far a run is, as its readers are told.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Progress {
    pub(crate) last_seq: i64,
    pub(crate) ended: bool,
}

/// The newest events that are kept at hand, so that readers who keep up need no database.
const TAIL_BYTES: usize = 256 * 1024;

#[derive(Default)]
struct Tail {
    batches: VecDeque<Arc<Vec<LiveEvent>>>,
    bytes: usize,
}

pub(crate) struct LiveRun {
    tail: Mutex<Tail>,
    progress: watch::Sender<Progress>,
    readers: watch::Sender<usize>,
    /// Somebody here has read it, or does.
    was_read: AtomicBool,
    /// Someone wants the run ended.
    pub(crate) cancel: CancellationToken,
    /// This process is going away.
    pub(crate) interrupt: CancellationToken,
    /// Another writer has the run.
    pub(crate) lost: CancellationToken,
    /// Its sandbox has sent files back.
    pub(crate) results: Notify,
    /// And they have their place in its log.
    results_logged: AtomicBool,
    /// What its sandbox has used through this node's gateway.
    used: Mutex<Usage>,
    driven: AtomicBool,
    /// When the lease that this node has of it was asked for: it lasts from some moment after that.
    leased: Mutex<Instant>,
    /// Its conversation is gone: nothing more of it is shown.
    hidden: AtomicBool,
    /// It stays though nobody reads it.
    kept: AtomicBool,
    /// Until when another node wants to be told of movements.
    interest: Mutex<Option<Instant>>,
    /// What was stored of it lately.
    recent: Mutex<Recent>,
    /// The newest event that a reader here was given.
    sent: AtomicI64,
}

impl LiveRun {
    fn new() -> Self {
        Self {
            tail: Mutex::default(),
            progress: watch::Sender::new(Progress::default()),
            readers: watch::Sender::new(0),
            was_read: AtomicBool::new(false),
            cancel: CancellationToken::new(),
            interrupt: CancellationToken::new(),
            lost: CancellationToken::new(),
            results: Notify::new(),
            results_logged: AtomicBool::new(false),
            used: Mutex::default(),
            driven: AtomicBool::new(false),
            leased: Mutex::new(Instant::now()),
            hidden: AtomicBool::new(false),
            kept: AtomicBool::new(false),
            interest: Mutex::new(None),
            recent: Mutex::default(),
            sent: AtomicI64::new(0),
        }
    }

    pub(crate) fn recent(&self) -> MutexGuard<'_, Recent> {
        lock(&self.recent)
    }

    /// A reader here was given events up to this one.
    pub(crate) fn note_sent(&self, seq: i64) {
        self.sent.fetch_max(seq, Ordering::Relaxed);
    }

    /// The newest entry and event that may be known to anybody, whatever became of them.
    pub(crate) fn newest(&self) -> (i64, i64) {
        let (entry, seq) = self.recent().last();
        (entry, seq.max(self.sent.load(Ordering::Relaxed)))
    }

    /// What is published next tells those who wait for it.
    pub(crate) fn note_results_logged(&self) {
        self.results_logged.store(true, Ordering::Relaxed);
    }

    /// Resolves when what its sandbox sent back has its place in the log, or the run has ended.
    pub(crate) async fn results_logged(&self) {
        let done = |progress: &Progress| progress.ended || self.results_logged.load(Ordering::Relaxed);
        let _ = self.progress().wait_for(done).await;
    }

    pub(crate) fn used(&self) -> Usage {
        *lock(&self.used)
    }

    /// Makes stored events known. Called only after their commit.
    fn publish(&self, events: Vec<LiveEvent>, ended: bool) {
        let last_seq = events.last().map(|event| event.seq);
        if let Some(first) = events.first() {
            let mut tail = lock(&self.tail);
            let newest = tail.batches.back().and_then(|batch| batch.last());
            if newest.is_some_and(|newest| newest.seq + 1 != first.seq) {
                // Another writer's events lie between; the log has them.
                *tail = Tail::default();
            }
            tail.bytes += size(&events);
            tail.batches.push_back(Arc::new(events));
            while tail.bytes > TAIL_BYTES && tail.batches.len() > 1 {
                let dropped = tail.batches.pop_front().map_or(0, |batch| size(&batch));
                tail.bytes -= dropped;
            }
        }
        self.progress.send_modify(|progress| {
            progress.last_seq = progress.last_seq.max(last_seq.unwrap_or(0));
            progress.ended |= ended;
        });
    }

    /// Its log has events up to this one, which another node wrote: none of them is in memory.
    pub(crate) fn note_stored(&self, last_seq: i64) {
        self.progress.send_modify(|progress| progress.last_seq = progress.last_seq.max(last_seq));
    }

    /// The batches with events after `after`, if the tail reaches back that far. Where a run that is driven here has no
    /// event yet, there is nothing in its log either.
    pub(crate) fn after(&self, after: i64) -> Option<Vec<Arc<Vec<LiveEvent>>>> {
        if self.hidden.load(Ordering::Relaxed) {
            return None;
        }
        let tail = lock(&self.tail);
        let first = match tail.batches.front().and_then(|batch| batch.first()) {
            Some(first) => first.seq,
            None if self.is_driven() && self.progress.borrow().last_seq == 0 => 1,
            None => return None,
        };
        (first <= after + 1).then(|| {
            let seen = |batch: &Arc<Vec<LiveEvent>>| batch.last().is_some_and(|event| event.seq <= after);
            tail.batches.range(tail.batches.partition_point(seen)..).cloned().collect()
        })
    }

    /// Whether this node writes to it, so that news come at once.
    pub(crate) fn is_driven(&self) -> bool {
        self.driven.load(Ordering::Relaxed)
    }

    /// Whether another node has said that it has readers of it.
    pub(crate) fn is_followed_elsewhere(&self) -> bool {
        lock(&self.interest).is_some_and(|until| until > Instant::now())
    }

    /// From now on it stays, whoever leaves.
    pub(crate) fn keep(&self) {
        self.kept.store(true, Ordering::Relaxed);
    }

    pub(crate) fn is_kept(&self) -> bool {
        self.kept.load(Ordering::Relaxed)
    }

    pub(crate) fn progress(&self) -> watch::Receiver<Progress> {
        self.progress.subscribe()
    }

    /// Whether a reader has come, though it may have left.
    pub(crate) fn was_read(&self) -> bool {
        self.was_read.load(Ordering::Relaxed)
    }

    pub(crate) fn readers(&self) -> watch::Receiver<usize> {
        self.readers.subscribe()
    }
}

/// What is kept for them: each text as a whole, with all that stands beside them in it.
fn size(events: &[LiveEvent]) -> usize {
    let mut before: Option<&Arc<str>> = None;
    let mut bytes = 64 * events.len();
    for text in events.iter().flat_map(|event| [Some(&event.data), event.line.as_ref()]).flatten() {
        if !before.is_some_and(|before| Arc::ptr_eq(before, &text.text)) {
            bytes += text.text.len();
            before = Some(&text.text);
        }
    }
    bytes
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    // Nothing panics while it holds one of these locks; should it ever, the data is still whole.
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[derive(Default)]
pub(crate) struct Live {
    runs: Mutex<HashMap<Uuid, Arc<LiveRun>>>,
    /// Requests that may end in a run driven here.
    pub(crate) under_way: AtomicUsize,
    idle: Notify,
    /// Driven runs that moved while another node follows them.
    moved: Mutex<HashSet<Uuid>>,
    news: Notify,
    streams: Mutex<HashMap<String, u64>>,
    pub(crate) rights: Rights,
}

/// Where rights have changed, by workspace: few enough to be always there, enough that a change in one workspace does not
/// have the streams of all look again.
pub(crate) struct Rights([watch::Sender<()>; 64]);

impl Default for Rights {
    fn default() -> Self {
        Self(std::array::from_fn(|_| watch::Sender::new(())))
    }
}

impl Rights {
    pub(crate) fn of(&self, workspace: Uuid) -> &watch::Sender<()> {
        &self.0[usize::from(workspace.as_bytes()[15]) % self.0.len()]
    }

    pub(crate) fn note(&self, workspace: Uuid) {
        self.of(workspace).send_replace(());
    }
}

impl Live {
    /// The run's place here, made if need be.
    pub(crate) fn run(&self, run: Uuid) -> Arc<LiveRun> {
        Arc::clone(lock(&self.runs).entry(run).or_insert_with(|| Arc::new(LiveRun::new())))
    }

    pub(crate) fn find(&self, run: Uuid) -> Option<Arc<LiveRun>> {
        lock(&self.runs).get(&run).cloned()
    }

    /// The run's place, marked as driven by this node under a lease that was asked for at `leased`.
    pub(crate) fn drive(&self, run: Uuid, leased: Instant) -> Arc<LiveRun> {
        let live = self.run(run);
        *lock(&live.leased) = leased;
        if !live.driven.swap(true, Ordering::Relaxed) {
            // Readers here, who asked whoever drives it, are counted by themselves from now on.
            *lock(&live.interest) = None;
        }
        live
    }

    /// Nobody drives it here any more; readers who hold it read on, from the log.
    pub(crate) fn stop_driving(&self, run: Uuid) {
        if let Some(live) = lock(&self.runs).remove(&run) {
            live.driven.store(false, Ordering::Relaxed);
            live.publish(Vec::new(), true);
        }
        self.look_whether_idle();
    }

    pub(crate) fn look_whether_idle(&self) {
        self.idle.notify_waiters();
    }

    /// Another writer has it: whoever drives it here must stop.
    pub(crate) fn lose(&self, run: Uuid) {
        if let Some(live) = self.find(run) {
            live.lost.cancel();
        }
    }

    /// Its lease was renewed, which was asked for at `leased`.
    pub(crate) fn renew(&self, run: Uuid, leased: Instant) {
        if let Some(live) = self.find(run) {
            let mut newest = lock(&live.leased);
            *newest = leased.max(*newest);
        }
    }

    /// Those driven here whose lease was asked for longer ago than `age` are lost; answers which.
    pub(crate) fn lose_older(&self, age: Duration) -> Vec<Uuid> {
        let is_over = |live: &LiveRun| {
            live.is_driven() && !live.lost.is_cancelled() && lock(&live.leased).elapsed() > age
        };
        let runs = lock(&self.runs);
        let over = runs.iter().filter(|(_, live)| is_over(live));
        over.inspect(|(_, live)| live.lost.cancel()).map(|(run, _)| *run).collect()
    }

    /// Ends a run that is driven here; false for one that is not.
    pub(crate) fn cancel(&self, run: Uuid) -> bool {
        let live = self.find(run).filter(|live| live.is_driven());
        live.inspect(|live| live.cancel.cancel()).is_some()
    }

    /// Its sandbox has sent files back; none when it is not driven here.
    pub(crate) fn note_results(&self, run: Uuid) -> Option<Arc<LiveRun>> {
        let live = self.find(run).filter(|live| live.is_driven());
        live.inspect(|live| live.results.notify_one())
    }

    /// Its sandbox has used this much more.
    pub(crate) fn note_usage(&self, run: Uuid, usage: Usage) {
        if let Some(live) = self.find(run) {
            let mut used = lock(&live.used);
            used.input_tokens += usage.input_tokens;
            used.output_tokens += usage.output_tokens;
        }
    }

    /// Its readers here get no more of it than the store would give them.
    pub(crate) fn hide(&self, run: Uuid) {
        if let Some(live) = self.find(run) {
            live.hidden.store(true, Ordering::Relaxed);
        }
    }

    pub(crate) fn interrupt_all(&self) {
        for live in lock(&self.runs).values() {
            live.interrupt.cancel();
        }
    }

    /// The runs that this node drives.
    pub(crate) fn driven(&self) -> Vec<Uuid> {
        lock(&self.runs).iter().filter(|(_, live)| live.is_driven()).map(|(run, _)| *run).collect()
    }

    /// Stored events are made known to the readers here, and elsewhere if someone there follows.
    pub(crate) fn publish(&self, run: Uuid, live: &LiveRun, events: Vec<LiveEvent>, ended: bool) {
        live.publish(events, ended);
        if live.is_followed_elsewhere() {
            lock(&self.moved).insert(run);
            self.news.notify_one();
        }
    }

    /// Resolves when there are movements to tell.
    pub(crate) async fn moved(&self) {
        self.news.notified().await;
    }

    pub(crate) fn take_moved(&self) -> HashSet<Uuid> {
        std::mem::take(&mut *lock(&self.moved))
    }

    /// Another node follows a run; told at once, for it may have missed the newest movement.
    pub(crate) fn note_interest(&self, run: Uuid) {
        if let Some(live) = self.find(run) {
            *lock(&live.interest) = Some(Instant::now() + INTEREST);
            if live.is_driven() {
                lock(&self.moved).insert(run);
                self.news.notify_one();
            }
        }
    }

    /// Another node's last reader of a run has left: unless some node says soon that it has one, none has. True when
    /// this one has.
    pub(crate) fn note_departure(&self, run: Uuid) -> bool {
        let Some(live) = self.find(run) else { return false };
        let mut interest = lock(&live.interest);
        *interest = interest.map(|until| until.min(Instant::now() + HEARING));
        !live.is_driven() && *live.readers.borrow() > 0
    }

    /// A run of another node has moved: its readers here look at the log.
    pub(crate) fn wake(&self, run: Uuid) {
        if let Some(live) = self.find(run).filter(|live| !live.is_driven()) {
            live.publish(Vec::new(), false);
        }
    }

    /// Runs of other nodes that have readers here.
    pub(crate) fn followed(&self) -> Vec<Uuid> {
        let follows = |live: &LiveRun| !live.is_driven() && *live.readers.borrow() > 0;
        lock(&self.runs).iter().filter(|(_, live)| follows(live)).map(|(run, _)| *run).collect()
    }

    /// Resolves when this node drives nothing, and nothing is about to be.
    pub(crate) async fn idle(&self) {
        loop {
            let waiting = self.idle.notified();
            if self.under_way.load(Ordering::SeqCst) == 0 && self.driven().is_empty() {
                return;
            }
            waiting.await;
        }
    }

    /// Counts one stream of a user; false past the limit.
    pub(crate) fn open_stream(&self, user: &str, limit: u64) -> bool {
        let mut streams = lock(&self.streams);
        let open = streams.get(user).copied().unwrap_or(0);
        if open < limit {
            streams.insert(user.to_owned(), open + 1);
        }
        open < limit
    }

    pub(crate) fn close_stream(&self, user: &str) {
        let mut streams = lock(&self.streams);
        if let Some(open) = streams.get_mut(user) {
            *open = open.saturating_sub(1);
            if *open == 0 {
                streams.remove(user);
            }
        }
    }

    /// Counts one reader of a run.
    pub(crate) fn read(&self, run: Uuid) -> Arc<LiveRun> {
        let live = self.run(run);
        live.was_read.store(true, Ordering::Relaxed);
        live.readers.send_modify(|readers| *readers += 1);
        live
    }

    /// True when it was the last reader here of a run that is not driven here.
    pub(crate) fn stop_reading(&self, run: Uuid, live: &Arc<LiveRun>) -> bool {
        live.readers.send_modify(|readers| *readers = readers.saturating_sub(1));
        self.release(run, live)
    }

    /// A place that was only made for readers goes with the last one. True when it went.
    pub(crate) fn release(&self, run: Uuid, live: &Arc<LiveRun>) -> bool {
        let mut runs = lock(&self.runs);
        // Not another's, which was made after a driver here had let go of this one.
        let last = *live.readers.borrow() == 0
            && !live.is_driven()
            && runs.get(&run).is_some_and(|kept| Arc::ptr_eq(kept, live));
        if last {
            runs.remove(&run);
        }
        last
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn event(seq: i64, text: &Arc<str>, place: Range<usize>) -> LiveEvent {
        LiveEvent { seq, ts: 0, kind: "delta", data: Piece::new(text, place), line: None }
    }

    #[test]
    fn what_stands_beside_the_events_is_counted_too() {
        let live = LiveRun::new();
        // Little of each batch is told; the rest is for the trace.
        let text: Arc<str> = "x".repeat(TAIL_BYTES / 2).into();
        for seq in 1..=10 {
            let text: Arc<str> = Arc::from(&*text);
            live.publish(vec![event(2 * seq - 1, &text, 0..1), event(2 * seq, &text, 1..2)], false);
        }
        assert_eq!(lock(&live.tail).batches.len(), 1);
        assert!(live.after(16).is_none() && live.after(18).is_some_and(|batches| batches.len() == 1));
    }

    #[test]
    fn a_place_goes_with_its_own_last_reader_only() {
        let (live, run) = (Live::default(), Uuid::from_u128(1));
        let old = live.read(run);
        live.drive(run, Instant::now());
        live.stop_driving(run);
        let new = live.read(run);
        assert_eq!(live.followed(), [run]);
        assert!(!live.stop_reading(run, &old));
        assert!(live.find(run).is_some_and(|kept| Arc::ptr_eq(&kept, &new)));
        assert!(live.stop_reading(run, &new) && live.find(run).is_none());
    }
}
