//! Rows into a SQLite file, beside the store that has it open.

use std::path::Path;

use domain::search::index_text;
use rusqlite::{Connection, OpenFlags, Transaction, params};

use super::{BATCH, Stored, store};
use crate::corpus;

pub fn fill(file: &Path, size: usize) -> anyhow::Result<()> {
    let mut db = Connection::open_with_flags(file, OpenFlags::SQLITE_OPEN_READ_WRITE)?;
    db.pragma_update(None, "synchronous", "OFF")?;
    let mut drafts = corpus::drafts(size).peekable();
    while drafts.peek().is_some() {
        let batch = db.transaction()?;
        for draft in drafts.by_ref().take(BATCH) {
            insert(&batch, &store(draft)?)?;
        }
        batch.commit()?;
    }
    db.query_row("PRAGMA wal_checkpoint(TRUNCATE)", [], |_| Ok(()))?;
    Ok(())
}

fn insert(db: &Transaction<'_>, stored: &Stored) -> anyhow::Result<()> {
    let made = &stored.conversation;
    let row = db
        .prepare_cached(
            "INSERT INTO chat_conversations (workspace_id, id, org_id, user_id, title, mode, source, page_path, kind, \
             preview, message_count, first_message, visibility, created_at, updated_at, version) \
             VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13, ?14, ?15, ?16)",
        )?
        .insert(params![
            made.workspace,
            made.id,
            made.org,
            made.owner,
            made.title,
            made.mode.map(|mode| mode.as_str()),
            made.source.map(|source| source.as_str()),
            made.page_path,
            made.kind.as_str(),
            made.preview,
            made.message_count,
            made.first_message,
            made.visibility.as_str(),
            made.created_at.as_millisecond(),
            made.updated_at.as_millisecond(),
            made.version,
        ])?;
    if let Some(title) = &made.title {
        index(db, "title_search", row, title)?;
    }
    for (seq, message) in (1_i64..).zip(&stored.messages) {
        let row = db
            .prepare_cached(
                "INSERT INTO messages (workspace_id, conversation_id, seq, id, role, text, content, \
                 file_attachments, sources, token_count, metadata, created_at) \
                 VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12)",
            )?
            .insert(params![
                made.workspace,
                made.id,
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
            ])?;
        index(db, "message_search", row, &message.text)?;
    }
    Ok(())
}

fn index(db: &Transaction<'_>, table: &str, row: i64, text: &str) -> anyhow::Result<()> {
    db.prepare_cached(&format!("INSERT INTO {table} (rowid, words) VALUES (?1, ?2)"))?
        .execute(params![row, index_text(text)])?;
    Ok(())
}
