//! The files of a fork: which ones go with a thread, and their copies, which the new messages name.

use std::collections::{HashMap, HashSet};

use domain::file::{Bag, File};
use domain::message::Message;
use domain::scope::Scope;
use rusqlite::{Connection, params};
use uuid::Uuid;

use super::files::{self, VISIBLE};
use super::{branches, conversations};
use crate::error::{Result, StoreError};
use crate::files::{Fork, named_files, rename_files};

/// A message that may name files.
struct Naming {
    branch: i64,
    seq: i64,
    content: String,
    attachments: String,
}

/// The messages of a conversation that may name files.
fn naming(db: &Connection, scope: &Scope, conversation: Uuid) -> Result<Vec<Naming>> {
    let mut statement = db.prepare(
        "SELECT branch, seq, content, file_attachments FROM messages \
         WHERE workspace_id = ?1 AND conversation_id = ?2 \
         AND (file_attachments <> '[]' OR instr(content, '\"fileId\"') > 0) ORDER BY seq",
    )?;
    let rows = statement.query_map(params![scope.workspace, conversation], |row| {
        let (branch, seq) = (row.get(0)?, row.get(1)?);
        Ok(Naming { branch, seq, content: row.get(2)?, attachments: row.get(3)? })
    })?;
    Ok(rows.collect::<rusqlite::Result<_>>()?)
}

pub(super) fn list(db: &Connection, scope: &Scope, conversation: Uuid, through: Uuid) -> Result<Vec<File>> {
    conversations::find(db, scope, conversation, false, false)?.ok_or(StoreError::NotFound)?;
    let rest = format!(
        "INDEXED BY idx_files_bag WHERE workspace_id = ?1 AND conversation_id = ?2 AND {VISIBLE} ORDER BY id"
    );
    let bag = files::select(db, &rest, &[&scope.workspace, &conversation])?;
    let thread = branches::thread_through(db, scope, conversation, through)?;
    if bag.is_empty() {
        return Ok(bag);
    }
    let (mut inside, mut elsewhere) = (HashSet::new(), HashSet::new());
    for message in naming(db, scope, conversation)? {
        let is_inside = thread.iter().any(|segment| segment.holds(message.branch, message.seq));
        let named = if is_inside { &mut inside } else { &mut elsewhere };
        named.extend(named_files(&message.content)?);
        named.extend(named_files(&message.attachments)?);
    }
    let at: i64 = db.query_row(
        "SELECT created_at FROM messages WHERE workspace_id = ?1 AND conversation_id = ?2 AND id = ?3",
        params![scope.workspace, conversation, through],
        |row| row.get(0),
    )?;
    let unnamed = |file: &File| {
        file.message.is_none() && !elsewhere.contains(&file.id) && file.created_at.as_millisecond() <= at
    };
    Ok(bag.into_iter().filter(|file| inside.contains(&file.id) || unnamed(file)).collect())
}

/// Puts the copies into the fork's bag, and answers each by its source. What was deleted meanwhile is left out.
pub(super) fn copy(db: &Connection, scope: &Scope, from: Uuid, fork: &Fork) -> Result<HashMap<Uuid, Uuid>> {
    let mut copies = HashMap::new();
    for (source, copy) in &fork.files {
        let rest = format!("WHERE workspace_id = ?1 AND conversation_id = ?2 AND id = ?3 AND {VISIBLE}");
        if let Some(file) = files::select(db, &rest, &[&scope.workspace, &from, source])?.pop() {
            insert(db, scope, &file, *copy, fork.id)?;
            copies.insert(*source, *copy);
        }
    }
    Ok(copies)
}

/// Names the copies in a message.
pub(super) fn rename(message: &mut Message, copies: &HashMap<Uuid, Uuid>) -> Result<()> {
    if copies.is_empty() {
        return Ok(());
    }
    for items in [&mut message.content, &mut message.file_attachments] {
        if items.contains("\"fileId\"") {
            *items = rename_files(items, copies)?;
        }
    }
    Ok(())
}

/// Ties the files that are attached to a message of a fork to it.
pub(super) fn attach(db: &Connection, scope: &Scope, fork: Uuid, message: &Message) -> Result<()> {
    for id in named_files(&message.file_attachments)? {
        db.prepare_cached(
            "UPDATE files SET message_id = ?4 WHERE workspace_id = ?1 AND conversation_id = ?2 AND id = ?3",
        )?
        .execute(params![scope.workspace, fork, id, message.id])?;
    }
    Ok(())
}

fn insert(db: &Connection, scope: &Scope, file: &File, copy: Uuid, to: Uuid) -> Result<()> {
    db.prepare_cached(
        "INSERT INTO files (workspace_id, id, conversation_id, name, name_key, mime_type, size, sha256, crc32, \
         storage_key, source, created_at, kept, reserved_at, user_id) \
         SELECT workspace_id, ?3, ?4, name, name_key, mime_type, size, sha256, crc32, ?5, source, created_at, 1, \
         reserved_at, ?6 FROM files WHERE workspace_id = ?1 AND id = ?2",
    )?
    .execute(params![
        scope.workspace,
        file.id,
        copy,
        to,
        Bag::Conversation(to).storage_key(scope.workspace, &file.name),
        scope.user,
    ])?;
    Ok(())
}
