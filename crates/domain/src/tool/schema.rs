//! Whether a tool's arguments fit its JSON Schema, as far as models get it wrong: types, what is required, what is
//! not known, the values of an enum. Other words of a schema are left to the tool.

use serde_json::Value;

/// Schemas within schemas that are looked into.
const MAX_DEPTH: usize = 16;

/// `at` is the place within the arguments, empty at the top.
pub(super) fn check(schema: &Value, value: &Value, at: &str) -> Result<(), String> {
    within(schema, value, at, 0)
}

fn within(schema: &Value, value: &Value, at: &str, depth: usize) -> Result<(), String> {
    if depth > MAX_DEPTH {
        return Ok(());
    }
    let place = if at.is_empty() { "they".to_owned() } else { at.to_owned() };
    if let Some(types) = schema.get("type") {
        let types: Vec<&str> = match types {
            Value::String(one) => vec![one.as_str()],
            Value::Array(many) => many.iter().filter_map(Value::as_str).collect(),
            _ => Vec::new(),
        };
        if !types.is_empty() && !types.iter().any(|kind| is(kind, value)) {
            return Err(format!("{place} must be {}", types.join(" or ")));
        }
    }
    if let Some(Value::Array(words)) = schema.get("enum")
        && !words.contains(value)
    {
        let words: Vec<String> = words.iter().map(Value::to_string).collect();
        return Err(format!("{place} must be one of {}", words.join(", ")));
    }
    let known = schema.get("properties").and_then(Value::as_object);
    if let Value::Object(fields) = value {
        for name in schema.get("required").and_then(Value::as_array).into_iter().flatten() {
            if let Some(name) = name.as_str().filter(|name| !fields.contains_key(*name)) {
                return Err(format!("{} is missing", inside(at, name)));
            }
        }
        for (name, field) in fields {
            match known.and_then(|known| known.get(name)) {
                Some(schema) => within(schema, field, &inside(at, name), depth + 1)?,
                None if schema.get("additionalProperties") == Some(&Value::Bool(false)) => {
                    return Err(format!("{} is not known", inside(at, name)));
                }
                None => {}
            }
        }
    }
    if let (Value::Array(items), Some(schema @ Value::Object(_))) = (value, schema.get("items")) {
        for (index, item) in items.iter().enumerate() {
            within(schema, item, &inside(at, &index.to_string()), depth + 1)?;
        }
    }
    Ok(())
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
