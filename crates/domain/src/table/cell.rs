//! One cell: JSON's scalars, a number as it was spelled. Read strictly from JSON, and leniently from a file in which
//! everything is a text.

use jiff::Timestamp;
use jiff::civil::Date;
use serde::de::Error as _;
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use serde_json::value::RawValue;

use super::ColumnType;

pub const MAX_CELL_CHARS: usize = 32_000;
const MAX_NUMBER_CHARS: usize = 100;

/// Dates are texts, checked when they come in.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Cell {
    Null,
    Boolean(bool),
    /// By the grammar of JSON.
    Number(String),
    Text(String),
}

impl Cell {
    /// The value as a text; nothing for null.
    pub fn text(&self) -> &str {
        match self {
            Self::Null => "",
            Self::Boolean(true) => "true",
            Self::Boolean(false) => "false",
            Self::Number(text) | Self::Text(text) => text,
        }
    }

    /// A JSON value for a column. It must have the column's type: a text is no number, whatever it says.
    pub(super) fn from_json(raw: &RawValue, kind: ColumnType) -> Result<Self, String> {
        let cell = Self::scalar(raw.get()).ok_or_else(|| format!("must be {}", named(kind)))?;
        cell.fit(kind)
    }

    /// The same cell, if a column of this type can hold it.
    pub(super) fn fit(self, kind: ColumnType) -> Result<Self, String> {
        match (kind, self) {
            (_, Self::Null) => Ok(Self::Null),
            (ColumnType::Boolean, cell @ Self::Boolean(_)) => Ok(cell),
            (ColumnType::Number, Self::Number(number)) => short_number(number),
            (ColumnType::Text, Self::Text(text)) => short_text(text),
            (ColumnType::Date, Self::Text(text)) => date(text),
            _ => Err(format!("must be {}", named(kind))),
        }
    }

    /// A cell of a file of texts. Nothing is null, but for a text that was quoted.
    pub(super) fn from_text(text: String, quoted: bool, kind: ColumnType) -> Result<Self, String> {
        let inner = text.trim();
        match kind {
            ColumnType::Text if text.is_empty() && !quoted => Ok(Self::Null),
            ColumnType::Text => short_text(text),
            _ if inner.is_empty() => Ok(Self::Null),
            ColumnType::Number => short_number(number(inner).ok_or_else(|| must_be(inner, kind))?),
            ColumnType::Boolean => match inner.to_ascii_lowercase().as_str() {
                "true" | "yes" | "1" => Ok(Self::Boolean(true)),
                "false" | "no" | "0" => Ok(Self::Boolean(false)),
                _ => Err(must_be(inner, kind)),
            },
            ColumnType::Date => date(inner.to_owned()),
        }
    }

    /// A scalar of JSON; `None` for an array or an object.
    fn scalar(json: &str) -> Option<Self> {
        match json.as_bytes().first()? {
            b'n' => Some(Self::Null),
            b't' => Some(Self::Boolean(true)),
            b'f' => Some(Self::Boolean(false)),
            b'"' => serde_json::from_str(json).ok().map(Self::Text),
            b'-' | b'0'..=b'9' => Some(Self::Number(json.to_owned())),
            _ => None,
        }
    }
}

fn named(kind: ColumnType) -> &'static str {
    match kind {
        ColumnType::Text => "a text",
        ColumnType::Number => "a number",
        ColumnType::Boolean => "true or false",
        ColumnType::Date => "a date as 2026-05-14, or a time as 2026-05-14T09:12:36Z",
    }
}

fn must_be(text: &str, kind: ColumnType) -> String {
    let shown: String = text.chars().take(40).collect();
    format!("must be {}, not {shown:?}", named(kind))
}

fn short_text(text: String) -> Result<Cell, String> {
    if text.chars().count() > MAX_CELL_CHARS {
        return Err(format!("must be at most {MAX_CELL_CHARS} characters"));
    }
    if text.contains('\0') {
        return Err("holds the character U+0000, which cannot be kept".to_owned());
    }
    Ok(Cell::Text(text))
}

fn short_number(number: String) -> Result<Cell, String> {
    let finite = number.parse::<f64>().is_ok_and(f64::is_finite);
    if !finite || number.len() > MAX_NUMBER_CHARS {
        return Err(format!("must be a number within ±1.8e308, of at most {MAX_NUMBER_CHARS} characters"));
    }
    Ok(Cell::Number(number))
}

/// A number as people and programs write them, by the grammar of JSON.
fn number(text: &str) -> Option<String> {
    let (sign, rest) = match text.strip_prefix('-') {
        Some(rest) => ("-", rest),
        None => ("", text.strip_prefix('+').unwrap_or(text)),
    };
    let (mantissa, exponent) = match rest.split_once(['e', 'E']) {
        Some((mantissa, exponent)) => (mantissa, Some(exponent)),
        None => (rest, None),
    };
    let (whole, fraction) = mantissa.split_once('.').map_or((mantissa, None), |(w, f)| (w, Some(f)));
    let digits = |text: &str| text.bytes().all(|byte| byte.is_ascii_digit());
    let fraction = fraction.filter(|fraction| !fraction.is_empty());
    if !digits(whole) || !fraction.is_none_or(digits) || (whole.is_empty() && fraction.is_none()) {
        return None;
    }
    let whole = whole.trim_start_matches('0');
    let mut out = format!("{sign}{}", if whole.is_empty() { "0" } else { whole });
    if let Some(fraction) = fraction {
        out += &format!(".{fraction}");
    }
    if let Some(exponent) = exponent {
        let plain = exponent.strip_prefix(['-', '+']).unwrap_or(exponent);
        if plain.is_empty() || !digits(plain) {
            return None;
        }
        out += &format!("e{exponent}");
    }
    Some(out)
}

/// A day, or a moment with its offset, as RFC 3339 writes them.
fn date(text: String) -> Result<Cell, String> {
    let shape = |pattern: &str, text: &str| {
        text.len() == pattern.len()
            && text
                .bytes()
                .zip(pattern.bytes())
                .all(|(is, wanted)| if wanted == b'0' { is.is_ascii_digit() } else { is == wanted })
    };
    let is_day = |text: &str| shape("0000-00-00", text) && text.parse::<Date>().is_ok();
    let is_moment = || {
        let (day, time) = text.split_once('T')?;
        let fits = is_day(day) && shape("00:00:00", time.get(..8)?) && !text.contains('[');
        fits.then(|| text.parse::<Timestamp>().ok()).flatten()
    };
    if is_day(&text) || (text.len() <= 40 && is_moment().is_some()) {
        Ok(Cell::Text(text))
    } else {
        Err(must_be(&text, ColumnType::Date))
    }
}

/// As JSON, which is also how cells are stored.
impl Serialize for Cell {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        match self {
            Self::Null => to.serialize_unit(),
            Self::Boolean(value) => to.serialize_bool(*value),
            Self::Text(text) => to.serialize_str(text),
            Self::Number(number) => match RawValue::from_string(number.clone()) {
                Ok(raw) => raw.serialize(to),
                Err(error) => Err(serde::ser::Error::custom(error)),
            },
        }
    }
}

impl<'de> Deserialize<'de> for Cell {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        let raw = <&RawValue>::deserialize(from)?;
        Self::scalar(raw.get()).ok_or_else(|| D::Error::custom("a cell is a scalar"))
    }
}
