//! The members of a JSON object, read leniently: by any of several names, in any spelling that makes sense. Values
//! stay text until somebody asks, so that what is passed on is spelled as it came.

use std::collections::BTreeMap;

use jiff::Timestamp;
use serde_json::Value;
use serde_json::value::RawValue;

use super::times::read_time;
use super::{Refusal, derived_id};
use crate::json::mended;
use crate::message::Raw;

/// Columns of tables that hold JSON; what dumps them may write it as text.
pub const JSON_COLUMNS: [&str; 10] = [
    "messages",
    "parts",
    "tabs",
    "context",
    "metadata",
    "sources",
    "attachments",
    "fileAttachments",
    "file_attachments",
    "tool_calls",
];

#[derive(Debug, Default, Clone)]
pub struct Fields<'a>(BTreeMap<String, &'a RawValue>);

impl<'a> Fields<'a> {
    pub fn read(text: &'a str) -> Result<Self, Refusal> {
        if !text.trim_start().starts_with('{') {
            return Err(Refusal::new("it is not a JSON object"));
        }
        let members =
            serde_json::from_str(text).map_err(|error| Refusal(format!("not valid JSON: {error}")))?;
        Ok(Self(members))
    }

    /// The members of an object within.
    pub fn object(&self, names: &[&str]) -> Option<Self> {
        self.raw(names).and_then(|raw| Self::read(raw.get()).ok())
    }

    pub fn has(&self, name: &str) -> bool {
        self.0.contains_key(name)
    }

    /// The first of these that is there and not null.
    pub fn raw(&self, names: &[&str]) -> Option<&'a RawValue> {
        names.iter().find_map(|name| self.0.get(*name).copied().filter(|raw| raw.get() != "null"))
    }

    pub fn value(&self, names: &[&str]) -> Option<Value> {
        serde_json::from_str(self.raw(names)?.get()).ok()
    }

    /// A text; a number is one too.
    pub fn text(&self, names: &[&str]) -> Option<String> {
        match self.value(names)? {
            Value::String(text) => Some(text),
            Value::Number(number) => Some(number.to_string()),
            _ => None,
        }
    }

    pub fn integer(&self, names: &[&str]) -> Option<i64> {
        match self.value(names)? {
            Value::Number(number) => number.as_i64().or_else(|| number.as_f64().map(|float| float as i64)),
            Value::String(text) => text.trim().parse().ok(),
            _ => None,
        }
    }

    pub fn flag(&self, names: &[&str]) -> Option<bool> {
        match self.value(names)? {
            Value::Bool(flag) => Some(flag),
            Value::String(text) => text.parse().ok(),
            _ => None,
        }
    }

    pub fn time(&self, names: &[&str]) -> Option<Timestamp> {
        read_time(&self.value(names)?)
    }

    /// The elements of an array; none when it is not there, a refusal when it is something else.
    pub fn list(&self, names: &[&str]) -> Result<Vec<&'a RawValue>, Refusal> {
        let Some(raw) = self.raw(names) else { return Ok(Vec::new()) };
        serde_json::from_str(raw.get())
            .map_err(|_| Refusal(format!("{} is not an array", names.first().copied().unwrap_or_default())))
    }

    /// As `list`, of what need not be one.
    pub fn elements(&self, names: &[&str]) -> Vec<&'a RawValue> {
        self.list(names).unwrap_or_default()
    }

    /// JSON that is passed on: of a text that holds JSON, the JSON.
    pub fn passed_on(&self, names: &[&str]) -> Option<Raw> {
        Some(unquoted(self.raw(names)?))
    }

    /// Takes a member of another object, unless it is there.
    pub fn take_from(&mut self, other: &Self, name: &str) {
        if let Some(raw) = other.0.get(name) {
            self.0.entry(name.to_owned()).or_insert(raw);
        }
    }

    /// The object with its columns of JSON as JSON; none when none of them is a text that holds some.
    pub fn spread(&self) -> Option<String> {
        let held = JSON_COLUMNS.iter().filter_map(|name| {
            let raw = self.raw(&[name])?;
            let inner = unquoted(raw);
            (inner.get() != raw.get()).then_some((*name, inner))
        });
        let held: BTreeMap<&str, Raw> = held.collect();
        if held.is_empty() {
            return None;
        }
        let all = self.iter().map(|(name, raw)| (name, held.get(name).map_or(raw, |inner| inner)));
        serde_json::to_string(&all.collect::<BTreeMap<&str, &RawValue>>()).ok()
    }

    pub fn iter(&self) -> impl Iterator<Item = (&str, &'a RawValue)> {
        self.0.iter().map(|(name, raw)| (name.as_str(), *raw))
    }
}

/// JSON within a text as JSON, anything else as it is.
pub fn unquoted(raw: &RawValue) -> Raw {
    if raw.get().starts_with('"')
        && let Ok(text) = serde_json::from_str::<String>(raw.get())
        && text.trim_start().starts_with(['{', '['])
        && let Some(inner) = json(text)
    {
        return inner;
    }
    raw.to_owned()
}

/// The JSON that a text is, sound as what was read around it.
pub fn json(text: String) -> Option<Raw> {
    RawValue::from_string(mended(&text).unwrap_or(text)).ok()
}

/// A text as JSON.
pub fn quoted(text: &str) -> Option<Raw> {
    serde_json::value::to_raw_value(text).ok()
}

/// A UUID in its usual spelling, of version 1 to 8.
pub fn uuid(text: &str) -> Option<uuid::Uuid> {
    if text.len() == 36 { uuid::Uuid::try_parse(text).ok() } else { None }
}

/// An id for something that has none, from where it stands.
pub fn placed_id(of: &str, at: usize) -> String {
    derived_id(&[of, &at.to_string()]).simple().to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn json_within_a_text_is_sound() {
        let text = RawValue::from_string(r#""{\"a\":\"\\ud83d b\"}""#.into()).unwrap();
        assert_eq!(unquoted(&text).get(), r#"{"a":"\ufffd b"}"#);
    }
}
