//! For whoever runs the server: is it up, may it get requests, what does it count.

use axum::extract::State;
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};
use serde_json::json;

use crate::problem::Problem;
use crate::state::AppState;

/// The process is up.
#[utoipa::path(get, path = "/healthz", operation_id = "healthz", tag = "operating", responses((status = 200, description = "Up", body = Object)))]
pub async fn healthz() -> Response {
    axum::Json(json!({ "status": "ok" })).into_response()
}

/// The database answers with the schema this binary knows, and the server is not draining.
#[utoipa::path(get, path = "/readyz", operation_id = "readyz", tag = "operating",
    responses((status = 200, description = "Ready", body = Object), (status = 503, description = "Not ready, or draining")))]
pub async fn readyz(State(app): State<AppState>) -> Result<Response, Problem> {
    if app.is_draining() {
        return Err(Problem::unavailable("The server is draining.", 1));
    }
    app.store.ping().await.map_err(|error| {
        tracing::warn!(%error, "not ready");
        Problem::unavailable(
            "The database does not answer, or its schema is not the one this binary knows.",
            1,
        )
    })?;
    Ok(axum::Json(json!({ "status": "ready" })).into_response())
}

/// Prometheus text.
#[utoipa::path(get, path = "/metrics", operation_id = "metrics", tag = "operating",
    responses((status = 200, description = "Prometheus text", content_type = "text/plain", body = String)))]
pub async fn metrics(State(app): State<AppState>) -> Response {
    let text = app.metrics.render();
    (StatusCode::OK, [(header::CONTENT_TYPE, "text/plain; version=0.0.4")], text).into_response()
}
