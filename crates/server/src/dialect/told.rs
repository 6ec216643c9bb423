//! What is in a conversation, as OpenAI's items. An answer's are those that its response put out: the same, with the same
//! ids, in the same order.

use std::collections::HashMap;

use domain::answer::replay_events;
use domain::message::{Message, MessageRole, Window};
use domain::scope::Scope;
use domain::wire::Responses;
use serde_json::{Value, json};
use store::StoreError;
use turn::Seen;
use uuid::Uuid;

use super::open::active_run;
use super::outputs::open_calls;
use super::{ListQuery, extras, log};
use crate::problem::Problem;
use crate::state::AppState;

/// The items of a message. Where an answer has calls, only its run knows which of them ended when, and on which people
/// were asked; all other messages say it themselves.
pub async fn items_of(
    app: &AppState,
    scope: &Scope,
    conversation: Uuid,
    message: &Message,
) -> Result<Vec<Value>, Problem> {
    let calls =
        [r#""type":"tool_call""#, r#""type":"step""#].iter().any(|kind| message.content.contains(kind));
    if message.role != MessageRole::Assistant || !calls {
        return Ok(items_alone(conversation, message));
    }
    match app.store.get_run(scope, message.id).await {
        // A fork's messages have the names of the first ones, and files of their own.
        Ok(run) if run.conversation == Some(conversation) => {}
        Ok(_) | Err(StoreError::NotFound) => return Ok(items_alone(conversation, message)),
        Err(error) => return Err(error.into()),
    }
    let mut items = put_out(app, scope, message.id).await?;
    if let Some(kept) = kept(message) {
        items.retain(|item| kept.contains(&item["id"]));
        // A run whose log is gone tells what the message does, which counts anew.
        if items.len() < kept.len() {
            return Ok(items_alone(conversation, message));
        }
    }
    Ok(items)
}

/// What a run under way that has asked people has put out so far: its response has ended once already.
pub async fn under_way(app: &AppState, scope: &Scope, conversation: Uuid) -> Result<Vec<Value>, Problem> {
    let run = active_run(app, scope, conversation).await?.filter(|run| run.started_at.is_some());
    let Some(run) = run else { return Ok(Vec::new()) };
    if app.store.list_approvals(scope.workspace, run.id).await?.is_empty() {
        return Ok(Vec::new());
    }
    let mut items = put_out(app, scope, run.id).await?;
    items.retain(|item| item["status"] != "in_progress");
    Ok(items)
}

/// The items of a message, or of the run after them all.
async fn items(
    app: &AppState,
    scope: &Scope,
    id: Uuid,
    message: Option<&Message>,
) -> Result<Vec<Value>, Problem> {
    match message {
        Some(message) => items_of(app, scope, id, message).await,
        None => under_way(app, scope, id).await,
    }
}

/// A page of items. Only messages on it are told, and those that may hold its cursor.
pub async fn page_of(app: &AppState, scope: &Scope, id: Uuid, asked: &ListQuery) -> Result<Value, Problem> {
    let messages = app.store.get_thread(scope, id, Some(Window::All).into()).await?.messages;
    let mut places: Vec<Option<&Message>> = messages.iter().map(Some).chain([None]).collect();
    if asked.descending {
        places.reverse();
    }
    let (mut after, mut found) = (asked.after.as_deref(), Vec::new());
    for place in places {
        if after.is_some_and(|after| place.is_some_and(|message| !may_hold(message, after))) {
            continue;
        }
        let mut items = items(app, scope, id, place).await?;
        if asked.descending {
            items.reverse();
        }
        if let Some(name) = after {
            let Some(at) = items.iter().position(|item| item["id"] == name) else { continue };
            items.drain(..=at);
            after = None;
        }
        found.extend(items);
        if found.len() > asked.limit {
            break;
        }
    }
    if after.is_some() {
        return Err(Problem::invalid_parameter("after", "after names nothing in this list."));
    }
    let more = found.len() > asked.limit;
    found.truncate(asked.limit);
    Ok(super::page(&found, more))
}

/// One item of a conversation.
pub async fn get_item(app: &AppState, scope: &Scope, id: Uuid, item: &str) -> Result<Value, Problem> {
    let messages = app.store.get_thread(scope, id, Some(Window::All).into()).await?.messages;
    let mut places: Vec<Option<&Message>> = messages.iter().map(Some).chain([None]).collect();
    places.retain(|place| place.is_none_or(|message| may_hold(message, item)));
    for place in places {
        let items = items(app, scope, id, place).await?;
        if let Some(found) = items.into_iter().find(|one| one["id"] == item) {
            return Ok(found);
        }
    }
    Err(Problem::not_found())
}

/// Whether an item with this id can be one of the message's. An approval's alone says nothing of that.
pub fn may_hold(message: &Message, item: &str) -> bool {
    item.contains(&message.id.simple().to_string()) || Uuid::try_parse(item).is_ok()
}

async fn put_out(app: &AppState, scope: &Scope, run: Uuid) -> Result<Vec<Value>, Problem> {
    let mut voice = Responses::new(json!({}));
    let push =
        |event: Seen| voice.push(event.seq, event.ts, event.kind, &event.data, i64::MAX, &mut Vec::new());
    log::each(app, scope, run, push).await?;
    Ok(output(&voice))
}

fn output(voice: &Responses) -> Vec<Value> {
    voice.whole()["output"].as_array().cloned().unwrap_or_default()
}

/// The items that a message tells by itself.
pub fn items_alone(conversation: Uuid, message: &Message) -> Vec<Value> {
    if message.role == MessageRole::Assistant {
        return answered(conversation, message);
    }
    let blocks: Vec<Value> = serde_json::from_str(&message.content).unwrap_or_default();
    let files: Vec<Value> = serde_json::from_str(&message.file_attachments).unwrap_or_default();
    let wordless = message.is_wordless();
    let own = |block: &&Value| block["type"] == "text" && !wordless;
    let texts = blocks.iter().filter(own);
    let mut content: Vec<Value> =
        texts.map(|block| json!({ "type": "input_text", "text": block["text"] })).collect();
    content.extend(files.iter().map(|file| {
        let image = file["mimeType"].as_str().is_some_and(|kind| kind.starts_with("image/"));
        match image {
            true => json!({ "type": "input_image", "detail": "auto", "file_id": file["fileId"] }),
            false => json!({ "type": "input_file", "file_id": file["fileId"], "filename": file["name"] }),
        }
    }));
    if content.is_empty() {
        return Vec::new();
    }
    let mut item = json!({ "type": "message", "id": format!("msg_{}", message.id.simple()),
        "role": message.role.as_str(), "status": "completed", "content": content });
    extras::tell(message, std::slice::from_mut(&mut item));
    vec![item]
}

/// Blocks of an assistant's message as its items.
fn answered(conversation: Uuid, message: &Message) -> Vec<Value> {
    let mut voice = Responses::new(json!({}));
    let mut push = |kind: &str, data: &Value| {
        voice.push(1, 0, kind, &data.to_string(), i64::MAX, &mut Vec::new());
    };
    push("turn", &json!({ "run": message.id, "conversation": conversation }));
    let blocks: Vec<Value> = serde_json::from_str(&message.content).unwrap_or_default();
    let (mut closing, mut thought) = (String::new(), false);
    for block in &blocks {
        let (events, text) = replay_events(&json!([block]).to_string());
        let thinks = block["type"] == "reasoning";
        if !closing.is_empty() && !text.is_empty() || thought && thinks {
            // A run would make one of two that follow each other: each is an item.
            push("sources", &json!({ "sources": [] }));
        }
        thought = thinks;
        for event in &events {
            push(event.name(), &json!(event));
        }
        closing = text;
    }
    let metadata: Value = serde_json::from_str(&message.metadata).unwrap_or_default();
    match blocks.last().filter(|block| block["type"] == "error") {
        Some(error) => push("error", error),
        None => push("result", &json!({ "message": closing, "assistant": { "metadata": metadata } })),
    }
    push("done", &json!({ "status": "succeeded" }));
    let mut items = output(&voice);
    // A client that brought a call may bring what it came to later.
    let open = open_calls(&metadata);
    items.retain(|item| {
        item["type"] != "function_call_output" || open.iter().all(|call| item["call_id"] != *call)
    });
    if let Some(kept) = kept(message) {
        name_again(&mut items, &kept);
    }
    extras::tell(message, &mut items);
    items
}

/// The ids of what is left of a message that has lost some.
fn kept(message: &Message) -> Option<Vec<Value>> {
    let mut metadata: Value = serde_json::from_str(&message.metadata).unwrap_or_default();
    serde_json::from_value(metadata["item_ids"].take()).ok()
}

/// What is left keeps its ids: each kind in its order, and an output by its call.
fn name_again(items: &mut [Value], kept: &[Value]) {
    let kind = |id: &str| id.split('_').next().unwrap_or_default().to_owned();
    let mut kept: Vec<&str> = kept.iter().filter_map(Value::as_str).collect();
    let mut calls: HashMap<String, String> = HashMap::new();
    for item in items {
        let own = kind(item["id"].as_str().unwrap_or_default());
        let call = item["call_id"].as_str().map(str::to_owned);
        let id = match (own.as_str(), &call) {
            ("fco", Some(call)) => calls.get(call).map(|id| id.replacen("fc_", "fco_", 1)),
            _ => kept.iter().position(|id| kind(id) == own).map(|at| kept.remove(at).to_owned()),
        };
        if let Some(id) = id {
            item["id"] = json!(id);
            calls.extend(call.map(|call| (call, id)));
        }
    }
}
