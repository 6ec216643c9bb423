//! Members of a workspace. There is always at least one admin.

use async_trait::async_trait;
use domain::audit::Action;
use domain::scope::{Role, Scope};
use domain::workspace::Member;
use jiff::Timestamp;
use tokio_postgres::Row;
use uuid::Uuid;

use super::transaction::{Query, Settings, Transaction, inside, transaction};
use super::workspaces::{self, read_role};
use super::{PostgresStore, audit};
use crate::error::{Result, StoreError};
use crate::list::Dialect;
use crate::store::members::{LAST_ADMIN, Members};

#[async_trait]
impl Members for PostgresStore {
    async fn list_members(&self, scope: &Scope, after: Option<&str>, limit: usize) -> Result<Vec<Member>> {
        let text = format!(
            "SELECT user_id, role, added_at FROM members WHERE {} AND user_id > $2 ORDER BY user_id LIMIT $3",
            inside(self.database.dialect, "workspace_id")
        );
        let (after, limit) = (after.unwrap_or(""), limit as i64);
        let query = Query { text: &text, params: vec![&scope.workspace, &after, &limit] };
        let [rows] = self.database.read(&Settings::of(scope), [query]).await?;
        rows.iter().map(read).collect()
    }

    async fn find_member(&self, scope: &Scope, user: &str) -> Result<Option<Member>> {
        let text = by_user(self.database.dialect);
        let query = Query { text: &text, params: vec![&scope.workspace, &user] };
        let [rows] = self.database.read(&Settings::of(scope), [query]).await?;
        rows.first().map(read).transpose()
    }

    async fn put_member(
        &self,
        scope: &Scope,
        user: &str,
        role: Role,
        now: Timestamp,
    ) -> Result<(Member, bool)> {
        transaction!(self.database, begin_write, Settings::of(scope), |tx| put(tx, scope, user, role, now))
    }

    async fn remove_member(&self, scope: &Scope, user: &str, now: Timestamp) -> Result<()> {
        transaction!(self.database, begin_write, Settings::of(scope), |tx| remove(tx, scope, user, now))
    }
}

fn read(row: &Row) -> Result<Member> {
    Ok(Member { user: row.try_get(0)?, role: read_role(row, 1)?, added_at: row.try_get(2)? })
}

fn by_user(dialect: Dialect) -> String {
    let inside = inside(dialect, "workspace_id");
    format!("SELECT user_id, role, added_at FROM members WHERE {inside} AND user_id = $2")
}

async fn check_admin_left(tx: &Transaction, scope: &Scope) -> Result<()> {
    let text =
        format!("SELECT 1 FROM members WHERE {} AND role = 'admin' LIMIT 1", tx.inside("workspace_id"));
    tx.row(&text, &[&scope.workspace]).await?.map(|_| ()).ok_or(LAST_ADMIN)
}

async fn put(
    tx: &Transaction,
    scope: &Scope,
    user: &str,
    role: Role,
    now: Timestamp,
) -> Result<(Member, bool)> {
    workspaces::get(tx, scope, "FOR NO KEY UPDATE").await?;
    let before = tx.row(&by_user(tx.dialect), &[&scope.workspace, &user]).await?;
    let before = before.as_ref().map(read).transpose()?;
    tx.execute(
        "INSERT INTO members (workspace_id, user_id, role, added_at) VALUES ($1, $2, $3, $4) \
         ON CONFLICT (workspace_id, user_id) DO UPDATE SET role = excluded.role",
        &[&scope.workspace, &user, &role.as_str(), &now],
    )
    .await?;
    check_admin_left(tx, scope).await?;
    if before.as_ref().is_none_or(|member| member.role != role) {
        audit::note(tx, scope, now, Action::MemberAdd, user, role.as_str()).await?;
    }
    let added_at = before.as_ref().map_or(now, |member| member.added_at);
    Ok((Member { user: user.to_owned(), role, added_at }, before.is_none()))
}

async fn remove(tx: &Transaction, scope: &Scope, user: &str, now: Timestamp) -> Result<()> {
    workspaces::lock(tx, scope).await?;
    let inside = tx.inside("workspace_id");
    let text = format!("DELETE FROM members WHERE {inside} AND user_id = $2");
    if tx.execute(&text, &[&scope.workspace, &user]).await? == 0 {
        return Err(StoreError::NotFound);
    }
    check_admin_left(tx, scope).await?;
    audit::note(tx, scope, now, Action::MemberRemove, user, "").await?;
    // A key of theirs gives nothing any more, and must not come back to life with a new membership.
    let text =
        format!("DELETE FROM api_keys WHERE {inside} AND created_by = $2 AND role <> 'service' RETURNING id");
    let keys = tx.rows(&text, &[&scope.workspace, &user]).await?;
    let mut keys = keys.iter().map(|row| Ok(row.try_get(0)?)).collect::<Result<Vec<Uuid>>>()?;
    keys.sort_unstable();
    for key in keys {
        audit::note(tx, scope, now, Action::KeyRemove, &key.to_string(), "").await?;
    }
    Ok(())
}
