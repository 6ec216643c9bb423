//! For parsers of Anthropic's stream: one message, its blocks one after the other. A call that was made on the server
//! is a block of the server's own, and its result another. Sources are citations of the text that is open or follows; an
//! approval has no word here.

use std::collections::{HashMap, HashSet};

use serde_json::{Value, json};

use super::openai::frame;
use super::pieces::distinct;
use super::told::{Short, Told, Word, id_of};
use crate::run::{Usage, UsageDetails};

#[derive(Debug, Default)]
pub(super) struct Anthropic {
    told: Told,
    /// The next block's number.
    next: u64,
    open: Option<&'static str>,
    /// The step whose block is open, as what it is given may still come.
    ungiven: Option<String>,
    /// How each call is told, by its round and id: one that comes again in another round has another name.
    names: HashMap<(u64, String), String>,
    taken: HashSet<String>,
    /// Citations for the next text.
    notes: Vec<Value>,
    /// The open text has had its citations: what is said next is another one.
    cited: bool,
}

impl Anthropic {
    pub(super) fn push(&mut self, seq: i64, kind: &str, data: &str, out: &mut Vec<u8>) {
        let mut frames = Vec::new();
        match self.told.read(kind, data) {
            Word::Begin { run, .. } => frames.push(json!({ "type": "message_start", "message": {
                "id": format!("msg_{run}"), "type": "message", "role": "assistant", "model": "threadkeep", "content": [],
                "stop_reason": null, "stop_sequence": null,
                "usage": usage_of(Usage::default(), UsageDetails::default()) } })),
            // A block without a word is one that its client cannot send back.
            Word::Text(text) if text.is_empty() => {}
            Word::Text(text) => self.text(&text, &mut frames),
            Word::Reasoning(text) => {
                self.open_block("thinking", &mut frames);
                frames.push(self.delta(json!({ "type": "thinking_delta", "thinking": text })));
            }
            Word::Calls { round, calls, ended } => {
                for call in &calls {
                    self.call(round, call, &mut frames);
                }
                if let Some(ended) = ended {
                    self.result(&ended, &mut frames);
                }
            }
            Word::Args { call, ended } => {
                self.given(&call, &mut frames);
                if let Some(ended) = ended {
                    self.result(&ended, &mut frames);
                }
            }
            Word::Ended(ended) => self.result(&ended, &mut frames),
            Word::Closing { rest, whole } => {
                if whole {
                    self.close(&mut frames);
                }
                if !rest.is_empty() {
                    self.text(&rest, &mut frames);
                }
                self.finish(&mut frames);
                let reason = match self.told.short {
                    Short::No => "end_turn",
                    Short::Cut => "max_tokens",
                    Short::Refused => "refusal",
                };
                let output_tokens = self.told.tokens;
                let usage = match self.told.input_tokens {
                    Some(input_tokens) => usage_of(Usage { input_tokens, output_tokens }, self.told.details),
                    None => json!({ "output_tokens": output_tokens }),
                };
                frames.push(json!({ "type": "message_delta", "usage": usage, "delta": { "stop_reason": reason,
                    "stop_sequence": null, "stop_details": null, "container": null } }));
            }
            Word::Failure { message, .. } => {
                self.finish(&mut frames);
                frames.push(json!({ "type": "error", "error": { "type": "api_error", "message": message } }));
            }
            Word::Done if self.told.failed => {}
            Word::Done => frames.push(json!({ "type": "message_stop" })),
            Word::Other(data) if kind == "sources" => {
                self.notes.extend(data["sources"].as_array().into_iter().flatten().map(citation));
                if self.open == Some("text") {
                    self.cite(&mut frames);
                    self.cited = true;
                }
            }
            Word::Other(file) if kind == "file" => {
                let block = json!({ "type": "container_upload", "file_id": file["fileId"] });
                self.start(&block, &mut frames);
                self.close(&mut frames);
            }
            Word::Other(_) | Word::Nothing => {}
        }
        let last = frames.len().saturating_sub(1);
        for (at, data) in frames.iter().enumerate() {
            let name = data["type"].as_str();
            frame(name, (at == last).then_some(seq), &data.to_string(), out);
        }
    }

    fn text(&mut self, text: &str, frames: &mut Vec<Value>) {
        if self.cited {
            self.close(frames);
        }
        self.open_block("text", frames);
        self.cite(frames);
        frames.push(self.delta(json!({ "type": "text_delta", "text": text })));
    }

    /// Puts the citations that wait into the open text.
    fn cite(&mut self, frames: &mut Vec<Value>) {
        for citation in std::mem::take(&mut self.notes) {
            frames.push(self.delta(json!({ "type": "citations_delta", "citation": citation })));
        }
    }

    /// Nothing more is said: citations that no text came for have one of their own, and what never ended is told so.
    fn finish(&mut self, frames: &mut Vec<Value>) {
        if !self.notes.is_empty() {
            self.open_block("text", frames);
            self.cite(frames);
        }
        self.close(frames);
        for ended in self.told.take_unended() {
            self.result(&ended, frames);
        }
    }

    fn delta(&self, delta: Value) -> Value {
        json!({ "type": "content_block_delta", "index": self.next.saturating_sub(1), "delta": delta })
    }

    /// The block that a delta belongs to; one of another kind is closed first.
    fn open_block(&mut self, kind: &'static str, frames: &mut Vec<Value>) {
        if self.open == Some(kind) {
            return;
        }
        let block = match kind {
            "thinking" => json!({ "type": "thinking", "thinking": "", "signature": "" }),
            _ => json!({ "type": "text", "text": "" }),
        };
        self.start(&block, frames);
        self.open = Some(kind);
    }

    fn start(&mut self, block: &Value, frames: &mut Vec<Value>) {
        self.close(frames);
        frames.push(json!({ "type": "content_block_start", "index": self.next, "content_block": block }));
        self.next += 1;
        self.open = Some("other");
    }

    fn close(&mut self, frames: &mut Vec<Value>) {
        self.cited = false;
        if self.ungiven.take().is_some() {
            frames.push(self.input(&json!({})));
        }
        if self.open.take().is_some() {
            frames.push(json!({ "type": "content_block_stop", "index": self.next.saturating_sub(1) }));
        }
    }

    fn call(&mut self, round: u64, call: &Value, frames: &mut Vec<Value>) {
        let id = distinct(&id_of(call), &mut self.taken);
        self.names.insert((round, id_of(call)), id.clone());
        self.announce(&id, call, frames);
        if round == 0 && call["args"].is_null() {
            self.ungiven = Some(id);
            return;
        }
        let args = if call["args"].is_null() { json!({}) } else { call["args"].clone() };
        frames.push(self.input(&args));
        self.close(frames);
    }

    /// What a step is given, which came late: into its block while that is open, else it is announced once more.
    fn given(&mut self, call: &Value, frames: &mut Vec<Value>) {
        let id = self.names.get(&(0, id_of(call))).cloned().unwrap_or_else(|| id_of(call));
        if self.ungiven.as_ref() != Some(&id) {
            self.announce(&id, call, frames);
        }
        self.ungiven = None;
        frames.push(self.input(&call["args"]));
        self.close(frames);
    }

    fn announce(&mut self, id: &str, call: &Value, frames: &mut Vec<Value>) {
        let block = json!({ "type": "server_tool_use", "id": id, "name": call["name"], "input": {} });
        self.start(&block, frames);
    }

    fn input(&self, args: &Value) -> Value {
        self.delta(json!({ "type": "input_json_delta", "partial_json": args.to_string() }))
    }

    fn result(&mut self, ended: &Value, frames: &mut Vec<Value>) {
        let (text, failed) = match (&ended["error"], &ended["result"]) {
            (Value::String(error), _) => (error.clone(), true),
            (_, Value::String(text)) => (text.clone(), false),
            (_, Value::Null) => (String::new(), false),
            (_, other) => (other.to_string(), false),
        };
        let content = json!([{ "type": "text", "text": text }]);
        let (round, own) = (ended["round"].as_u64().unwrap_or(0), id_of(ended));
        let id = self.names.get(&(round, own.clone())).cloned().unwrap_or(own);
        let block =
            json!({ "type": "tool_result", "tool_use_id": id, "content": content, "is_error": failed });
        self.start(&block, frames);
        self.close(frames);
    }
}

/// Input that was kept, or is kept now, is counted apart in that dialect.
pub fn usage_of(usage: Usage, details: UsageDetails) -> Value {
    let UsageDetails { cached_tokens, cache_write_tokens, .. } = details;
    let fresh = usage.input_tokens - cached_tokens - cache_write_tokens;
    json!({ "input_tokens": fresh.max(0), "cache_creation_input_tokens": cache_write_tokens,
        "cache_read_input_tokens": cached_tokens, "output_tokens": usage.output_tokens })
}

/// The one citation of that dialect which may be of anything.
fn citation(source: &Value) -> Value {
    let place = ["url", "locator", "id"].into_iter().find_map(|name| source[name].as_str());
    json!({ "type": "search_result_location", "source": place, "title": source["title"],
        "cited_text": source["snippet"], "search_result_index": 0, "start_block_index": 0, "end_block_index": 1 })
}
