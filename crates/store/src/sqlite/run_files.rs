//! The files of a run: what its message brings, what it is given when it starts, what its sandbox sends back.

use async_trait::async_trait;
use domain::file::{Bag, File};
use jiff::Timestamp;
use rusqlite::{Connection, OptionalExtension, params};
use uuid::Uuid;

use super::SqliteStore;
use super::files::{self, VISIBLE, select};
use super::writer::Durability;
use crate::error::{Result, StoreError};
use crate::files::{Stored, attachments_json, named_files};
use crate::store::run_files::RunFiles;
use crate::turns::Held;

#[async_trait]
impl RunFiles for SqliteStore {
    async fn keep_results(
        &self,
        held: &Held,
        stored: &[Stored],
        max_bag_bytes: u64,
        now: Timestamp,
    ) -> Result<Vec<File>> {
        let (held, stored) = (*held, stored.to_vec());
        let work = move |db: &_| keep_results(db, &held, &stored, max_bag_bytes, now);
        self.writer.write(Durability::Full, work).await
    }

    async fn list_results(&self, held: &Held) -> Result<Vec<File>> {
        let held = *held;
        self.readers.read(move |db| list_results(db, &held)).await
    }

    async fn list_run_assets(&self, workspace: Uuid, run: Uuid) -> Result<Vec<File>> {
        self.readers.read(move |db| list_run_assets(db, workspace, run)).await
    }
}

fn keep_results(
    db: &Connection,
    held: &Held,
    stored: &[Stored],
    max_bag_bytes: u64,
    now: Timestamp,
) -> Result<Vec<File>> {
    let of: Option<(Option<Uuid>, Option<Uuid>)> = db
        .prepare_cached(
            "UPDATE runs SET upload_used_at = ?4 \
             WHERE workspace_id = ?1 AND id = ?2 AND fence = ?3 AND status = 'running' AND cancel_requested = 0 \
             AND upload_used_at IS NULL RETURNING conversation_id, execution_id",
        )?
        .query_row(
            params![held.workspace, held.lease.run, held.lease.fence, now.as_millisecond()],
            |row| Ok((row.get(0)?, row.get(1)?)),
        )
        .optional()?;
    let bag = match of.ok_or(StoreError::Lost)? {
        (Some(conversation), _) => Bag::Conversation(conversation),
        (None, Some(execution)) => Bag::Execution(execution),
        (None, None) => return Err(StoreError::Internal("a run of nothing".into())),
    };
    files::keep_in(db, held.workspace, (bag, Some(held.lease.run)), stored, max_bag_bytes, now)
}

fn list_results(db: &Connection, held: &Held) -> Result<Vec<File>> {
    let ours = "SELECT 1 FROM runs WHERE workspace_id = ?1 AND id = ?2 AND fence = ?3 AND status = 'running'";
    if !db.prepare_cached(ours)?.exists(params![held.workspace, held.lease.run, held.lease.fence])? {
        return Err(StoreError::Lost);
    }
    of_run(db, held.workspace, held.lease.run)
}

/// What a run's sandbox sent back.
pub(super) fn of_run(db: &Connection, workspace: Uuid, run: Uuid) -> Result<Vec<File>> {
    let rest =
        format!("INDEXED BY idx_files_run WHERE workspace_id = ?1 AND run_id = ?2 AND {VISIBLE} ORDER BY id");
    select(db, &rest, &[&workspace, &run])
}

/// What freezes the files of a bag for its run: their ids as JSON, null for none.
pub(super) fn visible_ids(index: &str, inside: &str) -> String {
    format!(
        "(SELECT CASE WHEN count(*) > 0 THEN json_group_array(hex(id)) END FROM files INDEXED BY {index} \
         WHERE workspace_id = ?1 AND {inside} AND {VISIBLE})"
    )
}

/// The visible ones of a run's frozen files.
pub(super) fn frozen(db: &Connection, workspace: Uuid, assets: Option<&str>) -> Result<Vec<File>> {
    let Some(assets) = assets else { return Ok(Vec::new()) };
    let rest = format!(
        "WHERE workspace_id = ?1 AND id IN (SELECT unhex(value) FROM json_each(?2)) AND {VISIBLE} ORDER BY name"
    );
    select(db, &rest, &[&workspace, &assets])
}

fn list_run_assets(db: &Connection, workspace: Uuid, run: Uuid) -> Result<Vec<File>> {
    let assets: Option<String> = db
        .prepare_cached(
            "SELECT r.assets FROM runs r LEFT JOIN chat_conversations c \
             ON c.workspace_id = r.workspace_id AND c.id = r.conversation_id \
             WHERE r.workspace_id = ?1 AND r.id = ?2 AND c.deleted_at IS NULL",
        )?
        .query_row(params![workspace, run], |row| row.get(0))
        .optional()?
        .ok_or(StoreError::NotFound)?;
    frozen(db, workspace, assets.as_deref())
}

/// Refuses what is not a visible file of the conversation.
pub(super) fn check_attachments(
    db: &Connection,
    workspace: Uuid,
    conversation: Option<Uuid>,
    ids: &[Uuid],
) -> Result<()> {
    for (index, id) in ids.iter().enumerate() {
        if find_attachment(db, workspace, conversation, *id)?.is_none() {
            return Err(StoreError::NoAttachment(index));
        }
    }
    Ok(())
}

fn find_attachment(
    db: &Connection,
    workspace: Uuid,
    conversation: Option<Uuid>,
    id: Uuid,
) -> Result<Option<File>> {
    let rest = format!("WHERE workspace_id = ?1 AND conversation_id = ?2 AND id = ?3 AND {VISIBLE}");
    Ok(select(db, &rest, &[&workspace, &conversation, &id])?.pop())
}

/// Ties the visible ones of these files to a message, and answers its attachments, each once, in order.
pub(super) fn attach(
    db: &Connection,
    workspace: Uuid,
    conversation: Uuid,
    message: Uuid,
    ids: &[Uuid],
) -> Result<String> {
    let mut files: Vec<File> = Vec::new();
    for id in ids {
        let Some(file) = find_attachment(db, workspace, Some(conversation), *id)? else { continue };
        if files.iter().all(|known| known.id != file.id) {
            db.prepare_cached("UPDATE files SET message_id = ?3 WHERE workspace_id = ?1 AND id = ?2")?
                .execute(params![workspace, id, message])?;
            files.push(file);
        }
    }
    attachments_json(&files)
}

/// Ties files to a message that is to come. Those of another message stay there until it does: it may never.
pub(super) fn reserve(db: &Connection, workspace: Uuid, message: Uuid, ids: &[Uuid]) -> Result<()> {
    let text = "UPDATE files SET message_id = ?3 WHERE workspace_id = ?1 AND id = ?2 AND message_id IS NULL";
    for id in ids {
        db.prepare_cached(text)?.execute(params![workspace, id, message])?;
    }
    Ok(())
}

/// The files attached to a message of the conversation.
pub(super) fn attached_to(
    db: &Connection,
    workspace: Uuid,
    conversation: Uuid,
    message: Uuid,
) -> Result<Vec<Uuid>> {
    let attachments: String = db
        .prepare_cached(
            "SELECT file_attachments FROM messages WHERE workspace_id = ?1 AND conversation_id = ?2 AND id = ?3",
        )?
        .query_row(params![workspace, conversation, message], |row| row.get(0))?;
    named_files(&attachments)
}
