//! Messages: rows of their own, numbered within their thread.

use domain::conversation::Conversation;
use domain::message::{Message, MessageRole, NewMessage, Window, plain_text};
use domain::scope::Scope;
use jiff::Timestamp;
use tokio_postgres::Row;
use uuid::Uuid;

use super::transaction::{Query, Transaction, inside};
use super::{conversations, search};
use crate::error::{Result, StoreError};
use crate::list::Dialect;

fn read(row: &Row) -> Result<Message> {
    Ok(Message {
        id: row.try_get(0)?,
        seq: row.try_get(1)?,
        role: MessageRole::parse(row.try_get(2)?).ok_or_else(|| conversations::bad_column(2))?,
        text: row.try_get(3)?,
        content: row.try_get(4)?,
        file_attachments: row.try_get(5)?,
        sources: row.try_get(6)?,
        token_count: row.try_get(7)?,
        metadata: row.try_get(8)?,
        created_at: row.try_get(9)?,
    })
}

pub(super) async fn append(
    tx: &Transaction,
    scope: &Scope,
    conversation: Uuid,
    messages: &[NewMessage],
    now: Timestamp,
) -> Result<Conversation> {
    let mut thread = conversations::get_locked(tx, scope, conversation).await?;
    let titled = thread.title.is_some();
    let text = format!(
        "SELECT seq FROM messages WHERE {} AND conversation_id = $2 AND branch = 0 ORDER BY seq DESC LIMIT 1",
        tx.inside("workspace_id")
    );
    let last = tx.row(&text, &[&scope.workspace, &conversation]).await?;
    let mut seq: i64 = last.map_or(Ok(0), |row| row.try_get(0))?;
    for message in messages {
        seq += 1;
        let text = plain_text(&message.content);
        insert(tx, scope, conversation, seq, message, &text).await?;
        search::index_message(tx, scope, conversation, seq, message, &text).await?;
        let from_user = message.role == MessageRole::User;
        thread.note_message(message.id, from_user, &text, message.token_count, now);
    }
    conversations::save(tx, &thread).await?;
    if !titled && thread.title.is_some() {
        search::index_title(tx, scope, &thread).await?;
    }
    Ok(thread)
}

async fn insert(
    tx: &Transaction,
    scope: &Scope,
    conversation: Uuid,
    seq: i64,
    message: &NewMessage,
    text: &str,
) -> Result<()> {
    let content =
        serde_json::to_string(&message.content).map_err(|error| StoreError::Internal(error.to_string()))?;
    tx.insert(
        "message id",
        "INSERT INTO messages (workspace_id, conversation_id, branch, seq, id, role, text, content, \
         file_attachments, sources, token_count, metadata, created_at) \
         VALUES ($1, $2, 0, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12)",
        &[
            &scope.workspace,
            &conversation,
            &seq,
            &message.id,
            &message.role.as_str(),
            &text,
            &content,
            &message.file_attachments,
            &message.sources,
            &message.token_count,
            &message.metadata,
            &message.created_at,
        ],
    )
    .await
}

/// Two queries, of which neither waits for the other's answer: whether the message that the window is
/// named by is there, and the rows of the window, newest first, with one more that tells whether older
/// ones lie before it.
pub(super) fn window_queries(dialect: Dialect, window: Window) -> ([String; 2], (Uuid, i64)) {
    let thread = format!("{} AND conversation_id = $2 AND branch = 0", inside(dialect, "workspace_id"));
    let anchor = format!("SELECT seq FROM messages WHERE {thread} AND id = $3");
    let before = match window {
        Window::Before { .. } => format!("seq < ({anchor})"),
        Window::All | Window::Newest { .. } => "$3::uuid IS NOT NULL".to_owned(),
    };
    let newest = format!(
        "SELECT id, seq, role, text, content, file_attachments, sources, token_count, metadata, created_at \
         FROM messages WHERE {thread} AND {before} ORDER BY seq DESC LIMIT $4"
    );
    let bound = match window {
        Window::All => (Uuid::nil(), i64::MAX),
        Window::Newest { limit } => (Uuid::nil(), limit as i64 + 1),
        Window::Before { message, limit } => (message, limit as i64 + 1),
    };
    ([anchor, newest], bound)
}

pub(super) fn queries<'a>(
    [anchor, newest]: &'a [String; 2],
    scope: &'a Scope,
    conversation: &'a Uuid,
    (message, limit): &'a (Uuid, i64),
) -> [Query<'a>; 2] {
    [
        Query { text: anchor, params: vec![&scope.workspace, conversation, message] },
        Query { text: newest, params: vec![&scope.workspace, conversation, message, limit] },
    ]
}

/// The window in thread order, and whether older messages lie before it.
pub(super) fn read_window(window: Window, anchor: &[Row], newest: &[Row]) -> Result<(Vec<Message>, bool)> {
    let limit = match window {
        Window::All => usize::MAX,
        Window::Newest { limit } => limit,
        Window::Before { .. } if anchor.is_empty() => return Err(StoreError::NotFound),
        Window::Before { limit, .. } => limit,
    };
    let mut messages: Vec<Message> = newest.iter().take(limit).map(read).collect::<Result<_>>()?;
    messages.reverse();
    Ok((messages, newest.len() > limit))
}
