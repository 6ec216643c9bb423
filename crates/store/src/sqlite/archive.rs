//! Whole conversations, out and in.

use std::sync::Arc;

use async_trait::async_trait;
use domain::file::{Bag, name_key};
use domain::scope::Scope;
use domain::time::from_ms;
use domain::transfer::growth::Growth;
use domain::transfer::{Archive, ArchivedBranch, ArchivedFile, ArchivedRun, Trace};
use jiff::Timestamp;
use rusqlite::{Connection, params, params_from_iter};
use uuid::Uuid;

use super::search::{self, Indexed};
use super::writer::Durability;
use super::{SqliteStore, archive_runs, branches, conversations, files, is_taken, messages, workspaces};
use crate::error::{Result, StoreError};
use crate::files::Stored;
use crate::list::{Dialect, Sql, Value};
use crate::store::archive::{Archives, TURN_UNDER_WAY};
use crate::transfer::Pieces;

#[async_trait]
impl Archives for SqliteStore {
    async fn list_archivable(&self, scope: &Scope, after: Option<Uuid>, limit: usize) -> Result<Vec<Uuid>> {
        let scope = scope.clone();
        self.readers.read(move |db| list(db, &scope, after, limit)).await
    }

    async fn get_archive(&self, scope: &Scope, id: Uuid) -> Result<Archive> {
        let scope = scope.clone();
        self.readers.read(move |db| get(db, &scope, id)).await
    }

    async fn list_archived_files(&self, scope: &Scope) -> Result<Vec<ArchivedFile>> {
        let scope = scope.clone();
        self.readers.read(move |db| files::archived(db, &scope, Bag::Workspace)).await
    }

    async fn known_conversations(&self, scope: &Scope, ids: &[Uuid]) -> Result<Vec<bool>> {
        let (scope, ids) = (scope.clone(), ids.to_vec());
        self.readers.read(move |db| known(db, &scope, &ids)).await
    }

    async fn import_archive(
        &self,
        scope: &Scope,
        archive: Arc<Archive>,
        traces: Arc<dyn Pieces<Trace>>,
    ) -> Result<bool> {
        let scope = scope.clone();
        let work = move |db: &_| import(db, &scope, &archive, &*traces);
        self.writer.write(Durability::Full, work).await
    }

    async fn list_message_ids(&self, scope: &Scope, conversation: Uuid) -> Result<Vec<Uuid>> {
        let scope = scope.clone();
        self.readers.read(move |db| message_ids(db, &scope, conversation)).await
    }

    async fn extend_archive(&self, scope: &Scope, growth: Arc<Growth>, stored: &[Stored]) -> Result<bool> {
        let (scope, stored) = (scope.clone(), stored.to_vec());
        let work = move |db: &_| extend(db, &scope, &growth, &stored);
        self.writer.write(Durability::Full, work).await
    }
}

fn list(db: &Connection, scope: &Scope, after: Option<Uuid>, limit: usize) -> Result<Vec<Uuid>> {
    let mut sql = Sql::new(Dialect::Sqlite);
    let workspace = sql.bind(Value::Uuid(scope.workspace));
    let visible = sql.visible(scope, false);
    let after = sql.bind(Value::Uuid(after.unwrap_or_default()));
    let text = format!(
        "SELECT c.id FROM chat_conversations c INDEXED BY sqlite_autoindex_chat_conversations_1 \
         WHERE c.workspace_id = {workspace} AND c.id > {after} AND c.deleted_at IS NULL AND {visible} \
         ORDER BY c.id LIMIT {limit}"
    );
    let mut statement = db.prepare_cached(&text)?;
    let rows = statement.query_map(params_from_iter(&sql.values), |row| row.get(0))?;
    Ok(rows.collect::<rusqlite::Result<_>>()?)
}

fn known(db: &Connection, scope: &Scope, ids: &[Uuid]) -> Result<Vec<bool>> {
    let mut statement =
        db.prepare_cached("SELECT 1 FROM chat_conversations WHERE workspace_id = ?1 AND id = ?2")?;
    ids.iter().map(|id| Ok(statement.exists(params![scope.workspace, id])?)).collect()
}

fn get(db: &Connection, scope: &Scope, id: Uuid) -> Result<Archive> {
    let (conversation, _) = conversations::get(db, scope, id)?;
    let current = branches::current(db, scope, id)?;
    let first = (0, conversation.id, 0, 0, conversation.created_at);
    let mut statement = db.prepare_cached(
        "SELECT branch, id, parent, fork_seq, created_at FROM branches \
         WHERE workspace_id = ?1 AND conversation_id = ?2 ORDER BY branch",
    )?;
    let rows = statement.query_map(params![scope.workspace, id], |row| {
        Ok((row.get(0)?, row.get(1)?, row.get(2)?, row.get(3)?, from_ms(row.get(4)?)))
    })?;
    let rows: Vec<(i64, Uuid, i64, i64, Timestamp)> = rows.collect::<rusqlite::Result<_>>()?;
    let numbers: Vec<i64> = std::iter::once(0).chain(rows.iter().map(|row| row.0)).collect();
    let place = |branch: i64| numbers.binary_search(&branch).unwrap_or(0);
    let mut branches: Vec<ArchivedBranch> = std::iter::once(first)
        .chain(rows)
        .map(|(_, id, parent, fork_seq, created_at)| ArchivedBranch {
            id,
            parent: place(parent),
            fork_seq,
            created_at,
            messages: Vec::new(),
        })
        .collect();
    for (branch, message) in messages::all(db, scope, id)? {
        if let Some(branch) = branches.get_mut(place(branch)) {
            branch.messages.push(message);
        }
    }
    let runs = archive_runs::of_conversation(db, scope, id)?;
    let runs = runs.into_iter().map(|(branch, run)| ArchivedRun { branch: place(branch), ..run });
    let metadata = db
        .prepare_cached("SELECT metadata FROM chat_conversations WHERE workspace_id = ?1 AND id = ?2")?
        .query_row(params![scope.workspace, id], |row| row.get(0))?;
    Ok(Archive {
        metadata,
        branches,
        current: place(current),
        runs: runs.collect(),
        files: files::archived(db, scope, Bag::Conversation(id))?,
        conversation,
    })
}

fn import(db: &Connection, scope: &Scope, archive: &Archive, traces: &dyn Pieces<Trace>) -> Result<bool> {
    workspaces::find(db, scope)?.ok_or(StoreError::NotFound)?;
    let id = archive.conversation.id;
    if known(db, scope, &[id])? == [true] {
        return Ok(false);
    }
    conversations::insert(db, &archive.conversation)?;
    for (number, branch) in (0_i64..).zip(&archive.branches) {
        if number > 0 {
            insert_branch(db, scope, id, number, branch)?;
        }
        for message in &branch.messages {
            messages::insert_stored(db, scope, id, number, message)?;
        }
    }
    db.prepare_cached(
        "UPDATE chat_conversations SET current_branch = ?3, metadata = ?4 WHERE workspace_id = ?1 AND id = ?2",
    )?
    .execute(params![scope.workspace, id, archive.current as i64, archive.metadata])?;
    for run in &archive.runs {
        archive_runs::insert(db, scope, run, None)?;
    }
    archive_runs::insert_traces(db, scope, &archive.runs, traces)?;
    archive.files.iter().try_for_each(|file| insert_file(db, scope, file))?;
    Ok(true)
}

fn insert_branch(
    db: &Connection,
    scope: &Scope,
    conversation: Uuid,
    number: i64,
    branch: &ArchivedBranch,
) -> Result<()> {
    db.prepare_cached(
        "INSERT INTO branches (workspace_id, conversation_id, branch, id, parent, fork_seq, created_at) \
         VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7)",
    )?
    .execute(params![
        scope.workspace,
        conversation,
        number,
        branch.id,
        branch.parent as i64,
        branch.fork_seq,
        branch.created_at.as_millisecond()
    ])?;
    Ok(())
}

fn message_ids(db: &Connection, scope: &Scope, conversation: Uuid) -> Result<Vec<Uuid>> {
    conversations::get(db, scope, conversation)?;
    let mut statement =
        db.prepare_cached("SELECT id FROM messages WHERE workspace_id = ?1 AND conversation_id = ?2")?;
    let rows = statement.query_map(params![scope.workspace, conversation], |row| row.get(0))?;
    Ok(rows.collect::<rusqlite::Result<_>>()?)
}

fn extend(db: &Connection, scope: &Scope, of: &Growth, stored: &[Stored]) -> Result<bool> {
    let id = of.conversation.id;
    let (was, pk) = conversations::get(db, scope, id)?;
    if was.version != of.version {
        return Ok(false);
    }
    let busy = "SELECT 1 FROM runs WHERE workspace_id = ?1 AND conversation_id = ?2 AND status IN ('queued', 'running')";
    if db.prepare_cached(busy)?.exists(params![scope.workspace, id])? {
        return Err(TURN_UNDER_WAY);
    }
    for (number, branch) in (of.first_branch as i64..).zip(&of.branches) {
        insert_branch(db, scope, id, number, branch)?;
    }
    for (branch, message) in &of.messages {
        messages::insert_stored(db, scope, id, *branch as i64, message)?;
    }
    conversations::save(db, pk, &of.conversation)?;
    search::reindex(Indexed::Title, pk, of.conversation.title.as_deref());
    db.prepare_cached("UPDATE chat_conversations SET current_branch = ?2 WHERE pk = ?1")?
        .execute(params![pk, of.current as i64])?;
    for (ArchivedFile { file, .. }, stored) in of.files.iter().zip(stored) {
        let (one, bag) = (std::slice::from_ref(stored), (Bag::Conversation(id), None));
        files::keep_in(db, scope.workspace, bag, one, u64::MAX, file.created_at)?;
        db.prepare_cached("UPDATE files SET message_id = ?3 WHERE workspace_id = ?1 AND id = ?2")?
            .execute(params![scope.workspace, file.id, file.message])?;
    }
    Ok(true)
}

/// A file of a conversation or an execution.
pub(super) fn insert_file(db: &Connection, scope: &Scope, of: &ArchivedFile) -> Result<()> {
    let ArchivedFile { file, run, user } = of;
    let (conversation, execution) = file.bag.owners();
    let inserted = db
        .prepare_cached(
            "INSERT INTO files (workspace_id, id, conversation_id, message_id, name, name_key, mime_type, size, \
             sha256, crc32, storage_key, source, created_at, kept, reserved_at, user_id, run_id, execution_id) \
             VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13, 1, ?13, ?14, ?15, ?16)",
        )?
        .execute(params![
            scope.workspace,
            file.id,
            conversation,
            file.message,
            file.name,
            name_key(&file.name),
            file.mime_type,
            file.digest.size.cast_signed(),
            file.digest.sha256,
            file.digest.crc32,
            file.storage_key,
            file.source.as_str(),
            file.created_at.as_millisecond(),
            user,
            run,
            execution,
        ]);
    inserted.map(|_| ()).map_err(|error| taken(error, "a file's id"))
}

pub(super) fn taken(error: rusqlite::Error, what: &'static str) -> StoreError {
    if is_taken(&error) { StoreError::Taken(what) } else { error.into() }
}
