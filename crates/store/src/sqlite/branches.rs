//! Branches: a thread is its branch's own messages after those it shares with its parents.

use async_trait::async_trait;
use domain::conversation::{Conversation, Visibility};
use domain::file::File;
use domain::scope::Scope;
use domain::time::from_ms;
use jiff::Timestamp;
use rusqlite::{Connection, OptionalExtension, params};
use uuid::Uuid;

use super::writer::Durability;
use super::{SqliteStore, conversations, fork_files, messages};
use crate::error::{Result, StoreError};
use crate::files::Fork;
use crate::store::branches::Branches;
use crate::turns::Branch;

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
        let (scope, fork) = (scope.clone(), fork.clone());
        let work = move |db: &_| fork_through(db, &scope, conversation, through, &fork);
        self.writer.write(Durability::Full, work).await
    }

    async fn list_branches(&self, scope: &Scope, conversation: Uuid) -> Result<Vec<Branch>> {
        let scope = scope.clone();
        self.readers.read(move |db| list(db, &scope, conversation)).await
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

/// So many segments are a condition of their own each. SQLite takes no expression that is 1000 deep.
const MAX_CONDITIONS: usize = 100;

/// The segments of a thread, its own branch first: messages of `branch` with `seq <= through`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Lineage(Vec<(i64, i64)>);

impl Lineage {
    /// The condition that a message of the thread meets, where `?1` is the workspace and `?2` the conversation.
    pub(super) fn sql(&self) -> String {
        if self.0.len() > MAX_CONDITIONS {
            let segments: Vec<String> =
                self.0.iter().map(|(branch, through)| format!("({branch}, {through})")).collect();
            // In this order, each segment is a walk of the messages' own index.
            return format!(
                "pk IN (WITH line(branch, through) AS (VALUES {}) SELECT m.pk FROM line CROSS JOIN messages m \
                 WHERE m.workspace_id = ?1 AND m.conversation_id = ?2 AND m.branch = line.branch \
                 AND m.seq <= line.through)",
                segments.join(", ")
            );
        }
        let segments: Vec<String> = self
            .0
            .iter()
            .map(|(branch, through)| match *through {
                i64::MAX => format!("branch = {branch}"),
                through => format!("(branch = {branch} AND seq <= {through})"),
            })
            .collect();
        format!("({})", segments.join(" OR "))
    }
}

pub(super) fn lineage(db: &Connection, scope: &Scope, conversation: Uuid, branch: i64) -> Result<Lineage> {
    let mut statement = db.prepare_cached(
        "SELECT parent, fork_seq FROM branches WHERE workspace_id = ?1 AND conversation_id = ?2 AND branch = ?3",
    )?;
    let mut segments = Vec::new();
    let (mut branch, mut through) = (branch, i64::MAX);
    while branch != 0 {
        let (parent, fork_seq): (i64, i64) = statement
            .query_row(params![scope.workspace, conversation, branch], |row| {
                Ok((row.get(0)?, row.get(1)?))
            })?;
        // Of an edit that was edited nothing may be left: its own messages begin after its fork.
        if through > fork_seq {
            segments.push((branch, through));
        }
        (branch, through) = (parent, through.min(fork_seq));
    }
    segments.push((0, through));
    Ok(Lineage(segments))
}

/// The number of the thread's newest message, 0 for an empty one.
pub(super) fn head_seq(db: &Connection, scope: &Scope, conversation: Uuid, lineage: &Lineage) -> Result<i64> {
    let text = format!(
        "SELECT coalesce(max(seq), 0) FROM messages WHERE workspace_id = ?1 AND conversation_id = ?2 AND {}",
        lineage.sql()
    );
    Ok(db.prepare_cached(&text)?.query_row(params![scope.workspace, conversation], |row| row.get(0))?)
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

fn message_at(
    db: &Connection,
    scope: &Scope,
    conversation: Uuid,
    lineage: &Lineage,
    seq: i64,
) -> Result<Option<Uuid>> {
    let text = format!(
        "SELECT id FROM messages WHERE workspace_id = ?1 AND conversation_id = ?2 AND seq = ?3 AND {}",
        lineage.sql()
    );
    Ok(db
        .prepare_cached(&text)?
        .query_row(params![scope.workspace, conversation, seq], |row| row.get(0))
        .optional()?)
}

fn list(db: &Connection, scope: &Scope, conversation: Uuid) -> Result<Vec<Branch>> {
    let (thread, _) = conversations::get(db, scope, conversation)?;
    let current = current(db, scope, conversation)?;
    let mut statement = db.prepare_cached(
        "SELECT branch, id, fork_seq, created_at FROM branches \
         WHERE workspace_id = ?1 AND conversation_id = ?2 ORDER BY branch",
    )?;
    let rows = statement.query_map(params![scope.workspace, conversation], |row| {
        Ok((row.get(0)?, row.get(1)?, row.get(2)?, from_ms(row.get(3)?)))
    })?;
    let mut rows: Vec<(i64, Uuid, i64, Timestamp)> = rows.collect::<rusqlite::Result<_>>()?;
    rows.insert(0, (0, conversation, 0, thread.created_at));
    rows.into_iter()
        .map(|(branch, id, fork_seq, created_at)| {
            let lineage = lineage(db, scope, conversation, branch)?;
            let head = head_seq(db, scope, conversation, &lineage)?;
            Ok(Branch {
                id,
                from_message: message_at(db, scope, conversation, &lineage, fork_seq)?,
                head: message_at(db, scope, conversation, &lineage, head)?,
                current: branch == current,
                created_at,
            })
        })
        .collect()
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
    let lineage = lineage(db, scope, conversation, branch)?;
    thread.message_count = head_seq(db, scope, conversation, &lineage)?;
    thread.touch(now);
    conversations::save(db, pk, &thread)?;
    set_current(db, scope, conversation, branch)?;
    Ok(thread)
}

/// A new conversation of the caller's own with the thread through one message.
fn fork_through(
    db: &Connection,
    scope: &Scope,
    conversation: Uuid,
    through: Uuid,
    fork: &Fork,
) -> Result<Conversation> {
    let (source, _) = conversations::get(db, scope, conversation)?;
    let (lineage, seq) = thread_through(db, scope, conversation, through)?;
    let Fork { id, now, .. } = *fork;
    let mut made = source.clone();
    made.id = id;
    if made.owner != scope.user {
        made.owner.clone_from(&scope.user);
        made.visibility = Visibility::Private;
    }
    (made.first_message, made.preview) = (None, None);
    if let Some((first, text)) = messages::first_of_user(db, scope, conversation, &lineage, seq)? {
        made.note_message(first, true, &text, 0, now);
    }
    made.message_count = seq;
    made.total_tokens = 0;
    made.created_at = now;
    made.updated_at = now;
    made.version = 1;
    conversations::insert(db, &made)?;
    messages::copy(db, scope, conversation, &lineage, seq, id)?;
    fork_files::copy(db, scope, conversation, fork)?;
    Ok(made)
}

/// The thread that a message ends, and its number.
pub(super) fn thread_through(
    db: &Connection,
    scope: &Scope,
    conversation: Uuid,
    through: Uuid,
) -> Result<(Lineage, i64)> {
    let missing =
        StoreError::Invalid { input: "/through", detail: "through is not a message of this conversation" };
    let (branch, seq, _) = place(db, scope, conversation, through)?.ok_or(missing)?;
    Ok((lineage(db, scope, conversation, branch)?, seq))
}
