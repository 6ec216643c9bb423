//! Members of a workspace. There is always at least one admin.

use async_trait::async_trait;
use domain::audit::Action;
use domain::scope::{Role, Scope};
use domain::time::from_ms;
use domain::workspace::Member;
use jiff::Timestamp;
use rusqlite::{Connection, OptionalExtension, Row, params};
use uuid::Uuid;

use super::workspaces::{self, read_role};
use super::writer::Durability;
use super::{SqliteStore, audit};
use crate::error::{Result, StoreError};
use crate::store::members::{LAST_ADMIN, Members};

#[async_trait]
impl Members for SqliteStore {
    async fn list_members(&self, scope: &Scope, after: Option<&str>, limit: usize) -> Result<Vec<Member>> {
        let (scope, after) = (scope.clone(), after.map(str::to_owned));
        self.readers.read(move |db| list(db, &scope, after.as_deref(), limit)).await
    }

    async fn find_member(&self, scope: &Scope, user: &str) -> Result<Option<Member>> {
        let (scope, user) = (scope.clone(), user.to_owned());
        self.readers.read(move |db| find(db, &scope, &user)).await
    }

    async fn put_member(
        &self,
        scope: &Scope,
        user: &str,
        role: Role,
        now: Timestamp,
    ) -> Result<(Member, bool)> {
        let (scope, user) = (scope.clone(), user.to_owned());
        self.writer.write(Durability::Full, move |db| put(db, &scope, &user, role, now)).await
    }

    async fn remove_member(&self, scope: &Scope, user: &str, now: Timestamp) -> Result<()> {
        let (scope, user) = (scope.clone(), user.to_owned());
        self.writer.write(Durability::Full, move |db| remove(db, &scope, &user, now)).await
    }
}

fn read(row: &Row<'_>) -> rusqlite::Result<Member> {
    Ok(Member { user: row.get(0)?, role: read_role(row, 1)?, added_at: from_ms(row.get(2)?) })
}

fn list(db: &Connection, scope: &Scope, after: Option<&str>, limit: usize) -> Result<Vec<Member>> {
    let mut statement = db.prepare_cached(
        "SELECT user_id, role, added_at FROM members WHERE workspace_id = ?1 AND user_id > ?2 \
         ORDER BY user_id LIMIT ?3",
    )?;
    let rows = statement.query_map(params![scope.workspace, after.unwrap_or(""), limit as i64], read)?;
    Ok(rows.collect::<rusqlite::Result<_>>()?)
}

fn find(db: &Connection, scope: &Scope, user: &str) -> Result<Option<Member>> {
    let found = db
        .prepare_cached(
            "SELECT user_id, role, added_at FROM members WHERE workspace_id = ?1 AND user_id = ?2",
        )?
        .query_row(params![scope.workspace, user], read)
        .optional()?;
    Ok(found)
}

fn admins(db: &Connection, scope: &Scope) -> Result<i64> {
    Ok(db.query_row(
        "SELECT count(*) FROM members WHERE workspace_id = ?1 AND role = 'admin'",
        [scope.workspace],
        |row| row.get(0),
    )?)
}

fn put(db: &Connection, scope: &Scope, user: &str, role: Role, now: Timestamp) -> Result<(Member, bool)> {
    workspaces::find(db, scope)?.ok_or(StoreError::NotFound)?;
    let before = find(db, scope, user)?;
    db.execute(
        "INSERT INTO members (workspace_id, user_id, role, added_at) VALUES (?1, ?2, ?3, ?4) \
         ON CONFLICT (workspace_id, user_id) DO UPDATE SET role = excluded.role",
        params![scope.workspace, user, role.as_str(), now.as_millisecond()],
    )?;
    if admins(db, scope)? == 0 {
        return Err(LAST_ADMIN);
    }
    if before.as_ref().is_none_or(|member| member.role != role) {
        audit::note(db, scope, now, Action::MemberAdd, user, role.as_str())?;
    }
    let added_at = before.as_ref().map_or(now, |member| member.added_at);
    Ok((Member { user: user.to_owned(), role, added_at }, before.is_none()))
}

fn remove(db: &Connection, scope: &Scope, user: &str, now: Timestamp) -> Result<()> {
    let removed = db.execute(
        "DELETE FROM members WHERE workspace_id = ?1 AND user_id = ?2",
        params![scope.workspace, user],
    )?;
    if removed == 0 {
        return Err(StoreError::NotFound);
    }
    if admins(db, scope)? == 0 {
        return Err(LAST_ADMIN);
    }
    audit::note(db, scope, now, Action::MemberRemove, user, "")?;
    // A key of theirs gives nothing any more, and must not come back to life with a new membership.
    let mut keys: Vec<Uuid> = db
        .prepare_cached(
            "DELETE FROM api_keys WHERE workspace_id = ?1 AND created_by = ?2 AND role <> 'service' RETURNING id",
        )?
        .query_map(params![scope.workspace, user], |row| row.get(0))?
        .collect::<rusqlite::Result<_>>()?;
    keys.sort_unstable();
    for key in keys {
        audit::note(db, scope, now, Action::KeyRemove, &key.to_string(), "")?;
    }
    Ok(())
}
