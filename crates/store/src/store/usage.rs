//! Tokens used: of a run, of a day.

use async_trait::async_trait;
use domain::run::Usage;
use domain::scope::Scope;
use domain::tokens::{DayUsage, TokensUsed};
use jiff::Timestamp;
use uuid::Uuid;

use crate::error::Result;
use crate::turns::Held;

#[async_trait]
pub trait UsageCounts: Send + Sync {
    /// Counts what a run under way has used. `Lost` unless it is under way with this fence. Whoever knows the run's
    /// `total` after that says so, and may ask again without having heard the answer: a total that is reached is counted.
    async fn count_usage(
        &self,
        held: &Held,
        usage: Usage,
        total: Option<Usage>,
        now: Timestamp,
    ) -> Result<()>;

    /// Counts a call of a model that belongs to no run into the caller's day. `call` is a fresh id.
    async fn count_call(&self, scope: &Scope, call: Uuid, usage: Usage, now: Timestamp) -> Result<()>;

    /// Tokens that the caller and its workspace have used on the day of `now`.
    async fn get_tokens_used(&self, scope: &Scope, now: Timestamp) -> Result<TokensUsed>;

    /// What the workspace used on each day from `since` on (as `2026-11-15`), newest first; days without use are
    /// left out.
    async fn list_usage(&self, scope: &Scope, since: &str) -> Result<Vec<DayUsage>>;
}
