//! Tables: names, columns and counts. Their rows are `rows`.

use std::sync::Arc;

use async_trait::async_trait;
use domain::scope::Scope;
use domain::search::index_text;
use domain::table::{self, Column, Table};
use domain::time::from_ms;
use jiff::Timestamp;
use rusqlite::{Connection, OptionalExtension, Row, params};
use uuid::Uuid;

use super::writer::Durability;
use super::{SqliteStore, rows, workspaces};
use crate::error::{Result, StoreError};
use crate::knowledge::written;
use crate::store::tables::Tables;
use crate::transfer::{Pieces, read_piece};
use crate::turns::{parse_json, to_json};

#[async_trait]
impl Tables for SqliteStore {
    async fn create_table(&self, scope: &Scope, table: &Table) -> Result<()> {
        let (scope, table) = (scope.clone(), table.clone());
        self.writer.write(Durability::Full, move |db| create(db, &scope, &table)).await
    }

    async fn update_table(
        &self,
        scope: &Scope,
        id: Uuid,
        name: Option<&str>,
        columns: Option<&[Column]>,
        now: Timestamp,
    ) -> Result<Table> {
        let (scope, name) = (scope.clone(), name.map(str::to_owned));
        let columns = columns.map(<[Column]>::to_vec);
        let work = move |db: &_| update(db, &scope, id, name.as_deref(), columns.as_deref(), now);
        self.writer.write(Durability::Full, work).await
    }

    async fn find_table(&self, scope: &Scope, id: Uuid) -> Result<Option<Table>> {
        let scope = scope.clone();
        self.readers.read(move |db| find(db, &scope, id)).await
    }

    async fn list_tables(&self, scope: &Scope, after: Option<Uuid>, limit: usize) -> Result<Vec<Table>> {
        let scope = scope.clone();
        self.readers.read(move |db| list(db, &scope, after, limit)).await
    }

    async fn remove_table(&self, scope: &Scope, id: Uuid) -> Result<()> {
        let scope = scope.clone();
        self.writer.write(Durability::Full, move |db| remove(db, &scope, id)).await
    }

    async fn import_table(
        &self,
        scope: &Scope,
        table: &Table,
        rows: Arc<dyn Pieces<Vec<table::Row>>>,
    ) -> Result<bool> {
        let (scope, table) = (scope.clone(), table.clone());
        let work = move |db: &_| import(db, &scope, &table, &*rows);
        self.writer.write(Durability::Full, work).await
    }
}

const COLUMNS: &str = "id, name, columns, row_count, created_at, updated_at";

fn read(row: &Row<'_>) -> rusqlite::Result<(Table, String)> {
    let table = Table {
        id: row.get(0)?,
        name: row.get(1)?,
        columns: Vec::new(),
        row_count: row.get(3)?,
        created_at: from_ms(row.get(4)?),
        updated_at: from_ms(row.get(5)?),
    };
    Ok((table, row.get(2)?))
}

fn whole((table, columns): (Table, String)) -> Result<Table> {
    Ok(Table { columns: parse_json(&columns)?, ..table })
}

fn create(db: &Connection, scope: &Scope, table: &Table) -> Result<()> {
    workspaces::find(db, scope)?.ok_or(StoreError::NotFound)?;
    db.execute(
        "INSERT INTO user_tables (workspace_id, id, name, columns, created_at, updated_at) \
         VALUES (?1, ?2, ?3, ?4, ?5, ?6)",
        params![
            scope.workspace,
            table.id,
            table.name,
            to_json(&table.columns)?,
            table.created_at.as_millisecond(),
            table.updated_at.as_millisecond()
        ],
    )?;
    Ok(())
}

fn import(
    db: &Connection,
    scope: &Scope,
    table: &Table,
    rows: &dyn Pieces<Vec<domain::table::Row>>,
) -> Result<bool> {
    if find(db, scope, table.id)?.is_some() {
        return Ok(false);
    }
    create(db, scope, table)?;
    for at in 0.. {
        let Some(rows) = read_piece(rows, at)? else { break };
        rows::add(db, scope, table.id, &written(&rows, index_text)?, table.updated_at)?;
    }
    Ok(true)
}

fn update(
    db: &Connection,
    scope: &Scope,
    id: Uuid,
    name: Option<&str>,
    columns: Option<&[Column]>,
    now: Timestamp,
) -> Result<Table> {
    let table = find(db, scope, id)?.ok_or(StoreError::NotFound)?;
    let table = crate::knowledge::changed(table, name, columns, now)?;
    db.execute(
        "UPDATE user_tables SET name = ?3, columns = ?4, updated_at = ?5 WHERE workspace_id = ?1 AND id = ?2",
        params![scope.workspace, id, table.name, to_json(&table.columns)?, now.as_millisecond()],
    )?;
    Ok(table)
}

/// Counts rows that came or went.
pub(super) fn count(db: &Connection, scope: &Scope, id: Uuid, more: i64, now: Timestamp) -> Result<()> {
    let found = db
        .prepare_cached(
            "UPDATE user_tables SET row_count = row_count + ?3, updated_at = ?4 \
             WHERE workspace_id = ?1 AND id = ?2",
        )?
        .execute(params![scope.workspace, id, more, now.as_millisecond()])?;
    if found == 0 { Err(StoreError::NotFound) } else { Ok(()) }
}

pub(super) fn find(db: &Connection, scope: &Scope, id: Uuid) -> Result<Option<Table>> {
    let text = format!("SELECT {COLUMNS} FROM user_tables WHERE workspace_id = ?1 AND id = ?2");
    let row = db.prepare_cached(&text)?.query_row(params![scope.workspace, id], read).optional()?;
    row.map(whole).transpose()
}

fn list(db: &Connection, scope: &Scope, after: Option<Uuid>, limit: usize) -> Result<Vec<Table>> {
    let text =
        format!("SELECT {COLUMNS} FROM user_tables WHERE workspace_id = ?1 AND id > ?2 ORDER BY id LIMIT ?3");
    let mut statement = db.prepare_cached(&text)?;
    let bound = params![scope.workspace, after.unwrap_or(Uuid::nil()), limit as i64];
    let found = statement.query_map(bound, read)?;
    found.map(|row| whole(row?)).collect()
}

fn remove(db: &Connection, scope: &Scope, id: Uuid) -> Result<()> {
    find(db, scope, id)?.ok_or(StoreError::NotFound)?;
    rows::remove_where(db, "table_id = ?2", params![scope.workspace, id])?;
    db.execute("DELETE FROM user_tables WHERE workspace_id = ?1 AND id = ?2", params![scope.workspace, id])?;
    Ok(())
}

/// All of a workspace that is removed.
pub(super) fn remove_all(db: &Connection, workspace: Uuid) -> Result<()> {
    rows::remove_where(db, "TRUE", params![workspace])?;
    db.execute("DELETE FROM user_tables WHERE workspace_id = ?1", [workspace])?;
    Ok(())
}
