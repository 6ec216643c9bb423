//! The vector files, and what holds for every log.

use std::fs;
use std::path::Path;

use proptest::prelude::*;
use serde::Deserialize;

use super::*;
use crate::entry::{self, decode, decode_event, encode};
use crate::event::{Done, Failed, File, Finished, Source, Sources, Text, ToolCall};
use crate::run::RunStatus;

/// One case. Where `repeat` is given, events and blocks are repeated that often, with `{i}` standing for
/// 0, 1, …, and `{ts}` for the number of milliseconds, also within texts.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Vector {
    name: String,
    repeat: Option<i64>,
    events: Vec<Raw>,
    blocks: Raw,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Timed {
    ts: i64,
    event: String,
    data: Raw,
}

fn read(vector: &Vector) -> (Vec<(i64, RunEvent)>, String) {
    let (mut events, mut blocks) = (Vec::new(), Vec::new());
    let listed: Vec<Raw> = serde_json::from_str(vector.blocks.get()).unwrap();
    for i in 0..vector.repeat.unwrap_or(1) {
        let filled = |raw: &Raw| match vector.repeat {
            None => raw.get().to_owned(),
            Some(_) => raw.get().replace("\"{ts}\"", &i.to_string()).replace("{i}", &i.to_string()),
        };
        for event in &vector.events {
            let Timed { ts, event, data } = serde_json::from_str(&filled(event)).unwrap();
            let data = decode_event(&event, data.get()).unwrap_or_else(|e| panic!("{}: {e}", vector.name));
            events.push((ts, data));
        }
        blocks.extend(listed.iter().map(|block| {
            let block = RawValue::from_string(filled(block)).unwrap();
            compact(&block).get().to_owned()
        }));
    }
    (events, format!("[{}]", blocks.join(",")))
}

fn vectors() -> Vec<Vector> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../vectors/fold");
    let mut vectors = Vec::new();
    for file in fs::read_dir(folder).unwrap() {
        let text = fs::read_to_string(file.unwrap().path()).unwrap();
        vectors.extend(serde_json::from_str::<Vec<Vector>>(&text).unwrap());
    }
    assert!(vectors.len() >= 60, "only {} vectors were found", vectors.len());
    vectors
}

fn json(blocks: &[Block]) -> String {
    serde_json::to_string(blocks).unwrap()
}

#[test]
fn events_fold_to_the_blocks_of_the_vectors() {
    for vector in vectors() {
        let (events, blocks) = read(&vector);
        let folded = json(&fold(events));
        assert!(folded == blocks, "{}\n folded {folded}\n expected {blocks}", vector.name);
    }
}

#[test]
fn white_space_goes_and_strings_stay() {
    for (text, short) in [
        ("1", "1"),
        (
            "{ \"a b\" : [ 1 ,\r\n\t\" \\\" \\\\\" , \"\\\\\\\" x\" ] }",
            "{\"a b\":[1,\" \\\" \\\\\",\"\\\\\\\" x\"]}",
        ),
        ("\" \u{2028}\u{a0} \"", "\" \u{2028}\u{a0} \""),
        ("[ 1.50, 1e3 ]", "[1.50,1e3]"),
    ] {
        let raw = RawValue::from_string(text.to_owned()).unwrap();
        assert_eq!(compact(&raw).get(), short);
    }
}

fn raw() -> impl Strategy<Value = Raw> {
    let texts = ["null", "1", "1.50", "\" \"", "{ \"a\" : [ 1 , \"b c\" ] }", "[\r\n]", "\"\\u00e4 ä\""];
    prop::sample::select(texts.to_vec()).prop_map(|text| RawValue::from_string(text.into()).unwrap())
}

fn id() -> impl Strategy<Value = String> {
    prop::sample::select(vec!["a", "b", "ü", ""]).prop_map(str::to_owned)
}

fn text() -> impl Strategy<Value = String> {
    prop_oneof![Just(String::new()), "[a-c\n ]{1,3}", any::<String>()]
}

fn step() -> impl Strategy<Value = Step> {
    let status = prop::sample::select(vec![StepStatus::Running, StepStatus::Succeeded, StepStatus::Failed]);
    let raws = (prop::option::of(raw()), prop::option::of(raw()));
    (id(), text(), status, raws, prop::option::of(text()), prop::option::of(any::<u32>())).prop_map(
        |(id, name, status, (args, result), error, duration)| Step {
            id,
            name,
            status,
            args,
            result,
            error,
            duration_ms: duration.map(|ms| serde_json::value::to_raw_value(&ms).unwrap()),
            ts: None,
            sent: None,
        },
    )
}

fn call() -> impl Strategy<Value = ToolCall> {
    (id(), text(), raw()).prop_map(|(id, name, args)| ToolCall { id, name, args })
}

fn event() -> impl Strategy<Value = RunEvent> {
    let source = (id(), text(), prop::option::of(text())).prop_map(|(id, title, url)| Source {
        id,
        snippet: title.clone(),
        title,
        url,
        locator: None,
    });
    prop_oneof![
        6 => text().prop_map(|text| RunEvent::Delta(Text { text })),
        2 => text().prop_map(|text| RunEvent::Reasoning(Text { text })),
        6 => step().prop_map(RunEvent::Step),
        3 => (0u32..3, prop::collection::vec(call(), 0..3))
            .prop_map(|(round, calls)| RunEvent::ToolCalls(ToolCalls { round, calls })),
        3 => (0u32..3, id(), prop::option::of(raw()), prop::option::of(text()), any::<bool>()).prop_map(
            |(round, id, result, error, truncated)| RunEvent::ToolResult(ToolResult {
                name: id.clone(), id, result, error, truncated, round,
            })
        ),
        1 => prop::collection::vec(source, 0..3).prop_map(|sources| RunEvent::Sources(Sources { sources })),
        1 => (any::<u128>(), text(), any::<u64>()).prop_map(|(file, name, size)| RunEvent::File(File {
            file_id: uuid::Uuid::from_u128(file), mime_type: name.clone(), sha256: name.clone(), name, size,
        })),
        1 => Just(RunEvent::Done(Done { status: RunStatus::Succeeded })),
    ]
}

/// A log as the engine writes it: events, then one end or none yet.
fn log() -> impl Strategy<Value = Vec<(i64, RunEvent)>> {
    let end = prop_oneof![
        Just(None),
        text().prop_map(|message| Some(RunEvent::Result(Finished { message, assistant: None }))),
        (id(), text())
            .prop_map(|(code, message)| { Some(RunEvent::Error(Failed { code, message, assistant: None })) }),
    ];
    (prop::collection::vec((0i64..1000, event()), 0..40), end).prop_map(|(mut events, end)| {
        events.extend(end.map(|end| (1000, end)));
        events
    })
}

proptest! {
    /// A reader that joins late, from any snapshot, ends with the same message.
    #[test]
    fn a_prefix_and_its_tail_make_the_whole(events in log(), cut in any::<prop::sample::Index>()) {
        let cut = cut.index(events.len() + 1);
        let mut prefix = Fold::default();
        for (ts, event) in &events[..cut] {
            prefix.push(*ts, event);
        }
        let shown = json(&prefix.clone().finish());
        prop_assert_eq!(shown, json(&fold(events[..cut].to_vec())));
        for (ts, event) in &events[cut..] {
            prefix.push(*ts, event);
        }
        prop_assert_eq!(json(&prefix.finish()), json(&fold(events)));
    }

    /// Live and from the log, byte for byte.
    #[test]
    fn the_log_folds_to_the_same_bytes(events in log()) {
        let stored: Vec<(i64, RunEvent)> = (1..)
            .zip(&events)
            .map(|(n, (ts, event))| {
                let line = encode(&entry::Entry::event(n, n, *ts, event).unwrap());
                let entry = decode(&line).unwrap();
                (entry.ts, decode_event(entry.kind, entry.data.get()).unwrap())
            })
            .collect();
        prop_assert_eq!(json(&fold(events)), json(&fold(stored)));
    }

    #[test]
    fn every_message_is_whole(events in log()) {
        let ends_with_error = matches!(events.last(), Some((_, RunEvent::Error(_))));
        let blocks = fold(events);
        let is_text = |block: &Block| matches!(block, Block::Text { .. });
        prop_assert!(blocks.windows(2).all(|pair| !(is_text(&pair[0]) && is_text(&pair[1]))));
        for block in &blocks {
            match block {
                Block::Text { text } | Block::Reasoning { text } => prop_assert!(!text.is_empty()),
                Block::Step { status, .. } => prop_assert!(*status != StepStatus::Running),
                _ => {}
            }
        }
        prop_assert_eq!(matches!(blocks.last(), Some(Block::Error { .. })), ends_with_error);
    }

    #[test]
    fn nothing_counts_after_the_end(events in log(), tail in log()) {
        let ended = matches!(events.last(), Some((_, RunEvent::Result(_) | RunEvent::Error(_))));
        prop_assume!(ended);
        let whole = json(&fold(events.clone()));
        prop_assert_eq!(json(&fold([events, tail].concat())), whole);
    }
}
