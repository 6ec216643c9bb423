//! Files: names reserved in a bag, kept once their bytes are durable, seen by whoever sees the bag.

use async_trait::async_trait;
use domain::file::{Bag, Digest, File, FileSource, name_key, numbered};
use domain::scope::Scope;
use domain::time::from_ms;
use domain::transfer::ArchivedFile;
use jiff::Timestamp;
use rusqlite::{Connection, OptionalExtension, Row, ToSql, params};
use uuid::Uuid;

use super::writer::Durability;
use super::{SqliteStore, conversations, executions, is_taken, workspaces};
use crate::error::{Result, StoreError};
use crate::files::{NewFile, Promised, Reserved, Stored};
use crate::store::files::Files;

#[async_trait]
impl Files for SqliteStore {
    async fn reserve_files(
        &self,
        scope: &Scope,
        bag: Bag,
        new: &[NewFile],
        max_bag_bytes: u64,
        now: Timestamp,
    ) -> Result<Vec<Reserved>> {
        let (scope, new) = (scope.clone(), new.to_vec());
        let work = move |db: &_| reserve(db, &scope, bag, &new, max_bag_bytes, now);
        self.writer.write(Durability::Normal, work).await
    }

    async fn get_reserved(&self, scope: &Scope, bag: Bag, id: Uuid) -> Result<Reserved> {
        let scope = scope.clone();
        self.readers.read(move |db| get_reserved(db, &scope, bag, id)).await
    }

    async fn claim_promised(&self, scope: &Scope, bag: Bag, id: Uuid, now: Timestamp) -> Result<Reserved> {
        let scope = scope.clone();
        self.writer.write(Durability::Full, move |db| claim_promised(db, &scope, bag, id, now)).await
    }

    async fn keep_files(
        &self,
        scope: &Scope,
        bag: Bag,
        stored: &[Stored],
        max_bag_bytes: u64,
        now: Timestamp,
    ) -> Result<Vec<File>> {
        let (scope, stored) = (scope.clone(), stored.to_vec());
        let work = move |db: &_| keep(db, &scope, bag, &stored, max_bag_bytes, now);
        self.writer.write(Durability::Full, work).await
    }

    async fn system_forget_files(&self, workspace: Uuid, ids: &[Uuid]) -> Result<()> {
        let ids = ids.to_vec();
        self.writer.write(Durability::Normal, move |db| forget(db, workspace, &ids)).await
    }

    async fn list_files(
        &self,
        scope: &Scope,
        bag: Bag,
        after: Option<Uuid>,
        limit: usize,
    ) -> Result<Vec<File>> {
        let scope = scope.clone();
        self.readers.read(move |db| list(db, &scope, bag, after, limit)).await
    }

    async fn get_file(&self, scope: &Scope, id: Uuid) -> Result<File> {
        let scope = scope.clone();
        self.readers.read(move |db| get(db, &scope, id)).await
    }

    async fn delete_file(&self, scope: &Scope, id: Uuid, now: Timestamp) -> Result<()> {
        let scope = scope.clone();
        self.writer.write(Durability::Full, move |db| delete(db, &scope, id, now)).await
    }
}

const COLUMNS: &str = "id, conversation_id, execution_id, message_id, name, mime_type, size, sha256, crc32, storage_key, \
     source, created_at, deleted_at";

/// What readers see.
pub(super) const VISIBLE: &str = "kept = 1 AND deleted_at IS NULL";

fn read(row: &Row<'_>) -> rusqlite::Result<File> {
    let bag = match (row.get(1)?, row.get(2)?) {
        (Some(id), _) => Bag::Conversation(id),
        (None, Some(id)) => Bag::Execution(id),
        (None, None) => Bag::Workspace,
    };
    Ok(File {
        id: row.get(0)?,
        bag,
        message: row.get(3)?,
        name: row.get(4)?,
        mime_type: row.get(5)?,
        digest: Digest { size: read_size(row, 6)?, sha256: row.get(7)?, crc32: row.get(8)? },
        storage_key: row.get(9)?,
        source: read_source(row, 10)?,
        created_at: from_ms(row.get(11)?),
        deleted_at: row.get::<_, Option<i64>>(12)?.map(from_ms),
    })
}

fn read_size(row: &Row<'_>, at: usize) -> rusqlite::Result<u64> {
    Ok(row.get::<_, i64>(at)?.cast_unsigned())
}

fn read_source(row: &Row<'_>, at: usize) -> rusqlite::Result<FileSource> {
    FileSource::parse(&row.get::<_, String>(at)?).ok_or(rusqlite::Error::InvalidQuery)
}

/// The files of a condition, in an order; it begins with the index where SQLite needs to be told.
pub(super) fn select(db: &Connection, rest: &str, values: &[&dyn ToSql]) -> Result<Vec<File>> {
    let text = format!("SELECT {COLUMNS} FROM files {rest}");
    let mut statement = db.prepare_cached(&text)?;
    let rows = statement.query_map(values, read)?;
    Ok(rows.collect::<rusqlite::Result<_>>()?)
}

/// The visible files of a conversation's bag, or of the workspace's, by id.
pub(super) fn archived(db: &Connection, scope: &Scope, bag: Bag) -> Result<Vec<ArchivedFile>> {
    let ((inside, id), index) = (inside(bag), index(bag));
    let text = format!(
        "SELECT {COLUMNS}, run_id, user_id FROM files INDEXED BY {index} \
         WHERE workspace_id = ?1 AND {inside} AND {VISIBLE} ORDER BY id"
    );
    let mut statement = db.prepare_cached(&text)?;
    let rows = statement.query_map(params![scope.workspace, id], |row| {
        Ok(ArchivedFile { file: read(row)?, run: row.get(13)?, user: row.get(14)? })
    })?;
    Ok(rows.collect::<rusqlite::Result<_>>()?)
}

/// The index of a bag's files by id.
fn index(bag: Bag) -> &'static str {
    match bag {
        Bag::Conversation(_) => "idx_files_bag",
        Bag::Execution(_) => "idx_files_execution",
        Bag::Workspace => "idx_files_workspace",
    }
}

/// The condition that a file lies in a bag, whose id is `?2`.
fn inside(bag: Bag) -> (&'static str, Option<Uuid>) {
    match bag {
        Bag::Conversation(id) => ("conversation_id = ?2", Some(id)),
        Bag::Execution(id) => ("execution_id = ?2", Some(id)),
        Bag::Workspace => ("conversation_id IS NULL AND execution_id IS NULL AND ?2 IS NULL", None),
    }
}

/// `NotFound` unless the bag is there for the scope.
fn check_bag(db: &Connection, scope: &Scope, bag: Bag) -> Result<()> {
    match bag {
        Bag::Conversation(id) => {
            conversations::find(db, scope, id, false, false)?.map(drop).ok_or(StoreError::NotFound)
        }
        Bag::Execution(id) => executions::check(db, scope, id),
        Bag::Workspace => workspaces::find(db, scope)?.map(drop).ok_or(StoreError::NotFound),
    }
}

/// What is there, what is promised and what is under way must fit.
fn check_fits(db: &Connection, workspace: Uuid, bag: Bag, limit: u64) -> Result<()> {
    let ((inside, id), index) = (inside(bag), index(bag));
    let text = format!(
        "SELECT coalesce(sum(size), 0) FROM files INDEXED BY {index} \
         WHERE workspace_id = ?1 AND {inside} AND deleted_at IS NULL"
    );
    let size = db.prepare_cached(&text)?.query_row(params![workspace, id], |row| read_size(row, 0))?;
    if size > limit { Err(StoreError::BagFull { limit }) } else { Ok(()) }
}

fn reserve(
    db: &Connection,
    scope: &Scope,
    bag: Bag,
    new: &[NewFile],
    max_bag_bytes: u64,
    now: Timestamp,
) -> Result<Vec<Reserved>> {
    match bag {
        // Its files are there before it is.
        Bag::Execution(id) if !executions::exists(db, scope, id)? => {
            workspaces::find(db, scope)?.ok_or(StoreError::NotFound)?;
        }
        _ => check_bag(db, scope, bag)?,
    }
    let reserved = new.iter().map(|file| reserve_one(db, scope, bag, file, now)).collect::<Result<_>>()?;
    check_fits(db, scope.workspace, bag, max_bag_bytes)?;
    Ok(reserved)
}

fn reserve_one(db: &Connection, scope: &Scope, bag: Bag, file: &NewFile, now: Timestamp) -> Result<Reserved> {
    let name = free_name(db, scope.workspace, bag, &file.name)?;
    let storage_key = bag.storage_key(scope.workspace, &name);
    let (conversation, execution) = match bag {
        Bag::Conversation(id) => (Some(id), None),
        Bag::Execution(id) => (None, Some(id)),
        Bag::Workspace => (None, None),
    };
    let promised = file.promised.as_ref();
    db.prepare_cached(
        "INSERT INTO files (workspace_id, id, conversation_id, execution_id, name, name_key, mime_type, size, sha256, \
         storage_key, source, created_at, kept, reserved_at, expires_at, user_id) \
         VALUES (?1, ?2, ?3, ?4, ?5, ?6, '', ?7, ?8, ?9, ?10, ?11, 0, ?11, ?12, ?13)",
    )?
    .execute(params![
        scope.workspace,
        file.id,
        conversation,
        execution,
        name,
        name_key(&name),
        promised.map_or(0, |promised| promised.size.cast_signed()),
        promised.map_or(&[][..], |promised| &promised.sha256),
        storage_key,
        file.source.as_str(),
        now.as_millisecond(),
        promised.map(|promised| promised.expires_at.as_millisecond()),
        scope.user,
    ])
    .map_err(|error| if is_taken(&error) { StoreError::Taken("file") } else { error.into() })?;
    let promised = file.promised.clone();
    Ok(Reserved { id: file.id, name, storage_key, source: file.source, promised })
}

/// The name, or with the first free number: found by doubling and halving, so that a bag full of one name stays cheap.
fn free_name(db: &Connection, workspace: Uuid, bag: Bag, name: &str) -> Result<String> {
    let (inside, id) = inside(bag);
    let text = format!("SELECT 1 FROM files WHERE workspace_id = ?1 AND {inside} AND name_key = ?3");
    let mut statement = db.prepare_cached(&text)?;
    let mut taken = |name: &str| statement.exists(params![workspace, id, name_key(name)]);
    if !taken(name)? {
        return Ok(name.to_owned());
    }
    let (mut low, mut high) = (0, 1);
    while taken(&numbered(name, high))? {
        (low, high) = (high, high * 2);
    }
    while high - low > 1 {
        let middle = low + (high - low) / 2;
        if taken(&numbered(name, middle))? {
            low = middle;
        } else {
            high = middle;
        }
    }
    Ok(numbered(name, high))
}

fn get_reserved(db: &Connection, scope: &Scope, bag: Bag, id: Uuid) -> Result<Reserved> {
    check_bag(db, scope, bag)?;
    let (inside, bag_id) = inside(bag);
    let text = format!(
        "SELECT name, storage_key, source, size, sha256, expires_at FROM files \
         WHERE workspace_id = ?1 AND {inside} AND id = ?3 AND kept = 0 AND deleted_at IS NULL"
    );
    db.prepare_cached(&text)?
        .query_row(params![scope.workspace, bag_id, id], |row| {
            let promised = match row.get::<_, Option<i64>>(5)? {
                None => None,
                Some(expires_at) => Some(Promised {
                    size: read_size(row, 3)?,
                    sha256: row.get(4)?,
                    expires_at: from_ms(expires_at),
                }),
            };
            let (name, storage_key) = (row.get(0)?, row.get(1)?);
            Ok(Reserved { id, name, storage_key, source: read_source(row, 2)?, promised })
        })
        .optional()?
        .ok_or(StoreError::NotFound)
}

fn claim_promised(db: &Connection, scope: &Scope, bag: Bag, id: Uuid, now: Timestamp) -> Result<Reserved> {
    let reserved = get_reserved(db, scope, bag, id)?;
    if reserved.promised.as_ref().is_none_or(|promised| promised.expires_at <= now) {
        return Err(StoreError::NotFound);
    }
    db.prepare_cached(
        "UPDATE files SET expires_at = NULL, reserved_at = ?3 WHERE workspace_id = ?1 AND id = ?2",
    )?
    .execute(params![scope.workspace, id, now.as_millisecond()])?;
    Ok(reserved)
}

fn keep(
    db: &Connection,
    scope: &Scope,
    bag: Bag,
    stored: &[Stored],
    max_bag_bytes: u64,
    now: Timestamp,
) -> Result<Vec<File>> {
    check_bag(db, scope, bag)?;
    keep_in(db, scope.workspace, (bag, None), stored, max_bag_bytes, now)
}

/// Makes reserved files of a bag visible; `run` is the one whose sandbox sent them.
pub(super) fn keep_in(
    db: &Connection,
    workspace: Uuid,
    (bag, run): (Bag, Option<Uuid>),
    stored: &[Stored],
    max_bag_bytes: u64,
    now: Timestamp,
) -> Result<Vec<File>> {
    let (inside, bag_id) = inside(bag);
    let text = format!(
        "UPDATE files SET kept = 1, expires_at = NULL, size = ?4, sha256 = ?5, crc32 = ?6, mime_type = ?7, \
         created_at = ?8, run_id = ?9 \
         WHERE workspace_id = ?1 AND {inside} AND id = ?3 AND kept = 0 AND deleted_at IS NULL RETURNING {COLUMNS}"
    );
    let mut statement = db.prepare_cached(&text)?;
    let mut keep_one = |Stored { id, digest, mime_type }: &Stored| {
        let (size, sha256, crc32, at) =
            (digest.size.cast_signed(), digest.sha256, digest.crc32, now.as_millisecond());
        let values = params![workspace, bag_id, id, size, sha256, crc32, mime_type, at, run];
        statement.query_row(values, read).optional()?.ok_or(StoreError::NotFound)
    };
    let files = stored.iter().map(&mut keep_one).collect::<Result<_>>()?;
    check_fits(db, workspace, bag, max_bag_bytes)?;
    Ok(files)
}

fn forget(db: &Connection, workspace: Uuid, ids: &[Uuid]) -> Result<()> {
    let mut statement = db.prepare_cached(
        "DELETE FROM files WHERE workspace_id = ?1 AND id = ?2 AND (kept = 0 OR deleted_at IS NOT NULL)",
    )?;
    for id in ids {
        statement.execute(params![workspace, id])?;
    }
    Ok(())
}

fn list(db: &Connection, scope: &Scope, bag: Bag, after: Option<Uuid>, limit: usize) -> Result<Vec<File>> {
    check_bag(db, scope, bag)?;
    let ((inside, id), index) = (inside(bag), index(bag));
    let rest = format!(
        "INDEXED BY {index} WHERE workspace_id = ?1 AND {inside} AND id > coalesce(?3, x'') AND {VISIBLE} \
         ORDER BY id LIMIT ?4"
    );
    select(db, &rest, &[&scope.workspace, &id, &after, &(limit as i64)])
}

fn get(db: &Connection, scope: &Scope, id: Uuid) -> Result<File> {
    let rest = format!("WHERE workspace_id = ?1 AND id = ?2 AND {VISIBLE}");
    let file = select(db, &rest, &[&scope.workspace, &id])?.pop().ok_or(StoreError::NotFound)?;
    check_bag(db, scope, file.bag)?;
    Ok(file)
}

fn delete(db: &Connection, scope: &Scope, id: Uuid, now: Timestamp) -> Result<()> {
    get(db, scope, id)?;
    db.prepare_cached("UPDATE files SET deleted_at = ?3 WHERE workspace_id = ?1 AND id = ?2")?
        .execute(params![scope.workspace, id, now.as_millisecond()])?;
    Ok(())
}
