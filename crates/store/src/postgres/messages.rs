//! Messages: rows of their own, numbered within their thread.

use std::borrow::Cow;

use async_trait::async_trait;
use domain::conversation::Conversation;
use domain::message::{Message, MessageRole, NewMessage, Window};
use domain::scope::Scope;
use jiff::Timestamp;
use tokio_postgres::Row;
use tokio_postgres::types::ToSql;
use uuid::Uuid;

use super::branches::{self, Head};
use super::segments::{self, Start};
use super::transaction::{Params, Query, Settings, Transaction, inside, transaction};
use super::{PostgresStore, conversations, run_files, search};
use crate::error::{Result, StoreError};
use crate::files::named_files;
use crate::list::Dialect;
use crate::store::messages::{Messages, Thread, ThreadRead};

#[async_trait]
impl Messages for PostgresStore {
    async fn get_thread(&self, scope: &Scope, id: Uuid, asked: ThreadRead) -> Result<Thread> {
        let sql = conversations::by_id(self.database.dialect, scope, id, false);
        let settings = Settings::of(scope);
        if asked == ThreadRead::default() {
            let [rows] = self.database.read(&settings, [(&sql).into()]).await?;
            let conversation = conversations::read(rows.first().ok_or(StoreError::NotFound)?)?;
            return Ok(Thread { conversation, messages: Vec::new(), has_before: false });
        }
        let window = asked.window.unwrap_or(Window::Newest { limit: 0 });
        let (texts, limits) = window_queries(self.database.dialect, Start::Id, window);
        let [anchor, newest] = queries(&texts, scope, &id, &asked.branch, &limits);
        let [rows, anchor, newest] = self.database.read(&settings, [(&sql).into(), anchor, newest]).await?;
        let conversation = conversations::read(rows.first().ok_or(StoreError::NotFound)?)?;
        let (messages, has_before) = read_window(window, &anchor, &newest)?;
        Ok(Thread { conversation, messages, has_before: has_before && asked.window.is_some() })
    }

    async fn append_messages(
        &self,
        scope: &Scope,
        conversation: Uuid,
        if_version: Option<i64>,
        messages: &[NewMessage],
        now: Timestamp,
    ) -> Result<Conversation> {
        transaction!(self.database, begin_write, Settings::of(scope), |tx| append(
            tx,
            scope,
            conversation,
            if_version,
            messages,
            now
        ))
    }
}

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

const COLUMNS: &str = "m.id, m.seq, m.role, m.text, m.content, m.file_attachments, m.sources, m.token_count, \
     m.metadata, m.created_at";

async fn append(
    tx: &Transaction,
    scope: &Scope,
    conversation: Uuid,
    if_version: Option<i64>,
    messages: &[NewMessage],
    now: Timestamp,
) -> Result<Conversation> {
    let mut thread = conversations::get_locked(tx, scope, conversation).await?;
    thread.check_version(if_version).map_err(StoreError::Refused)?;
    let titled = thread.title.is_some();
    let mut head = branches::head(tx, scope, conversation, None).await?;
    for message in messages {
        head.seq += 1;
        insert(tx, scope, (conversation, None), head, message).await?;
        let named = named_files(&message.file_attachments)?;
        let files: Vec<_> =
            run_files::pick(tx, scope, conversation, &named).await?.into_iter().flatten().collect();
        run_files::attach(tx, scope, &files, message.id).await?;
        let from_user = message.role == MessageRole::User;
        thread.note_message(message.id, from_user, &message.text, message.token_count, now);
    }
    conversations::save(tx, &thread).await?;
    if !titled && thread.title.is_some() {
        search::index_title(tx, scope, &thread).await?;
    }
    Ok(thread)
}

/// Writes a message and its words as a branch's newest; with the words of the title that it gave its conversation.
pub(super) async fn insert(
    tx: &Transaction,
    scope: &Scope,
    (conversation, title): (Uuid, Option<&str>),
    Head { branch, seq }: Head,
    message: &NewMessage,
) -> Result<()> {
    // PostgreSQL keeps no NUL in a text; in the blocks, which are JSON, it is spelt out.
    let mut text = Cow::Borrowed(&*message.text);
    if text.contains('\0') {
        text = text.replace('\0', "\u{fffd}").into();
    }
    let role = message.role.as_str();
    let words = search::words(scope, &text);
    let title = title.map(|title| search::words(scope, title));
    let mut values: Params<'_> = vec![
        &scope.workspace,
        &conversation,
        &branch,
        &seq,
        &message.id,
        &role,
        &text,
        &message.content,
        &message.file_attachments,
        &message.sources,
        &message.token_count,
        &message.metadata,
        &message.created_at,
        &words,
    ];
    let mut titled = "";
    if let Some(title) = &title {
        values.push(title);
        titled = ", titled AS (INSERT INTO title_search (workspace_id, conversation_id, words) \
                  VALUES ($1, $2, $15::text::tsvector))";
    }
    // One statement: what it costs to begin one is a good part of what a row costs.
    let text = format!(
        "WITH said AS (INSERT INTO messages (workspace_id, conversation_id, branch, seq, id, role, text, content, \
         file_attachments, sources, token_count, metadata, created_at) \
         VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13)){titled} \
         INSERT INTO message_search (workspace_id, conversation_id, message_id, seq, created_at, words) \
         VALUES ($1, $2, $5, $4, $13, $14::text::tsvector)"
    );
    tx.insert("message id", &text, &values).await
}

/// Every message of the conversation `$2`, branch by branch.
pub(super) fn all_query(dialect: Dialect) -> String {
    format!(
        "SELECT {COLUMNS}, m.branch FROM messages m WHERE {} AND m.conversation_id = $2 ORDER BY m.branch, m.seq",
        inside(dialect, "m.workspace_id")
    )
}

/// A row of `all_query`.
pub(super) fn read_placed(row: &Row) -> Result<(i32, Message)> {
    Ok((row.try_get(10)?, read(row)?))
}

/// Writes messages that were stored elsewhere, each on its branch, with their words.
pub(super) async fn insert_stored(
    tx: &Transaction,
    scope: &Scope,
    placed: &[(Uuid, i32, &Message)],
) -> Result<()> {
    let all = || placed.iter().map(|(.., message)| *message);
    let texts: Vec<String> = all().map(|of| of.text.replace('\0', "\u{fffd}")).collect();
    let conversations: Vec<Uuid> = placed.iter().map(|(conversation, ..)| *conversation).collect();
    let seqs: Vec<i64> = all().map(|of| of.seq).collect();
    let ids: Vec<Uuid> = all().map(|of| of.id).collect();
    let times: Vec<Timestamp> = all().map(|of| of.created_at).collect();
    tx.insert(
        "message id",
        "INSERT INTO messages (workspace_id, conversation_id, branch, seq, id, role, text, content, \
         file_attachments, sources, token_count, metadata, created_at) \
         SELECT $1::uuid, n.* FROM unnest($2::uuid[], $3::integer[], $4::bigint[], $5::uuid[], $6::text[], \
         $7::text[], $8::text[], $9::text[], $10::text[], $11::bigint[], $12::text[], $13::timestamptz[]) AS n",
        &[
            &scope.workspace,
            &conversations,
            &placed.iter().map(|(_, branch, _)| *branch).collect::<Vec<_>>(),
            &seqs,
            &ids,
            &all().map(|of| of.role.as_str()).collect::<Vec<_>>(),
            &texts,
            &all().map(|of| &*of.content).collect::<Vec<_>>(),
            &all().map(|of| &*of.file_attachments).collect::<Vec<_>>(),
            &all().map(|of| &*of.sources).collect::<Vec<_>>(),
            &all().map(|of| of.token_count).collect::<Vec<_>>(),
            &all().map(|of| &*of.metadata).collect::<Vec<_>>(),
            &times,
        ],
    )
    .await?;
    search::index_messages(tx, scope, &conversations, (&ids, &seqs, &times), &texts).await
}

/// One message of the conversation, on whichever branch.
pub(super) async fn get(
    tx: &Transaction,
    scope: &Scope,
    conversation: Uuid,
    message: Uuid,
) -> Result<Message> {
    let text = format!(
        "SELECT {COLUMNS} FROM messages m WHERE {} AND m.conversation_id = $2 AND m.id = $3",
        tx.inside("m.workspace_id")
    );
    let row =
        tx.row(&text, &[&scope.workspace, &conversation, &message]).await?.ok_or(StoreError::NotFound)?;
    read(&row)
}

/// The first message that a user wrote in a branch through a message number, with its text.
pub(super) async fn first_of_user(
    tx: &Transaction,
    scope: &Scope,
    conversation: Uuid,
    (branch, through): (i32, i64),
) -> Result<Option<(Uuid, String)>> {
    let text = format!(
        "{} SELECT m.id, m.text FROM line l JOIN messages m ON {} WHERE m.role = 'user' AND m.seq <= $4 \
         ORDER BY m.seq LIMIT 1",
        segments::line(tx.dialect, Start::Number, "TRUE"),
        segments::in_segment(tx.dialect)
    );
    let row = tx.row(&text, &[&scope.workspace, &conversation, &Some(branch), &through]).await?;
    row.map(|row| Ok((row.try_get(0)?, row.try_get(1)?))).transpose()
}

/// Copies a branch through a message number into another conversation's first branch.
pub(super) async fn copy(
    tx: &Transaction,
    scope: &Scope,
    from: Uuid,
    (branch, through): (i32, i64),
    to: Uuid,
) -> Result<()> {
    let line = segments::line(tx.dialect, Start::Number, "TRUE");
    let thread =
        format!("FROM line l JOIN messages m ON {} AND m.seq <= $4", segments::in_segment(tx.dialect));
    let (messages, words) = (
        format!(
            "{line} INSERT INTO messages (workspace_id, conversation_id, branch, seq, id, role, text, content, \
             file_attachments, sources, token_count, metadata, created_at) \
             SELECT m.workspace_id, $5::uuid, 0, m.seq, m.id, m.role, m.text, m.content, m.file_attachments, m.sources, \
             m.token_count, m.metadata, m.created_at {thread}"
        ),
        format!(
            "{line} INSERT INTO message_search (workspace_id, conversation_id, message_id, seq, created_at, words) \
             SELECT s.workspace_id, $5::uuid, s.message_id, s.seq, s.created_at, s.words {thread} \
             JOIN message_search s ON s.workspace_id = m.workspace_id AND s.conversation_id = $2 \
             AND s.message_id = m.id"
        ),
    );
    for text in [messages, words] {
        tx.execute(&text, &[&scope.workspace, &from, &Some(branch), &through, &to]).await?;
    }
    Ok(())
}

/// Two queries, of which neither waits for the other's answer: which branch it is, and where on it the
/// message stands that the window is named by; and the rows of the window, newest first, with one more
/// that tells whether older ones lie before it.
pub(super) fn window_queries(dialect: Dialect, start: Start, window: Window) -> ([String; 2], (Uuid, i64)) {
    let segment = segments::in_segment(dialect);
    let of_anchor = |column: &str| {
        let own = inside(dialect, "a.workspace_id");
        format!("(SELECT a.{column} FROM messages a WHERE {own} AND a.conversation_id = $2 AND a.id = $4)")
    };
    // A branch's number is above its parent's: on none further down can it stand.
    let line = segments::line(dialect, start, &format!("b.branch > {}", of_anchor("branch")));
    let anchor = format!(
        "{line} SELECT max(l.branch), max(a.seq) FROM line l LEFT JOIN messages a ON {} AND a.conversation_id = $2 \
         AND a.id = $4 AND a.branch = l.branch AND a.seq <= l.through",
        inside(dialect, "a.workspace_id")
    );
    // No segment is asked for whose messages all lie before the window: a thread's numbers have no gaps.
    let (end, before) = match window {
        Window::Before { .. } => {
            let seq = of_anchor("seq");
            (seq.clone(), format!("m.seq < {seq}"))
        }
        Window::All | Window::Newest { .. } => {
            let (head, start) = (branches::head_seq(dialect), segments::start(dialect, start));
            (format!("(SELECT {head} + 1 FROM {start})"), "$4::uuid IS NOT NULL".to_owned())
        }
    };
    let line = segments::line(dialect, start, &format!("b.fork_seq >= {end} - $5"));
    let newest = format!(
        "{line} SELECT w.* FROM line l CROSS JOIN LATERAL (SELECT {COLUMNS} FROM messages m \
         WHERE {segment} AND {before} ORDER BY m.seq DESC LIMIT $5) w ORDER BY w.seq DESC LIMIT $5"
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
    branch: &'a (dyn ToSql + Sync),
    (message, limit): &'a (Uuid, i64),
) -> [Query<'a>; 2] {
    [
        Query { text: anchor, params: vec![&scope.workspace, conversation, branch, message] },
        Query { text: newest, params: vec![&scope.workspace, conversation, branch, message, limit] },
    ]
}

/// The window in thread order, and whether older messages lie before it.
pub(super) fn read_window(window: Window, anchor: &[Row], newest: &[Row]) -> Result<(Vec<Message>, bool)> {
    let anchor = anchor.first().ok_or(StoreError::NotFound)?;
    let (branch, seq): (Option<i32>, Option<i64>) = (anchor.try_get(0)?, anchor.try_get(1)?);
    branch.ok_or(StoreError::NotFound)?;
    let limit = match window {
        Window::All => usize::MAX,
        Window::Newest { limit } => limit,
        Window::Before { limit, .. } => seq.map(|_| limit).ok_or(StoreError::NotFound)?,
    };
    let mut messages: Vec<Message> = newest.iter().take(limit).map(read).collect::<Result<_>>()?;
    messages.reverse();
    Ok((messages, newest.len() > limit))
}
