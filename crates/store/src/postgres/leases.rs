//! Leases: which node drives which run, by the database's own clock. A node is alive for as long as its lease.

use async_trait::async_trait;
use domain::run::Lease;
use domain::scope::Scope;
use futures_util::stream::BoxStream;
use tokio_postgres::Row;
use uuid::Uuid;

use super::transaction::{Settings, Transaction, transaction};
use super::{PostgresStore, conversations, news};
use crate::error::Result;
use crate::store::leases::Leases;
use crate::turns::{Heartbeat, Held, Lock, News, Waiting};

#[async_trait]
impl Leases for PostgresStore {
    async fn system_heartbeat(&self, node: Uuid, lease_seconds: u64, renew: bool) -> Result<Heartbeat> {
        transaction!(self.database, begin_system, Settings::nobody(), |tx| heartbeat(
            tx,
            node,
            lease_seconds,
            renew
        ))
    }

    async fn system_take_expired(&self, node: Uuid, lease_seconds: u64, limit: usize) -> Result<Vec<Held>> {
        transaction!(self.database, begin_system, Settings::nobody(), |tx| take_expired(
            tx,
            node,
            lease_seconds,
            limit
        ))
    }

    async fn take_over(
        &self,
        scope: &Scope,
        conversation: Uuid,
        node: Uuid,
        lease_seconds: u64,
    ) -> Result<Option<Held>> {
        transaction!(self.database, begin_write, Settings::of(scope), |tx| take_over(
            tx,
            scope,
            conversation,
            node,
            lease_seconds
        ))
    }

    async fn system_list_locks(&self, after: Option<(Uuid, Uuid)>, limit: usize) -> Result<Vec<Lock>> {
        transaction!(self.database, begin_system, Settings::nobody(), |tx| list_locks(tx, after, limit))
    }

    async fn system_list_waiting(&self, limit: usize) -> Result<Vec<Waiting>> {
        transaction!(self.database, begin_system, Settings::nobody(), |tx| list_waiting(tx, limit))
    }

    async fn system_announce(&self, news: &[News]) -> Result<()> {
        news::announce(&self.database, news).await
    }

    fn system_news(&self) -> Option<BoxStream<'static, News>> {
        Some(news::listen(&self.config))
    }

    fn is_shared(&self) -> bool {
        true
    }
}

/// When a lease given now runs out, `$n` being its seconds.
pub(super) fn until(seconds: &str) -> String {
    format!("clock_timestamp() + make_interval(secs => {seconds}::double precision)")
}

fn read(row: &Row) -> Result<Held> {
    Ok(Held { workspace: row.try_get(0)?, lease: Lease { run: row.try_get(1)?, fence: row.try_get(2)? } })
}

async fn heartbeat(tx: &Transaction, node: Uuid, lease_seconds: u64, renew: bool) -> Result<Heartbeat> {
    let node = node.to_string();
    let rows = if renew {
        // Locked in the order of their ids, as appends do: whoever locks many runs and another order wait for each other.
        let text = format!(
            "WITH ours AS MATERIALIZED ( \
                 SELECT workspace_id, id FROM runs WHERE node = $1 AND status = 'running' \
                 ORDER BY id FOR NO KEY UPDATE) \
             UPDATE runs r SET lease_until = {} FROM ours WHERE r.workspace_id = ours.workspace_id AND r.id = ours.id \
             RETURNING r.workspace_id, r.id, r.fence, r.cancel_requested",
            until("$2")
        );
        tx.rows(&text, &[&node, &(lease_seconds as f64)]).await?
    } else {
        let text = "SELECT workspace_id, id, fence, cancel_requested FROM runs \
                    WHERE node = $1 AND status = 'running'";
        tx.rows(text, &[&node]).await?
    };
    let mut found = Heartbeat::default();
    for row in &rows {
        let held = read(row)?;
        if row.try_get(3)? {
            found.cancelled.push(held.lease.run);
        }
        found.held.push(held);
    }
    Ok(found)
}

async fn take_expired(tx: &Transaction, node: Uuid, lease_seconds: u64, limit: usize) -> Result<Vec<Held>> {
    // One that is locked is being written to or taken over at this moment. Materialized, because a subquery may
    // be run again for each row it is joined to, and then finds others.
    let text = format!(
        "WITH dead AS MATERIALIZED ( \
             SELECT workspace_id, id FROM runs WHERE status = 'running' AND lease_until < clock_timestamp() \
             LIMIT $3 FOR UPDATE SKIP LOCKED) \
         UPDATE runs r SET fence = r.fence + 1, node = $1, lease_until = {} FROM dead \
         WHERE r.workspace_id = dead.workspace_id AND r.id = dead.id RETURNING r.workspace_id, r.id, r.fence",
        until("$2")
    );
    let rows = tx.rows(&text, &[&node.to_string(), &(lease_seconds as f64), &(limit as i64)]).await?;
    rows.iter().map(read).collect()
}

async fn take_over(
    tx: &Transaction,
    scope: &Scope,
    conversation: Uuid,
    node: Uuid,
    lease_seconds: u64,
) -> Result<Option<Held>> {
    conversations::get(tx, scope, conversation).await?;
    let text = format!(
        "UPDATE runs SET fence = fence + 1, node = $3, lease_until = {} \
         WHERE {} AND conversation_id = $2 AND status = 'running' RETURNING workspace_id, id, fence",
        until("$4"),
        tx.inside("workspace_id")
    );
    let (node, seconds) = (node.to_string(), lease_seconds as f64);
    let row = tx.row(&text, &[&scope.workspace, &conversation, &node, &seconds]).await?;
    row.as_ref().map(read).transpose()
}

async fn list_waiting(tx: &Transaction, limit: usize) -> Result<Vec<Waiting>> {
    let rows = tx
        .rows(
            "SELECT * FROM (SELECT DISTINCT q.workspace_id, q.conversation_id FROM runs q \
                 WHERE q.status = 'queued' AND q.conversation_id IS NOT NULL AND NOT EXISTS ( \
                     SELECT 1 FROM runs r WHERE r.workspace_id = q.workspace_id \
                     AND r.conversation_id = q.conversation_id AND r.status = 'running')) AS w \
             ORDER BY random() LIMIT $1",
            &[&(limit as i64)],
        )
        .await?;
    rows.iter().map(|row| Ok(Waiting { workspace: row.try_get(0)?, conversation: row.try_get(1)? })).collect()
}

async fn list_locks(tx: &Transaction, after: Option<(Uuid, Uuid)>, limit: usize) -> Result<Vec<Lock>> {
    let (workspace, run) = after.unwrap_or((Uuid::nil(), Uuid::nil()));
    let text = "SELECT workspace_id, conversation_id, id, node, \
                (extract(epoch FROM lease_until - clock_timestamp()) * 1000)::bigint FROM runs \
                WHERE status = 'running' AND conversation_id IS NOT NULL AND (workspace_id, id) > ($1, $2) \
                ORDER BY workspace_id, id LIMIT $3";
    let rows = tx.rows(text, &[&workspace, &run, &(limit as i64)]).await?;
    let read = |row: &Row| {
        Ok(Lock {
            workspace: row.try_get(0)?,
            conversation: row.try_get(1)?,
            run: row.try_get(2)?,
            node: row.try_get(3)?,
            lease_left_ms: row.try_get::<_, Option<i64>>(4)?.unwrap_or(0),
        })
    };
    rows.iter().map(read).collect()
}
