//! OpenAI's chat completions, from the server's side: a request as an ask, an answer as chunks or whole.

use domain::kept::Blocks;
use domain::model::{
    Answer, Ask, Call, Choice, Dialect, Finish, Gathered, Manner, ModelEvent, ModelFault, Part, PartKind,
    Prompt, Said, ToolSpec, Verbatim,
};
use domain::run::UsageDetails;
use serde_json::value::to_raw_value;
use serde_json::{Value, json};

use super::history::history;
use super::{Asked, Writer, common, frame, kind_of_fault, made_up, sent, text_of, texts, words};
use crate::problem::Problem;

/// The arguments of a call that has none.
const NOTHING: &str = "{}";

pub fn read(body: Value) -> Result<Asked, Problem> {
    let (model, messages, stream) = common(&body)?;
    let options = &body["stream_options"];
    if !options.is_null() && !options.is_object() {
        return Err(Problem::invalid_value("/stream_options", "stream_options must be an object."));
    }
    let mut system = Vec::new();
    let mut said: Vec<Said> = Vec::new();
    for message in messages {
        match message["role"].as_str().unwrap_or("") {
            "system" | "developer" => system.push(text_of(&message["content"])),
            "assistant" => said.push(assistant(message)),
            "tool" => {
                let id = message["tool_call_id"].as_str().unwrap_or("").to_owned();
                let answer = Answer {
                    name: name_of(&said, &id),
                    id,
                    text: text_of(&message["content"]),
                    failed: false,
                };
                match said.last_mut() {
                    Some(Said::Answers(answers)) => answers.push(answer),
                    _ => said.push(Said::Answers(vec![answer])),
                }
            }
            _ => {
                said.push(Said::User(words(&message["content"], part)));
            }
        }
    }
    let none = body["tool_choice"] == "none";
    let tools = body["tools"].as_array().into_iter().flatten().filter(|_| !none).filter_map(tool).collect();
    let max_tokens = body["max_completion_tokens"].as_u64().or_else(|| body["max_tokens"].as_u64());
    let include_usage = options["include_usage"] == true;
    let prompt = Prompt { system: system.join("\n\n"), messages: history(said) };
    let manner = manner(&body);
    let verbatim = Some(Verbatim { dialect: Dialect::Openai, body, beta: None });
    let ask =
        Ask { model: String::new(), prompt, tools, max_tokens, manner, kept: Blocks::default(), verbatim };
    Ok(Asked { model, ask, stream, include_usage })
}

fn manner(body: &Value) -> Manner {
    let text = |name: &str| body[name].as_str().map(str::to_owned);
    let stop = match &body["stop"] {
        Value::String(stop) => vec![stop.clone()],
        stop => texts(stop),
    };
    let choice = match &body["tool_choice"] {
        Value::String(choice) if choice == "auto" => Some(Choice::Auto),
        Value::String(choice) if choice == "required" => Some(Choice::Any),
        choice => choice["function"]["name"].as_str().map(|name| Choice::Tool(name.to_owned())),
    };
    let parallel = body["parallel_tool_calls"].as_bool();
    let (effort, format) = (text("reasoning_effort"), body.get("response_format").cloned());
    let format = format.filter(Value::is_object);
    let (temperature, top_p) = (body["temperature"].as_number().cloned(), body["top_p"].as_number().cloned());
    Manner { temperature, top_p, stop, choice, parallel, effort, format }
}

fn assistant(message: &Value) -> Said {
    let calls = message["tool_calls"].as_array().into_iter().flatten();
    let calls = calls.map(|call| Call {
        id: call["id"].as_str().unwrap_or("").to_owned(),
        name: call["function"]["name"].as_str().unwrap_or("").to_owned(),
        args: call["function"]["arguments"]
            .as_str()
            .filter(|args| !args.is_empty())
            .unwrap_or("{}")
            .to_owned(),
    });
    let said = [text_of(&message["content"]), text_of(&message["refusal"])];
    let said = said.iter().filter(|text| !text.is_empty()).map(String::as_str);
    Said::Assistant { text: said.collect::<Vec<_>>().join("\n\n"), calls: calls.collect() }
}

/// A picture or a PDF that came with the request, written in it; a picture may be elsewhere.
fn part(part: &Value) -> Option<Part> {
    let (kind, name, url) = match part["type"].as_str()? {
        "image_url" => (PartKind::Image, "image", part["image_url"]["url"].as_str()?),
        "file" => {
            let file = &part["file"];
            (PartKind::Pdf, file["filename"].as_str().unwrap_or("document.pdf"), file["file_data"].as_str()?)
        }
        _ => return None,
    };
    if kind == PartKind::Image && (url.starts_with("https://") || url.starts_with("http://")) {
        return Some(sent(kind, name, "", url));
    }
    let (mime_type, data) = url.strip_prefix("data:")?.split_once(";base64,")?;
    (kind == PartKind::Image || mime_type == "application/pdf").then(|| sent(kind, name, mime_type, data))
}

/// The tool whose call has this id.
pub(super) fn name_of(said: &[Said], id: &str) -> String {
    let calls = said.iter().rev().filter_map(|said| match said {
        Said::Assistant { calls, .. } => calls.iter().find(|call| call.id == id),
        _ => None,
    });
    calls.map(|call| call.name.clone()).next().unwrap_or_default()
}

fn tool(tool: &Value) -> Option<ToolSpec> {
    let function = &tool["function"];
    let schema = match &function["parameters"] {
        Value::Null => json!({ "type": "object" }),
        schema => schema.clone(),
    };
    Some(ToolSpec {
        name: function["name"].as_str()?.to_owned(),
        description: function["description"].as_str().unwrap_or("").to_owned(),
        schema: to_raw_value(&schema).ok()?,
    })
}

pub struct Chunks {
    id: String,
    created: i64,
    model: String,
    include_usage: bool,
    begun: bool,
    gathered: Gathered,
    /// The calls that are told of, by their index.
    called: Vec<u64>,
    thought: String,
}

impl Chunks {
    pub fn new(id: &str, created: i64, asked: &Asked) -> Self {
        Self {
            id: id.to_owned(),
            created,
            model: asked.model.clone(),
            include_usage: asked.include_usage,
            begun: false,
            gathered: Gathered::default(),
            called: Vec::new(),
            thought: String::new(),
        }
    }

    fn name(&self) -> String {
        format!("chatcmpl-{}", self.id)
    }

    fn chunk(&self, choices: Value, out: &mut Vec<u8>) {
        let mut chunk = json!({ "id": self.name(), "object": "chat.completion.chunk", "created": self.created,
            "model": self.model, "choices": choices });
        if self.include_usage {
            chunk["usage"] = Value::Null;
        }
        frame(None, &chunk, out);
    }

    fn delta(&mut self, mut delta: Value, out: &mut Vec<u8>) {
        if !std::mem::replace(&mut self.begun, true) {
            delta["role"] = json!("assistant");
        }
        self.chunk(json!([{ "index": 0, "delta": delta, "finish_reason": null, "logprobs": null }]), out);
    }

    /// A call that is given nothing is given an empty object: clients read what they get as JSON.
    fn give_nothing(&mut self, out: &mut Vec<u8>) {
        let calls = self.called.iter().zip(&self.gathered.calls);
        let given: Vec<u64> =
            calls.filter(|(_, call)| call.args.is_empty()).map(|(index, _)| *index).collect();
        for index in given {
            let call = json!({ "index": index, "function": { "arguments": NOTHING } });
            self.delta(json!({ "tool_calls": [call] }), out);
        }
    }

    fn usage(&self) -> Value {
        let usage = self.gathered.usage;
        let mut told = json!({ "prompt_tokens": usage.input_tokens, "completion_tokens": usage.output_tokens,
            "total_tokens": usage.input_tokens + usage.output_tokens });
        let UsageDetails { cached_tokens, cache_write_tokens, reasoning_tokens } = self.gathered.details;
        if cached_tokens + cache_write_tokens > 0 {
            told["prompt_tokens_details"] =
                json!({ "cached_tokens": cached_tokens, "cache_write_tokens": cache_write_tokens });
        }
        if reasoning_tokens > 0 {
            told["completion_tokens_details"] = json!({ "reasoning_tokens": reasoning_tokens });
        }
        told
    }
}

/// The end of a stream that failed.
pub(super) fn failure(fault: &ModelFault, out: &mut Vec<u8>) {
    let error = json!({ "message": fault.message, "type": kind_of_fault(fault), "param": null,
        "code": fault.kind.code() });
    frame(None, &json!({ "error": error }), out);
}

fn reason(finish: Finish) -> &'static str {
    match finish {
        Finish::Stop | Finish::Paused => "stop",
        Finish::Calls => "tool_calls",
        Finish::Length => "length",
        Finish::Refused => "content_filter",
    }
}

impl Writer for Chunks {
    fn event(&mut self, event: &ModelEvent, out: &mut Vec<u8>) {
        self.gathered.push(event);
        match event {
            ModelEvent::Text(text) => self.delta(json!({ "content": text }), out),
            ModelEvent::Reasoning(text) => {
                self.thought.push_str(text);
                self.delta(json!({ "reasoning_content": text }), out);
            }
            ModelEvent::Call(part) => {
                let mut call = json!({ "index": part.index, "function": { "arguments": part.args } });
                if !self.called.contains(&part.index) {
                    self.called.push(part.index);
                    let id = part.id.clone().unwrap_or_else(|| made_up(&self.id, part.index));
                    call["id"] = json!(id);
                    call["type"] = json!("function");
                }
                if let Some(name) = &part.name {
                    call["function"]["name"] = json!(name);
                }
                self.delta(json!({ "tool_calls": [call] }), out);
            }
            ModelEvent::Usage(_) | ModelEvent::Details(_) => {}
            ModelEvent::End(Ok(finish)) => {
                self.give_nothing(out);
                // Clients look for the role, also where nothing was said.
                if !self.begun {
                    self.delta(json!({ "content": "" }), out);
                }
                let stop =
                    json!([{ "index": 0, "delta": {}, "finish_reason": reason(*finish), "logprobs": null }]);
                self.chunk(stop, out);
                if self.include_usage {
                    let usage = json!({ "id": self.name(), "object": "chat.completion.chunk", "created": self.created,
                        "model": self.model, "choices": [], "usage": self.usage() });
                    frame(None, &usage, out);
                }
                out.extend_from_slice(b"data: [DONE]\n\n");
            }
            ModelEvent::End(Err(fault)) => {
                failure(fault, out);
                out.extend_from_slice(b"data: [DONE]\n\n");
            }
            ModelEvent::Blocks(_) | ModelEvent::Own(_) => {}
        }
    }

    fn whole(&self) -> Value {
        let Gathered { text, calls, end, .. } = &self.gathered;
        let content = if text.is_empty() && !calls.is_empty() { Value::Null } else { json!(text) };
        let mut message = json!({ "role": "assistant", "content": content, "refusal": null });
        if !calls.is_empty() {
            let calls = (0..).zip(calls).map(|(index, call)| {
                let id = if call.id.is_empty() { &made_up(&self.id, index) } else { &call.id };
                let args = if call.args.is_empty() { NOTHING } else { &call.args };
                json!({ "id": id, "type": "function", "function": { "name": call.name, "arguments": args } })
            });
            message["tool_calls"] = calls.collect();
        }
        if !self.thought.is_empty() {
            message["reasoning_content"] = json!(self.thought);
        }
        let finish = match end {
            Some(Ok(finish)) => reason(*finish),
            _ => "stop",
        };
        json!({ "id": self.name(), "object": "chat.completion", "created": self.created, "model": self.model,
            "choices": [{ "index": 0, "message": message, "finish_reason": finish, "logprobs": null }],
            "usage": self.usage() })
    }
}

#[cfg(test)]
mod tests {
    use domain::model::CallPart;

    use super::*;

    fn told(events: &[ModelEvent]) -> (Vec<Value>, Value) {
        let asked = read(json!({ "model": "m", "messages": [{ "role": "user", "content": "hi" }] })).unwrap();
        let (mut writer, mut out) = (Chunks::new("a1", 1, &asked), Vec::new());
        for event in events {
            writer.event(event, &mut out);
        }
        let text = String::from_utf8(out).unwrap();
        let frames =
            text.split("\n\n").filter_map(|frame| serde_json::from_str(frame.strip_prefix("data: ")?).ok());
        (frames.collect(), writer.whole())
    }

    #[test]
    fn an_answer_without_a_word_has_a_role() {
        let (chunks, _) = told(&[ModelEvent::End(Ok(Finish::Stop))]);
        assert_eq!(chunks[0]["choices"][0]["delta"], json!({ "role": "assistant", "content": "" }));
        assert_eq!((chunks.len(), &chunks[1]["choices"][0]["finish_reason"]), (2, &json!("stop")));
    }

    #[test]
    fn a_call_that_is_given_nothing_has_an_empty_object() {
        let part = |index, args: &str| {
            let (id, name, args) = (Some(format!("c{index}")), Some("f".to_owned()), args.to_owned());
            ModelEvent::Call(CallPart { index, id, name, args })
        };
        let events = [part(0, ""), part(1, "{\"n\":1}"), part(2, ""), ModelEvent::End(Ok(Finish::Calls))];
        let (chunks, whole) = told(&events);
        let args = |index: u64| -> String {
            let calls = chunks.iter().map(|chunk| &chunk["choices"][0]["delta"]["tool_calls"][0]);
            let own = calls.filter(|call| call["index"] == index);
            own.map(|call| call["function"]["arguments"].as_str().unwrap()).collect()
        };
        assert_eq!([args(0), args(1), args(2)], ["{}", "{\"n\":1}", "{}"]);
        assert_eq!(chunks.last().unwrap()["choices"][0]["finish_reason"], "tool_calls");
        let calls = whole["choices"][0]["message"]["tool_calls"].as_array().unwrap().iter();
        let args: Vec<&Value> = calls.map(|call| &call["function"]["arguments"]).collect();
        assert_eq!(args, ["{}", "{\"n\":1}", "{}"]);
    }

    #[test]
    fn a_call_has_an_id_also_where_its_provider_gives_none() {
        let part = |index, id: Option<&str>, name: Option<&str>, args: &str| {
            let (id, name, args) = (id.map(Into::into), name.map(Into::into), args.into());
            ModelEvent::Call(CallPart { index, id, name, args })
        };
        let events = [
            part(0, None, Some("f"), "{"),
            part(0, None, None, "}"),
            part(1, Some("own"), Some("f"), "{}"),
            part(1, Some("own"), None, ""),
            ModelEvent::End(Ok(Finish::Calls)),
        ];
        let (chunks, whole) = told(&events);
        let ids: Vec<&Value> =
            chunks[..4].iter().map(|chunk| &chunk["choices"][0]["delta"]["tool_calls"][0]["id"]).collect();
        assert_eq!(ids, [&json!("call_a1_0"), &Value::Null, &json!("own"), &Value::Null]);
        let calls = &whole["choices"][0]["message"]["tool_calls"];
        assert_eq!((&calls[0]["id"], &calls[1]["id"]), (&json!("call_a1_0"), &json!("own")));
        let asked = read(json!({ "model": "m", "messages": [{ "role": "user", "content": "hi" }] })).unwrap();
        let (mut writer, mut out) = (super::super::anthropic::Events::new("a1", &asked), Vec::new());
        events.iter().for_each(|event| writer.event(event, &mut out));
        assert!(String::from_utf8(out).unwrap().contains(r#""id":"call_a1_0""#));
        assert_eq!(writer.whole()["content"][0]["id"], "call_a1_0");
    }
}
