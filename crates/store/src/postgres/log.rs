//! The event log: batches of entries, read by number, folded away when their time is over. `turns/append.rs` writes
//! them.

use async_trait::async_trait;
use domain::scope::Scope;
use jiff::Timestamp;
use uuid::Uuid;

use super::runs::RUNNING;
use super::transaction::{Database, Query, Settings, Transaction, inside, transaction};
use super::{PostgresStore, runs};
use crate::error::{Result, StoreError};
use crate::list::Dialect;
use crate::store::log::Log;
use crate::turns::{Held, KEY_LIFE, LogPage};

#[async_trait]
impl Log for PostgresStore {
    async fn read_log(&self, scope: &Scope, run: Uuid, after: i64, max_bytes: usize) -> Result<LogPage> {
        page(&self.database, scope, run, ("last_seq", after), max_bytes).await
    }

    async fn read_trace(&self, scope: &Scope, run: Uuid, after: i64, max_bytes: usize) -> Result<LogPage> {
        let mut page = page(&self.database, scope, run, ("last_entry", after), max_bytes).await?;
        if page.expired {
            let text = format!(
                "SELECT entries FROM run_traces WHERE {} AND run_id = $2",
                inside(self.database.dialect, "workspace_id")
            );
            let query = Query { text: &text, params: vec![&scope.workspace, &run] };
            let [rows] = self.database.read(&Settings::of(scope), [query]).await?;
            page.entries = rows.iter().map(|row| Ok(row.try_get(0)?)).collect::<Result<_>>()?;
        }
        Ok(page)
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
        let entries = entries.iter().map(|row| Ok(row.try_get(0)?)).collect::<Result<_>>()?;
        Ok(LogPage { run, entries, expired: false })
    }

    async fn system_expire(&self, before: Timestamp, now: Timestamp, limit: usize) -> Result<usize> {
        let due = transaction!(self.database, begin_system, Settings::nobody(), |tx| due(tx, before, limit))?;
        for (workspace, run) in &due {
            // A transaction each, so that none is long.
            let settings = Settings::workspace(*workspace).seeing_all();
            transaction!(self.database, begin_unsynced, settings, |tx| fold(tx, *workspace, *run))?;
        }
        transaction!(self.database, begin_system, Settings::nobody(), |tx| forget_keys(tx, now))?;
        Ok(due.len())
    }
}

/// How many batches one page may hold, so that its cost has a bound.
const PAGE_BATCHES: usize = 256;

/// Batches whose `column` is over `$3`, until they make `$4` bytes. No event's number is above its entry's, so
/// the key finds the place.
fn batches(dialect: Dialect, column: &str) -> String {
    format!(
        "SELECT entries FROM ( \
             SELECT entries, last_entry, \
                 sum(octet_length(entries)) OVER (ORDER BY last_entry) - octet_length(entries) AS before \
             FROM (SELECT entries, last_entry FROM run_events \
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
    let entries = entries.iter().map(|row| Ok(row.try_get(0)?)).collect::<Result<_>>()?;
    Ok(LogPage { run: runs::read(found)?, expired: found.try_get(runs::MORE)?, entries })
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

/// Folds one run's log into its trace. Another node may be doing the same: the row's lock lets one of them.
async fn fold(tx: &Transaction, workspace: Uuid, run: Uuid) -> Result<()> {
    let own = tx.inside("workspace_id");
    let text = format!("UPDATE runs SET log_expired = true WHERE {own} AND id = $2 AND NOT log_expired");
    if tx.execute(&text, &[&workspace, &run]).await? == 0 {
        return Ok(());
    }
    let text = format!(
        "INSERT INTO run_traces (workspace_id, run_id, entries) \
         SELECT workspace_id, run_id, string_agg(entries, E'\\n' ORDER BY last_entry) FROM run_events \
         WHERE {own} AND run_id = $2 GROUP BY workspace_id, run_id"
    );
    tx.execute(&text, &[&workspace, &run]).await?;
    let text = format!("DELETE FROM run_events WHERE {own} AND run_id = $2");
    tx.execute(&text, &[&workspace, &run]).await.map(|_| ())
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
