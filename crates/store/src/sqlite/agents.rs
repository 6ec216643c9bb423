//! Agents, and the workspace's own choice of a model.

use async_trait::async_trait;
use domain::agent::Agent;
use domain::conversation::{Conversation, Kind};
use domain::scope::Scope;
use domain::time::from_ms;
use rusqlite::{Connection, OptionalExtension, Row, params};
use uuid::Uuid;

use super::writer::Durability;
use super::{SqliteStore, workspaces};
use crate::error::{Result, StoreError};
use crate::store::agents::Agents;
use crate::turns::{parse_json, to_json};

#[async_trait]
impl Agents for SqliteStore {
    async fn put_agent(&self, scope: &Scope, agent: &Agent) -> Result<()> {
        let (scope, agent) = (scope.clone(), agent.clone());
        self.writer.write(Durability::Full, move |db| put(db, &scope, &agent)).await
    }

    async fn list_agents(&self, scope: &Scope, after: Option<Uuid>, limit: usize) -> Result<Vec<Agent>> {
        let scope = scope.clone();
        self.readers.read(move |db| list(db, &scope, after, limit)).await
    }

    async fn find_agent(&self, scope: &Scope, id: Uuid) -> Result<Option<Agent>> {
        let scope = scope.clone();
        self.readers.read(move |db| find(db, &scope, id)).await
    }

    async fn remove_agent(&self, scope: &Scope, id: Uuid) -> Result<()> {
        let scope = scope.clone();
        self.writer.write(Durability::Full, move |db| remove(db, &scope, id)).await
    }

    async fn get_workspace_model(&self, scope: &Scope) -> Result<Option<String>> {
        let scope = scope.clone();
        self.readers.read(move |db| model(db, &scope)).await
    }

    async fn set_workspace_model(&self, scope: &Scope, model: Option<&str>) -> Result<()> {
        let (scope, model) = (scope.clone(), model.map(str::to_owned));
        self.writer.write(Durability::Full, move |db| set_model(db, &scope, model.as_deref())).await
    }
}

fn read(row: &Row<'_>) -> rusqlite::Result<(Agent, String)> {
    let agent = Agent {
        id: row.get(0)?,
        name: row.get(1)?,
        settings: Default::default(),
        created_at: from_ms(row.get(3)?),
        updated_at: from_ms(row.get(4)?),
    };
    Ok((agent, row.get(2)?))
}

fn whole((agent, settings): (Agent, String)) -> Result<Agent> {
    Ok(Agent { settings: parse_json(&settings)?, ..agent })
}

fn put(db: &Connection, scope: &Scope, agent: &Agent) -> Result<()> {
    workspaces::find(db, scope)?.ok_or(StoreError::NotFound)?;
    db.execute(
        "INSERT INTO agents (workspace_id, id, name, settings, created_at, updated_at) \
         VALUES (?1, ?2, ?3, ?4, ?5, ?6) \
         ON CONFLICT (workspace_id, id) DO UPDATE SET name = ?3, settings = ?4, updated_at = ?6",
        params![
            scope.workspace,
            agent.id,
            agent.name,
            to_json(&agent.settings)?,
            agent.created_at.as_millisecond(),
            agent.updated_at.as_millisecond()
        ],
    )?;
    Ok(())
}

fn list(db: &Connection, scope: &Scope, after: Option<Uuid>, limit: usize) -> Result<Vec<Agent>> {
    let mut statement = db.prepare_cached(
        "SELECT id, name, settings, created_at, updated_at FROM agents \
         WHERE workspace_id = ?1 AND id > ?2 ORDER BY id LIMIT ?3",
    )?;
    let after = after.unwrap_or(Uuid::nil());
    let rows = statement.query_map(params![scope.workspace, after, limit as i64], read)?;
    rows.map(|row| whole(row?)).collect()
}

fn find(db: &Connection, scope: &Scope, id: Uuid) -> Result<Option<Agent>> {
    let row = db
        .prepare_cached(
            "SELECT id, name, settings, created_at, updated_at FROM agents WHERE workspace_id = ?1 AND id = ?2",
        )?
        .query_row(params![scope.workspace, id], read)
        .optional()?;
    row.map(whole).transpose()
}

/// A conversation's agent decides by what it is answered, whatever the mode.
pub(super) fn decide_kind(db: &Connection, scope: &Scope, thread: &mut Conversation) -> Result<()> {
    if let Some(id) = thread.agent_id.as_deref().and_then(|id| Uuid::try_parse(id).ok())
        && let Some(agent) = find(db, scope, id)?
    {
        thread.kind = Kind::run_by(agent.settings.runner);
    }
    Ok(())
}

fn remove(db: &Connection, scope: &Scope, id: Uuid) -> Result<()> {
    let removed =
        db.execute("DELETE FROM agents WHERE workspace_id = ?1 AND id = ?2", params![scope.workspace, id])?;
    if removed == 0 { Err(StoreError::NotFound) } else { Ok(()) }
}

fn model(db: &Connection, scope: &Scope) -> Result<Option<String>> {
    let row = db
        .prepare_cached("SELECT model FROM workspaces WHERE id = ?1 AND deleted_at IS NULL")?
        .query_row([scope.workspace], |row| row.get(0))
        .optional()?;
    row.ok_or(StoreError::NotFound)
}

fn set_model(db: &Connection, scope: &Scope, model: Option<&str>) -> Result<()> {
    let set = db.execute(
        "UPDATE workspaces SET model = ?2 WHERE id = ?1 AND deleted_at IS NULL",
        params![scope.workspace, model],
    )?;
    if set == 0 { Err(StoreError::NotFound) } else { Ok(()) }
}
