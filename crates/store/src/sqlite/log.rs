//! The event log: batches of entries, read by number, put together when their time is over. `turns/append.rs` writes
//! them.

use async_trait::async_trait;
use domain::run::Lease;
use domain::scope::Scope;
use jiff::Timestamp;
use rusqlite::{Connection, params};
use uuid::Uuid;

use super::writer::Durability;
use super::{SqliteStore, runs};
use crate::error::{Result, StoreError};
use crate::parts::{PART_BYTES, Part};
use crate::store::log::Log;
use crate::turns::{Batches, Held, KEY_LIFE, LogPage, own_scope};

#[async_trait]
impl Log for SqliteStore {
    async fn read_log(&self, scope: &Scope, run: Uuid, after: i64, max_bytes: usize) -> Result<LogPage> {
        let scope = scope.clone();
        self.readers.read(move |db| read(db, &scope, run, after, max_bytes)).await
    }

    async fn read_trace(&self, scope: &Scope, run: Uuid, after: i64, max_bytes: usize) -> Result<LogPage> {
        let scope = scope.clone();
        self.readers.read(move |db| read_trace(db, &scope, run, after, max_bytes)).await
    }

    async fn read_held(&self, held: &Held, after: i64, max_bytes: usize) -> Result<LogPage> {
        let held = *held;
        self.readers.read(move |db| read_held(db, &held, after, max_bytes)).await
    }

    async fn system_expire(&self, before: Timestamp, now: Timestamp, limit: usize) -> Result<usize> {
        let due = self.readers.read(move |db| due(db, before, limit)).await?;
        for (workspace, run) in due.iter().copied() {
            match self.fold_log(workspace, run).await {
                Err(error) if !error.may_pass() => {
                    tracing::error!(%run, %error, "a damaged log is left as it is");
                    let leave = move |db: &_| leave(db, workspace, run);
                    self.writer.write(Durability::Normal, leave).await?;
                }
                folded => folded?,
            }
        }
        self.writer.write(Durability::Normal, move |db| forget_keys(db, now)).await?;
        Ok(due.len())
    }
}

impl SqliteStore {
    async fn fold_log(&self, workspace: Uuid, run: Uuid) -> Result<()> {
        // A job for each part, so that nobody else's write waits for long.
        let mut after = Some(0);
        while let Some(place) = after {
            let fold = move |db: &_| fold(db, workspace, run, place);
            after = self.writer.write(Durability::Normal, fold).await?;
        }
        Ok(())
    }
}

fn expired(db: &Connection, workspace: Uuid, run: Uuid) -> Result<bool> {
    Ok(db
        .prepare_cached("SELECT log_expired FROM runs WHERE workspace_id = ?1 AND id = ?2")?
        .query_row(params![workspace, run], |row| row.get(0))?)
}

/// Batches whose `column` is over `after`, until they make `max_bytes`. No event's number is above its entry's, so
/// the key finds the place.
fn batches(
    db: &Connection,
    scope: &Scope,
    run: Uuid,
    (column, after): (&str, i64),
    max_bytes: usize,
) -> Result<Batches> {
    let text = format!(
        "SELECT entries, last_entry, last_seq FROM run_events \
         WHERE workspace_id = ?1 AND run_id = ?2 AND last_entry > ?3 AND {column} > ?3 ORDER BY last_entry"
    );
    let mut statement = db.prepare_cached(&text)?;
    let mut rows = statement.query(params![scope.workspace, run, after])?;
    let (mut found, mut last, mut bytes) = (Vec::new(), None, 0);
    while bytes < max_bytes
        && let Some(row) = rows.next()?
    {
        // Whoever ends the run gets past what is damaged.
        let entries = String::from_utf8_lossy(row.get_ref(0)?.as_bytes().unwrap_or_default()).into_owned();
        bytes += entries.len();
        found.push(entries);
        last = Some((row.get(1)?, row.get(2)?));
    }
    Ok((found, last))
}

fn read(db: &Connection, scope: &Scope, run: Uuid, after: i64, max_bytes: usize) -> Result<LogPage> {
    let found = runs::get(db, scope, run)?;
    let (entries, last) = batches(db, scope, run, ("last_seq", after), max_bytes)?;
    Ok(LogPage { expired: expired(db, scope.workspace, run)?, run: found, entries, last })
}

fn read_trace(db: &Connection, scope: &Scope, run: Uuid, after: i64, max_bytes: usize) -> Result<LogPage> {
    let found = runs::get(db, scope, run)?;
    let (entries, last) = batches(db, scope, run, ("last_entry", after), max_bytes)?;
    Ok(LogPage { expired: expired(db, scope.workspace, run)?, run: found, entries, last })
}

fn read_held(db: &Connection, held: &Held, after: i64, max_bytes: usize) -> Result<LogPage> {
    let (workspace, Lease { run, fence }) = (held.workspace, held.lease);
    let ours = "SELECT 1 FROM runs WHERE workspace_id = ?1 AND id = ?2 AND fence = ?3 AND status = 'running'";
    if !db.prepare_cached(ours)?.exists(params![workspace, run, fence])? {
        return Err(StoreError::Lost);
    }
    let (entries, last) = batches(db, &own_scope(workspace), run, ("last_entry", after), max_bytes)?;
    Ok(LogPage { run: runs::by_id(db, workspace, run)?, entries, last, expired: false })
}

/// Runs that ended before `before` and whose log is still as it was written.
fn due(db: &Connection, before: Timestamp, limit: usize) -> Result<Vec<(Uuid, Uuid)>> {
    let mut statement = db.prepare_cached(
        "SELECT workspace_id, id FROM runs WHERE log_expired = 0 AND ended_at IS NOT NULL AND ended_at < ?1 LIMIT ?2",
    )?;
    let rows = statement
        .query_map(params![before.as_millisecond(), limit as i64], |row| Ok((row.get(0)?, row.get(1)?)))?;
    Ok(rows.collect::<rusqlite::Result<_>>()?)
}

/// Makes one row of the batches after entry `after` that fit into one. Answers its last entry; after the last row
/// nothing, and the log has expired. Readers may come in between: half of it is as good a log as the whole.
fn fold(db: &Connection, workspace: Uuid, run: Uuid, after: i64) -> Result<Option<i64>> {
    let mut statement = db.prepare_cached(
        "SELECT first_entry, last_entry, last_seq, entries FROM run_events \
         WHERE workspace_id = ?1 AND run_id = ?2 AND last_entry > ?3 ORDER BY last_entry",
    )?;
    let mut rows = statement.query(params![workspace, run, after])?;
    let (mut part, mut batches): (Option<(i64, i64, i64, String)>, _) = (None, 0);
    while let Some(row) = rows.next()? {
        let (last, seq, entries) = (row.get(1)?, row.get(2)?, row.get::<_, String>(3)?);
        match &mut part {
            None => part = Some((row.get(0)?, last, seq, entries)),
            Some(part) if part.3.len() + 1 + entries.len() <= PART_BYTES => {
                (part.1, part.2) = (last, seq);
                part.3.push('\n');
                part.3.push_str(&entries);
            }
            Some(_) => break,
        }
        batches += 1;
    }
    let Some((first, last, seq, entries)) = part else {
        leave(db, workspace, run)?;
        return Ok(None);
    };
    if batches > 1 {
        db.prepare_cached(
            "DELETE FROM run_events WHERE workspace_id = ?1 AND run_id = ?2 AND last_entry > ?3 AND last_entry <= ?4",
        )?
        .execute(params![workspace, run, after, last])?;
        insert_part(
            db,
            (workspace, run),
            &Part { first_entry: first, last_entry: last, last_seq: seq, entries },
        )?;
    }
    Ok(Some(last))
}

/// The log has expired: nothing more is done with its rows.
fn leave(db: &Connection, workspace: Uuid, run: Uuid) -> Result<()> {
    db.prepare_cached("UPDATE runs SET log_expired = 1 WHERE workspace_id = ?1 AND id = ?2")?
        .execute(params![workspace, run])?;
    Ok(())
}

/// A row of a log that is over.
pub(super) fn insert_part(db: &Connection, (workspace, run): (Uuid, Uuid), part: &Part) -> Result<()> {
    db.prepare_cached(
        "INSERT INTO run_events (workspace_id, run_id, first_entry, last_entry, last_seq, entries) \
         VALUES (?1, ?2, ?3, ?4, ?5, ?6)",
    )?
    .execute(params![workspace, run, part.first_entry, part.last_entry, part.last_seq, part.entries])?;
    Ok(())
}

fn forget_keys(db: &Connection, now: Timestamp) -> Result<()> {
    db.prepare_cached("DELETE FROM idempotency_keys WHERE created_at < ?1")?
        .execute([now.as_millisecond() - KEY_LIFE.as_millis() as i64])?;
    Ok(())
}
