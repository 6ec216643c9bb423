//! PostgreSQL's errors in the store's words. Row values, which PostgreSQL puts into DETAIL, stay out.

use std::error::Error as _;

use deadpool_postgres::{HookError, PoolError, TimeoutType};
use tokio_postgres::error::{DbError, SqlState};

use crate::error::StoreError;

impl From<tokio_postgres::Error> for StoreError {
    fn from(error: tokio_postgres::Error) -> Self {
        let text = describe(&error);
        if is_unavailable(&error) || is_contention(&error) {
            Self::Unavailable(text)
        } else {
            Self::Internal(text)
        }
    }
}

/// What the server said, or what became of the connection.
pub(super) fn describe(error: &tokio_postgres::Error) -> String {
    match (error.as_db_error(), error.source()) {
        (Some(db), _) => format!("PostgreSQL: {} ({})", db.message(), db.code().code()),
        (None, Some(source)) => format!("PostgreSQL: {error}: {source}"),
        (None, None) => format!("PostgreSQL: {error}"),
    }
}

fn is_unavailable(error: &tokio_postgres::Error) -> bool {
    match error.code() {
        // Connection trouble, out of disk, memory or connections, shutting down or starting, broken off by the operator
        // or by a time-out, read-only.
        Some(code) => ["08", "53", "55P03", "57", "25006", "25P0", "58"]
            .iter()
            .any(|class| code.code().starts_with(class)),
        None => error.is_closed() || error.source().is_some_and(|source| source.is::<std::io::Error>()),
    }
}

/// Another transaction was in the way; trying again can succeed, or finds out why not.
pub(super) fn is_contention(error: &tokio_postgres::Error) -> bool {
    let broken_off =
        matches!(error.code(), Some(&SqlState::T_R_SERIALIZATION_FAILURE | &SqlState::T_R_DEADLOCK_DETECTED));
    broken_off || error.as_db_error().and_then(DbError::constraint) == Some(ONE_RUNNING)
}

/// The index that keeps a second run of a conversation from starting.
const ONE_RUNNING: &str = "idx_runs_one_running";

pub(super) fn is_unique_violation(error: &tokio_postgres::Error) -> bool {
    error.code() == Some(&SqlState::UNIQUE_VIOLATION)
}

pub(super) fn pool_error(error: PoolError) -> StoreError {
    match error {
        PoolError::Backend(error) | PoolError::PostCreateHook(HookError::Backend(error)) => {
            StoreError::Unavailable(describe(&error))
        }
        PoolError::Timeout(TimeoutType::Wait) => {
            StoreError::Unavailable("PostgreSQL: all connections of the pool are busy".into())
        }
        PoolError::Closed => StoreError::Unavailable("the store is closing".into()),
        other => StoreError::Unavailable(format!("PostgreSQL: {other}")),
    }
}
