//! Branches: a thread is its branch's own messages after those it shares with its parents.

use async_trait::async_trait;
use domain::conversation::{Conversation, Visibility};
use domain::file::File;
use domain::scope::Scope;
use jiff::Timestamp;
use uuid::Uuid;

use super::segments::{Start, in_segment, line, row_of, start};
use super::transaction::{Settings, Transaction, inside, transaction};
use super::{PostgresStore, conversations, fork_files, messages, search};
use crate::branches::{BranchRow, shared};
use crate::error::{Result, StoreError};
use crate::files::Fork;
use crate::list::Dialect;
use crate::store::branches::Branches;
use crate::turns::{Branch, WayOn};

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
        transaction!(self.database, begin_read, Settings::of(scope), |tx| list(tx, scope, conversation))
    }

    async fn find_way_on(&self, scope: &Scope, conversation: Uuid, message: Uuid) -> Result<Option<WayOn>> {
        transaction!(self.database, begin_read, Settings::of(scope), |tx| way_on(
            tx,
            scope,
            conversation,
            message
        ))
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

/// A branch, and the number of its newest message, 0 for an empty thread.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Head {
    pub(super) branch: i32,
    pub(super) seq: i64,
}

/// The number of the newest message of the branch `s`, 0 for an empty thread. What it shares ends where it leaves its
/// parent.
pub(super) fn head_seq(dialect: Dialect) -> String {
    format!(
        "coalesce((SELECT m.seq FROM messages m WHERE {} AND m.conversation_id = $2 AND m.branch = s.branch \
         ORDER BY m.seq DESC LIMIT 1), (SELECT b.fork_seq FROM {}), 0)",
        inside(dialect, "m.workspace_id"),
        row_of(dialect, "s.branch"),
    )
}

/// The head of a branch, or of the current one.
pub(super) async fn head(
    tx: &Transaction,
    scope: &Scope,
    conversation: Uuid,
    branch: Option<i32>,
) -> Result<Head> {
    let text = format!("SELECT s.branch, {} FROM {}", head_seq(tx.dialect), start(tx.dialect, Start::Number));
    let row =
        tx.row(&text, &[&scope.workspace, &conversation, &branch]).await?.ok_or(StoreError::NotFound)?;
    let branch: Option<i32> = row.try_get(0)?;
    Ok(Head { branch: branch.ok_or(StoreError::NotFound)?, seq: row.try_get(1)? })
}

async fn list(tx: &Transaction, scope: &Scope, conversation: Uuid) -> Result<Vec<Branch>> {
    conversations::get(tx, scope, conversation).await?;
    let (own, known) = (inside(tx.dialect, "m.workspace_id"), inside(tx.dialect, "b.workspace_id"));
    let text = format!(
        "SELECT a.branch::bigint, a.id, a.parent::bigint, a.fork_seq, a.branch = a.current_branch, a.created_at, \
             (SELECT m.id FROM messages m WHERE {own} AND m.conversation_id = $2 AND m.branch = a.branch \
              ORDER BY m.seq DESC LIMIT 1) \
         FROM (SELECT 0 AS branch, c.id, 0 AS parent, 0::bigint AS fork_seq, c.current_branch, c.created_at \
               FROM chat_conversations c WHERE {thread} AND c.id = $2 \
               UNION ALL SELECT b.branch, b.id, b.parent, b.fork_seq, c.current_branch, b.created_at \
               FROM branches b JOIN chat_conversations c ON c.workspace_id = b.workspace_id AND c.id = b.conversation_id \
               WHERE {known} AND b.conversation_id = $2) a ORDER BY a.branch",
        thread = inside(tx.dialect, "c.workspace_id"),
    );
    let found = tx.rows(&text, &[&scope.workspace, &conversation]).await?;
    let rows = found.iter().map(|row| {
        let (branch, id, parent) = (row.try_get(0)?, row.try_get(1)?, row.try_get(2)?);
        let (seq, current, created_at) = (row.try_get(3)?, row.try_get(4)?, row.try_get(5)?);
        Ok(BranchRow { branch, id, parent, seq, current, created_at })
    });
    let rows = rows.collect::<Result<Vec<_>>>()?;
    let (branches, seqs): (Vec<i64>, Vec<i64>) = shared(&rows).into_iter().unzip();
    // The newest that is not after it is the message itself, and found by its key, as in `row_of`.
    let text = format!(
        "SELECT (SELECT m.id FROM messages m WHERE {own} AND m.conversation_id = $2 \
             AND m.branch = p.branch::integer AND m.seq <= p.seq ORDER BY m.seq DESC LIMIT 1) \
         FROM unnest($3::bigint[], $4::bigint[]) WITH ORDINALITY AS p(branch, seq, n) ORDER BY p.n"
    );
    let shared = tx.rows(&text, &[&scope.workspace, &conversation, &branches, &seqs]).await?;
    let all = rows.iter().zip(&found).zip(&shared);
    all.map(|((row, own), shared)| Ok(row.branch(shared.try_get(0)?, own.try_get(6)?))).collect()
}

async fn way_on(tx: &Transaction, scope: &Scope, conversation: Uuid, message: Uuid) -> Result<Option<WayOn>> {
    conversations::get(tx, scope, conversation).await?;
    let Some(Spot { branch, seq, .. }) = place(tx, scope, conversation, message).await? else {
        return Ok(None);
    };
    // What comes after it, on the current branch and on its own.
    let text = format!(
        "{} SELECT EXISTS (SELECT 1 FROM line l WHERE l.branch = $4 AND l.through >= $5), \
             (SELECT w.id FROM line l CROSS JOIN LATERAL ( \
                 SELECT m.id, m.seq FROM messages m WHERE {segment} AND m.seq > $5 AND m.role = 'user' \
                 ORDER BY m.seq LIMIT 1) w ORDER BY w.seq LIMIT 1), \
             (SELECT m.id FROM messages m WHERE {own} AND m.conversation_id = $2 AND m.branch = $4 AND m.seq > $5 \
              AND m.role = 'user' ORDER BY m.seq LIMIT 1), \
             coalesce((SELECT f.id FROM branches f WHERE {known} AND f.conversation_id = $2 AND f.branch = $4), $2)",
        line(tx.dialect, Start::Number, "b.branch > $4::integer"),
        segment = in_segment(tx.dialect),
        own = inside(tx.dialect, "m.workspace_id"),
        known = inside(tx.dialect, "f.workspace_id"),
    );
    let current: Option<i32> = None;
    let row = tx.row(&text, &[&scope.workspace, &conversation, &current, &branch, &seq]).await?;
    let row = row.ok_or(StoreError::NotFound)?;
    let current = row.try_get(0)?;
    let next = if current { row.try_get(1)? } else { row.try_get(2)? };
    Ok(Some(WayOn { branch: row.try_get(3)?, current, next }))
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
    // Edits in one place stand side by side: a thread is not read through all those before.
    let text = format!(
        "WITH RECURSIVE up(branch) AS (SELECT $4::integer UNION ALL \
             SELECT b.parent FROM up u CROSS JOIN LATERAL {} WHERE b.fork_seq >= $5) \
         INSERT INTO branches (workspace_id, conversation_id, branch, id, parent, fork_seq, created_at) \
         SELECT $1::uuid, $2::uuid, coalesce(max(branch), 0) + 1, $3::uuid, (SELECT min(branch) FROM up), $5::bigint, \
         $6::timestamptz FROM branches WHERE {} AND conversation_id = $2 RETURNING branch",
        row_of(tx.dialect, "u.branch"),
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
    // Copying may take long: its turns go on meanwhile, and only its purge waits.
    let source = conversations::get_kept(tx, scope, conversation).await?;
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
    // Of what was deleted meanwhile not all was there to be copied.
    conversations::get(tx, scope, conversation).await?;
    Ok(made)
}
