//! Requests that come twice: the second is answered what the first made.

use domain::run::OnDisconnect;
use domain::scope::Scope;
use futures_util::future::join3;
use jiff::Timestamp;
use uuid::Uuid;

use crate::error::{Result, StoreError};
use crate::postgres::runs;
use crate::postgres::transaction::Transaction;
use crate::turns::{Begun, Idempotency, KEY_LIFE, caller};

const ENTER: &str = "SELECT set_config('threadkeep.workspace', $1, true)";

pub(in crate::postgres) async fn repeated(
    tx: &Transaction,
    scope: &Scope,
    idempotency: Option<&Idempotency>,
    now: Timestamp,
) -> Result<Option<Begun>> {
    let Some(idempotency) = idempotency else { return Ok(None) };
    tx.wait_in_line(&format!("idempotency key {} {}", caller(scope), idempotency.key)).await?;
    let text = format!(
        "SELECT body_hash, run_id FROM idempotency_keys \
         WHERE {} AND caller = $2 AND key = $3 AND created_at > $4",
        tx.inside("workspace_id")
    );
    let since = now.saturating_sub(KEY_LIFE).map_err(|error| StoreError::Internal(error.to_string()))?;
    let found = tx.row(&text, &[&scope.workspace, &caller(scope), &idempotency.key, &since]).await?;
    let Some(found) = found else {
        let elsewhere = is_used_elsewhere(tx, scope, idempotency, since).await?;
        return Ok(elsewhere.then_some(Begun::KeyReused));
    };
    if found.try_get::<_, &[u8]>(0)? != idempotency.body_hash {
        return Ok(Some(Begun::KeyReused));
    }
    Ok(Some(Begun::Repeated(runs::by_id(tx, scope.workspace, found.try_get(1)?).await?)))
}

/// Whether the caller sent the key in another workspace. An API key has one workspace alone.
async fn is_used_elsewhere(
    tx: &Transaction,
    scope: &Scope,
    idempotency: &Idempotency,
    since: Timestamp,
) -> Result<bool> {
    if scope.key.is_some() {
        return Ok(false);
    }
    let text = "SELECT 1 FROM idempotency_keys WHERE caller = $1 AND key = $2 AND created_at > $3 LIMIT 1";
    tx.prepare(ENTER).await?;
    tx.prepare(text).await?;
    let here = scope.workspace.to_string();
    // Sent at once, in this order: only outside of any workspace does a caller see all that it sent.
    let (left, found, back) = join3(
        tx.rows(ENTER, &[&""]),
        tx.row(text, &[&caller(scope), &idempotency.key, &since]),
        tx.rows(ENTER, &[&here]),
    )
    .await;
    left.and(back)?;
    Ok(found?.is_some())
}

/// A repeated request that nobody waits for, too: from now on its run needs no reader, unless it is to end already.
pub(super) async fn go_on(tx: &Transaction, before: Begun, asked: OnDisconnect) -> Result<Begun> {
    let Begun::Repeated(run) = before else { return Ok(before) };
    if (run.on_disconnect, asked) != (OnDisconnect::Cancel, OnDisconnect::Continue) {
        return Ok(Begun::Repeated(run));
    }
    let text = format!(
        "UPDATE runs SET on_disconnect = 'continue' WHERE {} AND id = $2 \
         AND status || '' IN ('queued', 'running') AND NOT cancel_requested",
        tx.inside("workspace_id")
    );
    tx.execute(&text, &[&run.workspace, &run.id]).await?;
    Ok(Begun::Repeated(runs::by_id(tx, run.workspace, run.id).await?))
}

pub(in crate::postgres) async fn remember(
    tx: &Transaction,
    scope: &Scope,
    idempotency: Option<&Idempotency>,
    run: Uuid,
    now: Timestamp,
) -> Result<()> {
    let Some(idempotency) = idempotency else { return Ok(()) };
    tx.execute(
        "INSERT INTO idempotency_keys (workspace_id, caller, key, body_hash, run_id, created_at) \
         VALUES ($1, $2, $3, $4, $5, $6) ON CONFLICT (workspace_id, caller, key) DO UPDATE \
         SET body_hash = excluded.body_hash, run_id = excluded.run_id, created_at = excluded.created_at",
        &[&scope.workspace, &caller(scope), &idempotency.key, &idempotency.body_hash.as_slice(), &run, &now],
    )
    .await
    .map(|_| ())
}
