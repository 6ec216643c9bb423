//! API keys: `/v1/api-keys`.

use axum::extract::State;
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use domain::scope::{Role, Scope};
use domain::secret::Secret;
use domain::time::rfc3339;
use domain::workspace::{ApiKey, new_key, read_key};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;
use uuid::Uuid;

use super::workspaces::{check_name, path_id};
use crate::extract::paging::List;
use crate::extract::{Caller, JsonBody, Named, Paging, Path};
use crate::problem::Problem;
use crate::state::AppState;
use crate::words;

#[derive(Debug, Serialize, ToSchema)]
pub struct KeyView {
    id: Uuid,
    /// Only in the answer that makes the key, and never again.
    #[serde(skip_serializing_if = "Option::is_none")]
    key: Option<String>,
    name: String,
    #[schema(value_type = words::Role)]
    role: Role,
    workspace: Uuid,
    created_by: String,
    created_at: String,
}

#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct CreateKey {
    name: String,
    /// `member`, `admin` or `service`.
    #[schema(value_type = words::Role)]
    role: Role,
    workspace: Option<Uuid>,
}

fn shape(key: ApiKey, scope: &Scope, text: Option<&Secret>) -> KeyView {
    KeyView {
        id: key.id,
        key: text.map(|text| text.expose().to_owned()),
        name: key.name,
        role: key.role,
        workspace: scope.workspace,
        created_by: key.created_by,
        created_at: rfc3339(key.created_at),
    }
}

/// The workspace's keys, without their text.
#[utoipa::path(get, path = "/v1/api-keys", operation_id = "list_api_keys", tag = "workspaces",
    params(("workspace" = Option<Uuid>, Query), ("limit" = Option<u32>, Query), ("after" = Option<String>, Query)),
    responses((status = 200, description = "A page of them", body = List<KeyView>), (status = 403)))]
pub async fn list(
    State(app): State<AppState>,
    caller: Caller,
    named: Named,
    paging: Paging,
) -> Result<Response, Problem> {
    let scope = caller.admin_scope(named).await?;
    let rows = app.store.list_keys(&scope, paging.after()?, paging.rows()).await?;
    Ok(axum::Json(paging.list(rows, |key| key.id.to_string(), |key| shape(key, &scope, None)))
        .into_response())
}

/// Makes a key; this answer alone holds its text.
#[utoipa::path(post, path = "/v1/api-keys", operation_id = "create_api_key", tag = "workspaces", params(("workspace" = Option<Uuid>, Query)),
    request_body = CreateKey, responses((status = 201, body = KeyView), (status = 403)))]
pub async fn create(
    State(app): State<AppState>,
    caller: Caller,
    named: Named,
    _: Paging,
    JsonBody(body): JsonBody<CreateKey>,
) -> Result<Response, Problem> {
    let scope = caller.admin_scope(named.and(body.workspace)?).await?;
    check_name(&body.name)?;
    let key = ApiKey {
        id: app.clock.new_id(),
        name: body.name,
        role: body.role,
        created_by: scope.user.clone(),
        created_at: app.clock.now(),
    };
    let (text, hash) = make_key(scope.workspace)?;
    app.store.create_key(&scope, &key, hash).await?;
    Ok((StatusCode::CREATED, axum::Json(shape(key, &scope, Some(&text)))).into_response())
}

/// Removes a key, which stops working at once.
#[utoipa::path(delete, path = "/v1/api-keys/{id}", operation_id = "remove_api_key", tag = "workspaces",
    params(("id" = Uuid, Path), ("workspace" = Option<Uuid>, Query)),
    responses((status = 204), (status = 403), (status = 404)))]
pub async fn remove(
    State(app): State<AppState>,
    caller: Caller,
    named: Named,
    Path(id): Path<String>,
    _: Paging,
) -> Result<StatusCode, Problem> {
    let scope = caller.admin_scope(named).await?;
    app.store.remove_key(&scope, path_id(&id)?, app.clock.now()).await?;
    app.turns.note_rights(scope.workspace).await;
    Ok(StatusCode::NO_CONTENT)
}

/// A fresh key for a workspace: its text and the hash to keep.
pub fn make_key(workspace: Uuid) -> Result<(Secret, [u8; 32]), Problem> {
    let mut random = [0; 32];
    getrandom::fill(&mut random).map_err(|_| Problem::internal())?;
    let text = new_key(workspace, random);
    let (_, hash) = read_key(text.expose()).ok_or_else(Problem::internal)?;
    Ok((text, hash))
}
