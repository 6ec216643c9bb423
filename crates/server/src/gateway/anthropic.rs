//! Anthropic's messages, from the server's side: a request as an ask, an answer as named events or whole.

use axum::http::{HeaderMap, HeaderName};
use domain::kept::Blocks;
use domain::model::{
    Answer, Ask, Call, Choice, Dialect, Finish, Gathered, Manner, ModelEvent, ModelFault, Part, PartKind,
    Prompt, Said, ToolSpec, Verbatim,
};
use domain::wire::usage_of;
use serde_json::value::to_raw_value;
use serde_json::{Value, json};

use super::history::history;
use super::openai::name_of;
use super::{Asked, Writer, common, frame, kind_of_fault, made_up, sent, text_of, texts, words};
use crate::problem::Problem;

/// Names the features that a request uses.
const BETA: HeaderName = HeaderName::from_static("anthropic-beta");
/// A longer list of names is none.
const BETA_CHARS: usize = 2048;

/// The features that a client asks for beside the body, for a provider of its dialect.
pub fn beta(headers: &HeaderMap) -> Option<String> {
    let names: Vec<&str> = headers.get_all(BETA).iter().filter_map(|names| names.to_str().ok()).collect();
    Some(names.join(",")).filter(|names| !names.is_empty() && names.len() <= BETA_CHARS)
}

pub fn read(body: Value, beta: Option<String>) -> Result<Asked, Problem> {
    let (model, messages, stream) = common(&body)?;
    let mut said: Vec<Said> = Vec::new();
    for message in messages {
        let content = &message["content"];
        if message["role"] == "assistant" {
            said.push(assistant(content));
            continue;
        }
        let blocks = content.as_array().map(Vec::as_slice).unwrap_or_default();
        let (results, other): (Vec<&Value>, Vec<&Value>) =
            blocks.iter().partition(|block| block["type"] == "tool_result");
        let answers: Vec<Answer> = results.into_iter().map(|block| answer(&said, block)).collect();
        match said.last_mut() {
            _ if answers.is_empty() => {}
            Some(Said::Answers(before)) => before.extend(answers),
            _ => said.push(Said::Answers(answers)),
        }
        if !other.is_empty() || content.is_string() {
            let other = if content.is_array() { &json!(other) } else { content };
            said.push(Said::User(words(other, part)));
        }
    }
    let none = body["tool_choice"]["type"] == "none";
    let tools = body["tools"].as_array().into_iter().flatten().filter(|_| !none).filter_map(tool).collect();
    let prompt = Prompt { system: text_of(&body["system"]), messages: history(said) };
    let max_tokens = body["max_tokens"].as_u64();
    let manner = manner(&body);
    let verbatim = Some(Verbatim { dialect: Dialect::Anthropic, body, beta });
    let ask =
        Ask { model: String::new(), prompt, tools, max_tokens, manner, kept: Blocks::default(), verbatim };
    Ok(Asked { model, ask, stream, include_usage: true })
}

fn manner(body: &Value) -> Manner {
    let choice = &body["tool_choice"];
    let parallel = choice["disable_parallel_tool_use"].as_bool().map(|disabled| !disabled);
    let choice = match choice["type"].as_str() {
        Some("auto") => Some(Choice::Auto),
        Some("any") => Some(Choice::Any),
        Some("tool") => choice["name"].as_str().map(|name| Choice::Tool(name.to_owned())),
        _ => None,
    };
    let (temperature, top_p) = (body["temperature"].as_number().cloned(), body["top_p"].as_number().cloned());
    let (stop, effort, format) = (texts(&body["stop_sequences"]), effort(body), format(body));
    Manner { temperature, top_p, stop, choice, parallel, effort, format }
}

/// How much it is to think, in OpenAI's words.
fn effort(body: &Value) -> Option<String> {
    let budget = body["thinking"]["budget_tokens"].as_u64();
    let effort = match (body["output_config"]["effort"].as_str(), budget) {
        (Some(effort @ ("low" | "medium")), _) => effort,
        (Some(_), _) => "high",
        (None, Some(..=2048)) => "low",
        (None, Some(..=8192)) => "medium",
        (None, Some(_)) => "high",
        (None, None) => return None,
    };
    Some(effort.to_owned())
}

/// The shape of the answer, in OpenAI's words.
fn format(body: &Value) -> Option<Value> {
    let schema = body.pointer("/output_config/format/schema")?;
    let schema = json!({ "name": "answer", "schema": schema, "strict": true });
    Some(json!({ "type": "json_schema", "json_schema": schema }))
}

fn assistant(content: &Value) -> Said {
    let blocks = content.as_array().map(Vec::as_slice).unwrap_or_default();
    let calls = blocks.iter().filter(|block| block["type"] == "tool_use").map(|block| Call {
        id: block["id"].as_str().unwrap_or("").to_owned(),
        name: block["name"].as_str().unwrap_or("").to_owned(),
        args: if block["input"].is_object() { block["input"].to_string() } else { "{}".to_owned() },
    });
    let texts: Vec<&str> = blocks.iter().filter_map(|block| block["text"].as_str()).collect();
    let text = content.as_str().map_or_else(|| texts.join("\n\n"), str::to_owned);
    Said::Assistant { text, calls: calls.collect() }
}

/// A picture or a PDF that came with the request, or where it is.
fn part(block: &Value) -> Option<Part> {
    let source = &block["source"];
    let kind = match block["type"].as_str()? {
        "image" if source["type"] == "url" => {
            return Some(sent(PartKind::Image, "image", "", source["url"].as_str()?));
        }
        "image" => PartKind::Image,
        "document" if source["media_type"] == "application/pdf" => PartKind::Pdf,
        _ => return None,
    };
    let (mime_type, name) =
        (source["media_type"].as_str()?, block["title"].as_str().unwrap_or("document.pdf"));
    Some(sent(kind, name, mime_type, source["data"].as_str()?))
}

fn answer(said: &[Said], block: &Value) -> Answer {
    let id = block["tool_use_id"].as_str().unwrap_or("").to_owned();
    let (failed, text) = (block["is_error"] == true, text_of(&block["content"]));
    // Not every dialect has a word for it: the text says it, too.
    let text = if failed && !text.starts_with("Error") { format!("Error: {text}") } else { text };
    Answer { name: name_of(said, &id), id, text, failed }
}

fn tool(tool: &Value) -> Option<ToolSpec> {
    let schema = match &tool["input_schema"] {
        Value::Null => json!({ "type": "object" }),
        schema => schema.clone(),
    };
    Some(ToolSpec {
        name: tool["name"].as_str()?.to_owned(),
        description: tool["description"].as_str().unwrap_or("").to_owned(),
        schema: to_raw_value(&schema).ok()?,
    })
}

pub struct Events {
    id: String,
    model: String,
    begun: bool,
    /// The next block's number, and what is open: a kind of text, or the index of a call.
    next: u64,
    open: Option<Open>,
    gathered: Gathered,
    thought: String,
    /// What came while a call was open and is not of it: blocks are told one after the other.
    held: Vec<ModelEvent>,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Open {
    Text,
    Thinking,
    Call(u64),
}

impl Events {
    pub fn new(id: &str, asked: &Asked) -> Self {
        Self {
            id: id.to_owned(),
            model: asked.model.clone(),
            begun: false,
            next: 0,
            open: None,
            gathered: Gathered::default(),
            thought: String::new(),
            held: Vec::new(),
        }
    }

    /// The message with these blocks.
    fn message(&self, content: Value, reason: Option<&str>) -> Value {
        json!({ "id": format!("msg_{}", self.id), "type": "message", "role": "assistant", "model": self.model, "content": content,
            "stop_reason": reason, "stop_sequence": null,
            "usage": usage_of(self.gathered.usage, self.gathered.details) })
    }

    fn send(&mut self, data: &Value, out: &mut Vec<u8>) {
        if !std::mem::replace(&mut self.begun, true) {
            let start = json!({ "type": "message_start", "message": self.message(json!([]), None) });
            frame(Some("message_start"), &start, out);
        }
        frame(data["type"].as_str(), data, out);
    }

    fn open(&mut self, kind: Open, block: &Value, out: &mut Vec<u8>) {
        if self.open == Some(kind) {
            return;
        }
        self.close(out);
        self.send(&json!({ "type": "content_block_start", "index": self.next, "content_block": block }), out);
        self.next += 1;
        self.open = Some(kind);
    }

    fn close(&mut self, out: &mut Vec<u8>) {
        if self.open.take().is_some() {
            self.send(&json!({ "type": "content_block_stop", "index": self.next.saturating_sub(1) }), out);
        }
    }

    fn delta(&mut self, delta: &Value, out: &mut Vec<u8>) {
        let index = self.next.saturating_sub(1);
        self.send(&json!({ "type": "content_block_delta", "index": index, "delta": delta }), out);
    }

    /// A piece of the answer, unless a call is open that may go on after it.
    fn tell(&mut self, event: &ModelEvent, out: &mut Vec<u8>) {
        match (event, self.open) {
            (ModelEvent::Call(part), Some(Open::Call(open))) if part.index != open => {
                self.held.push(event.clone());
            }
            (ModelEvent::Text(_) | ModelEvent::Reasoning(_), Some(Open::Call(_))) => {
                self.held.push(event.clone());
            }
            (ModelEvent::Text(text), _) => {
                self.open(Open::Text, &json!({ "type": "text", "text": "" }), out);
                self.delta(&json!({ "type": "text_delta", "text": text }), out);
            }
            (ModelEvent::Reasoning(text), _) => {
                let block = json!({ "type": "thinking", "thinking": "", "signature": "" });
                self.open(Open::Thinking, &block, out);
                self.delta(&json!({ "type": "thinking_delta", "thinking": text }), out);
            }
            (ModelEvent::Call(part), _) => {
                let id = part.id.clone().unwrap_or_else(|| made_up(&self.id, part.index));
                let block = json!({ "type": "tool_use", "id": id, "name": part.name, "input": {} });
                self.open(Open::Call(part.index), &block, out);
                if !part.args.is_empty() {
                    self.delta(&json!({ "type": "input_json_delta", "partial_json": part.args }), out);
                }
            }
            _ => {}
        }
    }

    /// Nothing more comes: what was held back is told, each call with all its pieces.
    fn finish(&mut self, out: &mut Vec<u8>) {
        self.close(out);
        while !self.held.is_empty() {
            for event in std::mem::take(&mut self.held) {
                self.tell(&event, out);
            }
            self.close(out);
        }
    }
}

/// The end of a stream that failed.
pub(super) fn failure(fault: &ModelFault, out: &mut Vec<u8>) {
    let error = json!({ "type": kind_of_fault(fault), "message": fault.message });
    frame(Some("error"), &json!({ "type": "error", "error": error }), out);
}

fn reason(finish: Finish) -> &'static str {
    match finish {
        Finish::Stop => "end_turn",
        Finish::Calls => "tool_use",
        Finish::Length => "max_tokens",
        Finish::Refused => "refusal",
        Finish::Paused => "pause_turn",
    }
}

impl Writer for Events {
    fn event(&mut self, event: &ModelEvent, out: &mut Vec<u8>) {
        self.gathered.push(event);
        match event {
            ModelEvent::Text(_) | ModelEvent::Call(_) => self.tell(event, out),
            ModelEvent::Reasoning(text) => {
                self.thought.push_str(text);
                self.tell(event, out);
            }
            ModelEvent::Usage(_) | ModelEvent::Details(_) => {}
            ModelEvent::End(Ok(finish)) => {
                self.finish(out);
                let end = json!({ "type": "message_delta", "delta": { "stop_reason": reason(*finish),
                        "stop_sequence": null, "stop_details": null, "container": null },
                    "usage": usage_of(self.gathered.usage, self.gathered.details) });
                self.send(&end, out);
                self.send(&json!({ "type": "message_stop" }), out);
            }
            ModelEvent::Blocks(_) | ModelEvent::Own(_) => {}
            ModelEvent::End(Err(fault)) => failure(fault, out),
        }
    }

    fn whole(&self) -> Value {
        let mut content = Vec::new();
        if !self.thought.is_empty() {
            content.push(json!({ "type": "thinking", "thinking": self.thought, "signature": "" }));
        }
        if !self.gathered.text.is_empty() {
            content.push(json!({ "type": "text", "text": self.gathered.text }));
        }
        content.extend((0..).zip(&self.gathered.calls).map(|(index, call)| {
            let input: Value = serde_json::from_str(&call.args).unwrap_or_else(|_| json!({}));
            let id = if call.id.is_empty() { &made_up(&self.id, index) } else { &call.id };
            json!({ "type": "tool_use", "id": id, "name": call.name, "input": input })
        }));
        let finish = match &self.gathered.end {
            Some(Ok(finish)) => Some(reason(*finish)),
            _ => None,
        };
        self.message(json!(content), finish)
    }
}
