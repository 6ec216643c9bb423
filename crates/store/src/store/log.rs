//! The event log of a run: read by number, its batches put together when its time is over.

use async_trait::async_trait;
use domain::scope::Scope;
use jiff::Timestamp;
use uuid::Uuid;

use crate::error::Result;
use crate::turns::{Held, LogPage};

#[async_trait]
pub trait Log: Send + Sync {
    /// The log from event `after` on, in whole batches of about `max_bytes`. One that has expired is read the same way,
    /// in parts of about 256 KiB.
    async fn read_log(&self, scope: &Scope, run: Uuid, after: i64, max_bytes: usize) -> Result<LogPage>;

    /// The log from entry `after` on, trace-only entries too.
    async fn read_trace(&self, scope: &Scope, run: Uuid, after: i64, max_bytes: usize) -> Result<LogPage>;

    /// As `read_trace`, for whoever is to end the run: its conversation may be deleted. `Lost` when it is another's.
    async fn read_held(&self, held: &Held, after: i64, max_bytes: usize) -> Result<LogPage>;

    /// Makes parts of the batches of runs that ended before `before`, and forgets idempotency keys older than a day.
    /// Answers how many runs it did. No transaction of it is longer than one part's.
    async fn system_expire(&self, before: Timestamp, now: Timestamp, limit: usize) -> Result<usize>;
}
