//! The audit log's rows.

use domain::audit::{Action, AuditEntry};
use domain::scope::Scope;
use jiff::Timestamp;

use super::transaction::{Database, Query, Settings, Transaction, inside};
use super::workspaces;
use crate::error::Result;

/// Writes the entry that follows the workspace's last one.
pub(super) async fn note(
    tx: &Transaction,
    scope: &Scope,
    at: Timestamp,
    action: Action,
    target: &str,
    detail: &str,
) -> Result<()> {
    workspaces::lock(tx, scope).await?;
    let text = format!(
        "SELECT seq, hash FROM audit_log WHERE {} ORDER BY seq DESC LIMIT 1",
        tx.inside("workspace_id")
    );
    let previous = match tx.row(&text, &[&scope.workspace]).await? {
        Some(row) => Some((row.try_get(0)?, row.try_get(1)?)),
        None => None,
    };
    let entry = AuditEntry::next(previous, scope, at, action, target, detail);
    tx.execute(
        "INSERT INTO audit_log (workspace_id, seq, at, user_id, key_id, action, target, detail, hash) \
         VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9)",
        &[
            &scope.workspace,
            &entry.seq,
            &entry.at,
            &entry.user,
            &entry.key,
            &entry.action,
            &entry.target,
            &entry.detail,
            &entry.hash,
        ],
    )
    .await?;
    Ok(())
}

pub(super) async fn list(db: &Database, scope: &Scope, after: i64, limit: usize) -> Result<Vec<AuditEntry>> {
    let text = format!(
        "SELECT seq, at, user_id, key_id, action, target, detail, hash FROM audit_log \
         WHERE {} AND seq > $2 ORDER BY seq LIMIT $3",
        inside(db.dialect, "workspace_id")
    );
    let limit = limit as i64;
    let query = Query { text: &text, params: vec![&scope.workspace, &after, &limit] };
    let [rows] = db.read(&Settings::of(scope), [query]).await?;
    rows.iter()
        .map(|row| {
            Ok(AuditEntry {
                seq: row.try_get(0)?,
                at: row.try_get(1)?,
                user: row.try_get(2)?,
                key: row.try_get(3)?,
                action: row.try_get(4)?,
                target: row.try_get(5)?,
                detail: row.try_get(6)?,
                hash: row.try_get(7)?,
            })
        })
        .collect()
}
