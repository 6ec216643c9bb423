//! What belongs to a conversation that is purged, removed part by part.

use rusqlite::{Connection, OptionalExtension, Params, params};
use uuid::Uuid;

use crate::error::{Result, StoreError};
use crate::files::Purgeable;

/// What one part of a purge may still remove: few enough rows and bytes that other writes go in between.
pub(super) struct Room {
    rows: usize,
    bytes: i64,
}

impl Room {
    pub(super) fn of_a_part() -> Self {
        Self { rows: 500, bytes: 4 << 20 }
    }

    pub(super) fn is_left(&self) -> bool {
        self.rows > 0 && self.bytes > 0
    }

    /// The rows of a query, each a key and its bytes, as far as there is room for them.
    fn pick(&mut self, db: &Connection, text: &str, bound: impl Params) -> Result<Vec<i64>> {
        let mut statement = db.prepare_cached(text)?;
        let mut rows = statement.query(bound)?;
        let mut picked = Vec::new();
        while self.is_left()
            && let Some(row) = rows.next()?
        {
            self.rows -= 1;
            self.bytes -= row.get::<_, i64>(1)?;
            picked.push(row.get(0)?);
        }
        Ok(picked)
    }
}

/// The row of a conversation that is being purged.
fn marked(db: &Connection, of: &Purgeable) -> Result<i64> {
    db.prepare_cached(
        "SELECT pk FROM chat_conversations WHERE workspace_id = ?1 AND id = ?2 AND purging IN (1, 3)",
    )?
    .query_row(params![of.workspace, of.conversation], |row| row.get(0))
    .optional()?
    .ok_or(StoreError::NotFound)
}

/// Removes a part of what belongs to a marked conversation, and answers whether there may be more. Broken off after any
/// part, it goes on with the next.
pub(super) fn purge_part(db: &Connection, of: &Purgeable) -> Result<bool> {
    marked(db, of)?;
    let mut room = Room::of_a_part();
    let ids = params![of.workspace, of.conversation];
    let next = "SELECT id FROM runs INDEXED BY idx_runs_conversation \
                WHERE workspace_id = ?1 AND conversation_id = ?2 LIMIT 1";
    while room.is_left()
        && let Some(run) = db.prepare_cached(next)?.query_row(ids, |row| row.get(0)).optional()?
    {
        remove_run(db, (of.workspace, run), &mut room)?;
    }
    // The runs are gone, so nobody adds to what comes now.
    let picked = room.pick(
        db,
        "SELECT pk, octet_length(text) + octet_length(content) FROM messages \
         WHERE workspace_id = ?1 AND conversation_id = ?2",
        ids,
    )?;
    for text in ["DELETE FROM message_search WHERE rowid = ?1", "DELETE FROM messages WHERE pk = ?1"] {
        let mut statement = db.prepare_cached(text)?;
        picked.iter().try_for_each(|pk| statement.execute([pk]).map(|_| ()))?;
    }
    for (table, key, index) in [("files", "id", "INDEXED BY idx_files_bag"), ("branches", "branch", "")] {
        let text = format!(
            "DELETE FROM {table} WHERE workspace_id = ?1 AND conversation_id = ?2 AND {key} IN ( \
             SELECT {key} FROM {table} {index} WHERE workspace_id = ?1 AND conversation_id = ?2 LIMIT ?3)"
        );
        room.rows -= db.execute(&text, params![of.workspace, of.conversation, room.rows as i64])?;
    }
    Ok(!room.is_left())
}

/// Removes a run with what hangs on it, its log first: where there is no room for all of it, as much as there is.
/// Whoever drives it has lost it.
pub(super) fn remove_run(db: &Connection, (workspace, run): (Uuid, Uuid), room: &mut Room) -> Result<()> {
    let ids = params![workspace, run];
    db.prepare_cached(
        "UPDATE runs SET status = 'cancelled', log_expired = 1 WHERE workspace_id = ?1 AND id = ?2 AND status = 'running'",
    )?
    .execute(ids)?;
    let picked = room.pick(
        db,
        "SELECT rowid, octet_length(entries) FROM run_events WHERE workspace_id = ?1 AND run_id = ?2",
        ids,
    )?;
    let mut statement = db.prepare_cached("DELETE FROM run_events WHERE rowid = ?1")?;
    picked.iter().try_for_each(|entry| statement.execute([entry]).map(|_| ()))?;
    if !room.is_left() {
        return Ok(());
    }
    room.rows -= 1;
    for text in [
        "DELETE FROM run_traces WHERE workspace_id = ?1 AND run_id = ?2",
        "DELETE FROM approvals WHERE workspace_id = ?1 AND run_id = ?2",
        "DELETE FROM runs WHERE workspace_id = ?1 AND id = ?2",
    ] {
        db.prepare_cached(text)?.execute(ids)?;
    }
    Ok(())
}

/// Removes a conversation of which nothing is left but its title.
pub(super) fn purge_rest(db: &Connection, of: &Purgeable) -> Result<()> {
    let pk = marked(db, of)?;
    db.execute("DELETE FROM title_search WHERE rowid = ?1", [pk])?;
    db.execute("DELETE FROM chat_conversations WHERE pk = ?1", [pk])?;
    Ok(())
}
