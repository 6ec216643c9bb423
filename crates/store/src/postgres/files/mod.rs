//! Files: a name is reserved, its bytes are made durable, then it is visible.
//!
//! Names and room are decided under the lock of the bag's owner, so that two writers never decide the same.

mod bag;
mod keep;
mod reserve;

use async_trait::async_trait;
use domain::file::{Bag, Digest, File, FileSource, name_key};
use domain::scope::Scope;
use domain::transfer::ArchivedFile;
use jiff::Timestamp;
use tokio_postgres::Row;
use uuid::Uuid;

use self::bag::{in_bag, owner, seen};
pub(super) use self::bag::{lock_bag, own_execution};
use self::keep::keep;
pub(super) use self::keep::keep_in;
use self::reserve::{claim_promised, read_reserved, reservation, reserve};
use super::conversations::bad_column;
use super::transaction::{Query, Settings, Transaction, inside, params, transaction};
use super::{PostgresStore, conversations};
use crate::error::{Result, StoreError};
use crate::files::{NewFile, Reserved, Stored};
use crate::list::{Dialect, Sql, Value};
use crate::store::files::Files;

#[async_trait]
impl Files for PostgresStore {
    async fn reserve_files(
        &self,
        scope: &Scope,
        bag: Bag,
        new: &[NewFile],
        max_bag_bytes: u64,
        now: Timestamp,
    ) -> Result<Vec<Reserved>> {
        transaction!(self.database, begin_write, Settings::of(scope), |tx| reserve(
            tx,
            scope,
            bag,
            new,
            max_bag_bytes,
            now
        ))
    }

    async fn get_reserved(&self, scope: &Scope, bag: Bag, id: Uuid) -> Result<Reserved> {
        let (seen, text) = (seen(self.database.dialect, scope, bag), reservation(self.database.dialect, bag));
        let owner = owner(bag);
        let query = Query { text: &text, params: vec![&scope.workspace, &owner, &id] };
        let [seen, rows] = self.database.read(&Settings::of(scope), [(&seen).into(), query]).await?;
        read_reserved(rows.first().filter(|_| !seen.is_empty()).ok_or(StoreError::NotFound)?)
    }

    async fn is_promised(&self, workspace: Uuid, id: Uuid) -> Result<bool> {
        let text = format!(
            "SELECT f.id FROM files f WHERE {} AND f.id = $2 AND NOT f.kept AND f.deleted_at IS NULL \
             AND f.expires_at IS NOT NULL AND {}",
            inside(self.database.dialect, "f.workspace_id"),
            conversations::asked("f", "c.deleted_at IS NULL")
        );
        let query = Query { text: &text, params: vec![&workspace, &id] };
        let [rows] = self.database.read(&Settings::workspace(workspace).seeing_all(), [query]).await?;
        Ok(!rows.is_empty())
    }

    async fn claim_promised(&self, scope: &Scope, bag: Bag, id: Uuid, now: Timestamp) -> Result<Reserved> {
        transaction!(self.database, begin_write, Settings::of(scope), |tx| claim_promised(
            tx, scope, bag, id, now
        ))
    }

    async fn keep_files(
        &self,
        scope: &Scope,
        bag: Bag,
        stored: &[Stored],
        max_bag_bytes: u64,
        now: Timestamp,
    ) -> Result<Vec<File>> {
        transaction!(self.database, begin_write, Settings::of(scope), |tx| keep(
            tx,
            scope,
            bag,
            stored,
            max_bag_bytes,
            now
        ))
    }

    async fn system_forget_files(&self, workspace: Uuid, ids: &[Uuid]) -> Result<()> {
        let settings = Settings::workspace(workspace).seeing_all();
        transaction!(self.database, begin_write, settings, |tx| forget(tx, workspace, ids))
    }

    async fn list_files(
        &self,
        scope: &Scope,
        bag: Bag,
        after: Option<Uuid>,
        limit: usize,
    ) -> Result<Vec<File>> {
        let seen = seen(self.database.dialect, scope, bag);
        let text = format!(
            "SELECT {COLUMNS} FROM files f WHERE {} AND {} AND {VISIBLE} \
             AND f.id > coalesce($3::uuid, '00000000-0000-0000-0000-000000000000') ORDER BY f.id LIMIT $4",
            inside(self.database.dialect, "f.workspace_id"),
            in_bag(bag)
        );
        let (owner, limit) = (owner(bag), limit as i64);
        let query = Query { text: &text, params: vec![&scope.workspace, &owner, &after, &limit] };
        let [seen, rows] = self.database.read(&Settings::of(scope), [(&seen).into(), query]).await?;
        if seen.is_empty() {
            return Err(StoreError::NotFound);
        }
        read_all(&rows)
    }

    async fn find_file(&self, scope: &Scope, bag: Bag, name: &str) -> Result<Option<File>> {
        // No name has a NUL, and PostgreSQL takes none.
        if name.contains('\0') {
            return Ok(None);
        }
        let seen = seen(self.database.dialect, scope, bag);
        let text = format!(
            "SELECT {COLUMNS} FROM files f WHERE {} AND {} AND f.name_key = $3 AND {VISIBLE}",
            inside(self.database.dialect, "f.workspace_id"),
            in_bag(bag)
        );
        let (owner, key) = (owner(bag), name_key(name));
        let query = Query { text: &text, params: vec![&scope.workspace, &owner, &key] };
        let [seen, rows] = self.database.read(&Settings::of(scope), [(&seen).into(), query]).await?;
        if seen.is_empty() {
            return Ok(None);
        }
        rows.first().map(read).transpose()
    }

    async fn get_file(&self, scope: &Scope, id: Uuid) -> Result<File> {
        let sql = visible(self.database.dialect, scope, id);
        let [rows] = self.database.read(&Settings::of(scope), [(&sql).into()]).await?;
        read(rows.first().ok_or(StoreError::NotFound)?)
    }

    async fn delete_file(&self, scope: &Scope, id: Uuid, now: Timestamp) -> Result<()> {
        transaction!(self.database, begin_write, Settings::of(scope), |tx| delete(tx, scope, id, now))
    }
}

pub(super) const COLUMNS: &str = "f.id, f.conversation_id, f.execution_id, f.message_id, f.name, f.mime_type, \
     f.size, f.sha256, f.crc32, f.storage_key, f.source, f.created_at, f.deleted_at";
/// What readers see.
pub(super) const VISIBLE: &str = "f.kept AND f.deleted_at IS NULL";

fn read(row: &Row) -> Result<File> {
    let bag = match (row.try_get(1)?, row.try_get(2)?) {
        (Some(conversation), _) => Bag::Conversation(conversation),
        (None, Some(execution)) => Bag::Execution(execution),
        (None, None) => Bag::Workspace,
    };
    let (size, sha256, crc32): (i64, &[u8], i64) = (row.try_get(6)?, row.try_get(7)?, row.try_get(8)?);
    Ok(File {
        id: row.try_get(0)?,
        bag,
        message: row.try_get(3)?,
        name: row.try_get(4)?,
        mime_type: row.try_get(5)?,
        digest: Digest {
            size: u64::try_from(size).map_err(|_| bad_column(6))?,
            sha256: sha256.try_into().map_err(|_| bad_column(7))?,
            crc32: u32::try_from(crc32).map_err(|_| bad_column(8))?,
        },
        storage_key: row.try_get(9)?,
        source: FileSource::parse(row.try_get(10)?).ok_or_else(|| bad_column(10))?,
        created_at: row.try_get(11)?,
        deleted_at: row.try_get(12)?,
    })
}

pub(super) fn read_all(rows: &[Row]) -> Result<Vec<File>> {
    rows.iter().map(read).collect()
}

/// The visible files of a conversation's bag, or of the workspace's, by id; `$2` is the bag's `owner`.
pub(super) fn archived_query(dialect: Dialect, bag: Bag) -> String {
    format!(
        "SELECT {COLUMNS}, f.run_id, f.user_id FROM files f WHERE {} AND {} AND {VISIBLE} ORDER BY f.id",
        inside(dialect, "f.workspace_id"),
        in_bag(bag)
    )
}

/// A row of `archived_query`.
pub(super) fn read_archived(row: &Row) -> Result<ArchivedFile> {
    Ok(ArchivedFile { file: read(row)?, run: row.try_get(13)?, user: row.try_get(14)? })
}

pub(super) fn size(bytes: u64) -> Result<i64> {
    i64::try_from(bytes).map_err(|_| StoreError::BagFull { limit: i64::MAX.unsigned_abs() })
}

/// A visible file of any bag that the scope may see.
fn visible(dialect: Dialect, scope: &Scope, id: Uuid) -> Sql {
    let mut sql = Sql::new(dialect);
    let inside = sql.inside(scope, "f.workspace_id");
    let visible = sql.visible(scope, false);
    let conversation = conversations::asked("f", &format!("c.deleted_at IS NULL AND {visible}"));
    let execution = own_execution(&mut sql, dialect, scope, "f.user_id");
    let id = sql.bind(Value::Uuid(id));
    sql.text = format!(
        "SELECT {COLUMNS} FROM files f WHERE {inside} AND f.id = {id} AND {VISIBLE} AND CASE \
             WHEN f.conversation_id IS NOT NULL THEN {conversation} \
             WHEN f.execution_id IS NOT NULL THEN {execution} ELSE TRUE END"
    );
    sql
}

async fn delete(tx: &Transaction, scope: &Scope, id: Uuid, now: Timestamp) -> Result<()> {
    let sql = visible(tx.dialect, scope, id);
    tx.row(&sql.text, &params(&sql)).await?.ok_or(StoreError::NotFound)?;
    let text = format!(
        "UPDATE files f SET deleted_at = $3 WHERE {} AND f.id = $2 AND {VISIBLE}",
        tx.inside("f.workspace_id")
    );
    match tx.execute(&text, &[&scope.workspace, &id, &now]).await? {
        0 => Err(StoreError::NotFound),
        _ => Ok(()),
    }
}

/// Removes rows whose bytes are gone; a visible one stays.
async fn forget(tx: &Transaction, workspace: Uuid, ids: &[Uuid]) -> Result<()> {
    let text = format!(
        "DELETE FROM files f WHERE {} AND f.id = ANY($2) AND NOT ({VISIBLE})",
        tx.inside("f.workspace_id")
    );
    tx.execute(&text, &[&workspace, &ids]).await.map(|_| ())
}
