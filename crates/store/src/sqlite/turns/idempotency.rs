//! Requests that come twice: the second is answered what the first made.

use domain::run::OnDisconnect;
use domain::scope::Scope;
use jiff::Timestamp;
use rusqlite::{Connection, OptionalExtension, params};
use uuid::Uuid;

use crate::error::Result;
use crate::sqlite::runs;
use crate::turns::{Begun, Idempotency, KEY_LIFE, caller};

/// What the same request made before.
pub(in crate::sqlite) fn repeated(
    db: &Connection,
    scope: &Scope,
    idempotency: Option<&Idempotency>,
    now: Timestamp,
) -> Result<Option<Begun>> {
    let Some(idempotency) = idempotency else { return Ok(None) };
    let found: Option<(Vec<u8>, Uuid, bool)> = db
        .prepare_cached(
            "SELECT body_hash, run_id, workspace_id = ?1 AS here FROM idempotency_keys \
             WHERE caller = ?2 AND key = ?3 AND created_at > ?4 ORDER BY here DESC LIMIT 1",
        )?
        .query_row(
            params![
                scope.workspace,
                caller(scope),
                idempotency.key,
                now.as_millisecond() - KEY_LIFE.as_millis() as i64
            ],
            |row| Ok((row.get(0)?, row.get(1)?, row.get(2)?)),
        )
        .optional()?;
    Ok(match found {
        None => None,
        Some((hash, _, here)) if !here || hash != idempotency.body_hash => Some(Begun::KeyReused),
        Some((_, run, _)) => Some(Begun::Repeated(runs::by_id(db, scope.workspace, run)?)),
    })
}

/// A repeated request that nobody waits for, too: from now on its run needs no reader, unless it is to end already.
pub(super) fn go_on(db: &Connection, before: Begun, asked: OnDisconnect) -> Result<Begun> {
    let Begun::Repeated(run) = before else { return Ok(before) };
    if (run.on_disconnect, asked) != (OnDisconnect::Cancel, OnDisconnect::Continue) {
        return Ok(Begun::Repeated(run));
    }
    db.prepare_cached(
        "UPDATE runs SET on_disconnect = 'continue' WHERE workspace_id = ?1 AND id = ?2 \
         AND status IN ('queued', 'running') AND cancel_requested = 0",
    )?
    .execute(params![run.workspace, run.id])?;
    Ok(Begun::Repeated(runs::by_id(db, run.workspace, run.id)?))
}

pub(in crate::sqlite) fn remember(
    db: &Connection,
    scope: &Scope,
    idempotency: Option<&Idempotency>,
    run: Uuid,
    now: Timestamp,
) -> Result<()> {
    let Some(idempotency) = idempotency else { return Ok(()) };
    db.prepare_cached(
        "INSERT OR REPLACE INTO idempotency_keys (workspace_id, caller, key, body_hash, run_id, created_at) \
         VALUES (?1, ?2, ?3, ?4, ?5, ?6)",
    )?
    .execute(params![
        scope.workspace,
        caller(scope),
        idempotency.key,
        idempotency.body_hash,
        run,
        now.as_millisecond()
    ])?;
    Ok(())
}
