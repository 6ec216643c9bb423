//! Leases: which node drives which run, by the database's own clock.

use async_trait::async_trait;
use domain::run::Lease;
use domain::scope::Scope;
use futures_util::stream::BoxStream;
use rusqlite::{Connection, OptionalExtension, Row, params};
use uuid::Uuid;

use super::writer::Durability;
use super::{SqliteStore, conversations};
use crate::error::{Result, StoreError};
use crate::store::leases::Leases;
use crate::turns::{Heartbeat, Held, Lock, News, Waiting};

#[async_trait]
impl Leases for SqliteStore {
    async fn system_heartbeat(&self, node: Uuid, lease_seconds: u64, renew: bool) -> Result<Heartbeat> {
        self.writer.write(Durability::Normal, move |db| heartbeat(db, node, lease_seconds, renew)).await
    }

    async fn system_take_expired(&self, node: Uuid, lease_seconds: u64, limit: usize) -> Result<Vec<Held>> {
        self.writer.write(Durability::Full, move |db| take_expired(db, node, lease_seconds, limit)).await
    }

    async fn take_over(
        &self,
        scope: &Scope,
        conversation: Uuid,
        node: Uuid,
        lease_seconds: u64,
    ) -> Result<Option<Held>> {
        let scope = scope.clone();
        let work = move |db: &_| take_over(db, &scope, conversation, node, lease_seconds);
        self.writer.write(Durability::Full, work).await
    }

    async fn system_list_locks(&self, after: Option<(Uuid, Uuid)>, limit: usize) -> Result<Vec<Lock>> {
        self.readers.read(move |db| list_locks(db, after, limit)).await
    }

    async fn system_list_waiting(&self, limit: usize) -> Result<Vec<Waiting>> {
        self.readers.read(move |db| list_waiting(db, limit)).await
    }

    async fn system_announce(&self, _news: &[News]) -> Result<()> {
        // The file has one process: nobody else is there to hear.
        Ok(())
    }

    fn system_news(&self) -> Option<BoxStream<'static, News>> {
        None
    }

    fn is_shared(&self) -> bool {
        false
    }
}

/// The database's own clock: leases rest on no other.
pub(super) const NOW_MS: &str = "CAST(unixepoch('subsec') * 1000 AS INTEGER)";

fn read(row: &Row<'_>) -> rusqlite::Result<Held> {
    Ok(Held { workspace: row.get(0)?, lease: Lease { run: row.get(1)?, fence: row.get(2)? } })
}

fn heartbeat(db: &Connection, node: Uuid, lease_seconds: u64, renew: bool) -> Result<Heartbeat> {
    let node = node.to_string();
    if renew {
        let text =
            format!("UPDATE runs SET lease_until = {NOW_MS} + ?2 WHERE node = ?1 AND status = 'running'");
        db.prepare_cached(&text)?.execute(params![node, lease_seconds as i64 * 1000])?;
    }
    let mut statement = db.prepare_cached(
        "SELECT workspace_id, id, fence, cancel_requested FROM runs WHERE node = ?1 AND status = 'running'",
    )?;
    let rows = statement.query_map([node], |row| Ok((read(row)?, row.get::<_, bool>(3)?)))?;
    let mut found = Heartbeat::default();
    for row in rows {
        let (held, cancelled) = row?;
        if cancelled {
            found.cancelled.push(held.lease.run);
        }
        found.held.push(held);
    }
    Ok(found)
}

fn take_expired(db: &Connection, node: Uuid, lease_seconds: u64, limit: usize) -> Result<Vec<Held>> {
    // On the embedded store whoever is not this process is dead: the file's lock says so. And this process is not,
    // however late its heartbeat.
    let text = format!(
        "UPDATE runs SET fence = fence + 1, node = ?1, lease_until = {NOW_MS} + ?2 \
         WHERE status = 'running' AND node IS NOT ?1 AND (workspace_id, id) IN ( \
             SELECT workspace_id, id FROM runs WHERE status = 'running' AND node IS NOT ?1 LIMIT ?3) \
         RETURNING workspace_id, id, fence"
    );
    let mut statement = db.prepare_cached(&text)?;
    let rows =
        statement.query_map(params![node.to_string(), lease_seconds as i64 * 1000, limit as i64], read)?;
    Ok(rows.collect::<rusqlite::Result<_>>()?)
}

fn take_over(
    db: &Connection,
    scope: &Scope,
    conversation: Uuid,
    node: Uuid,
    lease_seconds: u64,
) -> Result<Option<Held>> {
    conversations::find(db, scope, conversation, false, false)?.ok_or(StoreError::NotFound)?;
    let text = format!(
        "UPDATE runs SET fence = fence + 1, node = ?3, lease_until = {NOW_MS} + ?4 \
         WHERE workspace_id = ?1 AND conversation_id = ?2 AND status = 'running' RETURNING workspace_id, id, fence"
    );
    let taken = db
        .prepare_cached(&text)?
        .query_row(
            params![scope.workspace, conversation, node.to_string(), lease_seconds as i64 * 1000],
            read,
        )
        .optional()?;
    Ok(taken)
}

fn list_waiting(db: &Connection, limit: usize) -> Result<Vec<Waiting>> {
    let mut statement = db.prepare_cached(
        "SELECT * FROM (SELECT DISTINCT q.workspace_id, q.conversation_id FROM runs q \
             WHERE q.status = 'queued' AND NOT EXISTS ( \
                 SELECT 1 FROM runs r WHERE r.workspace_id = q.workspace_id \
                 AND r.conversation_id = q.conversation_id AND r.status = 'running')) \
         ORDER BY random() LIMIT ?1",
    )?;
    let rows = statement
        .query_map([limit as i64], |row| Ok(Waiting { workspace: row.get(0)?, conversation: row.get(1)? }))?;
    Ok(rows.collect::<rusqlite::Result<_>>()?)
}

fn list_locks(db: &Connection, after: Option<(Uuid, Uuid)>, limit: usize) -> Result<Vec<Lock>> {
    let (workspace, run) = after.unwrap_or((Uuid::nil(), Uuid::nil()));
    let mut statement = db.prepare_cached(&locks_text())?;
    let rows = statement.query_map(params![workspace, run, limit as i64], |row| {
        Ok(Lock {
            workspace: row.get(0)?,
            conversation: row.get(1)?,
            run: row.get(2)?,
            node: row.get(3)?,
            lease_left_ms: row.get::<_, Option<i64>>(4)?.unwrap_or(0),
        })
    })?;
    Ok(rows.collect::<rusqlite::Result<_>>()?)
}

/// By the index of those under way: in the order of the keys SQLite would come upon every run there ever was.
fn locks_text() -> String {
    format!(
        "SELECT workspace_id, conversation_id, id, node, lease_until - {NOW_MS} FROM runs INDEXED BY idx_runs_one_running \
         WHERE status = 'running' AND conversation_id IS NOT NULL AND (workspace_id, id) > (?1, ?2) \
         ORDER BY workspace_id, id LIMIT ?3"
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sqlite::open::plan;

    #[test]
    fn locks_are_found_among_the_runs_under_way() {
        let plan = plan(&locks_text(), params![Uuid::nil(), Uuid::nil(), 9]);
        assert!(plan.contains("runs USING INDEX idx_runs_one_running (workspace_id>?)"), "{plan}");
    }
}
