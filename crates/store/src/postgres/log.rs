//! The event log: batches of entries, read by number, put together when their time is over. `turns/append.rs` writes
//! them.

use async_trait::async_trait;
use domain::scope::Scope;
use jiff::Timestamp;
use tokio_postgres::Row;
use uuid::Uuid;

use super::runs::RUNNING;
use super::transaction::{Database, Query, Settings, Transaction, inside, transaction};
use super::{PostgresStore, runs};
use crate::error::{Result, StoreError};
use crate::list::Dialect;
use crate::parts::{PART_BYTES, Part};
use crate::store::log::Log;
use crate::turns::{Batches, Held, KEY_LIFE, LogPage};

#[async_trait]
impl Log for PostgresStore {
    async fn read_log(&self, scope: &Scope, run: Uuid, after: i64, max_bytes: usize) -> Result<LogPage> {
        page(&self.database, scope, run, ("last_seq", after), max_bytes).await
    }

    async fn read_trace(&self, scope: &Scope, run: Uuid, after: i64, max_bytes: usize) -> Result<LogPage> {
        page(&self.database, scope, run, ("last_entry", after), max_bytes).await
    }

    async fn read_held(&self, held: &Held, after: i64, max_bytes: usize) -> Result<LogPage> {
        let ours = format!(
            "SELECT {} FROM runs r WHERE {} AND r.id = $2 AND r.fence = $3 AND r.{RUNNING}",
            runs::COLUMNS,
            inside(self.database.dialect, "r.workspace_id")
        );
        let ours = Query { text: &ours, params: vec![&held.workspace, &held.lease.run, &held.lease.fence] };
        let text = batches(self.database.dialect, "last_entry");
        let max_bytes = i64::try_from(max_bytes).unwrap_or(i64::MAX);
        let query = Query { text: &text, params: vec![&held.workspace, &held.lease.run, &after, &max_bytes] };
        let settings = Settings::workspace(held.workspace).seeing_all();
        let [found, entries] = self.database.read(&settings, [ours, query]).await?;
        let run = runs::read(found.first().ok_or(StoreError::Lost)?)?;
        let (entries, last) = read(&entries)?;
        Ok(LogPage { run, entries, last, expired: false })
    }

    async fn system_expire(&self, before: Timestamp, now: Timestamp, limit: usize) -> Result<usize> {
        let due = transaction!(self.database, begin_system, Settings::nobody(), |tx| due(tx, before, limit))?;
        for (workspace, run) in due.iter().copied() {
            match self.fold_log(workspace, run).await {
                Err(error) if !error.may_pass() => {
                    tracing::error!(%run, %error, "a damaged log is left as it is");
                    let settings = Settings::workspace(workspace).seeing_all();
                    transaction!(self.database, begin_unsynced, settings, |tx| leave(tx, workspace, run))?;
                }
                folded => folded?,
            }
        }
        transaction!(self.database, begin_system, Settings::nobody(), |tx| forget_keys(tx, now))?;
        Ok(due.len())
    }
}

impl PostgresStore {
    async fn fold_log(&self, workspace: Uuid, run: Uuid) -> Result<()> {
        // A transaction for each part, so that none is long.
        let settings = Settings::workspace(workspace).seeing_all();
        let mut after = Some(0);
        while let Some(place) = after {
            after = transaction!(self.database, begin_unsynced, settings.clone(), |tx| fold(
                tx, workspace, run, place
            ))?;
        }
        Ok(())
    }
}

/// How many batches one page may hold, so that its cost has a bound.
const PAGE_BATCHES: usize = 256;
/// How many of them become one row when the log's time is over.
const PART_BATCHES: usize = 4096;

/// Batches whose `column` is over `$3`, until they make `$4` bytes. No event's number is above its entry's, so
/// the key finds the place.
fn batches(dialect: Dialect, column: &str) -> String {
    format!(
        "SELECT entries, last_entry, last_seq FROM ( \
             SELECT entries, last_entry, last_seq, \
                 sum(octet_length(entries)) OVER (ORDER BY last_entry) - octet_length(entries) AS before \
             FROM (SELECT entries, last_entry, last_seq FROM run_events \
                   WHERE {} AND run_id = $2 AND last_entry > $3 AND {column} > $3 \
                   ORDER BY last_entry LIMIT {PAGE_BATCHES}) AS next) AS page \
         WHERE before < $4::bigint ORDER BY last_entry",
        inside(dialect, "workspace_id")
    )
}

async fn page(
    db: &Database,
    scope: &Scope,
    run: Uuid,
    (column, after): (&str, i64),
    max_bytes: usize,
) -> Result<LogPage> {
    let sql = runs::visible(db.dialect, scope, run);
    let text = batches(db.dialect, column);
    let max_bytes = i64::try_from(max_bytes).unwrap_or(i64::MAX);
    let query = Query { text: &text, params: vec![&scope.workspace, &run, &after, &max_bytes] };
    let [found, entries] = db.read(&Settings::of(scope), [(&sql).into(), query]).await?;
    let found = found.first().ok_or(StoreError::NotFound)?;
    let (entries, last) = read(&entries)?;
    Ok(LogPage { run: runs::read(found)?, expired: found.try_get(runs::MORE)?, entries, last })
}

fn read(rows: &[Row]) -> Result<Batches> {
    let entries = rows.iter().map(|row| Ok(row.try_get(0)?)).collect::<Result<_>>()?;
    let last = rows.last().map(|row| Ok::<_, StoreError>((row.try_get(1)?, row.try_get(2)?))).transpose()?;
    Ok((entries, last))
}

/// Runs that ended before `before` and whose log is still whole.
async fn due(tx: &Transaction, before: Timestamp, limit: usize) -> Result<Vec<(Uuid, Uuid)>> {
    let rows = tx
        .rows(
            "SELECT workspace_id, id FROM runs \
             WHERE NOT log_expired AND ended_at IS NOT NULL AND ended_at < $1 ORDER BY ended_at LIMIT $2",
            &[&before, &(limit as i64)],
        )
        .await?;
    rows.iter().map(|row| Ok((row.try_get(0)?, row.try_get(1)?))).collect()
}

/// Makes one row of the batches after entry `after` that fit into one. Answers its last entry; after the last row
/// nothing, and the log has expired. Readers may come in between: half of it is as good a log as the whole. Another
/// node may be doing the same: the run's lock lets one of them at a time.
async fn fold(tx: &Transaction, workspace: Uuid, run: Uuid, after: i64) -> Result<Option<i64>> {
    let own = tx.inside("workspace_id");
    let text = format!("SELECT 1 FROM runs WHERE {own} AND id = $2 AND NOT log_expired FOR NO KEY UPDATE");
    if tx.row(&text, &[&workspace, &run]).await?.is_none() {
        return Ok(None);
    }
    // The first one always fits.
    let text = format!(
        "SELECT max(last_entry), count(*) FROM ( \
             SELECT last_entry, row_number() OVER (ORDER BY last_entry) AS place, \
                 sum(octet_length(entries) + 1) OVER (ORDER BY last_entry) AS bytes \
             FROM (SELECT entries, last_entry FROM run_events WHERE {own} AND run_id = $2 AND last_entry > $3 \
                   ORDER BY last_entry LIMIT {PART_BATCHES}) AS next) AS part \
         WHERE bytes <= $4::bigint OR place = 1"
    );
    let row = tx.row(&text, &[&workspace, &run, &after, &(PART_BYTES as i64)]).await?;
    let row = row.ok_or(StoreError::NotFound)?;
    let (last, batches): (Option<i64>, i64) = (row.try_get(0)?, row.try_get(1)?);
    let Some(last) = last else {
        leave(tx, workspace, run).await?;
        return Ok(None);
    };
    if batches > 1 {
        let text = format!(
            "WITH part AS (DELETE FROM run_events \
                 WHERE {own} AND run_id = $2 AND last_entry > $3 AND last_entry <= $4 RETURNING *) \
             INSERT INTO run_events (workspace_id, run_id, first_entry, last_entry, last_seq, entries) \
             SELECT workspace_id, run_id, min(first_entry), max(last_entry), max(last_seq), \
                 string_agg(entries, E'\\n' ORDER BY last_entry) FROM part GROUP BY workspace_id, run_id"
        );
        tx.execute(&text, &[&workspace, &run, &after, &last]).await?;
    }
    Ok(Some(last))
}

/// The log has expired: nothing more is done with its rows.
async fn leave(tx: &Transaction, workspace: Uuid, run: Uuid) -> Result<()> {
    let text = format!("UPDATE runs SET log_expired = true WHERE {} AND id = $2", tx.inside("workspace_id"));
    tx.execute(&text, &[&workspace, &run]).await.map(|_| ())
}

/// A row of a log that is over.
pub(super) async fn insert_part(tx: &Transaction, (workspace, run): (Uuid, Uuid), part: &Part) -> Result<()> {
    tx.execute(
        "INSERT INTO run_events (workspace_id, run_id, first_entry, last_entry, last_seq, entries) \
         VALUES ($1, $2, $3, $4, $5, $6)",
        &[&workspace, &run, &part.first_entry, &part.last_entry, &part.last_seq, &part.entries],
    )
    .await
    .map(|_| ())
}

/// Keys beyond this many wait for the next time.
const FORGET_AT_ONCE: i64 = 10_000;

async fn forget_keys(tx: &Transaction, now: Timestamp) -> Result<()> {
    let before = now.saturating_sub(KEY_LIFE).map_err(|error| StoreError::Internal(error.to_string()))?;
    tx.execute(
        "DELETE FROM idempotency_keys WHERE created_at < $1 AND (workspace_id, caller, key) IN ( \
             SELECT workspace_id, caller, key FROM idempotency_keys WHERE created_at < $1 \
             ORDER BY created_at LIMIT $2)",
        &[&before, &FORGET_AT_ONCE],
    )
    .await
    .map(|_| ())
}
