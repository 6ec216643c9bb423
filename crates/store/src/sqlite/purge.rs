//! Removal for good: what uploads left, files, conversations and workspaces deleted long ago, and the space they took.

use async_trait::async_trait;
use jiff::Timestamp;
use rusqlite::{Connection, Row, params};
use uuid::Uuid;

use super::SqliteStore;
use super::purge_parts::{Room, purge_part, purge_rest, remove_run};
use super::writer::Durability;
use crate::error::{Result, StoreError};
use crate::files::{Doomed, Purgeable};
use crate::store::purge::Purge;

#[async_trait]
impl Purge for SqliteStore {
    async fn system_list_stale(&self, before: Timestamp, limit: usize) -> Result<Vec<Doomed>> {
        self.writer.write(Durability::Full, move |db| list_stale(db, before, limit)).await
    }

    async fn system_known_keys(&self, keys: &[String]) -> Result<Vec<bool>> {
        let keys = keys.to_vec();
        self.readers.read(move |db| known_keys(db, &keys)).await
    }

    async fn system_list_purgeable(&self, before: Timestamp, limit: usize) -> Result<Vec<Purgeable>> {
        self.readers.read(move |db| list(db, before, limit)).await
    }

    async fn system_list_unmade_forks(&self, before: Timestamp, limit: usize) -> Result<Vec<Purgeable>> {
        self.readers.read(move |db| list_unmade(db, before, limit)).await
    }

    async fn system_list_files_of(&self, conversation: &Purgeable) -> Result<Vec<Doomed>> {
        let of = *conversation;
        self.readers.read(move |db| files_of(db, &of)).await
    }

    async fn system_begin_purge(&self, conversation: &Purgeable) -> Result<Vec<Doomed>> {
        let of = *conversation;
        self.writer.write(Durability::Full, move |db| begin(db, &of)).await
    }

    async fn system_purge(&self, conversation: &Purgeable) -> Result<()> {
        let of = *conversation;
        // A job for each part, so that nobody else's write waits for long. The last one syncs what they did.
        while self.writer.write(Durability::Normal, move |db| purge_part(db, &of)).await? {}
        self.writer.write(Durability::Full, move |db| purge_rest(db, &of)).await
    }

    async fn system_list_deleted_files(&self, before: Timestamp, limit: usize) -> Result<Vec<Doomed>> {
        self.readers.read(move |db| list_deleted(db, before, limit)).await
    }

    async fn system_list_removed(&self, before: Timestamp) -> Result<Vec<Uuid>> {
        self.readers.read(move |db| list_removed(db, before)).await
    }

    async fn system_purge_removed(&self, workspace: Uuid, limit: usize) -> Result<Option<Vec<Doomed>>> {
        self.writer.write(Durability::Full, move |db| purge_removed(db, workspace, limit)).await
    }

    async fn system_compact(&self) -> Result<()> {
        for table in ["title_search", "message_search", "page_search", "row_search"] {
            let merge = |first| move |db: &_| merge(db, table, first);
            let mut more = self.writer.write(Durability::Normal, merge(true)).await?;
            while more {
                more = self.writer.write(Durability::Normal, merge(false)).await?;
            }
        }
        self.writer.alone(rewrite).await
    }
}

/// How many pages of the word index one step of `merge` writes: few enough that other writes go in between.
const MERGE_PAGES: i64 = 500;

fn read_doomed(row: &Row<'_>) -> rusqlite::Result<Doomed> {
    Ok(Doomed { workspace: row.get(0)?, id: row.get(1)?, storage_key: row.get(2)? })
}

fn list(db: &Connection, before: Timestamp, limit: usize) -> Result<Vec<Purgeable>> {
    let mut statement = db.prepare_cached(
        "SELECT workspace_id, id FROM chat_conversations WHERE deleted_at < ?1 AND purging < 2 \
         ORDER BY deleted_at LIMIT ?2",
    )?;
    let rows = statement.query_map(params![before.as_millisecond(), limit as i64], read_purgeable)?;
    Ok(rows.collect::<rusqlite::Result<_>>()?)
}

fn read_purgeable(row: &Row<'_>) -> rusqlite::Result<Purgeable> {
    Ok(Purgeable { workspace: row.get(0)?, conversation: row.get(1)? })
}

fn list_unmade(db: &Connection, before: Timestamp, limit: usize) -> Result<Vec<Purgeable>> {
    let mut statement = db.prepare_cached(UNMADE_BEFORE)?;
    let rows = statement.query_map(params![before.as_millisecond(), limit as i64], read_purgeable)?;
    Ok(rows.collect::<rusqlite::Result<_>>()?)
}

const UNMADE_BEFORE: &str = "SELECT workspace_id, id FROM chat_conversations \
     WHERE deleted_at < ?1 AND purging >= 2 ORDER BY deleted_at LIMIT ?2";

fn begin(db: &Connection, of: &Purgeable) -> Result<Vec<Doomed>> {
    let marked = db.execute(
        "UPDATE chat_conversations SET purging = CASE WHEN purging < 2 THEN 1 ELSE 3 END \
         WHERE workspace_id = ?1 AND id = ?2 AND deleted_at IS NOT NULL",
        params![of.workspace, of.conversation],
    )?;
    if marked == 0 {
        return Err(StoreError::NotFound);
    }
    files_of(db, of)
}

fn files_of(db: &Connection, of: &Purgeable) -> Result<Vec<Doomed>> {
    let mut statement = db.prepare_cached(
        "SELECT workspace_id, id, storage_key FROM files INDEXED BY idx_files_bag \
         WHERE workspace_id = ?1 AND conversation_id = ?2 ORDER BY id",
    )?;
    let rows = statement.query_map(params![of.workspace, of.conversation], read_doomed)?;
    Ok(rows.collect::<rusqlite::Result<_>>()?)
}

fn list_stale(db: &Connection, before: Timestamp, limit: usize) -> Result<Vec<Doomed>> {
    // Those that an earlier sweep marked and did not finish come again.
    let mut statement = db.prepare_cached(
        "UPDATE files SET deleted_at = coalesce(deleted_at, ?1) WHERE kept = 0 AND (workspace_id, id) IN ( \
             SELECT workspace_id, id FROM files WHERE kept = 0 AND coalesce(expires_at, reserved_at) < ?1 \
             ORDER BY reserved_at LIMIT ?2) \
         RETURNING workspace_id, id, storage_key",
    )?;
    let rows = statement.query_map(params![before.as_millisecond(), limit as i64], read_doomed)?;
    Ok(rows.collect::<rusqlite::Result<_>>()?)
}

fn list_deleted(db: &Connection, before: Timestamp, limit: usize) -> Result<Vec<Doomed>> {
    // Those of a deleted conversation go with it.
    let mut statement = db.prepare_cached(
        "SELECT f.workspace_id, f.id, f.storage_key FROM files f LEFT JOIN chat_conversations c \
         ON c.workspace_id = f.workspace_id AND c.id = f.conversation_id \
         WHERE f.deleted_at < ?1 AND f.kept = 1 AND c.deleted_at IS NULL ORDER BY f.deleted_at LIMIT ?2",
    )?;
    let rows = statement.query_map(params![before.as_millisecond(), limit as i64], read_doomed)?;
    Ok(rows.collect::<rusqlite::Result<_>>()?)
}

fn list_removed(db: &Connection, before: Timestamp) -> Result<Vec<Uuid>> {
    let mut statement =
        db.prepare_cached("SELECT id FROM workspaces WHERE deleted_at < ?1 ORDER BY deleted_at")?;
    let rows = statement.query_map([before.as_millisecond()], |row| row.get(0))?;
    Ok(rows.collect::<rusqlite::Result<_>>()?)
}

fn purge_removed(db: &Connection, workspace: Uuid, limit: usize) -> Result<Option<Vec<Doomed>>> {
    let emptied: bool = db.query_row(
        "SELECT EXISTS (SELECT 1 FROM workspaces WHERE id = ?1 AND deleted_at IS NOT NULL) \
         AND NOT EXISTS (SELECT 1 FROM chat_conversations WHERE workspace_id = ?1)",
        [workspace],
        |row| row.get(0),
    )?;
    if !emptied {
        return Err(StoreError::NotFound);
    }
    let part = params![workspace, limit as i64];
    let mut statement =
        db.prepare_cached("SELECT id FROM runs WHERE workspace_id = ?1 ORDER BY id LIMIT ?2")?;
    let runs: Vec<Uuid> = statement.query_map(part, |row| row.get(0))?.collect::<rusqlite::Result<_>>()?;
    let mut room = Room::of_a_part();
    for run in &runs {
        if room.is_left() {
            remove_run(db, (workspace, *run), &mut room)?;
        }
    }
    if !runs.is_empty() {
        return Ok(Some(Vec::new()));
    }
    let mut statement = db.prepare_cached(
        "SELECT workspace_id, id, storage_key FROM files WHERE workspace_id = ?1 ORDER BY id LIMIT ?2",
    )?;
    let files: Vec<Doomed> = statement.query_map(part, read_doomed)?.collect::<rusqlite::Result<_>>()?;
    if !files.is_empty() {
        return Ok(Some(files));
    }
    // The key of a request that made a purged run is known for its day, so that it makes no other.
    for table in ["agents", "tool_servers", "tool_pins", "idempotency_keys"] {
        db.execute(&format!("DELETE FROM {table} WHERE workspace_id = ?1"), [workspace])?;
    }
    db.execute("DELETE FROM workspaces WHERE id = ?1", [workspace])?;
    Ok(None)
}

fn known_keys(db: &Connection, keys: &[String]) -> Result<Vec<bool>> {
    let mut statement = db.prepare_cached("SELECT 1 FROM files WHERE storage_key = ?1")?;
    keys.iter().map(|key| Ok(statement.exists([key])?)).collect()
}

/// One step of rewriting a word index without what was deleted from it, which until then only marks it. Answers
/// whether there is more to do.
fn merge(db: &Connection, table: &str, first: bool) -> Result<bool> {
    let before = db.total_changes();
    // A negative number takes all of the index, a positive one goes on with that.
    let pages = if first { -MERGE_PAGES } else { MERGE_PAGES };
    db.execute(&format!("INSERT INTO {table} ({table}, rank) VALUES ('merge', ?1)"), [pages])?;
    Ok(db.total_changes() - before >= 2)
}

/// Writes the file anew without what was removed, and empties the log of writes. Not inside a transaction.
fn rewrite(db: &Connection) -> Result<()> {
    // The copy can be as large as the file: not in memory.
    db.execute_batch("PRAGMA temp_store = FILE")?;
    let rewritten = db.execute_batch("VACUUM");
    db.execute_batch("PRAGMA temp_store = MEMORY")?;
    rewritten?;
    let busy: bool = db.query_row("PRAGMA wal_checkpoint(TRUNCATE)", [], |row| row.get(0))?;
    if busy { Err(StoreError::Unavailable("a long read keeps the log of writes".into())) } else { Ok(()) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sqlite::open::plan;

    #[test]
    fn forks_that_never_became_whole_are_found_among_all_that_is_deleted() {
        let plan = plan(UNMADE_BEFORE, params![0, 9]);
        assert!(plan.contains("USING INDEX idx_chat_conversations_unmade (deleted_at<?)"), "{plan}");
    }
}
