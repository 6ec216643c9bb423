//! The gateway: models behind the APIs that other people's clients speak, with a run's own token or a caller's
//! credential. What comes in is read leniently and goes on as it is where the provider speaks the same dialect.

pub mod anthropic;
pub mod demo;
mod history;
pub mod openai;
pub mod own;
pub mod translated;
mod whole;

use axum::extract::{FromRequestParts, Request, State};
use axum::http::request::Parts;
use axum::http::{HeaderMap, HeaderName, HeaderValue, StatusCode, header};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use domain::grant::{Grant, GrantKind};
use domain::model::{Ask, ModelEvent, ModelFault, ModelFaultKind, Part, PartKind, Words};
use domain::run::{Lease, Usage};
use domain::scope::{Role, Scope};
use futures_util::FutureExt as _;
use futures_util::future::BoxFuture;
use serde_json::{Value, json};
use store::StoreError;
use store::turns::Held;
use uuid::Uuid;

use crate::extract::{Caller, Named, caller};
use crate::problem::Problem;
use crate::state::AppState;

const KEY_HEADER: HeaderName = HeaderName::from_static("x-api-key");

/// A request that a run's sandbox makes: the run, and who asked for it.
#[derive(Debug, Clone)]
struct OfRun {
    held: Held,
    user: String,
}

/// Whoever makes a call: a run, or a caller who may have named a workspace.
pub enum Asker {
    Run(Held, String),
    Caller(Box<Caller>, Named),
}

/// Whose tokens a call uses.
#[derive(Debug, Clone)]
pub struct Payer {
    pub scope: Scope,
    /// The run that makes the call.
    run: Option<Held>,
}

impl Payer {
    /// Resolves when the run that makes the call is to end: its calls end with it.
    pub fn over(&self, app: &AppState) -> BoxFuture<'static, ()> {
        match self.run {
            Some(held) => {
                let turns = app.turns.clone();
                async move { turns.over(&held).await }.boxed()
            }
            None => std::future::pending().boxed(),
        }
    }
}

impl<S: Send + Sync> FromRequestParts<S> for Asker {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, Problem> {
        if let Some(OfRun { held, user }) = parts.extensions.get().cloned() {
            return Ok(Self::Run(held, user));
        }
        let named = Named::from_request_parts(parts, state).await?;
        Ok(Self::Caller(Box::new(Caller::from_request_parts(parts, state).await?), named))
    }
}

impl Asker {
    /// The body may name the workspace, too; its provider is not told.
    pub async fn payer(self, body: &mut Value) -> Result<Payer, Problem> {
        let in_body = body.as_object_mut().and_then(|body| body.remove("workspace"));
        match self {
            Self::Run(held, user) => {
                let (workspace, org, role) = (held.workspace, String::new(), Role::Service);
                let scope = Scope { workspace, org, user, role, key: None, administers: false };
                Ok(Payer { scope, run: Some(held) })
            }
            Self::Caller(caller, named) => {
                let bad =
                    |_| Problem::invalid_value("/workspace", "workspace must be the UUID of a workspace.");
                let in_body = in_body.map(serde_json::from_value::<Uuid>).transpose().map_err(bad)?;
                Ok(Payer { scope: caller.scope(named.and(in_body)?).await?, run: None })
            }
        }
    }
}

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

/// The id of a call whose provider gave it none, for a client answers by it. No other answer of a thread has it.
fn made_up(answer: &str, index: u64) -> String {
    format!("call_{answer}_{index}")
}

/// As `caller::authenticate`; a run's token and the header of Anthropic's clients count, too.
pub async fn authenticate(State(app): State<AppState>, mut request: Request, next: Next) -> Response {
    let given = credential(request.headers());
    if let Some(token) = given.as_deref().filter(|token| token.starts_with("tkr_")) {
        return match of_run(&app, token).await {
            Ok(run) => {
                request.extensions_mut().insert(run);
                next.run(request).await
            }
            Err(problem) => problem.into_response(),
        };
    }
    // Runs are let finish; nobody else begins anything here.
    if app.is_draining() {
        return Problem::stopping().into_response();
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
async fn of_run(app: &AppState, token: &str) -> Result<OfRun, Problem> {
    let refused = || Problem::unauthenticated("The token is not a run's, or the run is over.");
    let grant = Grant::open(token, GrantKind::Model, &app.secret).ok_or_else(refused)?;
    let held = Held { workspace: grant.workspace, lease: Lease { run: grant.run, fence: grant.fence } };
    match app.store.get_dispatch(&held, 1).await {
        Ok(dispatch) if !dispatch.run.cancel_requested => Ok(OfRun { held, user: dispatch.user }),
        Ok(_) | Err(StoreError::Lost | StoreError::NotFound) => Err(refused()),
        Err(error) => Err(error.into()),
    }
}

/// Where clients of OpenAI and Anthropic look for more than there is here.
const CLIENTS_PATHS: [&str; 9] = [
    "audio",
    "batches",
    "chat",
    "completions",
    "conversations",
    "embeddings",
    "messages",
    "models",
    "responses",
];

/// As `as_clients_expect`, for what is nowhere: it is told so in the words of whoever asks for it.
pub async fn as_who_asks_expects(request: Request, next: Next) -> Response {
    let mut path = request.uri().path().split('/').skip(1);
    let theirs = path.next() == Some("v1") && path.next().is_some_and(|name| CLIENTS_PATHS.contains(&name));
    if theirs { as_clients_expect(request, next).await } else { next.run(request).await }
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
        503 | 529 => "overloaded_error",
        _ => "api_error",
    };
    let source = serde_json::to_value(&problem.source).unwrap_or_default();
    let pointer = source["pointer"].as_str().or(source["parameter"].as_str());
    let pointer = pointer.filter(|pointer| !pointer.is_empty());
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
            (_, Some(status @ (400 | 404 | 413 | 422 | 429 | 529))) => (
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

/// What clients call a failure in the middle of an answer. A provider's 401 is about our key.
fn kind_of_fault(fault: &ModelFault) -> &'static str {
    match (fault.kind, fault.status) {
        (ModelFaultKind::Timeout, _) | (_, Some(504)) => "timeout_error",
        (_, Some(400 | 422)) => "invalid_request_error",
        (_, Some(404)) => "not_found_error",
        (_, Some(413)) => "request_too_large",
        (_, Some(429)) => "rate_limit_error",
        (_, Some(503 | 529)) => "overloaded_error",
        _ => "api_error",
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

/// Counts what a call has used into the run that made it and into the payer's day, however the call ends.
pub struct Metered {
    pub app: AppState,
    pub payer: Payer,
    pub usage: Usage,
}

impl Metered {
    /// Writes down what has been used until now. Done before the answer's end is told: whoever has that may end the run,
    /// on another node too, and the run's end counts what is written.
    pub async fn count(&mut self) {
        if let Some(counting) = self.counting() {
            // In a task of its own: a client that leaves meanwhile has used it all the same.
            let _ = self.app.tasks.spawn(counting).await;
        }
    }

    /// The writing of what was not written yet.
    fn counting(&mut self) -> Option<impl Future<Output = ()> + Send + 'static + use<>> {
        let usage = std::mem::take(&mut self.usage);
        if usage == Usage::default() {
            return None;
        }
        let (app, payer) = (self.app.clone(), self.payer.clone());
        let (now, call) = (app.clock.now(), app.clock.new_id());
        if let Some(held) = &payer.run {
            app.turns.note_usage(held.lease.run, usage);
        }
        Some(async move {
            let counted = match &payer.run {
                Some(held) => app.store.count_usage(held, usage, None, now).await,
                None => app.store.count_call(&payer.scope, call, usage, now).await,
            };
            // A run that has ended meanwhile counts no more, but its tokens were used.
            let counted = match counted {
                Err(StoreError::Lost) => app.store.count_call(&payer.scope, call, usage, now).await,
                counted => counted,
            };
            if let Err(error) = counted {
                tracing::warn!(%error, "what a call of a model used could not be counted");
            }
        })
    }
}

impl Drop for Metered {
    fn drop(&mut self) {
        if let Some(counting) = self.counting() {
            self.app.tasks.spawn(counting);
        }
    }
}

/// A file that came with a request.
fn sent(kind: PartKind, name: &str, mime_type: &str, data: &str) -> Part {
    let (file, name, mime_type) = (Uuid::nil(), name.to_owned(), mime_type.to_owned());
    Part { file, name, mime_type, kind, chars: 0, at: 0, data: data.into() }
}

/// What a user said, in order: files that can be shown are, the rest is text.
fn words(content: &Value, part: impl Fn(&Value) -> Option<Part>) -> Words {
    let Some(all) = content.as_array() else { return text_of(content).into() };
    let mut words = Words::default();
    for one in all {
        match part(one) {
            Some(part) => {
                words.say(one["context"].as_str().unwrap_or_default());
                words.show(part);
            }
            None => words.say(&text_of_part(one)),
        }
    }
    words
}

/// The texts of a list.
fn texts(list: &Value) -> Vec<String> {
    list.as_array().into_iter().flatten().filter_map(Value::as_str).map(str::to_owned).collect()
}

/// A text, or the texts of a list of parts; of other parts what they are.
fn text_of(content: &Value) -> String {
    match content {
        Value::String(text) => text.clone(),
        Value::Array(parts) => {
            let texts = parts.iter().map(text_of_part);
            texts.collect::<Vec<_>>().join("\n\n")
        }
        _ => String::new(),
    }
}

fn text_of_part(part: &Value) -> String {
    let said = part["text"].as_str().or(part["refusal"].as_str());
    if let Some(text) = said {
        return text.to_owned();
    }
    let source = &part["source"];
    // A document that is text, or a piece of one that was found: what is said of it comes before it.
    let text = match source["type"].as_str() {
        Some("text") => text_of(&source["data"]),
        Some("content") => text_of(&source["content"]),
        _ if part["type"] == "search_result" => text_of(&part["content"]),
        _ => return format!("[{}]", part["type"].as_str().unwrap_or("part")),
    };
    let about = [&part["title"], source, &part["context"]].into_iter().filter_map(Value::as_str);
    let texts = about.chain([text.as_str()]).filter(|text| !text.is_empty());
    texts.collect::<Vec<_>>().join("\n\n")
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
