//! Removal for good. The nodes' own role finds what is due and sees no more of it than its keys; what is removed is
//! removed in its workspace's own scope.

use std::collections::HashSet;

use async_trait::async_trait;
use jiff::Timestamp;
use tokio_postgres::{Config, Row};
use uuid::Uuid;

use super::transaction::{Settings, Transaction, transaction};
use super::{PostgresStore, open};
use crate::error::{Result, StoreError};
use crate::files::{Doomed, Purgeable};
use crate::store::purge::Purge;

#[async_trait]
impl Purge for PostgresStore {
    async fn system_list_stale(&self, before: Timestamp, limit: usize) -> Result<Vec<Doomed>> {
        transaction!(self.database, begin_system, Settings::nobody(), |tx| list_stale(tx, before, limit))
    }

    async fn system_known_keys(&self, keys: &[String]) -> Result<Vec<bool>> {
        transaction!(self.database, begin_system, Settings::nobody(), |tx| known_keys(tx, keys))
    }

    async fn system_list_purgeable(&self, before: Timestamp, limit: usize) -> Result<Vec<Purgeable>> {
        transaction!(self.database, begin_system, Settings::nobody(), |tx| list(tx, before, limit))
    }

    async fn system_list_unmade_forks(&self, _before: Timestamp, _limit: usize) -> Result<Vec<Purgeable>> {
        Ok(Vec::new())
    }

    async fn system_list_files_of(&self, conversation: &Purgeable) -> Result<Vec<Doomed>> {
        let settings = Settings::workspace(conversation.workspace).seeing_all();
        transaction!(self.database, begin_read, settings, |tx| files_of(tx, conversation))
    }

    async fn system_begin_purge(&self, conversation: &Purgeable) -> Result<Vec<Doomed>> {
        let settings = Settings::workspace(conversation.workspace).seeing_all();
        transaction!(self.database, begin_write, settings, |tx| begin(tx, conversation))
    }

    async fn system_purge(&self, conversation: &Purgeable) -> Result<()> {
        let settings = Settings::workspace(conversation.workspace).seeing_all();
        transaction!(self.database, begin_write, settings, |tx| purge(tx, conversation))
    }

    async fn system_list_deleted_files(&self, before: Timestamp, limit: usize) -> Result<Vec<Doomed>> {
        transaction!(self.database, begin_system, Settings::nobody(), |tx| list_deleted(tx, before, limit))
    }

    async fn system_list_removed(&self, before: Timestamp) -> Result<Vec<Uuid>> {
        transaction!(self.database, begin_system, Settings::nobody(), |tx| list_removed(tx, before))
    }

    async fn system_purge_removed(&self, workspace: Uuid, limit: usize) -> Result<Option<Vec<Doomed>>> {
        let settings = Settings::workspace(workspace).seeing_all();
        transaction!(self.database, begin_write, settings, |tx| purge_removed(tx, workspace, limit))
    }

    async fn system_compact(&self) -> Result<()> {
        compact(&self.config).await
    }
}

fn read_doomed(rows: &[Row]) -> Result<Vec<Doomed>> {
    let read = |row: &Row| {
        Ok(Doomed { workspace: row.try_get(0)?, id: row.try_get(1)?, storage_key: row.try_get(2)? })
    };
    rows.iter().map(read).collect()
}

/// Marked as deleted, so that none is kept while its bytes go. Those that an earlier sweep did not finish come again.
async fn list_stale(tx: &Transaction, before: Timestamp, limit: usize) -> Result<Vec<Doomed>> {
    let rows = tx
        .rows(
            "WITH stale AS MATERIALIZED ( \
                 SELECT workspace_id, id FROM files WHERE NOT kept AND reserved_at < $1 \
                 AND coalesce(expires_at, reserved_at) < $1 ORDER BY reserved_at LIMIT $2 FOR UPDATE SKIP LOCKED) \
             UPDATE files f SET deleted_at = coalesce(f.deleted_at, $1) FROM stale \
             WHERE f.workspace_id = stale.workspace_id AND f.id = stale.id \
             RETURNING f.workspace_id, f.id, f.storage_key",
            &[&before, &(limit as i64)],
        )
        .await?;
    read_doomed(&rows)
}

async fn known_keys(tx: &Transaction, keys: &[String]) -> Result<Vec<bool>> {
    let rows = tx.rows("SELECT storage_key FROM files WHERE storage_key = ANY($1)", &[&keys]).await?;
    let known = rows.iter().map(|row| Ok(row.try_get(0)?)).collect::<Result<HashSet<&str>>>()?;
    Ok(keys.iter().map(|key| known.contains(&**key)).collect())
}

async fn list_deleted(tx: &Transaction, before: Timestamp, limit: usize) -> Result<Vec<Doomed>> {
    // Those of a deleted conversation go with it.
    let rows = tx
        .rows(
            "SELECT f.workspace_id, f.id, f.storage_key FROM files f \
             WHERE f.deleted_at < $1 AND f.kept AND (f.conversation_id IS NULL OR ( \
                 SELECT c.deleted_at IS NULL FROM chat_conversations c \
                 WHERE c.workspace_id = f.workspace_id AND c.id = f.conversation_id)) \
             ORDER BY f.deleted_at LIMIT $2",
            &[&before, &(limit as i64)],
        )
        .await?;
    read_doomed(&rows)
}

async fn list(tx: &Transaction, before: Timestamp, limit: usize) -> Result<Vec<Purgeable>> {
    let rows = tx
        .rows(
            "SELECT workspace_id, id FROM chat_conversations WHERE deleted_at < $1 ORDER BY deleted_at LIMIT $2",
            &[&before, &(limit as i64)],
        )
        .await?;
    rows.iter()
        .map(|row| Ok(Purgeable { workspace: row.try_get(0)?, conversation: row.try_get(1)? }))
        .collect()
}

async fn begin(tx: &Transaction, of: &Purgeable) -> Result<Vec<Doomed>> {
    let text = format!(
        "UPDATE chat_conversations SET purging = true WHERE {} AND id = $2 AND deleted_at IS NOT NULL",
        tx.inside("workspace_id")
    );
    if tx.execute(&text, &[&of.workspace, &of.conversation]).await? == 0 {
        return Err(StoreError::NotFound);
    }
    files_of(tx, of).await
}

async fn files_of(tx: &Transaction, of: &Purgeable) -> Result<Vec<Doomed>> {
    let text = format!(
        "SELECT workspace_id, id, storage_key FROM files WHERE {} AND conversation_id = $2 ORDER BY id",
        tx.inside("workspace_id")
    );
    read_doomed(&tx.rows(&text, &[&of.workspace, &of.conversation]).await?)
}

/// The tables with rows of a conversation, in an order that no reference minds.
const BY_RUN: [&str; 3] = ["run_events", "run_traces", "approvals"];
const BY_CONVERSATION: [&str; 6] =
    ["runs", "files", "message_search", "title_search", "messages", "branches"];

/// The tables with rows of a workspace that belong to none of its runs and conversations, and the keys of requests: one
/// that made a purged run is known for its day, so that it makes no other.
const BY_WORKSPACE: [&str; 4] = ["agents", "tool_servers", "tool_pins", "idempotency_keys"];

/// Rows that are removed at once, not by a purge.
const KNOWLEDGE: [&str; 5] = ["page_search", "row_search", "pages", "table_rows", "user_tables"];

async fn purge(tx: &Transaction, of: &Purgeable) -> Result<()> {
    let own = tx.inside("workspace_id");
    // Locked in the order that all keep: it, its runs, then what belongs to them.
    let text = format!("SELECT id FROM chat_conversations WHERE {own} AND id = $2 AND purging FOR UPDATE");
    let ids: [&(dyn tokio_postgres::types::ToSql + Sync); 2] = [&of.workspace, &of.conversation];
    tx.row(&text, &ids).await?.ok_or(StoreError::NotFound)?;
    tx.execute(&format!("SELECT id FROM runs WHERE {own} AND conversation_id = $2 FOR UPDATE"), &ids).await?;
    for table in BY_RUN {
        let text = format!(
            "DELETE FROM {table} t USING runs r WHERE {} AND r.conversation_id = $2 \
             AND t.workspace_id = r.workspace_id AND t.run_id = r.id",
            tx.inside("r.workspace_id")
        );
        tx.execute(&text, &ids).await?;
    }
    for table in BY_CONVERSATION {
        tx.execute(&format!("DELETE FROM {table} WHERE {own} AND conversation_id = $2"), &ids).await?;
    }
    tx.execute(&format!("DELETE FROM chat_conversations WHERE {own} AND id = $2"), &ids).await.map(|_| ())
}

async fn list_removed(tx: &Transaction, before: Timestamp) -> Result<Vec<Uuid>> {
    let text = "SELECT id FROM workspaces WHERE deleted_at < $1 ORDER BY deleted_at";
    tx.rows(text, &[&before]).await?.iter().map(|row| Ok(row.try_get(0)?)).collect()
}

async fn purge_removed(tx: &Transaction, workspace: Uuid, limit: usize) -> Result<Option<Vec<Doomed>>> {
    let own = tx.inside("workspace_id");
    let text =
        format!("SELECT id FROM workspaces WHERE {} AND deleted_at IS NOT NULL FOR UPDATE", tx.inside("id"));
    tx.row(&text, &[&workspace]).await?.ok_or(StoreError::NotFound)?;
    let text = format!("SELECT id FROM chat_conversations WHERE {own} LIMIT 1");
    if tx.row(&text, &[&workspace]).await?.is_some() {
        return Err(StoreError::NotFound);
    }
    // As above: the runs first, then what belongs to them.
    let limit = limit as i64;
    let text = format!("SELECT id FROM runs WHERE {own} ORDER BY id LIMIT $2 FOR UPDATE");
    let runs = tx.rows(&text, &[&workspace, &limit]).await?;
    let runs = runs.iter().map(|row| Ok(row.try_get(0)?)).collect::<Result<Vec<Uuid>>>()?;
    if !runs.is_empty() {
        for table in BY_RUN {
            let text = format!(
                "DELETE FROM {table} t USING runs r WHERE {} AND r.id = ANY($2) \
                 AND t.workspace_id = r.workspace_id AND t.run_id = r.id",
                tx.inside("r.workspace_id")
            );
            tx.execute(&text, &[&workspace, &runs]).await?;
        }
        tx.execute(&format!("DELETE FROM runs WHERE {own} AND id = ANY($2)"), &[&workspace, &runs]).await?;
        return Ok(Some(Vec::new()));
    }
    let text = format!("SELECT workspace_id, id, storage_key FROM files WHERE {own} ORDER BY id LIMIT $2");
    let files = read_doomed(&tx.rows(&text, &[&workspace, &limit]).await?)?;
    if !files.is_empty() {
        return Ok(Some(files));
    }
    for table in BY_WORKSPACE {
        tx.execute(&format!("DELETE FROM {table} WHERE {own}"), &[&workspace]).await?;
    }
    tx.execute(&format!("DELETE FROM workspaces WHERE {}", tx.inside("id")), &[&workspace]).await?;
    Ok(None)
}

/// As the role that Threadkeep connects as, which owns the tables where it made them. A table that is not its own
/// PostgreSQL passes over with a warning.
async fn compact(config: &Config) -> Result<()> {
    let client = open::beside(config).await?;
    let tables = [&BY_RUN[..], &BY_CONVERSATION[..], &BY_WORKSPACE[..], &KNOWLEDGE[..]].concat();
    client.batch_execute(&format!("VACUUM chat_conversations, workspaces, {}", tables.join(", "))).await?;
    Ok(())
}
