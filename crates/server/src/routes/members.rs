//! Members: `/v1/workspaces/{id}/members`.

use axum::extract::State;
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use domain::scope::Role;
use domain::time::rfc3339;
use domain::workspace::Member;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::workspaces::path_id;
use crate::extract::caller::is_user_id;
use crate::extract::paging::{List, text_cursor};
use crate::extract::{Caller, JsonBody, Paging, Path};
use crate::problem::Problem;
use crate::state::AppState;
use crate::words;

#[derive(Debug, Serialize, ToSchema)]
pub struct MemberView {
    user: String,
    #[schema(value_type = words::MemberRole)]
    role: Role,
    added_at: String,
}

#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct AddMember {
    user: String,
    /// `member` or `admin`.
    #[schema(value_type = words::MemberRole)]
    role: Role,
}

fn shape(member: Member) -> MemberView {
    MemberView { user: member.user, role: member.role, added_at: rfc3339(member.added_at) }
}

/// The members of a workspace, by user id.
#[utoipa::path(get, path = "/v1/workspaces/{id}/members", operation_id = "list_members", tag = "workspaces",
    params(("id" = Uuid, Path), ("limit" = Option<u32>, Query), ("after" = Option<String>, Query)),
    responses((status = 200, description = "A page of them", body = List<MemberView>), (status = 404)))]
pub async fn list(
    State(app): State<AppState>,
    caller: Caller,
    Path(id): Path<String>,
    paging: Paging,
) -> Result<Response, Problem> {
    let scope = caller.scope_of(path_id(&id)?).await?;
    let rows = app.store.list_members(&scope, paging.after_text()?.as_deref(), paging.rows()).await?;
    Ok(axum::Json(paging.list(rows, |member| text_cursor(&member.user), shape)).into_response())
}

/// Adds a member, or gives one another role.
#[utoipa::path(post, path = "/v1/workspaces/{id}/members", operation_id = "add_member", tag = "workspaces", params(("id" = Uuid, Path)),
    request_body = AddMember,
    responses((status = 201, body = MemberView), (status = 200, description = "Was a member already", body = MemberView),
        (status = 403), (status = 404), (status = 409, description = "The last admin")))]
pub async fn add(
    State(app): State<AppState>,
    caller: Caller,
    Path(id): Path<String>,
    _: Paging,
    JsonBody(body): JsonBody<AddMember>,
) -> Result<Response, Problem> {
    let scope = caller.admin_scope_of(path_id(&id)?).await?;
    if !is_user_id(&body.user) {
        return Err(Problem::invalid_value(
            "/user",
            "user must be 1 to 255 characters, without control characters.",
        ));
    }
    if body.role == Role::Service {
        return Err(Problem::invalid_value(
            "/role",
            "role must be member or admin; service is for API keys.",
        ));
    }
    let (member, added) = app.store.put_member(&scope, &body.user, body.role, app.clock.now()).await?;
    if !added {
        app.turns.note_rights(scope.workspace).await;
    }
    let status = if added { StatusCode::CREATED } else { StatusCode::OK };
    Ok((status, axum::Json(shape(member))).into_response())
}

/// Removes a member, whose keys stop working.
#[utoipa::path(delete, path = "/v1/workspaces/{id}/members/{user}", operation_id = "remove_member", tag = "workspaces",
    params(("id" = Uuid, Path), ("user" = String, Path)),
    responses((status = 204), (status = 403), (status = 404), (status = 409, description = "The last admin")))]
pub async fn remove(
    State(app): State<AppState>,
    caller: Caller,
    Path((id, user)): Path<(String, String)>,
    _: Paging,
) -> Result<StatusCode, Problem> {
    let scope = caller.admin_scope_of(path_id(&id)?).await?;
    if !is_user_id(&user) {
        return Err(Problem::not_found());
    }
    app.store.remove_member(&scope, &user, app.clock.now()).await?;
    app.turns.note_rights(scope.workspace).await;
    Ok(StatusCode::NO_CONTENT)
}
