//! Anthropic's Messages: a prompt as a request, named events back. Kinds of events and blocks that are not known are
//! passed over. The API's version is a setting, for it decides what a request may hold.

use std::collections::BTreeSet;

use domain::model::{
    Ask, Call, CallPart, Choice, Dialect, Finish, Manner, ModelEvent, ModelFault, Part, PartKind, Piece,
    Prompt, Said, ToolSpec, Words, keepable,
};
use domain::run::{Usage, UsageDetails};
use domain::secret::Secret;
use reqwest::Url;
use reqwest::header::{HeaderMap, HeaderName, HeaderValue};
use serde_json::{Number, Value, json};

use super::blocks::Blocks;
use super::call::{self, Parser, Request};
use super::openai::endpoint;
use super::{LanguageModel, ModelLimits, ModelStream, usual};
use crate::error::UpstreamError;
use crate::sse::SseEvent;

pub const BASE_URL: &str = "https://api.anthropic.com";
pub const VERSION: &str = "2023-06-01";
/// From this version on a request may not choose how the model samples, nor hold what `strip` takes out of it.
const STRICT_SINCE: &str = "2026-10-21";
/// A request must name a limit; this is ours where nobody gave one.
const MAX_TOKENS: u64 = 8192;
/// A prompt must begin with the user.
const SPEAKS_FIRST: &str = "(The assistant speaks first.)";
/// The fewest tokens that may be given for thinking.
const MIN_BUDGET: u64 = 1024;

#[derive(Debug, Clone)]
pub struct Anthropic {
    client: reqwest::Client,
    url: Url,
    key: Option<Secret>,
    version: String,
    limits: ModelLimits,
}

impl Anthropic {
    /// `base` ends where `/v1/messages` is put behind it; `client` is the one of `upstream::http`.
    pub fn new(
        base: Option<&str>,
        key: Option<Secret>,
        version: &str,
        client: reqwest::Client,
        limits: ModelLimits,
    ) -> Result<Self, UpstreamError> {
        let url = endpoint("ANTHROPIC_BASE_URL", base.unwrap_or(BASE_URL), &["v1", "messages"])?;
        Ok(Self { client, url, key, version: version.to_owned(), limits })
    }
}

impl LanguageModel for Anthropic {
    fn stream(&self, ask: Ask) -> ModelStream {
        let mut headers = HeaderMap::new();
        if let Some(key) = &self.key
            && let Ok(mut value) = HeaderValue::from_str(key.expose())
        {
            value.set_sensitive(true);
            headers.insert(HeaderName::from_static("x-api-key"), value);
        }
        if let Ok(version) = HeaderValue::from_str(&self.version) {
            headers.insert(HeaderName::from_static("anthropic-version"), version);
        }
        let beta = ask.verbatim_in(Dialect::Anthropic).and_then(|verbatim| verbatim.beta.as_deref());
        if let Some(beta) = beta.and_then(|beta| HeaderValue::from_str(beta).ok()) {
            headers.insert(HeaderName::from_static("anthropic-beta"), beta);
        }
        call::stream(Request {
            client: self.client.clone(),
            url: self.url.clone(),
            headers,
            body: request(&ask, &self.version).to_string().into(),
            secrets: self.key.iter().cloned().collect(),
            provider: "Anthropic",
            limits: self.limits,
            parser: || Box::new(Events::default()),
            verbatim: ask.verbatim_in(Dialect::Anthropic).is_some(),
        })
    }
}

/// The request's body.
pub fn request(ask: &Ask, version: &str) -> Value {
    if let Some(verbatim) = ask.verbatim_in(Dialect::Anthropic) {
        let mut body = verbatim.body.clone();
        body["model"] = json!(ask.model);
        body["stream"] = json!(true);
        if version >= STRICT_SINCE {
            strip(&mut body);
        }
        return body;
    }
    let mut body = json!({
        "model": ask.model,
        "max_tokens": ask.max_tokens.unwrap_or(MAX_TOKENS),
        "messages": messages(ask),
        "stream": true,
    });
    let system = system(ask);
    if !system.is_empty() {
        body["system"] = json!(system);
    }
    if !ask.tools.is_empty() {
        body["tools"] = ask.tools.iter().map(tool).collect();
    } else if let Some(called) = called(&ask.prompt) {
        // A history with calls is refused unless their tools are told; none of them is to be called.
        body["tools"] = called;
        body["tool_choice"] = json!({ "type": "none" });
    }
    put_thinking(ask, &mut body);
    put_manner(&ask.manner, !ask.tools.is_empty(), version, &mut body);
    body
}

/// There is no word for an answer that is any JSON object.
fn system(ask: &Ask) -> String {
    match ask.manner.format.as_ref().map(|format| &format["type"]) {
        Some(kind) if kind == "json_object" => {
            format!("{}\n\nAnswer with one JSON object and nothing else.", ask.prompt.system)
                .trim()
                .to_owned()
        }
        _ => ask.prompt.system.clone(),
    }
}

/// How much it is to think, and the shape of what it says then.
fn put_thinking(ask: &Ask, body: &mut Value) {
    if let Some(schema) = ask.manner.format.as_ref().and_then(|format| format.pointer("/json_schema/schema"))
    {
        body["output_config"]["format"] = json!({ "type": "json_schema", "schema": schema });
    }
    let (effort, budget) = match ask.manner.effort.as_deref() {
        Some("minimal" | "low") => ("low", 1024),
        Some("medium") => ("medium", 4096),
        Some("high") => ("high", 16_384),
        Some("xhigh" | "max") => ("max", 32_768),
        _ => return,
    };
    // A call that it must make leaves no room for thoughts.
    let forced = !ask.tools.is_empty() && matches!(ask.manner.choice, Some(Choice::Any | Choice::Tool(_)));
    if !takes_budget(&ask.model) {
        body["output_config"]["effort"] = json!(effort);
        if !forced {
            body["thinking"] = json!({ "type": "adaptive" });
        }
        return;
    }
    let budget = ask.max_tokens.map_or(budget, |most| budget.min(most / 2));
    if forced || lacks_thoughts(ask) || budget < MIN_BUDGET {
        return;
    }
    body["thinking"] = json!({ "type": "enabled", "budget_tokens": budget });
    if ask.max_tokens.is_none() {
        body["max_tokens"] = json!(MAX_TOKENS + budget);
    }
}

/// Between a call and its answer it wants the thoughts that led there, from the first of these answers on.
fn lacks_thoughts(ask: &Ask) -> bool {
    let asked = ask.prompt.messages.iter().rposition(|said| matches!(said, Said::User(_)));
    let first = asked.map_or(0, |at| at + 1);
    let is_thought = |block: &Value| block["type"] == "thinking" || block["type"] == "redacted_thinking";
    let has_thoughts = ask.kept.get(&first).is_some_and(|blocks| blocks.iter().any(is_thought));
    first < ask.prompt.messages.len() && !has_thoughts
}

/// Models from before thinking adapted itself: they are given tokens for it, and know no word for the effort.
fn takes_budget(model: &str) -> bool {
    let Some(name) = model.strip_prefix("claude-") else { return false };
    let minor = name.split_once("-4").map(|(_, rest)| rest.trim_start_matches('-').split('-').next());
    name.starts_with('3')
        || minor.flatten().is_some_and(|minor| matches!(minor, "" | "0" | "1" | "5") || minor.len() == 8)
}

fn put_manner(manner: &Manner, tools: bool, version: &str, body: &mut Value) {
    // Who thinks samples as it likes.
    if version < STRICT_SINCE && body["thinking"].is_null() {
        // What others call hot is out of bounds here.
        if let Some(temperature) = manner.temperature.as_ref().and_then(Number::as_f64) {
            body["temperature"] = json!(temperature.min(1.0));
        }
        // Newer models refuse both at once.
        if let (Some(top_p), None) = (&manner.top_p, &manner.temperature) {
            body["top_p"] = json!(top_p);
        }
    }
    // One of white space alone is refused.
    let stop: Vec<&String> = manner.stop.iter().filter(|stop| !stop.trim().is_empty()).collect();
    if !stop.is_empty() {
        body["stop_sequences"] = json!(stop);
    }
    if !tools || (manner.choice.is_none() && manner.parallel.is_none()) {
        return;
    }
    let mut choice = match manner.choice.as_ref().unwrap_or(&Choice::Auto) {
        Choice::None => json!({ "type": "none" }),
        Choice::Auto => json!({ "type": "auto" }),
        Choice::Any => json!({ "type": "any" }),
        Choice::Tool(name) => json!({ "type": "tool", "name": name }),
    };
    if let Some(parallel) = manner.parallel {
        choice["disable_parallel_tool_use"] = json!(!parallel);
    }
    body["tool_choice"] = choice;
}

/// Takes out what the strict versions refuse: sampling, documents that the assistant shows, citations of a user.
fn strip(body: &mut Value) {
    if let Some(body) = body.as_object_mut() {
        body.retain(|name, _| !matches!(name.as_str(), "temperature" | "top_p" | "top_k"));
    }
    let Some(messages) = body.get_mut("messages").and_then(Value::as_array_mut) else { return };
    messages.retain_mut(|message| {
        let assistant = message["role"] == "assistant";
        let Some(blocks) = message.get_mut("content").and_then(Value::as_array_mut) else { return true };
        let before = blocks.len();
        blocks.retain(|block| !assistant || block["type"] != "document");
        for block in blocks.iter_mut().filter(|block| !assistant && block["type"] == "text") {
            if let Some(block) = block.as_object_mut() {
                block.retain(|name, value| {
                    name != "citations" || value.as_array().is_none_or(|citations| citations.is_empty())
                });
            }
        }
        // A message with nothing left is refused, too.
        blocks.len() == before || !blocks.is_empty()
    });
}

/// The tools that a prompt has calls of.
fn called(prompt: &Prompt) -> Option<Value> {
    let calls = prompt.messages.iter().filter_map(|said| match said {
        Said::Assistant { calls, .. } => Some(calls),
        _ => None,
    });
    let names: BTreeSet<&str> = calls.flatten().map(|call| call.name.as_str()).collect();
    let tools = names.iter().map(|name| json!({ "name": name, "input_schema": { "type": "object" } }));
    (!names.is_empty()).then(|| tools.collect())
}

fn tool(spec: &ToolSpec) -> Value {
    json!({ "name": spec.name, "description": spec.description, "input_schema": spec.schema })
}

/// Answers to calls are the user's to give here, so that they and the user's own words are one message.
fn messages(ask: &Ask) -> Vec<Value> {
    let mut out: Vec<(&str, Vec<Value>)> = Vec::new();
    let mut add = |role, blocks: Vec<Value>| match out.last_mut() {
        Some((last, content)) if *last == role => content.extend(blocks),
        _ => out.push((role, blocks)),
    };
    let last = ask.prompt.messages.len().saturating_sub(1);
    for (at, said) in ask.prompt.messages.iter().enumerate() {
        match said {
            Said::User(words) => add("user", content(words)),
            Said::Assistant { text, calls } => {
                // What it is to go on from must not end in white space.
                let text = if at == last { text.trim_end() } else { text };
                let own = ask.kept.get(&at).and_then(|blocks| as_said(blocks, calls));
                add("assistant", own.unwrap_or_else(|| retold(text, calls)));
            }
            Said::Answers(answers) => {
                let results = answers.iter().map(|answer| {
                    let mut result =
                        json!({ "type": "tool_result", "tool_use_id": answer.id, "content": answer.text });
                    if answer.failed {
                        result["is_error"] = json!(true);
                    }
                    result
                });
                add("user", results.collect());
            }
        }
    }
    if out.first().is_some_and(|(role, _)| *role == "assistant") {
        out.insert(0, ("user", vec![json!({ "type": "text", "text": SPEAKS_FIRST })]));
    }
    // All up to here may be kept by the provider for the next call, which begins with the same. What it says itself is
    // left as it is.
    let asked = out.iter_mut().rfind(|(role, _)| *role == "user");
    if let Some(last) = asked.and_then(|(_, content)| content.last_mut()) {
        last["cache_control"] = json!({ "type": "ephemeral" });
    }
    out.into_iter().map(|(role, content)| json!({ "role": role, "content": content })).collect()
}

/// An answer as it was said, with the calls by the names that they have in the prompt.
fn as_said(blocks: &[Value], calls: &[Call]) -> Option<Vec<Value>> {
    let is_call = |block: &&Value| block["type"] == "tool_use";
    if blocks.iter().filter(is_call).count() != calls.len() {
        return None;
    }
    let mut calls = calls.iter().map(tool_use);
    let own = |block: &Value| if is_call(&block) { calls.next() } else { Some(block.clone()) };
    blocks.iter().map(own).collect()
}

/// An answer as it is stored.
fn retold(text: &str, calls: &[Call]) -> Vec<Value> {
    let text = (!text.trim().is_empty()).then(|| json!({ "type": "text", "text": text }));
    text.into_iter().chain(calls.iter().map(tool_use)).collect()
}

fn tool_use(call: &Call) -> Value {
    let input: Value = serde_json::from_str(&call.args).unwrap_or_else(|_| json!({}));
    json!({ "type": "tool_use", "id": call.id, "name": call.name, "input": input })
}

/// Texts and files in their order.
fn content(words: &Words) -> Vec<Value> {
    let part = |part: &Part| {
        let source = match part.url() {
            Some(url) => json!({ "type": "url", "url": url }),
            None => json!({ "type": "base64", "media_type": part.mime_type, "data": &*part.data }),
        };
        match part.kind {
            PartKind::Text => json!({ "type": "text", "text": part.as_text() }),
            PartKind::Image => json!({ "type": "image", "source": source }),
            PartKind::Pdf => json!({ "type": "document", "source": source, "title": part.name }),
        }
    };
    let piece = |piece| match piece {
        Piece::Text(text) => json!({ "type": "text", "text": text }),
        Piece::Part(shown) => part(shown),
    };
    words.pieces().into_iter().map(piece).collect()
}

/// The events of one answer.
#[derive(Default)]
pub(super) struct Events {
    finish: Option<Finish>,
    done: bool,
    usage: Usage,
    /// Input that is counted apart: what was read anew, written to the provider's cache, and read from it.
    input: [i64; 3],
    /// The call under way: its block, what its start said of its input, and whether pieces came.
    call: Option<(u64, Value, bool)>,
    /// Calls so far. Their place among each other is the index we tell, not their block's.
    calls: u64,
    blocks: Blocks,
}

impl Parser for Events {
    fn event(&mut self, event: &SseEvent, out: &mut Vec<ModelEvent>) -> Result<bool, ModelFault> {
        if event.data.trim().is_empty() {
            return Ok(false);
        }
        if let Some(said) = usual::anthropic(&event.data) {
            if let ModelEvent::Text(text) = &said {
                self.blocks.text(text);
            }
            out.push(said);
            return Ok(false);
        }
        let data: Value = serde_json::from_str(&event.data).map_err(|error| call::unreadable(&error))?;
        let index = data.get("index").and_then(Value::as_u64).unwrap_or(0);
        match data.get("type").and_then(Value::as_str).unwrap_or(&event.name) {
            "message_start" => self.usage(data.pointer("/message/usage"), out),
            "content_block_start" => self.block(index, data.get("content_block"), out),
            "content_block_delta" => self.delta(index, data.get("delta"), out),
            "content_block_stop" => self.stop(out),
            "message_delta" => {
                self.reason(data.pointer("/delta/stop_reason"), out);
                self.usage(data.get("usage"), out);
            }
            "message_stop" => {
                self.done = true;
                return Ok(true);
            }
            "error" => return Err(call::told(&data)),
            _ => {}
        }
        Ok(false)
    }

    fn whole(&mut self, body: &Value, out: &mut Vec<ModelEvent>) -> Result<(), ModelFault> {
        if body.get("error").is_some_and(|error| !error.is_null()) {
            return Err(call::told(body));
        }
        for (index, block) in (0..).zip(body.get("content").and_then(Value::as_array).into_iter().flatten()) {
            self.block(index, Some(block), out);
            self.stop(out);
        }
        self.usage(body.get("usage"), out);
        self.reason(body.get("stop_reason"), out);
        Ok(())
    }

    fn finish(&self) -> Option<ModelEvent> {
        let finish = self.finish.or(self.done.then_some(Finish::Stop))?;
        Some(ModelEvent::End(Ok(finish)))
    }
}

impl Events {
    /// Input that was read from or written to the provider's cache is input. A later count replaces the earlier one of
    /// its kind.
    fn usage(&mut self, usage: Option<&Value>, out: &mut Vec<ModelEvent>) {
        let Some(usage) = usage else { return };
        let count = |name: &str| usage.get(name).and_then(Value::as_i64).map(|count| count.max(0));
        let names = ["input_tokens", "cache_creation_input_tokens", "cache_read_input_tokens"];
        let mut told = false;
        for (own, count) in self.input.iter_mut().zip(names.map(count)) {
            told |= count.is_some();
            *own = count.unwrap_or(*own);
        }
        let [_, cache_write_tokens, cached_tokens] = self.input;
        self.usage.input_tokens = self.input.iter().sum();
        let details = UsageDetails { cached_tokens, cache_write_tokens, reasoning_tokens: 0 };
        out.extend((told && details != UsageDetails::default()).then_some(ModelEvent::Details(details)));
        if let Some(output) = count("output_tokens") {
            self.usage.output_tokens = output;
        }
        out.push(ModelEvent::Usage(self.usage));
    }

    fn block(&mut self, index: u64, block: Option<&Value>, out: &mut Vec<ModelEvent>) {
        let Some(block) = block else { return };
        self.blocks.start(block);
        let text = |name: &str| {
            block.get(name).and_then(Value::as_str).filter(|text| !text.is_empty()).map(keepable)
        };
        match block.get("type").and_then(Value::as_str).unwrap_or("") {
            "text" => out.extend(text("text").map(ModelEvent::Text)),
            "thinking" => out.extend(text("thinking").map(ModelEvent::Reasoning)),
            "tool_use" => {
                let (id, name) = (text("id"), text("name"));
                out.push(ModelEvent::Call(CallPart { index: self.calls, id, name, args: String::new() }));
                self.calls += 1;
                self.call = Some((index, block.get("input").cloned().unwrap_or_default(), false));
            }
            _ => {}
        }
    }

    fn delta(&mut self, index: u64, delta: Option<&Value>, out: &mut Vec<ModelEvent>) {
        let Some(delta) = delta else { return };
        self.blocks.delta(delta);
        let text = |name: &str| delta.get(name).and_then(Value::as_str).filter(|text| !text.is_empty());
        match delta.get("type").and_then(Value::as_str).unwrap_or("") {
            "text_delta" => out.extend(text("text").map(|text| ModelEvent::Text(keepable(text)))),
            "thinking_delta" => {
                out.extend(text("thinking").map(|text| ModelEvent::Reasoning(keepable(text))))
            }
            "input_json_delta" => {
                if let (Some((at, _, pieces)), Some(args)) = (&mut self.call, text("partial_json"))
                    && *at == index
                {
                    *pieces = true;
                    let args = args.to_owned();
                    out.push(self.piece(args));
                }
            }
            _ => {}
        }
    }

    /// A call whose input came whole with its start.
    fn stop(&mut self, out: &mut Vec<ModelEvent>) {
        if let Some((_, input, false)) = self.call.take()
            && input.as_object().is_some_and(|input| !input.is_empty())
        {
            out.push(self.piece(input.to_string()));
        }
    }

    /// More of the newest call.
    fn piece(&self, args: String) -> ModelEvent {
        ModelEvent::Call(CallPart { index: self.calls.saturating_sub(1), args, ..CallPart::default() })
    }

    fn reason(&mut self, reason: Option<&Value>, out: &mut Vec<ModelEvent>) {
        if let Some(reason) = reason.and_then(Value::as_str) {
            let finish = match reason {
                "tool_use" => Finish::Calls,
                "max_tokens" | "model_context_window_exceeded" => Finish::Length,
                "refusal" => Finish::Refused,
                "pause_turn" => Finish::Paused,
                _ => Finish::Stop,
            };
            let goes_on = matches!(finish, Finish::Calls | Finish::Paused);
            let blocks = if goes_on { self.blocks.take() } else { Vec::new() };
            if !blocks.is_empty() {
                out.push(ModelEvent::Blocks(blocks));
            }
            self.finish = Some(finish);
        }
    }
}
