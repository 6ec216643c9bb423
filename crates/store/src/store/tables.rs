//! Tables of knowledge; their rows are in `rows`.

use std::sync::Arc;

use async_trait::async_trait;
use domain::scope::Scope;
use domain::table::{Column, Row, Table};
use jiff::Timestamp;
use uuid::Uuid;

use crate::error::Result;
use crate::transfer::Pieces;

#[async_trait]
pub trait Tables: Send + Sync {
    async fn create_table(&self, scope: &Scope, table: &Table) -> Result<()>;

    /// Renames a table and adds columns, as far as either is given. `BadTable` when a column would go or change.
    async fn update_table(
        &self,
        scope: &Scope,
        id: Uuid,
        name: Option<&str>,
        columns: Option<&[Column]>,
        now: Timestamp,
    ) -> Result<Table>;

    async fn find_table(&self, scope: &Scope, id: Uuid) -> Result<Option<Table>>;

    /// Tables in the order they were made, after `after`.
    async fn list_tables(&self, scope: &Scope, after: Option<Uuid>, limit: usize) -> Result<Vec<Table>>;

    /// Removes a table for good, with its rows and their words.
    async fn remove_table(&self, scope: &Scope, id: Uuid) -> Result<()>;

    /// Writes a checked table with its rows in one transaction, synced. False, and nothing is changed, when the
    /// workspace has one with its id.
    async fn import_table(
        &self,
        scope: &Scope,
        table: &Table,
        rows: Arc<dyn Pieces<Vec<Row>>>,
    ) -> Result<bool>;
}
