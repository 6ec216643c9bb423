//! Tool servers that admins have added.

use async_trait::async_trait;
use domain::audit::Action;
use domain::scope::Scope;
use domain::tool_server::{Pin, ToolServer};
use jiff::Timestamp;
use tokio_postgres::Row;

use super::transaction::{Query, Settings, Transaction, inside, transaction};
use super::{PostgresStore, audit, workspaces};
use crate::error::{Result, StoreError};
use crate::store::tool_servers::ToolServers;

#[async_trait]
impl ToolServers for PostgresStore {
    async fn add_tool_server(&self, scope: &Scope, server: &ToolServer) -> Result<()> {
        transaction!(self.database, begin_write, Settings::of(scope), |tx| add(tx, scope, server))
    }

    async fn list_tool_servers(
        &self,
        scope: &Scope,
        after: Option<&str>,
        limit: usize,
    ) -> Result<Vec<ToolServer>> {
        let text = format!(
            "SELECT id, name, url, sealed, created_by, created_at FROM tool_servers \
             WHERE {} AND name > $2 ORDER BY name LIMIT $3",
            inside(self.database.dialect, "workspace_id")
        );
        let (after, limit) = (after.unwrap_or(""), limit as i64);
        let query = Query { text: &text, params: vec![&scope.workspace, &after, &limit] };
        let [rows] = self.database.read(&Settings::of(scope), [query]).await?;
        rows.iter().map(read).collect()
    }

    async fn remove_tool_server(&self, scope: &Scope, name: &str, now: Timestamp) -> Result<()> {
        transaction!(self.database, begin_write, Settings::of(scope), |tx| remove(tx, scope, name, now))
    }

    async fn list_tool_pins(&self, scope: &Scope, server: &str) -> Result<Vec<Pin>> {
        let own = inside(self.database.dialect, "workspace_id");
        let text = format!("SELECT tool, hash FROM tool_pins WHERE {own} AND server = $2");
        let query = Query { text: &text, params: vec![&scope.workspace, &server] };
        let [rows] = self.database.read(&Settings::of(scope), [query]).await?;
        rows.iter().map(|row| Ok(Pin { tool: row.try_get(0)?, hash: row.try_get(1)? })).collect()
    }

    async fn pin_tools(&self, scope: &Scope, server: &str, pins: &[Pin]) -> Result<()> {
        transaction!(self.database, begin_write, Settings::of(scope), |tx| pin(tx, scope, server, pins))
    }

    async fn approve_tool(
        &self,
        scope: &Scope,
        server: (&str, &str),
        pin: &Pin,
        now: Timestamp,
    ) -> Result<()> {
        transaction!(self.database, begin_write, Settings::of(scope), |tx| approve(
            tx, scope, server, pin, now
        ))
    }
}

fn read(row: &Row) -> Result<ToolServer> {
    Ok(ToolServer {
        id: row.try_get(0)?,
        name: row.try_get(1)?,
        url: row.try_get(2)?,
        sealed: row.try_get(3)?,
        created_by: row.try_get(4)?,
        created_at: row.try_get(5)?,
    })
}

async fn add(tx: &Transaction, scope: &Scope, server: &ToolServer) -> Result<()> {
    workspaces::get(tx, scope, "FOR NO KEY UPDATE").await?;
    tx.insert(
        "name",
        "INSERT INTO tool_servers (workspace_id, name, id, url, sealed, created_by, created_at) \
         VALUES ($1, $2, $3, $4, $5, $6, $7)",
        &[
            &scope.workspace,
            &server.name,
            &server.id,
            &server.url,
            &server.sealed,
            &server.created_by,
            &server.created_at,
        ],
    )
    .await?;
    audit::note(tx, scope, server.created_at, Action::ToolServerAdd, &server.name, &server.url).await
}

async fn remove(tx: &Transaction, scope: &Scope, name: &str, now: Timestamp) -> Result<()> {
    let text = format!("DELETE FROM tool_servers WHERE {} AND name = $2", tx.inside("workspace_id"));
    if tx.execute(&text, &[&scope.workspace, &name]).await? == 0 {
        return Err(StoreError::NotFound);
    }
    audit::note(tx, scope, now, Action::ToolServerRemove, name, "").await
}

async fn pin(tx: &Transaction, scope: &Scope, server: &str, pins: &[Pin]) -> Result<()> {
    for pin in pins {
        tx.execute(
            "INSERT INTO tool_pins (workspace_id, server, tool, hash) VALUES ($1, $2, $3, $4) \
             ON CONFLICT DO NOTHING",
            &[&scope.workspace, &server, &pin.tool, &pin.hash],
        )
        .await?;
    }
    Ok(())
}

async fn approve(
    tx: &Transaction,
    scope: &Scope,
    (server, name): (&str, &str),
    pin: &Pin,
    now: Timestamp,
) -> Result<()> {
    let own = tx.inside("workspace_id");
    let text = format!("UPDATE tool_pins SET hash = $4 WHERE {own} AND server = $2 AND tool = $3");
    if tx.execute(&text, &[&scope.workspace, &server, &pin.tool, &pin.hash]).await? == 0 {
        return Err(StoreError::NotFound);
    }
    let detail = format!("{} {}", pin.tool, pin.hash);
    audit::note(tx, scope, now, Action::ToolServerApprove, name, &detail).await
}
