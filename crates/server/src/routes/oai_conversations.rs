//! OpenAI's Conversations: `/v1/conversations`, their items, and a list of them, which is ours.

use axum::extract::{RawQuery, State};
use axum::response::{IntoResponse, Response};
use domain::conversation::{
    Conversation, ConversationFilter, ConversationPatch, ConversationQuery, Mode, NewConversation, Position,
    Seek, Sort, SortKey,
};
use domain::message::Window;
use domain::scope::Scope;
use serde_json::{Value, json};
use store::StoreError;
use uuid::Uuid;

use crate::dialect::items::{Heard, read_items};
use crate::dialect::open::{active_run, bring, check_files, check_owns, locked};
use crate::dialect::outputs;
use crate::dialect::removal::without;
use crate::dialect::responses::{conversation_name, metadata, own_id};
use crate::dialect::told::{self, items_alone, items_of, may_hold, under_way};
use crate::dialect::{ListQuery, Said, member};
use crate::extract::{Caller, JsonBody, Named, Path};
use crate::problem::Problem;
use crate::state::AppState;

/// As many as OpenAI takes at once.
const MAX_ITEMS: usize = 20;

fn shape(conversation: &Conversation, metadata: Option<&str>) -> Value {
    let metadata: Value = metadata.and_then(|text| serde_json::from_str(text).ok()).unwrap_or(json!({}));
    json!({ "id": conversation_name(conversation.id), "object": "conversation",
        "created_at": conversation.created_at.as_second(), "metadata": metadata })
}

async fn shown(app: &AppState, scope: &Scope, id: Uuid) -> Result<Value, Problem> {
    let thread = app.store.get_thread(scope, id, None.into()).await?;
    let metadata = app.store.list_metadata(scope, &[id]).await?;
    Ok(shape(&thread.conversation, metadata.first().and_then(|(_, text)| text.as_deref())))
}

/// The messages of a request's items.
fn heard(body: &Value) -> Result<Heard, Problem> {
    let items = match &body["items"] {
        Value::Null => return Ok(Heard::default()),
        Value::Array(items) => items,
        _ => return Err(Problem::invalid_value("/items", "items must be a list.")),
    };
    if items.len() > MAX_ITEMS {
        let detail = format!("items has more than {MAX_ITEMS}; send them in several requests.");
        return Err(Problem::invalid_value("/items", detail));
    }
    let heard = read_items(items, "/items")?;
    if !heard.decided.is_empty() {
        return Err(Problem::invalid_value("/items", "Approvals are answered by a response."));
    }
    Ok(heard)
}

/// Makes a conversation.
#[utoipa::path(post, path = "/v1/conversations", operation_id = "create_openai_conversation", tag = "clients",
    request_body(content = Object, description = "`{ items?, metadata? }`"), params(("workspace" = Option<Uuid>, Query)),
    responses((status = 200, description = "As OpenAI's", body = Object), (status = 400)))]
pub async fn create(
    State(app): State<AppState>,
    caller: Caller,
    named: Named,
    JsonBody(body): JsonBody<Value>,
) -> Result<Response, Problem> {
    let (metadata, heard) = (metadata(&body)?, heard(&body)?.whole()?);
    let named = named.and(member(&body, "", "workspace")?)?;
    let scope = caller.scope(named).await?;
    check_files(&app, &heard.said)?;
    let id = app.clock.new_id();
    // What is said in it comes by `/v1/responses`, which a model answers.
    let patch = ConversationPatch { mode: Some(Some(Mode::Ask)), ..ConversationPatch::default() };
    let new = NewConversation { id: Some(id), source: None, patch };
    app.store.create_conversation(&scope, &new, id, &app.write()).await?;
    if !metadata.is_empty() {
        app.store.set_metadata(&scope, id, &Value::Object(metadata).to_string()).await?;
    }
    if let Err(problem) = add(&app, &scope, id, heard.said).await {
        let _ = app.store.delete_conversation(&scope, id, None, app.clock.now()).await;
        return Err(problem);
    }
    Ok(axum::Json(shown(&app, &scope, id).await?).into_response())
}

/// Puts messages at the end of a thread; answers their ids.
async fn add(app: &AppState, scope: &Scope, id: Uuid, said: Vec<Said>) -> Result<Vec<Uuid>, Problem> {
    if said.is_empty() {
        return Ok(Vec::new());
    }
    Ok(bring(app, scope, id, None, &said).await?.0)
}

/// The caller's conversations, newest first.
#[utoipa::path(get, path = "/v1/conversations", operation_id = "list_openai_conversations", tag = "clients",
    params(("workspace" = Option<Uuid>, Query), ("limit" = Option<u32>, Query), ("after" = Option<String>, Query),
        ("order" = Option<String>, Query, description = "`desc` or `asc`")),
    responses((status = 200, description = "`{ object, data, first_id, last_id, has_more }`", body = Object)))]
pub async fn list(
    State(app): State<AppState>,
    caller: Caller,
    named: Named,
    RawQuery(query): RawQuery,
) -> Result<Response, Problem> {
    let asked = ListQuery::read(query.as_deref())?;
    let scope = caller.scope(named).await?;
    let seek = match &asked.after {
        None => Seek::Start,
        Some(after) => {
            let gone = || Problem::invalid_parameter("after", "after names no conversation.");
            let found =
                app.store.get_thread(&scope, own_id(after, "conv").map_err(|_| gone())?, None.into()).await;
            let found = match found {
                Err(StoreError::NotFound) => return Err(gone()),
                found => found?.conversation,
            };
            Seek::After(Position::of(&found, SortKey::CreatedAt))
        }
    };
    let query = ConversationQuery {
        filter: ConversationFilter::default(),
        sort: Sort { key: SortKey::CreatedAt, descending: asked.descending },
        seek,
        limit: asked.limit,
        with_context: false,
    };
    let page = app.store.list_conversations(&scope, &query).await?;
    let ids: Vec<Uuid> = page.items.iter().map(|one| one.id).collect();
    let metadata = app.store.list_metadata(&scope, &ids).await?;
    let data: Vec<Value> = page
        .items
        .iter()
        .map(|one| {
            let text = metadata.iter().find(|(id, _)| *id == one.id).and_then(|(_, text)| text.as_deref());
            shape(one, text)
        })
        .collect();
    Ok(axum::Json(crate::dialect::page(&data, page.has_after)).into_response())
}

/// One conversation.
#[utoipa::path(get, path = "/v1/conversations/{id}", operation_id = "get_openai_conversation", tag = "clients",
    params(("id" = String, Path), ("workspace" = Option<Uuid>, Query)),
    responses((status = 200, description = "As OpenAI's", body = Object), (status = 404)))]
pub async fn retrieve(
    State(app): State<AppState>,
    caller: Caller,
    named: Named,
    Path(id): Path<String>,
) -> Result<Response, Problem> {
    let scope = caller.scope(named).await?;
    Ok(axum::Json(shown(&app, &scope, own_id(&id, "conv")?).await?).into_response())
}

/// Sets a conversation's metadata.
#[utoipa::path(post, path = "/v1/conversations/{id}", operation_id = "update_openai_conversation", tag = "clients",
    request_body(content = Object, description = "`{ metadata }`"),
    params(("id" = String, Path), ("workspace" = Option<Uuid>, Query)),
    responses((status = 200, description = "As OpenAI's", body = Object), (status = 400), (status = 404)))]
pub async fn update(
    State(app): State<AppState>,
    caller: Caller,
    named: Named,
    Path(id): Path<String>,
    JsonBody(body): JsonBody<Value>,
) -> Result<Response, Problem> {
    // What is not said stays as it is.
    let metadata = body.get("metadata").map(|_| metadata(&body)).transpose()?;
    let scope = caller.scope(named.and(member(&body, "", "workspace")?)?).await?;
    let id = own_id(&id, "conv")?;
    if let Some(metadata) = metadata {
        app.store.set_metadata(&scope, id, &Value::Object(metadata).to_string()).await?;
    }
    Ok(axum::Json(shown(&app, &scope, id).await?).into_response())
}

/// Deletes a conversation, as `DELETE /v1/chat-conversations/{id}` does.
#[utoipa::path(delete, path = "/v1/conversations/{id}", operation_id = "delete_openai_conversation", tag = "clients",
    params(("id" = String, Path), ("workspace" = Option<Uuid>, Query)),
    responses((status = 200, description = "`{ id, object, deleted }`", body = Object), (status = 404)))]
pub async fn delete(
    State(app): State<AppState>,
    caller: Caller,
    named: Named,
    Path(id): Path<String>,
) -> Result<Response, Problem> {
    let scope = caller.scope(named).await?;
    let id = own_id(&id, "conv")?;
    app.store.delete_conversation(&scope, id, None, app.clock.now()).await?;
    app.note_deletion(scope.workspace).await;
    let gone = json!({ "id": conversation_name(id), "object": "conversation.deleted", "deleted": true });
    Ok(axum::Json(gone).into_response())
}

/// The items of a conversation, newest first.
#[utoipa::path(get, path = "/v1/conversations/{id}/items", operation_id = "list_items", tag = "clients",
    params(("id" = String, Path), ("workspace" = Option<Uuid>, Query), ("limit" = Option<u32>, Query),
        ("after" = Option<String>, Query), ("order" = Option<String>, Query, description = "`desc` or `asc`")),
    responses((status = 200, description = "As OpenAI's", body = Object), (status = 404)))]
pub async fn list_items(
    State(app): State<AppState>,
    caller: Caller,
    named: Named,
    Path(id): Path<String>,
    RawQuery(query): RawQuery,
) -> Result<Response, Problem> {
    let asked = ListQuery::read(query.as_deref())?;
    let scope = caller.scope(named).await?;
    Ok(axum::Json(told::page_of(&app, &scope, own_id(&id, "conv")?, &asked).await?).into_response())
}

/// Puts items at the end of a conversation.
#[utoipa::path(post, path = "/v1/conversations/{id}/items", operation_id = "create_items", tag = "clients",
    request_body(content = Object, description = "`{ items }`"),
    params(("id" = String, Path), ("workspace" = Option<Uuid>, Query)),
    responses((status = 200, description = "As OpenAI's", body = Object), (status = 400), (status = 404)))]
pub async fn create_items(
    State(app): State<AppState>,
    caller: Caller,
    named: Named,
    Path(id): Path<String>,
    JsonBody(body): JsonBody<Value>,
) -> Result<Response, Problem> {
    let Heard { said, outputs, .. } = heard(&body)?;
    if said.is_empty() && outputs.is_empty() {
        return Err(Problem::invalid_value("/items", "items is empty."));
    }
    let scope = caller.scope(named.and(member(&body, "", "workspace")?)?).await?;
    let id = own_id(&id, "conv")?;
    app.store.get_thread(&scope, id, None.into()).await?;
    if active_run(&app, &scope, id).await?.is_some() {
        return Err(locked());
    }
    outputs::check(&app, &scope, id, &outputs).await?;
    // First, for another request may have told one of them meanwhile.
    let joined = outputs::join(&app, &scope, id, &outputs).await?;
    let added = add(&app, &scope, id, said).await?;
    let thread = app.store.get_thread(&scope, id, Some(Window::Newest { limit: added.len() }).into()).await?;
    let mut items: Vec<Value> = joined.iter().flat_map(|message| items_alone(id, message)).collect();
    let given = |item: &Value| outputs.iter().any(|output| item["call_id"] == output.call.as_str());
    items.retain(|item| item["type"] == "function_call_output" && given(item));
    let new = thread.messages.iter().filter(|message| added.contains(&message.id));
    items.extend(new.flat_map(|message| items_alone(id, message)));
    Ok(axum::Json(crate::dialect::page(&items, false)).into_response())
}

/// One item.
#[utoipa::path(get, path = "/v1/conversations/{id}/items/{item}", operation_id = "get_item", tag = "clients",
    params(("id" = String, Path), ("item" = String, Path), ("workspace" = Option<Uuid>, Query)),
    responses((status = 200, description = "As OpenAI's", body = Object), (status = 404)))]
pub async fn get_item(
    State(app): State<AppState>,
    caller: Caller,
    named: Named,
    Path((id, wanted)): Path<(String, String)>,
) -> Result<Response, Problem> {
    let scope = caller.scope(named).await?;
    Ok(axum::Json(told::get_item(&app, &scope, own_id(&id, "conv")?, &wanted).await?).into_response())
}

/// Takes an item out of a conversation: it is in no list any more, and no model is sent it.
#[utoipa::path(delete, path = "/v1/conversations/{id}/items/{item}", operation_id = "delete_item", tag = "clients",
    params(("id" = String, Path), ("item" = String, Path), ("workspace" = Option<Uuid>, Query)),
    responses((status = 200, description = "The conversation, as OpenAI's", body = Object),
        (status = 400, description = "Busy"), (status = 404)))]
pub async fn delete_item(
    State(app): State<AppState>,
    caller: Caller,
    named: Named,
    Path((id, wanted)): Path<(String, String)>,
) -> Result<Response, Problem> {
    let scope = caller.scope(named).await?;
    let id = own_id(&id, "conv")?;
    check_owns(&app, &scope, id).await?;
    // Again when another of its message's items went meanwhile.
    loop {
        let mut messages = app.store.get_thread(&scope, id, Some(Window::All).into()).await?.messages;
        messages.retain(|message| may_hold(message, &wanted));
        let mut found = None;
        for message in &messages {
            let items = items_of(&app, &scope, id, message).await?;
            found = without(message, &items, &wanted).map(|left| (message, left));
            if found.is_some() {
                break;
            }
        }
        let Some((was, left)) = found else {
            let under_way = under_way(&app, &scope, id).await?;
            let busy = under_way.iter().any(|item| item["id"] == wanted.as_str());
            return Err(if busy { locked() } else { Problem::not_found() });
        };
        if active_run(&app, &scope, id).await?.is_some() {
            return Err(locked());
        }
        if app.store.rewrite_message(&scope, id, was, &left, app.clock.now()).await? {
            break;
        }
    }
    Ok(axum::Json(shown(&app, &scope, id).await?).into_response())
}
