//! What the APIs of other people's clients keep beside a conversation and its runs.

use async_trait::async_trait;
use domain::message::Message;
use domain::scope::Scope;
use jiff::Timestamp;
use rusqlite::{Connection, OptionalExtension, params};
use uuid::Uuid;

use super::search::{self, Indexed};
use super::writer::Durability;
use super::{SqliteStore, conversations, messages, runs};
use crate::error::{Result, StoreError};
use crate::store::clients::Clients;
use crate::turns::{Asking, parse_json};

#[async_trait]
impl Clients for SqliteStore {
    async fn get_asking(&self, scope: &Scope, run: Uuid) -> Result<Asking> {
        let scope = scope.clone();
        self.readers.read(move |db| asking(db, &scope, run)).await
    }

    async fn forget_response(&self, scope: &Scope, run: Uuid) -> Result<()> {
        let scope = scope.clone();
        self.writer.write(Durability::Full, move |db| forget(db, &scope, run)).await
    }

    async fn list_metadata(&self, scope: &Scope, ids: &[Uuid]) -> Result<Vec<(Uuid, Option<String>)>> {
        let (scope, ids) = (scope.clone(), ids.to_vec());
        self.readers.read(move |db| metadata(db, &scope, &ids)).await
    }

    async fn set_metadata(&self, scope: &Scope, conversation: Uuid, metadata: &str) -> Result<()> {
        let (scope, metadata) = (scope.clone(), metadata.to_owned());
        let set = move |db: &rusqlite::Connection| set_metadata(db, &scope, conversation, &metadata);
        self.writer.write(Durability::Full, set).await
    }

    async fn rewrite_message(
        &self,
        scope: &Scope,
        conversation: Uuid,
        was: &Message,
        message: &Message,
        now: Timestamp,
    ) -> Result<bool> {
        let (scope, was, message) = (scope.clone(), was.clone(), message.clone());
        let rewrite =
            move |db: &rusqlite::Connection| rewrite(db, &scope, conversation, (&was, &message), now);
        self.writer.write(Durability::Full, rewrite).await
    }

    async fn get_message(&self, scope: &Scope, conversation: Uuid, message: Uuid) -> Result<Message> {
        let scope = scope.clone();
        self.readers.read(move |db| get_message(db, &scope, conversation, message)).await
    }
}

fn asking(db: &Connection, scope: &Scope, run: Uuid) -> Result<Asking> {
    let found = runs::get(db, scope, run)?;
    let (request, forgotten): (String, bool) = db
        .prepare_cached("SELECT request, forgotten FROM runs WHERE workspace_id = ?1 AND id = ?2")?
        .query_row(params![scope.workspace, run], |row| Ok((row.get(0)?, row.get(1)?)))?;
    Ok(Asking { run: found, turn: parse_json(&request)?, forgotten })
}

fn forget(db: &Connection, scope: &Scope, run: Uuid) -> Result<()> {
    runs::get(db, scope, run)?;
    db.execute(
        "UPDATE runs SET forgotten = 1 WHERE workspace_id = ?1 AND id = ?2",
        params![scope.workspace, run],
    )?;
    Ok(())
}

fn metadata(db: &Connection, scope: &Scope, conversations: &[Uuid]) -> Result<Vec<(Uuid, Option<String>)>> {
    let mut found = Vec::with_capacity(conversations.len());
    let mut statement =
        db.prepare_cached("SELECT metadata FROM chat_conversations WHERE workspace_id = ?1 AND id = ?2")?;
    for id in conversations {
        let text = statement.query_row(params![scope.workspace, id], |row| row.get(0)).optional()?;
        found.extend(text.map(|text| (*id, text)));
    }
    Ok(found)
}

fn set_metadata(db: &Connection, scope: &Scope, id: Uuid, metadata: &str) -> Result<()> {
    conversations::find(db, scope, id, false, false)?.ok_or(StoreError::NotFound)?;
    db.execute(
        "UPDATE chat_conversations SET metadata = ?3 WHERE workspace_id = ?1 AND id = ?2",
        params![scope.workspace, id, metadata],
    )?;
    Ok(())
}

fn get_message(db: &Connection, scope: &Scope, conversation: Uuid, message: Uuid) -> Result<Message> {
    conversations::find(db, scope, conversation, false, false)?.ok_or(StoreError::NotFound)?;
    messages::get(db, scope, conversation, message)
}

fn rewrite(
    db: &Connection,
    scope: &Scope,
    conversation: Uuid,
    (was, message): (&Message, &Message),
    now: Timestamp,
) -> Result<bool> {
    debug_assert_eq!(was.id, message.id);
    let (mut thread, thread_pk) = conversations::get(db, scope, conversation)?;
    if messages::get(db, scope, conversation, was.id)? != *was {
        return Ok(false);
    }
    let pk: i64 = db
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
        )?;
    search::reindex(Indexed::Message, pk, Some(&message.text));
    let title = thread.title.clone();
    thread.note_rewrite(was, message, now);
    conversations::save(db, thread_pk, &thread)?;
    if thread.title != title {
        search::reindex(Indexed::Title, thread_pk, thread.title.as_deref());
    }
    Ok(true)
}
