//! Rows of tables, and their import: put down unseen, then kept at once.

use async_trait::async_trait;
use domain::scope::Scope;
use domain::table::Row;
use jiff::Timestamp;
use uuid::Uuid;

use crate::error::Result;
use crate::knowledge::{FoundRow, Listed, TextSearch};

#[async_trait]
pub trait Rows: Send + Sync {
    /// Adds rows, all or none. Their cells fit the table's columns.
    async fn add_rows(&self, scope: &Scope, table: Uuid, rows: &[Row], now: Timestamp) -> Result<()>;

    /// Puts rows of an import down, which nobody sees before it is kept.
    async fn stage_rows(
        &self,
        scope: &Scope,
        table: Uuid,
        import: Uuid,
        rows: &[Row],
        now: Timestamp,
    ) -> Result<()>;

    /// Makes the rows of an import visible, all at once, synced. `NotFound` unless all that were `staged` are there.
    async fn keep_import(
        &self,
        scope: &Scope,
        table: Uuid,
        import: Uuid,
        staged: u64,
        now: Timestamp,
    ) -> Result<()>;

    /// Takes back the rows of an import that was not kept.
    async fn drop_import(&self, scope: &Scope, table: Uuid, import: Uuid) -> Result<()>;

    /// A table's rows in the order they were added, after `after`: at most `limit`, and fewer where they are long.
    async fn list_rows(
        &self,
        scope: &Scope,
        table: Uuid,
        after: Option<Uuid>,
        limit: usize,
    ) -> Result<Listed<Row>>;

    async fn find_row(&self, scope: &Scope, table: Uuid, id: Uuid) -> Result<Option<Row>>;

    /// Changes the cells of the row with that id.
    async fn update_row(&self, scope: &Scope, table: Uuid, row: &Row, now: Timestamp) -> Result<()>;

    async fn remove_row(&self, scope: &Scope, table: Uuid, id: Uuid, now: Timestamp) -> Result<()>;

    /// Rows that have the words, of one table or of all, best first.
    async fn search_rows(
        &self,
        scope: &Scope,
        table: Option<Uuid>,
        search: &TextSearch,
    ) -> Result<Listed<FoundRow>>;
}
