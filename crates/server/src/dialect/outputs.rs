//! Calls that a client brings without what they came to, and what they come to later. In: a call's output. Out: the stored
//! message that holds the call, with its output.

use domain::fold::INTERRUPTED;
use domain::message::{Block, Message, Raw, Window};
use domain::scope::Scope;
use serde::Deserialize;
use serde_json::value::{RawValue, to_raw_value};
use serde_json::{Map, Value, json};
use uuid::Uuid;

use super::Said;
use crate::problem::Problem;
use crate::state::AppState;

/// The member of a message's metadata that names its calls whose outputs may still come.
const OPEN: &str = "open_calls";

/// What a call came to.
#[derive(Debug)]
pub struct Output {
    pub call: String,
    pub result: String,
    /// Where the call's id stands in the request.
    pub pointer: String,
}

impl Output {
    pub fn raw(&self) -> Option<Raw> {
        to_raw_value(&self.result).ok()
    }

    pub fn without_call(&self) -> Problem {
        let detail = "There is no function_call with this call_id before it that waits for an output.";
        Problem::invalid_value(&self.pointer, detail)
    }
}

/// The error of a call that has not come to anything yet, as a model is told of it.
pub fn open() -> Option<String> {
    Some(INTERRUPTED.to_owned())
}

/// Names in a message which of its calls have no output.
pub fn note_open(said: &mut Said) {
    let calls = said.content.iter().filter_map(|block| match block {
        Block::ToolCall { id, error, .. } if error.as_deref() == Some(INTERRUPTED) => Some(json!(id)),
        _ => None,
    });
    let calls: Vec<Value> = calls.collect();
    if !calls.is_empty() {
        said.metadata.insert(OPEN.to_owned(), calls.into());
    }
}

/// The calls that a message's metadata name so.
pub fn open_calls(metadata: &Value) -> Vec<&str> {
    metadata[OPEN].as_array().into_iter().flatten().filter_map(Value::as_str).collect()
}

/// Refuses outputs for which no call of the thread waits.
pub async fn check(app: &AppState, scope: &Scope, id: Uuid, outputs: &[Output]) -> Result<(), Problem> {
    if outputs.is_empty() {
        return Ok(());
    }
    let mut messages = app.store.get_thread(scope, id, Some(Window::All).into()).await?.messages;
    for output in outputs {
        let joined = messages.iter_mut().rev().find_map(|message| {
            let joined = joined(message, output)?;
            *message = joined;
            Some(())
        });
        joined.ok_or_else(|| output.without_call())?;
    }
    Ok(())
}

/// Puts outputs into the messages that hold their calls; answers those, each as it is then.
pub async fn join(
    app: &AppState,
    scope: &Scope,
    id: Uuid,
    outputs: &[Output],
) -> Result<Vec<Message>, Problem> {
    let mut changed: Vec<Message> = Vec::new();
    for output in outputs {
        // Again when another output has come to the same message meanwhile.
        let joined = loop {
            let messages = app.store.get_thread(scope, id, Some(Window::All).into()).await?.messages;
            let found = messages.iter().rev().find_map(|was| Some((was, joined(was, output)?)));
            let (was, joined) = found.ok_or_else(|| output.without_call())?;
            if app.store.rewrite_message(scope, id, was, &joined, app.clock.now()).await? {
                break joined;
            }
        };
        changed.retain(|message| message.id != joined.id);
        changed.push(joined);
    }
    changed.sort_by_key(|message| message.seq);
    Ok(changed)
}

/// A call as it is stored.
#[derive(Deserialize)]
struct Call {
    r#type: String,
    id: Option<String>,
    name: Option<String>,
    args: Option<Raw>,
    round: Option<u32>,
}

/// The message with this output, where its call waits for one there.
fn joined(message: &Message, output: &Output) -> Option<Message> {
    let mut metadata: Map<String, Value> = serde_json::from_str(&message.metadata).ok()?;
    let open = metadata.get_mut(OPEN)?.as_array_mut()?;
    open.remove(open.iter().position(|call| *call == output.call)?);
    if open.is_empty() {
        metadata.remove(OPEN);
    }
    let mut blocks: Vec<Box<RawValue>> = serde_json::from_str(&message.content).ok()?;
    let call = blocks.iter_mut().rev().find_map(|block| {
        let call: Call = serde_json::from_str(block.get()).ok()?;
        (call.r#type == "tool_call" && call.id.as_ref() == Some(&output.call)).then_some((block, call))
    });
    let (block, call) = call?;
    *block = to_raw_value(&Block::ToolCall {
        id: output.call.clone(),
        name: call.name.unwrap_or_default(),
        args: call.args,
        result: output.raw(),
        error: None,
        truncated: false,
        round: call.round.unwrap_or(1),
    })
    .ok()?;
    let content = serde_json::to_string(&blocks).ok()?;
    Some(Message { content, metadata: Value::Object(metadata).to_string(), ..message.clone() })
}
