//! A turn: `POST /v1/turns`. What is answered with a 2xx is durable.

use axum::extract::{FromRequest, RawQuery, Request, State};
use axum::http::{HeaderMap, HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use domain::conversation::{Mode, Source};
use domain::limits::Limits;
use domain::message::{Block, blocks_from_json, plain_text};
use domain::open_runs::OpenRuns;
use domain::run::{Brought, OnBusy, OnDisconnect, RunStatus, StartTurn, TurnMessage};
use domain::scope::Scope;
use domain::wire::Wire;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use serde_json::value::RawValue;
use sha2::{Digest, Sha256};
use store::StoreError;
use store::turns::Idempotency;
use turn::{Follower, Stream, TurnError};
use utoipa::ToSchema;
use uuid::Uuid;

use super::agents::check_model;
use super::runs::{after, beyond};
use crate::extract::body::{Body, check_json, parse};
use crate::extract::paging::pairs;
use crate::extract::{Caller, Named};
use crate::jsonapi::error::Source as At;
use crate::jsonapi::schema;
use crate::problem::Problem;
use crate::state::AppState;
use crate::stream::{respond, tell_ids};
use crate::tokens;
use crate::words::{self, SaidText};

/// What a turn asks for.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct TurnRequest {
    conversation: Option<Uuid>,
    workspace: Option<Uuid>,
    /// A text, or blocks of the type `text`.
    #[schema(value_type = Option<SaidText>)]
    message: Option<Box<RawValue>>,
    attachments: Option<Vec<Uuid>>,
    agent: Option<String>,
    model: Option<String>,
    workflow: Option<String>,
    #[schema(value_type = Option<schema::Mode>)]
    mode: Option<Mode>,
    #[schema(value_type = Option<schema::Surface>)]
    source: Option<Source>,
    page_path: Option<String>,
    /// `reject`, `enqueue`, `interrupt` or `rollback`.
    #[schema(value_type = Option<words::OnBusy>)]
    on_busy: Option<OnBusy>,
    /// `cancel` or `continue`.
    #[schema(value_type = Option<words::OnDisconnect>)]
    on_disconnect: Option<OnDisconnect>,
    /// Edit this user message, or answer it again when `message` is left out.
    replace: Option<Uuid>,
}

/// The ids of a turn that nobody waits for.
#[derive(Debug, Serialize, ToSchema)]
pub struct AcceptedTurn {
    conversation: Option<Uuid>,
    run: Uuid,
    message: Option<Uuid>,
    /// `queued` or `running`; of a repeated request, what the run has come to.
    #[schema(value_type = words::RunStatus)]
    status: RunStatus,
}

/// Starts a turn and streams it, or with `Prefer: respond-async` answers with its ids.
#[utoipa::path(post, path = "/v1/turns", operation_id = "create_turn", tag = "turns", request_body = TurnRequest,
    params(("wire" = Option<String>, Query, description = "`envelope`, `ndjson`, `openai`, `anthropic`, `ui-message` or `ag-ui`"), ("workspace" = Option<Uuid>, Query),
        ("Idempotency-Key" = Option<String>, Header), ("Prefer" = Option<String>, Header),
        ("Last-Event-ID" = Option<i64>, Header, description = "With a repeated `Idempotency-Key`: the last event seen of its run")),
    responses((status = 200, description = "The run's events", content((String = "text/event-stream"), (String = "application/x-ndjson"))),
        (status = 202, description = "Accepted, with `Prefer: respond-async`", body = AcceptedTurn),
        (status = 400), (status = 404), (status = 409, description = "Busy; `run` is the one under way"), (status = 422), (status = 429)))]
pub async fn create(
    State(app): State<AppState>,
    caller: Caller,
    named: Named,
    RawQuery(query): RawQuery,
    request: Request,
) -> Result<Response, Problem> {
    let headers = request.headers().clone();
    let wire = wire(query.as_deref(), &headers, &[], Wire::Envelope)?;
    check_json(&headers)?;
    let Body(bytes) = Body::from_request(request, &app).await?;
    let body: TurnRequest = parse(&bytes)?;
    let named = named.and(body.workspace)?;
    let caller = caller.naming(body.conversation.is_some());
    let scope = caller.scope(named).await?;
    let respond_async = prefers_async(&headers);
    let idempotency = idempotency(&headers, &bytes)?;
    let mut turn = read(body, &app.limits, respond_async)?;
    name_files(&app, &scope, &mut turn).await?;
    let asked = Asked { caller, wire, respond_async, headers };
    let mut open = None;
    let answered = start(&app, &scope, turn, idempotency, asked, &mut open).await;
    app.tell_limits(&scope, open, answered).await
}

/// How a turn is to be answered, and to whom.
struct Asked {
    caller: Caller,
    wire: Wire,
    respond_async: bool,
    headers: HeaderMap,
}

async fn start(
    app: &AppState,
    scope: &Scope,
    turn: StartTurn,
    idempotency: Option<Idempotency>,
    asked: Asked,
    open: &mut Option<OpenRuns>,
) -> Result<Response, Problem> {
    let Asked { caller, wire, respond_async, headers } = asked;
    // Before anything is written.
    let stream = if respond_async { None } else { Some(app.turns.open_stream(scope)?) };
    let started = app.turns.start(scope, turn, idempotency).await?;
    *open = started.open;
    let Some(stream) = stream else {
        let run = &started.run;
        let body = AcceptedTurn {
            conversation: run.conversation,
            run: run.id,
            message: run.message,
            status: run.status,
        };
        let mut response = (StatusCode::ACCEPTED, axum::Json(body)).into_response();
        response.headers_mut().insert("preference-applied", HeaderValue::from_static("respond-async"));
        tell_ids(response.headers_mut(), run);
        return Ok(response);
    };
    let follower = match started.repeated {
        true => go_on(app, stream, started.run.id, &headers).await?,
        false => app.turns.follow_started(stream, started.run.id),
    };
    Ok(respond(follower, wire, caller, &started.run))
}

/// The run of a repeated request: a client that says how far it has come is told nothing twice.
pub(super) async fn go_on(
    app: &AppState,
    stream: Stream,
    run: Uuid,
    headers: &HeaderMap,
) -> Result<Follower, Problem> {
    let follower = app.turns.follow(stream, run, after(None, headers)?).await;
    follower.map_err(|error| beyond(error.into(), headers))
}

/// The wire of `?wire=`, else of `Accept`, else the `usual` one. `others` are the parameters that the route has beside it.
pub(super) fn wire(
    query: Option<&str>,
    headers: &HeaderMap,
    others: &[&str],
    usual: Wire,
) -> Result<Wire, Problem> {
    let (mut asked, mut seen) = (None, Vec::new());
    for (name, value) in pairs(query.unwrap_or(""))? {
        if !["wire", "workspace"].iter().chain(others).any(|known| *known == name) {
            return Err(Problem::unknown_parameter(&name));
        }
        if seen.contains(&name) {
            return Err(Problem::invalid_parameter(&name, format!("{name} is given twice.")));
        }
        if name == "wire" {
            asked = Some(value);
        }
        seen.push(name);
    }
    let accept: Vec<&str> = headers.get_all(header::ACCEPT).iter().filter_map(|v| v.to_str().ok()).collect();
    Wire::choose(asked.as_deref(), Some(&accept.join(",")), usual)
        .map_err(|error| Problem::invalid_parameter("wire", format!("{error}.")))
}

fn prefers_async(headers: &HeaderMap) -> bool {
    let values = headers.get_all("prefer").iter().filter_map(|value| value.to_str().ok());
    values.flat_map(|value| value.split(',')).any(|wish| {
        let word = wish.split(';').next().unwrap_or("");
        word.trim().eq_ignore_ascii_case("respond-async")
    })
}

pub(crate) fn idempotency(headers: &HeaderMap, body: &[u8]) -> Result<Option<Idempotency>, Problem> {
    let mut values = headers.get_all("idempotency-key").iter();
    let Some(value) = values.next() else { return Ok(None) };
    let key = value.to_str().ok().map(str::trim).filter(|key| (1..=255).contains(&key.len()));
    match (key, values.next()) {
        (Some(key), None) => {
            Ok(Some(Idempotency { key: key.to_owned(), body_hash: Sha256::digest(body).into() }))
        }
        _ => Err(Problem::invalid_header(
            "Idempotency-Key",
            "Idempotency-Key must be one text of 1 to 255 characters.",
        )),
    }
}

/// The request as a turn, or what is wrong with it.
fn read(body: TurnRequest, limits: &Limits, respond_async: bool) -> Result<StartTurn, Problem> {
    let has_files = body.attachments.as_ref().is_some_and(|files| !files.is_empty());
    let message = match body.message.as_deref() {
        // Its text are the files' names.
        Some(raw) if has_files && is_blank(raw) => {
            Some(TurnMessage { wordless: true, ..TurnMessage::default() })
        }
        message => message.map(read_message).transpose()?,
    };
    if message.is_none() && body.replace.is_none() {
        return Err(Problem::invalid_value(
            "/message",
            "message is missing; only with replace may it be left out.",
        ));
    }
    if body.replace.is_some() && body.conversation.is_none() {
        return Err(Problem::invalid_value("/replace", "replace needs the conversation it edits."));
    }
    let most = limits.max_files_per_message;
    if body.attachments.as_ref().is_some_and(|files| files.len() as u64 > most) {
        let detail = format!("attachments has more than the {most} files that a message may have.");
        return Err(Problem::invalid_value("/attachments", detail).with("limit", most));
    }
    if body.message.is_none() && body.attachments.is_some() {
        return Err(Problem::invalid_value(
            "/attachments",
            "attachments need a message that they belong to.",
        ));
    }
    let on_disconnect =
        if respond_async { OnDisconnect::Continue } else { body.on_disconnect.unwrap_or_default() };
    let turn = StartTurn {
        conversation: body.conversation,
        replace: body.replace,
        message,
        attachments: body.attachments,
        agent: body.agent,
        model: body.model,
        workflow: body.workflow,
        mode: body.mode,
        source: body.source,
        page_path: body.page_path,
        on_busy: body.on_busy.unwrap_or_default(),
        on_disconnect,
        brought: Brought::default(),
    };
    check_names(&turn)?;
    Ok(turn)
}

/// What a turn names, as far as its shape goes.
pub(crate) fn check_names(turn: &StartTurn) -> Result<(), Problem> {
    for (pointer, value, max) in [
        ("/agent", &turn.agent, 255),
        ("/model", &turn.model, 255),
        ("/workflow", &turn.workflow, 255),
        ("/page_path", &turn.page_path, 512),
    ] {
        let fits = |text: &String| text.chars().count() <= max && !text.chars().any(char::is_control);
        if !value.as_ref().is_none_or(fits) {
            let detail =
                format!("{} must be at most {max} characters, without control characters.", &pointer[1..]);
            return Err(Problem::invalid_value(pointer, detail));
        }
    }
    match turn.mode {
        // A sandbox is told the name as it is.
        Some(Mode::Ask) => check_model(turn.model.as_deref()),
        _ => check_not_blank("/model", turn.model.as_deref()),
    }
}

/// Left out it is somebody else's choice; a name of nothing is a mistake, which the conversation would keep.
pub(super) fn check_not_blank(pointer: &str, name: Option<&str>) -> Result<(), Problem> {
    match name {
        Some(name) if name.trim().is_empty() => {
            let detail = format!("{} is empty: leave it out, or give it a name.", &pointer[1..]);
            Err(Problem::invalid_value(pointer, detail))
        }
        _ => Ok(()),
    }
}

/// A text without a word, or blocks of such.
fn is_blank(raw: &RawValue) -> bool {
    let blank = |text: &Value| text.as_str().is_some_and(|text| text.trim().is_empty());
    match serde_json::from_str(raw.get()) {
        Ok(Value::Array(blocks)) => {
            blocks.iter().all(|block| block["type"] == "text" && blank(&block["text"]))
        }
        Ok(message) => blank(&message),
        Err(_) => false,
    }
}

/// Gives files that came without a word their names for a text. One that is not there is refused where it is attached.
async fn name_files(app: &AppState, scope: &Scope, turn: &mut StartTurn) -> Result<(), Problem> {
    let Some(message) = turn.message.as_mut().filter(|message| message.wordless) else { return Ok(()) };
    let mut names = Vec::new();
    for file in turn.attachments.iter().flatten() {
        match app.store.get_file(scope, *file).await {
            Err(StoreError::NotFound) => {}
            file => names.push(file?.name),
        }
    }
    message.text = names.join(", ");
    let blocks = [Block::Text { text: message.text.clone() }];
    message.content = serde_json::to_string(&blocks).map_err(|_| Problem::internal())?;
    Ok(())
}

/// A text, or an array of text blocks.
pub(super) fn read_message(raw: &RawValue) -> Result<TurnMessage, Problem> {
    let blocks = match serde_json::from_str::<String>(raw.get()) {
        Ok(text) if text.trim().is_empty() => {
            return Err(Problem::invalid_value("/message", "message is empty."));
        }
        Ok(text) => vec![Block::Text { text }],
        Err(_) => blocks_from_json(raw.get()).map_err(|fault| {
            Problem::invalid_value(&format!("/message{}", fault.pointer), format!("{}.", fault.detail))
        })?,
    };
    let content = serde_json::to_string(&blocks).map_err(|_| Problem::internal())?;
    Ok(TurnMessage { content, text: plain_text(&blocks), wordless: false })
}

impl From<TurnError> for Problem {
    fn from(error: TurnError) -> Self {
        match error {
            TurnError::Busy(run) => Self::new(
                StatusCode::CONFLICT,
                "conversation_busy",
                "The conversation is busy",
                "A run of this conversation is under way; attach to it, or choose another on_busy.",
            )
            .with("run", run.to_string()),
            TurnError::KeyReused => Self::new(
                StatusCode::UNPROCESSABLE_ENTITY,
                "idempotency_key_reused",
                "The idempotency key was used before",
                "This Idempotency-Key came before with another body or for another workspace; use a new key for a new request.",
            )
            .at(At::header("Idempotency-Key")),
            TurnError::TooManyRuns(full) => tokens::too_many_runs(full),
            TurnError::OutOfTokens { spent, retry_after } => tokens::refused(spent, retry_after),
            TurnError::TooManyStreams { limit } => too_many_streams(limit),
            TurnError::TooLong { input, limit } => Self::new(
                StatusCode::PAYLOAD_TOO_LARGE,
                "message_too_long",
                "The message is too long",
                match input {
                    "/instructions" => format!("The instructions leave no room for the message in the {limit} characters that a model is sent; shorten them."),
                    _ => format!("The message does not fit into the {limit} characters that a model is sent; shorten it or attach it as a file."),
                },
            )
            .at(At::pointer(input))
            .with("limit", limit),
            TurnError::ToolsNotTaken => Self::invalid_value(
                "/tools",
                "An agent in a sandbox has tools of its own alone: name a model, or an agent whose runner is one.",
            ),
            TurnError::Draining => Self::stopping(),
            TurnError::Store(error) => error.into(),
        }
    }
}

fn too_many_streams(limit: u64) -> Problem {
    Problem::new(
        StatusCode::TOO_MANY_REQUESTS,
        "too_many_streams",
        "Too many at once",
        format!("You have {limit} streams open already; let one end first."),
    )
    .with("limit", limit)
    .with("retry_after", 1)
}
