//! The bag: the files of a conversation, at `/v1/chat-conversations/{id}/files`.

use axum::extract::{Request, State};
use axum::http::{HeaderMap, StatusCode};
use axum::response::{IntoResponse, Response};
use domain::file::{Bag, File, FileSource};
use domain::scope::Scope;
use serde::Serialize;
use serde_json::json;
use utoipa::ToSchema;
use uuid::Uuid;

use super::workspaces::path_id;
use crate::content::serve;
use crate::extract::paging::List;
use crate::extract::upload::{Target, Upload};
use crate::extract::{Caller, Named, Paging, Path};
use crate::problem::Problem;
use crate::state::{App, AppState};

/// A file, as `FileView` writes it.
#[derive(Debug, Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct FileDocument {
    id: Uuid,
    chat_id: Option<Uuid>,
    execution_id: Option<Uuid>,
    message_id: Option<Uuid>,
    name: String,
    /// What the bytes are, not what the sender said.
    mime_type: String,
    size: u64,
    sha256: String,
    storage_key: String,
    /// `user` or `sandbox`.
    source: String,
    /// Epoch milliseconds.
    created_at: i64,
    deleted_at: Option<i64>,
}

/// What an upload answers.
#[derive(Debug, Serialize, ToSchema)]
pub struct Uploaded {
    files: Vec<FileDocument>,
}

/// The body of an upload: any number of parts that are files.
#[derive(Debug, ToSchema)]
pub struct UploadForm {
    /// A part with a file name; its own name does not matter.
    #[schema(value_type = Vec<String>, format = Binary)]
    #[expect(dead_code, reason = "described for clients; the parts are streamed, never gathered")]
    files: Vec<String>,
}

/// The 201 of whatever made files.
pub(super) fn created(files: &[File]) -> Response {
    let files: Vec<_> = files.iter().map(File::view).collect();
    (StatusCode::CREATED, axum::Json(json!({ "files": files }))).into_response()
}

pub(super) async fn list_bag(
    app: &App,
    scope: &Scope,
    bag: Bag,
    paging: &Paging,
) -> Result<Response, Problem> {
    let files = app.store.list_files(scope, bag, paging.after()?, paging.rows()).await?;
    let list = paging.list(files, |file| file.id.to_string(), |file| json!(file.view()));
    Ok(axum::Json(list).into_response())
}

/// A file that is in this bag.
pub(super) async fn file_of(app: &App, scope: &Scope, bag: Bag, id: &str) -> Result<File, Problem> {
    let file = app.store.get_file(scope, path_id(id)?).await?;
    if file.bag == bag { Ok(file) } else { Err(Problem::not_found()) }
}

/// Puts files into the conversation's bag.
#[utoipa::path(post, path = "/v1/chat-conversations/{id}/files", operation_id = "upload_files", tag = "files",
    params(("id" = Uuid, Path), ("workspace" = Option<Uuid>, Query)),
    request_body(content = UploadForm, content_type = "multipart/form-data"),
    responses((status = 201, body = Uploaded), (status = 400), (status = 404), (status = 413), (status = 415), (status = 422), (status = 507)))]
pub async fn upload(
    State(app): State<AppState>,
    caller: Caller,
    named: Named,
    Path(id): Path<String>,
    _: Paging,
    request: Request,
) -> Result<Response, Problem> {
    let scope = caller.scope(named).await?;
    let bag = Bag::Conversation(path_id(&id)?);
    // A bag that is not there is told before the first byte is read.
    app.store.list_files(&scope, bag, None, 1).await?;
    Ok(created(&take(&app, &scope, bag, request).await?))
}

/// The files of a request. Parts without a file name are not: forms have such fields of their own.
pub(super) async fn take(
    app: &AppState,
    scope: &Scope,
    bag: Bag,
    request: Request,
) -> Result<Vec<File>, Problem> {
    let upload = Upload::new(app, scope, Target { bag, source: FileSource::User }).receive(request).await?;
    if upload.stored.is_empty() {
        return Err(Problem::malformed_document("", "There is no file in the request."));
    }
    upload.keep().await
}

/// The conversation's files.
#[utoipa::path(get, path = "/v1/chat-conversations/{id}/files", operation_id = "list_files", tag = "files",
    params(("id" = Uuid, Path), ("workspace" = Option<Uuid>, Query), ("limit" = Option<u32>, Query), ("after" = Option<String>, Query)),
    responses((status = 200, body = List<FileDocument>), (status = 404)))]
pub async fn list(
    State(app): State<AppState>,
    caller: Caller,
    named: Named,
    Path(id): Path<String>,
    paging: Paging,
) -> Result<Response, Problem> {
    let scope = caller.scope(named).await?;
    list_bag(&app, &scope, Bag::Conversation(path_id(&id)?), &paging).await
}

/// The bytes of a file, or a range of them.
#[utoipa::path(get, path = "/v1/chat-conversations/{id}/files/{file}/content", operation_id = "get_file_content", tag = "files",
    params(("id" = Uuid, Path), ("file" = Uuid, Path), ("workspace" = Option<Uuid>, Query), ("Range" = Option<String>, Header),
        ("If-Range" = Option<String>, Header), ("If-None-Match" = Option<String>, Header)),
    responses((status = 200, description = "The bytes, as the file's own type", content_type = "*/*", body = String), (status = 206, description = "The range that was asked for", content_type = "*/*", body = String), (status = 304), (status = 404), (status = 416)))]
pub async fn content(
    State(app): State<AppState>,
    caller: Caller,
    named: Named,
    Path((id, file)): Path<(String, String)>,
    _: Paging,
    headers: HeaderMap,
) -> Result<Response, Problem> {
    let scope = caller.scope(named).await?;
    let file = file_of(&app, &scope, Bag::Conversation(path_id(&id)?), &file).await?;
    serve(&app, &scope, &file, &headers).await
}

/// Takes a file out of the bag.
#[utoipa::path(delete, path = "/v1/chat-conversations/{id}/files/{file}", operation_id = "delete_file", tag = "files",
    params(("id" = Uuid, Path), ("file" = Uuid, Path), ("workspace" = Option<Uuid>, Query)),
    responses((status = 204), (status = 404)))]
pub async fn delete(
    State(app): State<AppState>,
    caller: Caller,
    named: Named,
    Path((id, file)): Path<(String, String)>,
    _: Paging,
) -> Result<Response, Problem> {
    let scope = caller.scope(named).await?;
    let file = file_of(&app, &scope, Bag::Conversation(path_id(&id)?), &file).await?;
    app.store.delete_file(&scope, file.id, app.clock.now()).await?;
    Ok(StatusCode::NO_CONTENT.into_response())
}
