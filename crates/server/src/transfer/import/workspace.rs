//! What the workspace itself has: settings, pages, tables, agents and files that it keeps.

use std::sync::Arc;

use anyhow::Result;
use domain::agent::Agent;
use domain::file::Bag;
use domain::page::Page;
use domain::scope::Scope;
use domain::table::{Row, Table};
use domain::transfer::{ArchivedFile, Settings};
use domain::workspace::WorkspacePatch;
use store::StoreError;
use store::files::Stored;
use store::transfer::Pieces;

use super::super::input::Bytes;
use super::super::report::Outcome;
use super::Importer;

impl Importer {
    /// A workspace that holds nothing yet takes the settings over; any other keeps its own.
    pub(super) async fn settings(&self, settings: &Settings) -> Result<Outcome> {
        let Settings { default_visibility, model } = settings;
        let own = Settings {
            default_visibility: self.target().await?.visibility,
            model: self.store.get_workspace_model(&self.scope).await?,
        };
        if own == *settings || !self.store.is_empty(&self.scope).await? {
            return Ok(Outcome::AlreadyThere);
        }
        if !self.dry {
            self.store.set_workspace_model(&self.scope, model.as_deref()).await?;
            let patch = WorkspacePatch { default_visibility: Some(*default_visibility), name: None };
            self.store.update_workspace(&self.scope, &patch, self.clock.now()).await?;
        }
        Ok(Outcome::Imported)
    }

    pub(super) async fn page(&self, page: &Page) -> Result<Outcome> {
        if self.store.find_page(&self.scope, page.id).await?.is_some() {
            return Ok(Outcome::AlreadyThere);
        }
        if !self.dry {
            self.store.create_page(&self.scope, page).await?;
        }
        Ok(Outcome::Imported)
    }

    pub(super) async fn table(&self, table: &Table, rows: &Arc<dyn Pieces<Vec<Row>>>) -> Result<Outcome> {
        if self.store.find_table(&self.scope, table.id).await?.is_some() {
            return Ok(Outcome::AlreadyThere);
        }
        let imported = self.dry || self.store.import_table(&self.scope, table, Arc::clone(rows)).await?;
        Ok(if imported { Outcome::Imported } else { Outcome::AlreadyThere })
    }

    pub(super) async fn agent(&self, agent: &Agent) -> Result<Outcome> {
        if self.store.find_agent(&self.scope, agent.id).await?.is_some() {
            return Ok(Outcome::AlreadyThere);
        }
        if !self.dry {
            self.store.put_agent(&self.scope, agent).await?;
        }
        Ok(Outcome::Imported)
    }

    /// A file that the workspace keeps: under its name, or with a number where that is taken.
    pub(super) async fn file(&self, of: &ArchivedFile, bytes: &Bytes) -> Result<Outcome> {
        let (file, bag) = (&of.file, Bag::Workspace);
        match self.store.get_file(&self.scope, file.id).await {
            Ok(_) => return Ok(Outcome::AlreadyThere),
            Err(StoreError::NotFound) if self.dry => return Ok(Outcome::Imported),
            Err(StoreError::NotFound) => {}
            Err(error) => return Err(error.into()),
        }
        let scope = Scope { user: of.user.clone(), ..self.scope.clone() };
        let Some(reserved) = self.reserve(of, bag).await? else { return Ok(Outcome::AlreadyThere) };
        let digest = self.store_bytes(&reserved.storage_key, bytes).await?;
        let stored = Stored { id: file.id, digest, mime_type: file.mime_type.clone() };
        self.store.keep_files(&scope, bag, &[stored], u64::MAX, file.created_at).await?;
        Ok(Outcome::Imported)
    }
}
