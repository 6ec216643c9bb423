//! A whole answer put together from the events of a provider's stream, with all that is in them.

use domain::model::Dialect;
use serde_json::{Map, Value, json};

pub enum Whole {
    /// OpenAI's chunks so far.
    Completion(Value),
    /// Anthropic's message so far, and the input of its open block as text.
    Message(Value, String),
    /// As the provider said it.
    Said(Value),
}

impl Whole {
    /// `empty` is an answer in which nothing is said.
    pub fn new(dialect: Dialect, mut empty: Value) -> Self {
        match dialect {
            Dialect::Openai => {
                empty["choices"] = json!([]);
                Self::Completion(empty)
            }
            Dialect::Anthropic => Self::Message(empty, String::new()),
        }
    }

    pub fn push(&mut self, data: &Value) {
        match self {
            Self::Completion(whole) => add_chunk(whole, data),
            Self::Message(message, input) => add_event(message, input, data),
            Self::Said(_) => {}
        }
    }

    pub fn value(&self) -> Value {
        match self {
            Self::Completion(whole) => finished(whole.clone()),
            Self::Message(whole, _) | Self::Said(whole) => whole.clone(),
        }
    }
}

/// Objects member by member, texts one behind the other, lists by the index of what is in them; else the newest counts.
fn merge(into: &mut Value, more: &Value, name: &str) {
    match (into, more) {
        (_, Value::Null) => {}
        // What comes whole: some providers say it again with every piece, or with an empty text.
        (Value::String(text), Value::String(more))
            if matches!(name, "role" | "id" | "type" | "name" | "finish_reason" | "format") =>
        {
            if !more.is_empty() {
                text.clone_from(more);
            }
        }
        (Value::String(text), Value::String(more)) => text.push_str(more),
        (Value::Object(into), Value::Object(more)) => {
            for (name, value) in more {
                merge(into.entry(name.as_str()).or_insert(Value::Null), value, name);
            }
        }
        (Value::Array(list), Value::Array(more)) => {
            for one in more {
                add_to(list, one);
            }
        }
        (into @ Value::Null, Value::Array(more)) => {
            let mut list = Vec::new();
            more.iter().for_each(|one| add_to(&mut list, one));
            *into = Value::Array(list);
        }
        (into, more) => *into = more.clone(),
    }
}

fn add_to(list: &mut Vec<Value>, one: &Value) {
    let index = one.get("index");
    match list.iter_mut().find(|known| index.is_some() && known.get("index") == index) {
        Some(known) => merge(known, one, ""),
        None => list.push(one.clone()),
    }
}

fn add_chunk(whole: &mut Value, chunk: &Value) {
    for (name, value) in chunk.as_object().into_iter().flatten() {
        match name.as_str() {
            "choices" | "object" | "obfuscation" => {}
            _ if value.is_null() || value == "" => {}
            name => whole[name] = value.clone(),
        }
    }
    let Some(choices) = whole["choices"].as_array_mut() else { return };
    for choice in chunk["choices"].as_array().into_iter().flatten() {
        let mut choice = choice.clone();
        let Some(members) = choice.as_object_mut() else { continue };
        members.entry("index").or_insert(json!(0));
        let delta = members.remove("delta").unwrap_or_default();
        members.insert("message".into(), delta);
        add_to(choices, &choice);
    }
}

/// With the members that every completion has, and without those that only chunks have.
fn finished(mut whole: Value) -> Value {
    for choice in whole["choices"].as_array_mut().into_iter().flatten() {
        if choice["message"].is_null() {
            choice["message"] = Value::Object(Map::new());
        }
        for (place, name, default) in [
            ("/message", "role", json!("assistant")),
            ("/message", "content", Value::Null),
            ("/message", "refusal", Value::Null),
            ("", "finish_reason", Value::Null),
            ("", "logprobs", Value::Null),
        ] {
            if let Some(place) = choice.pointer_mut(place).and_then(Value::as_object_mut) {
                place.entry(name).or_insert(default);
            }
        }
        let calls = choice.pointer_mut("/message/tool_calls").and_then(Value::as_array_mut);
        for call in calls.into_iter().flatten() {
            if let Some(call) = call.as_object_mut() {
                call.remove("index");
            }
        }
    }
    whole
}

fn add_event(message: &mut Value, input: &mut String, data: &Value) {
    let take = |into: &mut Value, from: &Value| {
        for (name, value) in from.as_object().into_iter().flatten() {
            into[name.as_str()] = value.clone();
        }
    };
    match data["type"].as_str().unwrap_or_default() {
        "message_start" => take(message, &data["message"]),
        "message_delta" => {
            take(message, &data["delta"]);
            let usage: Map<String, Value> = data["usage"].as_object().cloned().unwrap_or_default();
            take(&mut message["usage"], &usage.into_iter().filter(|(_, value)| !value.is_null()).collect());
        }
        kind => {
            let Some(blocks) = message["content"].as_array_mut() else { return };
            let at = data["index"].as_u64().and_then(|at| usize::try_from(at).ok()).unwrap_or(0);
            match (kind, blocks.get_mut(at)) {
                ("content_block_start", _) => {
                    input.clear();
                    blocks.push(data["content_block"].clone());
                }
                ("content_block_delta", Some(block)) => add_delta(block, input, &data["delta"]),
                ("content_block_delta", None) => {
                    let mut block = json!({ "type": "text", "text": "" });
                    add_delta(&mut block, input, &data["delta"]);
                    blocks.push(block);
                }
                ("content_block_stop", Some(block)) if !input.is_empty() => {
                    if let Ok(read) = serde_json::from_str(&std::mem::take(input)) {
                        block["input"] = read;
                    }
                }
                _ => {}
            }
        }
    }
}

fn add_delta(block: &mut Value, input: &mut String, delta: &Value) {
    match delta["type"].as_str().unwrap_or_default() {
        "input_json_delta" => input.push_str(delta["partial_json"].as_str().unwrap_or_default()),
        "citations_delta" => merge(&mut block["citations"], &json!([delta["citation"]]), "citations"),
        "text_delta" => merge(&mut block["text"], &delta["text"], "text"),
        "thinking_delta" => merge(&mut block["thinking"], &delta["thinking"], "thinking"),
        "signature_delta" => merge(&mut block["signature"], &delta["signature"], "signature"),
        _ => {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_said_again_with_every_chunk_is_said_once() {
        let mut whole = Whole::new(Dialect::Openai, json!({ "id": "ours", "object": "chat.completion" }));
        let call = |id: &str, name: &str, args: &str| json!([{ "index": 0, "id": id, "type": "function", "function": { "name": name, "arguments": args } }]);
        for (id, delta, finish) in [
            ("c-1", json!({ "role": "assistant", "content": "" }), json!("")),
            ("c-1", json!({ "role": "", "content": "Hi", "tool_calls": call("t", "f", "{") }), json!(null)),
            (
                "",
                json!({ "role": "assistant", "content": " you", "tool_calls": call("", "", "}") }),
                json!("stop"),
            ),
            ("", json!({}), json!("stop")),
        ] {
            let choice = json!({ "index": 0, "delta": delta, "finish_reason": finish });
            whole.push(&json!({ "id": id, "choices": [choice] }));
        }
        let message = json!({ "role": "assistant", "content": "Hi you", "refusal": null, "tool_calls": [
            { "id": "t", "type": "function", "function": { "name": "f", "arguments": "{}" } }] });
        let choice = json!({ "index": 0, "message": message, "finish_reason": "stop", "logprobs": null });
        assert_eq!(whole.value(), json!({ "id": "c-1", "object": "chat.completion", "choices": [choice] }));
    }
}
