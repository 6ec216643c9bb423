//! Failures as HTTP answers: `application/problem+json` (RFC 9457), or a JSON:API error document on the
//! paths that speak JSON:API. The only place that knows which error has which status.

use axum::extract::Request;
use axum::http::{HeaderName, HeaderValue, StatusCode, header};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use domain::conversation::PatchFault;
use domain::table::TableFault;
use serde_json::{Map, Value};
use store::StoreError;

use crate::jsonapi::error::{ApiError, ErrorDocument, Source, sentence, shown};
use crate::jsonapi::media::MEDIA_TYPE;

#[derive(Debug, Clone)]
pub struct Problem {
    pub status: StatusCode,
    /// Stable; listed in docs/api.md.
    pub code: &'static str,
    pub title: &'static str,
    pub detail: String,
    pub source: Option<Source>,
    /// What else helps the client: `limit`, `run`, `retry_after`.
    pub extra: Map<String, Value>,
}

/// One constructor for each code that has no JSON:API twin of its own or is used outside JSON:API too.
impl Problem {
    pub fn new(
        status: StatusCode,
        code: &'static str,
        title: &'static str,
        detail: impl Into<String>,
    ) -> Self {
        Self { status, code, title, detail: detail.into(), source: None, extra: Map::new() }
    }

    #[must_use]
    pub fn at(mut self, source: Source) -> Self {
        self.source = Some(source);
        self
    }

    #[must_use]
    pub fn with(mut self, name: &str, value: impl Into<Value>) -> Self {
        self.extra.insert(name.to_owned(), value.into());
        self
    }

    /// What a client calls the input by another name than the engine does.
    #[must_use]
    pub fn renamed(self, from: &str, to: &str) -> Self {
        match &self.source {
            Some(Source::Pointer(pointer)) if pointer == from => self.at(Source::pointer(to)),
            _ => self,
        }
    }

    pub fn stopping() -> Self {
        Self::unavailable("The server is stopping; try again shortly.", 1)
    }

    pub fn not_found() -> Self {
        Self::new(
            StatusCode::NOT_FOUND,
            "not_found",
            "Not found",
            "There is no such thing here, or not for you.",
        )
    }

    pub fn method_not_allowed() -> Self {
        let detail = "This path exists, but not with this method; the Allow header lists those it has.";
        Self::new(StatusCode::METHOD_NOT_ALLOWED, "method_not_allowed", "Method not allowed", detail)
    }

    pub fn forbidden(detail: impl Into<String>) -> Self {
        Self::new(StatusCode::FORBIDDEN, "forbidden", "Not allowed", detail)
    }

    pub fn unauthenticated(detail: impl Into<String>) -> Self {
        Self::new(StatusCode::UNAUTHORIZED, "unauthenticated", "Authentication is required", detail)
    }

    pub fn invalid_parameter(name: &str, detail: impl Into<String>) -> Self {
        Self::new(StatusCode::BAD_REQUEST, "invalid_parameter", "Invalid query parameter", detail)
            .at(Source::parameter(name))
    }

    pub fn unknown_parameter(name: &str) -> Self {
        let detail = format!("There is no parameter {} here.", shown(name));
        Self::new(StatusCode::BAD_REQUEST, "unknown_parameter", "Unknown query parameter", detail)
            .at(Source::parameter(name))
    }

    pub fn invalid_header(name: &str, detail: impl Into<String>) -> Self {
        Self::new(StatusCode::BAD_REQUEST, "invalid_header", "Invalid header", detail)
            .at(Source::header(name))
    }

    pub fn invalid_value(pointer: &str, detail: impl Into<String>) -> Self {
        Self::new(StatusCode::UNPROCESSABLE_ENTITY, "invalid_value", "Invalid value", detail)
            .at(Source::pointer(pointer))
    }

    pub fn malformed_document(pointer: &str, detail: impl Into<String>) -> Self {
        Self::new(StatusCode::BAD_REQUEST, "malformed_document", "The document is malformed", detail)
            .at(Source::pointer(pointer))
    }

    pub fn unavailable(detail: impl Into<String>, retry_after: u64) -> Self {
        Self::new(StatusCode::SERVICE_UNAVAILABLE, "unavailable", "Temporarily unavailable", detail)
            .with("retry_after", retry_after)
    }

    pub fn internal() -> Self {
        Self::new(
            StatusCode::INTERNAL_SERVER_ERROR,
            "internal",
            "Internal error",
            "Something went wrong on our side; the log has it under this answer's X-Request-Id.",
        )
    }

    fn body(&self) -> Vec<u8> {
        let mut body = Map::new();
        body.insert("type".into(), format!("urn:threadkeep:problem:{}", self.code).into());
        body.insert("title".into(), self.title.into());
        body.insert("status".into(), self.status.as_u16().into());
        body.insert("detail".into(), self.detail.clone().into());
        body.insert("code".into(), self.code.into());
        if let Some(source) = &self.source {
            body.insert("source".into(), serde_json::to_value(source).unwrap_or_default());
        }
        body.extend(self.extra.clone());
        Value::Object(body).to_string().into_bytes()
    }
}

impl IntoResponse for Problem {
    fn into_response(self) -> Response {
        let mut response = (self.status, self.body()).into_response();
        let headers = response.headers_mut();
        headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("application/problem+json"));
        if self.status == StatusCode::UNAUTHORIZED {
            headers.insert(header::WWW_AUTHENTICATE, HeaderValue::from_static("Bearer"));
        }
        if let Some(seconds) = self.extra.get("retry_after").and_then(Value::as_u64) {
            headers.insert(header::RETRY_AFTER, seconds.into());
        }
        response.extensions_mut().insert(std::sync::Arc::new(self));
        response
    }
}

impl From<Problem> for ApiError {
    fn from(problem: Problem) -> Self {
        Self {
            status: problem.status.as_u16(),
            code: problem.code,
            title: problem.title,
            detail: problem.detail,
            source: problem.source,
            meta: problem.extra,
        }
    }
}

impl From<ApiError> for Problem {
    fn from(error: ApiError) -> Self {
        let status = StatusCode::from_u16(error.status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
        let mut problem = Self::new(status, error.code, error.title, error.detail);
        problem.source = error.source;
        problem.extra = error.meta;
        problem
    }
}

impl From<StoreError> for Problem {
    fn from(error: StoreError) -> Self {
        match error {
            StoreError::NotFound => Self::not_found(),
            StoreError::Taken(what) => {
                Self::new(StatusCode::CONFLICT, "conflict", "Conflict", format!("This {what} is taken."))
            }
            StoreError::Conflict { code, detail } => {
                Self::new(StatusCode::CONFLICT, code, "Conflict", sentence(detail))
            }
            StoreError::Denied(reason) => Self::forbidden(sentence(reason)),
            StoreError::Invalid { input, detail } if input.starts_with('/') => {
                Self::invalid_value(input, sentence(detail))
            }
            StoreError::Invalid { input, detail } => Self::invalid_parameter(input, sentence(detail)),
            StoreError::BadTable(fault) => fault.into(),
            StoreError::Refused(fault) => fault.into(),
            StoreError::BagFull { limit } => Self::new(
                StatusCode::PAYLOAD_TOO_LARGE,
                "bag_full",
                "The bag is full",
                format!("The files would be over {limit} bytes together; delete some first."),
            )
            .with("limit", limit),
            StoreError::NoAttachment(at) => Self::invalid_value(
                &format!("/attachments/{at}"),
                format!("attachments[{at}] is not a file of this conversation."),
            ),
            StoreError::Unavailable(reason) => {
                tracing::error!(reason, "the store is unavailable");
                Self::unavailable("The store cannot take this request now; try again shortly.", 1)
            }
            error @ (StoreError::NewerSchema { .. }
            | StoreError::Internal(_)
            | StoreError::Lost
            | StoreError::Behind { .. }
            | StoreError::FilesWaiting
            | StoreError::MoreUsed(_)) => {
                tracing::error!(%error, "the store failed");
                Self::internal()
            }
        }
    }
}

impl From<TableFault> for Problem {
    fn from(fault: TableFault) -> Self {
        Self::invalid_value(&fault.pointer, sentence(&fault.detail))
    }
}

impl From<PatchFault> for Problem {
    fn from(fault: PatchFault) -> Self {
        match fault {
            PatchFault::Denied { attribute, reason } => {
                Self::forbidden(sentence(reason)).at(Source::pointer(format!("/data/attributes/{attribute}")))
            }
            PatchFault::Invalid { pointer, detail } => {
                Self::invalid_value(&format!("/data/attributes{pointer}"), sentence(&detail))
            }
            PatchFault::Stale => Self::new(
                StatusCode::PRECONDITION_FAILED,
                "precondition_failed",
                "Precondition failed",
                "The conversation has changed since that ETag; read it again.",
            )
            .at(Source::header("If-Match")),
        }
    }
}

impl IntoResponse for ErrorDocument {
    fn into_response(self) -> Response {
        let status = StatusCode::from_u16(self.status()).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
        (status, [(header::CONTENT_TYPE, MEDIA_TYPE)], self.to_json()).into_response()
    }
}

/// Whether a path is one of the `chat_conversation` resource's own: collection, item, restore, fork.
pub(crate) fn speaks_jsonapi(path: &str) -> bool {
    let Some(rest) = path.strip_prefix("/v1/chat-conversations") else { return false };
    let mut parts = rest.split('/').skip(1);
    match (rest.is_empty() || rest.starts_with('/'), parts.next(), parts.next(), parts.next()) {
        (true, _, None, None) => true,
        (true, Some(_), Some(action), None) => action == "restore" || action == "fork",
        _ => false,
    }
}

/// Whatever failed on a JSON:API path, in a handler or on the way to it, is told as a JSON:API document.
pub async fn as_jsonapi(request: Request, next: Next) -> Response {
    let jsonapi = speaks_jsonapi(request.uri().path());
    let mut response = next.run(request).await;
    if !jsonapi {
        return response;
    }
    response.headers_mut().append(header::VARY, HeaderValue::from_static("Accept"));
    let Some(problem) = response.extensions_mut().remove::<std::sync::Arc<Problem>>() else {
        return response;
    };
    let kept: Vec<(HeaderName, HeaderValue)> = response
        .headers()
        .iter()
        .filter(|(name, _)| **name != header::CONTENT_TYPE && **name != header::CONTENT_LENGTH)
        .map(|(name, value)| (name.clone(), value.clone()))
        .collect();
    let mut document = ErrorDocument::from(ApiError::from((*problem).clone())).into_response();
    document.headers_mut().extend(kept);
    document
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_resource_itself_speaks_jsonapi() {
        for path in [
            "/v1/chat-conversations",
            "/v1/chat-conversations/",
            "/v1/chat-conversations/x",
            "/v1/chat-conversations/x/restore",
        ] {
            assert!(speaks_jsonapi(path), "{path}");
        }
        for path in [
            "/v1/chat-conversationsx",
            "/v1/chat-conversations/x/files",
            "/v1/chat-conversations/x/restore/y",
            "/",
        ] {
            assert!(!speaks_jsonapi(path), "{path}");
        }
    }
}
