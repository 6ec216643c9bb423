//! Files: a name is reserved, then it is visible; a run is given those of its bag, and sends others back.
//!
//! Names and room are decided under the lock of the bag's owner, so that two writers never decide the same.

use std::collections::{HashMap, HashSet};

use async_trait::async_trait;
use domain::file::{Bag, Digest, File, FileSource, name_key, numbered};
use domain::scope::Scope;
use domain::transfer::ArchivedFile;
use jiff::Timestamp;
use tokio_postgres::Row;
use uuid::Uuid;

use super::conversations::{self, bad_column};
use super::transaction::{Query, Settings, Transaction, inside, params, transaction};
use super::{PostgresStore, workspaces};
use crate::error::{Result, StoreError};
use crate::files::{NewFile, Promised, Reserved, Stored};
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

/// The conversation or the execution whose bag it is.
fn owner(bag: Bag) -> Option<Uuid> {
    match bag {
        Bag::Conversation(id) | Bag::Execution(id) => Some(id),
        Bag::Workspace => None,
    }
}

/// The condition that a file `f` is in the bag, `$2` being its `owner`.
fn in_bag(bag: Bag) -> &'static str {
    match bag {
        Bag::Conversation(_) => "f.conversation_id = $2",
        Bag::Execution(_) => "f.execution_id = $2",
        Bag::Workspace => "$2::uuid IS NULL AND f.conversation_id IS NULL AND f.execution_id IS NULL",
    }
}

/// The condition that what belongs to an execution is the scope's to see, `user` being who started it.
pub(super) fn own_execution(sql: &mut Sql, dialect: Dialect, scope: &Scope, user: &str) -> String {
    match dialect {
        Dialect::PostgresUnfiltered => "TRUE".into(),
        _ if scope.sees_all() => "TRUE".into(),
        _ => format!("{user} = {}", sql.bind(Value::Text(scope.user.clone()))),
    }
}

/// Answers a row when the bag is there and the scope may see it.
fn seen(dialect: Dialect, scope: &Scope, bag: Bag) -> Sql {
    match bag {
        Bag::Conversation(id) => conversations::by_id_alone(dialect, scope, id),
        Bag::Execution(id) => {
            let mut sql = Sql::new(dialect);
            let inside = sql.inside(scope, "r.workspace_id");
            let own = own_execution(&mut sql, dialect, scope, "r.user_id");
            let id = sql.bind(Value::Uuid(id));
            sql.text = format!("SELECT r.id FROM runs r WHERE {inside} AND r.execution_id = {id} AND {own}");
            sql
        }
        Bag::Workspace => {
            let mut sql = Sql::new(dialect);
            let inside = sql.inside(scope, "w.id");
            sql.text = format!("SELECT w.id FROM workspaces w WHERE {inside} AND w.deleted_at IS NULL");
            sql
        }
    }
}

/// Makes writers of a bag wait for each other, and answers whose its new files are; `None` for the bag of an
/// execution that is not there yet.
pub(super) async fn lock_bag(tx: &Transaction, scope: &Scope, bag: Bag) -> Result<Option<String>> {
    if let Bag::Conversation(id) = bag {
        conversations::lock(tx, scope, id).await?;
        return Ok(Some(scope.user.clone()));
    }
    // Locked against removal alone, as for a new conversation.
    workspaces::get(tx, scope, "FOR KEY SHARE").await?;
    tx.wait_in_line(&format!("bag {} {:?}", scope.workspace, owner(bag))).await?;
    let Bag::Execution(id) = bag else { return Ok(Some(scope.user.clone())) };
    let text =
        format!("SELECT r.user_id FROM runs r WHERE {} AND r.execution_id = $2", tx.inside("r.workspace_id"));
    // One that is another's is there, and not to be taken for one that is not there yet.
    tx.see_all(true).await?;
    let run = tx.row(&text, &[&scope.workspace, &id]).await?;
    tx.see_all(scope.sees_all()).await?;
    let Some(run) = run else { return Ok(None) };
    let user: String = run.try_get(0)?;
    if scope.owns(&user) { Ok(Some(user)) } else { Err(StoreError::NotFound) }
}

async fn check_room(tx: &Transaction, scope: &Scope, bag: Bag, max_bag_bytes: u64) -> Result<()> {
    let text = format!(
        "SELECT coalesce(sum(f.size), 0)::bigint FROM files f WHERE {} AND {} AND f.deleted_at IS NULL",
        tx.inside("f.workspace_id"),
        in_bag(bag)
    );
    let row = tx.row(&text, &[&scope.workspace, &owner(bag)]).await?.ok_or(StoreError::NotFound)?;
    let used: i64 = row.try_get(0)?;
    if used.unsigned_abs() > max_bag_bytes {
        return Err(StoreError::BagFull { limit: max_bag_bytes });
    }
    Ok(())
}

/// A name for each file that no file of the bag has, asked for many numbers at a time.
async fn free_names(tx: &Transaction, scope: &Scope, bag: Bag, new: &[NewFile]) -> Result<Vec<String>> {
    let text = format!(
        "SELECT f.name_key FROM files f WHERE {} AND {} AND f.name_key = ANY($3)",
        tx.inside("f.workspace_id"),
        in_bag(bag)
    );
    let numbered = |file: &NewFile, n| if n == 0 { file.name.clone() } else { numbered(&file.name, n) };
    let (mut names, mut chosen) = (vec![None; new.len()], HashSet::new());
    let mut numbers = 0..8_u32;
    loop {
        let open = names.iter().zip(new).filter(|(name, _)| name.is_none());
        let keys: Vec<String> =
            open.flat_map(|(_, file)| numbers.clone().map(move |n| name_key(&numbered(file, n)))).collect();
        if keys.is_empty() {
            return Ok(names.into_iter().flatten().collect());
        }
        let rows = tx.rows(&text, &[&scope.workspace, &owner(bag), &keys]).await?;
        let taken = rows.iter().map(|row| Ok(row.try_get(0)?)).collect::<Result<HashSet<String>>>()?;
        for (name, file) in names.iter_mut().zip(new).filter(|(name, _)| name.is_none()) {
            *name = numbers.clone().map(|n| numbered(file, n)).find(|name| {
                let key = name_key(name);
                !taken.contains(&key) && chosen.insert(key)
            });
        }
        let end = numbers.end.checked_mul(2).ok_or(StoreError::Taken("name"))?;
        numbers = numbers.end..end;
    }
}

async fn reserve(
    tx: &Transaction,
    scope: &Scope,
    bag: Bag,
    new: &[NewFile],
    max_bag_bytes: u64,
    now: Timestamp,
) -> Result<Vec<Reserved>> {
    let user = lock_bag(tx, scope, bag).await?.unwrap_or_else(|| scope.user.clone());
    let names = free_names(tx, scope, bag, new).await?;
    let reserved: Vec<Reserved> = new
        .iter()
        .zip(names)
        .map(|(file, name)| Reserved {
            id: file.id,
            storage_key: bag.storage_key(scope.workspace, &name),
            name,
            source: file.source,
            promised: file.promised.clone(),
        })
        .collect();
    insert_reserved(tx, scope, bag, &reserved, (&user, now)).await?;
    check_room(tx, scope, bag, max_bag_bytes).await?;
    Ok(reserved)
}

async fn insert_reserved(
    tx: &Transaction,
    scope: &Scope,
    bag: Bag,
    reserved: &[Reserved],
    (user, now): (&str, Timestamp),
) -> Result<()> {
    let (conversation, execution) = match bag {
        Bag::Conversation(id) => (Some(id), None),
        Bag::Execution(id) => (None, Some(id)),
        Bag::Workspace => (None, None),
    };
    let promised = || reserved.iter().map(|file| file.promised.as_ref());
    let sizes = promised().map(|promised| size(promised.map_or(0, |promised| promised.size)));
    tx.insert(
        "file",
        "INSERT INTO files (workspace_id, conversation_id, execution_id, user_id, created_at, reserved_at, kept, \
         mime_type, id, name, name_key, storage_key, source, size, sha256, expires_at) \
         SELECT $1::uuid, $2::uuid, $3::uuid, $4::text, $5::timestamptz, $5, false, '', n.* \
         FROM unnest($6::uuid[], $7::text[], $8::text[], $9::text[], $10::text[], $11::bigint[], $12::bytea[], \
         $13::timestamptz[]) AS n",
        &[
            &scope.workspace,
            &conversation,
            &execution,
            &user,
            &now,
            &reserved.iter().map(|file| file.id).collect::<Vec<_>>(),
            &reserved.iter().map(|file| &*file.name).collect::<Vec<_>>(),
            &reserved.iter().map(|file| name_key(&file.name)).collect::<Vec<_>>(),
            &reserved.iter().map(|file| &*file.storage_key).collect::<Vec<_>>(),
            &reserved.iter().map(|file| file.source.as_str()).collect::<Vec<_>>(),
            &sizes.collect::<Result<Vec<_>>>()?,
            &promised().map(|promised| promised.map_or(&[][..], |of| &of.sha256)).collect::<Vec<_>>(),
            &promised().map(|promised| promised.map(|of| of.expires_at)).collect::<Vec<_>>(),
        ],
    )
    .await
}

pub(super) fn size(bytes: u64) -> Result<i64> {
    i64::try_from(bytes).map_err(|_| StoreError::BagFull { limit: i64::MAX.unsigned_abs() })
}

/// The reservation `$3` of a bag.
fn reservation(dialect: Dialect, bag: Bag) -> String {
    format!(
        "SELECT f.id, f.name, f.storage_key, f.source, f.size, f.sha256, f.expires_at FROM files f \
         WHERE {} AND {} AND f.id = $3 AND NOT f.kept AND f.deleted_at IS NULL",
        inside(dialect, "f.workspace_id"),
        in_bag(bag)
    )
}

/// Takes the promise away, under the row's lock, so that one caller alone is given it.
async fn claim_promised(
    tx: &Transaction,
    scope: &Scope,
    bag: Bag,
    id: Uuid,
    now: Timestamp,
) -> Result<Reserved> {
    let seen = seen(tx.dialect, scope, bag);
    tx.row(&seen.text, &params(&seen)).await?.ok_or(StoreError::NotFound)?;
    let text = format!("{} AND f.expires_at > $4 FOR UPDATE OF f", reservation(tx.dialect, bag));
    let row = tx.row(&text, &[&scope.workspace, &owner(bag), &id, &now]).await?;
    let claimed = read_reserved(&row.ok_or(StoreError::NotFound)?)?;
    // From now on it is as old as its completion, to the sweep.
    let text = format!(
        "UPDATE files SET expires_at = NULL, reserved_at = $3 WHERE {} AND id = $2",
        tx.inside("workspace_id")
    );
    tx.execute(&text, &[&scope.workspace, &id, &now]).await?;
    Ok(claimed)
}

fn read_reserved(row: &Row) -> Result<Reserved> {
    let (size, sha256): (i64, &[u8]) = (row.try_get(4)?, row.try_get(5)?);
    let promised = match row.try_get(6)? {
        None => None,
        Some(expires_at) => Some(Promised {
            size: size.unsigned_abs(),
            sha256: sha256.try_into().map_err(|_| bad_column(5))?,
            expires_at,
        }),
    };
    Ok(Reserved {
        id: row.try_get(0)?,
        name: row.try_get(1)?,
        storage_key: row.try_get(2)?,
        source: FileSource::parse(row.try_get(3)?).ok_or_else(|| bad_column(3))?,
        promised,
    })
}

async fn keep(
    tx: &Transaction,
    scope: &Scope,
    bag: Bag,
    stored: &[Stored],
    max_bag_bytes: u64,
    now: Timestamp,
) -> Result<Vec<File>> {
    lock_bag(tx, scope, bag).await?.ok_or(StoreError::NotFound)?;
    keep_in(tx, scope, bag, None, stored, (max_bag_bytes, now)).await
}

/// Makes reserved files of a bag that is locked visible; `run` is the one whose sandbox sent them.
pub(super) async fn keep_in(
    tx: &Transaction,
    scope: &Scope,
    bag: Bag,
    run: Option<Uuid>,
    stored: &[Stored],
    (max_bag_bytes, now): (u64, Timestamp),
) -> Result<Vec<File>> {
    let text = format!(
        "UPDATE files f SET kept = true, created_at = $3, run_id = $4, expires_at = NULL, size = s.size, \
         sha256 = s.sha256, crc32 = s.crc32, mime_type = s.mime_type \
         FROM unnest($5::uuid[], $6::bigint[], $7::bytea[], $8::bigint[], $9::text[]) \
             AS s (id, size, sha256, crc32, mime_type) \
         WHERE {} AND {} AND f.id = s.id AND NOT f.kept AND f.deleted_at IS NULL RETURNING {COLUMNS}",
        tx.inside("f.workspace_id"),
        in_bag(bag)
    );
    let rows = tx
        .rows(
            &text,
            &[
                &scope.workspace,
                &owner(bag),
                &now,
                &run,
                &stored.iter().map(|file| file.id).collect::<Vec<_>>(),
                &stored.iter().map(|file| size(file.digest.size)).collect::<Result<Vec<_>>>()?,
                &stored.iter().map(|file| &file.digest.sha256[..]).collect::<Vec<_>>(),
                &stored.iter().map(|file| i64::from(file.digest.crc32)).collect::<Vec<_>>(),
                &stored.iter().map(|file| &*file.mime_type).collect::<Vec<_>>(),
            ],
        )
        .await?;
    check_room(tx, scope, bag, max_bag_bytes).await?;
    let mut files: HashMap<Uuid, File> = read_all(&rows)?.into_iter().map(|file| (file.id, file)).collect();
    stored.iter().map(|asked| files.remove(&asked.id).ok_or(StoreError::NotFound)).collect()
}

/// A visible file of any bag that the scope may see.
fn visible(dialect: Dialect, scope: &Scope, id: Uuid) -> Sql {
    let mut sql = Sql::new(dialect);
    let inside = sql.inside(scope, "f.workspace_id");
    let conversation = sql.visible(scope, false);
    let execution = own_execution(&mut sql, dialect, scope, "f.user_id");
    let id = sql.bind(Value::Uuid(id));
    sql.text = format!(
        "SELECT {COLUMNS} FROM files f LEFT JOIN chat_conversations c \
         ON c.workspace_id = f.workspace_id AND c.id = f.conversation_id \
         WHERE {inside} AND f.id = {id} AND {VISIBLE} AND CASE \
             WHEN f.conversation_id IS NOT NULL THEN c.id IS NOT NULL AND c.deleted_at IS NULL AND {conversation} \
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
