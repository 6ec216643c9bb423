//! Rows of tables and their words. Those of an import under way are there, and nobody sees them before its end.

use async_trait::async_trait;
use domain::scope::Scope;
use domain::search::index_text;
use domain::table::Row;
use jiff::Timestamp;
use rusqlite::{Connection, OptionalExtension, Params, params};
use uuid::Uuid;

use super::pages::{place, within};
use super::writer::Durability;
use super::{SqliteStore, tables};
use crate::error::{Result, StoreError};
use crate::knowledge::{
    Candidate, FoundRow, Listed, STALE_MS, TextSearch, WrittenRow, best, list_text, listed, read_cells,
    written,
};
use crate::search::CANDIDATES;
use crate::store::rows::Rows;

#[async_trait]
impl Rows for SqliteStore {
    async fn add_rows(&self, scope: &Scope, table: Uuid, rows: &[Row], now: Timestamp) -> Result<()> {
        let (scope, rows) = (scope.clone(), written(rows, index_text)?);
        self.writer.write(Durability::Full, move |db| add(db, &scope, table, &rows, now)).await
    }

    async fn stage_rows(
        &self,
        scope: &Scope,
        table: Uuid,
        import: Uuid,
        rows: &[Row],
        now: Timestamp,
    ) -> Result<()> {
        let (scope, rows) = (scope.clone(), written(rows, index_text)?);
        let work = move |db: &_| stage(db, &scope, table, import, &rows, now);
        self.writer.write(Durability::Normal, work).await
    }

    async fn keep_import(
        &self,
        scope: &Scope,
        table: Uuid,
        import: Uuid,
        staged: u64,
        now: Timestamp,
    ) -> Result<()> {
        let scope = scope.clone();
        let work = move |db: &_| keep(db, &scope, table, import, staged, now);
        self.writer.write(Durability::Full, work).await
    }

    async fn drop_import(&self, scope: &Scope, table: Uuid, import: Uuid) -> Result<()> {
        let scope = scope.clone();
        self.writer.write(Durability::Normal, move |db| drop_staged(db, &scope, table, import)).await
    }

    async fn list_rows(
        &self,
        scope: &Scope,
        table: Uuid,
        after: Option<Uuid>,
        limit: usize,
    ) -> Result<Listed<Row>> {
        let scope = scope.clone();
        self.readers.read(move |db| list(db, &scope, table, after, limit)).await
    }

    async fn find_row(&self, scope: &Scope, table: Uuid, id: Uuid) -> Result<Option<Row>> {
        let scope = scope.clone();
        self.readers.read(move |db| find(db, &scope, table, id)).await
    }

    async fn update_row(&self, scope: &Scope, table: Uuid, row: &Row, now: Timestamp) -> Result<()> {
        let (scope, rows) = (scope.clone(), written(std::slice::from_ref(row), index_text)?);
        let work = move |db: &_| rows.iter().try_for_each(|row| update(db, &scope, table, row, now));
        self.writer.write(Durability::Full, work).await
    }

    async fn remove_row(&self, scope: &Scope, table: Uuid, id: Uuid, now: Timestamp) -> Result<()> {
        let scope = scope.clone();
        self.writer.write(Durability::Full, move |db| remove(db, &scope, table, id, now)).await
    }

    async fn search_rows(
        &self,
        scope: &Scope,
        table: Option<Uuid>,
        asked: &TextSearch,
    ) -> Result<Listed<FoundRow>> {
        let (scope, asked) = (scope.clone(), asked.clone());
        self.readers.read(move |db| search(db, &scope, table, &asked)).await
    }
}

pub(super) fn add(
    db: &Connection,
    scope: &Scope,
    table: Uuid,
    rows: &[WrittenRow],
    now: Timestamp,
) -> Result<()> {
    tables::count(db, scope, table, rows.len() as i64, now)?;
    insert(db, scope, table, rows, None, now)
}

fn stage(
    db: &Connection,
    scope: &Scope,
    table: Uuid,
    import: Uuid,
    rows: &[WrittenRow],
    now: Timestamp,
) -> Result<()> {
    tables::find(db, scope, table)?.ok_or(StoreError::NotFound)?;
    insert(db, scope, table, rows, Some(import), now)
}

fn insert(
    db: &Connection,
    scope: &Scope,
    table: Uuid,
    rows: &[WrittenRow],
    import: Option<Uuid>,
    now: Timestamp,
) -> Result<()> {
    let mut statement = db.prepare_cached(
        "INSERT INTO table_rows (workspace_id, table_id, id, cells, import_id, created_at, updated_at) \
         VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?6)",
    )?;
    let mut keys = Vec::with_capacity(rows.len());
    for row in rows {
        statement.execute(params![
            scope.workspace,
            table,
            row.id,
            row.cells,
            import,
            now.as_millisecond()
        ])?;
        keys.push(db.last_insert_rowid());
    }
    // Together at the end: in between, other statements would make FTS5 write out what it has gathered.
    let place = format!("{} {}", place('w', scope.workspace), place('t', table));
    let mut statement =
        db.prepare_cached("INSERT INTO row_search (rowid, place, words) VALUES (?1, ?2, ?3)")?;
    for (pk, row) in keys.iter().zip(rows) {
        statement.execute(params![pk, place, row.words])?;
    }
    Ok(())
}

fn keep(
    db: &Connection,
    scope: &Scope,
    table: Uuid,
    import: Uuid,
    staged: u64,
    now: Timestamp,
) -> Result<()> {
    let kept = db.execute(
        "UPDATE table_rows SET import_id = NULL WHERE workspace_id = ?1 AND table_id = ?2 AND import_id = ?3",
        params![scope.workspace, table, import],
    )?;
    if kept as u64 != staged {
        return Err(StoreError::NotFound);
    }
    tables::count(db, scope, table, kept as i64, now)?;
    let stale = now.as_millisecond() - STALE_MS;
    let others = "table_id = ?2 AND import_id IS NOT NULL AND created_at < ?3";
    remove_where(db, others, params![scope.workspace, table, stale])
}

fn drop_staged(db: &Connection, scope: &Scope, table: Uuid, import: Uuid) -> Result<()> {
    remove_where(db, "table_id = ?2 AND import_id = ?3", params![scope.workspace, table, import])
}

/// Removes rows of the workspace, which is the first parameter, with their words.
pub(super) fn remove_where(db: &Connection, condition: &str, bound: impl Params + Copy) -> Result<()> {
    let own = format!("workspace_id = ?1 AND {condition}");
    let text = format!("DELETE FROM row_search WHERE rowid IN (SELECT pk FROM table_rows WHERE {own})");
    db.execute(&text, bound)?;
    db.execute(&format!("DELETE FROM table_rows WHERE {own}"), bound)?;
    Ok(())
}

fn list(
    db: &Connection,
    scope: &Scope,
    table: Uuid,
    after: Option<Uuid>,
    limit: usize,
) -> Result<Listed<Row>> {
    tables::find(db, scope, table)?.ok_or(StoreError::NotFound)?;
    let own = "workspace_id = ?1 AND table_id = ?4 AND import_id IS NULL";
    let text = list_text("table_rows", "t.id, t.cells", "cells", own, '?');
    let mut statement = db.prepare_cached(&text)?;
    let bound = params![scope.workspace, after.unwrap_or(Uuid::nil()), limit as i64 + 1, table];
    let mut total = 0;
    let found = statement.query_map(bound, |row| {
        total = row.get(2)?;
        Ok((row.get(0)?, row.get::<_, String>(1)?))
    })?;
    let rows = found
        .map(|found| {
            let (id, cells) = found?;
            Ok(Row { id, cells: read_cells(&cells)? })
        })
        .collect::<Result<_>>()?;
    Ok(listed(rows, total, limit))
}

fn find(db: &Connection, scope: &Scope, table: Uuid, id: Uuid) -> Result<Option<Row>> {
    let found: Option<String> = db
        .prepare_cached(
            "SELECT cells FROM table_rows \
             WHERE workspace_id = ?1 AND table_id = ?2 AND id = ?3 AND import_id IS NULL",
        )?
        .query_row(params![scope.workspace, table, id], |row| row.get(0))
        .optional()?;
    found.map(|cells| Ok(Row { id, cells: read_cells(&cells)? })).transpose()
}

fn update(db: &Connection, scope: &Scope, table: Uuid, row: &WrittenRow, now: Timestamp) -> Result<()> {
    let pk: i64 = db
        .prepare_cached(
            "UPDATE table_rows SET cells = ?4, updated_at = ?5 \
             WHERE workspace_id = ?1 AND table_id = ?2 AND id = ?3 AND import_id IS NULL RETURNING pk",
        )?
        .query_row(params![scope.workspace, table, row.id, row.cells, now.as_millisecond()], |row| row.get(0))
        .optional()?
        .ok_or(StoreError::NotFound)?;
    let place = format!("{} {}", place('w', scope.workspace), place('t', table));
    db.prepare_cached("DELETE FROM row_search WHERE rowid = ?1")?.execute([pk])?;
    db.prepare_cached("INSERT INTO row_search (rowid, place, words) VALUES (?1, ?2, ?3)")?
        .execute(params![pk, place, row.words])?;
    tables::count(db, scope, table, 0, now)
}

fn remove(db: &Connection, scope: &Scope, table: Uuid, id: Uuid, now: Timestamp) -> Result<()> {
    find(db, scope, table, id)?.ok_or(StoreError::NotFound)?;
    remove_where(db, "table_id = ?2 AND id = ?3", params![scope.workspace, table, id])?;
    tables::count(db, scope, table, -1, now)
}

fn search(
    db: &Connection,
    scope: &Scope,
    table: Option<Uuid>,
    search: &TextSearch,
) -> Result<Listed<FoundRow>> {
    if let Some(table) = table {
        tables::find(db, scope, table)?.ok_or(StoreError::NotFound)?;
    }
    let text = format!(
        "SELECT r.table_id, r.id, octet_length(r.cells), -bm25(row_search, 0.0, 1.0) \
         FROM row_search s JOIN table_rows r ON r.pk = s.rowid \
         WHERE row_search MATCH ?1 AND r.workspace_id = ?2 AND r.import_id IS NULL \
         ORDER BY s.rowid DESC LIMIT {CANDIDATES}"
    );
    let place = table.map_or_else(|| place('w', scope.workspace), |table| place('t', table));
    let mut statement = db.prepare_cached(&text)?;
    let bound = params![within(&place, &search.query), scope.workspace];
    let found = statement.query_map(bound, |row| {
        let (table, id, bytes, score) = (row.get(0)?, row.get(1)?, row.get(2)?, row.get(3)?);
        Ok(Candidate { table, id, title: None, bytes, score })
    })?;
    let Listed { items, more } = best(found.collect::<rusqlite::Result<_>>()?, search);
    let read = |one: &Candidate| {
        let row = find(db, scope, one.table, one.id)?;
        Ok(row.map(|row| FoundRow { table: one.table, row }))
    };
    let rows = items.iter().map(read).collect::<Result<Vec<_>>>()?;
    Ok(Listed { items: rows.into_iter().flatten().collect(), more })
}
