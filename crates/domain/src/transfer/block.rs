//! Stored blocks, read back strictly: what passes is a block that a run could have made, spelled as a run spells it.

use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::value::RawValue;

use super::Refusal;
use crate::event::{File, Raw, Source, Step, StepStatus, present};
use crate::message::Block;

#[derive(Deserialize)]
struct Tag {
    r#type: String,
}

#[derive(Deserialize)]
struct Text {
    text: String,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct StepBlock {
    id: String,
    name: String,
    status: StepStatus,
    #[serde(default, deserialize_with = "present")]
    args: Option<Raw>,
    #[serde(default, deserialize_with = "present")]
    result: Option<Raw>,
    #[serde(default)]
    error: Option<String>,
    #[serde(default, deserialize_with = "present")]
    duration_ms: Option<Raw>,
    #[serde(default)]
    started_at: i64,
}

#[derive(Deserialize)]
struct ToolCallBlock {
    id: String,
    name: String,
    #[serde(default)]
    args: Option<Raw>,
    #[serde(default)]
    result: Option<Raw>,
    #[serde(default)]
    error: Option<String>,
    #[serde(default)]
    truncated: bool,
    #[serde(default)]
    round: u32,
}

#[derive(Deserialize)]
struct ErrorBlock {
    code: String,
    message: String,
}

fn whole<T: DeserializeOwned>(block: &RawValue) -> Result<T, Refusal> {
    serde_json::from_str(block.get()).map_err(|error| Refusal(format!("a block cannot be read: {error}")))
}

/// One block, as it is stored and as the API shows it.
pub fn read_block(block: &RawValue) -> Result<Block, Refusal> {
    if !block.get().starts_with('{') {
        return Err(Refusal::new("a block is an object with a type"));
    }
    let Tag { r#type } = whole(block)?;
    Ok(match r#type.as_str() {
        "text" => Block::Text { text: whole::<Text>(block)?.text },
        "reasoning" => Block::Reasoning { text: whole::<Text>(block)?.text },
        "step" => {
            let StepBlock { id, name, status, args, result, error, duration_ms, started_at } = whole(block)?;
            if let Some(spent) = &duration_ms
                && serde_json::from_str::<f64>(spent.get()).is_err()
            {
                return Err(Refusal::new("the durationMs of a step is a number"));
            }
            Block::Step { id, name, status, args, result, error, duration_ms, started_at }
        }
        "tool_call" => {
            let ToolCallBlock { id, name, args, result, error, truncated, round } = whole(block)?;
            Block::ToolCall { id, name, args, result, error, truncated, round }
        }
        "source" => Block::Source(whole::<Source>(block)?),
        "file" => {
            let File { file_id, name, mime_type, size, sha256 } = whole(block)?;
            Block::File { file_id, name, mime_type, size, sha256 }
        }
        "error" => {
            let ErrorBlock { code, message } = whole(block)?;
            Block::Error { code, message }
        }
        other => {
            let shown: String = other.chars().take(40).collect();
            return Err(Refusal(format!("a block has the type {shown:?}, which is not known")));
        }
    })
}

/// A step line as a block, as the fold would make it at its end.
pub fn step_block(step: Step, started_at: i64) -> Block {
    let Step { id, name, status, args, result, error, duration_ms, ts, .. } = step;
    Block::Step { id, name, status, args, result, error, duration_ms, started_at: ts.unwrap_or(started_at) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_stored_is_read_and_spelled_the_same() {
        for text in [
            r#"{"type":"text","text":"a\u0000"}"#,
            r#"{"type":"reasoning","text":"hm"}"#,
            r#"{"type":"step","id":"s","name":"n","status":"interrupted","args":null,"durationMs":1.50,"startedAt":7}"#,
            r#"{"type":"step","id":"s","name":"n","status":"failed","result":{"b":1,"a":2},"error":"e","startedAt":-1}"#,
            r#"{"type":"tool_call","id":"c","name":"n","args":{"x":1e2},"result":null,"error":"e","truncated":true,"round":2}"#,
            r#"{"type":"source","id":"1","title":"t","url":"u","snippet":"s"}"#,
            r#"{"type":"file","fileId":"00000000-0000-0000-0000-000000000001","name":"a","mimeType":"b","size":3,"sha256":"c"}"#,
            r#"{"type":"error","code":"c","message":"m"}"#,
        ] {
            let raw = RawValue::from_string(text.into()).unwrap();
            assert_eq!(serde_json::to_string(&read_block(&raw).unwrap()).unwrap(), text);
        }
    }

    #[test]
    fn what_no_run_makes_is_refused() {
        for text in [
            "1",
            "[]",
            "{}",
            r#"{"type":"video"}"#,
            r#"{"type":"text"}"#,
            r#"{"type":"text","text":1}"#,
            r#"{"type":"step","id":"s","name":"n","status":"done"}"#,
            r#"{"type":"step","id":"s","name":"n","status":"failed","durationMs":"1"}"#,
            r#"{"type":"file","fileId":"x","name":"a","mimeType":"b","size":3,"sha256":"c"}"#,
        ] {
            let raw = RawValue::from_string(text.into()).unwrap();
            assert!(read_block(&raw).is_err(), "{text}");
        }
    }
}
