//! Entries come back as they were, on one line, and only known ones.

use proptest::prelude::*;
use serde_json::value::RawValue;

use super::*;
use crate::event::{Done, Failed, Text};
use crate::line::Level;
use crate::line::{self, Rejection};
use crate::run::RunStatus;

#[test]
fn an_event_is_one_object_on_one_line() {
    let event = RunEvent::Delta(Text { text: "a\nb\u{2028}".into() });
    let entry = Entry::event(3, 2, 1_700_000_000_000, &event).unwrap();
    assert_eq!(
        encode(&entry),
        "{\"n\":3,\"seq\":2,\"ts\":1700000000000,\"kind\":\"delta\",\"data\":{\"text\":\"a\\nb\u{2028}\"}}"
    );
}

#[test]
fn traces_have_no_number() {
    let why = line::parse(b"nope").unwrap_err();
    for (trace, kind, data) in [
        (Trace::Note { text: "n".into() }, "note", r#"{"text":"n"}"#),
        (
            Trace::Log(Log { level: Level::Warn, message: "m".into(), ts: Some(4) }),
            "log",
            r#"{"type":"log","level":"warn","message":"m","ts":4}"#,
        ),
        (
            Trace::Dispatch(Dispatch { messages: vec![Uuid::nil()], cuts: vec!["c".into()], model: None }),
            "dispatch",
            r#"{"messages":["00000000-0000-0000-0000-000000000000"],"cuts":["c"]}"#,
        ),
        (Trace::ignored(2, b"\xff{}"), "ignored", "{\"lines\":2,\"line\":\"\u{fffd}{}\"}"),
    ] {
        let entry = decode(&encode(&Entry::trace(1, 2, &trace).unwrap())).unwrap();
        assert_eq!((entry.seq, entry.kind, entry.data.get()), (None, kind, data));
    }
    let rejected = Entry::trace(1, 2, &Trace::rejected(b"nope", &why)).unwrap();
    assert!(rejected.data.get().starts_with(r#"{"line":"nope","reason":"not valid JSON"#), "{rejected:?}");
}

#[test]
fn a_rejected_line_is_kept_whole_and_an_ignored_one_short() {
    for (line, whole, short) in [
        ("ä".repeat(5000).into_bytes(), "ä".repeat(5000), "ä".repeat(2000)),
        (vec![0xFF; 100_000], "\u{fffd}".repeat(100_000), "\u{fffd}".repeat(2000)),
        ("\u{1F9F5}".repeat(3000).into_bytes(), "\u{1F9F5}".repeat(3000), "\u{1F9F5}".repeat(2000)),
        (b"a\0b".to_vec(), "a\0b".to_owned(), "a\0b".to_owned()),
    ] {
        let Trace::Rejected(rejected) = Trace::rejected(&line, &Rejection::NotAnObject) else { panic!() };
        assert!(rejected.line == whole, "{}", rejected.line.chars().count());
        let Trace::Ignored(ignored) = Trace::ignored(1, &line) else { panic!() };
        assert!(ignored.line == short, "{}", ignored.line.chars().count());
    }
}

#[test]
fn what_is_no_entry_is_refused() {
    for line in [
        "",
        "{}",
        "[]",
        r#"{"n":1,"seq":1,"ts":1,"kind":"delta"}"#,
        r#"{"n":1,"seq":1,"ts":1,"kind":"delta","data":{}"#,
        r#"{"n":1,"seq":1,"ts":1,"kind":"delta","data":{},"x":1}"#,
        r#"{"n":1,"n":1,"seq":1,"ts":1,"kind":"delta","data":{}}"#,
        r#"{"n":1,"seq":1,"ts":1,"kind":"delta\n","data":{}}"#,
        r#"{"n":1,"seq":1,"ts":1,"kind":"gone","data":{}}"#,
    ] {
        assert!(decode(line).is_err(), "{line}");
    }
    for (kind, data) in [("log", "{}"), ("delta", "{}"), ("done", r#"{"status":"over"}"#), ("x", "{}")] {
        assert!(decode_event(kind, data).is_err(), "{kind} {data}");
    }
}

#[test]
fn every_event_is_a_kind() {
    let done = RunEvent::Done(Done { status: RunStatus::Failed });
    let failed = RunEvent::Error(Failed { code: "c".into(), message: "m".into(), assistant: None });
    for event in [done, failed] {
        let entry = decode(&encode(&Entry::event(1, 1, 1, &event).unwrap())).unwrap();
        let read = decode_event(entry.kind, entry.data.get()).unwrap();
        assert_eq!(serde_json::to_string(&read).unwrap(), serde_json::to_string(&event).unwrap());
    }
    let a_null = r#"{"type":"step","id":"a","name":"b","status":"running","args":null,"durationMs":1.50}"#;
    let read = decode_event("step", a_null).unwrap();
    assert_eq!(serde_json::to_string(&read).unwrap(), a_null);
}

proptest! {
    #[test]
    fn entries_come_back(
        n in any::<i64>(), seq in any::<Option<i64>>(), ts in any::<i64>(),
        kind in prop::sample::select(KINDS.to_vec()), text in any::<String>(),
    ) {
        let data = serde_json::value::to_raw_value(&[text]).unwrap();
        let line = encode(&Entry { n, seq, ts, kind, data: data.clone(), line: None });
        prop_assert!(!line.contains(['\n', '\r']));
        let read = decode(&line).unwrap();
        prop_assert_eq!((read.n, read.seq, read.ts, read.kind), (n, seq, ts, kind));
        prop_assert_eq!(read.data.get(), data.get());
    }

    #[test]
    fn a_line_stays_a_line_whatever_its_data(space in "[ \n\r\t]{0,5}") {
        let data = RawValue::from_string(format!("{{{space}\"a\":{space}1}}")).unwrap();
        let line = encode(&Entry { n: 1, seq: None, ts: 0, kind: "note", data, line: None });
        prop_assert!(!line.contains(['\n', '\r']));
        prop_assert!(decode(&line).is_ok());
    }
}
