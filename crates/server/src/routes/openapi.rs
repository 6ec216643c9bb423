//! The API's own description, generated from the routes.

use std::sync::LazyLock;

use axum::http::header;
use axum::response::{IntoResponse, Response};

static DOCUMENT: LazyLock<String> = LazyLock::new(crate::router::openapi_json);

/// OpenAPI 3.1.
#[utoipa::path(get, path = "/openapi.json", tag = "operating",
    responses((status = 200, description = "This document", content_type = "application/json")))]
pub async fn openapi() -> Response {
    ([(header::CONTENT_TYPE, "application/json")], DOCUMENT.as_str()).into_response()
}
