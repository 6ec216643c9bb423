//! Calls of a run that wait for a person: `/v1/runs/{id}/approvals`.

use axum::extract::State;
use axum::response::{IntoResponse, Response};
use domain::approval::{Approval, Decision};
use domain::event::ToolCall;
use domain::scope::Scope;
use domain::time::rfc3339;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;
use uuid::Uuid;

use super::workspaces::path_id;
use crate::extract::paging::List;
use crate::extract::{Caller, JsonBody, Named, Paging, Path};
use crate::problem::Problem;
use crate::state::AppState;

const MAX_REASON_CHARS: usize = 1000;

#[derive(Debug, Serialize, ToSchema)]
pub struct ApprovalView {
    id: Uuid,
    round: u32,
    #[schema(value_type = Object)]
    call: ToolCall,
    /// `pending`, `approved`, `denied`, or `cancelled` where the run ended before a decision.
    status: &'static str,
    reason: Option<String>,
    decided_by: Option<String>,
    decided_at: Option<String>,
}

#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct Decide {
    /// Of the `approval` event.
    id: Uuid,
    approve: bool,
    reason: Option<String>,
}

/// `over`: its run has ended, and nothing of it waits any more.
fn shape(approval: Approval, over: bool) -> ApprovalView {
    let status = match &approval.decision {
        None if over => "cancelled",
        None => "pending",
        Some(decision) if decision.approve => "approved",
        Some(_) => "denied",
    };
    let (reason, by, at) = match approval.decision {
        Some(Decision { reason, by, at, .. }) => (reason, Some(by), Some(rfc3339(at))),
        None => (None, None, None),
    };
    let Approval { id, round, call, .. } = approval;
    ApprovalView { id, round, call, status, reason, decided_by: by, decided_at: at }
}

async fn listed(app: &AppState, scope: &Scope, run: Uuid) -> Result<Vec<Approval>, Problem> {
    let mut asked = app.store.list_approvals(scope.workspace, run).await?;
    if !asked.is_empty() {
        // Of a client's own tools nobody is asked.
        let brought = app.store.get_asking(scope, run).await?.turn.brought;
        asked.retain(|one| !brought.makes(&one.call.name));
    }
    Ok(asked)
}

/// The calls of a run that asked for a person, as they stand.
#[utoipa::path(get, path = "/v1/runs/{id}/approvals", operation_id = "list_approvals", tag = "runs",
    params(("id" = Uuid, Path), ("workspace" = Option<Uuid>, Query), ("limit" = Option<u32>, Query), ("after" = Option<String>, Query)),
    responses((status = 200, description = "A page of them", body = List<ApprovalView>), (status = 404)))]
pub async fn list(
    State(app): State<AppState>,
    caller: Caller,
    named: Named,
    Path(id): Path<String>,
    paging: Paging,
) -> Result<Response, Problem> {
    let scope = caller.scope(named).await?;
    let run = app.store.get_run(&scope, path_id(&id)?).await?;
    let over = run.status.is_settled();
    let rows = listed(&app, &scope, run.id).await?;
    Ok(axum::Json(paging.cut(rows, |call| call.id.to_string(), |call| shape(call, over))?).into_response())
}

/// Decides on a call. The same decision again changes nothing.
#[utoipa::path(post, path = "/v1/runs/{id}/approvals", operation_id = "decide_approval", tag = "runs",
    params(("id" = Uuid, Path), ("workspace" = Option<Uuid>, Query)), request_body = Decide,
    responses((status = 200, body = ApprovalView), (status = 403), (status = 404), (status = 409, description = "Decided otherwise, or the run is over")))]
pub async fn decide(
    State(app): State<AppState>,
    caller: Caller,
    named: Named,
    Path(id): Path<String>,
    _: Paging,
    JsonBody(body): JsonBody<Decide>,
) -> Result<Response, Problem> {
    let scope = caller.scope(named).await?;
    let run = app.store.get_run(&scope, path_id(&id)?).await?;
    if body.reason.as_ref().is_some_and(|reason| reason.chars().count() > MAX_REASON_CHARS) {
        let detail = format!("reason must be at most {MAX_REASON_CHARS} characters.");
        return Err(Problem::invalid_value("/reason", detail));
    }
    if let Some(conversation) = run.conversation {
        let thread = app.store.get_thread(&scope, conversation, None.into()).await?.conversation;
        if !scope.owns(&thread.owner) {
            return Err(Problem::forbidden("Only the conversation's owner and admins decide on its calls."));
        }
    }
    if !listed(&app, &scope, run.id).await?.iter().any(|one| one.id == body.id) {
        return Err(Problem::not_found());
    }
    let (by, at) = (scope.user.clone(), app.clock.now());
    let decision = Decision { approve: body.approve, reason: body.reason, by, at, result: None };
    app.store.decide_approval(&scope, run.id, body.id, &decision).await?;
    let decided = listed(&app, &scope, run.id).await?.into_iter().find(|one| one.id == body.id);
    Ok(axum::Json(shape(decided.ok_or_else(Problem::not_found)?, false)).into_response())
}
