//! What a client's request must be for a provider that speaks another dialect, or for the built-in model. One that speaks
//! its own judges by itself.

use domain::model::{Dialect, Prompt};
use serde_json::Value;

use crate::problem::Problem;

/// Refuses what would be lost or bent on its way into other words.
pub fn check(dialect: Dialect, body: &Value, prompt: &Prompt) -> Result<(), Problem> {
    let (roles, lengths): (&[&str], &[&str]) = match dialect {
        Dialect::Openai => {
            (&["system", "developer", "user", "assistant", "tool"], &["max_tokens", "max_completion_tokens"])
        }
        Dialect::Anthropic => (&["user", "assistant"], &["max_tokens"]),
    };
    let mut open = Vec::new();
    for (at, message) in body["messages"].as_array().into_iter().flatten().enumerate() {
        let at = format!("/messages/{at}");
        check_message(roles, &at, message)?;
        match dialect {
            Dialect::Openai => check_openai(&at, message, &mut open)?,
            Dialect::Anthropic => check_anthropic(&at, message, &mut open)?,
        }
    }
    for (at, tool) in list(body, "tools")?.iter().enumerate() {
        check_tool(dialect, &format!("/tools/{at}"), tool)?;
    }
    for name in lengths {
        let fits = body[name].is_null() || body[name].as_u64().is_some_and(|tokens| tokens > 0);
        check_that(fits, &format!("/{name}"), || format!("{name} must be a whole number of at least 1."))?;
    }
    for name in ["temperature", "top_p"] {
        let fits = body[name].is_null() || body[name].is_number();
        check_that(fits, &format!("/{name}"), || format!("{name} must be a number."))?;
    }
    match dialect {
        Dialect::Openai => check_openais(body)?,
        Dialect::Anthropic => check_anthropics(body)?,
    }
    check_that(!prompt.messages.is_empty(), "/messages", || {
        "messages has nothing that this model could answer: send a message of a user.".to_owned()
    })
}

/// What only OpenAI's requests have beside their messages.
fn check_openais(body: &Value) -> Result<(), Problem> {
    let one = body["n"].is_null() || body["n"] == 1;
    check_that(one, "/n", || "n must be 1: this model gives one choice.".to_owned())?;
    let stop = body["stop"].is_null() || body["stop"].is_string() || is_list(&body["stop"], Value::is_string);
    check_that(stop, "/stop", || "stop must be a text or a list of texts.".to_owned())?;
    for (name, now) in [("functions", "tools"), ("function_call", "tool_choice")] {
        let fits = body[name].is_null();
        check_that(fits, &format!("/{name}"), || format!("This model does not take {name}: send {now}."))?;
    }
    Ok(())
}

/// What only Anthropic's requests have beside their messages.
fn check_anthropics(body: &Value) -> Result<(), Problem> {
    let (system, stop) = (&body["system"], &body["stop_sequences"]);
    let fits = system.is_null() || system.is_string() || is_list(system, Value::is_object);
    check_that(fits, "/system", || "system must be a text or a list of parts.".to_owned())?;
    let fits = stop.is_null() || is_list(stop, Value::is_string);
    check_that(fits, "/stop_sequences", || "stop_sequences must be a list of texts.".to_owned())
}

fn is_list(value: &Value, is_one: fn(&Value) -> bool) -> bool {
    value.as_array().is_some_and(|list| list.iter().all(is_one))
}

fn check_message(roles: &[&str], at: &str, message: &Value) -> Result<(), Problem> {
    check_that(message.is_object(), at, || "A message must be an object.".to_owned())?;
    let known = message["role"].as_str().is_some_and(|role| roles.contains(&role));
    check_that(known, &format!("{at}/role"), || format!("role must be one of {}.", roles.join(", ")))?;
    let content = &message["content"];
    let fits = match content {
        Value::String(_) => true,
        Value::Array(parts) => parts.iter().all(Value::is_object),
        Value::Null => message["role"] == "assistant",
        _ => false,
    };
    check_that(fits, &format!("{at}/content"), || "content must be a text or a list of parts.".to_owned())
}

/// `open` are the calls whose answers may come next, in either dialect.
fn check_openai(at: &str, message: &Value, open: &mut Vec<String>) -> Result<(), Problem> {
    check_that(message["function_call"].is_null(), &format!("{at}/function_call"), || {
        "This model does not take function_call: send tool_calls.".to_owned()
    })?;
    if message["role"] == "tool" {
        return check_answer(&format!("{at}/tool_call_id"), &message["tool_call_id"], open);
    }
    *open = ids(&message["tool_calls"]).collect();
    Ok(())
}

fn check_anthropic(at: &str, message: &Value, open: &mut Vec<String>) -> Result<(), Problem> {
    let blocks = message["content"].as_array().map(Vec::as_slice).unwrap_or_default();
    if message["role"] == "assistant" {
        let calls = blocks.iter().filter(|block| block["type"] == "tool_use").cloned().collect();
        *open = ids(&calls).collect();
        return Ok(());
    }
    for (n, block) in blocks.iter().enumerate() {
        let at = format!("{at}/content/{n}");
        match block["type"].as_str() {
            Some("tool_result") => check_answer(&format!("{at}/tool_use_id"), &block["tool_use_id"], open)?,
            Some("document") => check_document(&format!("{at}/source"), &block["source"])?,
            _ => {}
        }
    }
    // What was said in between parts a call from its answer.
    if blocks.is_empty() || blocks.iter().any(|block| block["type"] != "tool_result") {
        open.clear();
    }
    Ok(())
}

fn ids(calls: &Value) -> impl Iterator<Item = String> {
    calls.as_array().into_iter().flatten().map(|call| call["id"].as_str().unwrap_or_default().to_owned())
}

fn check_answer(at: &str, id: &Value, open: &mut Vec<String>) -> Result<(), Problem> {
    let call = open.iter().position(|call| call == id.as_str().unwrap_or_default());
    check_that(call.is_some(), at, || "The message before it has no call with this id.".to_owned())?;
    call.map(|call| open.remove(call));
    Ok(())
}

/// One that is elsewhere is not fetched.
fn check_document(at: &str, source: &Value) -> Result<(), Problem> {
    let fits = match source["type"].as_str() {
        Some("base64") => source["media_type"] == "application/pdf" && source["data"].is_string(),
        Some("text" | "content") => true,
        _ => false,
    };
    check_that(fits, at, || "This model takes documents that are text, or a PDF as base64.".to_owned())
}

fn check_tool(dialect: Dialect, at: &str, tool: &Value) -> Result<(), Problem> {
    let (named, own) = match dialect {
        Dialect::Openai => (&tool["function"], tool["type"] == "function"),
        Dialect::Anthropic => (tool, tool["type"].is_null() || tool["type"] == "custom"),
    };
    check_that(own && named["name"].is_string(), at, || {
        "This model takes tools that the client runs alone, each with its name.".to_owned()
    })
}

fn list<'a>(body: &'a Value, name: &str) -> Result<&'a [Value], Problem> {
    match &body[name] {
        Value::Null => Ok(&[]),
        Value::Array(list) => Ok(list),
        _ => Err(Problem::invalid_value(&format!("/{name}"), format!("{name} must be a list."))),
    }
}

fn check_that(fits: bool, at: &str, detail: impl FnOnce() -> String) -> Result<(), Problem> {
    if fits { Ok(()) } else { Err(Problem::invalid_value(at, detail())) }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::super::{anthropic, openai};
    use super::*;

    fn checked(dialect: Dialect, mut body: Value) -> Result<(), Problem> {
        body["model"] = json!("m");
        let read = match dialect {
            Dialect::Openai => openai::read(body.clone()),
            Dialect::Anthropic => anthropic::read(body.clone(), None),
        };
        check(dialect, &body, &read.unwrap().ask.prompt)
    }

    #[test]
    fn what_would_be_lost_is_refused_by_its_place() {
        let (openai, anthropic) = (Dialect::Openai, Dialect::Anthropic);
        let hi = json!([{ "role": "user", "content": "hi" }]);
        let document =
            json!({ "type": "document", "source": { "type": "url", "url": "https://a.example/" } });
        let came = json!({ "type": "tool_result", "tool_use_id": "a", "content": "x" });
        for (dialect, name, value, at) in [
            (openai, "messages", json!([{ "role": "user", "content": 5 }]), "/messages/0/content"),
            (openai, "messages", json!([{ "role": "user", "content": null }]), "/messages/0/content"),
            (openai, "messages", json!([{ "role": "user", "content": ["a"] }]), "/messages/0/content"),
            (openai, "messages", json!([hi[0], 5]), "/messages/1"),
            (openai, "messages", json!([{ "role": "usr", "content": "a" }]), "/messages/0/role"),
            (openai, "messages", json!([{ "content": "a" }]), "/messages/0/role"),
            (anthropic, "messages", json!([{ "role": "system", "content": "a" }]), "/messages/0/role"),
            (
                openai,
                "messages",
                json!([{ "role": "function", "name": "f", "content": "a" }]),
                "/messages/0/role",
            ),
            (
                openai,
                "messages",
                json!([hi[0], { "role": "assistant", "function_call": { "name": "f" } }]),
                "/messages/1/function_call",
            ),
            (
                openai,
                "messages",
                json!([hi[0], { "role": "tool", "tool_call_id": "a", "content": "x" }]),
                "/messages/1/tool_call_id",
            ),
            (openai, "messages", json!([{ "role": "system", "content": "Be brief." }]), "/messages"),
            (openai, "messages", json!([{ "role": "user", "content": " " }]), "/messages"),
            (openai, "functions", json!([]), "/functions"),
            (openai, "function_call", json!("auto"), "/function_call"),
            (openai, "stop", json!(5), "/stop"),
            (openai, "stop", json!(["a", 5]), "/stop"),
            (anthropic, "stop_sequences", json!("a"), "/stop_sequences"),
            (anthropic, "system", json!(5), "/system"),
            (anthropic, "system", json!(["a"]), "/system"),
            (
                anthropic,
                "messages",
                json!([{ "role": "user", "content": [document] }]),
                "/messages/0/content/0/source",
            ),
            (
                anthropic,
                "messages",
                json!([{ "role": "user", "content": [hi[0], came] }]),
                "/messages/0/content/1/tool_use_id",
            ),
            (openai, "n", json!(2), "/n"),
            (openai, "max_tokens", json!(-5), "/max_tokens"),
            (openai, "max_completion_tokens", json!("x"), "/max_completion_tokens"),
            (anthropic, "max_tokens", json!(0), "/max_tokens"),
            (openai, "temperature", json!("hot"), "/temperature"),
            (anthropic, "top_p", json!([]), "/top_p"),
            (openai, "tools", json!(5), "/tools"),
            (openai, "tools", json!([{ "type": "web_search" }]), "/tools/0"),
            (
                anthropic,
                "tools",
                json!([{ "type": "web_search_20250305", "name": "web_search" }]),
                "/tools/0",
            ),
        ] {
            let mut body = json!({ "messages": hi, "n": 1 });
            assert!(checked(dialect, body.clone()).is_ok());
            body[name] = value;
            let source = checked(dialect, body.clone()).unwrap_err().source;
            assert_eq!(serde_json::to_value(source).unwrap()["pointer"], at, "{body}");
        }
    }

    #[test]
    fn what_goes_into_other_words_is_taken() {
        let tool = json!({ "type": "function", "function": { "name": "f" } });
        let calls =
            json!([{ "id": "a", "function": { "name": "f" } }, { "id": "b", "function": { "name": "f" } }]);
        let answer = |id: &str| json!({ "role": "tool", "tool_call_id": id, "content": [{ "type": "text", "text": "t" }] });
        let messages = json!([{ "role": "developer", "content": "d" },
            { "role": "assistant", "content": null, "tool_calls": calls }, answer("b"), answer("a")]);
        let openai = json!({ "messages": messages, "tools": [tool], "max_tokens": 1, "temperature": 0.5, "stop": "a" });
        assert!(checked(Dialect::Openai, openai).is_ok());
        let call = |id: &str| json!({ "type": "tool_use", "id": id, "name": "f", "input": {} });
        let came =
            |id: &str| json!({ "role": "user", "content": [{ "type": "tool_result", "tool_use_id": id }] });
        let anthropic = json!({ "messages": [{ "role": "user", "content": "hi" },
            { "role": "assistant", "content": [call("a"), call("b")] }, came("a"), came("b")], "max_tokens": 9,
            "system": [{ "type": "text", "text": "s" }], "stop_sequences": ["a"],
            "tools": [{ "name": "f" }, { "type": "custom", "name": "g" }] });
        assert!(checked(Dialect::Anthropic, anthropic).is_ok());
    }
}
