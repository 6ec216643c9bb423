//! The second of the three writes: events, in batches, under the fence.

use rusqlite::{Connection, params};

use crate::error::{Result, StoreError};
use crate::turns::{Batch, Held};

pub(super) fn append(db: &Connection, held: &Held, batch: &Batch) -> Result<()> {
    let moved = db
        .prepare_cached(
            "UPDATE runs SET last_entry = ?4, last_event = ?5 \
             WHERE workspace_id = ?1 AND id = ?2 AND fence = ?3 AND status = 'running' \
               AND last_entry = ?6 AND last_event = ?7",
        )?
        .execute(params![
            held.workspace,
            held.lease.run,
            held.lease.fence,
            batch.last_entry,
            batch.last_seq,
            batch.first_entry - 1,
            batch.first_seq - 1,
        ])?;
    if moved == 0 {
        return is_stored(db, held, batch)?.then_some(()).ok_or(StoreError::Lost);
    }
    insert_row(db, held, batch)
}

/// Whether this very batch is the newest one: its writer asks again when it did not hear the answer.
fn is_stored(db: &Connection, held: &Held, batch: &Batch) -> Result<bool> {
    Ok(db
        .prepare_cached(
            "SELECT 1 FROM runs r JOIN run_events e \
             ON e.workspace_id = r.workspace_id AND e.run_id = r.id AND e.last_entry = r.last_entry \
             WHERE r.workspace_id = ?1 AND r.id = ?2 AND r.fence = ?3 AND r.status = 'running' AND r.last_event = ?4 \
             AND e.first_entry = ?5 AND e.last_entry = ?6 AND e.entries = ?7",
        )?
        .exists(params![
            held.workspace,
            held.lease.run,
            held.lease.fence,
            batch.last_seq,
            batch.first_entry,
            batch.last_entry,
            batch.entries,
        ])?)
}

/// Only the row, for a run whose numbers the same transaction has moved under the fence.
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
