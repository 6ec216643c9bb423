//! Strict JSON: a whole document is read once, without building a tree, and either passes or is
//! refused with the place of its first fault. What passes can be stored by every backend and means
//! the same to every reader: UTF-8, no duplicate keys, no U+0000, no lone surrogates, bounded depth.

use std::borrow::Cow;
use std::collections::HashSet;
use std::fmt;

use serde::de::{DeserializeSeed, Deserializer, MapAccess, SeqAccess, Visitor};

/// How many arrays and objects may lie inside each other.
pub const MAX_DEPTH: usize = 64;

/// How much of a key an error message repeats.
const SHOWN_KEY_CHARS: usize = 64;

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct JsonFault {
    /// RFC 6901 pointer to the value that is at fault, or to what encloses it.
    pub pointer: String,
    pub kind: JsonFaultKind,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum JsonFaultKind {
    Syntax {
        line: usize,
        column: usize,
        message: String,
    },
    /// `at` is the offset of the first byte that is not part of a character.
    NotUtf8 {
        at: usize,
    },
    DuplicateKey(String),
    Nul,
    TooDeep,
}

impl fmt::Display for JsonFault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let place = Place(&self.pointer);
        match &self.kind {
            JsonFaultKind::Syntax { line, column, message } => {
                write!(f, "not valid JSON at line {line}, column {column}, in {place}: {message}")
            }
            JsonFaultKind::NotUtf8 { at } => {
                write!(f, "byte {at} of the document is not UTF-8: send the document as UTF-8")
            }
            JsonFaultKind::DuplicateKey(key) => {
                let key: String = key.chars().take(SHOWN_KEY_CHARS).collect();
                write!(f, "the key {key:?} is given more than once, at {place}: give it once")
            }
            JsonFaultKind::Nul => {
                write!(f, "a text in {place} holds the character U+0000, which cannot be kept: remove it")
            }
            JsonFaultKind::TooDeep => {
                let shallow: String = self.pointer.chars().take(SHOWN_KEY_CHARS).collect();
                write!(f, "more than {MAX_DEPTH} arrays and objects lie inside each other, under {shallow}…")
            }
        }
    }
}

impl std::error::Error for JsonFault {}

impl JsonFault {
    /// A number is too large, and nothing before it is at fault.
    fn is_range(&self) -> bool {
        matches!(&self.kind, JsonFaultKind::Syntax { message, .. } if message == "number out of range")
    }
}

struct Place<'a>(&'a str);

impl fmt::Display for Place<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.0.is_empty() { f.write_str("the document") } else { f.write_str(self.0) }
    }
}

/// Checks one whole document; anything but white space after it is a fault.
pub fn check(bytes: &[u8]) -> Result<(), JsonFault> {
    let text = std::str::from_utf8(bytes).map_err(|e| JsonFault {
        pointer: String::new(),
        kind: JsonFaultKind::NotUtf8 { at: e.valid_up_to() },
    })?;
    check_within(text, MAX_DEPTH)
}

/// As `check`, for JSON that is kept as it is spelled: its numbers may be beyond all that can be counted with.
pub fn check_kept(bytes: &[u8]) -> Result<(), JsonFault> {
    match (check(bytes), std::str::from_utf8(bytes)) {
        (Err(fault), Ok(text)) if fault.is_range() => check_within(&countable(text), MAX_DEPTH),
        (checked, _) => checked,
    }
}

/// The value of JSON that `check_kept` has passed; a number that cannot be counted with is the text of it.
pub(crate) fn value(text: &str) -> serde_json::Value {
    let read = serde_json::from_str(text).or_else(|_| serde_json::from_str(&countable(text)));
    read.unwrap_or_default()
}

/// Whether this begins a number, in JSON that was read.
pub(crate) fn is_number(json: &str) -> bool {
    json.starts_with(|first: char| first == '-' || first.is_ascii_digit())
}

/// The same JSON, with a text in the place of every number that is too large.
fn countable(text: &str) -> String {
    let mut out = String::with_capacity(text.len() + 2);
    let (mut rest, mut in_string) = (text, false);
    while let Some(first) = rest.chars().next() {
        let len = match first {
            '\\' if in_string => 1 + rest[1..].chars().next().map_or(0, char::len_utf8),
            _ if in_string || !is_number(rest) => first.len_utf8(),
            _ => rest.find(|c: char| !"+-.eE".contains(c) && !c.is_ascii_digit()).unwrap_or(rest.len()),
        };
        let (token, after) = rest.split_at(len);
        if !in_string && token.parse::<f64>().is_ok_and(|number| number.is_infinite()) {
            out.extend(["\"", token, "\""]);
        } else {
            out.push_str(token);
        }
        in_string ^= token == "\"";
        rest = after;
    }
    out
}

/// The same JSON with U+FFFD for each escape that no text can hold: U+0000, and half a surrogate pair. None where
/// there is no such escape.
pub fn mended(text: &str) -> Option<String> {
    let (mut out, mut done, mut at) = (String::new(), 0, 0);
    while let Some(found) = text[at..].find('\\') {
        at += found;
        let escape = &text[at..];
        let (len, sound) = match (unit(escape), escape.get(6..).and_then(unit)) {
            (Some(0xd800..=0xdbff), Some(0xdc00..=0xdfff)) => (12, true),
            (Some(0 | 0xd800..=0xdfff), _) => (6, false),
            (Some(_), _) => (6, true),
            (None, _) => (1 + escape[1..].chars().next().map_or(0, char::len_utf8), true),
        };
        if !sound {
            out.extend([&text[done..at], r"\ufffd"]);
            done = at + len;
        }
        at += len;
    }
    (done > 0).then(|| out + &text[done..])
}

/// The code unit of an escape such as `\u0041`, which the text begins with.
fn unit(text: &str) -> Option<u16> {
    let digits = text.strip_prefix(r"\u")?.get(..4)?;
    digits.bytes().all(|digit| digit.is_ascii_hexdigit()).then(|| u16::from_str_radix(digits, 16).ok())?
}

/// As `check`, with another bound on the depth: for a value that lies inside of others.
pub(crate) fn check_within(text: &str, depth: usize) -> Result<(), JsonFault> {
    let mut walk = Walk { path: Vec::new(), fault: None, depth };
    let mut document = serde_json::Deserializer::from_str(text);
    let read = Value(&mut walk).deserialize(&mut document).and_then(|()| document.end());
    read.map_err(|e| JsonFault {
        pointer: pointer(&walk.path),
        kind: walk.fault.take().unwrap_or_else(|| syntax(&e)),
    })
}

fn syntax(error: &serde_json::Error) -> JsonFaultKind {
    let (line, column) = (error.line(), error.column());
    let said = error.to_string();
    let place = format!(" at line {line} column {column}");
    let message = said.strip_suffix(&place).unwrap_or(&said).to_owned();
    JsonFaultKind::Syntax { line, column, message }
}

/// Where the reader stands. After a fault the path is left as it was, and so names the place.
struct Walk<'de> {
    path: Vec<Step<'de>>,
    fault: Option<JsonFaultKind>,
    depth: usize,
}

enum Step<'de> {
    Key(Cow<'de, str>),
    Index(usize),
}

fn pointer(path: &[Step<'_>]) -> String {
    let mut out = String::new();
    for step in path {
        out.push('/');
        match step {
            Step::Key(key) => out.push_str(&key.replace('~', "~0").replace('/', "~1")),
            Step::Index(index) => out.push_str(&index.to_string()),
        }
    }
    out
}

impl Walk<'_> {
    fn refuse<E: serde::de::Error>(&mut self, kind: JsonFaultKind) -> E {
        self.fault = Some(kind);
        E::custom("refused")
    }

    fn text<E: serde::de::Error>(&mut self, text: &str) -> Result<(), E> {
        if text.contains('\0') { Err(self.refuse(JsonFaultKind::Nul)) } else { Ok(()) }
    }

    /// Called on entering an array or object; the path is one step long for each one around it.
    fn enter<E: serde::de::Error>(&mut self) -> Result<(), E> {
        if self.path.len() >= self.depth { Err(self.refuse(JsonFaultKind::TooDeep)) } else { Ok(()) }
    }
}

/// One value of any type, at the place where the walk stands.
struct Value<'w, 'de>(&'w mut Walk<'de>);

/// One value a step further down.
struct Child<'w, 'de>(&'w mut Walk<'de>, Step<'de>);

impl<'de> DeserializeSeed<'de> for Child<'_, 'de> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, from: D) -> Result<(), D::Error> {
        let Child(walk, step) = self;
        walk.path.push(step);
        Value(walk).deserialize(from)?;
        walk.path.pop();
        Ok(())
    }
}

impl<'de> DeserializeSeed<'de> for Value<'_, 'de> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, from: D) -> Result<(), D::Error> {
        from.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for Value<'_, 'de> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a JSON value")
    }

    fn visit_unit<E>(self) -> Result<(), E> {
        Ok(())
    }

    fn visit_bool<E>(self, _: bool) -> Result<(), E> {
        Ok(())
    }

    fn visit_i64<E>(self, _: i64) -> Result<(), E> {
        Ok(())
    }

    fn visit_u64<E>(self, _: u64) -> Result<(), E> {
        Ok(())
    }

    fn visit_f64<E: serde::de::Error>(self, number: f64) -> Result<(), E> {
        if number.is_finite() { Ok(()) } else { Err(E::custom("number out of range")) }
    }

    fn visit_str<E: serde::de::Error>(self, text: &str) -> Result<(), E> {
        self.0.text(text)
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<(), A::Error> {
        self.0.enter()?;
        let mut index = 0;
        while seq.next_element_seed(Child(&mut *self.0, Step::Index(index)))?.is_some() {
            index += 1;
        }
        Ok(())
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<(), A::Error> {
        self.0.enter()?;
        let mut seen = Keys::default();
        while let Some(key) = map.next_key_seed(Key)? {
            self.0.text::<A::Error>(&key)?;
            if !seen.insert(key.clone()) {
                self.0.path.push(Step::Key(key.clone()));
                return Err(self.0.refuse(JsonFaultKind::DuplicateKey(key.into_owned())));
            }
            map.next_value_seed(Child(&mut *self.0, Step::Key(key)))?;
        }
        Ok(())
    }
}

/// A key, borrowed from the document unless it holds an escape.
struct Key;

impl<'de> DeserializeSeed<'de> for Key {
    type Value = Cow<'de, str>;

    fn deserialize<D: Deserializer<'de>>(self, from: D) -> Result<Self::Value, D::Error> {
        from.deserialize_str(self)
    }
}

impl<'de> Visitor<'de> for Key {
    type Value = Cow<'de, str>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a key")
    }

    fn visit_borrowed_str<E>(self, key: &'de str) -> Result<Self::Value, E> {
        Ok(Cow::Borrowed(key))
    }

    fn visit_str<E>(self, key: &str) -> Result<Self::Value, E> {
        Ok(Cow::Owned(key.to_owned()))
    }
}

/// The keys of one object. Most have few, which need no hashing.
#[derive(Default)]
struct Keys<'de> {
    few: Vec<Cow<'de, str>>,
    many: HashSet<Cow<'de, str>>,
}

const FEW: usize = 16;

impl<'de> Keys<'de> {
    /// False when it was there already.
    fn insert(&mut self, key: Cow<'de, str>) -> bool {
        if self.few.contains(&key) {
            return false;
        }
        if self.few.len() < FEW {
            self.few.push(key);
            return true;
        }
        self.many.insert(key)
    }
}

#[cfg(test)]
#[path = "json_tests.rs"]
mod tests;
