//! The runs in `vectors/wires/logs.json`, in every dialect that looks back, to the letter; and for each of them that a
//! reader who comes back gets exactly the rest. `UPDATE_GENERATED=1` writes what is told now.

use std::collections::BTreeMap;
use std::path::PathBuf;

use serde::Deserialize;
use serde_json::Value;

use super::*;

#[derive(Deserialize)]
struct Log {
    name: String,
    events: Vec<Event>,
}

#[derive(Deserialize)]
struct Event {
    event: String,
    data: Value,
}

fn place(name: &str) -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../vectors/wires").join(name)
}

fn logs() -> Vec<Log> {
    serde_json::from_str(&std::fs::read_to_string(place("logs.json")).unwrap()).unwrap()
}

fn renderer(wire: Wire, after: i64) -> Renderer {
    Renderer::after(wire, after).at("https://here.example")
}

fn told(mut renderer: Renderer, log: &Log) -> String {
    let mut out = Vec::new();
    for (seq, event) in (1..).zip(&log.events) {
        renderer.push(seq, 1_700_000_000_000 + seq, &event.event, &event.data.to_string(), &mut out);
    }
    String::from_utf8(out).unwrap()
}

fn looking_back() -> impl Iterator<Item = Wire> {
    Wire::ALL.into_iter().filter(|wire| wire.looks_back())
}

#[test]
fn every_dialect_tells_every_run_to_the_letter() {
    for wire in looking_back() {
        let path = place(&format!("{}.json", wire.as_str()));
        let each = logs().into_iter().map(|log| {
            let text = told(renderer(wire, 0), &log);
            let frames: Vec<String> = text.split_terminator("\n\n").map(str::to_owned).collect();
            (log.name, frames)
        });
        let now: BTreeMap<String, Vec<String>> = each.collect();
        if std::env::var_os("UPDATE_GENERATED").is_some() {
            std::fs::write(&path, format!("{}\n", serde_json::to_string_pretty(&now).unwrap())).unwrap();
        }
        let kept: BTreeMap<String, Vec<String>> =
            serde_json::from_str(&std::fs::read_to_string(&path).unwrap_or_default()).unwrap_or_default();
        for (name, frames) in &now {
            assert_eq!(Some(frames), kept.get(name), "{wire:?}: {name}");
        }
        assert_eq!(now.len(), kept.len(), "{wire:?}");
    }
}

#[test]
fn a_reader_who_comes_back_gets_exactly_the_rest() {
    for wire in looking_back() {
        for log in logs() {
            let whole = told(renderer(wire, 0), &log);
            assert!(!whole.contains('\r') && !whole.contains("\n\n\n"), "{wire:?}: {}", log.name);
            for after in 0..=log.events.len() as i64 {
                let rest = told(renderer(wire, after), &log);
                let at = format!("{wire:?}: {} after {after}", log.name);
                assert!(whole.ends_with(&rest), "{at}");
                let seen = &whole[..whole.len() - rest.len()];
                let numbers = |text: &str| -> Vec<i64> {
                    text.lines().filter_map(|line| line.strip_prefix("id: ")?.parse().ok()).collect()
                };
                assert!(numbers(seen).iter().all(|seq| *seq <= after), "{at}");
                assert!(numbers(&rest).iter().all(|seq| *seq > after), "{at}");
                // What was seen ends with a frame that has its event's number.
                let last = seen.split_terminator("\n\n").last();
                assert!(last.is_none_or(|frame| frame.starts_with("id: ")), "{at}: {last:?}");
            }
        }
    }
}

/// The rules of the AI SDK's own client, which throws where one is broken.
#[test]
fn a_ui_message_stream_is_one_that_its_client_takes() {
    for log in logs() {
        let (mut texts, mut thoughts, mut calls, mut ended, mut kinds) =
            (Vec::new(), Vec::new(), Vec::new(), Vec::new(), Vec::new());
        let text = told(renderer(Wire::UiMessage, 0), &log);
        for frame in text.split_terminator("\n\n") {
            let data = frame.lines().find_map(|line| line.strip_prefix("data: ")).unwrap();
            if data == "[DONE]" {
                kinds.push("[DONE]".to_owned());
                continue;
            }
            let chunk: Value = serde_json::from_str(data).unwrap();
            let kind = chunk["type"].as_str().unwrap().to_owned();
            let (part, call) = (chunk["id"].clone(), chunk["toolCallId"].clone());
            let at = format!("{}: {chunk}", log.name);
            match kind.as_str() {
                "text-start" => texts.push(part),
                "text-delta" => assert!(texts.contains(&part), "{at}"),
                "text-end" => assert!(texts.pop() == Some(part), "{at}"),
                "reasoning-start" => thoughts.push(part),
                "reasoning-delta" => assert!(thoughts.contains(&part), "{at}"),
                "reasoning-end" => assert!(thoughts.pop() == Some(part), "{at}"),
                "tool-input-available" => {
                    assert!(!ended.contains(&call), "{at}: it would be open once more");
                    calls.push(call);
                }
                "tool-output-available"
                | "tool-output-error"
                | "tool-output-denied"
                | "tool-approval-request" => {
                    assert!(calls.contains(&call), "{at}");
                    ended.push(call);
                }
                "start" | "start-step" | "finish-step" | "finish" | "error" | "abort" | "file"
                | "source-url" | "source-document" => {}
                _ => panic!("{at}: a type that no client knows"),
            }
            kinds.push(kind);
        }
        assert_eq!(kinds[..2], ["start", "start-step"], "{}", log.name);
        assert_eq!(kinds[kinds.len() - 3..], ["finish-step", "finish", "[DONE]"], "{}", log.name);
        assert!(texts.is_empty() && thoughts.is_empty(), "{}", log.name);
    }
}

#[test]
fn a_chat_that_waits_for_a_person_pauses_and_goes_on() {
    let log = logs().into_iter().find(|log| log.name == "an approval").unwrap();
    let asked = 5;
    let push = |renderer: &mut Renderer, events: std::ops::Range<usize>| {
        let mut out = Vec::new();
        for (at, event) in log.events.iter().enumerate().take(events.end).skip(events.start) {
            renderer.push(at as i64 + 1, 1, &event.event, &event.data.to_string(), &mut out);
        }
        out
    };
    let mut first = renderer(Wire::UiMessage, 0);
    let mut out = push(&mut first, 0..asked);
    assert_eq!(first.resting().len(), 1);
    first.pause(&mut out);
    let text = String::from_utf8(out).unwrap();
    assert!(
        text.ends_with("\"finishReason\":\"tool-calls\",\"type\":\"finish\"}\n\ndata: [DONE]\n\n"),
        "{text}"
    );
    let mut second = renderer(Wire::UiMessage, asked as i64);
    assert_eq!(push(&mut second, 0..asked), b"");
    let mut out = Vec::new();
    second.begin_again(&mut out);
    out.extend(push(&mut second, asked..log.events.len()));
    let text = String::from_utf8(out).unwrap();
    assert!(text.starts_with("data: {\"messageId\":\"0190a1b2") && !text.contains("May I?"), "{text}");
    assert!(second.resting().is_empty() && text.contains("\"output\":\"saved\""), "{text}");
}

fn responses(log: &Log, after: i64) -> String {
    let mut voice = Responses::new(serde_json::json!({ "id": "resp_1", "object": "response" }));
    let mut out = Vec::new();
    for (seq, event) in (1..).zip(&log.events) {
        if event.event == "done" {
            voice.know(Usage { input_tokens: 3, output_tokens: 4 });
        }
        let data = event.data.to_string();
        voice.push(seq, 1_700_000_000_000 + seq, &event.event, &data, after, &mut out);
    }
    String::from_utf8(out).unwrap()
}

#[test]
fn a_response_is_told_to_the_letter_and_goes_on_after_any_frame() {
    let path = place("responses.json");
    let mut now: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for log in logs() {
        let whole = responses(&log, -1);
        let frames: Vec<String> = whole.split_inclusive("\n\n").map(str::to_owned).collect();
        let mut before = -1;
        for (n, frame) in frames.iter().enumerate() {
            let data = frame.lines().find_map(|line| line.strip_prefix("data: ")).unwrap();
            let event: Value = serde_json::from_str(data).unwrap();
            let number = event["sequence_number"].as_i64().unwrap();
            assert!(number > before, "{}: {number} after {before}", log.name);
            assert_eq!(responses(&log, number), frames[n + 1..].concat(), "{} after {number}", log.name);
            before = number;
        }
        items_are_whole(&log.name, &frames);
        now.insert(log.name, frames.iter().map(|frame| frame.trim_end().to_owned()).collect());
    }
    if std::env::var_os("UPDATE_GENERATED").is_some() {
        std::fs::write(&path, format!("{}\n", serde_json::to_string_pretty(&now).unwrap())).unwrap();
    }
    let kept: BTreeMap<String, Vec<String>> =
        serde_json::from_str(&std::fs::read_to_string(&path).unwrap_or_default()).unwrap_or_default();
    assert_eq!(now, kept);
}

/// What calls that ended more than once came to, by their id: a stream does not take back, an object does.
fn last_words(name: &str) -> BTreeMap<&str, Value> {
    if name == "steps" { BTreeMap::from([("t", "2".into())]) } else { BTreeMap::new() }
}

/// Every item is added once, done once, and in the final object as it was done.
fn items_are_whole(name: &str, frames: &[String]) {
    let (mut added, mut done, mut last) = (Vec::new(), BTreeMap::new(), Value::Null);
    for frame in frames {
        let data = frame.lines().find_map(|line| line.strip_prefix("data: ")).unwrap();
        let event: Value = serde_json::from_str(data).unwrap();
        match event["type"].as_str().unwrap() {
            "response.output_item.added" => {
                assert_eq!(event["output_index"], added.len(), "{name}");
                added.push(event["item"]["id"].clone());
            }
            "response.output_item.done" => {
                let before = done.insert(event["output_index"].as_u64().unwrap(), event["item"].clone());
                assert_eq!(before, None, "{name}");
            }
            "response.completed" | "response.failed" => last = event["response"].clone(),
            _ => {}
        }
    }
    let output: Vec<Value> = done.into_values().collect();
    let ended = last_words(name);
    let told = output.iter().cloned().map(|mut item| {
        let word = item["call_id"].as_str().and_then(|id| ended.get(id));
        if let Some(word) = word.filter(|_| item["type"] == "function_call_output") {
            item["output"] = word.clone();
        }
        item
    });
    assert_eq!(last["output"], told.collect::<Value>(), "{name}");
    assert_eq!(added, output.iter().map(|item| item["id"].clone()).collect::<Vec<_>>(), "{name}");
    let mut ids: Vec<String> = added.iter().map(ToString::to_string).collect();
    ids.sort();
    ids.dedup();
    assert_eq!(ids.len(), added.len(), "{name}: every id is its own");
}

/// The rules of the AG-UI client.
#[test]
fn ag_ui_events_are_ones_that_their_client_takes() {
    for log in logs() {
        let (mut open, mut over) = (Vec::new(), false);
        let text = told(renderer(Wire::AgUi, 0), &log);
        let mut events = Vec::new();
        for frame in text.split_terminator("\n\n") {
            let data = frame.lines().find_map(|line| line.strip_prefix("data: ")).unwrap();
            let event: Value = serde_json::from_str(data).unwrap();
            let kind = event["type"].as_str().unwrap().to_owned();
            let at = format!("{}: {event}", log.name);
            assert!(!over, "{at}");
            let id = if event["toolCallId"].is_null() { &event["messageId"] } else { &event["toolCallId"] };
            let key = format!("{} {id}", kind.rsplit_once('_').map_or(kind.as_str(), |(family, _)| family));
            if kind.ends_with("_START") {
                assert!(!open.contains(&key), "{at}");
                open.push(key);
            } else if kind.ends_with("_END") {
                assert!(open.contains(&key), "{at}");
                open.retain(|one| *one != key);
            } else if kind.ends_with("_CONTENT") || kind.ends_with("_ARGS") {
                assert!(open.contains(&key) && event["delta"] != "", "{at}");
            }
            over = kind == "RUN_FINISHED" || kind == "RUN_ERROR";
            events.push(event);
        }
        assert!(over && open.is_empty() && events[0]["type"] == "RUN_STARTED", "{}", log.name);
        // A snapshot holds what a client that heard it all has.
        let mut messages = Vec::new();
        let pairs: Vec<(&str, String)> =
            log.events.iter().map(|event| (event.event.as_str(), event.data.to_string())).collect();
        ag_ui_messages("", pairs.iter().map(|(kind, data)| (*kind, data.as_str())), &mut messages);
        let texts: String = messages.iter().filter_map(|message| message["content"].as_str()).collect();
        let parts = |event: &Value| match event["type"].as_str() {
            Some("TEXT_MESSAGE_CONTENT" | "REASONING_MESSAGE_CONTENT") => {
                event["delta"].as_str().map(str::len)
            }
            Some("TOOL_CALL_RESULT") => {
                let ended = last_words(&log.name);
                let call = event["toolCallId"].as_str().and_then(|id| id.rsplit_once('-'));
                let word = call.and_then(|(_, own)| ended.get(own)).unwrap_or(&event["content"]);
                word.as_str().map(str::len)
            }
            _ => None,
        };
        assert_eq!(texts.len(), events.iter().filter_map(parts).sum::<usize>(), "{}", log.name);
    }
}

/// The messages of a client that has heard a run, and of one that is given the stored answer: the same, with the same ids.
/// Results that came at once may stand in another order, and where a result took the place of what was said the client
/// that heard both has both.
#[test]
fn a_stored_answer_has_the_messages_that_were_told() {
    for log in logs() {
        let mut fold = crate::fold::Fold::default();
        for event in &log.events {
            let mut data = event.data.clone();
            if let Some(data) = data.as_object_mut().filter(|data| data.contains_key("assistant")) {
                data.insert("assistant".into(), Value::Null);
            }
            fold.push(1, &crate::entry::decode_event(&event.event, &data.to_string()).unwrap());
        }
        let content = serde_json::to_string(&fold.finish()).unwrap();
        let (events, closing) = crate::answer::replay_events(&content);
        let mut stored: Vec<(&str, String)> = vec![("turn", log.events[0].data.to_string())];
        stored.extend(events.iter().map(|event| (event.name(), serde_json::to_string(event).unwrap())));
        stored.push(("result", serde_json::json!({ "message": closing, "assistant": null }).to_string()));
        let told = log.events.iter().map(|event| (event.event.as_str(), event.data.to_string()));
        let messages = |events: Vec<(&str, String)>| {
            let mut messages = Vec::new();
            ag_ui_messages("", events.iter().map(|(kind, data)| (*kind, data.as_str())), &mut messages);
            messages.sort_by_key(|message| message["id"].to_string());
            messages
        };
        let (told, stored) = (messages(told.collect()), messages(stored));
        if ["a result that does not go on"].contains(&log.name.as_str()) {
            assert_eq!((told.len(), stored.len()), (2, 1), "{}", log.name);
        } else {
            assert_eq!(told, stored, "{}", log.name);
        }
    }
}
