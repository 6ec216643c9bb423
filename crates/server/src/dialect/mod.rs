//! The APIs that other people's clients speak, over the same conversations, turns and runs. A file for each dialect
//! reads its requests into an `Asked`; `open` makes a turn of that, the way `POST /v1/turns` does.

pub mod ag_ui;
pub mod ai;
pub mod decide;
mod extras;
mod files;
pub mod go_on;
pub mod items;
pub mod log;
pub mod open;
pub mod outputs;
pub mod removal;
pub mod responses;
pub mod told;
mod tools;

use axum::extract::Request;
use axum::http::{HeaderValue, StatusCode, header};
use axum::middleware::Next;
use axum::response::{IntoResponse as _, Response};
use domain::conversation::{Mode, Source};
use domain::message::{Block, MessageRole};
use domain::model::Manner;
use domain::run::{BroughtTool, OnBusy, OnDisconnect};
use serde::de::DeserializeOwned;
use serde_json::{Map, Value, json};
use uuid::Uuid;

use crate::extract::body::{parse, told};
use crate::extract::paging::pairs;
use crate::extract::shape::Strict;
use crate::problem::Problem;

/// What a client asked for, in no dialect.
#[derive(Debug, Default)]
pub struct Asked {
    /// The client's own name of the conversation; none begins one.
    pub conversation: Option<String>,
    /// What the client says was said before. It counts only where the conversation is new here.
    pub before: Vec<Said>,
    /// Its client sends that again with each message to come. A refusal of an old file would be one of all of them, so
    /// those that cannot be had are left out.
    pub sent_again: bool,
    pub want: Want,
    /// The message whose place the new one takes.
    pub replace: Option<Uuid>,
    pub options: Options,
    /// What the model is told for this turn alone.
    pub instructions: Option<String>,
    /// How the model is to answer, how much it may say, and how many calls of the server's tools it has.
    pub manner: Manner,
    pub max_tokens: Option<u64>,
    pub max_calls: Option<u64>,
    /// Tools that the client makes the calls of.
    pub tools: Vec<BroughtTool>,
    /// What the answer repeats of the request.
    pub echo: Option<Value>,
}

#[derive(Debug, Default)]
pub enum Want {
    #[default]
    Nothing,
    /// Answer this message. `edit` says that the one with its name is to be replaced.
    Answer { message: Incoming, edit: bool },
    /// Answer again: the message with this name, or the one before it where that is an answer; without a name, the
    /// last one.
    Again { message: Option<String>, of: Option<Incoming> },
    /// People have decided on calls of the run under way.
    Decide { decided: Vec<Decided>, last: Option<Last> },
}

/// The user's message that ends a client's whole list. Beside a decision it has been heard already, or it is refused.
#[derive(Debug)]
pub struct Last {
    pub name: Option<String>,
    /// Where it stands in the request.
    pub pointer: String,
}

/// A user's message on its way in.
#[derive(Debug, Default, Clone)]
pub struct Incoming {
    pub name: Option<String>,
    pub texts: Vec<String>,
    pub files: Vec<FilePart>,
    /// As of `Said`.
    pub metadata: Map<String, Value>,
}

#[derive(Debug, Clone)]
pub struct FilePart {
    pub name: Option<String>,
    pub media_type: String,
    /// A `data:` URL, or one of this server's own.
    pub url: String,
    /// Where it stands in the request.
    pub pointer: String,
}

#[derive(Debug, Clone)]
pub struct Said {
    pub name: Option<String>,
    pub role: MessageRole,
    pub content: Vec<Block>,
    /// What its client has beside the blocks, for the message's own metadata.
    pub metadata: Map<String, Value>,
    pub files: Vec<FilePart>,
}

/// What a person decided, or what a client has made of a call of its own tool.
#[derive(Debug)]
pub struct Decided {
    /// The approval's id; with a result, the call's.
    pub approval: String,
    pub approve: bool,
    pub reason: Option<String>,
    pub result: Option<String>,
    /// Where the id stands in the request.
    pub pointer: String,
}

/// What `POST /v1/turns` takes beside the message, wherever a dialect has room for it.
#[derive(Debug, Default, Clone)]
pub struct Options {
    pub agent: Option<String>,
    pub model: Option<String>,
    pub workflow: Option<String>,
    pub mode: Option<Mode>,
    pub source: Option<Source>,
    pub page_path: Option<String>,
    pub on_busy: OnBusy,
    pub on_disconnect: OnDisconnect,
    /// The client leaves where people are asked, and comes back.
    pub comes_back: bool,
}

impl Options {
    /// From the members of an object that may hold others, too.
    pub fn read(from: &Value, at: &str, on_disconnect: OnDisconnect) -> Result<Self, Problem> {
        Ok(Self {
            agent: member(from, at, "agent")?,
            model: member(from, at, "model")?,
            workflow: member(from, at, "workflow")?,
            mode: member(from, at, "mode")?,
            source: member(from, at, "source")?,
            page_path: member(from, at, "page_path")?,
            on_busy: member(from, at, "on_busy")?.unwrap_or_default(),
            on_disconnect: member(from, at, "on_disconnect")?.unwrap_or(on_disconnect),
            comes_back: true,
        })
    }
}

/// A member that may be left out or null.
pub fn member<T: DeserializeOwned>(from: &Value, at: &str, name: &str) -> Result<Option<T>, Problem> {
    match &from[name] {
        Value::Null => Ok(None),
        value => T::deserialize(Strict(value)).map(Some).map_err(|error| {
            let reason = told(&error.to_string());
            Problem::invalid_value(&format!("{at}/{name}"), format!("{name} does not fit: {reason}."))
        }),
    }
}

/// The workspace that a body names; the body may be left out.
pub fn workspace_in(bytes: &[u8]) -> Result<Option<Uuid>, Problem> {
    if bytes.is_empty() { Ok(None) } else { member(&parse(bytes)?, "", "workspace") }
}

/// A client's own name of a thing: any short text.
pub fn name(from: &Value, at: &str, name: &str) -> Result<Option<String>, Problem> {
    let Some(text) = member::<String>(from, at, name)? else { return Ok(None) };
    if text.is_empty() || text.chars().count() > 255 || text.chars().any(char::is_control) {
        let detail = format!("{name} must be 1 to 255 characters, without control characters.");
        return Err(Problem::invalid_value(&format!("{at}/{name}"), detail));
    }
    Ok(Some(text))
}

/// `limit`, `after` and `order` of an OpenAI list.
pub struct ListQuery {
    pub limit: usize,
    pub after: Option<String>,
    pub descending: bool,
}

impl ListQuery {
    pub fn read(query: Option<&str>) -> Result<Self, Problem> {
        let mut asked = Self { limit: 20, after: None, descending: true };
        for (name, value) in pairs(query.unwrap_or(""))? {
            match name.as_str() {
                "limit" => {
                    let bad =
                        || Problem::invalid_parameter("limit", "limit must be a whole number from 1 to 100.");
                    asked.limit = value.parse().ok().filter(|n| (1..=100).contains(n)).ok_or_else(bad)?;
                }
                "after" => asked.after = Some(value),
                "order" if value == "asc" || value == "desc" => asked.descending = value == "desc",
                "order" => return Err(Problem::invalid_parameter("order", "order must be asc or desc.")),
                "workspace" | "include" | "include[]" => {}
                _ => return Err(Problem::unknown_parameter(&name)),
            }
        }
        Ok(asked)
    }
}

/// An OpenAI list.
pub fn page(data: &[Value], has_more: bool) -> Value {
    let id = |item: Option<&Value>| item.map(|item| item["id"].clone());
    json!({ "object": "list", "data": data, "first_id": id(data.first()), "last_id": id(data.last()),
        "has_more": has_more })
}

/// A page of things that are all at hand, oldest first.
pub fn openai_list(mut all: Vec<Value>, query: Option<&str>) -> Result<Response, Problem> {
    let asked = ListQuery::read(query)?;
    if asked.descending {
        all.reverse();
    }
    if let Some(after) = &asked.after {
        let at = all.iter().position(|item| item["id"] == after.as_str());
        let gone = || Problem::invalid_parameter("after", "after names nothing in this list.");
        all.drain(..=at.ok_or_else(gone)?);
    }
    let more = all.len() > asked.limit;
    all.truncate(asked.limit);
    Ok(axum::Json(page(&all, more)).into_response())
}

/// OpenAI's clients, and Anthropic's, know one status for what is wrong with a request.
pub async fn as_openai(request: Request, next: Next) -> Response {
    let mut response = next.run(request).await;
    let problem = response.extensions().get::<std::sync::Arc<Problem>>();
    if let Some(problem) = problem.filter(|problem| is_invalid(problem)) {
        let problem = Problem { status: StatusCode::BAD_REQUEST, ..(**problem).clone() };
        let kept = std::mem::take(response.headers_mut());
        response = problem.into_response();
        for (name, value) in kept.iter().filter(|(name, _)| **name != header::CONTENT_LENGTH) {
            response.headers_mut().insert(name.clone(), value.clone());
        }
    }
    response
}

/// Of the others OpenAI has no word: a key that came before with another body stays what it is everywhere, and so does
/// what a provider says.
fn is_invalid(problem: &Problem) -> bool {
    problem.status == StatusCode::UNPROCESSABLE_ENTITY
        && !matches!(problem.code, "idempotency_key_reused" | "model_error")
}

/// Failures in words, for clients that show the body of one to their user: those call by `fetch`, which says so, in a
/// browser and elsewhere. Everyone else, and who asks for JSON, gets the problem.
pub async fn in_words(request: Request, next: Next) -> Response {
    let accept = request.headers().get(header::ACCEPT).and_then(|accept| accept.to_str().ok());
    let json = accept.is_some_and(|accept| accept.contains("json"));
    let shown = request.headers().contains_key("sec-fetch-mode") && !json;
    let mut response = next.run(request).await;
    if !shown {
        return response;
    }
    let Some(problem) = response.extensions_mut().remove::<std::sync::Arc<Problem>>() else {
        return response;
    };
    let kept = std::mem::take(response.headers_mut());
    let mut told = (problem.status, problem.detail.clone()).into_response();
    for (name, value) in &kept {
        if *name != header::CONTENT_LENGTH && *name != header::CONTENT_TYPE {
            told.headers_mut().insert(name.clone(), value.clone());
        }
    }
    told.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static("text/plain; charset=utf-8"));
    told
}
