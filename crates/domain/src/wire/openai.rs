//! For parsers of OpenAI's stream: `chat.completion.chunk`s, ended by `[DONE]`. What that stream has no word for is a
//! chunk without choices under an `event:` name of its own (`tool_calls`, `tool_result`, `sources`, …). What such an
//! event says is a member with its name: an `error` or `id` of a call would be taken for the stream's.

use std::io::Write as _;

use serde_json::{Value, json};

use super::told::{Short, Told, Word};

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
        let begins = self.told.begins();
        match self.told.read(kind, data) {
            Word::Begin { run, .. } => {
                (self.id, self.created) = (format!("chatcmpl-{run}"), ts / 1000);
                self.delta(Some(seq), json!({ "role": "assistant", "content": "" }), out);
            }
            Word::Text(text) => self.text(Some(seq), begins, &text, out),
            Word::Reasoning(text) => self.delta(Some(seq), json!({ "reasoning_content": text }), out),
            Word::Calls { round, calls, ended } => {
                let last = if ended.is_none() { Some(seq) } else { None };
                self.named("tool_calls", last, &[("round", json!(round)), ("calls", json!(calls))], out);
                if let Some(ended) = ended {
                    self.named("tool_result", Some(seq), &[("tool_result", ended)], out);
                }
            }
            // Announced once more, with what it is given.
            Word::Args { call, ended } => {
                let last = if ended.is_none() { Some(seq) } else { None };
                self.named("tool_calls", last, &[("round", json!(0)), ("calls", json!([call]))], out);
                if let Some(ended) = ended {
                    self.named("tool_result", Some(seq), &[("tool_result", ended)], out);
                }
            }
            Word::Ended(ended) => self.named("tool_result", Some(seq), &[("tool_result", ended)], out),
            Word::Other(mut data) if kind == "sources" => {
                self.named(kind, Some(seq), &[(kind, data["sources"].take())], out);
            }
            Word::Other(data) => self.named(kind, Some(seq), &[(kind, data)], out),
            Word::Closing { rest, whole } => {
                if !rest.is_empty() {
                    self.text(None, whole || begins, &rest, out);
                }
                self.end_calls(out);
                let reason = match self.told.short {
                    Short::No => "stop",
                    Short::Cut => "length",
                    Short::Refused => "content_filter",
                };
                let stop = json!([{ "index": 0, "delta": {}, "finish_reason": reason, "logprobs": null }]);
                self.chunk(None, Some(seq), stop, &[], out);
            }
            Word::Failure { code, message } => {
                self.end_calls(out);
                let error =
                    json!({ "message": message, "type": "threadkeep_error", "param": null, "code": code });
                frame(None, Some(seq), &json!({ "error": error }).to_string(), out);
            }
            Word::Done => frame(None, Some(seq), "[DONE]", out),
            Word::Nothing => {}
        }
    }

    /// The run says no more: what never ended is told so.
    fn end_calls(&mut self, out: &mut Vec<u8>) {
        for ended in self.told.take_unended() {
            self.named("tool_result", None, &[("tool_result", ended)], out);
        }
    }

    /// A text that `begins` is another than the one before: a client has all of them as one, as the message's plain text.
    fn text(&mut self, seq: Option<i64>, begins: bool, text: &str, out: &mut Vec<u8>) {
        let apart = if begins && self.spoke && !text.is_empty() { "\n\n" } else { "" };
        self.spoke |= !text.is_empty();
        self.delta(seq, json!({ "content": format!("{apart}{text}") }), out);
    }

    fn delta(&self, seq: Option<i64>, delta: Value, out: &mut Vec<u8>) {
        let choices = json!([{ "index": 0, "delta": delta, "finish_reason": null, "logprobs": null }]);
        self.chunk(None, seq, choices, &[], out);
    }

    fn named(&self, name: &str, seq: Option<i64>, own: &[(&str, Value)], out: &mut Vec<u8>) {
        self.chunk(Some(name), seq, json!([]), own, out);
    }

    /// `own` is what the chunk has beside the members of every chunk.
    fn chunk(
        &self,
        name: Option<&str>,
        seq: Option<i64>,
        choices: Value,
        own: &[(&str, Value)],
        out: &mut Vec<u8>,
    ) {
        let mut chunk = json!({ "id": self.id, "object": "chat.completion.chunk", "created": self.created,
            "model": MODEL, "choices": choices });
        for (member, value) in own {
            chunk[*member] = value.clone();
        }
        frame(name, seq, &chunk.to_string(), out);
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
