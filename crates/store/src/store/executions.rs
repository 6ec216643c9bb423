//! Executions: runs without a conversation.

use async_trait::async_trait;
use domain::scope::Scope;
use uuid::Uuid;

use crate::error::Result;
use crate::files::{Execution, NewExecution};
use crate::turns::Begun;

#[async_trait]
pub trait Executions: Send + Sync {
    /// Accepts an execution and makes its files visible in one transaction, synced. It is never queued.
    async fn begin_execution(&self, scope: &Scope, new: &NewExecution) -> Result<Begun>;

    async fn get_execution(&self, scope: &Scope, id: Uuid) -> Result<Execution>;
}
