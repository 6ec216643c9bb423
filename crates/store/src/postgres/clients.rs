//! What the APIs of other people's clients keep beside a conversation and its runs.

use async_trait::async_trait;
use domain::message::Message;
use domain::scope::Scope;
use jiff::Timestamp;
use tokio_postgres::types::ToSql;
use uuid::Uuid;

use super::transaction::{Query, Settings, Transaction, inside, transaction};
use super::{PostgresStore, conversations, messages, runs, search};
use crate::error::{Result, StoreError};
use crate::store::clients::Clients;
use crate::turns::{Asking, parse_json};

#[async_trait]
impl Clients for PostgresStore {
    async fn get_asking(&self, scope: &Scope, run: Uuid) -> Result<Asking> {
        let visible = runs::visible(self.database.dialect, scope, run);
        let text = format!(
            "SELECT request, forgotten FROM runs WHERE {} AND id = $2",
            inside(self.database.dialect, "workspace_id")
        );
        let request = Query { text: &text, params: vec![&scope.workspace, &run] };
        let [found, rows] = self.database.read(&Settings::of(scope), [(&visible).into(), request]).await?;
        let (found, row) = found.first().zip(rows.first()).ok_or(StoreError::NotFound)?;
        Ok(Asking { run: runs::read(found)?, turn: parse_json(row.try_get(0)?)?, forgotten: row.try_get(1)? })
    }

    async fn forget_response(&self, scope: &Scope, run: Uuid) -> Result<()> {
        transaction!(self.database, begin_write, Settings::of(scope), |tx| forget(tx, scope, run))
    }

    async fn list_metadata(
        &self,
        scope: &Scope,
        conversations: &[Uuid],
    ) -> Result<Vec<(Uuid, Option<String>)>> {
        let text = format!(
            "SELECT id, metadata FROM chat_conversations WHERE {} AND id = ANY($2)",
            inside(self.database.dialect, "workspace_id")
        );
        let query = Query { text: &text, params: vec![&scope.workspace, &conversations] };
        let [rows] = self.database.read(&Settings::of(scope), [query]).await?;
        rows.iter().map(|row| Ok((row.try_get(0)?, row.try_get(1)?))).collect()
    }

    async fn set_metadata(&self, scope: &Scope, conversation: Uuid, metadata: &str) -> Result<()> {
        transaction!(self.database, begin_write, Settings::of(scope), |tx| set_metadata(
            tx,
            scope,
            conversation,
            metadata
        ))
    }

    async fn rewrite_message(
        &self,
        scope: &Scope,
        conversation: Uuid,
        was: &Message,
        message: &Message,
        now: Timestamp,
    ) -> Result<bool> {
        transaction!(self.database, begin_write, Settings::of(scope), |tx| rewrite(
            tx,
            scope,
            conversation,
            (was, message),
            now
        ))
    }

    async fn get_message(&self, scope: &Scope, conversation: Uuid, message: Uuid) -> Result<Message> {
        transaction!(self.database, begin_read, Settings::of(scope), |tx| get_message(
            tx,
            scope,
            conversation,
            message
        ))
    }
}

async fn forget(tx: &Transaction, scope: &Scope, run: Uuid) -> Result<()> {
    let visible = runs::visible(tx.dialect, scope, run);
    let found = tx.row(&visible.text, &super::transaction::params(&visible)).await?;
    found.ok_or(StoreError::NotFound)?;
    let text = format!("UPDATE runs SET forgotten = true WHERE {} AND id = $2", tx.inside("workspace_id"));
    tx.execute(&text, &[&scope.workspace, &run]).await?;
    Ok(())
}

async fn set_metadata(tx: &Transaction, scope: &Scope, id: Uuid, metadata: &str) -> Result<()> {
    conversations::lock(tx, scope, id).await?;
    let text = format!(
        "UPDATE chat_conversations SET metadata = $3 WHERE {} AND id = $2",
        tx.inside("workspace_id")
    );
    tx.execute(&text, &[&scope.workspace, &id, &metadata]).await?;
    Ok(())
}

async fn get_message(tx: &Transaction, scope: &Scope, conversation: Uuid, message: Uuid) -> Result<Message> {
    conversations::get(tx, scope, conversation).await?;
    messages::get(tx, scope, conversation, message).await
}

async fn rewrite(
    tx: &Transaction,
    scope: &Scope,
    conversation: Uuid,
    (was, message): (&Message, &Message),
    now: Timestamp,
) -> Result<bool> {
    debug_assert_eq!(was.id, message.id);
    let mut thread = conversations::get_locked(tx, scope, conversation).await?;
    let text = format!(
        "UPDATE messages SET text = $4, content = $5, file_attachments = $6, sources = $7, metadata = $8 \
         WHERE {} AND conversation_id = $2 AND id = $3",
        tx.inside("workspace_id")
    );
    let changed: [&(dyn ToSql + Sync); 8] = [
        &scope.workspace,
        &conversation,
        &message.id,
        &message.text,
        &message.content,
        &message.file_attachments,
        &message.sources,
        &message.metadata,
    ];
    // Under the conversation's lock, which every rewrite takes.
    if messages::get(tx, scope, conversation, was.id).await? != *was {
        return Ok(false);
    }
    tx.execute(&text, &changed).await?;
    search::reindex_message(tx, scope, conversation, message).await?;
    let title = thread.title.clone();
    thread.note_rewrite(was, message, now);
    conversations::save(tx, &thread).await?;
    if thread.title != title {
        search::index_title(tx, scope, &thread).await?;
    }
    Ok(true)
}
