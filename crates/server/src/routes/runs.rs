//! Runs: `/v1/runs/{id}`, and those of a conversation.

use axum::extract::{RawQuery, State};
use axum::http::{HeaderMap, StatusCode};
use axum::response::{IntoResponse, Response};
use domain::answer::replay_length;
use domain::entry::decode;
use domain::run::{Run, RunError, RunStatus, StartTurn};
use domain::scope::Scope;
use domain::time::rfc3339;
use domain::wire::Wire;
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use store::StoreError;
use utoipa::ToSchema;
use uuid::Uuid;

use super::turns::{read_message, wire};
use super::workspaces::path_id;
use crate::extract::paging::{List, bad_after, pairs};
use crate::extract::{Caller, JsonBody, Named, Paging, Path};
use crate::problem::Problem;
use crate::state::AppState;
use crate::stream::respond;
use crate::words;

#[derive(Debug, Serialize, ToSchema)]
pub struct RunView {
    id: Uuid,
    conversation: Option<Uuid>,
    execution: Option<Uuid>,
    /// `queued`, `running`, `succeeded`, `failed`, `cancelled` or `interrupted`.
    #[schema(value_type = words::RunStatus)]
    status: RunStatus,
    message: Option<Uuid>,
    assistant_message: Option<Uuid>,
    /// Who asked for it, in the list of a conversation's runs, where that is somebody else; empty for a service key.
    #[serde(skip_serializing_if = "Option::is_none")]
    user: Option<String>,
    usage: UsageView,
    #[schema(value_type = Option<Object>)]
    error: Option<RunError>,
    last_event: i64,
    created_at: String,
    started_at: Option<String>,
    ended_at: Option<String>,
}

#[derive(Debug, Serialize, ToSchema)]
pub struct UsageView {
    input_tokens: i64,
    output_tokens: i64,
    total_tokens: i64,
}

pub(super) fn shape(run: Run) -> RunView {
    let (input_tokens, output_tokens) = (run.usage.input_tokens, run.usage.output_tokens);
    // What never started has a log all the same: its turn, its error, its end.
    let least = if run.status.is_settled() { replay_length(None) } else { 0 };
    RunView {
        id: run.id,
        conversation: run.conversation,
        execution: run.execution,
        status: run.status,
        message: run.message,
        assistant_message: run.assistant_message,
        user: None,
        usage: UsageView { input_tokens, output_tokens, total_tokens: input_tokens + output_tokens },
        error: run.error,
        last_event: run.last_event.max(least),
        created_at: rfc3339(run.created_at),
        started_at: run.started_at.map(rfc3339),
        ended_at: run.ended_at.map(rfc3339),
    }
}

/// One run.
#[utoipa::path(get, path = "/v1/runs/{id}", operation_id = "get_run", tag = "runs", params(("id" = Uuid, Path), ("workspace" = Option<Uuid>, Query)),
    responses((status = 200, body = RunView), (status = 404)))]
pub async fn show(
    State(app): State<AppState>,
    caller: Caller,
    named: Named,
    Path(id): Path<String>,
    _: Paging,
) -> Result<Response, Problem> {
    let scope = caller.scope(named).await?;
    Ok(axum::Json(shape(app.store.get_run(&scope, path_id(&id)?).await?)).into_response())
}

/// Attaches to a run, or resumes after an event.
#[utoipa::path(get, path = "/v1/runs/{id}/events", operation_id = "follow_run", tag = "runs",
    params(("id" = Uuid, Path), ("workspace" = Option<Uuid>, Query), ("wire" = Option<String>, Query),
        ("after" = Option<i64>, Query, description = "The number of the last event seen"), ("Last-Event-ID" = Option<i64>, Header)),
    responses((status = 200, description = "The run's events", content((String = "text/event-stream"), (String = "application/x-ndjson"))), (status = 400), (status = 404)))]
pub async fn events(
    State(app): State<AppState>,
    caller: Caller,
    named: Named,
    Path(id): Path<String>,
    RawQuery(query): RawQuery,
    headers: HeaderMap,
) -> Result<Response, Problem> {
    let wire = wire(query.as_deref(), &headers, &["after"], Wire::Envelope)?;
    let after = after(query.as_deref(), &headers)?;
    let scope = caller.scope(named).await?;
    let run = app.store.get_run(&scope, path_id(&id)?).await?;
    let follower = app.turns.follow(app.turns.open_stream(&scope)?, run.id, after).await;
    let follower = follower.map_err(|error| beyond(error.into(), &headers))?;
    Ok(respond(follower, wire, caller, &run))
}

/// A number that no event of the run has, by the name under which it came.
pub(super) fn beyond(problem: Problem, headers: &HeaderMap) -> Problem {
    match problem.code == "invalid_parameter" && headers.contains_key("last-event-id") {
        true => Problem::invalid_header("Last-Event-ID", problem.detail),
        false => problem,
    }
}

/// The last event that the reader saw, by header or by query. The header is the newer one: a browser that reconnects
/// sends it to the address it began with.
pub(super) fn after(query: Option<&str>, headers: &HeaderMap) -> Result<i64, Problem> {
    let number = |text: &str| text.trim().parse::<i64>().ok().filter(|n| *n >= 0);
    let (mut header, mut parameter) = (None, None);
    for value in headers.get_all("last-event-id") {
        // As an `EventSource` that has seen nothing has it.
        if value.is_empty() {
            continue;
        }
        let seen = value.to_str().ok().and_then(number);
        let bad =
            || Problem::invalid_header("Last-Event-ID", "Last-Event-ID must be the number of an event.");
        header = Some(seen.ok_or_else(bad)?);
    }
    for (_, value) in pairs(query.unwrap_or(""))?.into_iter().filter(|(name, _)| name == "after") {
        let bad = || Problem::invalid_parameter("after", "after must be the number of an event.");
        parameter = Some(number(&value).ok_or_else(bad)?);
    }
    Ok(header.or(parameter).unwrap_or(0))
}

/// Asks for a run's end. Idempotent.
#[utoipa::path(post, path = "/v1/runs/{id}/cancel", operation_id = "cancel_run", tag = "runs", params(("id" = Uuid, Path), ("workspace" = Option<Uuid>, Query)),
    responses((status = 200, body = RunView), (status = 404)))]
pub async fn cancel(
    State(app): State<AppState>,
    caller: Caller,
    named: Named,
    Path(id): Path<String>,
    _: Paging,
) -> Result<Response, Problem> {
    let scope = caller.scope(named).await?;
    Ok(axum::Json(shape(app.turns.cancel(&scope, path_id(&id)?).await?)).into_response())
}

#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct EditRun {
    /// A text, or blocks of the type `text`.
    #[schema(value_type = words::SaidText)]
    message: Box<RawValue>,
}

/// Changes the message of a queued run.
#[utoipa::path(patch, path = "/v1/runs/{id}", operation_id = "edit_run", tag = "runs", params(("id" = Uuid, Path), ("workspace" = Option<Uuid>, Query)),
    request_body = EditRun, responses((status = 200, body = RunView), (status = 404), (status = 409, description = "It has started")))]
pub async fn edit(
    State(app): State<AppState>,
    caller: Caller,
    named: Named,
    Path(id): Path<String>,
    _: Paging,
    JsonBody(body): JsonBody<EditRun>,
) -> Result<Response, Problem> {
    let scope = caller.scope(named).await?;
    let message = read_message(&body.message)?;
    Ok(axum::Json(shape(app.turns.edit(&scope, path_id(&id)?, &message).await?)).into_response())
}

/// A page of a trace.
#[derive(Debug, Serialize, ToSchema)]
pub struct TraceView {
    data: Vec<TraceLine>,
    /// How many lines of the whole run were not understood.
    rejected: u64,
    next: Option<String>,
}

#[derive(Debug, Serialize, ToSchema)]
pub struct TraceLine {
    seq: i64,
    /// Epoch ms.
    ts: i64,
    kind: &'static str,
    #[schema(value_type = Object)]
    line: Box<RawValue>,
}

/// How much of a log a trace page reads.
const TRACE_BYTES: usize = 1 << 20;

/// Every line of a run, logs too.
#[utoipa::path(get, path = "/v1/runs/{id}/trace", operation_id = "get_trace", tag = "runs",
    params(("id" = Uuid, Path), ("workspace" = Option<Uuid>, Query), ("limit" = Option<u32>, Query), ("after" = Option<i64>, Query)),
    responses((status = 200, description = "A page of it", body = TraceView), (status = 404)))]
pub async fn trace(
    State(app): State<AppState>,
    caller: Caller,
    named: Named,
    Path(id): Path<String>,
    paging: Paging,
) -> Result<Response, Problem> {
    let scope = caller.scope(named).await?;
    let (id, after) = (path_id(&id)?, paging.after::<i64>()?.unwrap_or(0));
    let (mut data, mut rejected, mut place, mut more) = (Vec::new(), 0u64, 0, false);
    loop {
        let page = app.store.read_trace(&scope, id, place, TRACE_BYTES).await?;
        let before = place;
        for line in page.entries.iter().flat_map(|entries| entries.lines()) {
            let entry = decode(line).map_err(|error| StoreError::Internal(error.to_string()))?;
            if entry.n <= before {
                continue;
            }
            place = entry.n;
            rejected += u64::from(entry.kind == "rejected");
            if entry.n > after {
                if data.len() < paging.limit {
                    data.push(TraceLine { seq: entry.n, ts: entry.ts, kind: entry.kind, line: entry.data });
                } else {
                    more = true;
                }
            }
        }
        if place == before {
            break;
        }
    }
    let next = data.last().filter(|_| more).map(|last| last.seq.to_string());
    Ok(axum::Json(TraceView { data, rejected, next }).into_response())
}

/// A conversation's runs, newest first.
#[utoipa::path(get, path = "/v1/chat-conversations/{id}/runs", operation_id = "list_runs", tag = "runs",
    params(("id" = Uuid, Path), ("workspace" = Option<Uuid>, Query), ("limit" = Option<u32>, Query), ("after" = Option<String>, Query)),
    responses((status = 200, description = "A page of them", body = List<RunView>), (status = 404)))]
pub async fn of_conversation(
    State(app): State<AppState>,
    caller: Caller,
    named: Named,
    Path(id): Path<String>,
    paging: Paging,
) -> Result<Response, Problem> {
    let (scope, id, after) = (caller.scope(named).await?, path_id(&id)?, paging.after()?);
    let rows = app.store.list_runs(&scope, id, after, paging.rows()).await?;
    if let Some(after) = after {
        run_of(&app, &scope, id, after).await?;
    }
    let view = |run: Run| {
        let user = Some(run.user.clone().unwrap_or_default()).filter(|user| *user != scope.user);
        RunView { user, ..shape(run) }
    };
    Ok(axum::Json(paging.list(rows, |run| run.id.to_string(), view)).into_response())
}

/// The run that a cursor names.
async fn run_of(app: &AppState, scope: &Scope, conversation: Uuid, after: Uuid) -> Result<Run, Problem> {
    match app.store.get_run(scope, after).await {
        Ok(run) if run.conversation == Some(conversation) => Ok(run),
        Ok(_) | Err(StoreError::NotFound) => Err(bad_after()),
        Err(error) => Err(error.into()),
    }
}

#[derive(Debug, Serialize, ToSchema)]
pub struct QueuedView {
    #[serde(flatten)]
    run: RunView,
    /// The message as plain text; null where an answer is made anew.
    text: Option<String>,
    /// The ids of the message's files.
    attachments: Vec<Uuid>,
}

/// The queued turns of a conversation, in the order they will start.
#[utoipa::path(get, path = "/v1/chat-conversations/{id}/queue", operation_id = "list_queue", tag = "runs",
    params(("id" = Uuid, Path), ("workspace" = Option<Uuid>, Query), ("limit" = Option<u32>, Query), ("after" = Option<String>, Query)),
    responses((status = 200, description = "A page of them", body = List<QueuedView>), (status = 404)))]
pub async fn queue(
    State(app): State<AppState>,
    caller: Caller,
    named: Named,
    Path(id): Path<String>,
    paging: Paging,
) -> Result<Response, Problem> {
    let (scope, id) = (caller.scope(named).await?, path_id(&id)?);
    let mut queued = app.store.list_queue(&scope, id).await?;
    if let Some(after) = paging.after()? {
        match queued.iter().position(|(run, _)| run.id == after) {
            Some(at) => drop(queued.drain(..=at)),
            None => {
                let gone = run_of(&app, &scope, id, after).await?;
                // One that has started since has left those behind it; so has one that was taken back, but for those
                // that were before it.
                if gone.started_at.is_none() {
                    queued.retain(|(run, _)| (run.created_at, run.id) > (gone.created_at, gone.id));
                }
            }
        }
    }
    let view = |(run, turn): (_, StartTurn)| QueuedView {
        run: shape(run),
        text: turn.message.map(|message| message.text),
        attachments: turn.attachments.unwrap_or_default(),
    };
    Ok(axum::Json(paging.list(queued, |(run, _)| run.id.to_string(), view)).into_response())
}

/// Ends the run under way by hand, for admins.
#[utoipa::path(delete, path = "/v1/chat-conversations/{id}/lock", operation_id = "clear_lock", tag = "runs",
    params(("id" = Uuid, Path), ("workspace" = Option<Uuid>, Query)),
    responses((status = 204), (status = 403), (status = 404)))]
pub async fn clear_lock(
    State(app): State<AppState>,
    caller: Caller,
    named: Named,
    Path(id): Path<String>,
    _: Paging,
) -> Result<StatusCode, Problem> {
    let id = path_id(&id)?;
    let scope = caller.scope(named).await?;
    // What the caller may not see does not exist, before it is a question of rights.
    app.store.get_thread(&scope, id, None.into()).await?;
    if !scope.administers {
        return Err(Problem::forbidden("Clearing a lock is for admins of the workspace."));
    }
    app.turns.clear_lock(&scope, id).await?;
    Ok(StatusCode::NO_CONTENT)
}
