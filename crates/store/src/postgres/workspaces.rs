//! Workspaces. A removed one keeps its row for as long as rows point to it.

use async_trait::async_trait;
use domain::audit::{Action, AuditEntry};
use domain::conversation::Visibility;
use domain::scope::{Role, Scope};
use domain::workspace::{Membership, Workspace, WorkspacePatch};
use jiff::Timestamp;
use tokio_postgres::Row;
use uuid::Uuid;

use super::conversations::bad_column;
use super::transaction::{Query, Settings, Transaction, inside, transaction};
use super::{PostgresStore, audit, runs};
use crate::error::{Result, StoreError};
use crate::list::Dialect;
use crate::store::workspaces::Workspaces;

#[async_trait]
impl Workspaces for PostgresStore {
    async fn create_workspace(&self, scope: &Scope, workspace: &Workspace) -> Result<()> {
        transaction!(self.database, begin_write, Settings::of(scope), |tx| create(tx, scope, workspace))
    }

    async fn list_memberships(
        &self,
        user: &str,
        workspace: Option<Uuid>,
        after: Option<Uuid>,
        limit: usize,
    ) -> Result<Vec<Membership>> {
        let own = match self.database.dialect {
            Dialect::PostgresUnfiltered => "$1::text IS NOT NULL",
            Dialect::Postgres | Dialect::Sqlite => "m.user_id = $1",
        };
        let text = format!(
            "SELECT w.id, w.org_id, w.name, w.default_visibility, w.created_at, m.role \
             FROM members m JOIN workspaces w ON w.id = m.workspace_id \
             WHERE {own} AND w.deleted_at IS NULL AND ($2::uuid IS NULL OR m.workspace_id = $2) \
               AND ($3::uuid IS NULL OR m.workspace_id > $3) \
             ORDER BY m.workspace_id LIMIT $4"
        );
        let limit = limit as i64;
        let query = Query { text: &text, params: vec![&user, &workspace, &after, &limit] };
        let [rows] = self.database.read(&Settings::user(user), [query]).await?;
        rows.iter().map(|row| Ok(Membership { workspace: read(row, 0)?, role: read_role(row, 5)? })).collect()
    }

    async fn find_workspace(&self, scope: &Scope) -> Result<Option<Workspace>> {
        let text = by_id(self.database.dialect);
        let query = Query { text: &text, params: vec![&scope.workspace] };
        let [rows] = self.database.read(&Settings::of(scope), [query]).await?;
        rows.first().map(|row| read(row, 0)).transpose()
    }

    async fn update_workspace(
        &self,
        scope: &Scope,
        patch: &WorkspacePatch,
        now: Timestamp,
    ) -> Result<Workspace> {
        transaction!(self.database, begin_write, Settings::of(scope), |tx| update(tx, scope, patch, now))
    }

    async fn remove_workspace(&self, scope: &Scope, cascade: bool, now: Timestamp) -> Result<()> {
        let settings = Settings::of(scope).seeing_all();
        transaction!(self.database, begin_write, settings, |tx| remove(tx, scope, cascade, now))
    }

    async fn list_audit(&self, scope: &Scope, after: i64, limit: usize) -> Result<Vec<AuditEntry>> {
        audit::list(&self.database, scope, after, limit).await
    }
}

/// Reads `id, org_id, name, default_visibility, created_at` from column `at` on.
pub(super) fn read(row: &Row, at: usize) -> Result<Workspace> {
    Ok(Workspace {
        id: row.try_get(at)?,
        org: row.try_get(at + 1)?,
        name: row.try_get(at + 2)?,
        default_visibility: Visibility::parse(row.try_get(at + 3)?).ok_or_else(|| bad_column(at + 3))?,
        created_at: row.try_get(at + 4)?,
    })
}

pub(super) fn read_role(row: &Row, at: usize) -> Result<Role> {
    Role::parse(row.try_get(at)?).ok_or_else(|| bad_column(at))
}

async fn create(tx: &Transaction, scope: &Scope, workspace: &Workspace) -> Result<()> {
    let at = workspace.created_at;
    tx.execute(
        "INSERT INTO workspaces (id, org_id, name, default_visibility, created_at) VALUES ($1, $2, $3, $4, $5)",
        &[&workspace.id, &workspace.org, &workspace.name, &workspace.default_visibility.as_str(), &at],
    )
    .await?;
    tx.execute(
        "INSERT INTO members (workspace_id, user_id, role, added_at) VALUES ($1, $2, 'admin', $3)",
        &[&workspace.id, &scope.user, &at],
    )
    .await?;
    audit::note(tx, scope, at, Action::WorkspaceCreate, &workspace.id.to_string(), &workspace.name).await?;
    audit::note(tx, scope, at, Action::MemberAdd, &scope.user, Role::Admin.as_str()).await
}

fn by_id(dialect: Dialect) -> String {
    format!(
        "SELECT id, org_id, name, default_visibility, created_at FROM workspaces \
         WHERE {} AND deleted_at IS NULL",
        inside(dialect, "id")
    )
}

/// The scope's workspace, under a row lock such as `FOR KEY SHARE`.
pub(super) async fn get(tx: &Transaction, scope: &Scope, lock: &str) -> Result<Workspace> {
    let text = format!("{} {lock}", by_id(tx.dialect));
    let row = tx.row(&text, &[&scope.workspace]).await?.ok_or(StoreError::NotFound)?;
    read(&row, 0)
}

/// Makes changes of who may do what in this workspace wait for each other, removed or not.
pub(super) async fn lock(tx: &Transaction, scope: &Scope) -> Result<()> {
    let text = format!("SELECT id FROM workspaces WHERE {} FOR NO KEY UPDATE", tx.inside("id"));
    tx.row(&text, &[&scope.workspace]).await.map(|_| ())
}

async fn update(
    tx: &Transaction,
    scope: &Scope,
    patch: &WorkspacePatch,
    now: Timestamp,
) -> Result<Workspace> {
    let mut workspace = get(tx, scope, "FOR NO KEY UPDATE").await?;
    if let Some(name) = &patch.name {
        workspace.name.clone_from(name);
    }
    if let Some(visibility) = patch.default_visibility {
        workspace.default_visibility = visibility;
    }
    let text = format!("UPDATE workspaces SET name = $2, default_visibility = $3 WHERE {}", tx.inside("id"));
    tx.execute(&text, &[&workspace.id, &workspace.name, &workspace.default_visibility.as_str()]).await?;
    let detail = workspace.default_visibility.as_str();
    audit::note(tx, scope, now, Action::WorkspaceUpdate, &workspace.id.to_string(), detail).await?;
    Ok(workspace)
}

async fn remove(tx: &Transaction, scope: &Scope, cascade: bool, now: Timestamp) -> Result<()> {
    // The strongest lock: no conversation can be made in it meanwhile.
    let workspace = get(tx, scope, "FOR UPDATE").await?;
    let inside = tx.inside("workspace_id");
    let text = format!("SELECT 1 FROM chat_conversations WHERE {inside} AND deleted_at IS NULL LIMIT 1");
    if tx.row(&text, &[&workspace.id]).await?.is_some() && !cascade {
        return Err(crate::store::workspaces::WORKSPACE_NOT_EMPTY);
    }
    for (statement, condition) in [
        ("UPDATE files SET deleted_at = $2", "deleted_at IS NULL"),
        (
            "UPDATE chat_conversations SET deleted_at = $2, version = version + 1, \
             updated_at = greatest(updated_at + interval '1 millisecond', $2)",
            "deleted_at IS NULL",
        ),
        ("DELETE FROM pages", "$2::timestamptz IS NOT NULL"),
        ("DELETE FROM table_rows", "$2::timestamptz IS NOT NULL"),
        ("DELETE FROM user_tables", "$2::timestamptz IS NOT NULL"),
        ("DELETE FROM api_keys", "$2::timestamptz IS NOT NULL"),
        ("DELETE FROM members", "$2::timestamptz IS NOT NULL"),
    ] {
        tx.execute(&format!("{statement} WHERE {inside} AND {condition}"), &[&workspace.id, &now]).await?;
    }
    runs::cancel_all(tx, scope, None, now).await?;
    let text = format!("UPDATE workspaces SET deleted_at = $2 WHERE {}", tx.inside("id"));
    tx.execute(&text, &[&workspace.id, &now]).await?;
    let detail = if cascade { "cascade" } else { "" };
    audit::note(tx, scope, now, Action::WorkspaceRemove, &workspace.id.to_string(), detail).await
}
