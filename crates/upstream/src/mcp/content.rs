//! What a server says of its tools, and what a call gave, made into what a model can be told. All of it is somebody
//! else's text: it is bounded, and what is no text becomes a note.

use serde_json::{Map, Value, json};

/// A server that has more is not believed.
pub(super) const MAX_TOOLS: usize = 512;
const MAX_NAME_CHARS: usize = 256;
const MAX_DESCRIPTION_CHARS: usize = 4_000;
const MAX_SCHEMA_BYTES: usize = 64 * 1024;
/// Of a result's text; far more than a model is shown.
const MAX_TEXT_CHARS: usize = 1_000_000;

#[derive(Debug, Clone, PartialEq)]
pub struct Tool {
    /// As its server knows it.
    pub name: String,
    pub description: String,
    /// JSON Schema of its arguments, an object.
    pub schema: Value,
    /// It says of itself that it changes nothing.
    pub read_only: bool,
}

/// What a call gave: a text or JSON, and whether it is an error.
#[derive(Debug, Clone, PartialEq)]
pub struct Given {
    pub value: Value,
    pub failed: bool,
}

/// A tool, unless it cannot be one.
pub(super) fn tool(listed: &Value) -> Option<Tool> {
    let name = listed["name"].as_str().filter(|name| {
        !name.is_empty() && name.chars().count() <= MAX_NAME_CHARS && !name.chars().any(char::is_control)
    })?;
    let text = |field: &str| listed[field].as_str().filter(|text| !text.trim().is_empty());
    let description = text("description").or_else(|| text("title")).unwrap_or_default();
    Some(Tool {
        name: name.to_owned(),
        description: description.chars().take(MAX_DESCRIPTION_CHARS).collect(),
        schema: schema(&listed["inputSchema"])?,
        read_only: listed["annotations"]["readOnlyHint"] == true,
    })
}

/// A schema that every provider takes: an object's, without alternatives at its top. What is lost the server checks.
pub(crate) fn schema(given: &Value) -> Option<Value> {
    let mut object = match given {
        Value::Null => Map::new(),
        Value::Object(object) => object.clone(),
        _ => return None,
    };
    if object.get("type").is_some_and(|kind| kind != "object") {
        return None;
    }
    object.insert("type".into(), "object".into());
    object.entry("properties").or_insert_with(|| json!({}));
    for word in ["$schema", "$id", "anyOf", "oneOf", "allOf", "not", "if", "then", "else"] {
        object.remove(word);
    }
    let schema = Value::Object(object);
    (schema.to_string().len() <= MAX_SCHEMA_BYTES).then_some(schema)
}

/// What a call is to be made with once more, where its server wants nothing but that: its own state back, and a person's
/// word, which there is none to give here.
pub(super) fn once_more(result: &Value) -> Option<Map<String, Value>> {
    if result["resultType"] != "input_required" {
        return None;
    }
    let asks = result["inputRequests"].as_object().cloned().unwrap_or_default();
    if asks.values().any(|ask| ask["method"] != "elicitation/create") {
        return None;
    }
    let state = result.get("requestState").filter(|state| state.is_string());
    let mut more = Map::new();
    more.extend(state.map(|state| ("requestState".to_owned(), state.clone())));
    if !asks.is_empty() {
        let declined = asks.into_iter().map(|(name, _)| (name, json!({ "action": "decline" })));
        more.insert("inputResponses".into(), declined.collect());
    }
    (!more.is_empty()).then_some(more)
}

/// The result of a call.
pub(super) fn given(result: &Value) -> Result<Given, String> {
    if result["resultType"] == "input_required" {
        return Err("the tool asks for more input from a person, which cannot be given here".to_owned());
    }
    let blocks = result["content"].as_array().map(Vec::as_slice).unwrap_or_default();
    let structured = &result["structuredContent"];
    let failed = result["isError"] == true;
    if !result.is_object() || (result.get("content").is_none() && structured.is_null()) {
        return Err("the tool server's answer is no result of a tool".to_owned());
    }
    // The same as the text beside it, by the protocol.
    let value = match structured {
        Value::Object(_) if !failed && structured.to_string().len() <= MAX_TEXT_CHARS => structured.clone(),
        _ => Value::String(text(blocks)),
    };
    Ok(Given { value, failed })
}

fn text(blocks: &[Value]) -> String {
    let mut left = MAX_TEXT_CHARS;
    let mut parts = Vec::new();
    for block in blocks {
        let part: String = readable(block).chars().take(left).collect();
        left -= part.chars().count();
        parts.push(part);
        if left == 0 {
            break;
        }
    }
    if parts.is_empty() { "(no output)".to_owned() } else { parts.join("\n") }
}

fn readable(block: &Value) -> String {
    let field = |value: &Value, name: &str| value[name].as_str().unwrap_or_default().to_owned();
    let note = |kind: &str, mime: &str, data: &str| {
        let bytes = data.trim_end_matches('=').len() * 3 / 4;
        format!("[{kind} {mime}, {bytes} bytes, not shown]")
    };
    match block["type"].as_str() {
        Some("text") => field(block, "text"),
        Some(kind @ ("image" | "audio")) => note(kind, &field(block, "mimeType"), &field(block, "data")),
        Some("resource") => {
            let inside = &block["resource"];
            let uri = field(inside, "uri");
            match inside["text"].as_str() {
                Some(text) => format!("[{uri}]\n{text}"),
                None => format!("{} {uri}", note("file", &field(inside, "mimeType"), &field(inside, "blob"))),
            }
        }
        Some("resource_link") => {
            let about = [field(block, "name"), field(block, "uri"), field(block, "description")];
            let about: Vec<String> = about.into_iter().filter(|part| !part.is_empty()).collect();
            format!("[link: {}]", about.join(", "))
        }
        _ => block.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn results_become_texts_notes_and_json() {
        let of = |result: Value| given(&result).map(|given| (given.value, given.failed));
        let content = json!([
            { "type": "text", "text": "one" },
            { "type": "image", "mimeType": "image/png", "data": "AAAA" },
            { "type": "audio", "mimeType": "audio/wav", "data": "AAA=" },
            { "type": "resource", "resource": { "uri": "a://b", "text": "inside" } },
            { "type": "resource", "resource": { "uri": "a://c", "mimeType": "x/y", "blob": "AAAA" } },
            { "type": "resource_link", "name": "n", "uri": "a://d" },
            { "type": "later", "x": 1 },
        ]);
        let text = "one\n[image image/png, 3 bytes, not shown]\n[audio audio/wav, 2 bytes, not shown]\n[a://b]\ninside\n\
                    [file x/y, 3 bytes, not shown] a://c\n[link: n, a://d]\n{\"type\":\"later\",\"x\":1}";
        assert_eq!(of(json!({ "content": content })), Ok((text.into(), false)));
        let failed = json!({ "content": [{ "type": "text", "text": "no" }], "isError": true, "structuredContent": {} });
        assert_eq!(of(failed), Ok(("no".into(), true)));
        let structured = json!({ "content": [], "structuredContent": { "a": [1] } });
        assert_eq!(of(structured), Ok((json!({ "a": [1] }), false)));
        assert_eq!(of(json!({ "content": [] })), Ok(("(no output)".into(), false)));
        for bad in [json!(null), json!([]), json!("x"), json!({}), json!({ "resultType": "input_required" })]
        {
            assert!(of(bad.clone()).is_err(), "{bad}");
        }
    }

    #[test]
    fn tools_are_bounded_and_odd_ones_left_out() {
        let long = "d".repeat(9_000);
        let one =
            tool(&json!({ "name": "a", "description": long, "inputSchema": { "oneOf": [], "$schema": "x",
            "properties": { "p": { "type": "string" } } }, "annotations": { "readOnlyHint": true } }));
        let one = one.unwrap();
        assert_eq!(one.description.len(), 4_000);
        assert_eq!(one.schema, json!({ "type": "object", "properties": { "p": { "type": "string" } } }));
        assert!(one.read_only);
        assert_eq!(
            tool(&json!({ "name": "a" })).unwrap().schema,
            json!({ "type": "object", "properties": {} })
        );
        for bad in [
            json!(1),
            json!({}),
            json!({ "name": "" }),
            json!({ "name": 1 }),
            json!({ "name": "a\u{7}" }),
            json!({ "name": "n".repeat(257) }),
            json!({ "name": "a", "inputSchema": "x" }),
            json!({ "name": "a", "inputSchema": { "type": "string" } }),
            json!({ "name": "a", "inputSchema": { "x": "y".repeat(70_000) } }),
        ] {
            assert_eq!(tool(&bad), None, "{bad}");
        }
    }
}
