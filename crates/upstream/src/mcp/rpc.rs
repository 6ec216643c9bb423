//! JSON-RPC as MCP speaks it: what is asked, what comes back, and what can go wrong on the way.

use serde_json::{Value, json};

/// The newest version with a handshake, which is what is offered; what a server may choose instead.
pub(super) const HANDSHAKE: &str = "2025-11-25";
const HANDSHAKES: [&str; 4] = ["2024-11-05", "2025-03-26", "2025-06-18", HANDSHAKE];
/// The version without one: each request says all there is to know.
pub(super) const STATELESS: &str = "2026-07-28";

pub(super) const METHOD_NOT_FOUND: i64 = -32601;

/// How much of a server's own words is told.
const WORDS_CHARS: usize = 500;

/// Which of the two protocols a server speaks.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Era {
    /// Nothing is agreed on yet: the handshake itself.
    Unknown,
    Handshake {
        version: String,
    },
    Stateless,
}

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Fault {
    #[error("the tool server cannot be reached: {0}")]
    Unreachable(String),
    /// What was agreed on is over, and the request was not looked at.
    #[error("the tool server has forgotten the session")]
    SessionLost,
    /// It answered with an error.
    #[error("the tool server refused: {message}")]
    Refused { code: i64, message: String },
    #[error("the tool server answered with status {0}")]
    Status(u16),
    /// It did not keep to the protocol, or ended before it had answered.
    #[error("the tool server's answer cannot be used: {0}")]
    Broken(String),
    #[error("the tool server did not answer within {0} s")]
    Timeout(u64),
}

/// One message of a server.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum Incoming {
    Answer {
        id: i64,
        outcome: Result<Value, Fault>,
    },
    /// It asks for something: an id, and what.
    Request {
        id: Value,
        method: String,
    },
    Notification {
        method: String,
    },
    /// No message at all.
    Garbage,
}

/// The request as it is sent, with what the era asks for.
pub(super) fn request(era: &Era, id: i64, method: &str, params: Value) -> Value {
    json!({ "jsonrpc": "2.0", "id": id, "method": method, "params": complete(era, params) })
}

pub(super) fn notification(era: &Era, method: &str, params: Value) -> Value {
    json!({ "jsonrpc": "2.0", "method": method, "params": complete(era, params) })
}

fn complete(era: &Era, mut params: Value) -> Value {
    if *era == Era::Stateless {
        params["_meta"] = json!({
            "io.modelcontextprotocol/protocolVersion": STATELESS,
            "io.modelcontextprotocol/clientInfo": client_info(),
            "io.modelcontextprotocol/clientCapabilities": {},
        });
    }
    params
}

pub(super) fn hello() -> Value {
    json!({ "protocolVersion": HANDSHAKE, "capabilities": {}, "clientInfo": client_info() })
}

fn client_info() -> Value {
    json!({ "name": "threadkeep", "version": env!("CARGO_PKG_VERSION") })
}

/// What a server's answer to `hello` agrees on.
pub(super) fn agreed(answer: &Value) -> Result<Era, Fault> {
    match answer["protocolVersion"].as_str() {
        Some(version) if HANDSHAKES.contains(&version) => Ok(Era::Handshake { version: version.to_owned() }),
        Some(STATELESS) => Ok(Era::Stateless),
        Some(other) => Err(Fault::Broken(format!("it speaks version {:?} of the protocol", words(other)))),
        None => Err(Fault::Broken("it names no version of the protocol".to_owned())),
    }
}

/// What to tell a server that asks for something: only whether one is there.
pub(super) fn reply(id: &Value, method: &str) -> Value {
    match method {
        "ping" => json!({ "jsonrpc": "2.0", "id": id, "result": {} }),
        _ => {
            let error = json!({ "code": METHOD_NOT_FOUND, "message": "This client does not do that." });
            json!({ "jsonrpc": "2.0", "id": id, "error": error })
        }
    }
}

/// A text's messages: one, or a batch of them.
pub(super) fn read(text: &[u8]) -> Vec<Incoming> {
    match serde_json::from_slice::<Value>(text) {
        Ok(Value::Array(batch)) => batch.into_iter().map(message).collect(),
        Ok(one) => vec![message(one)],
        Err(_) => vec![Incoming::Garbage],
    }
}

fn message(mut value: Value) -> Incoming {
    let method = value.get("method").and_then(Value::as_str).map(str::to_owned);
    let id = value.get_mut("id").map(Value::take).unwrap_or_default();
    match (method, id) {
        (Some(method), Value::Null) => Incoming::Notification { method },
        (Some(method), id) => Incoming::Request { id, method },
        (None, id) => match (id.as_i64(), value.get_mut("result").map(Value::take), value.get("error")) {
            (Some(id), _, Some(error)) if error.is_object() => {
                Incoming::Answer { id, outcome: Err(refusal(error)) }
            }
            (Some(id), Some(result), _) => Incoming::Answer { id, outcome: Ok(result) },
            _ => Incoming::Garbage,
        },
    }
}

/// The error in the body of a refused request, if there is one.
pub(super) fn refusal_in(body: &[u8]) -> Option<Fault> {
    let body: Value = serde_json::from_slice(body).ok()?;
    body.get("error").filter(|error| error.is_object()).map(refusal)
}

fn refusal(error: &Value) -> Fault {
    let message = words(error["message"].as_str().unwrap_or("it did not say why"));
    Fault::Refused { code: error["code"].as_i64().unwrap_or(0), message }
}

pub(super) fn words(text: &str) -> String {
    text.chars().filter(|c| !c.is_control() || *c == '\n').take(WORDS_CHARS).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_are_told_apart() {
        let one = |text: &str| read(text.as_bytes()).pop().unwrap();
        let answer = |id, outcome| Incoming::Answer { id, outcome };
        assert_eq!(one(r#"{"jsonrpc":"2.0","id":1,"result":{"a":1}}"#), answer(1, Ok(json!({ "a": 1 }))));
        let refused = Fault::Refused { code: -1, message: "no".into() };
        assert_eq!(one(r#"{"id":2,"error":{"code":-1,"message":"no"}}"#), answer(2, Err(refused)));
        assert_eq!(
            one(r#"{"id":"x","method":"ping"}"#),
            Incoming::Request { id: "x".into(), method: "ping".into() }
        );
        assert_eq!(one(r#"{"method":"n"}"#), Incoming::Notification { method: "n".into() });
        for bad in [
            "",
            "1",
            "\"x\"",
            "true",
            "{}",
            "null",
            r#"{"id":1}"#,
            r#"{"id":"a","result":1}"#,
            "{\"id\":1,",
            r#"{"error":{}}"#,
        ] {
            assert_eq!(one(bad), Incoming::Garbage, "{bad}");
        }
        assert_eq!(read(br#"[{"id":1,"result":1},{"method":"n"}]"#).len(), 2);
    }
}
