//! Driving one run from its first event to its end. Everything that can stop a run early is in `Stop`, and is
//! listened to only while the upstream is waited for: a batch on its way into the log is never abandoned.

use std::sync::Arc;
use std::time::Duration;

use domain::run::{OnDisconnect, Run};
use store::turns::{Held, Waiting};

use crate::Turns;
use crate::error::TurnError;
use crate::failpoint::point;
use crate::live::LiveRun;
use crate::log::{RunLog, retry};
use crate::settle::Ending;

/// How long a run that is to be cancelled without readers waits for its first one.
const FIRST_READER: Duration = Duration::from_secs(5);
/// How often it is looked whether a reader on another node is still there.
const OTHER_NODES: Duration = Duration::from_secs(1);

impl Turns {
    /// Drives the run in the background; shutdown waits for it.
    pub(crate) fn drive(&self, held: Held, run: &Run) {
        let (turns, run) = (self.clone(), run.clone());
        let live = self.inner.live.drive(run.id);
        self.inner.tasks.spawn(async move {
            let waiting =
                run.conversation.map(|conversation| Waiting { workspace: held.workspace, conversation });
            let queue = match turns.run_turn(held, &run, &live).await {
                Ok(queue) => queue,
                Err(error) => {
                    tracing::warn!(run = %run.id, %error, "this node no longer writes to the run");
                    // Unless another has it by now, nobody else would: this node still renews its lease.
                    turns.settle_left(held, "its node could not go on with it").await;
                    true
                }
            };
            turns.inner.live.stop_driving(run.id);
            if let Some(waiting) = waiting.filter(|_| queue) {
                turns.start_waiting(waiting).await;
            }
        });
    }

    /// Answers whether another run waits for the conversation.
    async fn run_turn(&self, held: Held, run: &Run, live: &Arc<LiveRun>) -> Result<bool, TurnError> {
        let inner = &self.inner;
        // Twice as many as are replayed: messages without text do not count.
        let before = inner.limits.replay_turn_limit as usize * 2;
        let dispatch = retry(live, || inner.store.get_dispatch(&held, before)).await?;
        point!("dispatch.after");
        let mut log = RunLog::new(self.clone(), held, Arc::clone(live));
        log.begin(inner.clock.now().as_millisecond(), run, dispatch.conversation.first_message)?;
        let stop = Stop {
            live: Arc::clone(live),
            deadline: Duration::from_secs(inner.limits.run_timeout_seconds),
            policy: run.on_disconnect,
            grace: Duration::from_secs(inner.limits.disconnect_grace_seconds),
        };
        let ending = self.run_in_sandbox(&mut log, dispatch, stop).await?;
        self.settle(log, ending, live).await
    }
}

/// Whatever ends a run before its upstream does.
pub(crate) struct Stop {
    live: Arc<LiveRun>,
    deadline: Duration,
    policy: OnDisconnect,
    grace: Duration,
}

impl Stop {
    pub(crate) async fn wait(self) -> Result<Ending, TurnError> {
        let Self { live, deadline, policy, grace } = self;
        tokio::select! {
            biased;
            () = live.lost.cancelled() => Err(store::StoreError::Lost.into()),
            () = live.cancel.cancelled() => Ok(Ending::cancelled("the run was cancelled")),
            () = live.interrupt.cancelled() => Ok(Ending::interrupted("the server was stopped")),
            () = nobody_reads(&live, grace), if policy == OnDisconnect::Cancel => {
                Ok(Ending::cancelled("nobody reads the run any more"))
            }
            () = tokio::time::sleep(deadline) => {
                let message = format!("the run took longer than {} seconds", deadline.as_secs());
                Ok(Ending::failed("run_timeout", message))
            }
        }
    }
}

/// Resolves when no reader is left, and none came back within the grace.
async fn nobody_reads(live: &LiveRun, grace: Duration) {
    let mut readers = live.readers();
    let mut patience = FIRST_READER;
    loop {
        let come = tokio::time::timeout(patience, readers.wait_for(|readers| *readers > 0)).await.is_ok();
        if come && readers.wait_for(|readers| *readers == 0).await.is_ok() {
            patience = grace;
        } else if live.is_followed_elsewhere() {
            patience = OTHER_NODES;
        } else {
            return;
        }
    }
}
