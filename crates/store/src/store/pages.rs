//! Pages of knowledge.

use async_trait::async_trait;
use domain::page::Page;
use domain::scope::Scope;
use uuid::Uuid;

use crate::error::Result;
use crate::knowledge::{Listed, TextSearch};

#[async_trait]
pub trait Pages: Send + Sync {
    async fn create_page(&self, scope: &Scope, page: &Page) -> Result<()>;

    /// Changes the page with that id to this one. `NotFound` when there is none.
    async fn update_page(&self, scope: &Scope, page: &Page) -> Result<()>;

    async fn find_page(&self, scope: &Scope, id: Uuid) -> Result<Option<Page>>;

    /// Pages in the order they were made, after `after`: at most `limit`, and fewer where they are long.
    async fn list_pages(&self, scope: &Scope, after: Option<Uuid>, limit: usize) -> Result<Listed<Page>>;

    /// Removes a page for good, its words in the search index too.
    async fn remove_page(&self, scope: &Scope, id: Uuid) -> Result<()>;

    /// Pages that have the words in their title or body, best first.
    async fn search_pages(&self, scope: &Scope, search: &TextSearch) -> Result<Listed<Page>>;
}
