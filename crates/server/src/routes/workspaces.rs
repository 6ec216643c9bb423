//! Workspaces: `/v1/workspaces`.

use axum::extract::{RawQuery, State};
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use domain::conversation::Visibility;
use domain::scope::{Role, Scope};
use domain::workspace::{Workspace, WorkspacePatch};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;
use uuid::Uuid;

use super::agents::{check_model, given, not_null};
use crate::extract::paging::{List, pairs};
use crate::extract::{Caller, JsonBody, Named, Paging, Path};
use crate::jsonapi::schema;
use crate::problem::Problem;
use crate::state::AppState;
use crate::words;

#[derive(Debug, Serialize, ToSchema)]
pub struct WorkspaceView {
    id: Uuid,
    name: String,
    org_id: String,
    /// The caller's role.
    #[schema(value_type = words::Role)]
    role: Role,
    /// What new conversations start as: `private` or `workspace`.
    #[schema(value_type = schema::Visibility)]
    default_visibility: Visibility,
    /// The model of conversations and agents that name none, where it was chosen; not in lists.
    #[serde(skip_serializing_if = "Option::is_none")]
    model: Option<String>,
}

#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct CreateWorkspace {
    name: String,
    #[schema(value_type = Option<schema::Visibility>)]
    default_visibility: Option<Visibility>,
}

#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct UpdateWorkspace {
    #[serde(default, deserialize_with = "not_null")]
    #[schema(value_type = String)]
    name: Option<String>,
    #[serde(default, deserialize_with = "not_null")]
    #[schema(value_type = schema::Visibility)]
    default_visibility: Option<Visibility>,
    /// As `provider/model`; null is the server's own choice.
    #[serde(default, deserialize_with = "given")]
    #[schema(value_type = Option<String>)]
    model: Option<Option<String>>,
}

pub(super) fn shape(workspace: Workspace, role: Role) -> WorkspaceView {
    WorkspaceView {
        id: workspace.id,
        name: workspace.name,
        org_id: workspace.org,
        role,
        default_visibility: workspace.default_visibility,
        model: None,
    }
}

/// A name that people see: 1 to 255 characters, no control characters, not only blanks.
pub(super) fn check_name(name: &str) -> Result<(), Problem> {
    let fits = !name.trim().is_empty() && name.chars().count() <= 255 && !name.chars().any(char::is_control);
    let problem =
        || Problem::invalid_value("/name", "name must be 1 to 255 characters, without control characters.");
    fits.then_some(()).ok_or_else(problem)
}

/// An id in a path; what is not a UUID names nothing.
pub(super) fn path_id(text: &str) -> Result<Uuid, Problem> {
    if text.len() == 36 {
        Uuid::try_parse(text).map_err(|_| Problem::not_found())
    } else {
        Err(Problem::not_found())
    }
}

/// The workspaces that the caller is in.
#[utoipa::path(get, path = "/v1/workspaces", operation_id = "list_workspaces", tag = "workspaces",
    params(("limit" = Option<u32>, Query), ("after" = Option<String>, Query)),
    responses((status = 200, description = "A page of them", body = List<WorkspaceView>)))]
pub async fn list(State(app): State<AppState>, caller: Caller, paging: Paging) -> Result<Response, Problem> {
    let after = paging.after()?;
    if let Some((user, ..)) = caller.person() {
        let rows = app.store.list_memberships(user, None, after, paging.rows()).await?;
        let list = paging.list(rows, |m| m.workspace.id.to_string(), |m| shape(m.workspace, m.role));
        return Ok(axum::Json(list).into_response());
    }
    let scope = caller.scope(Named::default()).await?;
    let own = app.store.find_workspace(&scope).await?;
    let data =
        own.into_iter().filter(|w| after.is_none_or(|after| w.id > after)).map(|w| shape(w, scope.role));
    Ok(axum::Json(List { data: data.collect(), next: None }).into_response())
}

/// Makes a workspace in the caller's org, with the caller as its admin.
#[utoipa::path(post, path = "/v1/workspaces", operation_id = "create_workspace", tag = "workspaces", request_body = CreateWorkspace,
    responses((status = 201, body = WorkspaceView)))]
pub async fn create(
    State(app): State<AppState>,
    caller: Caller,
    _: Paging,
    JsonBody(body): JsonBody<CreateWorkspace>,
) -> Result<Response, Problem> {
    let (user, org, _) = caller.person().ok_or_else(|| {
        Problem::forbidden("An API key is bound to one workspace; a workspace is made with a user's token.")
    })?;
    check_name(&body.name)?;
    let workspace = Workspace {
        id: app.clock.new_id(),
        org: org.to_owned(),
        name: body.name,
        default_visibility: body.default_visibility.unwrap_or(Visibility::Private),
        created_at: app.clock.now(),
    };
    let scope = Scope {
        workspace: workspace.id,
        org: org.to_owned(),
        user: user.to_owned(),
        role: Role::Admin,
        key: None,
        administers: true,
    };
    app.store.create_workspace(&scope, &workspace).await?;
    Ok((StatusCode::CREATED, axum::Json(shape(workspace, Role::Admin))).into_response())
}

/// One workspace.
#[utoipa::path(get, path = "/v1/workspaces/{id}", operation_id = "get_workspace", tag = "workspaces", params(("id" = Uuid, Path)),
    responses((status = 200, body = WorkspaceView), (status = 404)))]
pub async fn show(
    State(app): State<AppState>,
    caller: Caller,
    Path(id): Path<String>,
    _: Paging,
) -> Result<Response, Problem> {
    let scope = caller.scope_of(path_id(&id)?).await?;
    let workspace = app.store.find_workspace(&scope).await?.ok_or_else(Problem::not_found)?;
    let model = app.store.get_workspace_model(&scope).await?;
    Ok(axum::Json(WorkspaceView { model, ..shape(workspace, scope.role) }).into_response())
}

/// Renames a workspace or changes what new conversations start as.
#[utoipa::path(patch, path = "/v1/workspaces/{id}", operation_id = "update_workspace", tag = "workspaces", params(("id" = Uuid, Path)),
    request_body = UpdateWorkspace, responses((status = 200, body = WorkspaceView), (status = 403), (status = 404)))]
pub async fn update(
    State(app): State<AppState>,
    caller: Caller,
    Path(id): Path<String>,
    _: Paging,
    JsonBody(body): JsonBody<UpdateWorkspace>,
) -> Result<Response, Problem> {
    let scope = caller.admin_scope_of(path_id(&id)?).await?;
    if let Some(name) = &body.name {
        check_name(name)?;
    }
    if let Some(model) = &body.model {
        check_model(model.as_deref())?;
        app.store.set_workspace_model(&scope, model.as_deref()).await?;
    }
    let patch = WorkspacePatch { name: body.name, default_visibility: body.default_visibility };
    let workspace = app.store.update_workspace(&scope, &patch, app.clock.now()).await?;
    let model = app.store.get_workspace_model(&scope).await?;
    Ok(axum::Json(WorkspaceView { model, ..shape(workspace, scope.role) }).into_response())
}

/// Removes a workspace; with `cascade=true` its conversations go with it.
#[utoipa::path(delete, path = "/v1/workspaces/{id}", operation_id = "remove_workspace", tag = "workspaces",
    params(("id" = Uuid, Path), ("cascade" = Option<bool>, Query)),
    responses((status = 204), (status = 403), (status = 404), (status = 409, description = "It still holds conversations")))]
pub async fn remove(
    State(app): State<AppState>,
    caller: Caller,
    Path(id): Path<String>,
    RawQuery(query): RawQuery,
) -> Result<StatusCode, Problem> {
    let mut cascade = false;
    for (name, value) in pairs(query.as_deref().unwrap_or(""))? {
        cascade = match (name.as_str(), value.as_str()) {
            ("cascade", "true") => true,
            ("cascade", "false") => false,
            ("cascade", _) => {
                return Err(Problem::invalid_parameter("cascade", "cascade must be true or false."));
            }
            _ => return Err(Problem::unknown_parameter(&name)),
        };
    }
    let scope = caller.admin_scope_of(path_id(&id)?).await?;
    app.store.remove_workspace(&scope, cascade, app.clock.now()).await?;
    app.note_deletion(scope.workspace).await;
    Ok(StatusCode::NO_CONTENT)
}
