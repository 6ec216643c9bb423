//! Requests of AG-UI clients: `RunAgentInput`.

use domain::message::{Block, Message, MessageRole};
use domain::run::OnDisconnect;
use domain::tool::kept_args;
use domain::wire::{ag_ui_messages, file_url};
use serde_json::{Map, Value, json};
use uuid::Uuid;

use super::open::client_id;
use super::outputs::open;
use super::{Asked, Decided, FilePart, Incoming, Last, Options, Said, Want, member, name};
use crate::extract::Named;
use crate::problem::Problem;

/// Where the metadata of a brought message hold what its client had beside the blocks, and an echo what it called the
/// run.
const OWN: &str = "ag_ui";
/// Clients give up on an event of more than 10 MB.
const SNAPSHOT_BYTES: usize = 8_000_000;

pub struct Input {
    pub thread: String,
    pub run: Option<String>,
    pub asked: Asked,
}

/// `threadId`, which every input has.
pub fn thread_id(body: &Value) -> Result<String, Problem> {
    let missing = || Problem::invalid_value("/threadId", "threadId must be a text.");
    name(body, "", "threadId")?.ok_or_else(missing)
}

/// The workspace that an input names, in either place.
pub fn named(named: Named, body: &Value) -> Result<Named, Problem> {
    let forwarded = member(&body["forwardedProps"], "/forwardedProps", "workspace")?;
    named.and(forwarded)?.and(member(body, "", "workspace")?)
}

pub fn read(body: &Value) -> Result<Input, Problem> {
    let thread = thread_id(body)?;
    let run = name(body, "", "runId")?;
    // A page that is closed joins again.
    let options = Options::read(&body["forwardedProps"], "/forwardedProps", OnDisconnect::Continue)?;
    let messages = match &body["messages"] {
        Value::Array(messages) => messages.as_slice(),
        Value::Null => &[],
        _ => return Err(Problem::invalid_value("/messages", "messages must be a list.")),
    };
    let decided = decisions(&body["resume"])?;
    let (before, want) = match decided.is_empty() {
        true => said(messages)?,
        false => (Vec::new(), Want::Decide { decided, last: last_of_user(messages)? }),
    };
    let conversation = Some(thread.clone());
    let echo = run.as_ref().map(|run| json!({ OWN: { "run": run } }));
    let asked = Asked { conversation, before, sent_again: true, want, options, echo, ..Asked::default() };
    Ok(Input { thread, run, asked })
}

/// What the client called the run of a request, of its echo.
pub fn run_name(echo: &Value) -> Option<&str> {
    echo[OWN]["run"].as_str()
}

fn decisions(resume: &Value) -> Result<Vec<Decided>, Problem> {
    match resume {
        Value::Null => Ok(Vec::new()),
        Value::Array(entries) => {
            let entries = entries.iter().enumerate();
            entries.map(|(n, entry)| decision(entry, &format!("/resume/{n}"))).collect()
        }
        _ => Err(Problem::invalid_value("/resume", "resume must be a list.")),
    }
}

/// `{ interruptId, status, payload }`. Nothing is taken for a yes but `approve: true`.
fn decision(entry: &Value, at: &str) -> Result<Decided, Problem> {
    let none = || Problem::invalid_value(&format!("{at}/interruptId"), "interruptId must be a text.");
    let approval = name(entry, at, "interruptId")?.ok_or_else(none)?;
    let approve = match entry["status"].as_str() {
        Some("cancelled") => false,
        Some("resolved") => {
            let detail =
                "The payload of a resolved interrupt is { approve, reason? }: approve must be true or false.";
            let unclear = || Problem::invalid_value(&format!("{at}/payload/approve"), detail);
            entry["payload"]["approve"].as_bool().ok_or_else(unclear)?
        }
        _ => {
            let detail = "status must be resolved or cancelled.";
            return Err(Problem::invalid_value(&format!("{at}/status"), detail));
        }
    };
    let reason = entry["payload"]["reason"].as_str().map(|reason| reason.chars().take(1000).collect());
    Ok(Decided { approval, approve, reason, result: None, pointer: format!("{at}/interruptId") })
}

/// The place of the last message that somebody said.
fn last(messages: &[Value]) -> Option<usize> {
    messages.iter().rposition(|message| message["role"] != "activity" && message["role"] != "reasoning")
}

fn last_of_user(messages: &[Value]) -> Result<Option<Last>, Problem> {
    let Some(at) = last(messages).filter(|at| messages[*at]["role"] == "user") else { return Ok(None) };
    let pointer = format!("/messages/{at}");
    Ok(Some(Last { name: name(&messages[at], &pointer, "id")?, pointer }))
}

fn said(messages: &[Value]) -> Result<(Vec<Said>, Want), Problem> {
    let Some(last) = last(messages) else {
        return Err(Problem::invalid_value("/messages", "messages must have a user's message."));
    };
    if messages[last]["role"] != "user" {
        // The client asks for another answer to what its user said last.
        let user = messages.iter().rfind(|message| message["role"] == "user");
        let message = user.map(|user| name(user, "/messages", "id")).transpose()?.flatten();
        let none = || Problem::invalid_value("/messages", "messages must have a user's message.");
        return Ok((Vec::new(), Want::Again { message: Some(message.ok_or_else(none)?), of: None }));
    }
    let message = incoming(&messages[last], &format!("/messages/{last}"))?;
    Ok((earlier(&messages[..last]), Want::Answer { message, edit: false }))
}

fn incoming(message: &Value, at: &str) -> Result<Incoming, Problem> {
    let mut read = Incoming { name: name(message, at, "id")?, ..Incoming::default() };
    match &message["content"] {
        Value::String(text) => read.texts.push(text.clone()),
        Value::Array(parts) => {
            for (n, part) in parts.iter().enumerate() {
                let at = format!("{at}/content/{n}");
                match part["type"].as_str() {
                    Some("text") => read.texts.extend(member::<String>(part, &at, "text")?),
                    Some("image" | "audio" | "video" | "document" | "binary") => {
                        read.files.push(file(part, &at)?)
                    }
                    _ => {
                        let detail = "The type of a part must be text, image, audio, video or document.";
                        return Err(Problem::invalid_value(&format!("{at}/type"), detail));
                    }
                }
            }
        }
        _ => {
            let detail = "content must be a text or a list of parts.";
            return Err(Problem::invalid_value(&format!("{at}/content"), detail));
        }
    }
    if read.texts.iter().all(|text| text.trim().is_empty()) && read.files.is_empty() {
        return Err(Problem::invalid_value(&format!("{at}/content"), "The message is empty."));
    }
    Ok(read)
}

/// `source` is data, a url or a file; older clients have `data` or `url` in the part itself.
fn file(part: &Value, at: &str) -> Result<FilePart, Problem> {
    let source = if part["source"].is_object() { &part["source"] } else { part };
    let value = ["value", "data", "url"].into_iter().find_map(|name| source[name].as_str());
    let missing = || Problem::invalid_value(at, "A file part has a source with a value.");
    let (value, media_type) = (value.ok_or_else(missing)?, source["mimeType"].as_str().unwrap_or(""));
    let link = value.contains("://") || value.starts_with('/') && value.ends_with("/content");
    let url = match source["type"].as_str() {
        Some("file") => format!("/v1/files/{value}/content"),
        Some("url") => value.to_owned(),
        _ if link || value.starts_with("data:") => value.to_owned(),
        _ => format!("data:{media_type};base64,{value}"),
    };
    let given = ["filename", "name"].into_iter().find_map(|name| part[name].as_str());
    Ok(FilePart {
        name: given.map(str::to_owned),
        media_type: media_type.to_owned(),
        url,
        pointer: format!("{at}/source"),
    })
}

/// The files of a message from before, as far as they are ones.
fn files(message: &Value, n: usize) -> Vec<FilePart> {
    let parts = message["content"].as_array().into_iter().flatten().enumerate();
    let files = parts.filter(|(_, part)| part["type"] != "text");
    files.filter_map(|(at, part)| file(part, &format!("/messages/{n}/content/{at}")).ok()).collect()
}

/// The messages before the last. One answer is several of a client's messages: what it thought, said and called, and what
/// the calls came to. Their ids are kept beside it.
fn earlier(messages: &[Value]) -> Vec<Said> {
    let mut before: Vec<Said> = Vec::new();
    let mut thoughts: Vec<(&Value, Block)> = Vec::new();
    for (n, message) in messages.iter().enumerate() {
        let text = text(&message["content"]);
        let role = match message["role"].as_str() {
            Some("reasoning") => {
                thoughts.extend(text.map(|text| (&message["id"], Block::Reasoning { text })));
                continue;
            }
            Some("tool") => {
                answer(message, &mut before);
                continue;
            }
            Some("developer" | "system") => MessageRole::System,
            Some("user") => MessageRole::User,
            Some("assistant") => MessageRole::Assistant,
            _ => continue,
        };
        if role != MessageRole::Assistant {
            before.extend(thought(std::mem::take(&mut thoughts)));
        }
        let name = message["id"].as_str().map(str::to_owned);
        let thought = thought(std::mem::take(&mut thoughts));
        let (mut content, mut metadata) =
            thought.map(|said| (said.content, said.metadata)).unwrap_or_default();
        content.extend(text.map(|text| Block::Text { text }));
        let calls: Vec<Block> =
            message["toolCalls"].as_array().into_iter().flatten().filter_map(call).collect();
        if !calls.is_empty() || message["role"] == "developer" {
            metadata.entry(OWN).or_insert_with(|| json!({ "role": message["role"] }));
        }
        content.extend(calls);
        let files = if role == MessageRole::User { files(message, n) } else { Vec::new() };
        before.push(Said { name, role, content, metadata, files });
    }
    before.extend(thought(thoughts));
    before
}

fn text(content: &Value) -> Option<String> {
    let text = match content {
        Value::String(text) => text.clone(),
        Value::Array(parts) => {
            let texts: Vec<&str> = parts.iter().filter_map(|part| part["text"].as_str()).collect();
            texts.join("\n\n")
        }
        _ => return None,
    };
    (!text.is_empty()).then_some(text)
}

/// An answer of thoughts alone, so far.
fn thought(thoughts: Vec<(&Value, Block)>) -> Option<Said> {
    let (ids, content): (Vec<&Value>, Vec<Block>) = thoughts.into_iter().unzip();
    let metadata = Map::from_iter([(OWN.to_owned(), json!({ "role": "assistant", "thoughts": ids }))]);
    let role = MessageRole::Assistant;
    (!content.is_empty()).then_some(Said { name: None, role, content, metadata, files: Vec::new() })
}

fn call(call: &Value) -> Option<Block> {
    let args = call["function"]["arguments"].as_str().unwrap_or("{}");
    Some(Block::ToolCall {
        id: call["id"].as_str()?.to_owned(),
        name: call["function"]["name"].as_str()?.to_owned(),
        args: Some(kept_args(args)),
        result: None,
        error: open(),
        truncated: false,
        round: 1,
    })
}

/// What a call came to goes to its call.
fn answer(message: &Value, before: &mut [Said]) {
    let Some(of) = message["toolCallId"].as_str() else { return };
    for said in before.iter_mut().rev() {
        let calls = said.content.iter_mut().filter_map(|block| match block {
            Block::ToolCall { id, result, error, .. } => Some((id, result, error)),
            _ => None,
        });
        if let Some((_, result, error)) = calls.into_iter().find(|(id, ..)| *id == of) {
            *result = serde_json::value::to_raw_value(&message["content"]).ok();
            *error = message["error"].as_str().map(str::to_owned);
            if let Some(own) = said.metadata.get_mut(OWN) {
                own["answers"][of] = message["id"].clone();
            }
            return;
        }
    }
}

/// Leaves the newest messages, as many as a client takes at once. They begin with a user's, so that each answer is whole.
pub fn newest(messages: &mut Vec<Value>) {
    let mut left = SNAPSHOT_BYTES;
    let fits = |message: &&Value| {
        let size = message.to_string().len();
        let fits = size < left;
        left = left.saturating_sub(size + 1);
        fits
    };
    let cut = messages.len() - messages.iter().rev().take_while(fits).count();
    if cut > 0 {
        let begins = |role: &str| messages[cut..].iter().position(|message| message["role"] == role);
        let first = begins("user").or_else(|| begins("assistant")).unwrap_or(messages.len() - cut);
        messages.drain(..cut + first);
    }
}

/// A thread's messages as such a client has them.
pub fn messages(base: &str, conversation: Uuid, thread: &[Message]) -> Vec<Value> {
    let mut told = Vec::new();
    for message in thread {
        let id = client_id(message).unwrap_or_else(|| message.id.to_string());
        let metadata: Value = serde_json::from_str(&message.metadata).unwrap_or_default();
        match message.role {
            MessageRole::Assistant if metadata[OWN].is_object() => {
                brought(&id, message, &metadata[OWN], &mut told)
            }
            MessageRole::Assistant => {
                let (events, closing) = domain::answer::replay_events(&message.content);
                let mut log = vec![("turn", json!({ "run": id }).to_string())];
                log.extend(
                    events
                        .iter()
                        .map(|event| (event.name(), serde_json::to_string(event).unwrap_or_default())),
                );
                log.push(("result", json!({ "message": closing, "assistant": null }).to_string()));
                ag_ui_messages(base, log.iter().map(|(kind, data)| (*kind, data.as_str())), &mut told);
            }
            role => {
                let role = metadata[OWN]["role"].as_str().unwrap_or(role.as_str());
                told.push(json!({ "id": id, "role": role, "content": content(base, conversation, message) }));
            }
        }
    }
    told
}

/// What was said, with the files that came with it.
fn content(base: &str, conversation: Uuid, message: &Message) -> Value {
    let files: Vec<Value> = serde_json::from_str(&message.file_attachments).unwrap_or_default();
    if files.is_empty() {
        return json!(message.text);
    }
    let mut parts = Vec::new();
    if !message.is_wordless() {
        parts.push(json!({ "type": "text", "text": message.text }));
    }
    let conversation = conversation.to_string();
    parts.extend(files.iter().map(|file| {
        let family = file["mimeType"].as_str().and_then(|kind| kind.split('/').next());
        let kind = family.filter(|kind| matches!(*kind, "image" | "audio" | "video")).unwrap_or("document");
        let url = file_url(base, Some(&conversation), file);
        json!({ "type": kind, "source": { "type": "url", "value": url, "mimeType": file["mimeType"] } })
    }));
    parts.into()
}

/// An answer that a client brought, as the messages it was.
fn brought(id: &str, message: &Message, own: &Value, told: &mut Vec<Value>) {
    let blocks: Vec<Value> = serde_json::from_str(&message.content).unwrap_or_default();
    let of = |kind: &'static str| blocks.iter().filter(move |block| block["type"] == kind);
    for (n, block) in of("reasoning").enumerate() {
        told.push(json!({ "id": own["thoughts"][n], "role": "reasoning", "content": block["text"] }));
    }
    let mut said = json!({ "id": id, "role": "assistant" });
    if !message.text.is_empty() {
        said["content"] = json!(message.text);
    }
    let calls = of("tool_call").map(|call| {
        let args = match &call["args"] {
            Value::Null => "{}".to_owned(),
            Value::String(text) => text.clone(),
            args => args.to_string(),
        };
        json!({ "id": call["id"], "type": "function", "function": { "name": call["name"], "arguments": args } })
    });
    let calls: Vec<Value> = calls.collect();
    if !calls.is_empty() {
        said["toolCalls"] = json!(calls);
    }
    if said.as_object().is_some_and(|said| said.len() > 2) {
        told.push(said);
    }
    for call in of("tool_call") {
        let answer = &own["answers"][call["id"].as_str().unwrap_or_default()];
        if answer.is_null() {
            continue;
        }
        let mut result =
            json!({ "id": answer, "role": "tool", "toolCallId": call["id"], "content": call["result"] });
        if !call["error"].is_null() {
            result["error"] = call["error"].clone();
        }
        told.push(result);
    }
}
