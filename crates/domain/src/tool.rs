//! The tool loop's decisions, without the loop: what to do with a model's answer, which calls can be made, how much of
//! a result is kept.

mod schema;

use std::collections::HashSet;

use serde_json::Value;
use serde_json::value::{RawValue, to_raw_value};

use crate::event::ToolCall;
use crate::json;
use crate::message::Raw;
use crate::model::{Call, Finish, Gathered, ModelFault, ToolSpec, keepable};

/// Calls of one answer that are made; more are refused.
pub const MAX_CALLS: usize = 64;
const ID_CHARS: usize = 128;
const NAME_CHARS: usize = 128;

/// What comes after a model's answer.
#[derive(Debug)]
pub enum Next {
    /// It is the run's answer.
    Answer(String),
    /// A part of it: the model goes on.
    GoOn(String),
    /// These calls, and then the model again.
    Round(Vec<Planned>),
    /// It goes on calling, though it may not.
    Exhausted,
    Failed(ModelFault),
}

/// A call to announce, and what is to be done about it.
#[derive(Debug)]
pub struct Planned {
    pub call: ToolCall,
    /// The arguments, or why the call cannot be made.
    pub args: Result<Value, String>,
}

/// `offered` is what the model was offered: nothing in the last round.
pub fn next(gathered: Gathered, offered: &[ToolSpec], round: u32) -> Next {
    match gathered.end {
        None => Next::Failed(ModelFault::new(
            crate::model::ModelFaultKind::Error,
            "The model's answer has no end.",
        )),
        Some(Err(fault)) => Next::Failed(fault),
        // A call that was cut off by a limit or a filter may be half a call.
        Some(Ok(Finish::Length | Finish::Refused)) => Next::Answer(gathered.text),
        Some(Ok(Finish::Paused)) if gathered.calls.is_empty() => Next::GoOn(gathered.text),
        Some(Ok(_)) if gathered.calls.is_empty() => Next::Answer(gathered.text),
        Some(Ok(_)) if offered.is_empty() && gathered.text.trim().is_empty() => Next::Exhausted,
        Some(Ok(_)) if offered.is_empty() => Next::Answer(gathered.text),
        Some(Ok(_)) => Next::Round(plan(gathered.calls, offered, round)),
    }
}

/// Every call with an id that is its own in this round.
fn plan(calls: Vec<Call>, offered: &[ToolSpec], round: u32) -> Vec<Planned> {
    let mut taken = HashSet::new();
    let mut planned = Vec::with_capacity(calls.len());
    for (index, call) in calls.into_iter().enumerate() {
        let mut id: String = keepable(&call.id).chars().take(ID_CHARS).collect();
        if id.is_empty() || taken.contains(&id) {
            id = (0..)
                .map(|n| format!("call_{round}_{}", index + n))
                .find(|id| !taken.contains(id))
                .unwrap_or(id);
        }
        taken.insert(id.clone());
        let name: String = keepable(&call.name).chars().take(NAME_CHARS).collect();
        let (shown, args) = read_args(&call.args);
        let args = match offered.iter().find(|spec| spec.name == name) {
            _ if index >= MAX_CALLS => Err(format!("more than {MAX_CALLS} calls at once; call again later")),
            None => {
                let names: Vec<&str> = offered.iter().map(|spec| spec.name.as_str()).collect();
                Err(format!("there is no tool {name:?}; there are: {}", names.join(", ")))
            }
            Some(spec) => args.and_then(|args| fits(spec, args)),
        };
        planned.push(Planned { call: ToolCall { id, name, args: shown }, args });
    }
    planned
}

/// A call's arguments as they are kept: an object as it is, anything else as a text of its own.
pub fn kept_args(text: &str) -> Raw {
    read_args(text).0
}

/// The arguments as they are shown and kept, and as they are used.
fn read_args(text: &str) -> (Raw, Result<Value, String>) {
    let text = if text.trim().is_empty() { "{}" } else { text };
    let refused = |reason: String| {
        let shown = to_raw_value(&keepable(text)).unwrap_or_else(|_| RawValue::NULL.to_owned());
        (shown, Err(format!("the arguments {reason}")))
    };
    if let Err(fault) = json::check(text.as_bytes()) {
        return refused(format!("are refused: {fault}"));
    }
    match serde_json::from_str::<Value>(text) {
        Ok(value @ Value::Object(_)) => {
            let shown = RawValue::from_string(text.trim().to_owned());
            (shown.unwrap_or_else(|_| RawValue::NULL.to_owned()), Ok(value))
        }
        _ => refused("must be a JSON object".to_owned()),
    }
}

fn fits(spec: &ToolSpec, args: Value) -> Result<Value, String> {
    let schema: Value = serde_json::from_str(spec.schema.get()).unwrap_or_default();
    schema::check(&schema, &args, "").map_err(|reason| format!("the arguments do not fit: {reason}"))?;
    Ok(args)
}

/// At most `max` characters of a result, the marker that tells of the cut included; and whether it was cut.
pub fn clip(text: &str, max: usize) -> (String, bool) {
    let all = text.chars().count();
    if all <= max {
        return (text.to_owned(), false);
    }
    let marker = format!("\n[cut: {all} characters in all]");
    let kept = max.saturating_sub(marker.chars().count());
    let mut cut: String = text.chars().take(kept).collect();
    cut.extend(marker.chars().take(max - kept));
    (cut, true)
}

#[cfg(test)]
#[path = "tool_tests.rs"]
mod tests;
