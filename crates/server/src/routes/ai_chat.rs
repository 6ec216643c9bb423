//! For `useChat` of the Vercel AI SDK: `/v1/ai/chat`, and a chat's stream and stop.

use std::collections::HashSet;

use axum::extract::{FromRequest, RawQuery, Request, State};
use axum::http::{HeaderMap, StatusCode};
use axum::response::{IntoResponse, Response};
use domain::message::Window;
use domain::run::Run;
use domain::scope::Scope;
use domain::wire::{Renderer, Wire, ui_message};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use turn::Stream;
use utoipa::ToSchema;
use uuid::Uuid;

use super::runs::after;
use super::turns::idempotency;
use crate::dialect::go_on::go_on;
use crate::dialect::open::{Opened, active_run, client_id, conversation_id, open};
use crate::dialect::{ai, member, workspace_in};
use crate::extract::body::{Body, check_json, parse};
use crate::extract::{Caller, Named, Paging, Path};
use crate::problem::Problem;
use crate::state::AppState;
use crate::stream::{Telling, respond_as};

/// How many runs are read at once.
const RUNS: usize = 100;

/// Answers a chat's last message, as a UI message stream.
#[utoipa::path(post, path = "/v1/ai/chat", operation_id = "ai_chat", tag = "clients",
    request_body(content = Object, description = "`{ id, messages, trigger, messageId }` or `{ id, message }` as the AI SDK sends it, with what else `POST /v1/turns` takes: `mode`, `model`, `agent`, `on_busy`, `workspace`, …"),
    params(("workspace" = Option<Uuid>, Query), ("Idempotency-Key" = Option<String>, Header)),
    responses((status = 200, description = "The UI message stream", content_type = "text/event-stream", body = String),
        (status = 400), (status = 404), (status = 409, description = "Busy"), (status = 422), (status = 429)))]
pub async fn chat(
    State(app): State<AppState>,
    caller: Caller,
    named: Named,
    _: Paging,
    request: Request,
) -> Result<Response, Problem> {
    let headers = request.headers().clone();
    check_json(&headers)?;
    let Body(bytes) = Body::from_request(request, &app).await?;
    let body: Value = parse(&bytes)?;
    let named = named.and(member(&body, "", "workspace")?)?;
    let asked = ai::read(&body)?;
    let scope = caller.scope(named).await?;
    let answered: Result<Response, Problem> = async {
        // Before anything is written.
        let stream = app.turns.open_stream(&scope)?;
        match open(&app, &scope, asked, idempotency(&headers, &bytes)?).await? {
            Opened::Started(run) => {
                let follower = app.turns.follow_started(stream, run.id);
                let renderer = Renderer::after(Wire::UiMessage, 0).at(&app.public_url);
                let telling = Telling { pauses: true, ..Telling::plain(renderer) };
                Ok(respond_as(follower, telling, caller, &run))
            }
            Opened::Found(run) => whole(&app, stream, caller, &run, 0).await,
            Opened::Decided(run, _) => {
                let renderer = |after| Renderer::after(Wire::UiMessage, after).at(&app.public_url);
                let (telling, follower) = go_on(&app, &scope, stream, run.id, renderer).await?;
                Ok(respond_as(follower, telling, caller, &run))
            }
        }
    }
    .await;
    let message = if body["message"].is_null() { "/messages" } else { "/message" };
    let answered = answered.map_err(|refused| refused.renamed("/message", message));
    app.tell_limits(&scope, None, answered).await
}

/// A run from its first chunk on, or from after an event.
async fn whole(
    app: &AppState,
    stream: Stream,
    caller: Caller,
    run: &Run,
    after: i64,
) -> Result<Response, Problem> {
    let mut follower = app.turns.follow(stream, run.id, after).await?;
    let renderer = Renderer::after(Wire::UiMessage, follower.rewind()).at(&app.public_url);
    let telling = Telling { pauses: true, ..Telling::plain(renderer) };
    Ok(respond_as(follower, telling, caller, run))
}

/// What has been said in a chat, as the AI SDK keeps it: for a page that is opened again.
#[utoipa::path(get, path = "/v1/ai/chat/{id}", operation_id = "get_ai_chat", tag = "clients",
    params(("id" = String, Path), ("workspace" = Option<Uuid>, Query)),
    responses((status = 200, description = "`{ id, messages: UIMessage[] }`", body = Object), (status = 404)))]
pub async fn show(
    State(app): State<AppState>,
    caller: Caller,
    named: Named,
    Path(id): Path<String>,
    _: Paging,
) -> Result<Response, Problem> {
    let scope = caller.scope(named).await?;
    let conversation = conversation_id(&app, &scope, &id).await?;
    let thread = app.store.get_thread(&scope, conversation, Some(Window::All).into()).await?;
    let (base, chat) = (&app.public_url, conversation.to_string());
    let runs = runs_of(&app, &scope, conversation).await?;
    let mut messages = Vec::new();
    // The AI SDK takes no message without a part.
    for message in thread.messages.iter().filter(|message| !message.is_removed()) {
        let name = client_id(message).unwrap_or_else(|| message.id.to_string());
        // The answer has the id of its run.
        let run = match runs.contains(&message.id) {
            true if message.content.contains(r#""type":"tool_call""#) => {
                Some(app.store.list_approvals(scope.workspace, message.id).await?)
            }
            true => Some(Vec::new()),
            false => None,
        };
        messages.push(ui_message(base, &chat, &name, message, run.as_deref()));
    }
    Ok(axum::Json(json!({ "id": id, "messages": messages })).into_response())
}

/// Every run that a conversation has had.
async fn runs_of(app: &AppState, scope: &Scope, conversation: Uuid) -> Result<HashSet<Uuid>, Problem> {
    let (mut all, mut before) = (HashSet::new(), None);
    loop {
        let runs = app.store.list_runs(scope, conversation, before, RUNS).await?;
        before = runs.last().map(|run| run.id);
        all.extend(runs.iter().map(|run| run.id));
        if runs.len() < RUNS {
            return Ok(all);
        }
    }
}

/// The chat's run under way, from its first chunk on.
#[utoipa::path(get, path = "/v1/ai/chat/{id}/stream", operation_id = "ai_chat_stream", tag = "clients",
    params(("id" = String, Path), ("workspace" = Option<Uuid>, Query), ("Last-Event-ID" = Option<i64>, Header)),
    responses((status = 200, description = "The UI message stream", content_type = "text/event-stream", body = String),
        (status = 204, description = "Nothing is under way")))]
#[expect(clippy::too_many_arguments, reason = "each is a part of the request")]
pub async fn stream(
    State(app): State<AppState>,
    caller: Caller,
    named: Named,
    Path(id): Path<String>,
    RawQuery(query): RawQuery,
    _: Paging,
    headers: HeaderMap,
) -> Result<Response, Problem> {
    let scope = caller.scope(named).await?;
    let after = after(query.as_deref(), &headers)?;
    match active_run(&app, &scope, conversation_id(&app, &scope, &id).await?).await? {
        None => Ok(StatusCode::NO_CONTENT.into_response()),
        Some(run) => whole(&app, app.turns.open_stream(&scope)?, caller, &run, after).await,
    }
}

#[derive(Debug, Default, Deserialize, ToSchema)]
pub struct StopChat {
    /// The run that is meant: another one goes on.
    #[serde(rename = "activeStreamId")]
    active_stream_id: Option<String>,
}

#[derive(Debug, Serialize, ToSchema)]
pub struct StoppedChat {
    /// The run that was stopped; null where none was under way, or another one.
    run: Option<Uuid>,
}

/// Stops the chat's run under way.
#[utoipa::path(post, path = "/v1/ai/chat/{id}/stop", operation_id = "stop_ai_chat", tag = "clients",
    request_body(content = StopChat, description = "May be left out"),
    params(("id" = String, Path), ("workspace" = Option<Uuid>, Query)),
    responses((status = 200, body = StoppedChat), (status = 404)))]
pub async fn stop(
    State(app): State<AppState>,
    caller: Caller,
    named: Named,
    Path(id): Path<String>,
    _: Paging,
    request: Request,
) -> Result<Response, Problem> {
    let Body(bytes) = Body::from_request(request, &app).await?;
    let body: StopChat = if bytes.is_empty() { StopChat::default() } else { parse(&bytes)? };
    let scope = caller.scope(named.and(workspace_in(&bytes)?)?).await?;
    let conversation = conversation_id(&app, &scope, &id).await?;
    app.store.get_thread(&scope, conversation, None.into()).await?;
    let active = active_run(&app, &scope, conversation).await?;
    let meant = |run: &Run| body.active_stream_id.as_ref().is_none_or(|id| *id == run.id.to_string());
    let run = match active.filter(meant) {
        Some(run) => Some(app.turns.cancel(&scope, run.id).await?.id),
        None => None,
    };
    Ok(axum::Json(StoppedChat { run }).into_response())
}
