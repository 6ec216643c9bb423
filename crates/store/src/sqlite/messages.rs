//! Messages: rows of their own, numbered within their thread.

use async_trait::async_trait;
use domain::conversation::Conversation;
use domain::message::{Message, MessageRole, NewMessage, Window};
use domain::scope::Scope;
use domain::time::from_ms;
use jiff::Timestamp;
use rusqlite::{Connection, OptionalExtension, Row, params};
use uuid::Uuid;

use super::branches;
use super::search::{self, Indexed};
use super::segments::{self, Segment};
use super::writer::Durability;
use super::{SqliteStore, conversations, is_taken, run_files};
use crate::error::{Result, StoreError};
use crate::files::named_files;
use crate::store::messages::{Messages, Thread, ThreadRead};

#[async_trait]
impl Messages for SqliteStore {
    async fn get_thread(&self, scope: &Scope, id: Uuid, read: ThreadRead) -> Result<Thread> {
        let scope = scope.clone();
        self.readers.read(move |db| get_thread(db, &scope, id, read)).await
    }

    async fn append_messages(
        &self,
        scope: &Scope,
        conversation: Uuid,
        if_version: Option<i64>,
        messages: &[NewMessage],
        now: Timestamp,
    ) -> Result<Conversation> {
        let (scope, messages) = (scope.clone(), messages.to_vec());
        let work = move |db: &Connection| append(db, &scope, conversation, if_version, &messages, now);
        self.writer.write(Durability::Full, work).await
    }
}

pub(super) const COLUMNS: &str =
    "id, seq, role, text, content, file_attachments, sources, token_count, metadata, created_at";

pub(super) fn read(row: &Row<'_>) -> rusqlite::Result<Message> {
    let role: String = row.get(2)?;
    Ok(Message {
        id: row.get(0)?,
        seq: row.get(1)?,
        role: MessageRole::parse(&role).ok_or(rusqlite::Error::InvalidQuery)?,
        text: row.get(3)?,
        content: row.get(4)?,
        file_attachments: row.get(5)?,
        sources: row.get(6)?,
        token_count: row.get(7)?,
        metadata: row.get(8)?,
        created_at: from_ms(row.get(9)?),
    })
}

pub(super) fn get_thread(db: &Connection, scope: &Scope, id: Uuid, read: ThreadRead) -> Result<Thread> {
    let (conversation, _) = conversations::get(db, scope, id)?;
    let branch = match read.branch {
        Some(branch) => branches::find(db, scope, id, branch)?,
        None => branches::current(db, scope, id)?,
    };
    let (messages, has_before) = match read.window {
        None => (Vec::new(), false),
        Some(window) => read_window(db, scope, id, branch, window)?,
    };
    Ok(Thread { conversation, messages, has_before })
}

fn append(
    db: &Connection,
    scope: &Scope,
    conversation: Uuid,
    if_version: Option<i64>,
    messages: &[NewMessage],
    now: Timestamp,
) -> Result<Conversation> {
    let (mut thread, thread_pk) = conversations::get(db, scope, conversation)?;
    thread.check_version(if_version).map_err(StoreError::Refused)?;
    let titled = thread.title.is_some();
    let branch = branches::current(db, scope, conversation)?;
    let mut seq = branches::head_seq(db, scope, conversation, branch)?;
    for message in messages {
        seq += 1;
        insert(db, scope, conversation, (branch, seq), message)?;
        run_files::attach(
            db,
            scope.workspace,
            conversation,
            message.id,
            &named_files(&message.file_attachments)?,
        )?;
        let from_user = message.role == MessageRole::User;
        thread.note_message(message.id, from_user, &message.text, message.token_count, now);
    }
    conversations::save(db, thread_pk, &thread)?;
    if !titled && thread.title.is_some() {
        search::reindex(Indexed::Title, thread_pk, thread.title.as_deref());
    }
    Ok(thread)
}

/// Writes a message and its words at a place of the thread: branch and number.
pub(super) fn insert(
    db: &Connection,
    scope: &Scope,
    conversation: Uuid,
    (branch, seq): (i64, i64),
    message: &NewMessage,
) -> Result<()> {
    let inserted = db
        .prepare_cached(
            "INSERT INTO messages (workspace_id, conversation_id, branch, seq, id, role, text, content, \
             file_attachments, sources, token_count, metadata, created_at) \
             VALUES (?1, ?2, ?13, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12)",
        )?
        .insert(params![
            scope.workspace,
            conversation,
            seq,
            message.id,
            message.role.as_str(),
            message.text,
            message.content,
            message.file_attachments,
            message.sources,
            message.token_count,
            message.metadata,
            message.created_at.as_millisecond(),
            branch,
        ]);
    let pk = inserted.map_err(|error| match is_taken(&error) {
        true => StoreError::Taken("message id"),
        false => error.into(),
    })?;
    search::index(Indexed::Message, pk, &message.text);
    Ok(())
}

/// Every message of a conversation with its branch, branch by branch.
pub(super) fn all(db: &Connection, scope: &Scope, conversation: Uuid) -> Result<Vec<(i64, Message)>> {
    let text = format!(
        "SELECT {COLUMNS}, branch FROM messages WHERE workspace_id = ?1 AND conversation_id = ?2 ORDER BY branch, seq"
    );
    let mut statement = db.prepare_cached(&text)?;
    let rows =
        statement.query_map(params![scope.workspace, conversation], |row| Ok((row.get(10)?, read(row)?)))?;
    Ok(rows.collect::<rusqlite::Result<_>>()?)
}

/// Writes a message that was stored elsewhere, with its words.
pub(super) fn insert_stored(
    db: &Connection,
    scope: &Scope,
    conversation: Uuid,
    branch: i64,
    message: &Message,
) -> Result<()> {
    let inserted = db
        .prepare_cached(
            "INSERT INTO messages (workspace_id, conversation_id, branch, seq, id, role, text, content, \
             file_attachments, sources, token_count, metadata, created_at) \
             VALUES (?1, ?2, ?13, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12)",
        )?
        .insert(params![
            scope.workspace,
            conversation,
            message.seq,
            message.id,
            message.role.as_str(),
            message.text,
            message.content,
            message.file_attachments,
            message.sources,
            message.token_count,
            message.metadata,
            message.created_at.as_millisecond(),
            branch,
        ]);
    let pk = inserted.map_err(|error| match is_taken(&error) {
        true => StoreError::Taken("message id"),
        false => error.into(),
    })?;
    search::index(Indexed::Message, pk, &message.text);
    Ok(())
}

/// The first message that a user wrote in a thread, with its text.
pub(super) fn first_of_user(
    db: &Connection,
    scope: &Scope,
    conversation: Uuid,
    thread: &[Segment],
) -> Result<Option<(Uuid, String)>> {
    let mut statement = db.prepare(
        "SELECT id, text FROM messages WHERE workspace_id = ?1 AND conversation_id = ?2 AND branch = ?3 \
         AND seq <= ?4 AND role = 'user' ORDER BY seq LIMIT 1",
    )?;
    for segment in thread {
        let values = params![scope.workspace, conversation, segment.branch, segment.through];
        let found = statement.query_row(values, |row| Ok((row.get(0)?, row.get(1)?))).optional()?;
        if found.is_some() {
            return Ok(found);
        }
    }
    Ok(None)
}

/// One message of the conversation, on whichever branch.
pub(super) fn get(db: &Connection, scope: &Scope, conversation: Uuid, message: Uuid) -> Result<Message> {
    let text = format!(
        "SELECT {COLUMNS} FROM messages WHERE workspace_id = ?1 AND conversation_id = ?2 AND id = ?3"
    );
    db.prepare_cached(&text)?
        .query_row(params![scope.workspace, conversation, message], read)
        .optional()?
        .ok_or(StoreError::NotFound)
}

/// The window in thread order, and whether older messages lie before it.
pub(super) fn read_window(
    db: &Connection,
    scope: &Scope,
    conversation: Uuid,
    branch: i64,
    window: Window,
) -> Result<(Vec<Message>, bool)> {
    let newest = segments::newest(db, scope, conversation, branch)?;
    let (mut next, limit) = match window {
        Window::All => (Some(newest), usize::MAX),
        Window::Newest { limit } => (Some(newest), limit),
        Window::Before { message, limit } => (Some(before(db, scope, conversation, newest, message)?), limit),
    };
    let text = format!(
        "SELECT {COLUMNS} FROM messages WHERE workspace_id = ?1 AND conversation_id = ?2 AND branch = ?3 \
         AND seq <= ?4 ORDER BY seq DESC LIMIT ?5"
    );
    let mut statement = db.prepare_cached(&text)?;
    let mut found: Vec<Message> = Vec::new();
    // One more than it has tells whether there are older ones.
    while let (Some(segment), Some(more)) = (next, limit.saturating_add(1).checked_sub(found.len())) {
        let most = i64::try_from(more).unwrap_or(i64::MAX);
        let values = params![scope.workspace, conversation, segment.branch, segment.through, most];
        for message in statement.query_map(values, read)? {
            found.push(message?);
        }
        next = if found.len() > limit { None } else { segment.older(db, scope, conversation)? };
    }
    let has_before = found.len() > limit;
    found.truncate(limit);
    found.reverse();
    Ok((found, has_before))
}

/// What the segment of the thread that has this message has before it.
fn before(
    db: &Connection,
    scope: &Scope,
    conversation: Uuid,
    mut segment: Segment,
    message: Uuid,
) -> Result<Segment> {
    let (branch, seq, _) = branches::place(db, scope, conversation, message)?.ok_or(StoreError::NotFound)?;
    // A branch's number is above its parent's.
    while segment.branch > branch {
        segment = segment.older(db, scope, conversation)?.ok_or(StoreError::NotFound)?;
    }
    if !segment.holds(branch, seq) {
        return Err(StoreError::NotFound);
    }
    segment.through = seq - 1;
    Ok(segment)
}

/// The text of one message of a thread.
pub(super) fn text(db: &Connection, scope: &Scope, conversation: Uuid, message: Uuid) -> Result<String> {
    Ok(db
        .prepare_cached(
            "SELECT text FROM messages WHERE workspace_id = ?1 AND conversation_id = ?2 AND id = ?3",
        )?
        .query_row(params![scope.workspace, conversation, message], |row| row.get(0))?)
}
