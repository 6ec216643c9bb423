//! Which wire is chosen, and that frames and lines read back as what was put in.

use proptest::prelude::*;
use serde_json::{Value, json};

use super::*;
use crate::entry::{Entry, decode, encode};
use crate::event::{Finished, RunEvent, Step, StepStatus, Text};

#[test]
fn the_query_decides_then_accept() {
    use Wire::{Envelope, Ndjson};
    for (query, accept, wire) in [
        (None, None, Envelope),
        (None, Some(""), Envelope),
        (None, Some("*/*"), Envelope),
        (None, Some("application/json"), Envelope),
        (None, Some("text/event-stream"), Envelope),
        (None, Some("application/x-ndjson"), Ndjson),
        (None, Some("Application/X-NDJSON; charset=utf-8"), Ndjson),
        (None, Some("application/json, application/x-ndjson"), Ndjson),
        (None, Some("text/event-stream, application/x-ndjson"), Envelope),
        (None, Some("application/x-ndjson, text/event-stream"), Ndjson),
        (None, Some("text/event-stream;q=0.5, application/x-ndjson;q=0.9"), Ndjson),
        (None, Some("application/x-ndjson;q=0"), Envelope),
        (None, Some("application/x-ndjson;q=zz"), Envelope),
        (Some("ndjson"), Some("text/event-stream"), Ndjson),
        (Some("envelope"), Some("application/x-ndjson"), Envelope),
    ] {
        assert_eq!(Wire::choose(query, accept, Wire::Envelope), Ok(wire), "{query:?} {accept:?}");
    }
    for name in ["", "NDJSON", "sse", "envelope "] {
        assert_eq!(Wire::choose(Some(name), None, Wire::Envelope), Err(UnknownWire(name.to_owned())));
    }
}

fn written(wire: Wire, kind: &str, data: &str) -> String {
    let mut out = Vec::new();
    render(wire, 7, 1_700_000_000_000, kind, data, &mut out);
    String::from_utf8(out).unwrap()
}

#[test]
fn an_envelope_frame_has_one_data_line() {
    assert_eq!(
        written(Wire::Envelope, "delta", r#"{"text":"a\nb"}"#),
        "id: 7\nevent: delta\ndata: {\"text\":\"a\\nb\"}\n\n"
    );
    assert_eq!(
        written(Wire::Envelope, "step", "{\"args\":{\r\n\"a\":1}}"),
        "id: 7\nevent: step\ndata: {\"args\":{  \"a\":1}}\n\n"
    );
}

#[test]
fn ndjson_has_the_lines_of_a_sandbox() {
    for (kind, data, line) in [
        ("turn", r#"{"run":"r"}"#, ""),
        ("done", r#"{"status":"succeeded"}"#, ""),
        ("delta", r#"{"text":"a"}"#, r#"{"type":"delta","text":"a"}"#),
        ("reasoning", r#"{"text":"a"}"#, r#"{"type":"reasoning","text":"a"}"#),
        ("step", r#"{"type":"step","id":"s"}"#, r#"{"type":"step","id":"s"}"#),
        ("file", r#"{"type":"file","size":1}"#, r#"{"type":"file","size":1}"#),
        ("tool_calls", r#"{"round":1,"calls":[]}"#, r#"{"type":"tool_calls","round":1,"calls":[]}"#),
        ("tool_result", "{\"id\":\"a\",\n\"x\":1}", r#"{"type":"tool_result","id":"a", "x":1}"#),
        ("sources", r#"{"sources":[]}"#, r#"{"type":"sources","sources":[]}"#),
        (
            "result",
            r#"{"message":"a\n\u00e9","assistant":{"id":1}}"#,
            r#"{"type":"result","message":"a\né","ts":1700000000000}"#,
        ),
        (
            "error",
            r#"{"code":"sandbox_timeout","message":"m","assistant":null}"#,
            r#"{"type":"error","code":"sandbox_timeout","message":"m","ts":1700000000000}"#,
        ),
    ] {
        let expected = if line.is_empty() { String::new() } else { format!("{line}\n") };
        assert_eq!(written(Wire::Ndjson, kind, data), expected, "{kind}");
    }
}

#[test]
fn heartbeats_are_comments_or_nothing() {
    assert_eq!(Wire::Envelope.heartbeat(), ": heartbeat\n\n");
    assert_eq!(Wire::Ndjson.heartbeat(), "");
}

/// An SSE reader as the standard has it: `\r\n`, `\n` and `\r` end a line, a blank line ends a frame.
fn frames(stream: &str) -> Vec<(String, String, String)> {
    let (mut read, mut frame) = (Vec::new(), (String::new(), String::new(), String::new()));
    for line in stream.replace("\r\n", "\n").split(['\n', '\r']) {
        match line.split_once(": ") {
            None if line.is_empty() => {
                if !frame.2.is_empty() {
                    read.push(std::mem::take(&mut frame));
                }
            }
            Some(("id", value)) => frame.0 = value.into(),
            Some(("event", value)) => frame.1 = value.into(),
            Some(("data", value)) => {
                assert!(frame.2.is_empty(), "two data lines in one frame");
                frame.2 = value.into();
            }
            Some(("", _)) => {}
            _ => panic!("a stray line: {line:?}"),
        }
    }
    read
}

fn raw(value: &Value, indent: bool) -> crate::event::Raw {
    let text = if indent { serde_json::to_string_pretty(value) } else { serde_json::to_string(value) };
    // A carriage return is white space to JSON and a line end to SSE.
    let text = text.unwrap().replace('\n', "\r\n");
    serde_json::value::RawValue::from_string(text).unwrap()
}

proptest! {
    #[test]
    fn streams_read_back(texts in prop::collection::vec(any::<String>(), 0..8), indent in any::<bool>()) {
        let mut events = Vec::new();
        for text in &texts {
            events.push(RunEvent::Delta(Text { text: text.clone() }));
            events.push(RunEvent::Step(Step {
                id: text.clone(),
                name: text.clone(),
                status: StepStatus::Running,
                args: Some(raw(&json!({ "a": [text, { "b": text }] }), indent)),
                result: None,
                error: None,
                duration_ms: None,
                ts: Some(1),
                sent: None,
            }));
        }
        events.push(RunEvent::Result(Finished {
            message: texts.concat(),
            assistant: Some(raw(&json!({ "id": texts }), indent)),
        }));
        let (mut sse, mut lines) = (Vec::new(), Vec::new());
        let mut log = String::new();
        for (seq, event) in (1..).zip(&events) {
            let entry = Entry::event(seq, seq, 5, event).unwrap();
            log += &encode(&entry);
            log.push('\n');
            render(Wire::Envelope, seq, entry.ts, entry.kind, entry.data.get(), &mut sse);
            sse.extend_from_slice(Wire::Envelope.heartbeat().as_bytes());
            render(Wire::Ndjson, seq, entry.ts, entry.kind, entry.data.get(), &mut lines);
        }
        let read = frames(std::str::from_utf8(&sse).unwrap());
        prop_assert_eq!(read.len(), events.len());
        for (seq, (event, (id, name, data))) in (1..).zip(events.iter().zip(&read)) {
            prop_assert_eq!(id, &seq.to_string());
            prop_assert_eq!(name, event.name());
            let data: Value = serde_json::from_str(data).unwrap();
            prop_assert_eq!(data, serde_json::to_value(event).unwrap());
        }
        // What a late reader gets from the log is what the live one got, to the byte.
        let mut replayed = Vec::new();
        for line in log.lines() {
            let entry = decode(line).unwrap();
            render(Wire::Envelope, entry.seq.unwrap(), entry.ts, entry.kind, entry.data.get(), &mut replayed);
            replayed.extend_from_slice(Wire::Envelope.heartbeat().as_bytes());
        }
        prop_assert!(replayed == sse, "the replayed stream differs");
        let lines = String::from_utf8(lines).unwrap();
        prop_assert_eq!(lines.split_terminator('\n').count(), events.len());
        for line in lines.split_terminator('\n') {
            crate::json::check(line.as_bytes()).unwrap();
        }
    }
}
