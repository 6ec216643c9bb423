//! What the APIs of other people's clients keep beside a conversation and its runs.

use domain::message::Message;
use domain::scope::Scope;
use jiff::Timestamp;
use tokio_postgres::types::ToSql;
use uuid::Uuid;

use super::transaction::{Database, Query, Settings, Transaction, inside};
use super::{conversations, messages, runs, search};
use crate::error::{Result, StoreError};
use crate::turns::{Asking, parse_json};

pub(super) async fn asking(db: &Database, scope: &Scope, run: Uuid) -> Result<Asking> {
    let visible = runs::visible(db.dialect, scope, run);
    let text = format!(
        "SELECT request, forgotten FROM runs WHERE {} AND id = $2",
        inside(db.dialect, "workspace_id")
    );
    let request = Query { text: &text, params: vec![&scope.workspace, &run] };
    let [found, rows] = db.read(&Settings::of(scope), [(&visible).into(), request]).await?;
    let (found, row) = found.first().zip(rows.first()).ok_or(StoreError::NotFound)?;
    Ok(Asking { run: runs::read(found)?, turn: parse_json(row.try_get(0)?)?, forgotten: row.try_get(1)? })
}

pub(super) async fn forget(tx: &Transaction, scope: &Scope, run: Uuid) -> Result<()> {
    let visible = runs::visible(tx.dialect, scope, run);
    let found = tx.row(&visible.text, &super::transaction::params(&visible)).await?;
    found.ok_or(StoreError::NotFound)?;
    let text = format!("UPDATE runs SET forgotten = true WHERE {} AND id = $2", tx.inside("workspace_id"));
    tx.execute(&text, &[&scope.workspace, &run]).await?;
    Ok(())
}

pub(super) async fn metadata(
    db: &Database,
    scope: &Scope,
    conversations: &[Uuid],
) -> Result<Vec<(Uuid, Option<String>)>> {
    let text = format!(
        "SELECT id, metadata FROM chat_conversations WHERE {} AND id = ANY($2)",
        inside(db.dialect, "workspace_id")
    );
    let query = Query { text: &text, params: vec![&scope.workspace, &conversations] };
    let [rows] = db.read(&Settings::of(scope), [query]).await?;
    rows.iter().map(|row| Ok((row.try_get(0)?, row.try_get(1)?))).collect()
}

pub(super) async fn set_metadata(tx: &Transaction, scope: &Scope, id: Uuid, metadata: &str) -> Result<()> {
    conversations::lock(tx, scope, id).await?;
    let text = format!(
        "UPDATE chat_conversations SET metadata = $3 WHERE {} AND id = $2",
        tx.inside("workspace_id")
    );
    tx.execute(&text, &[&scope.workspace, &id, &metadata]).await?;
    Ok(())
}

pub(super) async fn message(
    tx: &Transaction,
    scope: &Scope,
    conversation: Uuid,
    message: Uuid,
) -> Result<Message> {
    conversations::get(tx, scope, conversation).await?;
    messages::get(tx, scope, conversation, message).await
}

pub(super) async fn rewrite(
    tx: &Transaction,
    scope: &Scope,
    conversation: Uuid,
    message: &Message,
    now: Timestamp,
) -> Result<()> {
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
    if tx.execute(&text, &changed).await? == 0 {
        return Err(StoreError::NotFound);
    }
    search::reindex_message(tx, scope, conversation, message).await?;
    thread.note_rewrite(message, now);
    conversations::save(tx, &thread).await
}
