//! Scripts for the sandbox, in the protocol's own words.

use serde_json::{Value, json};
use testkit::sandbox::{Action, Release};

/// The head of a good answer.
pub fn open() -> Action {
    Action::Headers("200 OK", vec![("content-type", "application/x-ndjson".to_owned())])
}

/// These lines, and the end of the answer.
pub fn lines(lines: Vec<Value>) -> Vec<Action> {
    [open()].into_iter().chain(lines.into_iter().map(Action::Line)).collect()
}

pub fn answer(message: &str) -> Vec<Action> {
    lines(vec![result(message)])
}

/// These lines, then silence.
pub fn hang_after(sent: Vec<Value>) -> Vec<Action> {
    let mut script = lines(sent);
    script.push(Action::Hang);
    script
}

/// These lines, then an answer once the gate is open.
pub fn wait_after(sent: Vec<Value>, gate: &Release, message: &str) -> Vec<Action> {
    let mut script = lines(sent);
    script.extend([Action::WaitFor(gate.clone()), Action::Line(result(message))]);
    script
}

/// Body bytes as they are.
pub fn bytes(body: impl Into<Vec<u8>>) -> Vec<Action> {
    vec![open(), Action::Bytes(body.into())]
}

pub fn delta(text: &str) -> Value {
    json!({ "type": "delta", "text": text })
}

pub fn result(message: &str) -> Value {
    json!({ "type": "result", "message": message, "ts": 1_700_000_000_900_i64 })
}

pub fn log(message: &str) -> Value {
    json!({ "type": "log", "level": "info", "message": message })
}

pub fn step(id: &str, status: &str) -> Value {
    json!({ "type": "step", "id": id, "name": "look", "status": status, "ts": 1_700_000_000_100_i64 })
}
