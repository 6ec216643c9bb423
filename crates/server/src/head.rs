//! The request line and headers, together within their limit. hyper gives up on a head that outgrows its buffer, but
//! what it reads at once may reach past that.

use axum::extract::Request;
use axum::http::StatusCode;
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};

use crate::problem::Problem;

pub const MAX_BYTES: usize = 32 * 1024;

pub async fn bound(request: Request, next: Next) -> Response {
    let target = request.uri().path_and_query().map_or(0, |target| target.as_str().len());
    let headers: usize =
        request.headers().iter().map(|(name, value)| name.as_str().len() + value.len() + 4).sum();
    if target + headers <= MAX_BYTES {
        return next.run(request).await;
    }
    let detail = format!("The request line and the headers have more than {} KiB.", MAX_BYTES / 1024);
    Problem::new(
        StatusCode::REQUEST_HEADER_FIELDS_TOO_LARGE,
        "head_too_large",
        "The request's head is too large",
        detail,
    )
    .with("limit", MAX_BYTES)
    .into_response()
}
