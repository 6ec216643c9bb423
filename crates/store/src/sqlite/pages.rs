//! Pages and their words.

use async_trait::async_trait;
use domain::page::Page;
use domain::scope::Scope;
use domain::search::{Query, index_text};
use domain::time::from_ms;
use rusqlite::{Connection, OptionalExtension, Row, params};
use uuid::Uuid;

use super::writer::Durability;
use super::{SqliteStore, workspaces};
use crate::error::{Result, StoreError};
use crate::knowledge::{Candidate, Listed, TextSearch, best, list_text, listed};
use crate::search::CANDIDATES;
use crate::store::pages::Pages;

#[async_trait]
impl Pages for SqliteStore {
    async fn create_page(&self, scope: &Scope, page: &Page) -> Result<()> {
        let (scope, page) = (scope.clone(), page.clone());
        self.writer.write(Durability::Full, move |db| create(db, &scope, &page)).await
    }

    async fn update_page(&self, scope: &Scope, page: &Page) -> Result<()> {
        let (scope, page) = (scope.clone(), page.clone());
        self.writer.write(Durability::Full, move |db| update(db, &scope, &page)).await
    }

    async fn find_page(&self, scope: &Scope, id: Uuid) -> Result<Option<Page>> {
        let scope = scope.clone();
        self.readers.read(move |db| find(db, &scope, id)).await
    }

    async fn list_pages(&self, scope: &Scope, after: Option<Uuid>, limit: usize) -> Result<Listed<Page>> {
        let scope = scope.clone();
        self.readers.read(move |db| list(db, &scope, after, limit)).await
    }

    async fn remove_page(&self, scope: &Scope, id: Uuid) -> Result<()> {
        let scope = scope.clone();
        self.writer.write(Durability::Full, move |db| remove(db, &scope, id)).await
    }

    async fn search_pages(&self, scope: &Scope, asked: &TextSearch) -> Result<Listed<Page>> {
        let (scope, asked) = (scope.clone(), asked.clone());
        self.readers.read(move |db| search(db, &scope, &asked)).await
    }
}

const COLUMNS: &str = "t.id, t.title, t.body, t.url, t.created_at, t.updated_at";

fn read(row: &Row<'_>) -> rusqlite::Result<Page> {
    Ok(Page {
        id: row.get(0)?,
        title: row.get(1)?,
        body: row.get(2)?,
        url: row.get(3)?,
        created_at: from_ms(row.get(4)?),
        updated_at: from_ms(row.get(5)?),
    })
}

/// The word of a place in the index.
pub(super) fn place(of: char, id: Uuid) -> String {
    format!("{of}{}", id.simple())
}

/// For `MATCH`: the query's words in that place.
pub(super) fn within(place: &str, query: &Query) -> String {
    format!("place : \"{place}\" AND words : ({})", query.fts5())
}

fn index(db: &Connection, scope: &Scope, pk: i64, page: &Page) -> Result<()> {
    db.prepare_cached("INSERT INTO page_search (rowid, place, words) VALUES (?1, ?2, ?3)")?
        .execute(params![pk, place('w', scope.workspace), index_text(&page.text())])?;
    Ok(())
}

fn create(db: &Connection, scope: &Scope, page: &Page) -> Result<()> {
    workspaces::find(db, scope)?.ok_or(StoreError::NotFound)?;
    db.prepare_cached(
        "INSERT INTO pages (workspace_id, id, title, body, url, created_at, updated_at) \
         VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7)",
    )?
    .execute(params![
        scope.workspace,
        page.id,
        page.title,
        page.body,
        page.url,
        page.created_at.as_millisecond(),
        page.updated_at.as_millisecond()
    ])?;
    index(db, scope, db.last_insert_rowid(), page)
}

fn update(db: &Connection, scope: &Scope, page: &Page) -> Result<()> {
    let pk = db
        .prepare_cached(
            "UPDATE pages SET title = ?3, body = ?4, url = ?5, updated_at = ?6 \
             WHERE workspace_id = ?1 AND id = ?2 RETURNING pk",
        )?
        .query_row(
            params![
                scope.workspace,
                page.id,
                page.title,
                page.body,
                page.url,
                page.updated_at.as_millisecond()
            ],
            |row| row.get(0),
        )
        .optional()?
        .ok_or(StoreError::NotFound)?;
    db.prepare_cached("DELETE FROM page_search WHERE rowid = ?1")?.execute([pk])?;
    index(db, scope, pk, page)
}

fn find(db: &Connection, scope: &Scope, id: Uuid) -> Result<Option<Page>> {
    let text = format!("SELECT {COLUMNS} FROM pages t WHERE workspace_id = ?1 AND id = ?2");
    Ok(db.prepare_cached(&text)?.query_row(params![scope.workspace, id], read).optional()?)
}

fn list(db: &Connection, scope: &Scope, after: Option<Uuid>, limit: usize) -> Result<Listed<Page>> {
    let text = list_text("pages", COLUMNS, "body", "workspace_id = ?1", '?');
    let mut statement = db.prepare_cached(&text)?;
    let bound = params![scope.workspace, after.unwrap_or(Uuid::nil()), limit as i64 + 1];
    let mut total = 0;
    let rows = statement.query_map(bound, |row| {
        total = row.get(6)?;
        read(row)
    })?;
    let pages = rows.collect::<rusqlite::Result<_>>()?;
    Ok(listed(pages, total, limit))
}

fn remove(db: &Connection, scope: &Scope, id: Uuid) -> Result<()> {
    let pk: i64 = db
        .query_row(
            "DELETE FROM pages WHERE workspace_id = ?1 AND id = ?2 RETURNING pk",
            params![scope.workspace, id],
            |row| row.get(0),
        )
        .optional()?
        .ok_or(StoreError::NotFound)?;
    db.execute("DELETE FROM page_search WHERE rowid = ?1", [pk])?;
    Ok(())
}

fn search(db: &Connection, scope: &Scope, search: &TextSearch) -> Result<Listed<Page>> {
    let text = format!(
        "SELECT p.id, p.title, octet_length(p.body), -bm25(page_search, 0.0, 1.0) \
         FROM page_search s JOIN pages p ON p.pk = s.rowid \
         WHERE page_search MATCH ?1 AND p.workspace_id = ?2 ORDER BY s.rowid DESC LIMIT {CANDIDATES}"
    );
    let words = within(&place('w', scope.workspace), &search.query);
    let mut statement = db.prepare_cached(&text)?;
    let rows = statement.query_map(params![words, scope.workspace], |row| {
        Ok(Candidate {
            table: Uuid::nil(),
            id: row.get(0)?,
            title: row.get(1)?,
            bytes: row.get(2)?,
            score: row.get(3)?,
        })
    })?;
    let Listed { items, more } = best(rows.collect::<rusqlite::Result<_>>()?, search);
    let pages = items.iter().map(|found| find(db, scope, found.id)).collect::<Result<Vec<_>>>()?;
    Ok(Listed { items: pages.into_iter().flatten().collect(), more })
}

/// All of a workspace that is removed.
pub(super) fn remove_all(db: &Connection, workspace: Uuid) -> Result<()> {
    db.execute(
        "DELETE FROM page_search WHERE rowid IN (SELECT pk FROM pages WHERE workspace_id = ?1)",
        [workspace],
    )?;
    db.execute("DELETE FROM pages WHERE workspace_id = ?1", [workspace])?;
    Ok(())
}
