//! OpenAI's chat completions, and the many servers that speak the same: a prompt as a request, chunks as events.
//! Read leniently: what is not known is passed over, and what servers are known to leave out is made up for.

use domain::model::{
    Ask, CallPart, Choice, Dialect, Finish, Manner, ModelEvent, ModelFault, Part, PartKind, Piece, Prompt,
    Said, ToolSpec, Words, keepable,
};
use domain::run::{Usage, UsageDetails};
use domain::secret::Secret;
use reqwest::Url;
use reqwest::header::{AUTHORIZATION, HeaderMap, HeaderValue};
use serde_json::{Map, Value, json};

use super::call::{self, Parser, Request};
use super::{LanguageModel, ModelLimits, ModelStream, usual};
use crate::error::UpstreamError;
use crate::sse::SseEvent;

pub const BASE_URL: &str = "https://api.openai.com/v1";

#[derive(Debug, Clone)]
pub struct OpenAi {
    client: reqwest::Client,
    url: Url,
    key: Option<Secret>,
    limits: ModelLimits,
    /// As an error names it.
    title: &'static str,
}

impl OpenAi {
    /// `base` ends where `/chat/completions` is put behind it; `client` is the one of `upstream::http`.
    pub fn new(
        base: Option<&str>,
        key: Option<Secret>,
        client: reqwest::Client,
        limits: ModelLimits,
    ) -> Result<Self, UpstreamError> {
        let url = endpoint("OPENAI_BASE_URL", base.unwrap_or(BASE_URL), &["chat", "completions"])?;
        Ok(Self { client, url, key, limits, title: "OpenAI" })
    }

    /// The same, for a server that errors are to call otherwise.
    #[must_use]
    pub fn called(self, title: &'static str) -> Self {
        Self { title, ..self }
    }
}

/// The address of an API's endpoint.
pub(super) fn endpoint(setting: &'static str, base: &str, path: &[&str]) -> Result<Url, UpstreamError> {
    let bad = |reason: String| UpstreamError::Url { setting, reason };
    let mut url = Url::parse(base).map_err(|error| bad(error.to_string()))?;
    if !matches!(url.scheme(), "http" | "https") {
        return Err(bad(format!("its scheme is {}", url.scheme())));
    }
    if let Ok(mut segments) = url.path_segments_mut() {
        segments.pop_if_empty().extend(path);
    }
    Ok(url)
}

impl LanguageModel for OpenAi {
    fn stream(&self, ask: Ask) -> ModelStream {
        let mut headers = HeaderMap::new();
        if let Some(key) = &self.key
            && let Ok(mut value) = HeaderValue::from_str(&format!("Bearer {}", key.expose()))
        {
            value.set_sensitive(true);
            headers.insert(AUTHORIZATION, value);
        }
        call::stream(Request {
            client: self.client.clone(),
            url: self.url.clone(),
            headers,
            body: request(&ask).to_string().into(),
            secrets: self.key.iter().cloned().collect(),
            provider: self.title,
            limits: self.limits,
            parser: || Box::new(Chunks::default()),
            verbatim: ask.verbatim_in(Dialect::Openai).is_some(),
        })
    }
}

/// The request's body.
pub fn request(ask: &Ask) -> Value {
    if let Some(verbatim) = ask.verbatim_in(Dialect::Openai) {
        let mut body = verbatim.body.clone();
        body["model"] = json!(ask.model);
        body["stream"] = json!(true);
        // Without it nothing says what the call cost.
        match body.get_mut("stream_options").and_then(Value::as_object_mut) {
            Some(options) => _ = options.insert("include_usage".into(), json!(true)),
            None => body["stream_options"] = json!({ "include_usage": true }),
        }
        return body;
    }
    let mut body = json!({
        "model": ask.model,
        "messages": messages(&ask.prompt),
        "stream": true,
        "stream_options": { "include_usage": true },
    });
    if !ask.tools.is_empty() {
        body["tools"] = ask.tools.iter().map(tool).collect();
    }
    if let Some(max) = ask.max_tokens {
        body["max_completion_tokens"] = json!(max);
    }
    put_manner(&ask.manner, !ask.tools.is_empty(), &mut body);
    body
}

fn put_manner(manner: &Manner, tools: bool, body: &mut Value) {
    let stop = (!manner.stop.is_empty()).then(|| json!(manner.stop));
    let choice = manner.choice.as_ref().filter(|_| tools).map(|choice| match choice {
        Choice::None => json!("none"),
        Choice::Auto => json!("auto"),
        Choice::Any => json!("required"),
        Choice::Tool(name) => json!({ "type": "function", "function": { "name": name } }),
    });
    for (name, value) in [
        ("temperature", manner.temperature.clone().map(Value::Number)),
        ("top_p", manner.top_p.clone().map(Value::Number)),
        ("stop", stop),
        ("tool_choice", choice),
        ("parallel_tool_calls", manner.parallel.filter(|_| tools).map(Value::Bool)),
        ("reasoning_effort", manner.effort.clone().map(Value::String)),
        ("response_format", manner.format.clone()),
    ] {
        if let Some(value) = value {
            body[name] = value;
        }
    }
}

fn tool(spec: &ToolSpec) -> Value {
    json!({ "type": "function", "function": {
        "name": spec.name, "description": spec.description, "parameters": spec.schema } })
}

fn messages(prompt: &Prompt) -> Vec<Value> {
    let mut out = Vec::new();
    if !prompt.system.is_empty() {
        out.push(json!({ "role": "system", "content": prompt.system }));
    }
    for said in &prompt.messages {
        match said {
            Said::User(words) => out.push(json!({ "role": "user", "content": content(words) })),
            Said::Assistant { text, calls } => {
                let mut message = Map::from_iter([("role".to_owned(), json!("assistant"))]);
                if !text.is_empty() {
                    message.insert("content".into(), json!(text));
                }
                let calls: Vec<Value> = calls
                    .iter()
                    .map(|call| {
                        json!({ "id": call.id, "type": "function",
                            "function": { "name": call.name, "arguments": call.args } })
                    })
                    .collect();
                if !calls.is_empty() {
                    message.insert("tool_calls".into(), calls.into());
                }
                out.push(message.into());
            }
            Said::Answers(answers) => {
                out.extend(answers.iter().map(
                    |answer| json!({ "role": "tool", "tool_call_id": answer.id, "content": answer.text }),
                ))
            }
        }
    }
    out
}

/// Where all is text it is one: not every server takes a list.
fn content(words: &Words) -> Value {
    if words.parts.iter().all(|part| part.kind == PartKind::Text) {
        let texts = words.pieces().into_iter().map(|piece| match piece {
            Piece::Text(text) => text.to_owned(),
            Piece::Part(part) => part.as_text(),
        });
        return json!(texts.collect::<Vec<_>>().join("\n\n"));
    }
    let part = |part: &Part| {
        let written = || format!("data:{};base64,{}", part.mime_type, part.data);
        let url = part.url().map_or_else(written, str::to_owned);
        match part.kind {
            PartKind::Text => json!({ "type": "text", "text": part.as_text() }),
            PartKind::Image => json!({ "type": "image_url", "image_url": { "url": url } }),
            PartKind::Pdf => json!({ "type": "file", "file": { "filename": part.name, "file_data": url } }),
        }
    };
    let piece = |piece| match piece {
        Piece::Text(text) => json!({ "type": "text", "text": text }),
        Piece::Part(shown) => part(shown),
    };
    words.pieces().into_iter().map(piece).collect()
}

/// The chunks of one answer.
#[derive(Default)]
pub(super) struct Chunks {
    finish: Option<Finish>,
    done: bool,
    /// Some of what it said is why it does not answer.
    refused: bool,
    /// The calls so far: the index on the wire and the id that came with it. Their place is the index we tell.
    calls: Vec<(Option<u64>, Option<String>)>,
}

impl Parser for Chunks {
    fn event(&mut self, event: &SseEvent, out: &mut Vec<ModelEvent>) -> Result<bool, ModelFault> {
        match event.data.trim() {
            "" => return Ok(false),
            "[DONE]" => {
                self.done = true;
                return Ok(true);
            }
            _ => {}
        }
        if let Some(said) = usual::openai(&event.data) {
            out.push(said);
            return Ok(false);
        }
        let chunk: Value = serde_json::from_str(&event.data).map_err(|error| call::unreadable(&error))?;
        self.chunk(&chunk, "delta", out)?;
        Ok(false)
    }

    fn whole(&mut self, body: &Value, out: &mut Vec<ModelEvent>) -> Result<(), ModelFault> {
        self.chunk(body, "message", out)
    }

    fn finish(&self) -> Option<ModelEvent> {
        // A server that says it is done without a reason has stopped.
        let finish = self.finish.or(self.done.then_some(Finish::Stop))?;
        let finish = match finish {
            Finish::Stop if !self.calls.is_empty() => Finish::Calls,
            Finish::Stop if self.refused => Finish::Refused,
            finish => finish,
        };
        Some(ModelEvent::End(Ok(finish)))
    }
}

impl Chunks {
    fn chunk(&mut self, chunk: &Value, part: &str, out: &mut Vec<ModelEvent>) -> Result<(), ModelFault> {
        if chunk.get("error").is_some_and(|error| !error.is_null()) {
            return Err(call::told(chunk));
        }
        if let Some(usage) = chunk.get("usage").and_then(Value::as_object) {
            let count = |name| usage.get(name).and_then(Value::as_i64).unwrap_or(0).max(0);
            let (input_tokens, output_tokens) = (count("prompt_tokens"), count("completion_tokens"));
            out.push(ModelEvent::Usage(Usage { input_tokens, output_tokens }));
            let part = |of: &str, name: &str| usage.get(of)?.get(name)?.as_i64();
            let part = |of: &str, name: &str| part(of, name).unwrap_or(0).max(0);
            let details = UsageDetails {
                cached_tokens: part("prompt_tokens_details", "cached_tokens"),
                cache_write_tokens: part("prompt_tokens_details", "cache_write_tokens"),
                reasoning_tokens: part("completion_tokens_details", "reasoning_tokens"),
            };
            out.extend((details != UsageDetails::default()).then_some(ModelEvent::Details(details)));
        }
        // One answer is asked for; whatever else comes is another's.
        let choices = chunk.get("choices").and_then(Value::as_array);
        let first = |choice: &&Value| choice.get("index").and_then(Value::as_u64).unwrap_or(0) == 0;
        let Some(choice) = choices.and_then(|choices| choices.iter().find(first)) else { return Ok(()) };
        let delta = choice.get(part).or_else(|| choice.get("delta")).unwrap_or(&Value::Null);
        for name in ["reasoning_content", "reasoning"] {
            if let Some(text) = text(delta.get(name)) {
                out.push(ModelEvent::Reasoning(text));
                break;
            }
        }
        out.extend(text(delta.get("content")).map(ModelEvent::Text));
        if let Some(refusal) = text(delta.get("refusal")) {
            self.refused = true;
            out.push(ModelEvent::Text(refusal));
        }
        for call in delta.get("tool_calls").and_then(Value::as_array).into_iter().flatten() {
            out.push(self.call(call));
        }
        if let Some(reason) = choice.get("finish_reason").and_then(Value::as_str) {
            self.finish = Some(match reason {
                "tool_calls" | "function_call" => Finish::Calls,
                "length" => Finish::Length,
                "content_filter" => Finish::Refused,
                _ => Finish::Stop,
            });
        }
        Ok(())
    }

    /// Calls are told apart by their index. Servers that leave it out or send 0 for all tell them apart by id.
    fn call(&mut self, part: &Value) -> ModelEvent {
        let index = part.get("index").and_then(Value::as_u64);
        let id = part.get("id").and_then(Value::as_str).filter(|id| !id.is_empty()).map(keepable);
        let function = part.get("function").or_else(|| part.get("custom")).unwrap_or(&Value::Null);
        let name = function.get("name").and_then(Value::as_str).filter(|name| !name.is_empty()).map(keepable);
        let args = match function.get("arguments").or_else(|| function.get("input")) {
            Some(Value::String(args)) => args.clone(),
            Some(args @ Value::Object(_)) => args.to_string(),
            _ => String::new(),
        };
        let known = self.calls.iter().rposition(|(at, _)| *at == index || index.is_none());
        let another = |at: usize| name.is_some() && id.is_some() && self.calls[at].1 != id;
        let at = match known {
            Some(at) if !another(at) => at,
            _ => {
                self.calls.push((index, id.clone()));
                self.calls.len() - 1
            }
        };
        ModelEvent::Call(CallPart { index: at as u64, id, name, args })
    }
}

/// A text, or the text parts of a list; `None` for nothing.
fn text(content: Option<&Value>) -> Option<String> {
    let text = match content? {
        Value::String(text) => keepable(text),
        Value::Array(parts) => {
            parts.iter().filter_map(|part| part.get("text")?.as_str()).map(keepable).collect()
        }
        _ => return None,
    };
    (!text.is_empty()).then_some(text)
}
