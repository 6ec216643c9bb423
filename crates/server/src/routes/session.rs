//! The browser's session: a user's token exchanged for a cookie that scripts cannot read.

use axum::extract::State;
use axum::http::{HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use serde::Serialize;
use utoipa::ToSchema;
use uuid::Uuid;

use crate::auth::session::{Session, clear_cookie};
use crate::extract::{Caller, Paging};
use crate::problem::Problem;
use crate::state::{App, AppState};

/// Who the caller is.
#[derive(Debug, Serialize, ToSchema)]
pub struct Whoami {
    /// The user; for a service key, none.
    user: Option<String>,
    org_id: String,
    /// The API key that was used, if one was.
    key: Option<Uuid>,
    /// The one workspace of a key.
    workspace: Option<Uuid>,
    limits: SessionLimits,
}

/// What a client can tell before it asks for more than it gets; null is no limit.
#[derive(Debug, Serialize, ToSchema)]
pub struct SessionLimits {
    max_file_bytes: u64,
    max_files_per_message: u64,
    max_open_runs_per_user: u64,
    max_open_runs_per_workspace: Option<u64>,
    /// Of this caller.
    requests_per_second: Option<u64>,
    requests_per_second_per_workspace: Option<u64>,
    tokens_per_day_per_user: Option<u64>,
    tokens_per_day_per_workspace: Option<u64>,
}

impl SessionLimits {
    fn of(app: &App) -> Self {
        let (limits, some) = (&app.limits, |limit: u64| (limit > 0).then_some(limit));
        Self {
            max_file_bytes: limits.max_file_bytes,
            max_files_per_message: limits.max_files_per_message,
            max_open_runs_per_user: limits.max_open_runs_per_user,
            max_open_runs_per_workspace: some(limits.max_open_runs_per_workspace),
            requests_per_second: app.rate.as_ref().map(|_| limits.requests_per_second),
            requests_per_second_per_workspace: some(limits.requests_per_second_per_workspace),
            tokens_per_day_per_user: some(limits.tokens_per_day_per_user),
            tokens_per_day_per_workspace: some(limits.tokens_per_day_per_workspace),
        }
    }
}

fn whoami(caller: &Caller, app: &App) -> Result<Whoami, Problem> {
    let limits = SessionLimits::of(app);
    if let Some((user, org, _)) = caller.person() {
        return Ok(Whoami {
            user: Some(user.into()),
            org_id: org.into(),
            key: None,
            workspace: None,
            limits,
        });
    }
    let grant = caller.key().ok_or_else(Problem::internal)?;
    let user = (grant.key.role != domain::scope::Role::Service).then(|| grant.key.created_by.clone());
    Ok(Whoami {
        user,
        org_id: grant.workspace.org.clone(),
        key: Some(grant.key.id),
        workspace: Some(grant.workspace.id),
        limits,
    })
}

/// Who am I?
#[utoipa::path(get, path = "/v1/session", operation_id = "get_session", tag = "session", responses((status = 200, body = Whoami)))]
pub async fn show(State(app): State<AppState>, caller: Caller, _: Paging) -> Result<Response, Problem> {
    Ok(axum::Json(whoami(&caller, &app)?).into_response())
}

/// Exchanges a user's token for a cookie that ends when the token does.
#[utoipa::path(post, path = "/v1/session", operation_id = "create_session", tag = "session", responses((status = 201, body = Whoami)))]
pub async fn create(State(app): State<AppState>, caller: Caller) -> Result<Response, Problem> {
    let (user, org, expires_at) = caller
        .person()
        .ok_or_else(|| Problem::forbidden("A session is a person's: send a user's token, not an API key."))?;
    let session = Session { user: user.into(), org: org.into(), expires_at };
    let cookie = session.set_cookie(&app.secret, app.clock.now(), &app.public_url);
    let cookie = HeaderValue::from_str(&cookie).map_err(|_| Problem::internal())?;
    Ok((StatusCode::CREATED, [(header::SET_COOKIE, cookie)], axum::Json(whoami(&caller, &app)?))
        .into_response())
}

/// Ends the browser's session.
#[utoipa::path(delete, path = "/v1/session", operation_id = "end_session", tag = "session", responses((status = 204, description = "Ended")))]
pub async fn remove(State(app): State<AppState>, _: Caller) -> Result<Response, Problem> {
    let cookie = HeaderValue::from_str(&clear_cookie(&app.public_url)).map_err(|_| Problem::internal())?;
    Ok((StatusCode::NO_CONTENT, [(header::SET_COOKIE, cookie)]).into_response())
}
