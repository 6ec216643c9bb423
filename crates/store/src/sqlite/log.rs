//! The event log: batches of entries, read by number, folded away when their time is over. `turns/append.rs` writes
//! them.

use async_trait::async_trait;
use domain::run::Lease;
use domain::scope::Scope;
use jiff::Timestamp;
use rusqlite::{Connection, OptionalExtension, params};
use uuid::Uuid;

use super::writer::Durability;
use super::{SqliteStore, runs};
use crate::error::{Result, StoreError};
use crate::store::log::Log;
use crate::turns::{Held, KEY_LIFE, LogPage, own_scope};

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
        self.writer.write(Durability::Normal, move |db| expire(db, before, now, limit)).await
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
) -> Result<Vec<String>> {
    let text = format!(
        "SELECT entries FROM run_events \
         WHERE workspace_id = ?1 AND run_id = ?2 AND last_entry > ?3 AND {column} > ?3 ORDER BY last_entry"
    );
    let mut statement = db.prepare_cached(&text)?;
    let mut rows = statement.query(params![scope.workspace, run, after])?;
    let (mut found, mut bytes) = (Vec::new(), 0);
    while bytes < max_bytes
        && let Some(row) = rows.next()?
    {
        let entries: String = row.get(0)?;
        bytes += entries.len();
        found.push(entries);
    }
    Ok(found)
}

fn read(db: &Connection, scope: &Scope, run: Uuid, after: i64, max_bytes: usize) -> Result<LogPage> {
    let found = runs::get(db, scope, run)?;
    let entries = batches(db, scope, run, ("last_seq", after), max_bytes)?;
    Ok(LogPage { expired: expired(db, scope.workspace, run)?, run: found, entries })
}

fn read_trace(db: &Connection, scope: &Scope, run: Uuid, after: i64, max_bytes: usize) -> Result<LogPage> {
    let found = runs::get(db, scope, run)?;
    let expired = expired(db, scope.workspace, run)?;
    let entries = if expired {
        db.prepare_cached("SELECT entries FROM run_traces WHERE workspace_id = ?1 AND run_id = ?2")?
            .query_row(params![scope.workspace, run], |row| row.get(0))
            .optional()?
            .into_iter()
            .collect()
    } else {
        batches(db, scope, run, ("last_entry", after), max_bytes)?
    };
    Ok(LogPage { run: found, entries, expired })
}

fn read_held(db: &Connection, held: &Held, after: i64, max_bytes: usize) -> Result<LogPage> {
    let (workspace, Lease { run, fence }) = (held.workspace, held.lease);
    let ours = "SELECT 1 FROM runs WHERE workspace_id = ?1 AND id = ?2 AND fence = ?3 AND status = 'running'";
    if !db.prepare_cached(ours)?.exists(params![workspace, run, fence])? {
        return Err(StoreError::Lost);
    }
    let entries = batches(db, &own_scope(workspace), run, ("last_entry", after), max_bytes)?;
    Ok(LogPage { run: runs::by_id(db, workspace, run)?, entries, expired: false })
}

fn expire(db: &Connection, before: Timestamp, now: Timestamp, limit: usize) -> Result<usize> {
    let mut statement = db.prepare_cached(
        "SELECT workspace_id, id FROM runs WHERE log_expired = 0 AND ended_at IS NOT NULL AND ended_at < ?1 LIMIT ?2",
    )?;
    let due: Vec<(Uuid, Uuid)> = statement
        .query_map(params![before.as_millisecond(), limit as i64], |row| Ok((row.get(0)?, row.get(1)?)))?
        .collect::<rusqlite::Result<_>>()?;
    for (workspace, run) in &due {
        let ids = params![workspace, run];
        db.prepare_cached(
            "INSERT INTO run_traces (workspace_id, run_id, entries) \
             SELECT workspace_id, run_id, group_concat(entries, char(10) ORDER BY last_entry) FROM run_events \
             WHERE workspace_id = ?1 AND run_id = ?2 GROUP BY workspace_id, run_id",
        )?
        .execute(ids)?;
        db.prepare_cached("DELETE FROM run_events WHERE workspace_id = ?1 AND run_id = ?2")?.execute(ids)?;
        db.prepare_cached("UPDATE runs SET log_expired = 1 WHERE workspace_id = ?1 AND id = ?2")?
            .execute(ids)?;
    }
    db.prepare_cached("DELETE FROM idempotency_keys WHERE created_at < ?1")?
        .execute([now.as_millisecond() - KEY_LIFE.as_millis() as i64])?;
    Ok(due.len())
}
