//! Executions: runs outside any conversation, for workflow engines, at `/v1/executions`.

use axum::extract::{FromRequest, RawQuery, Request, State};
use axum::http::{HeaderName, HeaderValue};
use axum::response::{IntoResponse, Response};
use domain::file::{Bag, File, FileSource};
use domain::run::{RunError, RunStatus};
use domain::time::rfc3339;
use domain::wire::Wire;
use serde::{Deserialize, Serialize};
use serde_json::json;
use store::StoreError;
use turn::{StartExecution, Started, TurnError};
use utoipa::ToSchema;
use uuid::Uuid;

use super::files::FileDocument;
use super::turns::{check_not_blank, go_on, idempotency, wire};
use super::workspaces::path_id;
use crate::extract::body::{Body, check_json, parse};
use crate::extract::upload::{Target, Upload, is_multipart};
use crate::extract::{Caller, Named, Paging, Path};
use crate::problem::Problem;
use crate::state::AppState;
use crate::stream::respond;
use crate::words;

/// What an execution asks for; as `multipart/form-data` each field is a part, and parts with a file name are files.
#[derive(Debug, Default, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct ExecutionRequest {
    #[schema(value_type = String, required = true)]
    prompt: Option<String>,
    workspace: Option<Uuid>,
    agent: Option<String>,
    workflow: Option<String>,
    model: Option<String>,
    /// Files of the workspace that the run is given.
    assets: Option<Vec<Uuid>>,
}

/// An execution as it stands.
#[derive(Debug, Serialize, ToSchema)]
pub struct ExecutionView {
    id: Uuid,
    #[schema(value_type = words::RunStatus)]
    status: RunStatus,
    response: Option<String>,
    /// What the run wrote back.
    #[schema(value_type = Vec<FileDocument>)]
    files: Vec<serde_json::Value>,
    #[schema(value_type = Option<Object>)]
    error: Option<RunError>,
    run: Uuid,
    created_at: String,
    ended_at: Option<String>,
}

/// Runs once and streams the sandbox's lines as they come. Dropping the request cancels it.
#[utoipa::path(post, path = "/v1/executions", operation_id = "create_execution", tag = "executions",
    params(("wire" = Option<String>, Query, description = "As of a turn; `ndjson` unless asked otherwise"), ("workspace" = Option<Uuid>, Query),
        ("Idempotency-Key" = Option<String>, Header),
        ("Last-Event-ID" = Option<i64>, Header, description = "With a repeated `Idempotency-Key`: the last event seen of its run")),
    request_body(content((ExecutionRequest = "application/json"), (ExecutionRequest = "multipart/form-data"))),
    responses((status = 200, description = "The run's lines, or its events in the wire that was asked for", content((String = "application/x-ndjson"), (String = "text/event-stream"))),
        (status = 400), (status = 413), (status = 415), (status = 422), (status = 429)))]
pub async fn create(
    State(app): State<AppState>,
    caller: Caller,
    named: Named,
    RawQuery(query): RawQuery,
    request: Request,
) -> Result<Response, Problem> {
    let headers = request.headers().clone();
    let wire = wire(query.as_deref(), &headers, &[], Wire::Ndjson)?;
    let id = app.clock.new_id();
    let target = Target { bag: Bag::Execution(id), source: FileSource::User };
    let (body, scope, mut upload, idempotency) = if is_multipart(&headers) {
        let scope = caller.scope(named).await?;
        let mut upload = Upload::new(&app, &scope, target).receive(request).await?;
        let digest = json!({ "fields": upload.fields, "files": upload.contents() });
        let body = from_fields(std::mem::take(&mut upload.fields))?;
        if body.workspace.is_some_and(|workspace| workspace != scope.workspace) {
            let detail = "Files are stored as they come: name another workspace by the address or a header.";
            return Err(Problem::invalid_value("/workspace", detail));
        }
        (body, scope, upload, idempotency(&headers, digest.to_string().as_bytes())?)
    } else {
        check_json(&headers)?;
        let Body(bytes) = Body::from_request(request, &app).await?;
        let body: ExecutionRequest = parse(&bytes)?;
        let scope = caller.scope(named.and(body.workspace)?).await?;
        let upload = Upload::new(&app, &scope, target);
        (body, scope, upload, idempotency(&headers, &bytes)?)
    };
    let prompt = body.prompt.filter(|prompt| !prompt.trim().is_empty());
    let prompt = prompt.ok_or_else(|| Problem::invalid_value("/prompt", "prompt is missing or empty."))?;
    check_not_blank("/model", body.model.as_deref())?;
    let stream = app.turns.open_stream(&scope)?;
    for (at, asset) in body.assets.unwrap_or_default().into_iter().enumerate() {
        let file = app.store.get_file(&scope, asset).await;
        let file = file
            .and_then(|file| if file.bag == Bag::Workspace { Ok(file) } else { Err(StoreError::NotFound) });
        let file: File = match file {
            // Of a request that was accepted once, it may have been deleted since.
            Err(StoreError::NotFound) if app.turns.is_repeated(&scope, idempotency.as_ref()).await? => break,
            Err(StoreError::NotFound) => {
                let detail = format!("There is no file {asset} in this workspace.");
                return Err(Problem::invalid_value(&format!("/assets/{at}"), detail));
            }
            file => file?,
        };
        upload.copy(&file).await?;
    }
    let execution = StartExecution {
        id,
        prompt,
        agent: body.agent,
        workflow: body.workflow,
        model: body.model,
        files: upload.stored.clone(),
        idempotency,
    };
    let starting = app.turns.start_execution(&scope, execution);
    let started = match upload.keep_by(starting, unkept).await {
        Err(refused) => return app.tell_limits(&scope, None, Err(refused.into())).await,
        Ok(started) => started,
    };
    let follower = match started.repeated {
        true => go_on(&app, stream, started.run.id, &headers).await?,
        false => app.turns.follow_started(stream, started.run.id),
    };
    let mut response = respond(follower, wire, caller, &started.run);
    let name = HeaderName::from_static("threadkeep-execution");
    if let Some(value) = started.run.execution.and_then(|id| HeaderValue::from_str(&id.to_string()).ok()) {
        response.headers_mut().insert(name, value);
    }
    app.tell_limits(&scope, started.open, Ok(response)).await
}

/// Whether it is known that the files of a request did not become those of an execution.
fn unkept(started: &Result<Started, TurnError>) -> bool {
    match started {
        Ok(started) => started.repeated,
        Err(TurnError::Store(StoreError::Unavailable(_) | StoreError::Internal(_))) => false,
        Err(_) => true,
    }
}

/// The parts of a form that are no files.
fn from_fields(fields: Vec<(String, String)>) -> Result<ExecutionRequest, Problem> {
    let mut body = ExecutionRequest::default();
    for (name, text) in fields {
        let place = match name.as_str() {
            "prompt" => &mut body.prompt,
            "agent" => &mut body.agent,
            "workflow" => &mut body.workflow,
            "model" => &mut body.model,
            "workspace" => {
                let bad = |_| Problem::invalid_value("/workspace", "workspace must be the id of one.");
                body.workspace = Some(Uuid::try_parse(text.trim()).map_err(bad)?);
                continue;
            }
            // Once for each, or a JSON array.
            "assets" => {
                let ids = match Uuid::try_parse(text.trim()) {
                    Ok(id) => Ok(vec![id]),
                    Err(_) => serde_json::from_str::<Vec<Uuid>>(&text),
                };
                let bad = |_| Problem::invalid_value("/assets", "assets must be the ids of files.");
                body.assets.get_or_insert_default().extend(ids.map_err(bad)?);
                continue;
            }
            _ => {
                let detail = format!("There is no field {name:?} here.");
                return Err(Problem::malformed_document(&format!("/{name}"), detail));
            }
        };
        if place.replace(text).is_some() {
            return Err(Problem::malformed_document(&format!("/{name}"), format!("{name} is given twice.")));
        }
    }
    Ok(body)
}

/// An execution: how it stands, what it answered, and the files it wrote.
#[utoipa::path(get, path = "/v1/executions/{id}", operation_id = "get_execution", tag = "executions",
    params(("id" = Uuid, Path), ("workspace" = Option<Uuid>, Query)), responses((status = 200, body = ExecutionView), (status = 404)))]
pub async fn show(
    State(app): State<AppState>,
    caller: Caller,
    named: Named,
    Path(id): Path<String>,
    _: Paging,
) -> Result<Response, Problem> {
    let scope = caller.scope(named).await?;
    let execution = app.store.get_execution(&scope, path_id(&id)?).await?;
    let view = ExecutionView {
        id: execution.id,
        status: execution.run.status,
        response: execution.response,
        files: execution.files.iter().map(|file| json!(file.view())).collect(),
        error: execution.run.error,
        run: execution.run.id,
        created_at: rfc3339(execution.run.created_at),
        ended_at: execution.run.ended_at.map(rfc3339),
    };
    Ok(axum::Json(view).into_response())
}
