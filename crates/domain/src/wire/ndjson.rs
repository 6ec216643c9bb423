//! For workflow engines: the lines of a turn as a sandbox writes them, one JSON object each, without logs.
//! `turn` and `done` have no line: a `result` or `error` line is the last, and a failure of ours is an `error`.
//! What a sandbox has no line for (reasoning, tools, sources, files) is a line with the event's name as its type.

use std::borrow::Cow;

use serde::{Deserialize, Serialize};

use crate::entry::one_line;

/// A terminal event, and its line.
#[derive(Deserialize, Serialize)]
struct Ending<'a> {
    #[serde(default)]
    r#type: &'a str,
    #[serde(borrow, skip_serializing_if = "Option::is_none")]
    code: Option<Cow<'a, str>>,
    #[serde(borrow)]
    message: Cow<'a, str>,
    #[serde(default)]
    ts: i64,
}

pub(super) fn render(ts: i64, kind: &str, data: &str, out: &mut Vec<u8>) {
    match kind {
        "turn" | "done" => return,
        // These have their type inside.
        "step" | "file" => out.extend_from_slice(one_line(data).as_bytes()),
        "result" | "error" => ending(ts, kind, data, out),
        _ => typed(kind, data, out),
    }
    out.push(b'\n');
}

/// Without the assistant message, which is in the conversation.
fn ending(ts: i64, kind: &str, data: &str, out: &mut Vec<u8>) {
    let line = serde_json::from_str::<Ending<'_>>(data)
        .and_then(|ending| serde_json::to_vec(&Ending { r#type: kind, ts, ..ending }));
    match line {
        Ok(line) => out.extend_from_slice(&line),
        // Only a log that was tampered with comes here; its reader still gets the end.
        Err(_) => typed(kind, data, out),
    }
}

/// The data, an object with at least one field, with `type` as its first.
fn typed(kind: &str, data: &str, out: &mut Vec<u8>) {
    out.extend_from_slice(b"{\"type\":\"");
    out.extend_from_slice(kind.as_bytes());
    out.extend_from_slice(b"\",");
    out.extend_from_slice(one_line(data.strip_prefix('{').unwrap_or(data)).as_bytes());
}
