//! OpenAI's items, read as messages: what was said, what was called, what a person decided.

use domain::message::{Block, MessageRole};
use domain::tool::kept_args;
use serde_json::{Map, Value};

use super::outputs::{Output, note_open, open};
use super::{Decided, FilePart, Incoming, Said, extras, member};
use crate::problem::Problem;

#[derive(Default)]
pub struct Heard {
    /// All of it, in order; the items of one answer are one message.
    pub said: Vec<Said>,
    pub decided: Vec<Decided>,
    /// What calls came to that are not among these items.
    pub outputs: Vec<Output>,
    /// The last message, where it is a user's.
    pub last: Option<Incoming>,
}

impl Heard {
    /// Of a thread that begins here: its calls are here, too.
    pub fn whole(self) -> Result<Self, Problem> {
        match self.outputs.first() {
            Some(output) => Err(output.without_call()),
            None => Ok(self),
        }
    }
}

pub fn read_items(items: &[Value], at: &str) -> Result<Heard, Problem> {
    let mut heard = Heard::default();
    let decides = |item: &Value| item["type"] == "mcp_approval_response";
    let news = items.iter().rposition(|item| !decides(item)).map_or(0, |last| last + 1);
    for (n, item) in items.iter().enumerate() {
        let at = format!("{at}/{n}");
        match item["type"].as_str().unwrap_or("message") {
            "message" => message(item, &at, &mut heard)?,
            "function_call" => {
                let args: Option<String> = member(item, &at, "arguments")?;
                answering(&mut heard).content.push(Block::ToolCall {
                    id: text(item, &at, "call_id")?,
                    name: text(item, &at, "name")?,
                    args: args.as_deref().map(kept_args),
                    result: None,
                    error: open(),
                    truncated: false,
                    round: 1,
                });
            }
            "function_call_output" => output(item, &at, &mut heard)?,
            "reasoning" => {
                let parts =
                    ["content", "summary"].into_iter().filter_map(|name| item[name].as_array()).flatten();
                let thought: Vec<&str> = parts.filter_map(|part| part["text"].as_str()).collect();
                if !thought.is_empty() {
                    let thoughts = |block: &&Block| matches!(block, Block::Reasoning { .. });
                    let said = answering(&mut heard);
                    let n = said.content.iter().filter(thoughts).count() + 1;
                    said.content.push(Block::Reasoning { text: thought.join("\n\n") });
                    extras::keep_thought(&mut said.metadata, n, item);
                }
            }
            "mcp_approval_response" if n >= news => heard.decided.push(decided(item, &at)?),
            // What people were asked and said before is over: what came of it is told by the calls.
            "mcp_approval_request" | "mcp_approval_response" => heard.last = None,
            kind => {
                let detail = format!("Items of the type {kind:?} are not taken here.");
                return Err(Problem::invalid_value(&format!("{at}/type"), detail));
            }
        }
    }
    heard.said.iter_mut().for_each(note_open);
    Ok(heard)
}

/// What goes on with a conversation, which has all that was said before.
#[derive(Default)]
pub struct News {
    /// Rules for this answer.
    pub rules: Vec<String>,
    /// The user's messages, one after the other.
    pub message: Option<Incoming>,
    pub decided: Vec<Decided>,
}

pub fn read_news(items: &[Value], at: &str) -> Result<News, Problem> {
    let mut news = News::default();
    for (n, item) in items.iter().enumerate() {
        let at = format!("{at}/{n}");
        match (item["type"].as_str().unwrap_or("message"), item["role"].as_str()) {
            ("message", Some("user")) => {
                let Incoming { texts, files, .. } = content(item, &at)?;
                let message = news.message.get_or_insert_default();
                message.texts.extend(texts);
                message.files.extend(files);
            }
            ("message", Some("system" | "developer")) => news.rules.extend(words(content(item, &at)?)?),
            ("mcp_approval_response", _) => news.decided.push(decided(item, &at)?),
            ("function_call_output", _) => news.decided.push(made(item, &at)?),
            _ => {
                let detail = "What goes on with a conversation are messages of its user, and of developers for this \
                              answer; POST /v1/conversations/{id}/items adds others.";
                return Err(Problem::invalid_value(&at, detail));
            }
        }
    }
    // The response that asked goes on with what was decided and made, and with nothing else.
    let decides =
        |item: &Value| item["type"] == "mcp_approval_response" || item["type"] == "function_call_output";
    let beside = items.iter().position(|item| !decides(item));
    if let Some(n) = beside.filter(|_| !news.decided.is_empty()) {
        let detail = "Decisions and outputs go on with the response that asked: send them alone, and the message once \
                      that response has ended.";
        return Err(Problem::invalid_value(&format!("{at}/{n}"), detail));
    }
    Ok(news)
}

fn decided(item: &Value, at: &str) -> Result<Decided, Problem> {
    Ok(Decided {
        approval: text(item, at, "approval_request_id")?,
        approve: flag(item, at, "approve")?,
        reason: member(item, at, "reason")?,
        result: None,
        pointer: format!("{at}/approval_request_id"),
    })
}

/// What a client has made of a call of its own tool.
fn made(item: &Value, at: &str) -> Result<Decided, Problem> {
    let Output { call, result, pointer } = read_output(item, at)?;
    Ok(Decided { approval: call, approve: true, reason: None, result: Some(result), pointer })
}

fn read_output(item: &Value, at: &str) -> Result<Output, Problem> {
    let wrong = |at: &str| {
        Problem::invalid_value(at, "The output of a function is a text, or a list of input_text parts.")
    };
    let result = match &item["output"] {
        Value::String(text) => text.clone(),
        Value::Array(parts) => {
            let mut texts = Vec::with_capacity(parts.len());
            for (n, part) in parts.iter().enumerate() {
                let text = part["text"].as_str().filter(|_| part["type"] == "input_text");
                texts.push(text.ok_or_else(|| wrong(&format!("{at}/output/{n}")))?);
            }
            texts.join("\n\n")
        }
        _ => return Err(wrong(&format!("{at}/output"))),
    };
    Ok(Output { call: text(item, at, "call_id")?, result, pointer: format!("{at}/call_id") })
}

fn text(item: &Value, at: &str, name: &str) -> Result<String, Problem> {
    let missing = || Problem::invalid_value(&format!("{at}/{name}"), format!("{name} must be a text."));
    member::<String>(item, at, name)?.filter(|text| !text.is_empty()).ok_or_else(missing)
}

fn flag(item: &Value, at: &str, name: &str) -> Result<bool, Problem> {
    let detail = format!("{name} must be true or false.");
    member(item, at, name)?.ok_or_else(|| Problem::invalid_value(&format!("{at}/{name}"), detail))
}

/// The answer that the next item belongs to.
fn answering(heard: &mut Heard) -> &mut Said {
    heard.last = None;
    if heard.said.last().is_none_or(|said| said.role != MessageRole::Assistant) {
        let (role, content, metadata) = (MessageRole::Assistant, Vec::new(), Map::new());
        heard.said.push(Said { name: None, role, content, metadata, files: Vec::new() });
    }
    // There is one: it was just made where it was missing.
    let at = heard.said.len() - 1;
    &mut heard.said[at]
}

fn output(item: &Value, at: &str, heard: &mut Heard) -> Result<(), Problem> {
    let output = read_output(item, at)?;
    let mut blocks = heard.said.iter_mut().rev().flat_map(|said| said.content.iter_mut().rev());
    let call = |block: &&mut Block| matches!(block, Block::ToolCall { id, .. } if *id == output.call);
    match blocks.find(call) {
        Some(Block::ToolCall { result, error, .. }) => (*result, *error) = (output.raw(), None),
        _ => heard.outputs.push(output),
    }
    heard.last = None;
    Ok(())
}

fn message(item: &Value, at: &str, heard: &mut Heard) -> Result<(), Problem> {
    let incoming = content(item, at)?;
    let text = |text: String| Block::Text { text };
    let (role, content, files, last) = match item["role"].as_str() {
        Some("user") => {
            let (texts, files) = (incoming.texts.clone(), incoming.files.clone());
            (MessageRole::User, texts.into_iter().map(text).collect(), files, Some(incoming))
        }
        Some("assistant") => {
            let texts = words(incoming)?.into_iter().filter(|said| !said.is_empty());
            let said = answering(heard);
            let n = said.content.iter().filter(|block| matches!(block, Block::Text { .. })).count() + 1;
            said.content.extend(texts.map(text));
            extras::keep_texts(&mut said.metadata, n, item);
            return Ok(());
        }
        Some("system" | "developer") => {
            (MessageRole::System, words(incoming)?.into_iter().map(text).collect(), Vec::new(), None)
        }
        _ => {
            let detail = "role must be user, assistant, system or developer.";
            return Err(Problem::invalid_value(&format!("{at}/role"), detail));
        }
    };
    let mut metadata = Map::new();
    extras::keep_role(&mut metadata, item);
    heard.said.push(Said { name: None, role, content, metadata, files });
    heard.last = last;
    Ok(())
}

/// The texts of a message that can have nothing else.
fn words(incoming: Incoming) -> Result<Vec<String>, Problem> {
    match incoming.files.first() {
        Some(file) => Err(Problem::invalid_value(
            &file.pointer,
            "Only the messages of a user have images and files here.",
        )),
        None => Ok(incoming.texts),
    }
}

/// An answer may be without a word: so it was put out, and so it comes back.
fn content(item: &Value, at: &str) -> Result<Incoming, Problem> {
    let answer = item["role"] == "assistant";
    let mut read = Incoming::default();
    match &item["content"] {
        Value::String(text) => read.texts.push(text.clone()),
        Value::Array(parts) => {
            for (n, part) in parts.iter().enumerate() {
                let at = format!("{at}/content/{n}");
                match part["type"].as_str() {
                    Some("output_text") if answer && part["text"] == "" => {}
                    Some("input_text" | "output_text" | "text") => read.texts.push(text(part, &at, "text")?),
                    Some("refusal") => read.texts.push(text(part, &at, "refusal")?),
                    Some("input_image" | "input_file") => read.files.push(file(part, &at)?),
                    _ => {
                        let detail =
                            "The type of a part must be input_text, output_text, input_image or input_file.";
                        return Err(Problem::invalid_value(&format!("{at}/type"), detail));
                    }
                }
            }
        }
        _ => {
            return Err(Problem::invalid_value(
                &format!("{at}/content"),
                "content must be a text or a list of parts.",
            ));
        }
    }
    if !answer && read.texts.iter().all(|text| text.trim().is_empty()) && read.files.is_empty() {
        return Err(Problem::invalid_value(&format!("{at}/content"), "The message is empty."));
    }
    Ok(read)
}

fn file(part: &Value, at: &str) -> Result<FilePart, Problem> {
    let url = ["image_url", "file_data", "file_url"]
        .into_iter()
        .find_map(|name| Some((name, part[name].as_str()?)));
    let (member_name, url) = match (url, part["file_id"].as_str()) {
        // Some send the base64 alone.
        (Some(("file_data", data)), _) if !data.starts_with("data:") => {
            ("file_data", format!("data:;base64,{data}"))
        }
        (Some((name, url)), _) => (name, url.to_owned()),
        (None, Some(id)) => ("file_id", format!("/v1/files/{id}/content")),
        (None, None) => {
            let detail = "An image has image_url or file_id, a file has file_data, file_url or file_id.";
            return Err(Problem::invalid_value(at, detail));
        }
    };
    let head = url.strip_prefix("data:").and_then(|data| data.split([';', ',']).next());
    Ok(FilePart {
        name: part["filename"].as_str().map(str::to_owned),
        media_type: head.unwrap_or_default().to_owned(),
        url,
        pointer: format!("{at}/{member_name}"),
    })
}
