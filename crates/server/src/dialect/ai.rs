//! Requests of the Vercel AI SDK: `{ id, messages, trigger, messageId }`, or `{ id, message }`.

use domain::approval::denial;
use domain::event::Source;
use domain::message::{Block, MessageRole};
use domain::run::OnDisconnect;
use serde_json::value::to_raw_value;
use serde_json::{Map, Value, json};

use super::outputs::open;
use super::{Asked, Decided, FilePart, Incoming, Options, Said, Want, member, name};
use crate::problem::Problem;

pub fn read(body: &Value) -> Result<Asked, Problem> {
    let conversation = name(body, "", "id")?;
    let message_id = name(body, "", "messageId")?;
    let (mut messages, at) = match (&body["messages"], &body["message"]) {
        (Value::Array(messages), _) => (messages.clone(), "/messages"),
        (Value::Null, Value::Null) => (Vec::new(), "/messages"),
        (Value::Null, message) => (vec![message.clone()], "/message"),
        _ => return Err(Problem::invalid_value("/messages", "messages must be a list.")),
    };
    // Closing the page is no stop: there is an endpoint for that.
    let options = Options::read(body, "", OnDisconnect::Continue)?;
    let last = messages.pop();
    let at = if at == "/message" { at.to_owned() } else { format!("{at}/{}", messages.len()) };
    let want = match body["trigger"].as_str().unwrap_or("submit-message") {
        "submit-message" => submitted(last.as_ref(), message_id.as_deref(), &at)?,
        "regenerate-message" => {
            let of = last.as_ref().filter(|last| last["role"] == "user");
            Want::Again { message: message_id, of: of.map(|of| incoming(of, &at)).transpose()? }
        }
        _ => {
            let detail = "trigger must be submit-message or regenerate-message.";
            return Err(Problem::invalid_value("/trigger", detail));
        }
    };
    let before = messages.iter().enumerate();
    let before = before.filter_map(|(n, message)| said(message, &format!("/messages/{n}"))).collect();
    Ok(Asked { conversation, before, sent_again: true, want, options, ..Asked::default() })
}

/// The last message is a user's, or the assistant's with what its user has decided.
fn submitted(last: Option<&Value>, message_id: Option<&str>, at: &str) -> Result<Want, Problem> {
    let missing = || Problem::invalid_value("/messages", "messages must have at least one message.");
    let last = last.ok_or_else(missing)?;
    match last["role"].as_str() {
        Some("user") => {
            let message = incoming(last, at)?;
            let edit = message.name.is_some() && message.name.as_deref() == message_id;
            Ok(Want::Answer { message, edit })
        }
        Some("assistant") => {
            let parts = parts(last).enumerate();
            let decided: Vec<Decided> =
                parts.filter_map(|(n, part)| decision(part, &format!("{at}/parts/{n}"))).collect();
            if decided.is_empty() {
                let detail =
                    "The last message must be a user's, or one with an answer to an approval request.";
                return Err(Problem::invalid_value(at, detail));
            }
            Ok(Want::Decide { decided, last: None })
        }
        _ => Err(Problem::invalid_value(&format!("{at}/role"), "role must be user or assistant.")),
    }
}

fn parts(message: &Value) -> impl Iterator<Item = &Value> {
    message["parts"].as_array().into_iter().flatten()
}

/// What the user has said of a call. One that has ended needs no word any more, though its part keeps it.
fn decision(part: &Value, at: &str) -> Option<Decided> {
    let approval = &part["approval"];
    let ended = part["state"].as_str().is_some_and(|state| state.starts_with("output-"));
    (!ended).then_some(())?;
    Some(Decided {
        approval: approval["id"].as_str()?.to_owned(),
        approve: approval["approved"].as_bool()?,
        reason: approval["reason"].as_str().map(|reason| reason.chars().take(1000).collect()),
        result: None,
        pointer: format!("{at}/approval/id"),
    })
}

/// A user's message. What has neither text nor a file is for the client alone.
fn incoming(message: &Value, at: &str) -> Result<Incoming, Problem> {
    let mut read = Incoming { name: name(message, at, "id")?, ..Incoming::default() };
    if let Some(text) = message["content"].as_str().filter(|_| message["parts"].is_null()) {
        read.texts.push(text.to_owned());
    }
    for (n, part) in parts(message).enumerate() {
        let at = format!("{at}/parts/{n}");
        match part["type"].as_str() {
            Some("text") => {
                let text = member::<String>(part, &at, "text")?;
                read.texts.extend(text);
            }
            Some("file") => read.files.push(file(part, &at)?),
            _ => {}
        }
    }
    let stays = |part: &Value| match part["type"].as_str() {
        Some("text") => part["text"].as_str().is_some_and(|text| !text.trim().is_empty()),
        kind => kind == Some("file"),
    };
    read.metadata = own(message, stays);
    if read.texts.iter().all(|text| text.trim().is_empty()) && read.files.is_empty() {
        return Err(Problem::invalid_value(at, "The message is empty: it has no text and no file."));
    }
    Ok(read)
}

fn file(part: &Value, at: &str) -> Result<FilePart, Problem> {
    let url = member::<String>(part, at, "url")?;
    let none = || Problem::invalid_value(&format!("{at}/url"), "A file part has a url.");
    Ok(FilePart {
        name: member(part, at, "filename")?,
        media_type: part["mediaType"].as_str().unwrap_or("").to_owned(),
        url: url.ok_or_else(none)?,
        pointer: format!("{at}/url"),
    })
}

/// A message from before, as far as it can be kept: texts, files, thoughts, calls, sources, and what is its client's own.
fn said(message: &Value, at: &str) -> Option<Said> {
    let role = MessageRole::parse(message["role"].as_str()?)?;
    // Only an answer cites.
    let kept = |part: &Value| {
        block(part).filter(|block| role == MessageRole::Assistant || !matches!(block, Block::Source(_)))
    };
    let mut content: Vec<Block> = parts(message).filter_map(kept).collect();
    if let Some(text) = message["content"].as_str().filter(|text| content.is_empty() && !text.is_empty()) {
        content.push(Block::Text { text: text.to_owned() });
    }
    // Only what a user sent is a file of the conversation.
    let sent = |part: &Value| role == MessageRole::User && part["type"] == "file";
    let files = parts(message).enumerate().filter(|(_, part)| sent(part));
    let files = files.filter_map(|(n, part)| file(part, &format!("{at}/parts/{n}")).ok()).collect();
    let metadata = own(message, |part| sent(part) || kept(part).is_some());
    Some(Said { name: message["id"].as_str().map(str::to_owned), role, content, metadata, files })
}

/// What no block can hold: a message's metadata, and its parts that are data, a document's, a model's files or a vendor's
/// own, each with its place among those that stay.
fn own(message: &Value, stays: impl Fn(&Value) -> bool) -> Map<String, Value> {
    let (mut kept, mut place) = (Vec::new(), 0);
    for part in parts(message) {
        let stays = stays(part);
        let kind = part["type"].as_str().unwrap_or("");
        let own = matches!(kind, "file" | "reasoning-file" | "custom");
        if !stays && (own || kind.starts_with("data-") || kind.starts_with("source-")) {
            kept.push(json!([place, part]));
            place += 1;
        }
        place += usize::from(stays);
    }
    let mut own = Map::new();
    if !message["metadata"].is_null() {
        own.insert("metadata".into(), message["metadata"].clone());
    }
    if !kept.is_empty() {
        own.insert("parts".into(), kept.into());
    }
    if own.is_empty() { own } else { Map::from_iter([("ui".to_owned(), own.into())]) }
}

fn block(part: &Value) -> Option<Block> {
    let text = || part["text"].as_str().filter(|text| !text.is_empty()).map(str::to_owned);
    match part["type"].as_str()? {
        "text" => Some(Block::Text { text: text()? }),
        "reasoning" => Some(Block::Reasoning { text: text()? }),
        "source-url" => Some(Block::Source(Source {
            id: part["sourceId"].as_str()?.to_owned(),
            title: part["title"].as_str()?.to_owned(),
            url: Some(part["url"].as_str()?.to_owned()),
            locator: None,
            snippet: String::new(),
        })),
        kind => {
            let name = kind.strip_prefix("tool-").or_else(|| part["toolName"].as_str())?;
            let raw = |value: &Value| (!value.is_null()).then(|| to_raw_value(value).ok()).flatten();
            let result = raw(&part["output"]);
            let error = match part["state"].as_str() {
                Some("output-denied") => Some(denial(part["approval"]["reason"].as_str())),
                _ => part["errorText"].as_str().map(str::to_owned),
            };
            let ended = result.is_some() || error.is_some() || part["state"] == "output-available";
            Some(Block::ToolCall {
                id: part["toolCallId"].as_str()?.to_owned(),
                name: name.to_owned(),
                args: raw(&part["input"]),
                result,
                error: if ended { error } else { open() },
                truncated: false,
                round: 1,
            })
        }
    }
}

#[cfg(test)]
#[path = "ai_tests.rs"]
mod tests;
