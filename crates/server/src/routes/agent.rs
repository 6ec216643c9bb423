//! What a run's sandbox may ask of us under its `agent_url`: its configuration and its files, and to take back what
//! it made. Each with a token of that run alone.

use std::sync::Arc;

use axum::body::Body;
use axum::extract::{Request, State};
use axum::http::{HeaderMap, HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use domain::file::{Bag, File, FileSource};
use domain::grant::{AssetsLink, Grant, GrantKind, manifest_of};
use domain::run::Lease;
use domain::scope::{Role, Scope};
use serde_json::{Value, json};
use store::StoreError;
use store::turns::{Dispatch, Held};
use uuid::Uuid;

use super::files::{Uploaded, created};
use super::workspaces::path_id;
use super::{planning, uploads};
use crate::extract::upload::{self, Target, Upload};
use crate::extract::{Paging, Path};
use crate::kit::Kit;
use crate::problem::Problem;
use crate::state::{App, AppState};
use crate::watched::watched;

fn refused() -> Problem {
    Problem::unauthenticated("The token is not this run's, was used, or the run is over.")
}

/// The run that a token of this kind is for: under way, with the fence that the token names, and of this path.
async fn run_of(
    app: &App,
    (workspace, run): (&str, &str),
    kind: GrantKind,
    token: &str,
) -> Result<(Grant, Dispatch), Problem> {
    let (workspace, run) = (path_id(workspace).map_err(|_| refused())?, path_id(run).map_err(|_| refused())?);
    let grant = Grant::open(token, kind, &app.secret).ok_or_else(refused)?;
    if (grant.workspace, grant.run) != (workspace, run) {
        return Err(refused());
    }
    let held = Held { workspace, lease: Lease { run, fence: grant.fence } };
    let dispatch = match app.store.get_dispatch(&held, 1).await {
        Err(StoreError::Lost | StoreError::NotFound) => return Err(refused()),
        dispatch => dispatch?,
    };
    if dispatch.run.cancel_requested {
        return Err(refused());
    }
    Ok((grant, dispatch))
}

/// The one `Authorization` header.
fn authorization(headers: &HeaderMap) -> Option<&str> {
    let mut values = headers.get_all(header::AUTHORIZATION).iter();
    let value = values.next().filter(|_| values.next().is_none())?;
    value.to_str().ok().map(str::trim)
}

fn bearer(text: &str) -> Option<&str> {
    let (scheme, token) = text.split_once(' ')?;
    scheme.eq_ignore_ascii_case("bearer").then(|| token.trim())
}

/// The configuration of a run under way, for its sandbox.
#[utoipa::path(get, path = "/v1/agent/{workspace}/{run}/config", operation_id = "get_run_config", tag = "sandbox",
    params(("workspace" = Uuid, Path), ("run" = Uuid, Path)), security(("run_token" = [])),
    responses((status = 200, description = "`{ session_id, chat_id, model, assets, skills, recipes }`", body = Object), (status = 401)))]
pub async fn config(
    State(app): State<AppState>,
    Path((workspace, run)): Path<(String, String)>,
    headers: HeaderMap,
) -> Result<Response, Problem> {
    let token = authorization(&headers).and_then(bearer).ok_or_else(refused)?;
    let (grant, dispatch) = run_of(&app, (&workspace, &run), GrantKind::Config, token).await?;
    let gateway = Grant { kind: GrantKind::Model, ..grant }.seal(&app.secret);
    let held = Held { workspace: grant.workspace, lease: Lease { run: grant.run, fence: grant.fence } };
    let brief = app.turns.brief_of(&held, &dispatch).await?;
    let kit = kit(&app).await?;
    let mode = dispatch.turn.mode.or_else(|| dispatch.conversation.as_ref().and_then(|thread| thread.mode));
    let own = brief.instructions.map(|text| json!({ "name": "instructions", "content": text }));
    let skills: Vec<Value> = planning::skill(mode).into_iter().chain(own).chain(kit.skills).collect();
    Ok(axum::Json(json!({
        "session_id": grant.run,
        "chat_id": dispatch.run.conversation,
        "model": {
            "base_url": format!("{}/v1", app.public_url),
            "api_key": gateway,
            "model": brief.model,
        },
        "assets": assets(&app, &grant, &dispatch.files),
        "skills": skills,
        "recipes": kit.recipes,
    }))
    .into_response())
}

/// What the operator gives to every agent.
async fn kit(app: &App) -> Result<Kit, Problem> {
    let data = app.data.clone();
    let read = tokio::task::spawn_blocking(move || Kit::read(&data)).await;
    let kit = read.map_err(|error| {
        tracing::error!(%error, "recipes and skills cannot be read");
        Problem::internal()
    })?;
    for why in &kit.refused {
        tracing::warn!(%why, "a recipe or skill is left out");
    }
    Ok(kit)
}

/// Where the run's files are, as one zip, for a short time.
fn assets(app: &App, grant: &Grant, files: &[File]) -> Value {
    if files.is_empty() {
        return Value::Null;
    }
    let life = app.limits.chat_bag_zip_url_ttl_seconds.saturating_mul(1000);
    let expires_at_ms = app.clock.now().as_millisecond().saturating_add_unsigned(life);
    let Grant { workspace, run, .. } = *grant;
    let link = AssetsLink { workspace, run, expires_at_ms, manifest: manifest(files) };
    let listed: Vec<Value> = files
        .iter()
        .map(|file| {
            json!({ "name": file.name, "size": file.digest.size, "sha256": file.sha256_hex(), "mimeType": file.mime_type })
        })
        .collect();
    json!({
        "url": format!("{}/v1/assets/{}/assets.zip", app.public_url, link.seal(&app.secret)),
        "expires_at": expires_at_ms,
        "files": listed,
    })
}

fn manifest(files: &[File]) -> [u8; 32] {
    manifest_of(files.iter().map(|file| (file.id, file.digest.sha256)))
}

/// The files that a run was given, as one zip, by its signed link.
#[utoipa::path(get, path = "/v1/assets/{link}/assets.zip", operation_id = "get_assets_zip", tag = "sandbox",
    params(("link" = String, Path)),
    responses((status = 200, description = "The zip", content_type = "application/zip", body = String), (status = 401),
        (status = 410, description = "The link has expired, or a file was deleted since")))]
pub async fn zip(
    State(app): State<AppState>,
    Path(link): Path<String>,
    _: Paging,
) -> Result<Response, Problem> {
    let now_ms = app.clock.now().as_millisecond();
    let link = AssetsLink::open(&link, &app.secret, now_ms).map_err(uploads::refused)?;
    let gone = || {
        Problem::new(
            StatusCode::GONE,
            "assets_changed",
            "A file is gone",
            "A file of this link was deleted since; fetch the configuration again for a new link.",
        )
    };
    let files = match app.store.list_run_assets(link.workspace, link.run).await {
        Err(StoreError::NotFound) => return Err(gone()),
        files => files?,
    };
    if manifest(&files) != link.manifest {
        return Err(gone());
    }
    let zip = store::bag::zip(&app.blobs, files).map_err(|error| {
        tracing::error!(%error, "a bag cannot be zipped");
        Problem::internal()
    })?;
    let store = Arc::clone(&app.store);
    let is_unchanged = move || {
        let store = Arc::clone(&store);
        async move {
            match store.list_run_assets(link.workspace, link.run).await {
                Ok(files) => manifest(&files) == link.manifest,
                Err(error) => !matches!(error, StoreError::NotFound),
            }
        }
    };
    let mut response = Body::from_stream(watched(zip.bytes, is_unchanged)).into_response();
    let headers = response.headers_mut();
    headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("application/zip"));
    headers.insert(header::CONTENT_LENGTH, zip.len.into());
    headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("private, no-store"));
    headers.insert(header::X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
    headers
        .insert(header::CONTENT_DISPOSITION, HeaderValue::from_static("attachment; filename=\"assets.zip\""));
    headers.insert(header::REFERRER_POLICY, HeaderValue::from_static("no-referrer"));
    Ok(response)
}

/// Takes back the files that a run made. Its token works once, and is used up with the files' commit.
#[utoipa::path(post, path = "/v1/agent/{workspace}/{run}/results", operation_id = "post_run_results", tag = "sandbox",
    params(("workspace" = Uuid, Path), ("run" = Uuid, Path)), security(("upload_token" = [])),
    request_body(content = super::files::UploadForm, content_type = "multipart/form-data"),
    responses((status = 201, body = Uploaded), (status = 400), (status = 401), (status = 413)))]
pub async fn results(
    State(app): State<AppState>,
    Path((workspace, run)): Path<(String, String)>,
    headers: HeaderMap,
    request: Request,
) -> Result<Response, Problem> {
    let token = authorization(&headers).ok_or_else(refused)?;
    let token = bearer(token).unwrap_or(token);
    let (grant, dispatch) = run_of(&app, (&workspace, &run), GrantKind::Upload, token).await?;
    let started = dispatch.run.started_at.unwrap_or(dispatch.run.created_at);
    let age = app.clock.now().as_millisecond().saturating_sub(started.as_millisecond());
    if age >= 0 && age.unsigned_abs() > app.limits.upload_otp_ttl_seconds.saturating_mul(1000) {
        return Err(refused());
    }
    let held = Held { workspace: grant.workspace, lease: Lease { run: grant.run, fence: grant.fence } };
    match app.store.list_results(&held).await {
        Ok(results) if results.is_empty() => {}
        Ok(_) | Err(StoreError::Lost) => return Err(refused()),
        Err(error) => return Err(error.into()),
    }
    let bag = match (dispatch.run.conversation, dispatch.run.execution) {
        (Some(id), _) => Bag::Conversation(id),
        (None, Some(id)) => Bag::Execution(id),
        (None, None) => return Err(refused()),
    };
    let target = Target { bag, source: FileSource::Sandbox };
    let mut upload = Upload::new(&app, &run_scope(grant.workspace), target).receive(request).await?;
    if upload.stored.is_empty() {
        return Err(Problem::malformed_document("", "There is no file in the request."));
    }
    let (limit, now) = (app.limits.max_bag_bytes, app.clock.now());
    let stored = upload.stored.clone();
    let keeping = app.store.keep_results(&held, &stored, limit, now);
    let kept = match upload.keep_by(keeping, upload::refused).await {
        // The run is over, or its conversation is gone.
        Err(StoreError::Lost | StoreError::NotFound) => return Err(refused()),
        kept => kept.map_err(upload::unstored)?,
    };
    app.turns.note_results(grant.run).await;
    Ok(created(&kept))
}

/// A run writes into its own bag, whoever may see that.
fn run_scope(workspace: Uuid) -> Scope {
    Scope {
        workspace,
        org: String::new(),
        user: String::new(),
        role: Role::Service,
        key: None,
        administers: false,
    }
}
