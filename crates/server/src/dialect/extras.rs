//! What OpenAI's items have that no block holds: kept in the metadata of their message, by what is each item's own in its
//! id, and told with the item.

use domain::message::Message;
use serde_json::{Map, Value, json};
use uuid::Uuid;

/// The member of a message's metadata.
const EXTRAS: &str = "openai";

/// An item's own part of the id that it will have: the `n`th of its kind in its message.
fn key(kind: &str, n: usize) -> String {
    if kind == "msg" && n == 1 { kind.to_owned() } else { format!("{kind}_{n}") }
}

fn key_of(id: &Value, message: Uuid) -> String {
    id.as_str().unwrap_or_default().replacen(&format!("_{}", message.simple()), "", 1)
}

fn keep(metadata: &mut Map<String, Value>, key: String, extras: Map<String, Value>) {
    if extras.is_empty() {
        return;
    }
    if let Some(kept) = metadata.entry(EXTRAS).or_insert_with(|| json!({})).as_object_mut() {
        kept.insert(key, extras.into());
    }
}

/// Of a message that is no answer.
pub fn keep_role(metadata: &mut Map<String, Value>, item: &Value) {
    if item["role"] == "developer" {
        keep(metadata, key("msg", 1), members(item, &["role"]));
    }
}

/// Of an answer's message, whose texts are to be the `n`th and those after it.
pub fn keep_texts(metadata: &mut Map<String, Value>, n: usize, item: &Value) {
    let parts = item["content"].as_array().map(Vec::as_slice).unwrap_or(std::slice::from_ref(&Value::Null));
    let said = parts.iter().filter(|part| part["text"] != "" && item["content"] != "");
    for (n, part) in (n..).zip(said) {
        let mut extras = members(item, &["phase"]);
        if part["type"] == "refusal" {
            extras.insert("refusal".into(), json!(true));
        }
        if part["annotations"].as_array().is_some_and(|annotations| !annotations.is_empty()) {
            extras.append(&mut members(part, &["annotations"]));
        }
        keep(metadata, key("msg", n), extras);
    }
}

/// Of an answer's thought, which is to be the `n`th.
pub fn keep_thought(metadata: &mut Map<String, Value>, n: usize, item: &Value) {
    keep(metadata, key("rs", n), members(item, &["summary", "content", "encrypted_content"]));
}

fn members(item: &Value, names: &[&str]) -> Map<String, Value> {
    let given = names.iter().filter_map(|name| Some(((*name).to_owned(), item.get(*name)?.clone())));
    given.filter(|(_, value)| !value.is_null()).collect()
}

/// Items with what they had beside the message's blocks.
pub fn tell(message: &Message, items: &mut [Value]) {
    let metadata: Value = serde_json::from_str(&message.metadata).unwrap_or_default();
    let Some(kept) = metadata[EXTRAS].as_object() else { return };
    for item in items {
        let Some(extras) = kept.get(&key_of(&item["id"], message.id)) else { continue };
        match item["type"].as_str() {
            Some("reasoning") => {
                item["content"] = Value::Null;
                put(item, extras, &["summary", "content", "encrypted_content"]);
                if let Some(item) = item.as_object_mut() {
                    item.retain(|name, value| name != "content" || !value.is_null());
                }
            }
            _ => {
                put(item, extras, &["role", "phase"]);
                if let Some(part) = item.pointer_mut("/content/0") {
                    put(part, extras, &["annotations"]);
                    if extras["refusal"] == true {
                        *part = json!({ "type": "refusal", "refusal": part["text"] });
                    }
                }
            }
        }
    }
}

fn put(into: &mut Value, extras: &Value, names: &[&str]) {
    for (name, value) in members(extras, names) {
        into[name] = value;
    }
}

/// Leaves those of the items that are left.
pub fn retain(metadata: &mut Map<String, Value>, message: Uuid, left: &[Value]) {
    let left: Vec<String> = left.iter().map(|id| key_of(id, message)).collect();
    if let Some(kept) = metadata.get_mut(EXTRAS).and_then(Value::as_object_mut) {
        kept.retain(|key, _| left.contains(key));
    }
}
