//! Files: names reserved in a bag, kept once their bytes are durable, seen by whoever sees the bag.

mod bag;
mod keep;
mod reserve;

use async_trait::async_trait;
use domain::file::{Bag, Digest, File, FileSource, name_key};
use domain::scope::Scope;
use domain::time::from_ms;
use domain::transfer::ArchivedFile;
use jiff::Timestamp;
use rusqlite::{Connection, Row, ToSql, params};
use uuid::Uuid;

use self::bag::{check_bag, index, inside};
use self::keep::keep;
pub(super) use self::keep::keep_in;
use self::reserve::{claim_promised, get_reserved, is_promised, reserve};
use super::SqliteStore;
use super::writer::Durability;
use crate::error::{Result, StoreError};
use crate::files::{NewFile, Reserved, Stored};
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

    async fn is_promised(&self, workspace: Uuid, id: Uuid) -> Result<bool> {
        self.readers.read(move |db| is_promised(db, workspace, id)).await
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

    async fn find_file(&self, scope: &Scope, bag: Bag, name: &str) -> Result<Option<File>> {
        let (scope, key) = (scope.clone(), name_key(name));
        self.readers.read(move |db| find(db, &scope, bag, &key)).await
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

fn find(db: &Connection, scope: &Scope, bag: Bag, key: &str) -> Result<Option<File>> {
    if let Err(error) = check_bag(db, scope, bag) {
        return if matches!(error, StoreError::NotFound) { Ok(None) } else { Err(error) };
    }
    let (inside, id) = inside(bag);
    let rest = format!("WHERE workspace_id = ?1 AND {inside} AND name_key = ?3 AND {VISIBLE}");
    Ok(select(db, &rest, &[&scope.workspace, &id, &key])?.pop())
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
