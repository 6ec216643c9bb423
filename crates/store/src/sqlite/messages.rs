//! Messages: rows of their own, numbered within their thread.

use domain::conversation::Conversation;
use domain::message::{Message, MessageRole, NewMessage, Window, plain_text};
use domain::scope::Scope;
use domain::time::from_ms;
use jiff::Timestamp;
use rusqlite::{Connection, OptionalExtension, Row, params};
use uuid::Uuid;

use super::{conversations, is_taken, search};
use crate::error::{Result, StoreError};

const COLUMNS: &str =
    "id, seq, role, text, content, file_attachments, sources, token_count, metadata, created_at";

fn read(row: &Row<'_>) -> rusqlite::Result<Message> {
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

pub(super) fn append(
    db: &Connection,
    scope: &Scope,
    conversation: Uuid,
    messages: &[NewMessage],
    now: Timestamp,
) -> Result<Conversation> {
    let (mut thread, thread_pk) = conversations::get(db, scope, conversation)?;
    let titled = thread.title.is_some();
    let mut seq: i64 = db
        .prepare_cached(
            "SELECT coalesce(max(seq), 0) FROM messages \
             WHERE workspace_id = ?1 AND conversation_id = ?2 AND branch = 0",
        )?
        .query_row(params![scope.workspace, conversation], |row| row.get(0))?;
    for message in messages {
        seq += 1;
        let text = plain_text(&message.content);
        let pk = insert(db, scope, conversation, seq, message, &text)?;
        search::index_message(db, pk, &text)?;
        let from_user = message.role == MessageRole::User;
        thread.note_message(message.id, from_user, &text, message.token_count, now);
    }
    conversations::save(db, thread_pk, &thread)?;
    if !titled && thread.title.is_some() {
        search::index_title(db, thread_pk, thread.title.as_deref())?;
    }
    Ok(thread)
}

fn insert(
    db: &Connection,
    scope: &Scope,
    conversation: Uuid,
    seq: i64,
    message: &NewMessage,
    text: &str,
) -> Result<i64> {
    let content =
        serde_json::to_string(&message.content).map_err(|error| StoreError::Internal(error.to_string()))?;
    db.prepare_cached(
        "INSERT INTO messages (workspace_id, conversation_id, branch, seq, id, role, text, content, \
         file_attachments, sources, token_count, metadata, created_at) \
         VALUES (?1, ?2, 0, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12)",
    )?
    .insert(params![
        scope.workspace,
        conversation,
        seq,
        message.id,
        message.role.as_str(),
        text,
        content,
        message.file_attachments,
        message.sources,
        message.token_count,
        message.metadata,
        message.created_at.as_millisecond(),
    ])
    .map_err(|error| match is_taken(&error) {
        true => StoreError::Taken("message id"),
        false => error.into(),
    })
}

/// The window in thread order, and whether older messages lie before it.
pub(super) fn read_window(
    db: &Connection,
    scope: &Scope,
    conversation: Uuid,
    window: Window,
) -> Result<(Vec<Message>, bool)> {
    let (before, limit) = match window {
        Window::All => {
            let text = format!(
                "SELECT {COLUMNS} FROM messages \
                 WHERE workspace_id = ?1 AND conversation_id = ?2 AND branch = 0 ORDER BY seq"
            );
            let mut statement = db.prepare_cached(&text)?;
            let rows = statement.query_map(params![scope.workspace, conversation], read)?;
            return Ok((rows.collect::<rusqlite::Result<_>>()?, false));
        }
        Window::Newest { limit } => (i64::MAX, limit),
        Window::Before { message, limit } => {
            let seq = db
                .prepare_cached(
                    "SELECT seq FROM messages WHERE workspace_id = ?1 AND conversation_id = ?2 AND id = ?3 AND branch = 0",
                )?
                .query_row(params![scope.workspace, conversation, message], |row| row.get(0))
                .optional()?;
            (seq.ok_or(StoreError::NotFound)?, limit)
        }
    };
    let text = format!(
        "SELECT {COLUMNS} FROM messages \
         WHERE workspace_id = ?1 AND conversation_id = ?2 AND branch = 0 AND seq < ?3 ORDER BY seq DESC LIMIT ?4"
    );
    let mut statement = db.prepare_cached(&text)?;
    let rows = statement.query_map(params![scope.workspace, conversation, before, limit as i64 + 1], read)?;
    let mut rows: Vec<Message> = rows.collect::<rusqlite::Result<_>>()?;
    let has_before = rows.len() > limit;
    rows.truncate(limit);
    rows.reverse();
    Ok((rows, has_before))
}

/// The text of one message of a thread.
pub(super) fn text(db: &Connection, scope: &Scope, conversation: Uuid, message: Uuid) -> Result<String> {
    Ok(db
        .prepare_cached(
            "SELECT text FROM messages WHERE workspace_id = ?1 AND conversation_id = ?2 AND id = ?3",
        )?
        .query_row(params![scope.workspace, conversation, message], |row| row.get(0))?)
}
