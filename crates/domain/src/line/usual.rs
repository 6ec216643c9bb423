//! The usual line, read in one pass: an object with nothing but known fields, each of its own type. Whatever else comes
//! is left to the strict reader, which also finds the words for what is wrong.

use serde::{Deserialize, Deserializer};
use serde_json::value::RawValue;

use super::{LAST_MS, Level, Line};
use crate::event::{Step, StepStatus};
use crate::json::{MAX_DEPTH, check_within};

/// Serde refuses a field that is given twice.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Fields<'a> {
    r#type: &'a str,
    #[serde(default, deserialize_with = "given")]
    ts: Option<i64>,
    #[serde(default, deserialize_with = "given")]
    level: Option<&'a str>,
    #[serde(default, deserialize_with = "given")]
    message: Option<String>,
    #[serde(default, deserialize_with = "given")]
    id: Option<String>,
    #[serde(default, deserialize_with = "given")]
    name: Option<String>,
    #[serde(default, deserialize_with = "given")]
    status: Option<&'a str>,
    #[serde(borrow, default, deserialize_with = "given")]
    args: Option<&'a RawValue>,
    #[serde(borrow, default, deserialize_with = "given")]
    result: Option<&'a RawValue>,
    #[serde(default, deserialize_with = "given")]
    error: Option<String>,
    #[serde(borrow, default, deserialize_with = "given", rename = "durationMs")]
    duration_ms: Option<&'a RawValue>,
    #[serde(default, deserialize_with = "given")]
    code: Option<String>,
    #[serde(default, deserialize_with = "given")]
    text: Option<String>,
}

/// A null is a value of the wrong type, not an absence.
fn given<'de, D: Deserializer<'de>, T: Deserialize<'de>>(from: D) -> Result<Option<T>, D::Error> {
    T::deserialize(from).map(Some)
}

/// None for a line that is not as usual.
pub(super) fn parse(bytes: &[u8]) -> Option<Line> {
    let text = std::str::from_utf8(bytes).ok()?;
    // An array would pass for a struct's fields in order.
    if !text.starts_with('{') {
        return None;
    }
    let fields: Fields<'_> = serde_json::from_str(text).ok()?;
    if !is_sound(&fields) {
        return None;
    }
    // One that has to be put right is nothing that the step as it was sent would say.
    if fields.ts.is_some_and(|ts| !(0..=LAST_MS).contains(&ts)) {
        return None;
    }
    let ts = fields.ts;
    Some(match fields.r#type {
        "delta" => Line::Delta { text: fields.text?, ts },
        "step" => Line::Step(step(fields, ts)?),
        "log" => Line::Log { level: level(fields.level?)?, message: fields.message?, ts },
        "result" => Line::Result { message: fields.message?, ts },
        "error" => Line::Error { code: fields.code?, message: fields.message?, ts },
        _ => return None,
    })
}

/// What the types do not say: no text holds U+0000, and others' JSON is as sound as the line.
fn is_sound(fields: &Fields<'_>) -> bool {
    let texts = [&fields.message, &fields.id, &fields.name, &fields.error, &fields.code, &fields.text];
    let holds_nul = |text: &&String| memchr::memchr(0, text.as_bytes()).is_some();
    let values = [fields.args, fields.result, fields.duration_ms];
    !texts.into_iter().flatten().any(|text| holds_nul(&text))
        && values.into_iter().flatten().all(|value| check_within(value.get(), MAX_DEPTH - 1).is_ok())
}

fn step(fields: Fields<'_>, ts: Option<i64>) -> Option<Step> {
    if let Some(duration) = fields.duration_ms {
        super::number("durationMs", duration).ok()?;
    }
    Some(Step {
        id: fields.id?,
        name: fields.name?,
        status: match fields.status? {
            "running" => StepStatus::Running,
            "succeeded" => StepStatus::Succeeded,
            "failed" => StepStatus::Failed,
            _ => return None,
        },
        args: fields.args.map(ToOwned::to_owned),
        result: fields.result.map(ToOwned::to_owned),
        error: fields.error,
        duration_ms: fields.duration_ms.map(ToOwned::to_owned),
        ts,
        sent: None,
    })
}

fn level(word: &str) -> Option<Level> {
    match word {
        "debug" => Some(Level::Debug),
        "info" => Some(Level::Info),
        "warn" => Some(Level::Warn),
        "error" => Some(Level::Error),
        _ => None,
    }
}
