//! The second of the three writes: events, in batches, under the fence.

use rusqlite::{Connection, OptionalExtension, params};

use crate::error::{Result, StoreError};
use crate::turns::{Batch, Held};

pub(super) fn append(db: &Connection, held: &Held, batch: &Batch) -> Result<()> {
    let newest: Option<(i64, i64)> = db
        .prepare_cached(
            "SELECT e.last_entry, e.last_seq FROM runs r CROSS JOIN run_events e \
             ON e.workspace_id = r.workspace_id AND e.run_id = r.id \
             WHERE r.workspace_id = ?1 AND r.id = ?2 AND r.fence = ?3 AND r.status = 'running' \
             ORDER BY e.last_entry DESC LIMIT 1",
        )?
        .query_row(params![held.workspace, held.lease.run, held.lease.fence], |row| {
            Ok((row.get(0)?, row.get(1)?))
        })
        .optional()?;
    match newest {
        Some(newest) if newest == (batch.first_entry - 1, batch.first_seq - 1) => insert_row(db, held, batch),
        // Its writer asks again when it did not hear the answer.
        Some(newest) if newest == (batch.last_entry, batch.last_seq) && is_stored(db, held, batch)? => Ok(()),
        Some(newest) => Err(batch.misplaced(newest)),
        None => Err(StoreError::Lost),
    }
}

/// Whether this very batch is the newest one.
fn is_stored(db: &Connection, held: &Held, batch: &Batch) -> Result<bool> {
    Ok(db
        .prepare_cached(
            "SELECT 1 FROM run_events WHERE workspace_id = ?1 AND run_id = ?2 AND first_entry = ?3 \
             AND last_entry = ?4 AND entries = ?5",
        )?
        .exists(params![
            held.workspace,
            held.lease.run,
            batch.first_entry,
            batch.last_entry,
            batch.entries,
        ])?)
}

/// Only the row, for a run that the same transaction has begun or ended under the fence.
pub(in crate::sqlite) fn insert_row(db: &Connection, held: &Held, batch: &Batch) -> Result<()> {
    if batch.entries.is_empty() {
        return Ok(());
    }
    db.prepare_cached(
        "INSERT INTO run_events (workspace_id, run_id, first_entry, last_entry, last_seq, entries) \
         VALUES (?1, ?2, ?3, ?4, ?5, ?6)",
    )?
    .execute(params![
        held.workspace,
        held.lease.run,
        batch.first_entry,
        batch.last_entry,
        batch.last_seq,
        batch.entries
    ])?;
    Ok(())
}
