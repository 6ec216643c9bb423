//! The vector files of the sandbox's lines, and what they cannot say.

use std::fs;
use std::path::Path;

use proptest::prelude::*;
use serde::Deserialize;

use super::*;

/// `line` or `hex` is the raw line; `accepted` its type and what was read of it; `rejected` part of the reason.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Vector {
    name: String,
    line: Option<String>,
    hex: Option<String>,
    accepted: Option<serde_json::Value>,
    rejected: Option<String>,
}

fn bytes(vector: &Vector) -> Vec<u8> {
    match (&vector.line, &vector.hex) {
        (Some(line), None) => line.clone().into_bytes(),
        (None, Some(hex)) => {
            let pairs = hex.as_bytes().chunks(2).map(|pair| std::str::from_utf8(pair).unwrap());
            pairs.map(|pair| u8::from_str_radix(pair, 16).unwrap()).collect()
        }
        _ => panic!("{}: give line or hex", vector.name),
    }
}

fn shown(line: &Line) -> serde_json::Value {
    use serde_json::json;
    let mut value = match line {
        Line::Log { level, message, .. } => json!({ "type": "log", "level": level, "message": message }),
        Line::Step(step) => serde_json::to_value(step).unwrap(),
        Line::Delta { text, .. } => json!({ "type": "delta", "text": text }),
        Line::Result { message, .. } => json!({ "type": "result", "message": message }),
        Line::Error { code, message, .. } => json!({ "type": "error", "code": code, "message": message }),
    };
    if let Some(ts) = line.ts() {
        value["ts"] = ts.into();
    }
    value
}

#[test]
fn lines_are_read_as_the_vectors_say() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../vectors/lines");
    let mut count = 0;
    for file in fs::read_dir(folder).unwrap() {
        let text = fs::read_to_string(file.unwrap().path()).unwrap();
        for vector in serde_json::from_str::<Vec<Vector>>(&text).unwrap() {
            count += 1;
            same_both_ways(&bytes(&vector));
            match (parse(&bytes(&vector)), &vector.accepted, &vector.rejected) {
                (Ok(line), Some(expected), None) => assert_eq!(shown(&line), *expected, "{}", vector.name),
                (Err(why), None, Some(reason)) => {
                    assert!(why.to_string().contains(reason), "{}: {why}", vector.name);
                }
                (read, ..) => panic!("{}: {read:?}", vector.name),
            }
        }
    }
    assert!(count >= 80, "only {count} vectors were found");
}

/// What the quick reader takes, the strict one takes and reads the same.
fn same_both_ways(bytes: &[u8]) {
    if let Some(line) = usual::parse(bytes) {
        assert_eq!(format!("{:?}", Ok::<_, Rejection>(line)), format!("{:?}", strict(bytes)));
    }
}

#[test]
fn the_lines_of_every_day_are_read_quickly() {
    for line in [
        r#"{"type":"delta","text":"a\nb"}"#,
        r#"{"type":"log","level":"info","message":"m","ts":1}"#,
        r#"{"type":"step","id":"s","name":"n","status":"running","args":{"a":[1]},"ts":17}"#,
        r#"{"type":"result","message":""}"#,
        r#"{"type":"error","code":"c","message":"m"}"#,
    ] {
        assert!(usual::parse(line.as_bytes()).is_some(), "{line}");
        same_both_ways(line.as_bytes());
    }
    for line in [
        r#"{"type":"delta","text":"\u0000"}"#,
        r#"{"type":"delta","text":"a","text":"a"}"#,
        r#"{"type":"delta","text":"a","id":"\u0000"}"#,
        r#"{"type":"delta","text":null}"#,
        r#"["delta"]"#,
        r#"{"type":"step","id":"s","name":"n","status":"running","args":{"a":1,"a":2}}"#,
        r#"{"type":"step","id":"s","name":"n","status":"running","durationMs":"1"}"#,
    ] {
        assert!(usual::parse(line.as_bytes()).is_none(), "{line}");
    }
    for depth in [json::MAX_DEPTH - 1, json::MAX_DEPTH] {
        let args = format!("{}{}", "[".repeat(depth), "]".repeat(depth));
        let line = format!(r#"{{"type":"step","id":"s","name":"n","status":"failed","args":{args}}}"#);
        assert_eq!(usual::parse(line.as_bytes()).is_some(), strict(line.as_bytes()).is_ok(), "{depth}");
    }
}

#[test]
fn nesting_is_bounded_in_fields_that_are_dropped_too() {
    let line = |depth: usize| {
        format!(r#"{{"type":"delta","text":"","x":{}{}}}"#, "[".repeat(depth), "]".repeat(depth))
    };
    assert!(parse(line(json::MAX_DEPTH - 1).as_bytes()).is_ok());
    assert!(parse(line(json::MAX_DEPTH).as_bytes()).is_err());
    assert!(parse(line(100_000).as_bytes()).is_err());
}

/// Whatever it says stands in the event as it was sent; the block has what is known of it.
#[test]
fn a_step_is_told_as_it_was_sent() {
    for (line, told, ts) in [
        (
            r#"{"type":"step","id":"s","name":"n","status":"running","label":[1e400],"ts":12.7}"#,
            r#"{"type":"step","id":"s","name":"n","status":"running","label":[1e400],"ts":12.7}"#,
            12,
        ),
        (
            r#"{"type":"step","id":"s","name":"n","status":"running","ts":-1700000000000}"#,
            r#"{"type":"step","id":"s","name":"n","status":"running","ts":-1700000000000}"#,
            0,
        ),
        (
            r#" { "status":"failed", "id":"s","name":"n","type":"step","x":1 } "#,
            r#"{ "status":"failed", "id":"s","name":"n","type":"step","x":1 ,"ts":99}"#,
            99,
        ),
        (
            r#"{"type":"step","id":"s","name":"n","status":"running","args":1E400,"durationMs":1e400}"#,
            r#"{"type":"step","id":"s","name":"n","status":"running","args":1E400,"durationMs":1e400,"ts":99}"#,
            99,
        ),
    ] {
        let Line::Step(mut step) = parse(line.as_bytes()).unwrap() else { panic!("{line}") };
        assert_eq!(step.arrived(99), ts);
        let data = serde_json::to_string(&step).unwrap();
        assert_eq!(data, told);
        let read: Step = serde_json::from_str(&data).unwrap();
        assert_eq!((read.ts, &read.id), (Some(ts), &step.id));
        let spelled = |step: &Step| step.args.as_ref().map(|args| args.get().to_owned());
        assert_eq!(spelled(&read), spelled(&step), "{line}");
    }
}

#[test]
fn reasons_stay_short() {
    let line = format!(r#"{{"type":"{}"}}"#, "x".repeat(100_000));
    assert!(parse(line.as_bytes()).unwrap_err().to_string().len() < 200);
}

proptest! {
    #[test]
    fn no_bytes_bring_it_down(bytes in prop::collection::vec(any::<u8>(), 0..100)) {
        let _ = parse(&bytes);
    }

    /// A sound line with one byte changed is read or rejected, and never read as something unsound.
    #[test]
    fn a_broken_byte_is_no_harm(at in 0usize..200, byte in any::<u8>()) {
        let mut line = br#"{"type":"step","id":"s","name":"n","status":"failed","args":{"a":[1,"\u00e4"]},"error":"e","durationMs":1.5,"ts":17}"#.to_vec();
        let at = at % line.len();
        line[at] = byte;
        same_both_ways(&line);
        if let Ok(Line::Step(step)) = parse(&line) {
            json::check_kept(&serde_json::to_vec(&step).unwrap()).unwrap();
        }
    }
}
