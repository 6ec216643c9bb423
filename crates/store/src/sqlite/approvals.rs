//! Calls that wait for a person.

use async_trait::async_trait;
use domain::approval::{Approval, Decision};
use domain::run::RunStatus;
use domain::scope::Scope;
use domain::time::from_ms;
use rusqlite::{Connection, params};
use uuid::Uuid;

use super::writer::Durability;
use super::{SqliteStore, runs};
use crate::error::{Result, StoreError};
use crate::store::approvals::{APPROVAL_DECIDED, Approvals, RUN_ENDED};
use crate::turns::{Held, parse_json, to_json};

#[async_trait]
impl Approvals for SqliteStore {
    async fn add_approvals(&self, held: &Held, approvals: &[Approval]) -> Result<()> {
        let (held, approvals) = (*held, approvals.to_vec());
        self.writer.write(Durability::Full, move |db| add(db, &held, &approvals)).await
    }

    async fn list_approvals(&self, workspace: Uuid, run: Uuid) -> Result<Vec<Approval>> {
        self.readers.read(move |db| list(db, workspace, run)).await
    }

    async fn decide_approval(&self, scope: &Scope, run: Uuid, id: Uuid, decision: &Decision) -> Result<()> {
        let (scope, decision) = (scope.clone(), decision.clone());
        self.writer.write(Durability::Full, move |db| decide(db, &scope, run, id, &decision)).await
    }

    async fn start_approved(&self, held: &Held, id: Uuid) -> Result<bool> {
        let held = *held;
        self.writer.write(Durability::Full, move |db| start(db, &held, id)).await
    }
}

/// `Lost` unless the run is under way with this fence.
fn guard(db: &Connection, held: &Held) -> Result<()> {
    let ours: bool = db
        .prepare_cached(
            "SELECT EXISTS (SELECT 1 FROM runs WHERE workspace_id = ?1 AND id = ?2 AND fence = ?3 AND status = 'running')",
        )?
        .query_row(params![held.workspace, held.lease.run, held.lease.fence], |row| row.get(0))?;
    if ours { Ok(()) } else { Err(StoreError::Lost) }
}

fn add(db: &Connection, held: &Held, approvals: &[Approval]) -> Result<()> {
    guard(db, held)?;
    for approval in approvals {
        db.prepare_cached(
            "INSERT INTO approvals (workspace_id, run_id, id, round, call) VALUES (?1, ?2, ?3, ?4, ?5) \
             ON CONFLICT DO NOTHING",
        )?
        .execute(params![
            held.workspace,
            held.lease.run,
            approval.id,
            approval.round,
            to_json(&approval.call)?
        ])?;
    }
    Ok(())
}

pub(super) fn list(db: &Connection, workspace: Uuid, run: Uuid) -> Result<Vec<Approval>> {
    let mut statement = db.prepare_cached(
        "SELECT id, round, call, approve, reason, decided_by, decided_at, started, result FROM approvals \
         WHERE workspace_id = ?1 AND run_id = ?2 ORDER BY id",
    )?;
    let rows = statement.query_map(params![workspace, run], |row| {
        let approve: Option<bool> = row.get(3)?;
        let decision = match approve {
            Some(approve) => Some(Decision {
                approve,
                reason: row.get(4)?,
                by: row.get::<_, Option<String>>(5)?.unwrap_or_default(),
                at: from_ms(row.get::<_, Option<i64>>(6)?.unwrap_or_default()),
                result: row.get(8)?,
            }),
            None => None,
        };
        Ok((row.get(0)?, row.get(1)?, row.get::<_, String>(2)?, decision, row.get(7)?))
    })?;
    rows.map(|row| {
        let (id, round, call, decision, started) = row?;
        Ok(Approval { id, round, call: parse_json(&call)?, decision, started })
    })
    .collect()
}

fn decide(db: &Connection, scope: &Scope, run: Uuid, id: Uuid, decision: &Decision) -> Result<()> {
    let found = runs::get(db, scope, run)?;
    let all = list(db, scope.workspace, run)?;
    let approval = all.into_iter().find(|approval| approval.id == id).ok_or(StoreError::NotFound)?;
    match approval.decision {
        Some(before) if before.is_as(decision) => return Ok(()),
        Some(_) => return Err(APPROVAL_DECIDED),
        None if found.status != RunStatus::Running => return Err(RUN_ENDED),
        None => {}
    }
    db.execute(
        "UPDATE approvals SET approve = ?4, reason = ?5, decided_by = ?6, decided_at = ?7, result = ?8 \
         WHERE workspace_id = ?1 AND run_id = ?2 AND id = ?3",
        params![
            scope.workspace,
            run,
            id,
            decision.approve,
            decision.reason,
            decision.by,
            decision.at.as_millisecond(),
            decision.result
        ],
    )?;
    Ok(())
}

fn start(db: &Connection, held: &Held, id: Uuid) -> Result<bool> {
    guard(db, held)?;
    let started = db.execute(
        "UPDATE approvals SET started = 1 \
         WHERE workspace_id = ?1 AND run_id = ?2 AND id = ?3 AND approve = 1 AND started = 0",
        params![held.workspace, held.lease.run, id],
    )?;
    Ok(started == 1)
}
