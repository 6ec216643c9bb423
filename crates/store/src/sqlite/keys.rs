//! API keys, kept as hashes.

use async_trait::async_trait;
use domain::audit::Action;
use domain::scope::{Role, Scope};
use domain::time::from_ms;
use domain::workspace::{ApiKey, KeyGrant};
use jiff::Timestamp;
use rusqlite::{Connection, OptionalExtension, Row, params};
use uuid::Uuid;

use super::workspaces::{self, read_role};
use super::writer::Durability;
use super::{SqliteStore, audit};
use crate::error::{Result, StoreError};
use crate::store::keys::Keys;

#[async_trait]
impl Keys for SqliteStore {
    async fn create_key(&self, scope: &Scope, key: &ApiKey, hash: [u8; 32]) -> Result<()> {
        let (scope, key) = (scope.clone(), key.clone());
        self.writer.write(Durability::Full, move |db| create(db, &scope, &key, hash)).await
    }

    async fn list_keys(&self, scope: &Scope, after: Option<Uuid>, limit: usize) -> Result<Vec<ApiKey>> {
        let scope = scope.clone();
        self.readers.read(move |db| list(db, &scope, after, limit)).await
    }

    async fn remove_key(&self, scope: &Scope, id: Uuid, now: Timestamp) -> Result<()> {
        let scope = scope.clone();
        self.writer.write(Durability::Full, move |db| remove(db, &scope, id, now)).await
    }

    async fn find_key(&self, workspace: Uuid, hash: [u8; 32]) -> Result<Option<KeyGrant>> {
        self.readers.look_up(move |db| find(db, workspace, hash)).await
    }
}

/// Reads `id, name, role, created_by, created_at`.
fn read(row: &Row<'_>) -> rusqlite::Result<ApiKey> {
    Ok(ApiKey {
        id: row.get(0)?,
        name: row.get(1)?,
        role: read_role(row, 2)?,
        created_by: row.get(3)?,
        created_at: from_ms(row.get(4)?),
    })
}

fn create(db: &Connection, scope: &Scope, key: &ApiKey, hash: [u8; 32]) -> Result<()> {
    workspaces::find(db, scope)?.ok_or(StoreError::NotFound)?;
    db.execute(
        "INSERT INTO api_keys (workspace_id, id, hash, name, role, created_by, created_at) \
         VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7)",
        params![
            scope.workspace,
            key.id,
            hash,
            key.name,
            key.role.as_str(),
            key.created_by,
            key.created_at.as_millisecond()
        ],
    )?;
    audit::note(db, scope, key.created_at, Action::KeyCreate, &key.id.to_string(), key.role.as_str())
}

fn list(db: &Connection, scope: &Scope, after: Option<Uuid>, limit: usize) -> Result<Vec<ApiKey>> {
    let mut statement = db.prepare_cached(
        "SELECT id, name, role, created_by, created_at FROM api_keys \
         WHERE workspace_id = ?1 AND id > ?2 ORDER BY id LIMIT ?3",
    )?;
    let after = after.unwrap_or(Uuid::nil());
    let rows = statement.query_map(params![scope.workspace, after, limit as i64], read)?;
    Ok(rows.collect::<rusqlite::Result<_>>()?)
}

fn remove(db: &Connection, scope: &Scope, id: Uuid, now: Timestamp) -> Result<()> {
    let removed =
        db.execute("DELETE FROM api_keys WHERE workspace_id = ?1 AND id = ?2", params![scope.workspace, id])?;
    if removed == 0 {
        return Err(StoreError::NotFound);
    }
    audit::note(db, scope, now, Action::KeyRemove, &id.to_string(), "")
}

fn find(db: &Connection, workspace: Uuid, hash: [u8; 32]) -> Result<Option<KeyGrant>> {
    let found = db
        .prepare_cached(
            "SELECT k.id, k.name, k.role, k.created_by, k.created_at, \
             w.id, w.org_id, w.name, w.default_visibility, w.created_at, m.role \
             FROM api_keys k JOIN workspaces w ON w.id = k.workspace_id \
             LEFT JOIN members m ON m.workspace_id = k.workspace_id AND m.user_id = k.created_by \
             WHERE k.workspace_id = ?1 AND k.hash = ?2 AND w.deleted_at IS NULL",
        )?
        .query_row(params![workspace, hash], |row| {
            let maker_role: Option<String> = row.get(10)?;
            Ok(KeyGrant {
                key: read(row)?,
                workspace: workspaces::read(row, 5)?,
                maker_role: maker_role.as_deref().and_then(Role::parse),
            })
        })
        .optional()?;
    Ok(found)
}
