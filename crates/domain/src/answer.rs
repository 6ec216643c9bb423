//! A stored message as JSON of its own, and as the events that would have made it.

use serde::{Deserialize, Serialize};
use serde_json::value::{RawValue, to_raw_value};
use uuid::Uuid;

use crate::event::{
    File, Raw, RunEvent, Source, Sources, Step, StepStatus, Text, ToolCall, ToolCalls, ToolResult, present,
};
use crate::message::{Message, MessageRole, NewMessage};

/// A message as the API shows it.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct MessageJson<'a> {
    id: Uuid,
    role: MessageRole,
    content: &'a RawValue,
    file_attachments: &'a RawValue,
    sources: &'a RawValue,
    token_count: i64,
    metadata: &'a RawValue,
    created_at: i64,
}

/// The message as it is about to be stored.
pub fn message_json(message: &NewMessage) -> Option<Raw> {
    to_raw_value(&MessageJson {
        id: message.id,
        role: message.role,
        content: serde_json::from_str(&message.content).ok()?,
        file_attachments: serde_json::from_str(&message.file_attachments).ok()?,
        sources: serde_json::from_str(&message.sources).ok()?,
        token_count: message.token_count,
        metadata: serde_json::from_str(&message.metadata).ok()?,
        created_at: message.created_at.as_millisecond(),
    })
    .ok()
}

/// The message as it was stored: the same bytes.
pub fn stored_json(message: &Message) -> Option<Raw> {
    to_raw_value(&MessageJson {
        id: message.id,
        role: message.role,
        content: serde_json::from_str(&message.content).ok()?,
        file_attachments: serde_json::from_str(&message.file_attachments).ok()?,
        sources: serde_json::from_str(&message.sources).ok()?,
        token_count: message.token_count,
        metadata: serde_json::from_str(&message.metadata).ok()?,
        created_at: message.created_at.as_millisecond(),
    })
    .ok()
}

/// Any block, as it is stored.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct StoredBlock {
    r#type: String,
    text: Option<String>,
    id: Option<String>,
    name: Option<String>,
    status: Option<StepStatus>,
    #[serde(default, deserialize_with = "present")]
    args: Option<Raw>,
    #[serde(default, deserialize_with = "present")]
    result: Option<Raw>,
    error: Option<String>,
    duration_ms: Option<Raw>,
    started_at: Option<i64>,
    truncated: Option<bool>,
    round: Option<u32>,
    file_id: Option<Uuid>,
    mime_type: Option<String>,
    size: Option<u64>,
    sha256: Option<String>,
}

/// The events that the fold makes these stored blocks from, the terminal one aside, and the closing text that
/// belongs to the terminal one. A block of a kind that is not known is passed over. Texts that follow each other, which
/// no run makes, are one with a blank line between, as in the message's plain text.
pub fn replay_events(content: &str) -> (Vec<RunEvent>, String) {
    let blocks: Vec<Raw> = serde_json::from_str(content).unwrap_or_default();
    let (mut events, mut closing) = (Vec::new(), String::new());
    for raw in &blocks {
        let before = std::mem::take(&mut closing);
        let Ok(mut block) = serde_json::from_str::<StoredBlock>(raw.get()) else { continue };
        match block.r#type.as_str() {
            "text" => {
                let text = block.text.take().unwrap_or_default();
                let text = if before.is_empty() { text } else { format!("\n\n{text}") };
                closing = before + &text;
                block.text = Some(text);
            }
            "source" => {
                let source: Option<Source> = serde_json::from_str(raw.get()).ok();
                events.extend(source.map(|source| RunEvent::Sources(Sources { sources: vec![source] })));
                continue;
            }
            _ => {}
        }
        events.extend(events_of(block));
    }
    (events, closing)
}

/// How many events a run has whose log is its answer: `replay_events`, between the turn, its end, and that it ended.
pub fn replay_length(content: Option<&str>) -> i64 {
    3 + content.map_or(0, |content| replay_events(content).0.len() as i64)
}

fn events_of(block: StoredBlock) -> Vec<RunEvent> {
    let id = block.id.unwrap_or_default();
    let name = block.name.unwrap_or_default();
    match block.r#type.as_str() {
        "text" => vec![RunEvent::Delta(Text { text: block.text.unwrap_or_default() })],
        "reasoning" => vec![RunEvent::Reasoning(Text { text: block.text.unwrap_or_default() })],
        "step" => {
            // Interrupted is what the fold makes of a step that never ended.
            let status = match block.status {
                Some(StepStatus::Interrupted) | None => StepStatus::Running,
                Some(status) => status,
            };
            let ts = block.started_at;
            let (args, result, error, duration_ms) =
                (block.args, block.result, block.error, block.duration_ms);
            let sent = None;
            vec![RunEvent::Step(Step { id, name, status, args, result, error, duration_ms, ts, sent })]
        }
        "tool_call" => {
            let round = block.round.unwrap_or_default();
            let args = block.args.unwrap_or_else(|| RawValue::NULL.to_owned());
            let call = ToolCall { id: id.clone(), name: name.clone(), args };
            let announced = RunEvent::ToolCalls(ToolCalls { round, calls: vec![call] });
            let (result, error, truncated) = (block.result, block.error, block.truncated.unwrap_or(false));
            vec![announced, RunEvent::ToolResult(ToolResult { id, name, result, error, truncated, round })]
        }
        "file" => vec![RunEvent::File(File {
            file_id: block.file_id.unwrap_or_default(),
            name,
            mime_type: block.mime_type.unwrap_or_default(),
            size: block.size.unwrap_or_default(),
            sha256: block.sha256.unwrap_or_default(),
        })],
        _ => Vec::new(),
    }
}
