//! Turns: three writes carry them, begin, append and settle.
//!
//! Each is one transaction, and every write of a run names its fence, so that a writer which lost the run cannot
//! write into it.

use async_trait::async_trait;
use domain::open_runs::{OpenRuns, RunLimits};
use domain::run::{Lease, Run};
use domain::scope::Scope;
use jiff::Timestamp;

use crate::error::Result;
use crate::turns::{
    Batch, Begun, Dispatch, Held, Idempotency, NewTurn, QueueStart, Settled, Settlement, Waiting,
};

#[async_trait]
pub trait Turns: Send + Sync {
    /// Accepts a turn: conversation (for a first one), user message, run and idempotency record in one
    /// transaction, synced. What it refuses, it refuses before anything is written. A file attached twice stands once;
    /// a turn that is made to replace another by `rollback` does not take over its attachments.
    async fn begin_turn(&self, scope: &Scope, new: &NewTurn) -> Result<Begun>;

    /// What `begin_turn` or `begin_execution` would answer to a key that came before; none for a new one.
    async fn find_repeated(
        &self,
        scope: &Scope,
        idempotency: &Idempotency,
        now: Timestamp,
    ) -> Result<Option<Begun>>;

    /// Runs that the caller and its workspace have open, as far as there are limits of them.
    async fn get_open_runs(&self, scope: &Scope, limits: RunLimits) -> Result<OpenRuns>;

    /// Starts the conversation's first queued run, if none is under way. One that cannot be started, whatever is done, is
    /// settled as failed, and the next is started.
    async fn start_queued(
        &self,
        waiting: &Waiting,
        start: &QueueStart,
    ) -> Result<Option<(Run, Lease, Batch)>>;

    /// What the run's runner is to be given; `replay` messages before the user's.
    async fn get_dispatch(&self, held: &Held, replay: usize) -> Result<Dispatch>;

    /// Appends to the log. `Lost` unless the run is under way with this fence and the numbers go on from
    /// what is stored. The newest batch once more is no loss: its writer may not have heard the answer.
    /// Survives the death of this process. PostgreSQL may lose the last of what it took when it crashes itself, while this
    /// process lives on: then it is `Behind`, and its writer appends again what is missing. SQLite is this process, so
    /// there it cannot come to that.
    async fn append_events(&self, held: &Held, batch: &Batch) -> Result<()>;

    /// Ends a run: status, assistant message, counters, terminal events and the release, in one transaction.
    /// `Lost` unless it is under way with this fence, `Behind` as above. Synced.
    async fn settle_turn(&self, held: &Held, settlement: &Settlement) -> Result<Settled>;
}
