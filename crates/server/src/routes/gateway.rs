//! Models for other people's clients: `/v1/models`, one of them, `/v1/chat/completions`, `/v1/messages`.

use std::convert::Infallible;

use axum::body::Body;
use axum::extract::State;
use axum::http::{HeaderMap, HeaderValue, header};
use axum::response::{IntoResponse, Response};
use bytes::Bytes;
use domain::model::{Dialect, ModelEvent, ModelFault, ModelFaultKind, Verbatim};
use futures_util::future::BoxFuture;
use futures_util::{StreamExt as _, stream};
use serde_json::{Value, json};
use tokio::time::{Instant, timeout_at};
use upstream::llm::ModelStream;
use upstream::llm::demo::MODEL;

use crate::extract::{JsonBody, Path};
use crate::gateway::own::OwnWords;
use crate::gateway::{
    Asked, Asker, Metered, Payer, Writer, anthropic, demo, openai, translated, unknown_model,
};
use crate::jsonapi::error::shown;
use crate::problem::Problem;
use crate::state::AppState;
use crate::stream::{HEARTBEAT, let_through};

/// The models that can be asked for now, in the shape of both vendors.
#[utoipa::path(get, path = "/v1/models", operation_id = "list_models", tag = "models",
    responses((status = 200, description = "`{ object, data: [{ id, object, created, owned_by }] }`", body = Object)))]
pub async fn models(State(app): State<AppState>) -> Response {
    let names = app.models.list().await;
    let each = names.iter().map(|name| shape(name));
    let (first, last) = (names.first(), names.last());
    let list = json!({ "object": "list", "data": each.collect::<Vec<_>>(), "has_more": false, "first_id": first,
        "last_id": last });
    axum::Json(list).into_response()
}

fn shape(name: &str) -> Value {
    let owner = name.split('/').next().unwrap_or_default();
    json!({ "id": name, "object": "model", "created": 0, "owned_by": owner, "type": "model",
        "display_name": name, "created_at": "1970-01-01T00:00:00Z" })
}

/// One model, by its name; the slash in it may be encoded.
#[utoipa::path(get, path = "/v1/models/{*model}", operation_id = "get_model", tag = "models",
    params(("model" = String, Path, description = "`provider/model`")),
    responses((status = 200, description = "`{ id, object, created, owned_by }`", body = Object), (status = 404)))]
pub async fn model(State(app): State<AppState>, Path(id): Path<String>) -> Result<Response, Problem> {
    app.models.find(&id).map_err(unknown_model)?;
    if !app.models.list().await.contains(&id) {
        let shown = shown(&id);
        let fault = ModelFault::new(ModelFaultKind::Error, format!("the model {shown} is not offered now."));
        return Err(unknown_model(fault));
    }
    Ok(axum::Json(shape(&id)).into_response())
}

/// OpenAI's chat completions, streaming or not.
#[utoipa::path(post, path = "/v1/chat/completions", operation_id = "create_chat_completion", tag = "models",
    params(("workspace" = Option<Uuid>, Query)),
    request_body(content = Object, description = "As OpenAI's, `model` being `provider/model`"),
    responses((status = 200, description = "As OpenAI's", content((Object = "application/json"), (String = "text/event-stream"))), (status = 404), (status = 429), (status = 502), (status = 504)))]
pub async fn completions(
    State(app): State<AppState>,
    asker: Asker,
    JsonBody(mut body): JsonBody<Value>,
) -> Result<Response, Problem> {
    let payer = asker.payer(&mut body).await?;
    let asked = openai::read(body)?;
    let (id, created) = (app.clock.new_id().simple().to_string(), app.clock.now().as_second());
    let writer = openai::Chunks::new(&id, created, &asked);
    let writer = OwnWords::new(Dialect::Openai, &asked, Box::new(writer));
    let answered = answer(&app, payer.clone(), asked, Box::new(writer)).await;
    app.tell_tokens(&payer.scope, answered).await
}

/// Anthropic's messages, streaming or not.
#[utoipa::path(post, path = "/v1/messages", operation_id = "create_message", tag = "models",
    params(("workspace" = Option<Uuid>, Query)),
    request_body(content = Object, description = "As Anthropic's, `model` being `provider/model`"),
    responses((status = 200, description = "As Anthropic's", content((Object = "application/json"), (String = "text/event-stream"))), (status = 404), (status = 429), (status = 502), (status = 504)))]
pub async fn messages(
    State(app): State<AppState>,
    asker: Asker,
    headers: HeaderMap,
    JsonBody(mut body): JsonBody<Value>,
) -> Result<Response, Problem> {
    let payer = asker.payer(&mut body).await?;
    let asked = anthropic::read(body, anthropic::beta(&headers))?;
    let writer = anthropic::Events::new(&app.clock.new_id().simple().to_string(), &asked);
    let writer = OwnWords::new(Dialect::Anthropic, &asked, Box::new(writer));
    let answered = answer(&app, payer.clone(), asked, Box::new(writer)).await;
    app.tell_tokens(&payer.scope, answered).await
}

/// While the provider is silent.
const ALIVE: &[u8] = b": heartbeat\n\n";

/// An answer under way.
struct Telling {
    stream: ModelStream,
    writer: Box<dyn Writer>,
    metered: Metered,
    /// The run that asks for it is to end.
    over: BoxFuture<'static, ()>,
    ended: bool,
}

impl Telling {
    /// The frames of the next events.
    async fn next(&mut self) -> Option<Bytes> {
        let silent_until = Instant::now() + HEARTBEAT;
        while !self.ended {
            let Ok(batch) = timeout_at(silent_until, self.batch()).await else {
                return Some(Bytes::from_static(ALIVE));
            };
            let out = self.write(&batch?).await;
            if !out.is_empty() {
                return Some(out.into());
            }
        }
        None
    }

    /// What the model says next, for as long as the run that asks it goes on.
    async fn batch(&mut self) -> Option<Vec<ModelEvent>> {
        tokio::select! {
            biased;
            () = &mut self.over => {
                self.ended = true;
                Some(vec![ModelEvent::End(Err(ModelFault::new(ModelFaultKind::Error, "The run is over.")))])
            }
            batch = self.stream.next() => batch,
        }
    }

    async fn write(&mut self, batch: &[ModelEvent]) -> Vec<u8> {
        let mut out = Vec::new();
        for event in batch {
            if let ModelEvent::Usage(usage) = event {
                self.metered.usage = *usage;
            }
            self.writer.event(event, &mut out);
        }
        if let Some(ModelEvent::End(_)) = batch.last() {
            self.metered.count().await;
        }
        out
    }
}

async fn answer(
    app: &AppState,
    payer: Payer,
    mut asked: Asked,
    writer: Box<dyn Writer>,
) -> Result<Response, Problem> {
    let found = app.models.find(&asked.model).map_err(unknown_model)?;
    asked.ask.model.clone_from(&found.name);
    if let Some(Verbatim { dialect, body, .. }) = &asked.ask.verbatim
        && found.dialect != Some(*dialect)
    {
        translated::check(*dialect, body, &asked.ask.prompt)?;
    }
    app.check_tokens(&payer.scope).await?;
    if asked.model == MODEL {
        demo::search(app, &payer, &mut asked.ask).await;
    }
    let over = payer.over(app);
    let metered = Metered { app: app.clone(), payer, usage: Default::default() };
    let stream = found.model.stream(asked.ask);
    let mut telling = Telling { stream, writer, metered, over, ended: false };
    let mut begun = Vec::new();
    let silent_until = Instant::now() + HEARTBEAT;
    loop {
        let lost =
            || vec![ModelEvent::End(Err(ModelFault::new(ModelFaultKind::Error, "The answer has no end.")))];
        let batch = if asked.stream {
            match timeout_at(silent_until, telling.batch()).await {
                Ok(batch) => batch,
                // Whoever stands between would give up; from here on a failure is an event.
                Err(_) => return Ok(streamed(telling, ALIVE.to_vec())),
            }
        } else {
            telling.batch().await
        };
        let batch = batch.unwrap_or_else(lost);
        let (before, end) = match batch.split_last() {
            Some((ModelEvent::End(end), before)) => (before, Some(end.clone())),
            _ => (&*batch, None),
        };
        begun.extend(telling.write(before).await);
        // A failure before the first word is an answer of its own; words may come in the same batch.
        if let (Some(Err(fault)), true) = (&end, begun.is_empty() || !asked.stream) {
            return Err(fault.clone().into());
        }
        begun.extend(telling.write(&batch[before.len()..]).await);
        match end {
            _ if asked.stream && !begun.is_empty() => return Ok(streamed(telling, begun)),
            Some(_) => return Ok(axum::Json(telling.writer.whole()).into_response()),
            None => {}
        }
    }
}

fn streamed(telling: Telling, begun: Vec<u8>) -> Response {
    let rest = stream::unfold(telling, |mut telling| async move { Some((telling.next().await?, telling)) });
    let all = stream::iter([Bytes::from(begun)]).chain(rest).map(Ok::<_, Infallible>);
    let mut response = Body::from_stream(all).into_response();
    let headers = response.headers_mut();
    headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("text/event-stream"));
    let_through(headers);
    response
}
