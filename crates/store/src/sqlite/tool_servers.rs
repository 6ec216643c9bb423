//! Tool servers that admins have added.

use async_trait::async_trait;
use domain::audit::Action;
use domain::scope::Scope;
use domain::time::from_ms;
use domain::tool_server::{Pin, ToolServer};
use jiff::Timestamp;
use rusqlite::{Connection, Row, params};

use super::writer::Durability;
use super::{SqliteStore, audit, is_taken, workspaces};
use crate::error::{Result, StoreError};
use crate::store::tool_servers::ToolServers;

#[async_trait]
impl ToolServers for SqliteStore {
    async fn add_tool_server(&self, scope: &Scope, server: &ToolServer) -> Result<()> {
        let (scope, server) = (scope.clone(), server.clone());
        self.writer.write(Durability::Full, move |db| add(db, &scope, &server)).await
    }

    async fn list_tool_servers(
        &self,
        scope: &Scope,
        after: Option<&str>,
        limit: usize,
    ) -> Result<Vec<ToolServer>> {
        let (scope, after) = (scope.clone(), after.map(str::to_owned));
        self.readers.read(move |db| list(db, &scope, after.as_deref(), limit)).await
    }

    async fn remove_tool_server(&self, scope: &Scope, name: &str, now: Timestamp) -> Result<()> {
        let (scope, name) = (scope.clone(), name.to_owned());
        self.writer.write(Durability::Full, move |db| remove(db, &scope, &name, now)).await
    }

    async fn list_tool_pins(&self, scope: &Scope, server: &str) -> Result<Vec<Pin>> {
        let (scope, server) = (scope.clone(), server.to_owned());
        self.readers.read(move |db| pins(db, &scope, &server)).await
    }

    async fn pin_tools(&self, scope: &Scope, server: &str, pins: &[Pin]) -> Result<()> {
        let (scope, server, pins) = (scope.clone(), server.to_owned(), pins.to_vec());
        self.writer.write(Durability::Full, move |db| pin(db, &scope, &server, &pins)).await
    }

    async fn approve_tool(
        &self,
        scope: &Scope,
        (server, name): (&str, &str),
        pin: &Pin,
        now: Timestamp,
    ) -> Result<()> {
        let (scope, server, name, pin) = (scope.clone(), server.to_owned(), name.to_owned(), pin.clone());
        let approve = move |db: &_| approve(db, &scope, (&server, &name), &pin, now);
        self.writer.write(Durability::Full, approve).await
    }
}

fn read(row: &Row<'_>) -> rusqlite::Result<ToolServer> {
    Ok(ToolServer {
        id: row.get(0)?,
        name: row.get(1)?,
        url: row.get(2)?,
        sealed: row.get(3)?,
        created_by: row.get(4)?,
        created_at: from_ms(row.get(5)?),
    })
}

fn add(db: &Connection, scope: &Scope, server: &ToolServer) -> Result<()> {
    workspaces::find(db, scope)?.ok_or(StoreError::NotFound)?;
    let added = db.execute(
        "INSERT INTO tool_servers (workspace_id, name, id, url, sealed, created_by, created_at) \
         VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7)",
        params![
            scope.workspace,
            server.name,
            server.id,
            server.url,
            server.sealed,
            server.created_by,
            server.created_at.as_millisecond()
        ],
    );
    added.map_err(|error| if is_taken(&error) { StoreError::Taken("name") } else { error.into() })?;
    audit::note(db, scope, server.created_at, Action::ToolServerAdd, &server.name, &server.url)
}

fn list(db: &Connection, scope: &Scope, after: Option<&str>, limit: usize) -> Result<Vec<ToolServer>> {
    let mut statement = db.prepare_cached(
        "SELECT id, name, url, sealed, created_by, created_at FROM tool_servers \
         WHERE workspace_id = ?1 AND name > ?2 ORDER BY name LIMIT ?3",
    )?;
    let rows = statement.query_map(params![scope.workspace, after.unwrap_or(""), limit as i64], read)?;
    Ok(rows.collect::<rusqlite::Result<_>>()?)
}

fn remove(db: &Connection, scope: &Scope, name: &str, now: Timestamp) -> Result<()> {
    let removed = db.execute(
        "DELETE FROM tool_servers WHERE workspace_id = ?1 AND name = ?2",
        params![scope.workspace, name],
    )?;
    if removed == 0 {
        return Err(StoreError::NotFound);
    }
    audit::note(db, scope, now, Action::ToolServerRemove, name, "")
}

fn pins(db: &Connection, scope: &Scope, server: &str) -> Result<Vec<Pin>> {
    let mut statement =
        db.prepare_cached("SELECT tool, hash FROM tool_pins WHERE workspace_id = ?1 AND server = ?2")?;
    let read = |row: &Row<'_>| Ok(Pin { tool: row.get(0)?, hash: row.get(1)? });
    let rows = statement.query_map(params![scope.workspace, server], read)?;
    Ok(rows.collect::<rusqlite::Result<_>>()?)
}

fn pin(db: &Connection, scope: &Scope, server: &str, pins: &[Pin]) -> Result<()> {
    let mut statement = db.prepare_cached(
        "INSERT INTO tool_pins (workspace_id, server, tool, hash) VALUES (?1, ?2, ?3, ?4) ON CONFLICT DO NOTHING",
    )?;
    for pin in pins {
        statement.execute(params![scope.workspace, server, pin.tool, pin.hash])?;
    }
    Ok(())
}

fn approve(
    db: &Connection,
    scope: &Scope,
    (server, name): (&str, &str),
    pin: &Pin,
    now: Timestamp,
) -> Result<()> {
    let changed = db.execute(
        "UPDATE tool_pins SET hash = ?4 WHERE workspace_id = ?1 AND server = ?2 AND tool = ?3",
        params![scope.workspace, server, pin.tool, pin.hash],
    )?;
    if changed == 0 {
        return Err(StoreError::NotFound);
    }
    let detail = format!("{} {}", pin.tool, pin.hash);
    audit::note(db, scope, now, Action::ToolServerApprove, name, &detail)
}
