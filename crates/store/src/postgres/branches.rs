//! Branches: a thread is its branch's own messages after those it shares with its parents.

use async_trait::async_trait;
use domain::conversation::{Conversation, Visibility};
use domain::file::File;
use domain::scope::Scope;
use jiff::Timestamp;
use uuid::Uuid;

use super::transaction::{Query, Settings, Transaction, inside, transaction};
use super::{PostgresStore, conversations, fork_files, messages, search};
use crate::error::{Result, StoreError};
use crate::files::Fork;
use crate::list::Dialect;
use crate::store::branches::Branches;
use crate::turns::Branch;

#[async_trait]
impl Branches for PostgresStore {
    async fn list_fork_files(&self, scope: &Scope, conversation: Uuid, through: Uuid) -> Result<Vec<File>> {
        transaction!(self.database, begin_read, Settings::of(scope), |tx| fork_files::list(
            tx,
            scope,
            conversation,
            through
        ))
    }

    async fn fork_conversation(
        &self,
        scope: &Scope,
        conversation: Uuid,
        through: Uuid,
        fork: &Fork,
    ) -> Result<Conversation> {
        transaction!(self.database, begin_write, Settings::of(scope), |tx| fork_through(
            tx,
            scope,
            conversation,
            through,
            fork
        ))
    }

    async fn list_branches(&self, scope: &Scope, conversation: Uuid) -> Result<Vec<Branch>> {
        let sql = conversations::by_id(self.database.dialect, scope, conversation, false);
        let (own, segment) =
            (inside(self.database.dialect, "b.workspace_id"), in_segment(self.database.dialect));
        let text = format!(
            "WITH RECURSIVE all_branches AS ( \
                 SELECT 0 AS branch, c.id, 0::bigint AS fork_seq, c.created_at, c.current_branch \
                 FROM chat_conversations c WHERE {thread} AND c.id = $2 \
                 UNION ALL SELECT b.branch, b.id, b.fork_seq, b.created_at, c.current_branch FROM branches b \
                 JOIN chat_conversations c ON c.workspace_id = b.workspace_id AND c.id = b.conversation_id \
                 WHERE {own} AND b.conversation_id = $2), \
             line(root, branch, through) AS (SELECT branch, branch, 9223372036854775807 FROM all_branches UNION ALL \
                 SELECT l.root, b.parent, least(l.through, b.fork_seq) FROM line l JOIN branches b ON b.branch = l.branch \
                 WHERE {own} AND b.conversation_id = $2) \
             SELECT a.id, \
                 (SELECT m.id FROM line l JOIN messages m ON {segment} WHERE l.root = a.branch AND m.seq = a.fork_seq), \
                 (SELECT h.id FROM line l CROSS JOIN LATERAL ( \
                     SELECT m.id, m.seq FROM messages m WHERE {segment} ORDER BY m.seq DESC LIMIT 1) h \
                  WHERE l.root = a.branch ORDER BY h.seq DESC LIMIT 1), \
                 a.branch = a.current_branch, a.created_at \
             FROM all_branches a ORDER BY a.branch",
            thread = inside(self.database.dialect, "c.workspace_id"),
        );
        let branches = Query { text: &text, params: vec![&scope.workspace, &conversation] };
        let [found, rows] = self.database.read(&Settings::of(scope), [(&sql).into(), branches]).await?;
        if found.is_empty() {
            return Err(StoreError::NotFound);
        }
        rows.iter()
            .map(|row| {
                Ok(Branch {
                    id: row.try_get(0)?,
                    from_message: row.try_get(1)?,
                    head: row.try_get(2)?,
                    current: row.try_get(3)?,
                    created_at: row.try_get(4)?,
                })
            })
            .collect()
    }

    async fn select_branch(
        &self,
        scope: &Scope,
        conversation: Uuid,
        branch: Uuid,
        now: Timestamp,
    ) -> Result<Conversation> {
        transaction!(self.database, begin_write, Settings::of(scope), |tx| select(
            tx,
            scope,
            conversation,
            branch,
            now
        ))
    }
}

/// Which branch a query is about, as SQL, where `$2` is the conversation and `$3` says which.
#[derive(Debug, Clone, Copy)]
pub(super) enum Start {
    /// `$3` is a branch's number; NULL is the current one.
    Number,
    /// `$3` is a branch's public id; NULL is the current one.
    Id,
}

impl Start {
    fn sql(self, dialect: Dialect) -> String {
        let workspace = inside(dialect, "workspace_id");
        let current =
            format!("(SELECT current_branch FROM chat_conversations WHERE {workspace} AND id = $2)");
        match self {
            Self::Number => format!("coalesce($3::integer, {current})"),
            Self::Id => format!(
                "CASE WHEN $3::uuid IS NULL THEN {current} WHEN $3 = $2 THEN 0 \
                 ELSE (SELECT branch FROM branches WHERE {workspace} AND conversation_id = $2 AND id = $3) END"
            ),
        }
    }
}

/// The thread's segments as a table `line`: messages of `branch` with `seq <= through`.
pub(super) fn line(dialect: Dialect, start: Start) -> String {
    format!(
        "WITH RECURSIVE line(branch, through) AS (SELECT {}, 9223372036854775807 UNION ALL \
         SELECT b.parent, least(l.through, b.fork_seq) FROM line l JOIN branches b ON b.branch = l.branch \
         WHERE {} AND b.conversation_id = $2)",
        start.sql(dialect),
        inside(dialect, "b.workspace_id"),
    )
}

/// The condition that a message `m` is in the segment `l`.
pub(super) fn in_segment(dialect: Dialect) -> String {
    let workspace = inside(dialect, "m.workspace_id");
    format!("{workspace} AND m.conversation_id = $2 AND m.branch = l.branch AND m.seq <= l.through")
}

/// A branch, and the number of its newest message, 0 for an empty thread.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Head {
    pub(super) branch: i32,
    pub(super) seq: i64,
}

/// The head of a branch, or of the current one.
pub(super) async fn head(
    tx: &Transaction,
    scope: &Scope,
    conversation: Uuid,
    branch: Option<i32>,
) -> Result<Head> {
    // A branch's number is above its parent's.
    let text = format!(
        "{} SELECT max(l.branch), coalesce(max((SELECT m.seq FROM messages m WHERE {} \
         ORDER BY m.seq DESC LIMIT 1)), 0) FROM line l",
        line(tx.dialect, Start::Number),
        in_segment(tx.dialect),
    );
    let row =
        tx.row(&text, &[&scope.workspace, &conversation, &branch]).await?.ok_or(StoreError::NotFound)?;
    let branch: Option<i32> = row.try_get(0)?;
    Ok(Head { branch: branch.ok_or(StoreError::NotFound)?, seq: row.try_get(1)? })
}

/// Where a message of the conversation stands, and what is attached to it.
#[derive(Debug)]
pub(super) struct Spot {
    pub(super) branch: i32,
    pub(super) seq: i64,
    pub(super) from_user: bool,
    pub(super) attachments: String,
    pub(super) created_at: Timestamp,
}

pub(super) async fn place(
    tx: &Transaction,
    scope: &Scope,
    conversation: Uuid,
    message: Uuid,
) -> Result<Option<Spot>> {
    let text = format!(
        "SELECT branch, seq, role = 'user', file_attachments, created_at FROM messages \
         WHERE {} AND conversation_id = $2 AND id = $3",
        tx.inside("workspace_id")
    );
    let row = tx.row(&text, &[&scope.workspace, &conversation, &message]).await?;
    row.map(|row| {
        let (branch, seq, from_user) = (row.try_get(0)?, row.try_get(1)?, row.try_get(2)?);
        Ok(Spot { branch, seq, from_user, attachments: row.try_get(3)?, created_at: row.try_get(4)? })
    })
    .transpose()
}

/// Makes a branch that shares `parent` up to `fork_seq`, and makes it current. The conversation is locked.
pub(super) async fn create(
    tx: &Transaction,
    scope: &Scope,
    conversation: Uuid,
    id: Uuid,
    (parent, fork_seq): (i32, i64),
    now: Timestamp,
) -> Result<i32> {
    let text = format!(
        "INSERT INTO branches (workspace_id, conversation_id, branch, id, parent, fork_seq, created_at) \
         SELECT $1::uuid, $2::uuid, coalesce(max(branch), 0) + 1, $3::uuid, $4::integer, $5::bigint, \
         $6::timestamptz FROM branches WHERE {} AND conversation_id = $2 RETURNING branch",
        tx.inside("workspace_id")
    );
    let row = tx.row(&text, &[&scope.workspace, &conversation, &id, &parent, &fork_seq, &now]).await?;
    let branch = row.ok_or(StoreError::NotFound)?.try_get(0)?;
    set_current(tx, scope, conversation, branch).await?;
    Ok(branch)
}

async fn set_current(tx: &Transaction, scope: &Scope, conversation: Uuid, branch: i32) -> Result<()> {
    let text = format!(
        "UPDATE chat_conversations SET current_branch = $3 WHERE {} AND id = $2",
        tx.inside("workspace_id")
    );
    tx.execute(&text, &[&scope.workspace, &conversation, &branch]).await.map(|_| ())
}

async fn select(
    tx: &Transaction,
    scope: &Scope,
    conversation: Uuid,
    id: Uuid,
    now: Timestamp,
) -> Result<Conversation> {
    let mut thread = conversations::get_locked(tx, scope, conversation).await?;
    let text = format!("SELECT {}", Start::Id.sql(tx.dialect));
    let row =
        tx.row(&text, &[&scope.workspace, &conversation, &Some(id)]).await?.ok_or(StoreError::NotFound)?;
    let branch: Option<i32> = row.try_get(0)?;
    let head = head(tx, scope, conversation, Some(branch.ok_or(StoreError::NotFound)?)).await?;
    thread.message_count = head.seq;
    thread.touch(now);
    conversations::save(tx, &thread).await?;
    set_current(tx, scope, conversation, head.branch).await?;
    Ok(thread)
}

pub(super) const NOT_THROUGH: StoreError =
    StoreError::Invalid { input: "/through", detail: "through is not a message of this conversation" };

/// A new conversation of the caller's own with the thread through one message.
async fn fork_through(
    tx: &Transaction,
    scope: &Scope,
    conversation: Uuid,
    through: Uuid,
    fork: &Fork,
) -> Result<Conversation> {
    let Fork { id, now, .. } = *fork;
    let source = conversations::get_locked(tx, scope, conversation).await?;
    let Spot { branch, seq, .. } = place(tx, scope, conversation, through).await?.ok_or(NOT_THROUGH)?;
    let mut made = source.clone();
    made.id = id;
    if made.owner != scope.user {
        made.owner.clone_from(&scope.user);
        made.visibility = Visibility::Private;
    }
    (made.first_message, made.preview) = (None, None);
    if let Some((first, text)) = messages::first_of_user(tx, scope, conversation, (branch, seq)).await? {
        made.note_message(first, true, &text, 0, now);
    }
    made.message_count = seq;
    made.total_tokens = 0;
    made.created_at = now;
    made.updated_at = now;
    made.version = 1;
    conversations::insert(tx, &made).await?;
    search::index_title(tx, scope, &made).await?;
    messages::copy(tx, scope, conversation, (branch, seq), id).await?;
    fork_files::copy(tx, scope, conversation, fork).await?;
    Ok(made)
}
