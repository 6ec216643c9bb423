//! The audit log: `/v1/audit`, for admins.

use axum::extract::State;
use axum::response::{IntoResponse, Response};
use domain::audit::AuditEntry;
use domain::time::rfc3339;
use serde::Serialize;
use utoipa::ToSchema;
use uuid::Uuid;

use crate::extract::paging::List;
use crate::extract::{Caller, Named, Paging};
use crate::problem::Problem;
use crate::state::AppState;

#[derive(Debug, Serialize, ToSchema)]
pub struct AuditView {
    seq: i64,
    at: String,
    user: String,
    key: Option<Uuid>,
    /// What was done: `member.add`, `key.create`, …
    action: String,
    target: String,
    detail: String,
    /// SHA-256 over this entry and the hash of the one before it, in hexadecimal.
    hash: String,
}

fn shape(entry: AuditEntry) -> AuditView {
    AuditView {
        seq: entry.seq,
        at: rfc3339(entry.at),
        user: entry.user,
        key: entry.key,
        action: entry.action,
        target: entry.target,
        detail: entry.detail,
        hash: entry.hash.iter().map(|byte| format!("{byte:02x}")).collect(),
    }
}

/// Every change of who may do what, oldest first.
#[utoipa::path(get, path = "/v1/audit", operation_id = "list_audit", tag = "workspaces",
    params(("workspace" = Option<Uuid>, Query), ("limit" = Option<u32>, Query), ("after" = Option<String>, Query)),
    responses((status = 200, description = "A page of them", body = List<AuditView>), (status = 403)))]
pub async fn list(
    State(app): State<AppState>,
    caller: Caller,
    named: Named,
    paging: Paging,
) -> Result<Response, Problem> {
    let scope = caller.admin_scope(named).await?;
    let rows = app.store.list_audit(&scope, paging.after()?.unwrap_or(0), paging.rows()).await?;
    Ok(axum::Json(paging.list(rows, |entry| entry.seq.to_string(), shape)).into_response())
}
