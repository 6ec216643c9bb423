//! Tables: names, columns and counts. Their rows are `rows`.

use std::sync::Arc;

use async_trait::async_trait;
use domain::scope::Scope;
use domain::search::index_tsvector;
use domain::table::{self, Column, Table};
use jiff::Timestamp;
use tokio_postgres::Row;
use uuid::Uuid;

use super::transaction::{Query, Settings, Transaction, inside, transaction};
use super::{PostgresStore, rows, workspaces};
use crate::error::{Result, StoreError};
use crate::knowledge::written;
use crate::list::Dialect;
use crate::store::tables::Tables;
use crate::transfer::{Pieces, read_piece};
use crate::turns::{parse_json, to_json};

#[async_trait]
impl Tables for PostgresStore {
    async fn create_table(&self, scope: &Scope, table: &Table) -> Result<()> {
        transaction!(self.database, begin_write, Settings::of(scope), |tx| create(tx, scope, table))
    }

    async fn update_table(
        &self,
        scope: &Scope,
        id: Uuid,
        name: Option<&str>,
        columns: Option<&[Column]>,
        now: Timestamp,
    ) -> Result<Table> {
        transaction!(self.database, begin_write, Settings::of(scope), |tx| update(
            tx, scope, id, name, columns, now
        ))
    }

    async fn find_table(&self, scope: &Scope, id: Uuid) -> Result<Option<Table>> {
        let text = by_id(self.database.dialect);
        let query = Query { text: &text, params: vec![&scope.workspace, &id] };
        let [rows] = self.database.read(&Settings::of(scope), [query]).await?;
        rows.first().map(read).transpose()
    }

    async fn list_tables(&self, scope: &Scope, after: Option<Uuid>, limit: usize) -> Result<Vec<Table>> {
        let text = format!(
            "SELECT {COLUMNS} FROM user_tables WHERE {} AND id > $2 ORDER BY id LIMIT $3",
            inside(self.database.dialect, "workspace_id")
        );
        let (after, limit) = (after.unwrap_or(Uuid::nil()), limit as i64);
        let query = Query { text: &text, params: vec![&scope.workspace, &after, &limit] };
        let [rows] = self.database.read(&Settings::of(scope), [query]).await?;
        rows.iter().map(read).collect()
    }

    async fn remove_table(&self, scope: &Scope, id: Uuid) -> Result<()> {
        transaction!(self.database, begin_write, Settings::of(scope), |tx| remove(tx, scope, id))
    }

    async fn import_table(
        &self,
        scope: &Scope,
        table: &Table,
        rows: Arc<dyn Pieces<Vec<table::Row>>>,
    ) -> Result<bool> {
        transaction!(self.database, begin_write, Settings::of(scope), |tx| import(tx, scope, table, &*rows))
    }
}

const COLUMNS: &str = "id, name, columns, row_count, created_at, updated_at";

fn read(row: &Row) -> Result<Table> {
    Ok(Table {
        id: row.try_get(0)?,
        name: row.try_get(1)?,
        columns: parse_json(row.try_get(2)?)?,
        row_count: row.try_get(3)?,
        created_at: row.try_get(4)?,
        updated_at: row.try_get(5)?,
    })
}

fn by_id(dialect: Dialect) -> String {
    format!("SELECT {COLUMNS} FROM user_tables WHERE {} AND id = $2", inside(dialect, "workspace_id"))
}

async fn create(tx: &Transaction, scope: &Scope, table: &Table) -> Result<()> {
    workspaces::get(tx, scope, "FOR KEY SHARE").await?;
    let columns = to_json(&table.columns)?;
    tx.execute(
        "INSERT INTO user_tables (workspace_id, id, name, columns, created_at, updated_at) \
         VALUES ($1, $2, $3, $4, $5, $6)",
        &[&scope.workspace, &table.id, &table.name, &columns, &table.created_at, &table.updated_at],
    )
    .await?;
    Ok(())
}

async fn import(
    tx: &Transaction,
    scope: &Scope,
    table: &Table,
    rows: &dyn Pieces<Vec<domain::table::Row>>,
) -> Result<bool> {
    let text = by_id(tx.dialect);
    if tx.row(&text, &[&scope.workspace, &table.id]).await?.is_some() {
        return Ok(false);
    }
    create(tx, scope, table).await?;
    for at in 0.. {
        let Some(rows) = read_piece(rows, at)? else { break };
        rows::add(tx, scope, table.id, &written(&rows, index_tsvector)?, table.updated_at).await?;
    }
    Ok(true)
}

async fn update(
    tx: &Transaction,
    scope: &Scope,
    id: Uuid,
    name: Option<&str>,
    columns: Option<&[Column]>,
    now: Timestamp,
) -> Result<Table> {
    let table = get(tx, scope, id, "FOR NO KEY UPDATE").await?;
    let table = crate::knowledge::changed(table, name, columns, now)?;
    let text = format!(
        "UPDATE user_tables SET name = $3, columns = $4, updated_at = $5 WHERE {} AND id = $2",
        tx.inside("workspace_id")
    );
    let columns = to_json(&table.columns)?;
    tx.execute(&text, &[&scope.workspace, &id, &table.name, &columns, &now]).await?;
    Ok(table)
}

/// The table, under a row lock such as `FOR KEY SHARE`.
pub(super) async fn get(tx: &Transaction, scope: &Scope, id: Uuid, lock: &str) -> Result<Table> {
    let text = format!("{} {lock}", by_id(tx.dialect));
    read(&tx.row(&text, &[&scope.workspace, &id]).await?.ok_or(StoreError::NotFound)?)
}

/// Counts rows that came or went.
pub(super) async fn count(
    tx: &Transaction,
    scope: &Scope,
    id: Uuid,
    more: i64,
    now: Timestamp,
) -> Result<()> {
    let text = format!(
        "UPDATE user_tables SET row_count = row_count + $3, updated_at = $4 WHERE {} AND id = $2",
        tx.inside("workspace_id")
    );
    let found = tx.execute(&text, &[&scope.workspace, &id, &more, &now]).await?;
    if found == 0 { Err(StoreError::NotFound) } else { Ok(()) }
}

async fn remove(tx: &Transaction, scope: &Scope, id: Uuid) -> Result<()> {
    get(tx, scope, id, "FOR UPDATE").await?;
    let own = tx.inside("workspace_id");
    // Their words go with the rows.
    tx.execute(&format!("DELETE FROM table_rows WHERE {own} AND table_id = $2"), &[&scope.workspace, &id])
        .await?;
    tx.execute(&format!("DELETE FROM user_tables WHERE {own} AND id = $2"), &[&scope.workspace, &id]).await?;
    Ok(())
}
