//! OpenAI's Responses: `/v1/responses`. A response is a run, its id is the run's.

use axum::extract::{FromRequest, RawQuery, Request, State};
use axum::http::{HeaderMap, StatusCode, Uri};
use axum::response::{IntoResponse, Response};
use domain::approval::{Approval, all_undecided};
use domain::message::Window;
use domain::run::Run;
use domain::scope::Scope;
use domain::wire::{Renderer, Responses};
use serde_json::{Value, json};
use store::StoreError;
use store::turns::{Asking, Idempotency};
use turn::{Follower, Seen};
use upstream::trace;
use uuid::Uuid;

use super::runs::after as last_event;
use super::turns::idempotency;
use crate::dialect::decide::waited;
use crate::dialect::go_on::paused;
use crate::dialect::open::{Opened, busy_is_locked, check_owns, open};
use crate::dialect::responses::{Create, base, is_first, own_id, read, response_id};
use crate::dialect::told::items_alone;
use crate::dialect::{Asked, log, member, openai_list, workspace_in};
use crate::extract::body::{Body, check_json, parse};
use crate::extract::paging::pairs;
use crate::extract::{Caller, Named, Path};
use crate::forget::Forget;
use crate::gateway::unknown_model;
use crate::problem::Problem;
use crate::state::AppState;
use crate::stream::{Telling, respond_as};

/// A wrong method. Two of OpenAI's own stand where a response's id would, and are not offered: only a provider can count
/// its tokens, and a conversation is cut to the model's window by itself.
pub async fn not_offered(uri: Uri) -> Problem {
    let detail = match uri.path() {
        "/v1/responses/input_tokens" => {
            "Tokens are not counted ahead here: each provider counts its own. A response's usage has the count."
        }
        "/v1/responses/compact" => {
            "Responses are not compacted here: what no longer fits is left out of the prompt by itself."
        }
        _ => return Problem::method_not_allowed(),
    };
    Problem::new(StatusCode::NOT_FOUND, "not_offered", "Not offered", detail)
}

/// Starts a response, streaming or not.
#[utoipa::path(post, path = "/v1/responses", operation_id = "create_response", tag = "clients",
    request_body(content = Object, description = "As OpenAI's; `model` is a model's name, `agent`, `task_flow` or the id of an agent"),
    params(("workspace" = Option<Uuid>, Query), ("Idempotency-Key" = Option<String>, Header)),
    responses((status = 200, description = "The response, or its events", content((Object = "application/json"), (String = "text/event-stream"))), (status = 400), (status = 404)))]
pub async fn create(
    State(app): State<AppState>,
    caller: Caller,
    named: Named,
    request: Request,
) -> Result<Response, Problem> {
    let headers = request.headers().clone();
    check_json(&headers)?;
    let Body(bytes) = Body::from_request(request, &app).await?;
    let body: Value = parse(&bytes)?;
    let Create { mut asked, stream, background, store, previous } = read(&body)?;
    let named = named.and(member(&body, "", "workspace")?)?;
    let caller = caller.naming(asked.conversation.is_some());
    let scope = caller.scope(named).await?;
    let answered: Result<Response, Problem> = async {
        if let Some(model) = &asked.options.model {
            app.models.find(model).map_err(unknown_model)?;
        }
        let key = idempotency(&headers, &bytes)?;
        let repeated = app.turns.find_repeated(&scope, key.as_ref()).await?.is_some();
        if repeated {
            // Its run is the answer: no branch is gone on with once more.
        } else if let Some(previous) = &previous {
            (asked.conversation, asked.replace) = place(&app, &scope, previous).await?;
        } else if let Some(name) = &asked.conversation {
            let id = own_id(name, "conv")?;
            app.store.get_thread(&scope, id, None.into()).await?;
            asked.conversation = Some(id.to_string());
        }
        let place = app.turns.open_stream(&scope)?;
        let (echo, model) = (asked.echo.clone(), asked.options.model.clone());
        let (opened, forget) = open_whole(&caller, named, &scope, asked, key, store).await?;
        let voice = |run: &Run| Responses::new(base(run, echo.as_ref(), model.as_deref()));
        let (follower, voice, run) = match opened {
            Opened::Started(run) => (app.turns.follow_started(place, run.id), voice(&run), run),
            Opened::Found(run) => (app.turns.follow(place, run.id, 0).await?, voice(&run), run),
            // It is the same response that goes on.
            Opened::Decided(run, decided) => {
                let voice = voice_since(&app, &scope, run.id, &decided).await?;
                (app.turns.follow(place, run.id, 0).await?, voice, run)
            }
        };
        if stream {
            let telling = Telling { forget, pauses: true, ..Telling::plain(Renderer::responses(voice, -1)) };
            return Ok(respond_as(follower, telling, caller, &run));
        }
        let whole =
            if background { voice.whole() } else { to_an_end(&app, &scope, follower, voice, &run).await? };
        if let Some(forget) = forget {
            forget.now().await?;
        }
        let mut response = axum::Json(whole).into_response();
        crate::stream::tell_ids(response.headers_mut(), &run);
        Ok(response)
    }
    .await;
    // The engine's names of what is here `input` and `model`.
    let answered =
        answered.map_err(|refused| refused.renamed("/message", "/input").renamed("/agent", "/model"));
    app.tell_limits(&scope, None, answered).await
}

/// Opens it to the end though the client goes away meanwhile, so that what is not to be kept is left by nobody.
async fn open_whole(
    caller: &Caller,
    named: Named,
    scope: &Scope,
    asked: Asked,
    idempotency: Option<Idempotency>,
    store: bool,
) -> Result<(Opened, Option<Forget>), Problem> {
    let (caller, scope) = (caller.clone(), scope.clone());
    let tasks = caller.app().tasks.clone();
    let work = async move {
        let opened = open(caller.app(), &scope, asked, idempotency).await.map_err(busy_is_locked)?;
        // A request that is repeated takes nothing away from the first.
        let own = !matches!(opened, Opened::Found(_));
        let unkept = opened.run().conversation.filter(|_| own && !store);
        let forget = unkept.map(|conversation| Forget::new(&caller, named, conversation));
        Ok((opened, forget))
    };
    let done = tasks.spawn(trace::within(trace::current(), work)).await;
    done.unwrap_or_else(|panicked| Err(StoreError::Internal(panicked.to_string()).into()))
}

/// The conversation that goes on after a response, and the message that a new one would take the place of.
async fn place(
    app: &AppState,
    scope: &Scope,
    previous: &str,
) -> Result<(Option<String>, Option<Uuid>), Problem> {
    let missing = || {
        Problem::new(
            StatusCode::BAD_REQUEST,
            "previous_response_not_found",
            "Not found",
            format!("There is no response {previous:?} to go on from."),
        )
        .at(crate::jsonapi::error::Source::pointer("/previous_response_id"))
    };
    let asking = asking(app, scope, previous).await.map_err(|_| missing())?;
    let conversation = asking.run.conversation.ok_or_else(missing)?;
    // An answer that is not there yet goes with its question.
    for message in [asking.run.assistant_message, asking.run.message].into_iter().flatten() {
        let Some(on) = app.store.find_way_on(scope, conversation, message).await? else { continue };
        if !on.current {
            app.store.select_branch(scope, conversation, on.branch, app.clock.now()).await?;
        }
        return Ok((Some(conversation.to_string()), on.next));
    }
    Err(missing())
}

/// The run behind a response's id, with what was asked for.
async fn asking(app: &AppState, scope: &Scope, id: &str) -> Result<Asking, Problem> {
    let asking = app.store.get_asking(scope, own_id(id, "resp")?).await?;
    if asking.forgotten || asking.run.conversation.is_none() {
        return Err(Problem::not_found());
    }
    Ok(asking)
}

fn voice_of(asking: &Asking) -> Responses {
    let turn = &asking.turn;
    Responses::new(base(&asking.run, turn.brought.echo.as_ref(), turn.model.as_deref()))
}

/// A response that goes on after decisions: what came before its client has. What still waits is told once more.
async fn voice_since(
    app: &AppState,
    scope: &Scope,
    run: Uuid,
    decided: &[Uuid],
) -> Result<Responses, Problem> {
    let asking = app.store.get_asking(scope, run).await?;
    let known = app.store.list_approvals(scope.workspace, run).await?;
    let over = known.iter().filter(|one| one.decision.is_some()).map(|one| one.id.to_string());
    let (brought, mut unmade) = (&asking.turn.brought, Vec::new());
    if !brought.tools.is_empty() {
        let waits = |id: &String| {
            let is = |one: &Approval| one.id.to_string() == *id && brought.makes(&one.call.name);
            known.iter().any(|one| one.decision.is_none() && is(one))
        };
        let calls = waited(app, scope, run).await?;
        unmade = calls.into_iter().filter(|(_, id)| waits(id)).map(|(call, _)| call).collect();
    }
    let names: Vec<String> = decided.iter().map(Uuid::to_string).collect();
    let asks = |event: &Seen| names.iter().any(|name| event.data.contains(name.as_str()));
    let from = paused(app, scope, run, asks).await?;
    Ok(voice_of(&asking).going_on(from, over.collect(), unmade))
}

/// The response at its end, or where people have to decide before it goes on.
async fn to_an_end(
    app: &AppState,
    scope: &Scope,
    mut follower: Follower,
    mut voice: Responses,
    run: &Run,
) -> Result<Value, Problem> {
    let mut out = Vec::new();
    while let Some(events) = follower.next().await? {
        for event in events {
            if event.kind == "done" {
                voice.know(app.store.get_run(scope, run.id).await?.usage);
            }
            voice.push(event.seq, event.ts, event.kind, &event.data, i64::MAX, &mut out);
        }
        if pause(app, scope, run.id, &mut voice).await? {
            break;
        }
    }
    Ok(voice.whole())
}

/// Ends the response for now where its run does nothing but wait for people; answers whether.
async fn pause(app: &AppState, scope: &Scope, run: Uuid, voice: &mut Responses) -> Result<bool, Problem> {
    if voice.resting().is_empty() {
        return Ok(false);
    }
    let found = app.store.get_run(scope, run).await?;
    let known = app.store.list_approvals(scope.workspace, run).await?;
    let ends = found.cancel_requested || found.status.is_settled();
    let rests = !ends && all_undecided(&known, voice.resting());
    if rests {
        voice.know(found.usage);
        voice.pause(i64::MAX, &mut Vec::new());
    }
    Ok(rests)
}

/// The response as it stands.
async fn as_it_stands(app: &AppState, scope: &Scope, asking: &Asking) -> Result<Value, Problem> {
    let mut voice = voice_of(asking);
    if asking.run.status.is_settled() {
        voice.know(asking.run.usage);
    }
    let push =
        |event: Seen| voice.push(event.seq, event.ts, event.kind, &event.data, i64::MAX, &mut Vec::new());
    log::each(app, scope, asking.run.id, push).await?;
    pause(app, scope, asking.run.id, &mut voice).await?;
    Ok(voice.whole())
}

/// A response, or with `stream=true` its events.
#[utoipa::path(get, path = "/v1/responses/{id}", operation_id = "get_response", tag = "clients",
    params(("id" = String, Path), ("workspace" = Option<Uuid>, Query), ("stream" = Option<bool>, Query),
        ("starting_after" = Option<i64>, Query, description = "The `sequence_number` of the last event seen"),
        ("include_obfuscation" = Option<bool>, Query, description = "There is none"), ("Last-Event-ID" = Option<i64>, Header)),
    responses((status = 200, description = "As OpenAI's", content((Object = "application/json"), (String = "text/event-stream"))), (status = 400), (status = 404)))]
pub async fn retrieve(
    State(app): State<AppState>,
    caller: Caller,
    named: Named,
    Path(id): Path<String>,
    RawQuery(query): RawQuery,
    headers: HeaderMap,
) -> Result<Response, Problem> {
    let (mut stream, mut after) = (false, -1);
    for (name, value) in pairs(query.as_deref().unwrap_or(""))? {
        match name.as_str() {
            "stream" => {
                let bad = |_| Problem::invalid_parameter("stream", "stream must be true or false.");
                stream = value.parse().map_err(bad)?;
            }
            "starting_after" => {
                let bad =
                    |_| Problem::invalid_parameter("starting_after", "starting_after must be a number.");
                after = value.parse().map_err(bad)?;
            }
            "workspace" | "include" | "include[]" | "include_obfuscation" => {}
            _ => return Err(Problem::unknown_parameter(&name)),
        }
    }
    let scope = caller.scope(named).await?;
    let asking = asking(&app, &scope, &id).await?;
    if !stream {
        return Ok(axum::Json(as_it_stands(&app, &scope, &asking).await?).into_response());
    }
    let seen = last_event(None, &headers)?;
    let mut follower = app.turns.follow(app.turns.open_stream(&scope)?, asking.run.id, seen).await?;
    follower.rewind();
    let renderer = Renderer::responses(voice_of(&asking), after).since(seen);
    let telling = Telling { pauses: true, ..Telling::plain(renderer) };
    Ok(respond_as(follower, telling, caller, &asking.run))
}

/// Ends a response that is under way.
#[utoipa::path(post, path = "/v1/responses/{id}/cancel", operation_id = "cancel_response", tag = "clients",
    params(("id" = String, Path), ("workspace" = Option<Uuid>, Query)),
    responses((status = 200, description = "As OpenAI's", body = Object), (status = 404)))]
pub async fn cancel(
    State(app): State<AppState>,
    caller: Caller,
    named: Named,
    Path(id): Path<String>,
    Body(bytes): Body,
) -> Result<Response, Problem> {
    let scope = caller.scope(named.and(workspace_in(&bytes)?)?).await?;
    let asking = asking(&app, &scope, &id).await?;
    app.turns.cancel(&scope, asking.run.id).await?;
    let follower = app.turns.follow(app.turns.open_stream(&scope)?, asking.run.id, 0).await?;
    let whole = to_an_end(&app, &scope, follower, voice_of(&asking), &asking.run).await?;
    Ok(axum::Json(whole).into_response())
}

/// Takes a response out of this API; one that is under way ends. The conversation keeps what was said.
#[utoipa::path(delete, path = "/v1/responses/{id}", operation_id = "delete_response", tag = "clients",
    params(("id" = String, Path), ("workspace" = Option<Uuid>, Query)),
    responses((status = 200, description = "`{ id, object, deleted }`", body = Object), (status = 404)))]
pub async fn delete(
    State(app): State<AppState>,
    caller: Caller,
    named: Named,
    Path(id): Path<String>,
) -> Result<Response, Problem> {
    let scope = caller.scope(named).await?;
    let asking = asking(&app, &scope, &id).await?;
    if let Some(conversation) = asking.run.conversation {
        check_owns(&app, &scope, conversation).await?;
    }
    // Nobody could end it later: it would hold its conversation.
    if !asking.run.status.is_settled() {
        app.turns.cancel(&scope, asking.run.id).await?;
    }
    app.store.forget_response(&scope, asking.run.id).await?;
    let gone = json!({ "id": response_id(asking.run.id), "object": "response", "deleted": true });
    Ok(axum::Json(gone).into_response())
}

/// What a response was asked with.
#[utoipa::path(get, path = "/v1/responses/{id}/input_items", operation_id = "list_response_input", tag = "clients",
    params(("id" = String, Path), ("workspace" = Option<Uuid>, Query), ("limit" = Option<u32>, Query),
        ("after" = Option<String>, Query), ("order" = Option<String>, Query)),
    responses((status = 200, description = "As OpenAI's", body = Object), (status = 404)))]
pub async fn input_items(
    State(app): State<AppState>,
    caller: Caller,
    named: Named,
    Path(id): Path<String>,
    RawQuery(query): RawQuery,
) -> Result<Response, Problem> {
    let scope = caller.scope(named).await?;
    let asking = asking(&app, &scope, &id).await?;
    let (Some(conversation), Some(message)) = (asking.run.conversation, asking.run.message) else {
        return Err(Problem::not_found());
    };
    let found = match app.store.get_message(&scope, conversation, message).await {
        // Of a turn that waits, the message is not in its thread yet.
        Err(StoreError::NotFound) => Vec::new(),
        found => vec![found?],
    };
    let mut asked = Vec::new();
    if is_first(asking.turn.brought.echo.as_ref()) {
        let thread = app.store.get_thread(&scope, conversation, Some(Window::All).into()).await?;
        asked = thread.messages;
        asked.truncate(asked.iter().position(|one| one.id == message).unwrap_or(0));
    }
    let items = asked.iter().chain(&found).flat_map(|message| items_alone(conversation, message));
    openai_list(items.collect(), query.as_deref())
}
