//! What the APIs of other people's clients keep beside a conversation and its runs.

use domain::message::Message;
use domain::scope::Scope;
use jiff::Timestamp;
use rusqlite::{Connection, OptionalExtension, params};
use uuid::Uuid;

use super::{conversations, messages, runs, search};
use crate::error::{Result, StoreError};
use crate::turns::{Asking, parse_json};

pub(super) fn asking(db: &Connection, scope: &Scope, run: Uuid) -> Result<Asking> {
    let found = runs::get(db, scope, run)?;
    let (request, forgotten): (String, bool) = db
        .prepare_cached("SELECT request, forgotten FROM runs WHERE workspace_id = ?1 AND id = ?2")?
        .query_row(params![scope.workspace, run], |row| Ok((row.get(0)?, row.get(1)?)))?;
    Ok(Asking { run: found, turn: parse_json(&request)?, forgotten })
}

pub(super) fn forget(db: &Connection, scope: &Scope, run: Uuid) -> Result<()> {
    runs::get(db, scope, run)?;
    db.execute(
        "UPDATE runs SET forgotten = 1 WHERE workspace_id = ?1 AND id = ?2",
        params![scope.workspace, run],
    )?;
    Ok(())
}

pub(super) fn metadata(
    db: &Connection,
    scope: &Scope,
    conversations: &[Uuid],
) -> Result<Vec<(Uuid, Option<String>)>> {
    let mut found = Vec::with_capacity(conversations.len());
    let mut statement =
        db.prepare_cached("SELECT metadata FROM chat_conversations WHERE workspace_id = ?1 AND id = ?2")?;
    for id in conversations {
        let text = statement.query_row(params![scope.workspace, id], |row| row.get(0)).optional()?;
        found.extend(text.map(|text| (*id, text)));
    }
    Ok(found)
}

pub(super) fn set_metadata(db: &Connection, scope: &Scope, id: Uuid, metadata: &str) -> Result<()> {
    conversations::find(db, scope, id, false, false)?.ok_or(StoreError::NotFound)?;
    db.execute(
        "UPDATE chat_conversations SET metadata = ?3 WHERE workspace_id = ?1 AND id = ?2",
        params![scope.workspace, id, metadata],
    )?;
    Ok(())
}

pub(super) fn message(db: &Connection, scope: &Scope, conversation: Uuid, message: Uuid) -> Result<Message> {
    conversations::find(db, scope, conversation, false, false)?.ok_or(StoreError::NotFound)?;
    messages::get(db, scope, conversation, message)
}

pub(super) fn rewrite(
    db: &Connection,
    scope: &Scope,
    conversation: Uuid,
    message: &Message,
    now: Timestamp,
) -> Result<()> {
    let (mut thread, thread_pk) = conversations::get(db, scope, conversation)?;
    let pk: Option<i64> = db
        .prepare_cached(
            "UPDATE messages SET text = ?4, content = ?5, file_attachments = ?6, sources = ?7, metadata = ?8 \
             WHERE workspace_id = ?1 AND conversation_id = ?2 AND id = ?3 RETURNING pk",
        )?
        .query_row(
            params![
                scope.workspace,
                conversation,
                message.id,
                message.text,
                message.content,
                message.file_attachments,
                message.sources,
                message.metadata
            ],
            |row| row.get(0),
        )
        .optional()?;
    let pk = pk.ok_or(StoreError::NotFound)?;
    db.execute("DELETE FROM message_search WHERE rowid = ?1", [pk])?;
    search::index_message(pk, &message.text);
    thread.note_rewrite(message, now);
    conversations::save(db, thread_pk, &thread)
}
