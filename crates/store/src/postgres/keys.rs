//! API keys, kept as hashes.

use async_trait::async_trait;
use domain::audit::Action;
use domain::scope::{Role, Scope};
use domain::workspace::{ApiKey, KeyGrant};
use jiff::Timestamp;
use tokio_postgres::Row;
use uuid::Uuid;

use super::transaction::{Query, Settings, Transaction, inside, transaction};
use super::workspaces::{self, read_role};
use super::{PostgresStore, audit};
use crate::error::{Result, StoreError};
use crate::store::keys::Keys;

#[async_trait]
impl Keys for PostgresStore {
    async fn create_key(&self, scope: &Scope, key: &ApiKey, hash: [u8; 32]) -> Result<()> {
        transaction!(self.database, begin_write, Settings::of(scope), |tx| create(tx, scope, key, hash))
    }

    async fn list_keys(&self, scope: &Scope, after: Option<Uuid>, limit: usize) -> Result<Vec<ApiKey>> {
        let text = format!(
            "SELECT id, name, role, created_by, created_at FROM api_keys WHERE {} AND id > $2 ORDER BY id LIMIT $3",
            inside(self.database.dialect, "workspace_id")
        );
        let (after, limit) = (after.unwrap_or(Uuid::nil()), limit as i64);
        let query = Query { text: &text, params: vec![&scope.workspace, &after, &limit] };
        let [rows] = self.database.read(&Settings::of(scope), [query]).await?;
        rows.iter().map(read).collect()
    }

    async fn remove_key(&self, scope: &Scope, id: Uuid, now: Timestamp) -> Result<()> {
        transaction!(self.database, begin_write, Settings::of(scope), |tx| remove(tx, scope, id, now))
    }

    async fn find_key(&self, workspace: Uuid, hash: [u8; 32]) -> Result<Option<KeyGrant>> {
        let text = format!(
            "SELECT k.id, k.name, k.role, k.created_by, k.created_at, \
             w.id, w.org_id, w.name, w.default_visibility, w.created_at, m.role \
             FROM api_keys k JOIN workspaces w ON w.id = k.workspace_id \
             LEFT JOIN members m ON m.workspace_id = k.workspace_id AND m.user_id = k.created_by \
             WHERE {} AND k.hash = $2 AND w.deleted_at IS NULL",
            inside(self.database.dialect, "k.workspace_id")
        );
        let hash = hash.as_slice();
        let query = Query { text: &text, params: vec![&workspace, &hash] };
        let [rows] = self.database.read(&Settings::workspace(workspace), [query]).await?;
        let Some(row) = rows.first() else { return Ok(None) };
        let maker_role: Option<&str> = row.try_get(10)?;
        Ok(Some(KeyGrant {
            key: read(row)?,
            workspace: workspaces::read(row, 5)?,
            maker_role: maker_role.and_then(Role::parse),
        }))
    }
}

/// Reads `id, name, role, created_by, created_at`.
fn read(row: &Row) -> Result<ApiKey> {
    Ok(ApiKey {
        id: row.try_get(0)?,
        name: row.try_get(1)?,
        role: read_role(row, 2)?,
        created_by: row.try_get(3)?,
        created_at: row.try_get(4)?,
    })
}

async fn create(tx: &Transaction, scope: &Scope, key: &ApiKey, hash: [u8; 32]) -> Result<()> {
    workspaces::get(tx, scope, "FOR NO KEY UPDATE").await?;
    tx.execute(
        "INSERT INTO api_keys (workspace_id, id, hash, name, role, created_by, created_at) \
         VALUES ($1, $2, $3, $4, $5, $6, $7)",
        &[
            &scope.workspace,
            &key.id,
            &hash.as_slice(),
            &key.name,
            &key.role.as_str(),
            &key.created_by,
            &key.created_at,
        ],
    )
    .await?;
    audit::note(tx, scope, key.created_at, Action::KeyCreate, &key.id.to_string(), key.role.as_str()).await
}

async fn remove(tx: &Transaction, scope: &Scope, id: Uuid, now: Timestamp) -> Result<()> {
    let text = format!("DELETE FROM api_keys WHERE {} AND id = $2", tx.inside("workspace_id"));
    if tx.execute(&text, &[&scope.workspace, &id]).await? == 0 {
        return Err(StoreError::NotFound);
    }
    audit::note(tx, scope, now, Action::KeyRemove, &id.to_string(), "").await
}
