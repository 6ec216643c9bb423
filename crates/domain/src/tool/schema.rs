//! Whether a tool's arguments fit its JSON Schema, as far as models get it wrong: types, what is required, what is
//! not known, values, alternatives and bounds. Other words of a schema are left to the tool.

use serde_json::Value;

/// Schemas within schemas that are looked into, references included.
const MAX_DEPTH: usize = 16;

/// `at` is the place within the arguments, empty at the top.
pub(super) fn check(schema: &Value, value: &Value, at: &str) -> Result<(), String> {
    Checker { root: schema }.within(schema, value, at, 0)
}

struct Checker<'s> {
    root: &'s Value,
}

impl Checker<'_> {
    fn within(&self, schema: &Value, value: &Value, at: &str, depth: usize) -> Result<(), String> {
        if depth > MAX_DEPTH {
            return Ok(());
        }
        if let Some(named) = schema.get("$ref").and_then(Value::as_str) {
            let target = named.strip_prefix('#').and_then(|path| self.root.pointer(path));
            target.map_or(Ok(()), |target| self.within(target, value, at, depth + 1))?;
        }
        of_kind(schema, value, at)?;
        bounded(schema, value, at)?;
        self.alternatives(schema, value, at, depth)?;
        self.members(schema, value, at, depth)?;
        if let (Value::Array(items), Some(schema @ Value::Object(_))) = (value, schema.get("items")) {
            for (index, item) in items.iter().enumerate() {
                self.within(schema, item, &inside(at, &index.to_string()), depth + 1)?;
            }
        }
        Ok(())
    }

    fn alternatives(&self, schema: &Value, value: &Value, at: &str, depth: usize) -> Result<(), String> {
        let list = |word: &str| schema.get(word).and_then(Value::as_array).into_iter().flatten();
        for all in list("allOf") {
            self.within(all, value, at, depth + 1)?;
        }
        for word in ["anyOf", "oneOf"] {
            let mut first = None;
            let fits = list(word).any(|one| match self.within(one, value, at, depth + 1) {
                Ok(()) => true,
                Err(reason) => {
                    first.get_or_insert(reason);
                    false
                }
            });
            if let (false, Some(reason)) = (fits, first) {
                return Err(format!("{} fits none of its alternatives: {reason}", place(at)));
            }
        }
        Ok(())
    }

    fn members(&self, schema: &Value, value: &Value, at: &str, depth: usize) -> Result<(), String> {
        let Value::Object(fields) = value else { return Ok(()) };
        for name in schema.get("required").and_then(Value::as_array).into_iter().flatten() {
            if let Some(name) = name.as_str().filter(|name| !fields.contains_key(*name)) {
                return Err(format!("{} is missing", inside(at, name)));
            }
        }
        let known = schema.get("properties").and_then(Value::as_object);
        let patterns = schema.get("patternProperties").is_some();
        for (name, field) in fields {
            match (known.and_then(|known| known.get(name)), schema.get("additionalProperties")) {
                (Some(schema), _) => self.within(schema, field, &inside(at, name), depth + 1)?,
                (None, Some(Value::Bool(false))) if !patterns => {
                    return Err(format!("{} is not known", inside(at, name)));
                }
                (None, Some(schema @ Value::Object(_))) if !patterns => {
                    self.within(schema, field, &inside(at, name), depth + 1)?;
                }
                _ => {}
            }
        }
        Ok(())
    }
}

/// Type, enum and const.
fn of_kind(schema: &Value, value: &Value, at: &str) -> Result<(), String> {
    let types: Vec<&str> = match schema.get("type") {
        Some(Value::String(one)) => vec![one.as_str()],
        Some(Value::Array(many)) => many.iter().filter_map(Value::as_str).collect(),
        _ => Vec::new(),
    };
    if !types.is_empty() && !types.iter().any(|kind| is(kind, value)) {
        return Err(format!("{} must be {}", place(at), types.join(" or ")));
    }
    if let Some(Value::Array(words)) = schema.get("enum")
        && !words.contains(value)
    {
        let words: Vec<String> = words.iter().map(Value::to_string).collect();
        return Err(format!("{} must be one of {}", place(at), words.join(", ")));
    }
    match schema.get("const") {
        Some(only) if only != value => Err(format!("{} must be {only}", place(at))),
        _ => Ok(()),
    }
}

fn bounded(schema: &Value, value: &Value, at: &str) -> Result<(), String> {
    let bound = |word: &str| schema.get(word).and_then(Value::as_f64);
    let (size, least, most, unit) = match value {
        Value::Number(number) => (number.as_f64(), "minimum", "maximum", ""),
        Value::String(text) => {
            (Some(text.chars().count() as f64), "minLength", "maxLength", " characters long")
        }
        Value::Array(items) => (Some(items.len() as f64), "minItems", "maxItems", " items long"),
        _ => return Ok(()),
    };
    let Some(size) = size else { return Ok(()) };
    match (bound(least), bound(most)) {
        (Some(least), _) if size < least => Err(format!("{} must be at least {least}{unit}", place(at))),
        (_, Some(most)) if size > most => Err(format!("{} must be at most {most}{unit}", place(at))),
        _ => Ok(()),
    }
}

fn place(at: &str) -> &str {
    if at.is_empty() { "they" } else { at }
}

fn inside(at: &str, name: &str) -> String {
    let name: String = name.chars().take(64).collect();
    if at.is_empty() { name } else { format!("{at}.{name}") }
}

fn is(kind: &str, value: &Value) -> bool {
    match kind {
        "string" => value.is_string(),
        "number" => value.is_number(),
        "integer" => value.is_i64() || value.is_u64() || value.as_f64().is_some_and(|n| n.fract() == 0.0),
        "boolean" => value.is_boolean(),
        "object" => value.is_object(),
        "array" => value.is_array(),
        "null" => value.is_null(),
        _ => true,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn what_does_not_fit_is_named() {
        let schema = json!({ "type": "object", "$defs": { "size": { "type": "integer", "minimum": 1, "maximum": 9 } },
            "additionalProperties": { "type": "string" },
            "properties": {
                "size": { "$ref": "#/$defs/size" },
                "loop": { "$ref": "#/properties/loop" },
                "gone": { "$ref": "#/$defs/none" },
                "far": { "$ref": "https://example.org/schema" },
                "id": { "anyOf": [{ "type": "string", "minLength": 2 }, { "type": "null" }] },
                "one": { "oneOf": [{ "const": 1 }, { "const": 2 }] },
                "both": { "allOf": [{ "type": "number" }, { "maximum": 5 }] },
                "list": { "type": "array", "maxItems": 2, "items": { "type": "string", "maxLength": 3 } },
                "any": true,
            } });
        for good in [
            json!({ "size": 9, "loop": 1, "gone": 1, "far": [], "id": null, "one": 2, "both": 5, "list": ["abc"] }),
            json!({ "id": "ab", "any": {}, "more": "text", "size": 3.0 }),
        ] {
            assert_eq!(check(&schema, &good, ""), Ok(()), "{good}");
        }
        for (bad, words) in [
            (json!([]), "they must be object"),
            (json!({ "size": 0 }), "size must be at least 1"),
            (json!({ "size": 10 }), "size must be at most 9"),
            (json!({ "size": 1.5 }), "size must be integer"),
            (json!({ "id": 1 }), "id fits none of its alternatives: id must be string"),
            (json!({ "id": "a" }), "id must be at least 2 characters long"),
            (json!({ "one": 3 }), "one fits none of its alternatives: one must be 1"),
            (json!({ "both": 6 }), "both must be at most 5"),
            (json!({ "list": ["a", "b", "c"] }), "list must be at most 2 items long"),
            (json!({ "list": ["abcd"] }), "list.0 must be at most 3 characters long"),
            (json!({ "more": 1 }), "more must be string"),
        ] {
            let reason = check(&schema, &bad, "").unwrap_err();
            assert!(reason.contains(words), "{bad}: {reason}");
        }
    }
}
