//! Executions, out and in, with their runs; and whether there is anything at all.

use std::sync::Arc;

use async_trait::async_trait;
use domain::scope::Scope;
use domain::transfer::{ArchivedExecution, Trace};
use uuid::Uuid;

use crate::error::Result;
use crate::transfer::Pieces;

#[async_trait]
pub trait ArchivedRuns: Send + Sync {
    /// Executions that have ended and that the scope may see, by id, after `after`.
    async fn list_executions(&self, scope: &Scope, after: Option<Uuid>, limit: usize) -> Result<Vec<Uuid>>;

    /// An execution with its run and the visible files of its bag.
    async fn get_archived_execution(&self, scope: &Scope, id: Uuid) -> Result<ArchivedExecution>;

    /// As `import_archive`.
    async fn import_execution(
        &self,
        scope: &Scope,
        execution: Arc<ArchivedExecution>,
        traces: Arc<dyn Pieces<Trace>>,
    ) -> Result<bool>;

    /// Whether the workspace holds nothing yet that an import could bring.
    async fn is_empty(&self, scope: &Scope) -> Result<bool>;
}
