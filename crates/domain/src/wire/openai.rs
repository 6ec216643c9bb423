//! For parsers of OpenAI's stream: `chat.completion.chunk`s, ended by `[DONE]`. What that stream has no word for is a
//! chunk without choices under an `event:` name of its own (`tool_calls`, `tool_result`, `sources`, …).

use std::io::Write as _;

use serde_json::{Map, Value, json};

use super::told::{Told, Word};

/// What the chunks call the model: a run may have had several, or none.
const MODEL: &str = "threadkeep";

#[derive(Debug, Default)]
pub(super) struct OpenAi {
    told: Told,
    id: String,
    created: i64,
    /// Something was said, so that more of it begins with a blank line.
    spoke: bool,
}

impl OpenAi {
    pub(super) fn push(&mut self, seq: i64, ts: i64, kind: &str, data: &str, out: &mut Vec<u8>) {
        match self.told.read(kind, data) {
            Word::Begin { run, .. } => {
                (self.id, self.created) = (format!("chatcmpl-{run}"), ts / 1000);
                self.delta(Some(seq), json!({ "role": "assistant", "content": "" }), out);
            }
            Word::Text(text) => self.text(Some(seq), &text, out),
            Word::Reasoning(text) => self.delta(Some(seq), json!({ "reasoning_content": text }), out),
            Word::Calls { round, calls, ended } => {
                let last = if ended.is_none() { Some(seq) } else { None };
                self.named("tool_calls", last, json!({ "round": round, "calls": calls }), out);
                if let Some(ended) = ended {
                    self.named("tool_result", Some(seq), ended, out);
                }
            }
            Word::Ended(ended) => self.named("tool_result", Some(seq), ended, out),
            Word::Other(data) => self.named(kind, Some(seq), data, out),
            Word::Closing { rest, whole } => {
                if whole && self.spoke && !rest.is_empty() {
                    self.text(None, &format!("\n\n{rest}"), out);
                } else if !rest.is_empty() {
                    self.text(None, &rest, out);
                }
                let reason = if self.told.cut { "length" } else { "stop" };
                let stop = json!([{ "index": 0, "delta": {}, "finish_reason": reason, "logprobs": null }]);
                self.chunk(None, Some(seq), stop, Value::Null, out);
            }
            Word::Failure { code, message } => {
                let error =
                    json!({ "message": message, "type": "threadkeep_error", "param": null, "code": code });
                frame(None, Some(seq), &json!({ "error": error }).to_string(), out);
            }
            Word::Done => frame(None, Some(seq), "[DONE]", out),
            Word::Nothing => {}
        }
    }

    fn text(&mut self, seq: Option<i64>, text: &str, out: &mut Vec<u8>) {
        self.spoke |= !text.is_empty();
        self.delta(seq, json!({ "content": text }), out);
    }

    fn delta(&self, seq: Option<i64>, delta: Value, out: &mut Vec<u8>) {
        let choices = json!([{ "index": 0, "delta": delta, "finish_reason": null, "logprobs": null }]);
        self.chunk(None, seq, choices, Value::Null, out);
    }

    fn named(&self, name: &str, seq: Option<i64>, data: Value, out: &mut Vec<u8>) {
        self.chunk(Some(name), seq, json!([]), data, out);
    }

    /// What the data says goes before what every chunk has, but for what makes it one.
    fn chunk(&self, name: Option<&str>, seq: Option<i64>, choices: Value, data: Value, out: &mut Vec<u8>) {
        let mut chunk = if let Value::Object(data) = data { data } else { Map::new() };
        chunk.entry("id").or_insert_with(|| self.id.clone().into());
        chunk.insert("object".into(), "chat.completion.chunk".into());
        chunk.insert("created".into(), self.created.into());
        chunk.insert("model".into(), MODEL.into());
        chunk.insert("choices".into(), choices);
        frame(name, seq, &Value::Object(chunk).to_string(), out);
    }
}

/// One SSE frame; the last one of an event carries its number.
pub(super) fn frame(name: Option<&str>, seq: Option<i64>, data: &str, out: &mut Vec<u8>) {
    // Writing to a Vec cannot fail.
    if let Some(seq) = seq {
        let _ = writeln!(out, "id: {seq}");
    }
    if let Some(name) = name {
        let _ = writeln!(out, "event: {name}");
    }
    let _ = write!(out, "data: {data}\n\n");
}
