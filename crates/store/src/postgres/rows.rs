//! Rows of tables and their words. Those of an import under way are there, and nobody sees them before its end.

use async_trait::async_trait;
use domain::scope::Scope;
use domain::search::index_tsvector;
use domain::table;
use domain::time::from_ms;
use jiff::Timestamp;
use tokio_postgres::Row;
use uuid::Uuid;

use super::search::newest;
use super::transaction::{Params, Query, Settings, Transaction, inside, transaction, workspace_word};
use super::{PostgresStore, tables};
use crate::error::{Result, StoreError};
use crate::knowledge::{
    Candidate, FoundRow, Listed, STALE_MS, TextSearch, WrittenRow, best, list_text, listed, read_cells,
    written,
};
use crate::search::CANDIDATES;
use crate::store::rows::Rows;

#[async_trait]
impl Rows for PostgresStore {
    async fn add_rows(&self, scope: &Scope, table: Uuid, rows: &[table::Row], now: Timestamp) -> Result<()> {
        let rows = written(rows, index_tsvector)?;
        transaction!(self.database, begin_write, Settings::of(scope), |tx| add(tx, scope, table, &rows, now))
    }

    async fn stage_rows(
        &self,
        scope: &Scope,
        table: Uuid,
        import: Uuid,
        rows: &[table::Row],
        now: Timestamp,
    ) -> Result<()> {
        let rows = written(rows, index_tsvector)?;
        transaction!(self.database, begin_unsynced, Settings::of(scope), |tx| stage(
            tx, scope, table, import, &rows, now
        ))
    }

    async fn keep_import(
        &self,
        scope: &Scope,
        table: Uuid,
        import: Uuid,
        staged: u64,
        now: Timestamp,
    ) -> Result<()> {
        transaction!(self.database, begin_write, Settings::of(scope), |tx| keep(
            tx, scope, table, import, staged, now
        ))
    }

    async fn drop_import(&self, scope: &Scope, table: Uuid, import: Uuid) -> Result<()> {
        transaction!(self.database, begin_unsynced, Settings::of(scope), |tx| drop_staged(
            tx, scope, table, import
        ))
    }

    async fn list_rows(
        &self,
        scope: &Scope,
        table: Uuid,
        after: Option<Uuid>,
        limit: usize,
    ) -> Result<Listed<table::Row>> {
        let is_there = format!(
            "SELECT 1 FROM user_tables WHERE {} AND id = $2",
            inside(self.database.dialect, "workspace_id")
        );
        let own = format!(
            "{} AND table_id = $4 AND import_id IS NULL",
            inside(self.database.dialect, "workspace_id")
        );
        let text = list_text("table_rows", "t.id, t.cells", "cells", &own, '$');
        let (after, looked_at) = (after.unwrap_or(Uuid::nil()), limit as i64 + 1);
        let there = Query { text: &is_there, params: vec![&scope.workspace, &table] };
        let query = Query { text: &text, params: vec![&scope.workspace, &after, &looked_at, &table] };
        let [there, rows] = self.database.read(&Settings::of(scope), [there, query]).await?;
        there.first().ok_or(StoreError::NotFound)?;
        let total = rows.first().map_or(Ok(0), |row| row.try_get(2))?;
        Ok(listed(rows.iter().map(read).collect::<Result<_>>()?, total, limit))
    }

    async fn find_row(&self, scope: &Scope, table: Uuid, id: Uuid) -> Result<Option<table::Row>> {
        let text = format!(
            "SELECT id, cells FROM table_rows WHERE {} AND table_id = $2 AND id = $3 AND import_id IS NULL",
            inside(self.database.dialect, "workspace_id")
        );
        let query = Query { text: &text, params: vec![&scope.workspace, &table, &id] };
        let [rows] = self.database.read(&Settings::of(scope), [query]).await?;
        rows.first().map(read).transpose()
    }

    async fn update_row(&self, scope: &Scope, table: Uuid, row: &table::Row, now: Timestamp) -> Result<()> {
        let rows = written(std::slice::from_ref(row), index_tsvector)?;
        transaction!(self.database, begin_write, Settings::of(scope), |tx| update(
            tx, scope, table, &rows[0], now
        ))
    }

    async fn remove_row(&self, scope: &Scope, table: Uuid, id: Uuid, now: Timestamp) -> Result<()> {
        transaction!(self.database, begin_write, Settings::of(scope), |tx| remove(tx, scope, table, id, now))
    }

    async fn search_rows(
        &self,
        scope: &Scope,
        table: Option<Uuid>,
        asked: &TextSearch,
    ) -> Result<Listed<FoundRow>> {
        let settings = searching(scope, table, asked);
        transaction!(self.database, begin_read, settings, |tx| search(tx, scope, table, asked))
    }
}

/// The word that all rows of a table have.
fn table_word(table: Uuid) -> String {
    format!("'#{}'", table.simple())
}

fn read(row: &Row) -> Result<domain::table::Row> {
    Ok(domain::table::Row { id: row.try_get(0)?, cells: read_cells(row.try_get(1)?)? })
}

pub(super) async fn add(
    tx: &Transaction,
    scope: &Scope,
    table: Uuid,
    rows: &[WrittenRow],
    now: Timestamp,
) -> Result<()> {
    tables::count(tx, scope, table, rows.len() as i64, now).await?;
    insert(tx, scope, table, rows, None, now).await
}

async fn stage(
    tx: &Transaction,
    scope: &Scope,
    table: Uuid,
    import: Uuid,
    rows: &[WrittenRow],
    now: Timestamp,
) -> Result<()> {
    tables::get(tx, scope, table, "FOR KEY SHARE").await?;
    insert(tx, scope, table, rows, Some(import), now).await
}

async fn insert(
    tx: &Transaction,
    scope: &Scope,
    table: Uuid,
    rows: &[WrittenRow],
    import: Option<Uuid>,
    now: Timestamp,
) -> Result<()> {
    let ids: Vec<Uuid> = rows.iter().map(|row| row.id).collect();
    let cells: Vec<&str> = rows.iter().map(|row| row.cells.as_str()).collect();
    tx.execute(
        "INSERT INTO table_rows (workspace_id, table_id, id, cells, import_id, created_at, updated_at) \
         SELECT $1, $2, id, cells, $5, $6, $6 FROM unnest($3::uuid[], $4::text[]) AS new (id, cells)",
        &[&scope.workspace, &table, &ids, &cells, &import, &now],
    )
    .await?;
    index(tx, scope, table, rows).await
}

async fn index(tx: &Transaction, scope: &Scope, table: Uuid, rows: &[WrittenRow]) -> Result<()> {
    let ids: Vec<Uuid> = rows.iter().map(|row| row.id).collect();
    let places = format!("{} {}", workspace_word(scope.workspace), table_word(table));
    let words: Vec<String> = rows.iter().map(|row| format!("{places} {}", row.words)).collect();
    tx.execute(
        "INSERT INTO row_search (workspace_id, table_id, row_id, words) \
         SELECT $1, $2, id, words::tsvector FROM unnest($3::uuid[], $4::text[]) AS new (id, words)",
        &[&scope.workspace, &table, &ids, &words],
    )
    .await?;
    Ok(())
}

async fn keep(
    tx: &Transaction,
    scope: &Scope,
    table: Uuid,
    import: Uuid,
    staged: u64,
    now: Timestamp,
) -> Result<()> {
    // The table first, as everyone does who changes it and its rows.
    tables::count(tx, scope, table, staged as i64, now).await?;
    let own = tx.inside("workspace_id");
    let text =
        format!("UPDATE table_rows SET import_id = NULL WHERE {own} AND table_id = $2 AND import_id = $3");
    if tx.execute(&text, &[&scope.workspace, &table, &import]).await? != staged {
        return Err(StoreError::NotFound);
    }
    let text = format!(
        "DELETE FROM table_rows WHERE {own} AND table_id = $2 AND import_id IS NOT NULL AND created_at < $3"
    );
    let stale = from_ms(now.as_millisecond() - STALE_MS);
    tx.execute(&text, &[&scope.workspace, &table, &stale]).await?;
    Ok(())
}

async fn drop_staged(tx: &Transaction, scope: &Scope, table: Uuid, import: Uuid) -> Result<()> {
    let own = tx.inside("workspace_id");
    let text = format!("DELETE FROM table_rows WHERE {own} AND table_id = $2 AND import_id = $3");
    tx.execute(&text, &[&scope.workspace, &table, &import]).await?;
    Ok(())
}

async fn update(
    tx: &Transaction,
    scope: &Scope,
    table: Uuid,
    row: &WrittenRow,
    now: Timestamp,
) -> Result<()> {
    tables::count(tx, scope, table, 0, now).await?;
    let own = tx.inside("workspace_id");
    let text = format!(
        "UPDATE table_rows SET cells = $4, updated_at = $5 \
         WHERE {own} AND table_id = $2 AND id = $3 AND import_id IS NULL"
    );
    let bound: Params<'_> = vec![&scope.workspace, &table, &row.id, &row.cells, &now];
    if tx.execute(&text, &bound).await? == 0 {
        return Err(StoreError::NotFound);
    }
    let text = format!("DELETE FROM row_search WHERE {own} AND table_id = $2 AND row_id = $3");
    tx.execute(&text, &[&scope.workspace, &table, &row.id]).await?;
    index(tx, scope, table, std::slice::from_ref(row)).await
}

async fn remove(tx: &Transaction, scope: &Scope, table: Uuid, id: Uuid, now: Timestamp) -> Result<()> {
    tables::count(tx, scope, table, -1, now).await?;
    let text = format!(
        "DELETE FROM table_rows WHERE {} AND table_id = $2 AND id = $3 AND import_id IS NULL",
        tx.inside("workspace_id")
    );
    let removed = tx.execute(&text, &[&scope.workspace, &table, &id]).await?;
    if removed == 0 { Err(StoreError::NotFound) } else { Ok(()) }
}

/// The settings of a transaction that searches.
fn searching(scope: &Scope, table: Option<Uuid>, search: &TextSearch) -> Settings {
    let words = search.query.tsquery();
    Settings::of(scope).matching(&match table {
        Some(table) => format!("{} & ({words})", table_word(table)),
        None => words,
    })
}

/// In a transaction of such settings.
async fn search(
    tx: &Transaction,
    scope: &Scope,
    table: Option<Uuid>,
    search: &TextSearch,
) -> Result<Listed<FoundRow>> {
    if let Some(table) = table {
        tables::get(tx, scope, table, "").await?;
    }
    // The table is in the words; here it is for the walk by its key.
    let matching = format!(
        "SELECT s.table_id, s.row_id, r.bytes, ts_rank(s.words, $2::text::tsquery, 1) FROM row_search s \
         CROSS JOIN LATERAL (SELECT octet_length(r.cells) AS bytes FROM table_rows r \
         WHERE r.workspace_id = s.workspace_id AND r.table_id = s.table_id AND r.id = s.row_id \
         AND r.import_id IS NULL OFFSET 0) r WHERE {} AND {}",
        tx.inside("s.workspace_id"),
        if table.is_some() { "s.table_id = $3::uuid" } else { "$3::uuid IS NULL" }
    );
    let walk = format!("{matching} ORDER BY s.row_id DESC");
    let words = search.query.tsquery();
    let rows = newest(tx, &matching, &walk, vec![&scope.workspace, &words, &table], CANDIDATES).await?;
    let read_candidate = |row: &Row| {
        Ok(Candidate {
            table: row.try_get(0)?,
            id: row.try_get(1)?,
            title: None,
            bytes: i64::from(row.try_get::<_, i32>(2)?),
            score: f64::from(row.try_get::<_, f32>(3)?),
        })
    };
    let mut found: Vec<Candidate> = rows.iter().map(read_candidate).collect::<Result<_>>()?;
    found.sort_by_key(|one| std::cmp::Reverse(one.id));
    found.truncate(CANDIDATES);
    let Listed { items, more } = best(found, search);
    let (in_tables, ids): (Vec<Uuid>, Vec<Uuid>) = items.iter().map(|one| (one.table, one.id)).unzip();
    let text = format!(
        "SELECT r.id, r.cells, r.table_id FROM unnest($2::uuid[], $3::uuid[]) WITH ORDINALITY AS f (in_table, row, place) \
         JOIN table_rows r ON {} AND r.table_id = f.in_table AND r.id = f.row ORDER BY f.place",
        tx.inside("r.workspace_id")
    );
    let rows = tx.rows(&text, &[&scope.workspace, &in_tables, &ids]).await?;
    let items = rows.iter().map(|row| Ok(FoundRow { table: row.try_get(2)?, row: read(row)? }));
    Ok(Listed { items: items.collect::<Result<_>>()?, more })
}
