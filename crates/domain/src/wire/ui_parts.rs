//! Stored messages as the AI SDK keeps them: `UIMessage`s, for a page that is opened again.

use std::collections::HashSet;

use serde_json::{Value, json};

use super::pieces::distinct;
use super::told::id_of;
use super::ui_message::{file_url, source};
use crate::approval::{Approval, is_denial};
use crate::message::{Message, MessageRole};

/// `id` is what the client calls the message; `base` is where this server is. Of an answer that a run of the conversation
/// gave, `run` has the approvals that were asked for.
pub fn ui_message(
    base: &str,
    conversation: &str,
    id: &str,
    message: &Message,
    run: Option<&[Approval]>,
) -> Value {
    let blocks = crate::json::value(&message.content);
    let mut parts: Vec<Value> = Vec::new();
    if message.role == MessageRole::Assistant {
        parts.push(json!({ "type": "step-start" }));
    }
    let files: Vec<Value> = serde_json::from_str(&message.file_attachments).unwrap_or_default();
    parts.extend(files.iter().map(|attached| file(base, conversation, attached)));
    let mut taken = HashSet::new();
    let wordless = message.is_wordless();
    for block in blocks.as_array().into_iter().flatten().filter(|block| !wordless || block["type"] != "text")
    {
        let told = part(base, conversation, block, &mut taken);
        parts.extend(told.map(|told| decided(told, block, run.unwrap_or_default())));
    }
    // What its client had beside what the blocks hold.
    let own = &crate::json::value(&message.metadata)["ui"];
    let before = usize::from(message.role == MessageRole::Assistant);
    for kept in own["parts"].as_array().into_iter().flatten() {
        let place = kept[0].as_u64().and_then(|place| usize::try_from(place).ok()).unwrap_or(usize::MAX);
        parts.insert(place.saturating_add(before).min(parts.len()), kept[1].clone());
    }
    let created = message.created_at.as_millisecond();
    // As it was told live.
    let mut metadata = match (&own["metadata"], run) {
        (Value::Null, None) => json!({ "createdAt": created }),
        (Value::Null, Some(_)) => {
            json!({ "conversation": conversation, "run": message.id, "createdAt": created })
        }
        (brought, _) => brought.clone(),
    };
    // No part says why a run did not succeed.
    let error = blocks.as_array().into_iter().flatten().find(|block| block["type"] == "error");
    if let (Some(error), Some(metadata)) = (error, metadata.as_object_mut()) {
        metadata.insert("error".into(), json!({ "code": error["code"], "message": error["message"] }));
    }
    json!({ "id": id, "role": message.role.as_str(), "parts": parts, "metadata": metadata })
}

fn part(base: &str, conversation: &str, block: &Value, taken: &mut HashSet<String>) -> Option<Value> {
    match block["type"].as_str()? {
        kind @ ("text" | "reasoning") => {
            Some(json!({ "type": kind, "text": block["text"], "state": "done" }))
        }
        "step" | "tool_call" => {
            let mut part = call(block);
            // As it was told live.
            part["toolCallId"] = distinct(&id_of(block), taken).into();
            Some(part)
        }
        "source" => Some(source(block)),
        "file" => Some(file(base, conversation, block)),
        _ => None,
    }
}

/// What a person has decided on a call. One that was not allowed has no error to the client: it knows by its approval.
fn decided(mut part: Value, block: &Value, approvals: &[Approval]) -> Value {
    let of_call = |one: &&Approval| block["id"] == one.call.id.as_str() && block["round"] == one.round;
    let asked = approvals.iter().find(of_call);
    let Some((one, decision)) = asked.and_then(|one| Some((one, one.decision.as_ref()?))) else {
        return part;
    };
    let denied = block["error"].as_str().is_some_and(is_denial);
    if decision.approve == denied {
        return part;
    }
    part["approval"] = json!({ "id": one.id, "approved": decision.approve });
    if let Some(reason) = &decision.reason {
        part["approval"]["reason"] = json!(reason);
    }
    if denied {
        part["state"] = json!("output-denied");
        part.as_object_mut().map(|part| part.remove("errorText"));
    }
    part
}

fn file(base: &str, conversation: &str, file: &Value) -> Value {
    json!({ "type": "file", "mediaType": file["mimeType"], "filename": file["name"],
        "url": file_url(base, Some(conversation), file) })
}

fn call(block: &Value) -> Value {
    let error = match (block["error"].as_str(), block["status"].as_str()) {
        // A step that went well after all still has the word of its failure.
        (Some(error), None | Some("failed" | "interrupted")) => Some(error),
        (None, Some(status @ ("failed" | "interrupted"))) => Some(status),
        _ => None,
    };
    let input = if block["args"].is_null() { json!({}) } else { block["args"].clone() };
    let mut part = json!({ "type": "dynamic-tool", "toolName": block["name"],
        "input": input, "providerExecuted": true });
    match error {
        Some(error) => {
            part["state"] = json!("output-error");
            part["errorText"] = json!(error);
        }
        None => {
            part["state"] = json!("output-available");
            part["output"] = block["result"].clone();
        }
    }
    part
}
