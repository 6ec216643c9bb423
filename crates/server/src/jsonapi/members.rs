//! One JSON object as its members, in order, each value still the exact text that was sent.

use std::fmt;

use serde::Deserialize;
use serde::de::{Deserializer, MapAccess, Visitor};
use serde_json::value::RawValue;

pub(super) struct Members<'a>(Vec<(String, &'a str)>);

impl<'a> Members<'a> {
    /// `None` when the text is not a JSON object.
    pub(super) fn parse(text: &'a str) -> Option<Self> {
        serde_json::from_str(text).ok()
    }

    pub(super) fn get(&self, name: &str) -> Option<&'a str> {
        self.0.iter().find(|(known, _)| known == name).map(|(_, value)| *value)
    }

    /// Members whose name begins with `@` are never ours to read (JSON:API 1.1, "@-Members").
    pub(super) fn iter(&self) -> impl Iterator<Item = (&str, &'a str)> {
        self.0.iter().filter(|(name, _)| !name.starts_with('@')).map(|(name, value)| (name.as_str(), *value))
    }
}

impl<'de: 'a, 'a> Deserialize<'de> for Members<'a> {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        struct Read;
        impl<'de> Visitor<'de> for Read {
            type Value = Vec<(String, &'de str)>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an object")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
                let mut members = Vec::new();
                while let Some((name, value)) = map.next_entry::<String, &'de RawValue>()? {
                    members.push((name, value.get()));
                }
                Ok(members)
            }
        }
        from.deserialize_map(Read).map(Self)
    }
}

/// The elements of a JSON array, each as the exact text that was sent; `None` when it is not an array.
pub(super) fn elements(text: &str) -> Option<Vec<&str>> {
    let found: Vec<&RawValue> = serde_json::from_str(text).ok()?;
    Some(found.into_iter().map(RawValue::get).collect())
}

/// A JSON string's text; `None` when it is not a string.
pub(super) fn string(text: &str) -> Option<String> {
    serde_json::from_str(text).ok()
}

/// The pointer to a member of what `parent` points at.
pub(super) fn child(parent: &str, name: &str) -> String {
    format!("{parent}/{}", name.replace('~', "~0").replace('/', "~1"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn members_keep_order_and_text() {
        let members = Members::parse(r#" { "b" : 1.50, "@x": 1, "a\n": { "z":1, "y" :2e0 } } "#).unwrap();
        let found: Vec<_> = members.iter().collect();
        assert_eq!(found, [("b", "1.50"), ("a\n", r#"{ "z":1, "y" :2e0 }"#)]);
        assert_eq!(members.get("b"), Some("1.50"));
        for bad in ["", "[]", "null", "\"{}\"", "1", "{", "{}{}"] {
            assert!(Members::parse(bad).is_none(), "{bad}");
        }
    }

    #[test]
    fn pointers_escape() {
        assert_eq!(child("/data", "a/b~c"), "/data/a~1b~0c");
    }
}
