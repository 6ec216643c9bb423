//! For AG-UI clients: `/v1/ag-ui`, and `/v1/ag-ui/connect` to join a run under way.

use axum::extract::{FromRequest, Request, State};
use axum::http::header;
use axum::response::{IntoResponse, Response};
use domain::approval::all_undecided;
use domain::message::Window;
use domain::wire::{Renderer, Wire, ag_ui_messages};
use serde_json::{Value, json};
use turn::Seen;

use super::turns::idempotency;
use crate::dialect::go_on::go_on;
use crate::dialect::open::{Opened, active_run, conversation_id, open, thread};
use crate::dialect::{ag_ui, log};
use crate::extract::body::{Body, check_json, parse};
use crate::extract::{Caller, JsonBody, Named, Paging};
use crate::problem::Problem;
use crate::state::AppState;
use crate::stream::{Telling, let_through, respond_as};

/// Answers a thread's last message as AG-UI events.
#[utoipa::path(post, path = "/v1/ag-ui", operation_id = "run_ag_ui", tag = "clients",
    request_body(content = Object, description = "`RunAgentInput`; `forwardedProps` takes what `POST /v1/turns` does beside the message"),
    params(("workspace" = Option<Uuid>, Query), ("Idempotency-Key" = Option<String>, Header)),
    responses((status = 200, description = "The events", content_type = "text/event-stream", body = String),
        (status = 400), (status = 404), (status = 409, description = "Busy"), (status = 422), (status = 429)))]
pub async fn run(
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
    let named = ag_ui::named(named, &body)?;
    let ag_ui::Input { thread, run: name, asked } = ag_ui::read(&body)?;
    let scope = caller.scope(named).await?;
    let answered: Result<Response, Problem> = async {
        // Before anything is written.
        let stream = app.turns.open_stream(&scope)?;
        let renderer =
            |after| Renderer::after(Wire::AgUi, after).at(&app.public_url).named(&thread, name.as_deref());
        let (telling, follower, run) = match open(&app, &scope, asked, idempotency(&headers, &bytes)?).await?
        {
            Opened::Started(run) => {
                (Telling::plain(renderer(0)), app.turns.follow_started(stream, run.id), run)
            }
            Opened::Found(run) => {
                (Telling::plain(renderer(0)), app.turns.follow(stream, run.id, 0).await?, run)
            }
            Opened::Decided(run, _) => {
                let (telling, follower) = go_on(&app, &scope, stream, run.id, renderer).await?;
                (telling, follower, run)
            }
        };
        Ok(respond_as(follower, Telling { pauses: true, ..telling }, caller, &run))
    }
    .await;
    let answered = answered.map_err(|refused| refused.renamed("/message", "/messages"));
    app.tell_limits(&scope, None, answered).await
}

/// Makes the renderer remember what its reader has already.
fn push<'a>(renderer: &mut Renderer, events: impl Iterator<Item = &'a Seen>) {
    let mut unseen = Vec::new();
    for event in events {
        renderer.push(event.seq, event.ts, event.kind, &event.data, &mut unseen);
    }
}

/// All messages of a thread, and what is under way in it.
#[utoipa::path(post, path = "/v1/ag-ui/connect", operation_id = "connect_ag_ui", tag = "clients",
    request_body(content = Object, description = "`{ threadId, runId? }`, or a whole `RunAgentInput`"),
    params(("workspace" = Option<Uuid>, Query)),
    responses((status = 200, description = "The events", content_type = "text/event-stream", body = String), (status = 422)))]
pub async fn connect(
    State(app): State<AppState>,
    caller: Caller,
    named: Named,
    _: Paging,
    JsonBody(body): JsonBody<Value>,
) -> Result<Response, Problem> {
    let named = ag_ui::named(named, &body)?;
    let (thread_name, name) = (ag_ui::thread_id(&body)?, crate::dialect::name(&body, "", "runId")?);
    let scope = caller.scope(named).await?;
    let id = conversation_id(&app, &scope, &thread_name).await?;
    // Asked before the thread is read: what ends in between is told once, from its log.
    let active = active_run(&app, &scope, id).await?;
    let found = thread(&app, &scope, id, Window::All).await?;
    let mut stored = found.map(|thread| thread.messages).unwrap_or_default();
    let events = match &active {
        Some(run) => log::so_far(&app, &scope, run.id).await?,
        None => Vec::new(),
    };
    if let Some(run) = &active {
        stored.retain(|message| message.id != run.id);
    }
    let mut messages = ag_ui::messages(&app.public_url, id, &stored);
    let told = events.iter().map(|event| (event.kind, &*event.data));
    ag_ui_messages(&app.public_url, told, &mut messages);
    ag_ui::newest(&mut messages);
    let after = events.last().map_or(0, |event| event.seq);
    let run_name =
        name.or(active.as_ref().map(|run| run.id.to_string())).unwrap_or_else(|| thread_name.clone());
    let mut renderer =
        Renderer::after(Wire::AgUi, after).at(&app.public_url).named(&thread_name, Some(&run_name));
    push(&mut renderer, events.iter());
    let mut opening = Vec::new();
    renderer.join(&messages, &mut opening);
    let over = events.last().is_some_and(|event| event.kind == "done");
    let Some(run) = active.filter(|_| !over) else {
        let finished = json!({ "type": "RUN_FINISHED", "threadId": thread_name, "runId": run_name });
        opening.extend_from_slice(format!("data: {finished}\n\n").as_bytes());
        return Ok(at_once(opening));
    };
    let asked = app.store.list_approvals(scope.workspace, run.id).await?;
    if all_undecided(&asked, renderer.resting()) {
        renderer.pause(&mut opening);
        return Ok(at_once(opening));
    }
    let follower = app.turns.follow(app.turns.open_stream(&scope)?, run.id, after).await?;
    let telling = Telling { opening, pauses: true, ..Telling::plain(renderer) };
    Ok(respond_as(follower, telling, caller, &run))
}

/// A stream that is whole already.
fn at_once(events: Vec<u8>) -> Response {
    let mut response = ([(header::CONTENT_TYPE, "text/event-stream")], events).into_response();
    let_through(response.headers_mut());
    response
}
