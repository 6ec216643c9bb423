//! Branches of a conversation, and forks of it.

use axum::extract::{FromRequest, RawQuery, Request, State};
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use domain::conversation::Conversation;
use domain::file::Bag;
use domain::message::Window;
use domain::scope::Scope;
use domain::time::rfc3339;
use serde::{Deserialize, Serialize};
use store::ThreadRead;
use store::files::Fork as Forked;
use store::turns::Branch;
use utoipa::ToSchema;
use uuid::Uuid;

use super::conversations::{Failure, accepts, answer_one, located};
use super::workspaces::path_id;
use crate::extract::paging::List;
use crate::extract::{Caller, JsonBody, Named, Paging, Path};
use crate::jsonapi::query::WriteQuery;
use crate::jsonapi::schema::ConversationDocument;
use crate::problem::Problem;
use crate::state::AppState;

#[derive(Debug, Serialize, ToSchema)]
pub struct BranchView {
    id: Uuid,
    /// The last message shared with the branch it came from.
    from_message: Option<Uuid>,
    head: Option<Uuid>,
    current: bool,
    created_at: String,
}

fn shape(branch: Branch) -> BranchView {
    BranchView {
        id: branch.id,
        from_message: branch.from_message,
        head: branch.head,
        current: branch.current,
        created_at: rfc3339(branch.created_at),
    }
}

/// The branches of a conversation; the first one has the conversation's own id.
#[utoipa::path(get, path = "/v1/chat-conversations/{id}/branches", operation_id = "list_branches", tag = "branches",
    params(("id" = Uuid, Path), ("workspace" = Option<Uuid>, Query), ("limit" = Option<u32>, Query), ("after" = Option<String>, Query)),
    responses((status = 200, description = "A page of them", body = List<BranchView>), (status = 404)))]
pub async fn list(
    State(app): State<AppState>,
    caller: Caller,
    named: Named,
    Path(id): Path<String>,
    paging: Paging,
) -> Result<Response, Problem> {
    let scope = caller.scope(named).await?;
    let branches = app.store.list_branches(&scope, path_id(&id)?).await?;
    Ok(axum::Json(paging.cut(branches, |branch| branch.id.to_string(), shape)?).into_response())
}

/// Makes a branch current.
#[utoipa::path(post, path = "/v1/chat-conversations/{id}/branches/{branch}/select", operation_id = "select_branch", tag = "branches",
    params(("id" = Uuid, Path), ("branch" = Uuid, Path), ("workspace" = Option<Uuid>, Query)),
    responses((status = 200, body = BranchView), (status = 404)))]
pub async fn select(
    State(app): State<AppState>,
    caller: Caller,
    named: Named,
    Path((id, branch)): Path<(String, String)>,
    _: Paging,
) -> Result<Response, Problem> {
    let scope = caller.scope(named).await?;
    let (id, branch) = (path_id(&id)?, path_id(&branch)?);
    app.store.select_branch(&scope, id, branch, app.clock.now()).await?;
    let branches = app.store.list_branches(&scope, id).await?;
    let selected = branches.into_iter().find(|found| found.id == branch).ok_or_else(Problem::not_found)?;
    Ok(axum::Json(shape(selected)).into_response())
}

#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct Fork {
    /// The last message that the new conversation has.
    through: Uuid,
}

/// A new conversation with the thread up to a message.
#[utoipa::path(post, path = "/v1/chat-conversations/{id}/fork", operation_id = "fork_conversation", tag = "branches",
    params(("id" = Uuid, Path), ("workspace" = Option<Uuid>, Query),
        ("fields[chat_conversation]" = Option<String>, Query), ("fields[workspace]" = Option<String>, Query), ("include" = Option<String>, Query)),
    request_body = Fork,
    responses((status = 201, description = "The new conversation", content_type = "application/vnd.api+json", body = ConversationDocument),
        (status = 404), (status = 406), (status = 422)))]
pub async fn fork(
    State(app): State<AppState>,
    caller: Caller,
    Path(id): Path<String>,
    RawQuery(raw): RawQuery,
    request: Request,
) -> Result<Response, Failure> {
    accepts(request.headers())?;
    let query = WriteQuery::parse(&raw.unwrap_or_default())?;
    let scope = caller.scope(Named(query.workspace)).await?;
    let JsonBody(body) = JsonBody::<Fork>::from_request(request, &app).await?;
    let made = copy(&app, &scope, path_id(&id)?, body.through).await?;
    let read = ThreadRead { window: Some(Window::All), branch: None };
    let messages = app.store.get_thread(&scope, made.id, read).await?.messages;
    let response = answer_one(&app, &scope, &query.view, StatusCode::CREATED, &made, &messages).await?;
    Ok(located(&app, made.id, response))
}

/// The bytes of the files first: a fork that dies before its row leaves nothing but what the sweep removes.
async fn copy(app: &AppState, scope: &Scope, id: Uuid, through: Uuid) -> Result<Conversation, Problem> {
    let fork = app.clock.new_id();
    let mut files = Vec::new();
    for file in app.store.list_fork_files(scope, id, through).await? {
        let key = Bag::Conversation(fork).storage_key(scope.workspace, &file.name);
        app.blobs.copy(&file.storage_key, &key).await?;
        files.push((file.id, app.clock.new_id()));
    }
    let fork = Forked { id: fork, files, now: app.clock.now() };
    Ok(app.store.fork_conversation(scope, id, through, &fork).await?)
}
