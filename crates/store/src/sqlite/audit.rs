//! The audit log's rows.

use domain::audit::{Action, AuditEntry};
use domain::scope::Scope;
use domain::time::from_ms;
use jiff::Timestamp;
use rusqlite::{Connection, OptionalExtension, params};

use crate::error::Result;

/// Writes the entry that follows the workspace's last one.
pub(super) fn note(
    db: &Connection,
    scope: &Scope,
    at: Timestamp,
    action: Action,
    target: &str,
    detail: &str,
) -> Result<()> {
    let previous = db
        .prepare_cached("SELECT seq, hash FROM audit_log WHERE workspace_id = ?1 ORDER BY seq DESC LIMIT 1")?
        .query_row([scope.workspace], |row| Ok((row.get(0)?, row.get(1)?)))
        .optional()?;
    let entry = AuditEntry::next(previous, scope, at, action, target, detail);
    db.prepare_cached(
        "INSERT INTO audit_log (workspace_id, seq, at, user_id, key_id, action, target, detail, hash) \
         VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9)",
    )?
    .execute(params![
        scope.workspace,
        entry.seq,
        entry.at.as_millisecond(),
        entry.user,
        entry.key,
        entry.action,
        entry.target,
        entry.detail,
        entry.hash
    ])?;
    Ok(())
}

pub(super) fn list(db: &Connection, scope: &Scope, after: i64, limit: usize) -> Result<Vec<AuditEntry>> {
    let mut statement = db.prepare_cached(
        "SELECT seq, at, user_id, key_id, action, target, detail, hash FROM audit_log \
         WHERE workspace_id = ?1 AND seq > ?2 ORDER BY seq LIMIT ?3",
    )?;
    let rows = statement.query_map(params![scope.workspace, after, limit as i64], |row| {
        Ok(AuditEntry {
            seq: row.get(0)?,
            at: from_ms(row.get(1)?),
            user: row.get(2)?,
            key: row.get(3)?,
            action: row.get(4)?,
            target: row.get(5)?,
            detail: row.get(6)?,
            hash: row.get(7)?,
        })
    })?;
    Ok(rows.collect::<rusqlite::Result<_>>()?)
}
