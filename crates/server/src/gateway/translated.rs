//! What a client's request must be for a provider that speaks another dialect, or for the built-in model. One that speaks
//! its own judges by itself.

use domain::model::Dialect;
use serde_json::Value;

use crate::problem::Problem;

/// Refuses what would be lost or bent on its way into other words.
pub fn check(dialect: Dialect, body: &Value) -> Result<(), Problem> {
    let (roles, lengths): (&[&str], &[&str]) = match dialect {
        Dialect::Openai => (
            &["system", "developer", "user", "assistant", "tool", "function"],
            &["max_tokens", "max_completion_tokens"],
        ),
        Dialect::Anthropic => (&["user", "assistant"], &["max_tokens"]),
    };
    for (at, message) in body["messages"].as_array().into_iter().flatten().enumerate() {
        check_message(roles, &format!("/messages/{at}"), message)?;
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
    let one = dialect == Dialect::Anthropic || body["n"].is_null() || body["n"] == 1;
    check_that(one, "/n", || "n must be 1: this model gives one choice.".to_owned())
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

    use super::*;

    #[test]
    fn what_would_be_lost_is_refused_by_its_place() {
        let (openai, anthropic) = (Dialect::Openai, Dialect::Anthropic);
        let hi = json!([{ "role": "user", "content": "hi" }]);
        for (dialect, name, value, at) in [
            (openai, "messages", json!([{ "role": "user", "content": 5 }]), "/messages/0/content"),
            (openai, "messages", json!([{ "role": "user", "content": null }]), "/messages/0/content"),
            (openai, "messages", json!([{ "role": "user", "content": ["a"] }]), "/messages/0/content"),
            (openai, "messages", json!([hi[0], 5]), "/messages/1"),
            (openai, "messages", json!([{ "role": "usr", "content": "a" }]), "/messages/0/role"),
            (openai, "messages", json!([{ "content": "a" }]), "/messages/0/role"),
            (anthropic, "messages", json!([{ "role": "system", "content": "a" }]), "/messages/0/role"),
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
            assert!(check(dialect, &body).is_ok());
            body[name] = value;
            let source = check(dialect, &body).unwrap_err().source;
            assert_eq!(serde_json::to_value(source).unwrap()["pointer"], at, "{body}");
        }
    }

    #[test]
    fn what_goes_into_other_words_is_taken() {
        let tool = json!({ "type": "function", "function": { "name": "f" } });
        let messages = json!([{ "role": "developer", "content": "d" }, { "role": "assistant", "content": null },
            { "role": "tool", "content": [{ "type": "text", "text": "t" }] }]);
        let openai = json!({ "messages": messages, "tools": [tool], "max_tokens": 1, "temperature": 0.5 });
        assert!(check(Dialect::Openai, &openai).is_ok());
        let anthropic = json!({ "messages": [{ "role": "user", "content": "hi" }], "max_tokens": 9,
            "tools": [{ "name": "f" }, { "type": "custom", "name": "g" }] });
        assert!(check(Dialect::Anthropic, &anthropic).is_ok());
    }
}
