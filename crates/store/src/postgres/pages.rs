//! Pages and their words.

use async_trait::async_trait;
use domain::page::Page;
use domain::scope::Scope;
use domain::search::index_tsvector;
use tokio_postgres::Row;
use uuid::Uuid;

use super::search::newest;
use super::transaction::{Params, Query, Settings, Transaction, inside, transaction, workspace_word};
use super::{PostgresStore, workspaces};
use crate::error::{Result, StoreError};
use crate::knowledge::{Candidate, Listed, TextSearch, best, list_text, listed};
use crate::search::CANDIDATES;
use crate::store::pages::Pages;

#[async_trait]
impl Pages for PostgresStore {
    async fn create_page(&self, scope: &Scope, page: &Page) -> Result<()> {
        transaction!(self.database, begin_write, Settings::of(scope), |tx| create(tx, scope, page))
    }

    async fn update_page(&self, scope: &Scope, page: &Page) -> Result<()> {
        transaction!(self.database, begin_write, Settings::of(scope), |tx| update(tx, scope, page))
    }

    async fn find_page(&self, scope: &Scope, id: Uuid) -> Result<Option<Page>> {
        let text = format!(
            "SELECT {COLUMNS} FROM pages t WHERE {} AND id = $2",
            inside(self.database.dialect, "workspace_id")
        );
        let query = Query { text: &text, params: vec![&scope.workspace, &id] };
        let [rows] = self.database.read(&Settings::of(scope), [query]).await?;
        rows.first().map(read).transpose()
    }

    async fn list_pages(&self, scope: &Scope, after: Option<Uuid>, limit: usize) -> Result<Listed<Page>> {
        let text = list_text("pages", COLUMNS, "body", &inside(self.database.dialect, "workspace_id"), '$');
        let (after, looked_at) = (after.unwrap_or(Uuid::nil()), limit as i64 + 1);
        let query = Query { text: &text, params: vec![&scope.workspace, &after, &looked_at] };
        let [rows] = self.database.read(&Settings::of(scope), [query]).await?;
        let total = rows.first().map_or(Ok(0), |row| row.try_get(6))?;
        Ok(listed(rows.iter().map(read).collect::<Result<_>>()?, total, limit))
    }

    async fn remove_page(&self, scope: &Scope, id: Uuid) -> Result<()> {
        transaction!(self.database, begin_write, Settings::of(scope), |tx| remove(tx, scope, id))
    }

    async fn search_pages(&self, scope: &Scope, asked: &TextSearch) -> Result<Listed<Page>> {
        let settings = Settings::of(scope).matching(&asked.query.tsquery());
        transaction!(self.database, begin_read, settings, |tx| search(tx, scope, asked))
    }
}

const COLUMNS: &str = "t.id, t.title, t.body, t.url, t.created_at, t.updated_at";

fn read(row: &Row) -> Result<Page> {
    Ok(Page {
        id: row.try_get(0)?,
        title: row.try_get(1)?,
        body: row.try_get(2)?,
        url: row.try_get(3)?,
        created_at: row.try_get(4)?,
        updated_at: row.try_get(5)?,
    })
}

async fn index(tx: &Transaction, scope: &Scope, page: &Page) -> Result<()> {
    let words = format!("{} {}", workspace_word(scope.workspace), index_tsvector(&page.text()));
    tx.execute(
        "INSERT INTO page_search (workspace_id, page_id, words) VALUES ($1, $2, $3::text::tsvector)",
        &[&scope.workspace, &page.id, &words],
    )
    .await?;
    Ok(())
}

async fn create(tx: &Transaction, scope: &Scope, page: &Page) -> Result<()> {
    workspaces::get(tx, scope, "FOR KEY SHARE").await?;
    tx.execute(
        "INSERT INTO pages (workspace_id, id, title, body, url, created_at, updated_at) \
         VALUES ($1, $2, $3, $4, $5, $6, $7)",
        &[&scope.workspace, &page.id, &page.title, &page.body, &page.url, &page.created_at, &page.updated_at],
    )
    .await?;
    index(tx, scope, page).await
}

async fn update(tx: &Transaction, scope: &Scope, page: &Page) -> Result<()> {
    let own = tx.inside("workspace_id");
    let text =
        format!("UPDATE pages SET title = $3, body = $4, url = $5, updated_at = $6 WHERE {own} AND id = $2");
    let bound: Params<'_> =
        vec![&scope.workspace, &page.id, &page.title, &page.body, &page.url, &page.updated_at];
    if tx.execute(&text, &bound).await? == 0 {
        return Err(StoreError::NotFound);
    }
    let text = format!("DELETE FROM page_search WHERE {own} AND page_id = $2");
    tx.execute(&text, &[&scope.workspace, &page.id]).await?;
    index(tx, scope, page).await
}

async fn remove(tx: &Transaction, scope: &Scope, id: Uuid) -> Result<()> {
    // Its words go with it.
    let text = format!("DELETE FROM pages WHERE {} AND id = $2", tx.inside("workspace_id"));
    let removed = tx.execute(&text, &[&scope.workspace, &id]).await?;
    if removed == 0 { Err(StoreError::NotFound) } else { Ok(()) }
}

/// Searches in a transaction whose settings name the words.
async fn search(tx: &Transaction, scope: &Scope, search: &TextSearch) -> Result<Listed<Page>> {
    let matching = "SELECT s.page_id, p.title, p.bytes, ts_rank(s.words, $2::text::tsquery, 1) FROM page_search s \
         CROSS JOIN LATERAL (SELECT p.title, octet_length(p.body) AS bytes FROM pages p \
         WHERE p.workspace_id = s.workspace_id AND p.id = s.page_id OFFSET 0) p";
    let own = tx.inside("s.workspace_id");
    let matching = format!("{matching} WHERE {own}");
    let walk = format!("{matching} ORDER BY s.page_id DESC");
    let words = search.query.tsquery();
    let rows = newest(tx, &matching, &walk, vec![&scope.workspace, &words], CANDIDATES).await?;
    let read_candidate = |row: &Row| {
        Ok(Candidate {
            table: Uuid::nil(),
            id: row.try_get(0)?,
            title: row.try_get(1)?,
            bytes: i64::from(row.try_get::<_, i32>(2)?),
            score: f64::from(row.try_get::<_, f32>(3)?),
        })
    };
    let mut found: Vec<Candidate> = rows.iter().map(read_candidate).collect::<Result<_>>()?;
    found.sort_by_key(|one| std::cmp::Reverse(one.id));
    found.truncate(CANDIDATES);
    let Listed { items, more } = best(found, search);
    let ids: Vec<Uuid> = items.iter().map(|one| one.id).collect();
    let text = format!("SELECT {COLUMNS} FROM pages t WHERE {} AND id = ANY($2)", tx.inside("workspace_id"));
    let rows = tx.rows(&text, &[&scope.workspace, &ids]).await?;
    let mut pages: Vec<Page> = rows.iter().map(read).collect::<Result<_>>()?;
    pages.sort_by_key(|page| ids.iter().position(|id| *id == page.id));
    Ok(Listed { items: pages, more })
}
