//! Keeping house: leases renewed, cancels heard, dead nodes' runs ended, queues moved, old logs folded away.

use std::collections::HashMap;
use std::time::{Duration, Instant};

use futures_util::{StreamExt as _, stream};
use store::StoreError;
use store::turns::{Held, QueueStart, Waiting};
use uuid::Uuid;

use crate::Turns;
use crate::error::TurnError;
use crate::failpoint::point;
use crate::settle::{Ending, own_scope};

/// How soon a cancel that came in at another node is acted on.
const TICK: Duration = Duration::from_millis(500);
/// How often it is looked whether a lease of this node is over.
const WATCH: Duration = Duration::from_millis(100);
/// By how much a run is given up before its lease ends, at most: its sandbox is let go before another gets the next.
const AHEAD: Duration = Duration::from_millis(500);
/// How often dead nodes' runs and stuck queues are looked for.
const SWEEP: Duration = Duration::from_secs(2);
const EXPIRE: Duration = Duration::from_secs(60);
const AT_ONCE: usize = 100;
const SETTLE_AT_ONCE: usize = 8;

fn ticks(period: Duration) -> tokio::time::Interval {
    let mut tick = tokio::time::interval(period);
    tick.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Skip);
    tick
}

impl Turns {
    pub(crate) fn keep_house(&self) {
        let turns = self.clone();
        self.inner.tasks.spawn(async move { turns.keep_leases().await });
        if self.inner.store.is_shared() {
            let turns = self.clone();
            self.inner.tasks.spawn(async move { turns.watch_leases().await });
        }
        let turns = self.clone();
        self.inner.tasks.spawn(async move { turns.keep_sweeping().await });
    }

    async fn keep_leases(&self) {
        let lease = Duration::from_secs(self.inner.limits.lease_seconds);
        let (mut renewed, mut forgotten) = (Instant::now(), HashMap::new());
        let mut tick = ticks(TICK);
        loop {
            tokio::select! {
                _ = tick.tick() => {}
                () = self.ended() => return,
            }
            let (asked, renew) = (Instant::now(), renewed.elapsed() >= lease / 3);
            match tokio::time::timeout(lease / 3, self.beat(renew)).await {
                Ok(Ok(undriven)) if renew => {
                    renewed = asked;
                    self.end_forgotten(&mut forgotten, &undriven, lease);
                }
                Ok(Ok(_)) => {}
                Ok(Err(error)) => tracing::warn!(%error, "the heartbeat failed"),
                Err(_) => tracing::warn!("the heartbeat got no answer"),
            }
        }
    }

    /// Runs of this node that nobody here drove for as long as a lease: the answer was lost that it had begun or taken
    /// them, and while it renews their leases nobody else ends them.
    fn end_forgotten(&self, since: &mut HashMap<Uuid, Instant>, undriven: &[Held], lease: Duration) {
        since.retain(|run, _| undriven.iter().any(|held| held.lease.run == *run));
        for held in undriven.iter().copied() {
            let run = held.lease.run;
            let known = *since.entry(run).or_insert_with(Instant::now);
            // What a node leaves that is to stop is the next one's.
            if known.elapsed() >= lease && !self.inner.draining.is_cancelled() {
                since.remove(&run);
                let turns = self.clone();
                let ending = Ending::interrupted("its node lost sight of it");
                self.inner.tasks.spawn(async move { turns.settle_left(held, ending).await });
            }
        }
    }

    /// Beside the heartbeats, by this node's own clock: a run whose lease is over may be another's, and a database
    /// that does not answer cannot say so.
    async fn watch_leases(&self) {
        let lease = Duration::from_secs(self.inner.limits.lease_seconds);
        let ours = lease.saturating_sub(AHEAD.min(lease / 10));
        let mut tick = ticks(WATCH);
        loop {
            tokio::select! {
                _ = tick.tick() => {}
                () = self.ended() => return,
            }
            for run in self.inner.live.lose_older(ours) {
                tracing::warn!(%run, "the lease of a run could not be renewed in time");
            }
        }
    }

    /// Beside the heartbeats: what takes long here must not cost this node its own runs.
    async fn keep_sweeping(&self) {
        let mut expired = Instant::now();
        let mut tick = ticks(SWEEP);
        loop {
            tokio::select! {
                _ = tick.tick() => {}
                () = self.ended() => return,
            }
            if let Err(error) = self.sweep().await {
                tracing::warn!(%error, "the sweep failed");
            }
            if expired.elapsed() >= EXPIRE {
                expired = Instant::now();
                self.expire().await;
            }
        }
    }

    /// Draining, and nothing left to drive.
    pub(crate) async fn ended(&self) {
        self.inner.draining.cancelled().await;
        self.inner.live.idle().await;
    }

    /// Answers the runs that are this node's and that nobody here drives.
    async fn beat(&self, renew: bool) -> Result<Vec<Held>, TurnError> {
        let inner = &self.inner;
        // Runs begun while the question is under way are not in its answer; only those from before count.
        let (driven, asked) = (inner.live.driven(), Instant::now());
        // When it is time to renew, also what nobody here drives is looked for.
        if driven.is_empty() && !renew {
            return Ok(Vec::new());
        }
        let found = inner.store.system_heartbeat(inner.node, inner.limits.lease_seconds, renew).await?;
        for held in found.held.iter().filter(|held| found.cancelled.contains(&held.lease.run)) {
            let run = held.lease.run;
            if let Err(StoreError::NotFound) = inner.store.get_run(&own_scope(held), run).await {
                inner.live.hide(run);
            }
            inner.live.cancel(run);
        }
        for run in driven {
            if !found.held.iter().any(|held| held.lease.run == run) {
                inner.live.lose(run);
            } else if renew {
                inner.live.renew(run, asked);
            }
        }
        let undriven = |held: &Held| !inner.live.find(held.lease.run).is_some_and(|live| live.is_driven());
        Ok(found.held.into_iter().filter(undriven).collect())
    }

    /// Something was deleted: its runs here end, and their readers get no more of it.
    pub async fn notice_deletion(&self) {
        if let Err(error) = self.beat(false).await {
            tracing::warn!(%error, "the delete is heard at the next heartbeat");
        }
    }

    /// Ends all that dead nodes left, and moves the queues.
    pub(crate) async fn sweep(&self) -> Result<(), TurnError> {
        let inner = &self.inner;
        loop {
            let asked = Instant::now();
            let taken =
                inner.store.system_take_expired(inner.node, inner.limits.lease_seconds, AT_ONCE).await?;
            let all = taken.len() < AT_ONCE;
            let settling = stream::iter(taken).for_each_concurrent(SETTLE_AT_ONCE, async |held| {
                point!("sweep.taken");
                if self.go_on_waiting(held, asked).await {
                    return;
                }
                let ending = Ending::interrupted("the node that ran it went away");
                let _ = self.settle_left_or_later(held, ending).await;
                point!("sweep.settled");
            });
            settling.await;
            if all {
                break;
            }
        }
        for waiting in inner.store.system_list_waiting(AT_ONCE).await? {
            self.start_waiting(waiting).await;
        }
        Ok(())
    }

    /// Starts the next queued run of a conversation, if it is free.
    pub(crate) async fn start_waiting(&self, waiting: Waiting) {
        let inner = &self.inner;
        if inner.draining.is_cancelled() {
            return;
        }
        let start = QueueStart {
            node: inner.node,
            lease_seconds: inner.limits.lease_seconds,
            branch: inner.clock.new_id(),
            now: inner.clock.now(),
        };
        let asked = Instant::now();
        point!("queue.before");
        match inner.store.start_queued(&waiting, &start).await {
            Ok(Some((run, lease, opening))) => {
                point!("queue.started");
                let held = Held { workspace: waiting.workspace, lease };
                self.drive((held, asked), &run, &opening, None);
                self.ask_who_follows(run.id).await;
            }
            Ok(None) => {}
            Err(error) => tracing::warn!(%error, "a queued run could not be started; trying again later"),
        }
    }

    /// A run that was just asked to make way, if this node has it.
    pub(crate) async fn act_on_cancels(&self, workspace: Uuid, conversation: Uuid) {
        if let Err(error) = self.beat(false).await {
            tracing::warn!(%error, %workspace, %conversation, "the cancel is heard at the next heartbeat");
        }
        self.start_waiting(Waiting { workspace, conversation }).await;
    }

    async fn expire(&self) {
        let inner = &self.inner;
        let now = inner.clock.now();
        let ttl = jiff::SignedDuration::from_secs(inner.limits.event_log_ttl_seconds as i64);
        let Ok(before) = now.checked_sub(ttl) else { return };
        loop {
            match inner.store.system_expire(before, now, AT_ONCE).await {
                Ok(AT_ONCE) => {}
                Ok(_) => return,
                Err(error) => {
                    tracing::warn!(%error, "old logs could not be folded away");
                    return;
                }
            }
        }
    }
}
