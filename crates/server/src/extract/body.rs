//! Request bodies: read once, bounded in size and time, and strict JSON throughout.

use std::time::Duration;

use axum::body::HttpBody as _;
use axum::extract::{FromRequest, Request};
use axum::http::{HeaderMap, HeaderValue, StatusCode, header};
use bytes::{Bytes, BytesMut};
use http_body_util::BodyExt;
use serde::de::DeserializeOwned;
use serde_path_to_error::Segment;

use super::shape::Strict;
use crate::jsonapi::error::Source;
use crate::problem::Problem;
use crate::state::AppState;

/// A JSON body has to arrive within this; uploads have their own rules.
const READ_TIMEOUT: Duration = Duration::from_secs(30);

/// The bytes of a body of at most `MAX_BODY_BYTES`.
pub struct Body(pub Bytes);

impl FromRequest<AppState> for Body {
    type Rejection = Problem;

    async fn from_request(request: Request, app: &AppState) -> Result<Self, Problem> {
        check_encoding(request.headers())?;
        let limit = app.limits.max_body_bytes as usize;
        if request.body().size_hint().lower() > limit as u64 {
            return Err(too_large(limit));
        }
        match tokio::time::timeout(READ_TIMEOUT, read(request.into_body(), limit)).await {
            Ok(read) => read.map(Self),
            Err(_) => Err(Problem::new(
                StatusCode::REQUEST_TIMEOUT,
                "request_timeout",
                "Request time-out",
                format!("The request body did not arrive within {} seconds.", READ_TIMEOUT.as_secs()),
            )),
        }
    }
}

async fn read(mut body: axum::body::Body, limit: usize) -> Result<Bytes, Problem> {
    let mut bytes = BytesMut::new();
    while let Some(frame) = body.frame().await {
        let frame = frame.map_err(|_| Problem::malformed_document("", "The request body broke off."))?;
        let Some(data) = frame.data_ref() else { continue };
        if bytes.len() + data.len() > limit {
            return Err(too_large(limit));
        }
        bytes.extend_from_slice(data);
    }
    Ok(bytes.freeze())
}

fn too_large(limit: usize) -> Problem {
    Problem::new(
        StatusCode::PAYLOAD_TOO_LARGE,
        "body_too_large",
        "The request body is too large",
        format!("The request body is over {limit} bytes."),
    )
    .with("limit", limit)
}

/// A body is read as it comes: one that was compressed would only be told to be malformed.
pub fn check_encoding(headers: &HeaderMap) -> Result<(), Problem> {
    let plain = |value: &HeaderValue| value.is_empty() || value.as_bytes().eq_ignore_ascii_case(b"identity");
    if headers.get_all(header::CONTENT_ENCODING).iter().all(plain) {
        return Ok(());
    }
    Err(Problem::new(
        StatusCode::UNSUPPORTED_MEDIA_TYPE,
        "unsupported_media_type",
        "Unsupported media type",
        "A body with a Content-Encoding is not taken; send it as it is.",
    )
    .at(Source::header("Content-Encoding")))
}

/// A typed JSON body of a plain route; any JSON media type will do.
pub struct JsonBody<T>(pub T);

impl<T: DeserializeOwned> FromRequest<AppState> for JsonBody<T> {
    type Rejection = Problem;

    async fn from_request(request: Request, app: &AppState) -> Result<Self, Problem> {
        check_json(request.headers())?;
        let Body(bytes) = Body::from_request(request, app).await?;
        parse(&bytes).map(Self)
    }
}

/// A body has to say that it is JSON.
pub fn check_json(headers: &HeaderMap) -> Result<(), Problem> {
    let kind = headers.get(header::CONTENT_TYPE).and_then(|value| value.to_str().ok());
    if kind.is_some_and(is_json) {
        return Ok(());
    }
    Err(Problem::new(
        StatusCode::UNSUPPORTED_MEDIA_TYPE,
        "unsupported_media_type",
        "Unsupported media type",
        "Send the body as application/json.",
    )
    .at(Source::header("Content-Type")))
}

fn is_json(kind: &str) -> bool {
    let essence = kind.split(';').next().unwrap_or("").trim().to_ascii_lowercase();
    essence == "application/json" || (essence.starts_with("application/") && essence.ends_with("+json"))
}

/// Strict JSON into `T`, which an object is; the error names the member or the place.
pub fn parse<T: DeserializeOwned>(bytes: &[u8]) -> Result<T, Problem> {
    domain::json::check(bytes).map_err(|fault| {
        Problem::malformed_document(&fault.pointer, format!("The body is refused: {fault}."))
    })?;
    if !bytes.trim_ascii_start().starts_with(b"{") {
        return Err(Problem::invalid_value("", "The body must be a JSON object."));
    }
    let mut json = serde_json::Deserializer::from_slice(bytes);
    serde_path_to_error::deserialize(Strict(&mut json)).map_err(|error| misfit(&error))
}

/// What is wrong with which member.
fn misfit(error: &serde_path_to_error::Error<serde_json::Error>) -> Problem {
    let text = error.inner().to_string();
    let reason = text.rsplit_once(" at line ").map_or(text.as_str(), |(reason, _)| reason);
    let pointer = pointer(error.path());
    if reason.starts_with("unknown field `") {
        return Problem::new(StatusCode::BAD_REQUEST, "unknown_field", "Unknown field", format!("{reason}."))
            .at(Source::pointer(pointer));
    }
    if let Some(name) = reason.strip_prefix("missing field `").and_then(|rest| rest.split('`').next()) {
        return Problem::invalid_value(&format!("{pointer}/{name}"), format!("{name} is missing."));
    }
    let what = match pointer.as_str() {
        "" => "The body".to_owned(),
        _ => error.path().to_string(),
    };
    Problem::invalid_value(&pointer, format!("{what} does not fit: {}.", told(reason)))
}

fn pointer(path: &serde_path_to_error::Path) -> String {
    path.iter().fold(String::new(), |pointer, segment| match segment {
        Segment::Seq { index } => format!("{pointer}/{index}"),
        Segment::Map { key } => format!("{pointer}/{}", key.replace('~', "~0").replace('/', "~1")),
        Segment::Enum { .. } | Segment::Unknown => pointer,
    })
}

/// A reason without the names of our own types.
pub fn told(reason: &str) -> String {
    match reason.rsplit_once("expected ") {
        Some((found, "u8" | "u16" | "u32" | "u64" | "usize" | "i8" | "i16" | "i32" | "i64" | "isize")) => {
            format!("{found}expected a whole number within bounds")
        }
        _ => reason.to_owned(),
    }
}
