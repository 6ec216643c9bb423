//! An entry of a run's log: one JSON object on one line, `{ n, seq, ts, kind, data }`. Events have a number;
//! entries that only a trace shows (logs, rejected lines, notes, what was sent upstream) stand between them.
//! An event is serialised once, into `data`; the store and every wire reuse that text.

use std::borrow::Cow;
use std::ops::Range;

use memchr::memchr2;
use serde::{Deserialize, Serialize};
use serde_json::value::{RawValue, to_raw_value};
use uuid::Uuid;

use crate::event::{Log, Raw, RunEvent};

/// How much is kept of a line that came after the end.
const KEPT_CHARS: usize = 2000;

#[derive(Debug, Clone)]
pub struct Entry {
    /// The place in the log, from 1, events and trace-only entries alike.
    pub n: i64,
    /// The event's number, from 1; none for what only the trace shows.
    pub seq: Option<i64>,
    /// Epoch ms: the line's own time, else when it arrived.
    pub ts: i64,
    /// The event's or the trace entry's name, one of `KINDS`.
    pub kind: &'static str,
    pub data: Raw,
    /// Of an execution, the line as the sandbox sent it.
    pub line: Option<Raw>,
}

/// Every kind of entry; the events first.
pub const KINDS: [&str; 18] = [
    "turn",
    "delta",
    "reasoning",
    "step",
    "tool_calls",
    "tool_result",
    "approval",
    "sources",
    "file",
    "result",
    "error",
    "done",
    "log",
    "rejected",
    "note",
    "dispatch",
    "ignored",
    "tool_output",
];

#[derive(Debug, thiserror::Error)]
pub enum EntryError {
    #[error("a log entry cannot be read: {0}")]
    Unreadable(#[from] serde_json::Error),
    #[error("{0:?} is not a kind of log entry")]
    UnknownKind(String),
}

/// What only a trace shows.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(untagged)]
pub enum Trace {
    Log(Log),
    Rejected(Rejected),
    Note { text: String },
    Dispatch(Dispatch),
    Ignored(Ignored),
    ToolOutput(ToolOutput),
}

/// A line that was not understood, and why.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Rejected {
    pub line: String,
    pub reason: String,
}

/// What a runner was given.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Dispatch {
    /// The messages sent along, oldest first.
    pub messages: Vec<Uuid>,
    /// What was left out or shortened, in words.
    pub cuts: Vec<String>,
    /// The model that was asked; a sandbox chooses by itself.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub model: Option<String>,
}

/// What came after the terminal line.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Ignored {
    pub lines: u64,
    /// The first of them.
    pub line: String,
}

/// The whole of a result that was cut.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct ToolOutput {
    pub id: String,
    pub round: u32,
    pub output: String,
}

impl Trace {
    /// The whole line, readable whatever its bytes were.
    pub fn rejected(line: &[u8], why: &impl std::fmt::Display) -> Self {
        let line = String::from_utf8_lossy(line).into_owned();
        Self::Rejected(Rejected { line, reason: why.to_string() })
    }

    pub fn ignored(lines: u64, first: &[u8]) -> Self {
        Self::Ignored(Ignored { lines, line: kept(first) })
    }

    pub fn name(&self) -> &'static str {
        match self {
            Self::Log(_) => "log",
            Self::Rejected(_) => "rejected",
            Self::Note { .. } => "note",
            Self::Dispatch(_) => "dispatch",
            Self::Ignored(_) => "ignored",
            Self::ToolOutput(_) => "tool_output",
        }
    }
}

/// Readable whatever the bytes were, and of bounded length.
fn kept(line: &[u8]) -> String {
    // A character is at most four bytes, and each bad byte becomes at most one character.
    let enough = line.get(..KEPT_CHARS * 4).unwrap_or(line);
    String::from_utf8_lossy(enough).chars().take(KEPT_CHARS).collect()
}

impl Entry {
    pub fn event(n: i64, seq: i64, ts: i64, event: &RunEvent) -> Result<Self, EntryError> {
        Ok(Self { n, seq: Some(seq), ts, kind: event.name(), data: to_raw_value(event)?, line: None })
    }

    pub fn trace(n: i64, ts: i64, trace: &Trace) -> Result<Self, EntryError> {
        Ok(Self { n, seq: None, ts, kind: trace.name(), data: to_raw_value(trace)?, line: None })
    }
}

/// One line, without its end.
pub fn encode(entry: &Entry) -> String {
    let mut line = Vec::with_capacity(entry.data.get().len() + 80);
    let Entry { n, seq, ts, kind, data, line: own } = entry;
    // JSON that was read can be written.
    let _ = write_entry(&mut line, (*n, *seq, *ts), kind, data, own.as_deref());
    String::from_utf8(line).unwrap_or_default()
}

/// Where in the text of a batch an event's data lies, and the sandbox's own line.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Written {
    pub data: Range<usize>,
    pub line: Option<Range<usize>>,
}

/// Adds an event to the lines of a batch.
pub fn write_event(
    out: &mut Vec<u8>,
    (n, seq, ts): (i64, i64, i64),
    event: &RunEvent,
    line: Option<&RawValue>,
) -> Result<Written, EntryError> {
    write_entry(out, (n, Some(seq), ts), event.name(), event, line)
}

/// Adds what only the trace shows to the lines of a batch.
pub fn write_trace(out: &mut Vec<u8>, (n, ts): (i64, i64), trace: &Trace) -> Result<(), EntryError> {
    write_entry(out, (n, None, ts), trace.name(), trace, None).map(|_| ())
}

/// After an error nothing was added.
fn write_entry(
    out: &mut Vec<u8>,
    (n, seq, ts): (i64, Option<i64>, i64),
    kind: &str,
    data: &impl Serialize,
    line: Option<&RawValue>,
) -> Result<Written, EntryError> {
    let before = out.len();
    if before > 0 {
        out.push(b'\n');
    }
    for (name, number) in [(&b"{\"n\":"[..], Some(n)), (b",\"seq\":", seq), (b",\"ts\":", Some(ts))] {
        out.extend_from_slice(name);
        serde_json::to_writer(&mut *out, &number)?;
    }
    out.extend_from_slice(b",\"kind\":\"");
    out.extend_from_slice(kind.as_bytes());
    out.extend_from_slice(b"\",\"data\":");
    let data = match write_flat(out, data) {
        Ok(data) => data,
        Err(error) => {
            out.truncate(before);
            return Err(error.into());
        }
    };
    let line = line.map(|line| {
        out.extend_from_slice(b",\"line\":");
        let start = out.len();
        out.extend_from_slice(line.get().as_bytes());
        flatten(out, start)
    });
    out.push(b'}');
    Ok(Written { data, line })
}

/// Adds a value as JSON on one line.
fn write_flat(out: &mut Vec<u8>, value: &impl Serialize) -> serde_json::Result<Range<usize>> {
    let start = out.len();
    serde_json::to_writer(&mut *out, value)?;
    Ok(flatten(out, start))
}

/// As `one_line`, of what was written since.
fn flatten(out: &mut [u8], start: usize) -> Range<usize> {
    let mut from = start;
    while let Some(at) = memchr2(b'\n', b'\r', &out[from..]) {
        out[from + at] = b' ';
        from += at + 1;
    }
    start..out.len()
}

/// JSON on one line. A raw line end in JSON is white space: within a string it would be escaped.
pub(crate) fn one_line(json: &str) -> Cow<'_, str> {
    match memchr2(b'\n', b'\r', json.as_bytes()) {
        Some(_) => json.replace(['\n', '\r'], " ").into(),
        None => json.into(),
    }
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Row<'a> {
    n: i64,
    seq: Option<i64>,
    ts: i64,
    #[serde(borrow)]
    kind: Cow<'a, str>,
    data: Raw,
    #[serde(default)]
    line: Option<Raw>,
}

pub fn decode(line: &str) -> Result<Entry, EntryError> {
    let Row { n, seq, ts, kind, data, line } = serde_json::from_str(line)?;
    let kind = KINDS
        .into_iter()
        .find(|known| *known == kind)
        .ok_or_else(|| EntryError::UnknownKind(kind.into_owned()))?;
    Ok(Entry { n, seq, ts, kind, data, line })
}

/// The event of an entry that has a number.
pub fn decode_event(kind: &str, data: &str) -> Result<RunEvent, EntryError> {
    Ok(match kind {
        "turn" => RunEvent::Turn(serde_json::from_str(data)?),
        "delta" => RunEvent::Delta(serde_json::from_str(data)?),
        "reasoning" => RunEvent::Reasoning(serde_json::from_str(data)?),
        "step" => RunEvent::Step(serde_json::from_str(data)?),
        "tool_calls" => RunEvent::ToolCalls(serde_json::from_str(data)?),
        "tool_result" => RunEvent::ToolResult(serde_json::from_str(data)?),
        "approval" => RunEvent::Approval(serde_json::from_str(data)?),
        "sources" => RunEvent::Sources(serde_json::from_str(data)?),
        "file" => RunEvent::File(serde_json::from_str(data)?),
        "log" => RunEvent::Log(serde_json::from_str(data)?),
        "result" => RunEvent::Result(serde_json::from_str(data)?),
        "error" => RunEvent::Error(serde_json::from_str(data)?),
        "done" => RunEvent::Done(serde_json::from_str(data)?),
        _ => return Err(EntryError::UnknownKind(kind.to_owned())),
    })
}

#[cfg(test)]
#[path = "entry_tests.rs"]
mod tests;
