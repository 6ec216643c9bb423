//! Agents, and the workspace's own choice of a model.

use async_trait::async_trait;
use domain::agent::Agent;
use domain::conversation::{Conversation, Kind};
use domain::scope::Scope;
use tokio_postgres::Row;
use uuid::Uuid;

use super::transaction::{Query, Settings, Transaction, inside, transaction};
use super::{PostgresStore, workspaces};
use crate::error::{Result, StoreError};
use crate::store::agents::Agents;
use crate::turns::{parse_json, to_json};

#[async_trait]
impl Agents for PostgresStore {
    async fn put_agent(&self, scope: &Scope, agent: &Agent) -> Result<()> {
        transaction!(self.database, begin_write, Settings::of(scope), |tx| put(tx, scope, agent))
    }

    async fn list_agents(&self, scope: &Scope, after: Option<Uuid>, limit: usize) -> Result<Vec<Agent>> {
        let text = format!(
            "SELECT {COLUMNS} FROM agents WHERE {} AND id > $2 ORDER BY id LIMIT $3",
            inside(self.database.dialect, "workspace_id")
        );
        let (after, limit) = (after.unwrap_or(Uuid::nil()), limit as i64);
        let query = Query { text: &text, params: vec![&scope.workspace, &after, &limit] };
        let [rows] = self.database.read(&Settings::of(scope), [query]).await?;
        rows.iter().map(read).collect()
    }

    async fn find_agent(&self, scope: &Scope, id: Uuid) -> Result<Option<Agent>> {
        let text = format!(
            "SELECT {COLUMNS} FROM agents WHERE {} AND id = $2",
            inside(self.database.dialect, "workspace_id")
        );
        let query = Query { text: &text, params: vec![&scope.workspace, &id] };
        let [rows] = self.database.read(&Settings::of(scope), [query]).await?;
        rows.first().map(read).transpose()
    }

    async fn remove_agent(&self, scope: &Scope, id: Uuid) -> Result<()> {
        transaction!(self.database, begin_write, Settings::of(scope), |tx| remove(tx, scope, id))
    }

    async fn get_workspace_model(&self, scope: &Scope) -> Result<Option<String>> {
        let text = format!(
            "SELECT model FROM workspaces WHERE {} AND deleted_at IS NULL",
            inside(self.database.dialect, "id")
        );
        let query = Query { text: &text, params: vec![&scope.workspace] };
        let [rows] = self.database.read(&Settings::of(scope), [query]).await?;
        Ok(rows.first().ok_or(StoreError::NotFound)?.try_get(0)?)
    }

    async fn set_workspace_model(&self, scope: &Scope, model: Option<&str>) -> Result<()> {
        transaction!(self.database, begin_write, Settings::of(scope), |tx| set_model(tx, scope, model))
    }
}

const COLUMNS: &str = "id, name, settings, created_at, updated_at";

fn read(row: &Row) -> Result<Agent> {
    Ok(Agent {
        id: row.try_get(0)?,
        name: row.try_get(1)?,
        settings: parse_json(row.try_get(2)?)?,
        created_at: row.try_get(3)?,
        updated_at: row.try_get(4)?,
    })
}

async fn put(tx: &Transaction, scope: &Scope, agent: &Agent) -> Result<()> {
    workspaces::get(tx, scope, "FOR NO KEY UPDATE").await?;
    let settings = to_json(&agent.settings)?;
    tx.execute(
        "INSERT INTO agents (workspace_id, id, name, settings, created_at, updated_at) \
         VALUES ($1, $2, $3, $4, $5, $6) \
         ON CONFLICT (workspace_id, id) DO UPDATE SET name = $3, settings = $4, updated_at = $6",
        &[&scope.workspace, &agent.id, &agent.name, &settings, &agent.created_at, &agent.updated_at],
    )
    .await?;
    Ok(())
}

/// A conversation's agent decides by what it is answered, whatever the mode.
pub(super) async fn decide_kind(tx: &Transaction, scope: &Scope, thread: &mut Conversation) -> Result<()> {
    let Some(id) = thread.agent_id.as_deref().and_then(|id| Uuid::try_parse(id).ok()) else { return Ok(()) };
    let text = format!("SELECT {COLUMNS} FROM agents WHERE {} AND id = $2", tx.inside("workspace_id"));
    if let Some(row) = tx.row(&text, &[&scope.workspace, &id]).await? {
        thread.kind = Kind::run_by(read(&row)?.settings.runner);
    }
    Ok(())
}

async fn remove(tx: &Transaction, scope: &Scope, id: Uuid) -> Result<()> {
    let text = format!("DELETE FROM agents WHERE {} AND id = $2", tx.inside("workspace_id"));
    let removed = tx.execute(&text, &[&scope.workspace, &id]).await?;
    if removed == 0 { Err(StoreError::NotFound) } else { Ok(()) }
}

async fn set_model(tx: &Transaction, scope: &Scope, model: Option<&str>) -> Result<()> {
    let text = format!("UPDATE workspaces SET model = $2 WHERE {} AND deleted_at IS NULL", tx.inside("id"));
    let set = tx.execute(&text, &[&scope.workspace, &model]).await?;
    if set == 0 { Err(StoreError::NotFound) } else { Ok(()) }
}
