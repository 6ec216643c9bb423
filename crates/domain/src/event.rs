//! What happens during a run, as numbered events: the log's vocabulary, and the source of every wire.
//!
//! How they stand in the log is `entry`; what they make of a message is `fold`.

use serde::{Deserialize, Deserializer, Serialize, Serializer};
use serde_json::value::RawValue;
use uuid::Uuid;

use crate::line::{Level, epoch_ms};
pub use crate::message::Raw;
use crate::run::RunStatus;

/// An event's data; its name is `name()`. Serialises as the `data:` of the `envelope` wire.
#[derive(Debug, Clone, Serialize)]
#[serde(untagged)]
pub enum RunEvent {
    Turn(Turn),
    Delta(Text),
    Reasoning(Text),
    /// The step line as the sandbox sent it.
    Step(Step),
    ToolCalls(ToolCalls),
    ToolResult(ToolResult),
    Approval(Approval),
    Sources(Sources),
    File(File),
    /// A sandbox's log line: an event of executions alone, which forward every line.
    Log(Log),
    Result(Finished),
    Error(Failed),
    Done(Done),
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Turn {
    pub conversation: Option<Uuid>,
    pub run: Uuid,
    pub message: Option<Uuid>,
    pub conversation_id: Option<Uuid>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Text {
    pub text: String,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum StepStatus {
    Running,
    Succeeded,
    Failed,
    /// Never sent by a sandbox: what the fold makes of a step that was open when its run ended.
    Interrupted,
}

impl StepStatus {
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Running => "running",
            Self::Succeeded => "succeeded",
            Self::Failed => "failed",
            Self::Interrupted => "interrupted",
        }
    }
}

#[derive(Debug, Clone, Deserialize)]
#[serde(tag = "type", rename = "step", rename_all = "camelCase")]
pub struct Step {
    pub id: String,
    pub name: String,
    pub status: StepStatus,
    /// Any JSON; `Some` of null is a null that was sent.
    #[serde(default, deserialize_with = "present")]
    pub args: Option<Raw>,
    #[serde(default, deserialize_with = "present")]
    pub result: Option<Raw>,
    #[serde(default)]
    pub error: Option<String>,
    /// A number, spelled as it came: parsing it and printing it again could change it.
    #[serde(default, deserialize_with = "present")]
    pub duration_ms: Option<Raw>,
    /// The line's own time in whole epoch ms; `arrived` fills it in.
    #[serde(default, deserialize_with = "whole_ms")]
    pub ts: Option<i64>,
    /// The whole line, where it says more than these fields do, or says it in another way.
    #[serde(skip)]
    pub sent: Option<Raw>,
}

/// The fields of a step, as they are written.
#[derive(Serialize)]
#[serde(tag = "type", rename = "step", rename_all = "camelCase")]
struct StepLine<'a> {
    id: &'a str,
    name: &'a str,
    status: StepStatus,
    #[serde(skip_serializing_if = "Option::is_none")]
    args: Option<&'a RawValue>,
    #[serde(skip_serializing_if = "Option::is_none")]
    result: Option<&'a RawValue>,
    #[serde(skip_serializing_if = "Option::is_none")]
    error: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    duration_ms: Option<&'a RawValue>,
    #[serde(skip_serializing_if = "Option::is_none")]
    ts: Option<i64>,
}

impl Serialize for Step {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        let Self { id, name, status, args, result, error, duration_ms, ts, sent } = self;
        if let Some(sent) = sent {
            return sent.serialize(to);
        }
        let line = StepLine {
            id,
            name,
            status: *status,
            args: args.as_deref(),
            result: result.as_deref(),
            error: error.as_deref(),
            duration_ms: duration_ms.as_deref(),
            ts: *ts,
        };
        line.serialize(to)
    }
}

impl Step {
    /// Its time: its own, else that of its arrival, which it tells from now on, so that every reader of the event
    /// knows `startedAt`.
    pub fn arrived(&mut self, now: i64) -> i64 {
        if let Some(ts) = self.ts {
            return ts;
        }
        self.ts = Some(now);
        let with_time = |sent: &Raw| {
            let fields = sent.get().trim_end().strip_suffix('}')?;
            RawValue::from_string(format!("{fields},\"ts\":{now}}}")).ok()
        };
        self.sent = self.sent.as_ref().and_then(with_time);
        now
    }
}

fn whole_ms<'de, D: Deserializer<'de>>(from: D) -> Result<Option<i64>, D::Error> {
    epoch_ms(&Raw::deserialize(from)?).map(Some).map_err(serde::de::Error::custom)
}

/// Tells a null that was sent from a field that was left out.
pub(crate) fn present<'de, D: Deserializer<'de>>(from: D) -> Result<Option<Raw>, D::Error> {
    Raw::deserialize(from).map(Some)
}

#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct ToolCall {
    pub id: String,
    pub name: String,
    pub args: Raw,
}

#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct ToolCalls {
    pub round: u32,
    pub calls: Vec<ToolCall>,
}

#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct ToolResult {
    pub id: String,
    pub name: String,
    pub result: Option<Raw>,
    pub error: Option<String>,
    pub truncated: bool,
    pub round: u32,
}

fn is_false(flag: &bool) -> bool {
    !flag
}

#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Approval {
    pub id: String,
    pub call: ToolCall,
    /// Nobody is asked: the client that brought the tool makes the call.
    #[serde(default, skip_serializing_if = "is_false")]
    pub client: bool,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Sources {
    pub sources: Vec<Source>,
}

/// A citation: of the web with its `url`, of anything else with a `locator`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Source {
    pub id: String,
    pub title: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub url: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub locator: Option<String>,
    pub snippet: String,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "type", rename = "file", rename_all = "camelCase")]
pub struct File {
    pub file_id: Uuid,
    pub name: String,
    pub mime_type: String,
    pub size: u64,
    pub sha256: String,
}

/// A sandbox's log line.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "type", rename = "log")]
pub struct Log {
    pub level: Level,
    pub message: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ts: Option<i64>,
}

#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Finished {
    pub message: String,
    /// The whole assistant message as it was stored; null until it is.
    pub assistant: Option<Raw>,
}

#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Failed {
    pub code: String,
    pub message: String,
    pub assistant: Option<Raw>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Done {
    pub status: RunStatus,
}

impl RunEvent {
    pub fn name(&self) -> &'static str {
        match self {
            Self::Turn(_) => "turn",
            Self::Delta(_) => "delta",
            Self::Reasoning(_) => "reasoning",
            Self::Step(_) => "step",
            Self::ToolCalls(_) => "tool_calls",
            Self::ToolResult(_) => "tool_result",
            Self::Approval(_) => "approval",
            Self::Sources(_) => "sources",
            Self::File(_) => "file",
            Self::Log(_) => "log",
            Self::Result(_) => "result",
            Self::Error(_) => "error",
            Self::Done(_) => "done",
        }
    }
}
