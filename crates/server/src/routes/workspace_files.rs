//! Files that a workspace keeps for good, at `/v1/files`. Nothing moves there by itself.

use axum::extract::{FromRequest, Request, State};
use axum::http::{HeaderMap, StatusCode};
use axum::response::{IntoResponse, Response};
use domain::file::{Bag, FileSource};
use serde::Deserialize;
use utoipa::ToSchema;
use uuid::Uuid;

use super::files::{FileDocument, Uploaded, created, file_of, list_bag, take};
use super::workspaces::path_id;
use crate::content::serve;
use crate::extract::paging::List;
use crate::extract::upload::{Target, Upload, is_multipart};
use crate::extract::{Caller, JsonBody, Named, Paging, Path};
use crate::problem::Problem;
use crate::state::AppState;

#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct KeepFile {
    /// A file of a conversation or an execution.
    from: Uuid,
    workspace: Option<Uuid>,
}

/// Keeps a file in the workspace: a copy of another one, or an upload.
#[utoipa::path(post, path = "/v1/files", operation_id = "keep_file", tag = "files", params(("workspace" = Option<Uuid>, Query)),
    request_body(content((KeepFile = "application/json"), (super::files::UploadForm = "multipart/form-data"))),
    responses((status = 201, body = Uploaded), (status = 400), (status = 404), (status = 413), (status = 415), (status = 422), (status = 507)))]
pub async fn keep(
    State(app): State<AppState>,
    caller: Caller,
    named: Named,
    _: Paging,
    request: Request,
) -> Result<Response, Problem> {
    if is_multipart(request.headers()) {
        let scope = caller.scope(named).await?;
        return Ok(created(&take(&app, &scope, Bag::Workspace, request).await?));
    }
    let JsonBody(KeepFile { from, workspace }) = JsonBody::from_request(request, &app).await?;
    let scope = caller.naming(true).scope(named.and(workspace)?).await?;
    let file = app.store.get_file(&scope, from).await?;
    let mut upload = Upload::new(&app, &scope, Target { bag: Bag::Workspace, source: FileSource::User });
    upload.copy(&file).await?;
    Ok(created(&upload.keep().await?))
}

/// The files of the workspace.
#[utoipa::path(get, path = "/v1/files", operation_id = "list_workspace_files", tag = "files",
    params(("workspace" = Option<Uuid>, Query), ("limit" = Option<u32>, Query), ("after" = Option<String>, Query)),
    responses((status = 200, body = List<FileDocument>)))]
pub async fn list(
    State(app): State<AppState>,
    caller: Caller,
    named: Named,
    paging: Paging,
) -> Result<Response, Problem> {
    let scope = caller.scope(named).await?;
    list_bag(&app, &scope, Bag::Workspace, &paging).await
}

/// The bytes of any file that the caller may see.
#[utoipa::path(get, path = "/v1/files/{id}/content", operation_id = "get_workspace_file_content", tag = "files",
    params(("id" = Uuid, Path), ("workspace" = Option<Uuid>, Query), ("Range" = Option<String>, Header),
        ("If-Range" = Option<String>, Header), ("If-None-Match" = Option<String>, Header)),
    responses((status = 200, description = "The bytes, as the file's own type", content_type = "*/*", body = String), (status = 206, description = "The range that was asked for", content_type = "*/*", body = String), (status = 304), (status = 404), (status = 416)))]
pub async fn content(
    State(app): State<AppState>,
    caller: Caller,
    named: Named,
    Path(id): Path<String>,
    _: Paging,
    headers: HeaderMap,
) -> Result<Response, Problem> {
    let scope = caller.scope(named).await?;
    let file = app.store.get_file(&scope, path_id(&id)?).await?;
    serve(&app, &scope, &file, &headers).await
}

/// Removes a file of the workspace.
#[utoipa::path(delete, path = "/v1/files/{id}", operation_id = "delete_workspace_file", tag = "files",
    params(("id" = Uuid, Path), ("workspace" = Option<Uuid>, Query)), responses((status = 204), (status = 404)))]
pub async fn delete(
    State(app): State<AppState>,
    caller: Caller,
    named: Named,
    Path(id): Path<String>,
    _: Paging,
) -> Result<Response, Problem> {
    let scope = caller.scope(named).await?;
    let file = file_of(&app, &scope, Bag::Workspace, &id).await?;
    app.store.delete_file(&scope, file.id, app.clock.now()).await?;
    Ok(StatusCode::NO_CONTENT.into_response())
}
