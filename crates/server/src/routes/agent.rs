//! What a run's sandbox may ask of us: `{agent_url}/config`, with a token of that run alone.

use axum::extract::{Path, State};
use axum::http::{HeaderMap, header};
use axum::response::{IntoResponse, Response};
use domain::grant::{Grant, GrantKind};
use domain::run::Lease;
use serde_json::json;
use store::StoreError;
use store::turns::Held;

use super::planning;
use super::workspaces::path_id;
use crate::problem::Problem;
use crate::state::AppState;

fn refused() -> Problem {
    Problem::unauthenticated("The token is not this run's, or the run is over.")
}

/// The configuration of a run under way, for its sandbox.
#[utoipa::path(get, path = "/v1/agent/{workspace}/{run}/config", operation_id = "get_run_config", tag = "sandbox",
    params(("workspace" = Uuid, Path), ("run" = Uuid, Path)),
    responses((status = 200, description = "`{ session_id, chat_id, model, assets, skills, recipes }`", body = Object), (status = 401)))]
pub async fn config(
    State(app): State<AppState>,
    Path((workspace, run)): Path<(String, String)>,
    headers: HeaderMap,
) -> Result<Response, Problem> {
    let (workspace, run) =
        (path_id(&workspace).map_err(|_| refused())?, path_id(&run).map_err(|_| refused())?);
    let token = headers.get(header::AUTHORIZATION).and_then(|value| value.to_str().ok()).unwrap_or("");
    let token = token.split_once(' ').filter(|(scheme, _)| scheme.eq_ignore_ascii_case("bearer"));
    let (_, token) = token.ok_or_else(refused)?;
    let held = Grant::open(token.trim(), GrantKind::Config, &app.secret).ok_or_else(refused)?;
    if (held.workspace, held.run) != (workspace, run) {
        return Err(refused());
    }
    // Only while the run is under way with the fence that the token names.
    let lease = Lease { run, fence: held.fence };
    let dispatch = match app.store.get_dispatch(&Held { workspace, lease }, 1).await {
        Err(StoreError::Lost | StoreError::NotFound) => return Err(refused()),
        dispatch => dispatch?,
    };
    if dispatch.run.cancel_requested {
        return Err(refused());
    }
    let gateway = Grant { kind: GrantKind::Model, ..held }.seal(&app.secret);
    Ok(axum::Json(json!({
        "session_id": run,
        "chat_id": dispatch.run.conversation,
        "model": {
            "base_url": format!("{}/v1", app.public_url),
            "api_key": gateway,
            "model": dispatch.conversation.model.unwrap_or_else(|| "demo/assistant".into()),
        },
        "assets": null,
        "skills": planning::skills(dispatch.turn.mode.or(dispatch.conversation.mode)),
        "recipes": [],
    }))
    .into_response())
}
