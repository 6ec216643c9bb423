//! Branches: a thread is its branch's own messages after those it shares with its parents.

use async_trait::async_trait;
use domain::conversation::Conversation;
use domain::file::File;
use domain::scope::Scope;
use domain::time::from_ms;
use jiff::Timestamp;
use rusqlite::{Connection, OptionalExtension, Row, params};
use uuid::Uuid;

use super::segments::{self, Segment};
use super::writer::Durability;
use super::{SqliteStore, conversations, fork_files};
use crate::branches::{BranchRow, shared};
use crate::error::{Result, StoreError};
use crate::files::Fork;
use crate::store::branches::Branches;
use crate::turns::{Branch, WayOn};

#[async_trait]
impl Branches for SqliteStore {
    async fn list_fork_files(&self, scope: &Scope, conversation: Uuid, through: Uuid) -> Result<Vec<File>> {
        let scope = scope.clone();
        self.readers.read(move |db| fork_files::list(db, &scope, conversation, through)).await
    }

    async fn fork_conversation(
        &self,
        scope: &Scope,
        conversation: Uuid,
        through: Uuid,
        fork: &Fork,
    ) -> Result<Conversation> {
        self.fork(scope, conversation, through, fork).await
    }

    async fn list_branches(&self, scope: &Scope, conversation: Uuid) -> Result<Vec<Branch>> {
        let scope = scope.clone();
        self.readers.read(move |db| list(db, &scope, conversation)).await
    }

    async fn find_way_on(&self, scope: &Scope, conversation: Uuid, message: Uuid) -> Result<Option<WayOn>> {
        let scope = scope.clone();
        self.readers.read(move |db| way_on(db, &scope, conversation, message)).await
    }

    async fn select_branch(
        &self,
        scope: &Scope,
        conversation: Uuid,
        branch: Uuid,
        now: Timestamp,
    ) -> Result<Conversation> {
        let scope = scope.clone();
        let work = move |db: &_| select(db, &scope, conversation, branch, now);
        self.writer.write(Durability::Full, work).await
    }
}

/// The number of the newest message of a branch's thread, 0 for an empty one.
pub(super) fn head_seq(db: &Connection, scope: &Scope, conversation: Uuid, branch: i64) -> Result<i64> {
    let own: Option<i64> = db
        .prepare_cached(
            "SELECT max(seq) FROM messages WHERE workspace_id = ?1 AND conversation_id = ?2 AND branch = ?3",
        )?
        .query_row(params![scope.workspace, conversation, branch], |row| row.get(0))?;
    match own {
        Some(seq) => Ok(seq),
        // What it shares ends where it leaves its parent.
        None => Ok(segments::newest(db, scope, conversation, branch)?.after),
    }
}

/// Where a message of the conversation stands: its branch, its number, and whether a user wrote it.
pub(super) fn place(
    db: &Connection,
    scope: &Scope,
    conversation: Uuid,
    message: Uuid,
) -> Result<Option<(i64, i64, bool)>> {
    let found = db
        .prepare_cached(
            "SELECT branch, seq, role = 'user' FROM messages \
             WHERE workspace_id = ?1 AND conversation_id = ?2 AND id = ?3",
        )?
        .query_row(params![scope.workspace, conversation, message], |row| {
            Ok((row.get(0)?, row.get(1)?, row.get(2)?))
        })
        .optional()?;
    Ok(found)
}

/// Makes a branch that shares `parent` up to `fork_seq`, and makes it current.
pub(super) fn create(
    db: &Connection,
    scope: &Scope,
    conversation: Uuid,
    id: Uuid,
    (parent, fork_seq): (i64, i64),
    now: Timestamp,
) -> Result<i64> {
    // Edits in one place stand side by side: a thread is not read through all those before.
    let parent = segments::ending(db, scope, conversation, (parent, fork_seq))?.branch;
    let branch: i64 = db
        .prepare_cached(
            "INSERT INTO branches (workspace_id, conversation_id, branch, id, parent, fork_seq, created_at) \
             SELECT ?1, ?2, coalesce(max(branch), 0) + 1, ?3, ?4, ?5, ?6 FROM branches \
             WHERE workspace_id = ?1 AND conversation_id = ?2 RETURNING branch",
        )?
        .query_row(
            params![scope.workspace, conversation, id, parent, fork_seq, now.as_millisecond()],
            |row| row.get(0),
        )?;
    set_current(db, scope, conversation, branch)?;
    Ok(branch)
}

fn set_current(db: &Connection, scope: &Scope, conversation: Uuid, branch: i64) -> Result<()> {
    db.prepare_cached(
        "UPDATE chat_conversations SET current_branch = ?3 WHERE workspace_id = ?1 AND id = ?2",
    )?
    .execute(params![scope.workspace, conversation, branch])?;
    Ok(())
}

pub(super) fn current(db: &Connection, scope: &Scope, conversation: Uuid) -> Result<i64> {
    Ok(db
        .prepare_cached("SELECT current_branch FROM chat_conversations WHERE workspace_id = ?1 AND id = ?2")?
        .query_row(params![scope.workspace, conversation], |row| row.get(0))?)
}

/// The branch with this public id; the conversation's own id is the first branch.
pub(super) fn find(db: &Connection, scope: &Scope, conversation: Uuid, id: Uuid) -> Result<i64> {
    if id == conversation {
        return Ok(0);
    }
    db.prepare_cached(
        "SELECT branch FROM branches WHERE workspace_id = ?1 AND conversation_id = ?2 AND id = ?3",
    )?
    .query_row(params![scope.workspace, conversation, id], |row| row.get(0))
    .optional()?
    .ok_or(StoreError::NotFound)
}

fn id_of(db: &Connection, scope: &Scope, conversation: Uuid, branch: i64) -> Result<Uuid> {
    if branch == 0 {
        return Ok(conversation);
    }
    Ok(db
        .prepare_cached(
            "SELECT id FROM branches WHERE workspace_id = ?1 AND conversation_id = ?2 AND branch = ?3",
        )?
        .query_row(params![scope.workspace, conversation, branch], |row| row.get(0))?)
}

fn list(db: &Connection, scope: &Scope, conversation: Uuid) -> Result<Vec<Branch>> {
    let (thread, _) = conversations::get(db, scope, conversation)?;
    let current = current(db, scope, conversation)?;
    let mut statement = db.prepare_cached(
        "SELECT 0, ?2, 0, 0, ?3 UNION ALL SELECT branch, id, parent, fork_seq, created_at FROM branches \
         WHERE workspace_id = ?1 AND conversation_id = ?2 ORDER BY 1",
    )?;
    let first = thread.created_at.as_millisecond();
    let rows = statement.query_map(params![scope.workspace, conversation, first], |row| {
        let branch = row.get(0)?;
        Ok(BranchRow {
            branch,
            id: row.get(1)?,
            parent: row.get(2)?,
            seq: row.get(3)?,
            current: branch == current,
            created_at: from_ms(row.get(4)?),
        })
    })?;
    let forks: Vec<BranchRow> = rows.collect::<rusqlite::Result<_>>()?;
    let mut newest = db.prepare_cached(
        "SELECT id FROM messages WHERE workspace_id = ?1 AND conversation_id = ?2 AND branch = ?3 \
         ORDER BY seq DESC LIMIT 1",
    )?;
    let mut at = db.prepare_cached(
        "SELECT id FROM messages WHERE workspace_id = ?1 AND conversation_id = ?2 AND branch = ?3 AND seq = ?4",
    )?;
    let mut found = Vec::with_capacity(forks.len());
    for (fork, (branch, seq)) in forks.iter().zip(shared(&forks)) {
        let id = |row: &Row<'_>| row.get(0);
        let own = newest.query_row(params![scope.workspace, conversation, fork.branch], id).optional()?;
        let shared = at.query_row(params![scope.workspace, conversation, branch, seq], id).optional()?;
        found.push(fork.branch(shared, own));
    }
    Ok(found)
}

fn way_on(db: &Connection, scope: &Scope, conversation: Uuid, message: Uuid) -> Result<Option<WayOn>> {
    conversations::get(db, scope, conversation)?;
    let Some((branch, seq, _)) = place(db, scope, conversation, message)? else { return Ok(None) };
    let mut later = Vec::new();
    let mut segment = segments::newest(db, scope, conversation, current(db, scope, conversation)?)?;
    while segment.branch > branch
        && let Some(older) = segment.older(db, scope, conversation)?
    {
        later.push(std::mem::replace(&mut segment, older));
    }
    let current = segment.holds(branch, seq);
    if !current {
        later.clear();
        segment = segments::newest(db, scope, conversation, branch)?;
    }
    let mut said = db.prepare_cached(
        "SELECT id FROM messages WHERE workspace_id = ?1 AND conversation_id = ?2 AND branch = ?3 AND seq > ?4 \
         AND seq <= ?5 AND role = 'user' ORDER BY seq LIMIT 1",
    )?;
    later.push(segment);
    let mut next = None;
    while let (None, Some(Segment { branch, through, .. })) = (next, later.pop()) {
        let values = params![scope.workspace, conversation, branch, seq, through];
        next = said.query_row(values, |row| row.get(0)).optional()?;
    }
    Ok(Some(WayOn { branch: id_of(db, scope, conversation, branch)?, current, next }))
}

fn select(
    db: &Connection,
    scope: &Scope,
    conversation: Uuid,
    id: Uuid,
    now: Timestamp,
) -> Result<Conversation> {
    let (mut thread, pk) = conversations::get(db, scope, conversation)?;
    let branch = find(db, scope, conversation, id)?;
    thread.message_count = head_seq(db, scope, conversation, branch)?;
    thread.touch(now);
    conversations::save(db, pk, &thread)?;
    set_current(db, scope, conversation, branch)?;
    Ok(thread)
}

/// The thread that a message ends, its oldest segment first.
pub(super) fn thread_through(
    db: &Connection,
    scope: &Scope,
    conversation: Uuid,
    through: Uuid,
) -> Result<Vec<Segment>> {
    let missing =
        StoreError::Invalid { input: "/through", detail: "through is not a message of this conversation" };
    let (branch, seq, _) = place(db, scope, conversation, through)?.ok_or(missing)?;
    let mut segments = Vec::new();
    let mut next = Some(segments::ending(db, scope, conversation, (branch, seq))?);
    while let Some(segment) = next {
        segments.push(segment);
        next = segment.older(db, scope, conversation)?;
    }
    segments.reverse();
    Ok(segments)
}

#[cfg(test)]
#[path = "branches_tests.rs"]
mod tests;
