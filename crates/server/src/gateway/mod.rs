//! The gateway: models behind the APIs that other people's clients speak, with a run's own token or a caller's
//! credential. What comes in is read leniently and goes on as it is where the provider speaks the same dialect.

pub mod anthropic;
pub mod openai;

use axum::extract::{Request, State};
use axum::http::{HeaderMap, HeaderName, HeaderValue, StatusCode, header};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use domain::grant::{Grant, GrantKind};
use domain::model::{Ask, ModelEvent, ModelFault, ModelFaultKind};
use domain::run::{Lease, Usage};
use serde_json::{Value, json};
use store::StoreError;
use store::turns::Held;

use crate::extract::caller;
use crate::problem::Problem;
use crate::state::AppState;

const KEY_HEADER: HeaderName = HeaderName::from_static("x-api-key");

/// A request that a run's sandbox makes.
#[derive(Debug, Clone, Copy)]
pub struct OfRun(pub Held);

/// What a client asked for.
pub struct Asked {
    /// The model's whole name.
    pub model: String,
    /// Its `model` is to be filled in by whoever knows the provider.
    pub ask: Ask,
    pub stream: bool,
    /// The stream is to say what it cost.
    pub include_usage: bool,
}

/// Tells an answer in one dialect, as it comes or whole.
pub trait Writer: Send {
    /// Frames for one event, put behind `out`.
    fn event(&mut self, event: &ModelEvent, out: &mut Vec<u8>);
    /// The whole answer, after its last event.
    fn whole(&self) -> Value;
}

/// As `caller::authenticate`; a run's token and the header of Anthropic's clients count, too.
pub async fn authenticate(State(app): State<AppState>, mut request: Request, next: Next) -> Response {
    let given = credential(request.headers());
    if let Some(token) = given.as_deref().filter(|token| token.starts_with("tkr_")) {
        return match of_run(&app, token).await {
            Ok(held) => {
                request.extensions_mut().insert(OfRun(held));
                next.run(request).await
            }
            Err(problem) => problem.into_response(),
        };
    }
    let headers = request.headers_mut();
    if let (None, Some(key)) = (headers.get(header::AUTHORIZATION), given)
        && let Ok(value) = HeaderValue::from_str(&format!("Bearer {key}"))
    {
        headers.insert(header::AUTHORIZATION, value);
    }
    caller::authenticate(State(app), request, next).await
}

/// The bearer of `Authorization`, else `x-api-key`.
fn credential(headers: &HeaderMap) -> Option<String> {
    let text = |name: &HeaderName| headers.get(name)?.to_str().ok();
    match text(&header::AUTHORIZATION) {
        Some(value) => {
            let (scheme, token) = value.split_once(' ')?;
            scheme.eq_ignore_ascii_case("bearer").then(|| token.trim().to_owned())
        }
        None => text(&KEY_HEADER).map(str::to_owned),
    }
}

/// The run whose token this is, while it is under way.
async fn of_run(app: &AppState, token: &str) -> Result<Held, Problem> {
    let refused = || Problem::unauthenticated("The token is not a run's, or the run is over.");
    let grant = Grant::open(token, GrantKind::Model, &app.secret).ok_or_else(refused)?;
    let held = Held { workspace: grant.workspace, lease: Lease { run: grant.run, fence: grant.fence } };
    match app.store.get_dispatch(&held, 1).await {
        Ok(dispatch) if !dispatch.run.cancel_requested => Ok(held),
        Ok(_) | Err(StoreError::Lost | StoreError::NotFound) => Err(refused()),
        Err(error) => Err(error.into()),
    }
}

/// Failures on these paths have an `error` member beside the problem's own: the clients look there.
pub async fn as_clients_expect(request: Request, next: Next) -> Response {
    let mut response = next.run(request).await;
    let Some(problem) = response.extensions_mut().remove::<std::sync::Arc<Problem>>() else {
        return response;
    };
    let kind = match problem.status.as_u16() {
        401 => "authentication_error",
        403 => "permission_error",
        404 => "not_found_error",
        413 => "request_too_large",
        429 => "rate_limit_error",
        400..500 => "invalid_request_error",
        503 => "overloaded_error",
        _ => "api_error",
    };
    let source = serde_json::to_value(&problem.source).unwrap_or_default();
    let pointer = source["pointer"].as_str().or(source["parameter"].as_str());
    let param = pointer.map(|pointer| pointer.trim_start_matches('/').replace('/', "."));
    let error = json!({ "message": problem.detail, "type": kind, "param": param, "code": problem.code });
    let kept = std::mem::take(response.headers_mut());
    let mut told = (*problem).clone().with("error", error).into_response();
    for (name, value) in &kept {
        if *name != header::CONTENT_LENGTH {
            told.headers_mut().insert(name.clone(), value.clone());
        }
    }
    told
}

impl From<ModelFault> for Problem {
    fn from(fault: ModelFault) -> Self {
        let (status, title) = match (fault.kind, fault.status) {
            (ModelFaultKind::Timeout, _) => (StatusCode::GATEWAY_TIMEOUT, "The model did not answer in time"),
            // What the client can do something about; a provider's 401 is about our key.
            (_, Some(status @ (400 | 404 | 413 | 422 | 429))) => (
                StatusCode::from_u16(status).unwrap_or(StatusCode::BAD_GATEWAY),
                "The model's provider refused",
            ),
            _ => (StatusCode::BAD_GATEWAY, "The model failed"),
        };
        let problem = Self::new(status, fault.kind.code(), title, fault.message);
        match fault.retry_after {
            Some(seconds) => problem.with("retry_after", seconds),
            None => problem,
        }
    }
}

/// A name that is no model of this server.
pub fn unknown_model(fault: ModelFault) -> Problem {
    let detail = format!("{} See GET /v1/models.", sentence(&fault.message));
    Problem::new(StatusCode::NOT_FOUND, "model_not_found", "There is no such model", detail)
}

fn sentence(text: &str) -> String {
    crate::jsonapi::error::sentence(text)
}

/// Counts what a call has used into the run that made it, however the call ends.
pub struct Metered {
    pub app: AppState,
    pub run: Option<Held>,
    pub usage: Usage,
}

impl Drop for Metered {
    fn drop(&mut self) {
        let (Some(held), usage) = (self.run, self.usage) else { return };
        if usage == Usage::default() {
            return;
        }
        let store = self.app.store.clone();
        self.app.tasks.spawn(async move {
            if let Err(error) = store.count_usage(&held, usage).await {
                tracing::warn!(run = %held.lease.run, %error, "what a run used could not be counted");
            }
        });
    }
}

/// A text, or the texts of a list of parts; of other parts what they are.
fn text_of(content: &Value) -> String {
    match content {
        Value::String(text) => text.clone(),
        Value::Array(parts) => {
            let texts = parts.iter().map(|part| match part["text"].as_str() {
                Some(text) => text.to_owned(),
                None => format!("[{}]", part["type"].as_str().unwrap_or("part")),
            });
            texts.collect::<Vec<_>>().join("\n\n")
        }
        _ => String::new(),
    }
}

/// The members that both dialects have: the model's name, the messages, whether to stream.
fn common(body: &Value) -> Result<(String, &Vec<Value>, bool), Problem> {
    let model = body["model"].as_str().filter(|model| !model.is_empty());
    let model =
        model.ok_or_else(|| Problem::invalid_value("/model", "model must name a model, as a string."))?;
    let messages = body["messages"].as_array().filter(|messages| !messages.is_empty());
    let missing =
        || Problem::invalid_value("/messages", "messages must be a list with at least one message.");
    let stream = match &body["stream"] {
        Value::Null => false,
        Value::Bool(stream) => *stream,
        _ => return Err(Problem::invalid_value("/stream", "stream must be true or false.")),
    };
    Ok((model.to_owned(), messages.ok_or_else(missing)?, stream))
}

fn frame(name: Option<&str>, data: &Value, out: &mut Vec<u8>) {
    if let Some(name) = name {
        out.extend_from_slice(format!("event: {name}\n").as_bytes());
    }
    out.extend_from_slice(format!("data: {data}\n\n").as_bytes());
}
