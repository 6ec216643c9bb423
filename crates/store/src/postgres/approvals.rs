//! Calls that wait for a person.

use async_trait::async_trait;
use domain::approval::{Approval, Decision};
use domain::scope::Scope;
use tokio_postgres::Row;
use uuid::Uuid;

use super::runs::RUNNING;
use super::transaction::{Query, Settings, Transaction, inside, transaction};
use super::{PostgresStore, conversations, runs};
use crate::error::{Result, StoreError};
use crate::store::approvals::{APPROVAL_DECIDED, Approvals, RUN_ENDED};
use crate::turns::{Held, parse_json, to_json};

#[async_trait]
impl Approvals for PostgresStore {
    async fn add_approvals(&self, held: &Held, approvals: &[Approval]) -> Result<()> {
        let settings = Settings::workspace(held.workspace).seeing_all();
        transaction!(self.database, begin_write, settings, |tx| add(tx, held, approvals))
    }

    async fn list_approvals(&self, workspace: Uuid, run: Uuid) -> Result<Vec<Approval>> {
        let text = format!(
            "SELECT {COLUMNS} FROM approvals a WHERE {} AND run_id = $2 ORDER BY id",
            inside(self.database.dialect, "workspace_id")
        );
        let query = Query { text: &text, params: vec![&workspace, &run] };
        let [rows] = self.database.read(&Settings::workspace(workspace).seeing_all(), [query]).await?;
        rows.iter().map(read).collect()
    }

    async fn decide_approval(&self, scope: &Scope, run: Uuid, id: Uuid, decision: &Decision) -> Result<()> {
        transaction!(self.database, begin_write, Settings::of(scope), |tx| decide(
            tx, scope, run, id, decision
        ))
    }

    async fn start_approved(&self, held: &Held, id: Uuid) -> Result<bool> {
        let settings = Settings::workspace(held.workspace).seeing_all();
        transaction!(self.database, begin_write, settings, |tx| start(tx, held, id))
    }
}

pub(super) const COLUMNS: &str =
    "a.id, a.round, a.call, a.approve, a.reason, a.decided_by, a.decided_at, a.started, a.result";
/// Where a query's own columns begin.
pub(super) const MORE: usize = 9;

/// `Lost` unless the run is under way with this fence; nobody takes it over meanwhile.
async fn guard(tx: &Transaction, held: &Held) -> Result<()> {
    let text = format!(
        "SELECT 1 FROM runs WHERE {} AND id = $2 AND fence = $3 AND {RUNNING} FOR SHARE",
        tx.inside("workspace_id")
    );
    let row = tx.row(&text, &[&held.workspace, &held.lease.run, &held.lease.fence]).await?;
    row.map(|_| ()).ok_or(StoreError::Lost)
}

async fn add(tx: &Transaction, held: &Held, approvals: &[Approval]) -> Result<()> {
    guard(tx, held).await?;
    for approval in approvals {
        let (round, call) = (i32::try_from(approval.round).unwrap_or(i32::MAX), to_json(&approval.call)?);
        tx.execute(
            "INSERT INTO approvals (workspace_id, run_id, id, round, call) VALUES ($1, $2, $3, $4, $5) \
             ON CONFLICT DO NOTHING",
            &[&held.workspace, &held.lease.run, &approval.id, &round, &call],
        )
        .await?;
    }
    Ok(())
}

pub(super) fn read(row: &Row) -> Result<Approval> {
    let (round, approve): (i32, Option<bool>) = (row.try_get(1)?, row.try_get(3)?);
    let decision = match approve {
        Some(approve) => Some(Decision {
            approve,
            reason: row.try_get(4)?,
            by: row.try_get::<_, Option<String>>(5)?.unwrap_or_default(),
            at: row.try_get::<_, Option<jiff::Timestamp>>(6)?.unwrap_or_default(),
            result: row.try_get(8)?,
        }),
        None => None,
    };
    Ok(Approval {
        id: row.try_get(0)?,
        round: u32::try_from(round).unwrap_or_default(),
        call: parse_json(row.try_get(2)?)?,
        decision,
        started: row.try_get(7)?,
    })
}

async fn decide(tx: &Transaction, scope: &Scope, run: Uuid, id: Uuid, decision: &Decision) -> Result<()> {
    let found = runs::by_id(tx, scope.workspace, run).await?;
    if let Some(conversation) = found.conversation {
        conversations::get(tx, scope, conversation).await?;
    }
    // Whoever ends it waits for this, or has ended it.
    let text =
        format!("SELECT 1 FROM runs WHERE {} AND id = $2 AND {RUNNING} FOR SHARE", tx.inside("workspace_id"));
    let running = tx.row(&text, &[&scope.workspace, &run]).await?.is_some();
    let text = format!(
        "SELECT {COLUMNS} FROM approvals a WHERE {} AND run_id = $2 AND id = $3 FOR UPDATE",
        tx.inside("workspace_id")
    );
    let row = tx.row(&text, &[&scope.workspace, &run, &id]).await?.ok_or(StoreError::NotFound)?;
    match read(&row)?.decision {
        Some(before) if before.is_as(decision) => return Ok(()),
        Some(_) => return Err(APPROVAL_DECIDED),
        None if !running => return Err(RUN_ENDED),
        None => {}
    }
    let text = format!(
        "UPDATE approvals SET approve = $4, reason = $5, decided_by = $6, decided_at = $7, result = $8 \
         WHERE {} AND run_id = $2 AND id = $3",
        tx.inside("workspace_id")
    );
    let Decision { approve, reason, by, at, result } = decision;
    tx.execute(&text, &[&scope.workspace, &run, &id, approve, reason, by, at, result]).await?;
    Ok(())
}

async fn start(tx: &Transaction, held: &Held, id: Uuid) -> Result<bool> {
    guard(tx, held).await?;
    let text = format!(
        "UPDATE approvals SET started = true WHERE {} AND run_id = $2 AND id = $3 AND approve AND NOT started",
        tx.inside("workspace_id")
    );
    Ok(tx.execute(&text, &[&held.workspace, &held.lease.run, &id]).await? == 1)
}
