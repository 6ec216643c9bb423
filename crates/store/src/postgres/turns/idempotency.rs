//! Requests that come twice: the second is answered what the first made.

use domain::scope::Scope;
use jiff::Timestamp;
use uuid::Uuid;

use crate::error::{Result, StoreError};
use crate::postgres::runs;
use crate::postgres::transaction::Transaction;
use crate::turns::{Begun, Idempotency, KEY_LIFE, caller};

pub(in crate::postgres) async fn repeated(
    tx: &Transaction,
    scope: &Scope,
    idempotency: Option<&Idempotency>,
    now: Timestamp,
) -> Result<Option<Begun>> {
    let Some(idempotency) = idempotency else { return Ok(None) };
    tx.wait_in_line(&format!("{} {} {}", scope.workspace, caller(scope), idempotency.key)).await?;
    let text = format!(
        "SELECT body_hash, run_id FROM idempotency_keys \
         WHERE {} AND caller = $2 AND key = $3 AND created_at > $4",
        tx.inside("workspace_id")
    );
    let since = now.saturating_sub(KEY_LIFE).map_err(|error| StoreError::Internal(error.to_string()))?;
    let found = tx.row(&text, &[&scope.workspace, &caller(scope), &idempotency.key, &since]).await?;
    let Some(found) = found else { return Ok(None) };
    if found.try_get::<_, &[u8]>(0)? != idempotency.body_hash {
        return Ok(Some(Begun::KeyReused));
    }
    Ok(Some(Begun::Repeated(runs::by_id(tx, scope.workspace, found.try_get(1)?).await?)))
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
