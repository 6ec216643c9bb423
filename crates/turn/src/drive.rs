//! Driving one run from its first event to its end. Everything that can stop a run early is in `Stop`, and is
//! listened to only while the upstream is waited for: a batch on its way into the log is never abandoned, unless the
//! run is another's by now.
//!
//! Most of a run is waiting, and thousands wait at once: what a run needs only for a while is boxed, so that its task
//! is as large as what it waits with.

use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::time::{Duration, Instant};

use domain::agent::{Agent, Runner};
use domain::conversation::Mode;
use domain::run::{OnDisconnect, Run};
use futures_util::stream::FuturesUnordered;
use futures_util::{FutureExt as _, StreamExt as _};
use store::StoreError;
use store::turns::{Batch, Dispatch, Held, Waiting};
use upstream::trace::{self, Kind, Value};

use crate::Turns;
use crate::error::TurnError;
use crate::failpoint::point;
use crate::live::LiveRun;
use crate::log::{RunLog, retry};
use crate::model_run::Job;
use crate::news::HEARING;
use crate::settle::Ending;

/// How long a run that is to be cancelled without readers waits for its first one.
const FIRST_READER: Duration = Duration::from_secs(5);
/// How often it is looked whether a reader on another node is still there.
const OTHER_NODES: Duration = Duration::from_secs(1);
pub(crate) const PANICKED: &str = "its task panicked, which is a bug";

/// Where the drive of a run begins.
pub(crate) enum Beginning {
    /// With the run itself; with what its runner is to be given, where the store knew it.
    New(Option<Box<Dispatch>>),
    /// Where another node left it.
    Left,
}

impl Turns {
    /// Drives the run in the background, under the lease that was asked for at `leased`; shutdown waits for it.
    pub(crate) fn drive(
        &self,
        (held, leased): (Held, Instant),
        run: &Run,
        opening: &Batch,
        dispatch: Option<Box<Dispatch>>,
    ) {
        let live = self.inner.live.drive(run.id, leased);
        let log = RunLog::opened(self.clone(), held, live, opening);
        self.drive_from((held, leased), run, log, Beginning::New(dispatch));
    }

    /// As `drive`, from where its log is.
    pub(crate) fn drive_from(
        &self,
        (held, leased): (Held, Instant),
        run: &Run,
        log: RunLog,
        beginning: Beginning,
    ) {
        let (turns, run) = (self.clone(), run.clone());
        let live = self.inner.live.drive(run.id, leased);
        let context = trace::current();
        self.inner.tasks.spawn(trace::within(context, async move {
            let waiting =
                run.conversation.map(|conversation| Waiting { workspace: held.workspace, conversation });
            // Whoever drives a run ends it, even after a bug: nobody else would, as long as this node lives.
            let work = AssertUnwindSafe(turns.run_turn(held, &run, &live, (log, beginning))).catch_unwind();
            let work =
                work.map(|done| done.unwrap_or_else(|_| Err(StoreError::Internal(PANICKED.into()).into())));
            let turn = trace::span(
                || "turn".into(),
                Kind::Internal,
                work,
                |ended, attributes| {
                    attributes.push(("threadkeep.run", Value::Text(run.id.to_string())));
                    ended.is_err()
                },
            );
            let queue = match turn.await {
                Ok(queue) => queue,
                Err(error) => {
                    tracing::warn!(run = %run.id, %error, "this node no longer writes to the run");
                    // Unless another has it by now, nobody else would: this node still renews its lease.
                    let left = turns.settle_left(held, Ending::given_up(&error));
                    // Where that panics too, it is one that nobody drives: those are ended after a lease.
                    if Box::pin(AssertUnwindSafe(left).catch_unwind()).await.is_err() {
                        tracing::error!(run = %run.id, "the end of a run panicked, which is a bug");
                    }
                    true
                }
            };
            turns.inner.live.stop_driving(run.id);
            if let Some(waiting) = waiting.filter(|_| queue) {
                Box::pin(turns.start_waiting(waiting)).await;
            }
        }));
    }

    /// Answers whether another run waits for the conversation. Once the run is another's all of the work is dropped,
    /// the request to the upstream too, whatever is waited for: a database that went silent would hold it for as long.
    /// What is on its way into the log is stored there under the fence, or not at all. The end is not dropped: a run
    /// that has just been settled is nobody's either.
    async fn run_turn(
        &self,
        held: Held,
        run: &Run,
        live: &Arc<LiveRun>,
        (mut log, beginning): (RunLog, Beginning),
    ) -> Result<bool, TurnError> {
        let ending = tokio::select! {
            biased;
            ending = self.work(held, run, live, (&mut log, beginning)) => ending?,
            () = live.lost.cancelled() => return Err(StoreError::Lost.into()),
        };
        // A run that waits for a person is left for the next node.
        let Some(ending) = ending else { return Ok(false) };
        Box::pin(self.settle(log, run, ending, live)).await
    }

    /// What the run comes to; none when it is left for another node.
    async fn work(
        &self,
        held: Held,
        run: &Run,
        live: &Arc<LiveRun>,
        (log, beginning): (&mut RunLog, Beginning),
    ) -> Result<Option<Ending>, TurnError> {
        let inner = &self.inner;
        // Twice as many as are replayed: system messages do not count.
        let before = inner.limits.replay_turn_limit as usize * 2;
        let goes_on = matches!(beginning, Beginning::Left);
        let dispatch = match beginning {
            Beginning::New(Some(dispatch)) => dispatch,
            Beginning::New(None) | Beginning::Left => {
                Box::new(Box::pin(retry(live, || inner.store.get_dispatch(&held, before))).await?)
            }
        };
        point!("dispatch.after");
        if goes_on && dispatch.turn.brought.comes_back {
            live.keep();
        }
        let agent = Box::pin(retry(live, || self.agent_of(&held, &dispatch))).await?;
        let stop = Stop {
            turns: self.clone(),
            held,
            live: Arc::clone(live),
            deadline: self.time_left(run),
            longest: inner.limits.run_timeout_seconds,
            policy: run.on_disconnect,
            grace: Duration::from_secs(inner.limits.disconnect_grace_seconds)
                .max(if inner.store.is_shared() { HEARING } else { Duration::ZERO }),
        };
        match runner(&dispatch, agent.as_ref()) {
            Runner::Model => {
                let job = Job { dispatch, agent, goes_on };
                Box::pin(self.run_with_model(log, job, stop)).await
            }
            Runner::Sandbox => {
                let ending = Box::pin(self.run_in_sandbox(log, dispatch, stop)).await?;
                Ok(Some(ending.with_counted(live.used())))
            }
        }
    }

    /// Of the time that a run may take; its start counts, whichever node it was on.
    fn time_left(&self, run: &Run) -> Duration {
        let all = Duration::from_secs(self.inner.limits.run_timeout_seconds);
        let now = self.inner.clock.now().as_millisecond();
        let since = run.started_at.map_or(0, |at| now.saturating_sub(at.as_millisecond()));
        all.saturating_sub(Duration::from_millis(u64::try_from(since).unwrap_or(0)))
    }
}

/// An agent's own setting, else the mode: of the turn, else the one last used in the conversation.
fn runner(dispatch: &Dispatch, agent: Option<&Agent>) -> Runner {
    if let Some(agent) = agent {
        return agent.settings.runner;
    }
    let kept = dispatch.conversation.as_ref().and_then(|thread| thread.mode);
    match dispatch.turn.mode.or(kept) {
        Some(Mode::Ask) => Runner::Model,
        Some(Mode::Agent | Mode::TaskFlow) | None => Runner::Sandbox,
    }
}

/// Whatever ends a run before its upstream does.
pub(crate) struct Stop {
    turns: Turns,
    held: Held,
    live: Arc<LiveRun>,
    deadline: Duration,
    /// What a run may take in all, in seconds.
    longest: u64,
    policy: OnDisconnect,
    grace: Duration,
}

impl Stop {
    /// A run is woken for every piece of its answer; this is looked at only when one of the reasons has moved.
    pub(crate) async fn wait(self) -> Result<Ending, TurnError> {
        // Boxed: the set keeps an empty place as large as what it holds.
        let mut reasons = FuturesUnordered::from_iter([self.come().boxed()]);
        match reasons.next().await {
            Some(ended) => ended,
            None => std::future::pending().await,
        }
    }

    async fn come(self) -> Result<Ending, TurnError> {
        let Self { turns, held, live, deadline, longest, policy, grace } = self;
        tokio::select! {
            biased;
            () = live.lost.cancelled() => Err(StoreError::Lost.into()),
            () = live.cancel.cancelled() => Ok(Ending::cancelled("the run was cancelled")),
            () = live.interrupt.cancelled() => Ok(Ending::interrupted("the server was stopped")),
            ended = turns.unread(&held, &live, grace), if policy == OnDisconnect::Cancel => ended,
            () = tokio::time::sleep(deadline) => {
                let message = format!("the run took longer than {longest} seconds");
                Ok(Ending::failed("run_timeout", message))
            }
        }
    }
}

impl Turns {
    /// Resolves when nobody reads the run any more. Whether that ends it the store says: a retry of its request may have
    /// set it to go on since, on whichever node, and one that comes after this finds a run that is cancelled.
    async fn unread(&self, held: &Held, live: &LiveRun, grace: Duration) -> Result<Ending, TurnError> {
        nobody_reads(live, grace).await;
        let now = self.inner.clock.now();
        let cancel = retry(live, || self.inner.store.cancel_unread(held, now));
        match Box::pin(cancel).await {
            Ok(false) => std::future::pending().await,
            // Its conversation was deleted.
            Ok(true) | Err(TurnError::Store(StoreError::NotFound)) => {
                Ok(Ending::cancelled("nobody reads the run any more"))
            }
            Err(error) => Err(error),
        }
    }
}

/// Resolves when no reader is left, and none came back within the grace.
async fn nobody_reads(live: &LiveRun, grace: Duration) {
    let mut readers = live.readers();
    // Its first reader may have come and gone before this is looked at.
    let mut patience = if live.was_read() { grace } else { FIRST_READER };
    loop {
        let come = tokio::time::timeout(patience, readers.wait_for(|readers| *readers > 0)).await.is_ok();
        if come && readers.wait_for(|readers| *readers == 0).await.is_ok() {
            patience = grace;
        } else if live.is_followed_elsewhere() {
            patience = OTHER_NODES;
        } else if live.is_kept() {
            std::future::pending::<()>().await;
        } else {
            return;
        }
    }
}
