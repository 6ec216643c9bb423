//! The lines a sandbox may send, read strictly. In: the bytes of one line without its end. Out: a line that
//! means the same to every reader, or why it was rejected. Fields beyond a line's own mean nothing: a sandbox
//! sets no ids, numbers, roles or counts of ours. Only a step, which readers get as it was sent, carries them along.

mod splitter;
mod usual;

use serde::de::DeserializeOwned;
use serde::{Deserialize, Deserializer, Serialize};
use serde_json::value::RawValue;

pub use self::splitter::{LineSplitter, LineTooLong};
use crate::event::{Step, StepStatus};
use crate::json::{self, JsonFault};

/// The last instant a JavaScript date can hold; a `ts` beyond it or before 1970 becomes the nearest end.
const LAST_MS: i64 = 8_640_000_000_000_000;

/// How much of an unknown word an error repeats.
const SHOWN_CHARS: usize = 64;

/// Every `ts` is in whole epoch ms; `None` when the line has none.
#[derive(Debug, Clone)]
pub enum Line {
    Log { level: Level, message: String, ts: Option<i64> },
    Step(Step),
    Delta { text: String, ts: Option<i64> },
    Result { message: String, ts: Option<i64> },
    Error { code: String, message: String, ts: Option<i64> },
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Level {
    Debug,
    Info,
    Warn,
    Error,
}

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Rejection {
    #[error("{0}")]
    Json(#[from] JsonFault),
    #[error("a line is a JSON object")]
    NotAnObject,
    #[error("the type {0:?} is not known: send log, step, delta, result or error")]
    UnknownType(String),
    #[error("the field {0:?} is missing")]
    Missing(&'static str),
    #[error("the field {field:?} is not {expected}")]
    WrongType { field: &'static str, expected: &'static str },
}

/// The fields of every type of line, unread. Null is a value here, not an absence.
#[derive(Deserialize)]
struct Fields<'a> {
    #[serde(borrow, default, deserialize_with = "present")]
    r#type: Option<&'a RawValue>,
    #[serde(borrow, default, deserialize_with = "present")]
    ts: Option<&'a RawValue>,
    #[serde(borrow, default, deserialize_with = "present")]
    level: Option<&'a RawValue>,
    #[serde(borrow, default, deserialize_with = "present")]
    message: Option<&'a RawValue>,
    #[serde(borrow, default, deserialize_with = "present")]
    id: Option<&'a RawValue>,
    #[serde(borrow, default, deserialize_with = "present")]
    name: Option<&'a RawValue>,
    #[serde(borrow, default, deserialize_with = "present")]
    status: Option<&'a RawValue>,
    #[serde(borrow, default, deserialize_with = "present")]
    args: Option<&'a RawValue>,
    #[serde(borrow, default, deserialize_with = "present")]
    result: Option<&'a RawValue>,
    #[serde(borrow, default, deserialize_with = "present")]
    error: Option<&'a RawValue>,
    #[serde(borrow, default, deserialize_with = "present", rename = "durationMs")]
    duration_ms: Option<&'a RawValue>,
    #[serde(borrow, default, deserialize_with = "present")]
    code: Option<&'a RawValue>,
    #[serde(borrow, default, deserialize_with = "present")]
    text: Option<&'a RawValue>,
}

fn present<'de, D: Deserializer<'de>>(from: D) -> Result<Option<&'de RawValue>, D::Error> {
    <&RawValue>::deserialize(from).map(Some)
}

/// Reads one line, without its `\n`.
pub fn parse(bytes: &[u8]) -> Result<Line, Rejection> {
    if let Some(line) = usual::parse(bytes) {
        return Ok(line);
    }
    let rejected = match strict(bytes) {
        Ok(line) => return Ok(line.sent_as(bytes)),
        Err(rejected) => rejected,
    };
    // A string may hold anything; what cannot be kept of it does not cost the rest.
    let mended = std::str::from_utf8(bytes).ok().and_then(json::mended).ok_or(rejected)?;
    strict(mended.as_bytes()).map(|line| line.sent_as(mended.as_bytes()))
}

/// Reads any line, or says what is wrong with it.
fn strict(bytes: &[u8]) -> Result<Line, Rejection> {
    // The whole line is checked first: what the types below pass over unread is sound, too.
    json::check_kept(bytes)?;
    // An array would pass for a struct's fields in order.
    if bytes.trim_ascii_start().first() != Some(&b'{') {
        return Err(Rejection::NotAnObject);
    }
    let fields: Fields<'_> = serde_json::from_slice(bytes).map_err(|_| Rejection::NotAnObject)?;
    let kind = string("type", fields.r#type)?;
    let ts = fields.ts.map(epoch_ms).transpose()?;
    Ok(match kind.as_str() {
        "log" => Line::Log { level: level(fields.level)?, message: string("message", fields.message)?, ts },
        "step" => Line::Step(step(&fields, ts)?),
        "delta" => Line::Delta { text: string("text", fields.text)?, ts },
        "result" => Line::Result { message: string("message", fields.message)?, ts },
        "error" => {
            let code = string("code", fields.code)?;
            Line::Error { code, message: string("message", fields.message)?, ts }
        }
        _ => return Err(Rejection::UnknownType(kind.chars().take(SHOWN_CHARS).collect())),
    })
}

fn step(fields: &Fields<'_>, ts: Option<i64>) -> Result<Step, Rejection> {
    if let Some(duration) = fields.duration_ms {
        number("durationMs", duration)?;
    }
    Ok(Step {
        id: string("id", fields.id)?,
        name: string("name", fields.name)?,
        status: status(fields.status)?,
        args: fields.args.map(ToOwned::to_owned),
        result: fields.result.map(ToOwned::to_owned),
        error: fields.error.map(|error| string("error", Some(error))).transpose()?,
        duration_ms: fields.duration_ms.map(ToOwned::to_owned),
        ts,
        sent: None,
    })
}

// Both are read as strings first: serde would take `{"running":null}` for the name of a variant, too.
fn status(raw: Option<&RawValue>) -> Result<StepStatus, Rejection> {
    match string("status", raw)?.as_str() {
        "running" => Ok(StepStatus::Running),
        "succeeded" => Ok(StepStatus::Succeeded),
        "failed" => Ok(StepStatus::Failed),
        _ => Err(Rejection::WrongType { field: "status", expected: "running, succeeded or failed" }),
    }
}

fn level(raw: Option<&RawValue>) -> Result<Level, Rejection> {
    match string("level", raw)?.as_str() {
        "debug" => Ok(Level::Debug),
        "info" => Ok(Level::Info),
        "warn" => Ok(Level::Warn),
        "error" => Ok(Level::Error),
        _ => Err(Rejection::WrongType { field: "level", expected: "debug, info, warn or error" }),
    }
}

fn string(field: &'static str, raw: Option<&RawValue>) -> Result<String, Rejection> {
    required(field, raw, "a string")
}

fn required<T: DeserializeOwned>(
    field: &'static str,
    raw: Option<&RawValue>,
    expected: &'static str,
) -> Result<T, Rejection> {
    let raw = raw.ok_or(Rejection::Missing(field))?;
    serde_json::from_str(raw.get()).map_err(|_| Rejection::WrongType { field, expected })
}

/// A number as near as it can be counted with.
fn number(field: &'static str, raw: &RawValue) -> Result<f64, Rejection> {
    let number = json::is_number(raw.get()).then(|| raw.get().parse().ok()).flatten();
    number.ok_or(Rejection::WrongType { field, expected: "a number" })
}

/// Whole milliseconds of a number; a fraction is dropped.
pub(crate) fn epoch_ms(raw: &RawValue) -> Result<i64, Rejection> {
    let whole: Option<i64> = serde_json::from_str(raw.get()).ok();
    let ms = match whole {
        Some(ms) => ms,
        // `as` goes to the nearest end.
        None => number("ts", raw)? as i64,
    };
    Ok(ms.clamp(0, LAST_MS))
}

impl Line {
    /// The line's own time.
    pub fn ts(&self) -> Option<i64> {
        match self {
            Self::Log { ts, .. } | Self::Delta { ts, .. } => *ts,
            Self::Result { ts, .. } | Self::Error { ts, .. } => *ts,
            Self::Step(step) => step.ts,
        }
    }

    /// A step remembers how it was sent.
    fn sent_as(mut self, bytes: &[u8]) -> Self {
        if let Self::Step(step) = &mut self {
            step.sent = serde_json::from_slice(bytes).ok();
        }
        self
    }

    /// The run ends with it.
    pub fn is_terminal(&self) -> bool {
        matches!(self, Self::Result { .. } | Self::Error { .. })
    }
}

#[cfg(test)]
#[path = "line_tests.rs"]
mod tests;
