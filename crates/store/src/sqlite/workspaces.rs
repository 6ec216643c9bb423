//! Workspaces. A removed one keeps its row for as long as rows point to it.

use async_trait::async_trait;
use domain::audit::{Action, AuditEntry};
use domain::conversation::Visibility;
use domain::scope::{Role, Scope};
use domain::time::from_ms;
use domain::workspace::{Membership, Workspace, WorkspacePatch};
use jiff::Timestamp;
use rusqlite::{Connection, OptionalExtension, Row, params};
use uuid::Uuid;

use super::writer::Durability;
use super::{SqliteStore, audit, pages, runs, tables};
use crate::error::{Result, StoreError};
use crate::store::workspaces::Workspaces;

#[async_trait]
impl Workspaces for SqliteStore {
    async fn create_workspace(&self, scope: &Scope, workspace: &Workspace) -> Result<()> {
        let (scope, workspace) = (scope.clone(), workspace.clone());
        self.writer.write(Durability::Full, move |db| create(db, &scope, &workspace)).await
    }

    async fn list_memberships(
        &self,
        user: &str,
        workspace: Option<Uuid>,
        after: Option<Uuid>,
        limit: usize,
    ) -> Result<Vec<Membership>> {
        let user = user.to_owned();
        let list = move |db: &Connection| list_memberships(db, &user, workspace, after, limit);
        // One workspace is one row; all of them may be many.
        if workspace.is_some() { self.readers.look_up(list).await } else { self.readers.read(list).await }
    }

    async fn find_workspace(&self, scope: &Scope) -> Result<Option<Workspace>> {
        let scope = scope.clone();
        self.readers.read(move |db| find(db, &scope)).await
    }

    async fn update_workspace(
        &self,
        scope: &Scope,
        patch: &WorkspacePatch,
        now: Timestamp,
    ) -> Result<Workspace> {
        let (scope, patch) = (scope.clone(), patch.clone());
        self.writer.write(Durability::Full, move |db| update(db, &scope, &patch, now)).await
    }

    async fn remove_workspace(&self, scope: &Scope, cascade: bool, now: Timestamp) -> Result<()> {
        let scope = scope.clone();
        self.writer.write(Durability::Full, move |db| remove(db, &scope, cascade, now)).await
    }

    async fn list_audit(&self, scope: &Scope, after: i64, limit: usize) -> Result<Vec<AuditEntry>> {
        let scope = scope.clone();
        self.readers.read(move |db| audit::list(db, &scope, after, limit)).await
    }
}

/// Reads `id, org_id, name, default_visibility, created_at` from column `at` on.
pub(super) fn read(row: &Row<'_>, at: usize) -> rusqlite::Result<Workspace> {
    let visibility: String = row.get(at + 3)?;
    Ok(Workspace {
        id: row.get(at)?,
        org: row.get(at + 1)?,
        name: row.get(at + 2)?,
        default_visibility: Visibility::parse(&visibility).ok_or(rusqlite::Error::InvalidQuery)?,
        created_at: from_ms(row.get(at + 4)?),
    })
}

pub(super) fn read_role(row: &Row<'_>, at: usize) -> rusqlite::Result<Role> {
    let role: String = row.get(at)?;
    Role::parse(&role).ok_or(rusqlite::Error::InvalidQuery)
}

fn create(db: &Connection, scope: &Scope, workspace: &Workspace) -> Result<()> {
    let at = workspace.created_at;
    db.execute(
        "INSERT INTO workspaces (id, org_id, name, default_visibility, created_at) VALUES (?1, ?2, ?3, ?4, ?5)",
        params![
            workspace.id,
            workspace.org,
            workspace.name,
            workspace.default_visibility.as_str(),
            at.as_millisecond()
        ],
    )?;
    db.execute(
        "INSERT INTO members (workspace_id, user_id, role, added_at) VALUES (?1, ?2, 'admin', ?3)",
        params![workspace.id, scope.user, at.as_millisecond()],
    )?;
    audit::note(db, scope, at, Action::WorkspaceCreate, &workspace.id.to_string(), &workspace.name)?;
    audit::note(db, scope, at, Action::MemberAdd, &scope.user, Role::Admin.as_str())
}

fn list_memberships(
    db: &Connection,
    user: &str,
    workspace: Option<Uuid>,
    after: Option<Uuid>,
    limit: usize,
) -> Result<Vec<Membership>> {
    let named = if workspace.is_some() { "m.workspace_id = ?2" } else { "?2 IS NULL" };
    let text = format!(
        "SELECT w.id, w.org_id, w.name, w.default_visibility, w.created_at, m.role \
         FROM members m JOIN workspaces w ON w.id = m.workspace_id \
         WHERE m.user_id = ?1 AND w.deleted_at IS NULL AND {named} AND (?3 IS NULL OR m.workspace_id > ?3) \
         ORDER BY m.workspace_id LIMIT ?4"
    );
    let mut statement = db.prepare_cached(&text)?;
    let rows = statement.query_map(params![user, workspace, after, limit as i64], |row| {
        Ok(Membership { workspace: read(row, 0)?, role: read_role(row, 5)? })
    })?;
    Ok(rows.collect::<rusqlite::Result<_>>()?)
}

pub(super) fn find(db: &Connection, scope: &Scope) -> Result<Option<Workspace>> {
    let found = db
        .prepare_cached(
            "SELECT id, org_id, name, default_visibility, created_at FROM workspaces \
             WHERE id = ?1 AND deleted_at IS NULL",
        )?
        .query_row([scope.workspace], |row| read(row, 0))
        .optional()?;
    Ok(found)
}

fn update(db: &Connection, scope: &Scope, patch: &WorkspacePatch, now: Timestamp) -> Result<Workspace> {
    let mut workspace = find(db, scope)?.ok_or(StoreError::NotFound)?;
    if let Some(name) = &patch.name {
        workspace.name.clone_from(name);
    }
    if let Some(visibility) = patch.default_visibility {
        workspace.default_visibility = visibility;
    }
    db.execute(
        "UPDATE workspaces SET name = ?2, default_visibility = ?3 WHERE id = ?1",
        params![workspace.id, workspace.name, workspace.default_visibility.as_str()],
    )?;
    let detail = workspace.default_visibility.as_str();
    audit::note(db, scope, now, Action::WorkspaceUpdate, &workspace.id.to_string(), detail)?;
    Ok(workspace)
}

fn remove(db: &Connection, scope: &Scope, cascade: bool, now: Timestamp) -> Result<()> {
    let workspace = find(db, scope)?.ok_or(StoreError::NotFound)?;
    let holds: bool = db.query_row(
        "SELECT EXISTS (SELECT 1 FROM chat_conversations WHERE workspace_id = ?1 AND deleted_at IS NULL)",
        [workspace.id],
        |row| row.get(0),
    )?;
    if holds && !cascade {
        return Err(crate::store::workspaces::WORKSPACE_NOT_EMPTY);
    }
    let at = now.as_millisecond();
    db.execute(
        "UPDATE files SET deleted_at = ?2 WHERE workspace_id = ?1 AND deleted_at IS NULL",
        params![workspace.id, at],
    )?;
    db.execute(
        "UPDATE chat_conversations SET deleted_at = ?2, updated_at = max(updated_at + 1, ?2), version = version + 1 \
         WHERE workspace_id = ?1 AND deleted_at IS NULL",
        params![workspace.id, at],
    )?;
    pages::remove_all(db, workspace.id)?;
    tables::remove_all(db, workspace.id)?;
    db.execute("DELETE FROM api_keys WHERE workspace_id = ?1", [workspace.id])?;
    db.execute("DELETE FROM members WHERE workspace_id = ?1", [workspace.id])?;
    runs::cancel_all(db, scope, None, now)?;
    db.execute("UPDATE workspaces SET deleted_at = ?2 WHERE id = ?1", params![workspace.id, at])?;
    let detail = if cascade { "cascade" } else { "" };
    audit::note(db, scope, now, Action::WorkspaceRemove, &workspace.id.to_string(), detail)
}
