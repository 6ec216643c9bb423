//! The dialects that only add, `openai` and `anthropic`: whole transcripts, every place to resume at, and what a
//! client of each would make of it.

use serde_json::{Value, json};

use super::told::INTERRUPTED;
use super::*;
use crate::message::{Message, MessageRole};

fn log() -> Vec<(&'static str, Value)> {
    let run = "0190a1b2-0000-7000-8000-000000000001";
    vec![
        ("turn", json!({ "conversation": null, "run": run, "message": null, "conversation_id": null })),
        ("reasoning", json!({ "text": "hm\n" })),
        ("delta", json!({ "text": "I " })),
        ("delta", json!({ "text": "look." })),
        ("tool_calls", json!({ "round": 1, "calls": [{ "id": "a", "name": "f", "args": { "x": 1 } }] })),
        ("approval", json!({ "id": "p", "call": { "id": "a", "name": "f", "args": {} } })),
        (
            "tool_result",
            json!({ "id": "a", "name": "f", "result": [1], "error": null, "truncated": false, "round": 1 }),
        ),
        ("sources", json!({ "sources": [{ "id": "1", "title": "A", "snippet": "a" }] })),
        (
            "step",
            json!({ "type": "step", "id": "s", "name": "ran", "status": "running", "args": { "y": 2 }, "ts": 1 }),
        ),
        ("delta", json!({ "text": "It" })),
        ("step", json!({ "type": "step", "id": "s", "name": "ran", "status": "failed", "ts": 2 })),
        ("delta", json!({ "text": " is" })),
        ("result", json!({ "message": "It is 1.", "assistant": { "tokenCount": 9 } })),
        ("done", json!({ "status": "succeeded" })),
    ]
}

fn written(wire: Wire, log: &[(&str, Value)], after: i64) -> String {
    let (mut renderer, mut out) = (Renderer::after(wire, after), Vec::new());
    for (seq, (kind, data)) in (1..).zip(log) {
        renderer.push(seq, 1_700_000_000_000 + seq, kind, &data.to_string(), &mut out);
    }
    String::from_utf8(out).unwrap()
}

/// (id, event, data) of each frame.
fn frames(text: &str) -> Vec<(Option<i64>, Option<String>, String)> {
    let frames = text.split_terminator("\n\n").map(|frame| {
        let (mut id, mut name, mut data) = (None, None, String::new());
        for line in frame.split('\n') {
            match line.split_once(": ").unwrap() {
                ("id", value) => id = Some(value.parse().unwrap()),
                ("event", value) => name = Some(value.to_owned()),
                ("data", value) => data = value.to_owned(),
                other => panic!("{other:?}"),
            }
        }
        (id, name, data)
    });
    frames.collect()
}

const ADDING: [Wire; 2] = [Wire::OpenAi, Wire::Anthropic];

#[test]
fn a_reader_that_comes_back_gets_exactly_the_rest() {
    for wire in ADDING {
        let whole = written(wire, &log(), 0);
        for after in 0..=log().len() as i64 {
            let rest = written(wire, &log(), after);
            assert!(whole.ends_with(&rest), "{wire:?} after {after}");
            // The frames before are those up to the number that was seen.
            let seen = &whole[..whole.len() - rest.len()];
            let last = frames(seen).last().and_then(|frame| frame.0);
            assert!(last.is_none_or(|last| last <= after), "{wire:?} after {after}: {last:?}");
            let next = frames(&rest).iter().find_map(|frame| frame.0);
            assert!(next.is_none_or(|next| next > after), "{wire:?} after {after}: {next:?}");
        }
    }
}

#[test]
fn an_openai_client_reads_the_text_and_the_calls() {
    let frames = frames(&written(Wire::OpenAi, &log(), 0));
    assert_eq!(frames.last().unwrap().2, "[DONE]");
    let (mut text, mut thought, mut finish, mut named) = (String::new(), String::new(), None, Vec::new());
    for (_, name, data) in &frames[..frames.len() - 1] {
        let chunk: Value = serde_json::from_str(data).unwrap();
        assert_eq!(chunk["object"], "chat.completion.chunk");
        let choices = chunk["choices"].as_array().unwrap();
        for choice in choices {
            text += choice["delta"]["content"].as_str().unwrap_or("");
            thought += choice["delta"]["reasoning_content"].as_str().unwrap_or("");
            finish = choice["finish_reason"].as_str().map(str::to_owned).or(finish);
        }
        // A client takes the one for another stream's, the other for a failure of this one.
        assert_eq!(chunk["id"], "chatcmpl-0190a1b2-0000-7000-8000-000000000001");
        assert_eq!(chunk.get("error"), None, "{chunk}");
        if let Some(name) = name {
            assert!(choices.is_empty());
            named.push((name.as_str(), chunk));
        }
    }
    assert_eq!(
        (text.as_str(), thought.as_str(), finish.as_deref()),
        ("I look.\n\nIt is 1.", "hm\n", Some("stop"))
    );
    let names: Vec<&str> = named.iter().map(|(name, _)| *name).collect();
    assert_eq!(names, ["tool_calls", "approval", "tool_result", "sources", "tool_calls", "tool_result"]);
    assert_eq!(named[0].1["calls"], json!([{ "id": "a", "name": "f", "args": { "x": 1 } }]));
    let approval = json!({ "id": "p", "call": { "id": "a", "name": "f", "args": {} } });
    assert_eq!(named[1].1["approval"], approval);
    let result =
        json!({ "id": "a", "name": "f", "result": [1], "error": null, "truncated": false, "round": 1 });
    assert_eq!(named[2].1["tool_result"], result);
    assert_eq!(named[3].1["sources"], json!([{ "id": "1", "title": "A", "snippet": "a" }]));
    assert_eq!(named[4].1["calls"], json!([{ "id": "s", "name": "ran", "args": { "y": 2 } }]));
    assert_eq!(named[5].1["tool_result"]["error"], "failed");
}

#[test]
fn an_anthropic_client_reads_blocks_one_after_the_other() {
    let mut blocks: Vec<Value> = Vec::new();
    let (mut open, mut names, mut usage) = (None, Vec::new(), Value::Null);
    for (_, name, data) in frames(&written(Wire::Anthropic, &log(), 0)) {
        let data: Value = serde_json::from_str(&data).unwrap();
        let kind = data["type"].as_str().unwrap().to_owned();
        assert_eq!(name.as_deref(), Some(kind.as_str()));
        match kind.as_str() {
            "content_block_start" => {
                assert_eq!((open, &data["index"]), (None, &json!(blocks.len())));
                open = Some(blocks.len());
                blocks.push(data["content_block"].clone());
            }
            "content_block_delta" => {
                let at = open.unwrap();
                assert_eq!(data["index"], at);
                let block = blocks.get_mut(at).unwrap();
                let delta = &data["delta"];
                for (field, piece) in [("text", "text"), ("thinking", "thinking"), ("input", "partial_json")]
                {
                    if let Some(piece) = delta[piece].as_str() {
                        let before = block[field].as_str().unwrap_or("").to_owned();
                        block[field] = json!(before + piece);
                    }
                }
            }
            "content_block_stop" => assert_eq!(data["index"], open.take().unwrap()),
            "message_delta" => usage = data["usage"].clone(),
            _ => names.push(kind),
        }
    }
    assert_eq!(
        (names, usage),
        (vec!["message_start".into(), "message_stop".into()], json!({ "output_tokens": 9 }))
    );
    let kinds: Vec<&str> = blocks.iter().map(|block| block["type"].as_str().unwrap()).collect();
    assert_eq!(
        kinds,
        [
            "thinking",
            "text",
            "server_tool_use",
            "tool_result",
            "server_tool_use",
            "text",
            "tool_result",
            "text"
        ]
    );
    assert_eq!((&blocks[1]["text"], &blocks[2]["input"]), (&json!("I look."), &json!("{\"x\":1}")));
    assert_eq!((&blocks[5]["text"], &blocks[7]["text"]), (&json!("It"), &json!(" is 1.")));
    assert_eq!((&blocks[6]["tool_use_id"], &blocks[6]["is_error"]), (&json!("s"), &json!(true)));
}

#[test]
fn a_result_that_does_not_go_on_is_told_whole_and_a_failure_is_the_end() {
    let told = |wire, end: (&'static str, Value)| {
        let mut log = log()[..4].to_vec();
        log.push(end);
        log.push(("done", json!({ "status": "failed" })));
        written(wire, &log, 4)
    };
    let other = || ("result", json!({ "message": "Other", "assistant": null }));
    assert!(told(Wire::OpenAi, other()).contains(r#""content":"\n\nOther""#));
    let anthropic = told(Wire::Anthropic, other());
    assert!(anthropic.starts_with("event: content_block_stop"), "{anthropic}");
    assert!(anthropic.contains(r#""text":"Other""#) && anthropic.contains("message_stop"));
    let failed = || ("error", json!({ "code": "model_error", "message": "no", "assistant": null }));
    let openai = told(Wire::OpenAi, failed());
    assert!(openai.contains(r#""code":"model_error""#) && openai.ends_with("data: [DONE]\n\n"), "{openai}");
    let anthropic = told(Wire::Anthropic, failed());
    assert!(anthropic.contains("event: error") && !anthropic.contains("message_stop"), "{anthropic}");
}

/// A run whose provider repeats a call's id, and is stopped by a limit.
const REPEATED: [(&str, &str); 7] = [
    ("turn", r#"{"run":"0191d2c3-0000-7000-8000-000000000001","conversation":null}"#),
    ("tool_calls", r#"{"round":1,"calls":[{"id":"same","name":"f","args":{}}]}"#),
    ("tool_result", r#"{"id":"same","name":"f","result":"one","truncated":false,"round":1}"#),
    ("tool_calls", r#"{"round":2,"calls":[{"id":"same","name":"f","args":{}}]}"#),
    ("tool_result", r#"{"id":"same","name":"f","result":"two","truncated":false,"round":2}"#),
    (
        "result",
        r#"{"message":"Hi","assistant":{"tokenCount":55,
            "metadata":{"usage":{"input_tokens":110,"output_tokens":55,"cached_tokens":60,"cache_write_tokens":20},
            "finish":"length"}}}"#,
    ),
    ("done", r#"{"status":"succeeded"}"#),
];

fn repeated(mut renderer: Renderer) -> Vec<Value> {
    let mut out = Vec::new();
    for (seq, (kind, data)) in (1..).zip(REPEATED) {
        renderer.push(seq, 1_700_000_000_000, kind, data, &mut out);
    }
    let text = String::from_utf8(out).unwrap();
    let data = text.lines().filter_map(|line| line.strip_prefix("data: "));
    data.filter_map(|data| serde_json::from_str(data).ok()).collect()
}

#[test]
fn a_repeated_call_id_is_another_call_and_a_cut_is_told() {
    let frames = repeated(Renderer::after(Wire::Anthropic, 0));
    let blocks: Vec<&Value> = frames.iter().map(|frame| &frame["content_block"]).collect();
    let ids: Vec<&str> =
        blocks.iter().filter_map(|block| block["id"].as_str().or(block["tool_use_id"].as_str())).collect();
    assert_eq!(ids, ["same", "same", "same-2", "same-2"]);
    let end = frames.iter().find(|frame| frame["type"] == "message_delta").unwrap();
    let usage = json!({ "input_tokens": 30, "cache_creation_input_tokens": 20, "cache_read_input_tokens": 60,
        "output_tokens": 55 });
    assert_eq!(end["usage"], usage);
    assert_eq!(
        (end["delta"].get("stop_details"), end["delta"].get("container")),
        (Some(&Value::Null), Some(&Value::Null))
    );
    assert_eq!(end["delta"]["stop_reason"], "max_tokens");
    let frames = repeated(Renderer::after(Wire::OpenAi, 0));
    assert!(frames.iter().any(|frame| frame["choices"][0]["finish_reason"] == "length"));
    let frames = repeated(Renderer::after(Wire::UiMessage, 0));
    assert_eq!(frames.last().unwrap()["finishReason"], "length");
    let frames = repeated(Renderer::after(Wire::AgUi, 0));
    assert_eq!(frames.last().unwrap()["result"], json!({ "finishReason": "length" }));
    let frames = repeated(Renderer::responses(Responses::new(json!({})), -1));
    let end = frames.last().unwrap();
    assert_eq!(
        (&end["type"], &end["response"]["status"]),
        (&"response.incomplete".into(), &"incomplete".into())
    );
    assert_eq!(end["response"]["incomplete_details"]["reason"], "max_output_tokens");
    // What was being said when it was cut is not complete; what came before is.
    let done: Vec<&Value> =
        frames.iter().filter(|frame| frame["type"] == "response.output_item.done").collect();
    let (last, before) = done.split_last().unwrap();
    assert_eq!((&last["item"]["type"], &last["item"]["status"]), (&"message".into(), &"incomplete".into()));
    assert!(before.iter().all(|frame| frame["item"]["status"] == "completed"), "{before:?}");
}

#[test]
fn what_is_asked_once_more_after_a_restart_is_one_question() {
    let mut log = log();
    let asked = log[5].clone();
    log.truncate(6);
    log.push(asked);
    let mut voice = Responses::new(json!({}));
    for (seq, (kind, data)) in (1..).zip(&log) {
        voice.push(seq, 1, kind, &data.to_string(), -1, &mut Vec::new());
    }
    assert_eq!(voice.waiting(), [("p".to_owned(), "a".to_owned())]);
    let output = voice.whole()["output"].as_array().cloned().unwrap();
    assert_eq!(output.iter().filter(|item| item["type"] == "mcp_approval_request").count(), 1);
}

#[test]
fn a_refusal_is_told() {
    let result = r#"{"message":"No.","assistant":{"metadata":{"finish":"content_filter"}}}"#;
    let told = |mut renderer: Renderer| {
        let mut out = Vec::new();
        let turn = r#"{"run":"0191d2c3-0000-7000-8000-000000000001","conversation":null}"#;
        for (seq, (kind, data)) in
            (1..).zip([("turn", turn), ("result", result), ("done", r#"{"status":"succeeded"}"#)])
        {
            renderer.push(seq, 1_700_000_000_000, kind, data, &mut out);
        }
        String::from_utf8(out).unwrap()
    };
    for (wire, word) in [
        (Wire::OpenAi, r#""finish_reason":"content_filter""#),
        (Wire::Anthropic, r#""stop_reason":"refusal""#),
        (Wire::UiMessage, r#""finishReason":"content-filter""#),
        (Wire::AgUi, r#""result":{"finishReason":"content_filter"}"#),
    ] {
        let told = told(Renderer::after(wire, 0));
        assert!(told.contains(word), "{word}: {told}");
    }
    let told = told(Renderer::responses(Responses::new(json!({})), -1));
    assert!(told.contains("event: response.incomplete\n"), "{told}");
    assert!(told.contains(r#""incomplete_details":{"reason":"content_filter"}"#), "{told}");
}

#[test]
fn a_reload_names_calls_as_they_were_told() {
    let call = |id: &str, round: u32| json!({ "type": "tool_call", "id": id, "name": "f", "args": {}, "result": "x", "round": round });
    let content = json!([call("same", 1), call("same", 2), call("same-2", 3)]).to_string();
    let message = Message {
        id: uuid::Uuid::nil(),
        seq: 1,
        role: MessageRole::Assistant,
        text: String::new(),
        content,
        file_attachments: "[]".into(),
        sources: "[]".into(),
        token_count: 0,
        metadata: "{}".into(),
        created_at: jiff::Timestamp::UNIX_EPOCH,
    };
    let shown = ui_message("", "c", "m", &message, None);
    let ids: Vec<&Value> = shown["parts"]
        .as_array()
        .unwrap()
        .iter()
        .map(|part| &part["toolCallId"])
        .filter(|id| !id.is_null())
        .collect();
    assert_eq!(ids, ["same", "same-2", "same-2-2"]);
}

/// A step that says what it is given only with a later line, and then something else.
fn late(between: bool) -> Vec<(&'static str, Value)> {
    let step = |status: &str, args: Option<Value>| {
        let mut step = json!({ "type": "step", "id": "s", "name": "look", "status": status, "ts": 1 });
        if let Some(args) = args {
            step["args"] = args;
        }
        ("step", step)
    };
    let mut log = vec![log().remove(0), step("running", None)];
    log.extend(between.then(|| ("delta", json!({ "text": "Hm." }))));
    log.push(step("running", Some(json!({ "x": 1 }))));
    log.push(step("running", Some(json!({ "x": 1 }))));
    log.push(step("succeeded", Some(json!({ "x": 2 }))));
    log.push(("result", json!({ "message": "Done.", "assistant": null })));
    log.push(("done", json!({ "status": "succeeded" })));
    log
}

#[test]
fn what_a_step_is_given_late_reaches_every_dialect() {
    let data = |wire, log: &[(&str, Value)]| -> Vec<Value> {
        let frames = frames(&written(wire, log, 0)).into_iter();
        frames.filter_map(|(_, _, data)| serde_json::from_str(&data).ok()).collect()
    };
    for between in [false, true] {
        let log = late(between);
        let given = |wire, path: &str| -> Vec<Value> {
            data(wire, &log).iter().filter_map(|frame| frame.pointer(path).cloned()).collect()
        };
        // The last word, where it can be said once more.
        let inputs = [json!({}), json!({ "x": 1 }), json!({ "x": 2 })];
        assert_eq!(given(Wire::UiMessage, "/input"), inputs);
        let args = [Value::Null, json!({ "x": 1 }), json!({ "x": 2 })];
        assert_eq!(given(Wire::OpenAi, "/calls/0/args"), args);
        // Into the block while it is open; else once more.
        let json = given(Wire::Anthropic, "/delta/partial_json");
        let blocks = given(Wire::Anthropic, "/content_block/id");
        if between {
            assert_eq!(
                (json, blocks.len()),
                (vec!["{}".into(), r#"{"x":1}"#.into(), r#"{"x":2}"#.into()], 3)
            );
        } else {
            assert_eq!((json, blocks.len()), (vec![r#"{"x":1}"#.into(), r#"{"x":2}"#.into()], 2));
        }
        // Elsewhere the first word stays said, and what is read anew has the last.
        let kinds: Vec<Value> = given(Wire::AgUi, "/type");
        assert_eq!(kinds.iter().filter(|kind| *kind == "TOOL_CALL_ARGS").count(), 1);
        let mut messages = Vec::new();
        let events: Vec<(&str, String)> = log.iter().map(|(kind, data)| (*kind, data.to_string())).collect();
        ag_ui_messages("", events.iter().map(|(kind, data)| (*kind, data.as_str())), &mut messages);
        assert_eq!(messages[0]["toolCalls"][0]["function"]["arguments"], r#"{"x":2}"#);
        let (mut voice, mut out) = (Responses::new(json!({})), Vec::new());
        for (seq, (kind, data)) in (1..).zip(&log) {
            voice.push(seq, 1, kind, &data.to_string(), -1, &mut out);
        }
        let out = String::from_utf8(out).unwrap();
        assert!(out.contains(r#""type":"response.function_call_arguments.done""#));
        assert!(out.contains(r#""arguments":"{\"x\":1}""#), "{out}");
        assert_eq!(voice.whole()["output"][0]["arguments"], r#"{"x":2}"#);
    }
}

#[test]
fn a_step_that_went_well_after_all_is_no_failure() {
    let id = "0190a1b2-0000-7000-8000-000000000001";
    let content = |status: &str| {
        json!([{ "type": "step", "id": "s", "name": "look", "status": status, "args": {}, "result": [1],
            "error": "no", "startedAt": 1 }])
    };
    for (status, failed) in [("succeeded", false), ("failed", true), ("interrupted", true)] {
        let message = crate::prompt::tests::message(1, MessageRole::Assistant, &content(status));
        let part = ui_message("", id, id, &message, None)["parts"][1].clone();
        let state = if failed { "output-error" } else { "output-available" };
        assert_eq!(part["state"], state, "{part}");
        // What is told of the stored answer says the same.
        let (events, _) = crate::answer::replay_events(&message.content);
        let log: Vec<(&str, Value)> = [("turn", json!({ "run": id }))]
            .into_iter()
            .chain(events.iter().map(|event| (event.name(), json!(event))))
            .collect();
        let chunks = written(Wire::UiMessage, &log, 0);
        assert_eq!(chunks.contains("tool-output-error"), status == "failed", "{chunks}");
        assert_eq!(chunks.contains("tool-output-available"), status == "succeeded", "{chunks}");
    }
}

#[test]
fn a_step_that_is_open_again_at_the_end_is_told_as_interrupted() {
    let step =
        |status: &str| ("step", json!({ "type": "step", "id": "s", "name": "look", "status": status }));
    let log = vec![
        log().remove(0),
        step("running"),
        step("succeeded"),
        step("running"),
        ("result", json!({ "message": "Done.", "assistant": null })),
        ("done", json!({ "status": "succeeded" })),
    ];
    for (wire, word) in
        [(Wire::OpenAi, INTERRUPTED), (Wire::Anthropic, INTERRUPTED), (Wire::UiMessage, "tool-output-error")]
    {
        assert!(written(wire, &log, 0).contains(word), "{wire:?}");
        assert!(!written(wire, &[&log[..3], &log[4..]].concat(), 0).contains(word), "{wire:?}");
    }
}

#[test]
fn a_page_that_joins_before_a_step_is_given_anything_hears_of_it_once() {
    let late = late(true);
    let words = || ("delta", json!({ "text": "I look." }));
    // The step alone, and behind words that it hangs on.
    for (log, seen) in [(late.clone(), 3), ([&late[..1], &[words()], &late[1..2], &late[3..]].concat(), 3)] {
        let mut messages = Vec::new();
        let before: Vec<(&str, String)> =
            log.iter().take(seen).map(|(kind, data)| (*kind, data.to_string())).collect();
        ag_ui_messages("", before.iter().map(|(kind, data)| (*kind, data.as_str())), &mut messages);
        let made = messages.iter().find(|message| message["toolCalls"].is_array()).cloned().unwrap();
        let mut renderer = Renderer::after(Wire::AgUi, seen as i64);
        let mut out = Vec::new();
        for (seq, (kind, data)) in (1..).zip(&log).take(seen) {
            renderer.push(seq, 1, kind, &data.to_string(), &mut out);
        }
        renderer.join(&messages, &mut out);
        for (seq, (kind, data)) in (1..).zip(&log).skip(seen) {
            renderer.push(seq, 1, kind, &data.to_string(), &mut out);
        }
        let frames = frames(&String::from_utf8(out).unwrap()).into_iter();
        let events: Vec<Value> = frames.map(|(_, _, data)| serde_json::from_str(&data).unwrap()).collect();
        let of_call = events.iter().filter(|event| !event["toolCallId"].is_null());
        let kinds: Vec<&str> = of_call.map(|event| event["type"].as_str().unwrap()).collect();
        assert_eq!(kinds, ["TOOL_CALL_START", "TOOL_CALL_ARGS", "TOOL_CALL_END", "TOOL_CALL_RESULT"]);
        // The messages that the page has in the end.
        let mut shown = events[1]["messages"].as_array().unwrap().clone();
        ag_ui::apply(&events[2..], &mut shown);
        let calls: Vec<&Value> =
            shown.iter().filter_map(|one| one["toolCalls"].as_array()).flatten().collect();
        assert_eq!((calls.len(), &calls[0]["id"]), (1, &made["toolCalls"][0]["id"]), "{shown:?}");
        let parent = shown.iter().find(|message| message["toolCalls"].is_array()).unwrap();
        assert_eq!((&parent["id"], &parent["content"]), (&made["id"], &made["content"]));
        assert_eq!(shown.iter().filter(|message| message["id"] == made["id"]).count(), 1, "{shown:?}");
    }
}

#[test]
fn an_anthropic_client_has_sources_as_citations_and_files_as_blocks() {
    let source = |id: &str| json!({ "id": id, "title": "A", "url": "https://a.example/", "snippet": "a" });
    let sources = |id: &str| ("sources", json!({ "sources": [source(id)] }));
    let file = json!({ "type": "file", "fileId": "f", "name": "a.csv", "mimeType": "text/csv", "size": 1, "sha256": "0" });
    let delta = |text: &str| ("delta", json!({ "text": text }));
    let log = vec![
        log().remove(0),
        sources("before"),
        delta("One."),
        sources("after"),
        sources("after"),
        delta("Two."),
        ("file", file),
        sources("last"),
        ("result", json!({ "message": "", "assistant": null })),
        ("done", json!({ "status": "succeeded" })),
    ];
    let mut blocks: Vec<(String, String, usize)> = Vec::new();
    for (_, _, data) in frames(&written(Wire::Anthropic, &log, 0)) {
        let data: Value = serde_json::from_str(&data).unwrap();
        let delta = &data["delta"];
        match (data["type"].as_str().unwrap(), delta["type"].as_str()) {
            ("content_block_start", _) => {
                let kind = data["content_block"]["type"].as_str().unwrap().to_owned();
                blocks.push((kind, String::new(), 0));
            }
            (_, Some("text_delta")) => blocks.last_mut().unwrap().1 += delta["text"].as_str().unwrap(),
            (_, Some("citations_delta")) => {
                assert_eq!(delta["citation"]["source"], "https://a.example/");
                blocks.last_mut().unwrap().2 += 1;
            }
            _ => {}
        }
    }
    let block = |kind: &str, text: &str, cited| (kind.to_owned(), text.to_owned(), cited);
    let expected = [
        block("text", "One.", 3),
        block("text", "Two.", 0),
        block("container_upload", "", 0),
        block("text", "", 1),
    ];
    assert_eq!(blocks, expected);
}

#[test]
fn what_never_ended_is_told_so_before_the_end() {
    let step = |id: &str, status: &str| json!({ "type": "step", "id": id, "name": "ran", "status": status, "args": {}, "ts": 1 });
    let calls: Vec<Value> = ["a", "b"].map(|id| json!({ "id": id, "name": "f", "args": {} })).into();
    let given = json!({ "id": "a", "name": "f", "result": 1, "error": null, "truncated": false, "round": 1 });
    let before = [
        ("turn", json!({ "run": "r", "conversation": null })),
        ("tool_calls", json!({ "round": 1, "calls": calls })),
        ("tool_result", given),
        ("step", step("s", "running")),
        ("step", step("t", "running")),
        ("step", step("t", "succeeded")),
    ];
    let ends = [
        ("error", json!({ "code": "cancelled", "message": "stopped", "assistant": null })),
        ("result", json!({ "message": "Done.", "assistant": null })),
    ];
    for end in ends {
        let log: Vec<(&str, Value)> = before.iter().cloned().chain([end]).collect();
        let told = frames(&written(Wire::OpenAi, &log, 0));
        let ended: Vec<Value> = told[told.len() - 3..told.len() - 1]
            .iter()
            .map(|(id, name, data)| {
                assert_eq!((id, name.as_deref()), (&None, Some("tool_result")));
                serde_json::from_str::<Value>(data).unwrap()["tool_result"].take()
            })
            .collect();
        let open = |id: &str, name: &str, round: u64| {
            json!({ "id": id, "name": name, "result": null, "error": "interrupted", "truncated": false,
                "round": round })
        };
        assert_eq!(ended, [open("b", "f", 1), open("s", "ran", 0)]);
        assert_eq!(told.last().unwrap().0, Some(log.len() as i64));

        let told = frames(&written(Wire::Anthropic, &log, 0));
        let blocks = told.iter().map(|(_, _, data)| serde_json::from_str::<Value>(data).unwrap());
        let results = blocks.filter(|block| block["content_block"]["type"] == "tool_result");
        let results: Vec<(Value, Value, Value)> = results
            .map(|mut block| {
                let block = &mut block["content_block"];
                (block["tool_use_id"].take(), block["is_error"].take(), block["content"][0]["text"].take())
            })
            .collect();
        let expected =
            [("a", false, "1"), ("t", false, ""), ("b", true, "interrupted"), ("s", true, "interrupted")];
        assert_eq!(results, expected.map(|(id, failed, text)| (json!(id), json!(failed), json!(text))));
    }
}

#[test]
fn a_text_without_a_word_is_no_block_to_an_anthropic_client() {
    let log = [
        ("turn", json!({ "run": "r", "conversation": null })),
        ("delta", json!({ "text": "" })),
        ("tool_calls", json!({ "round": 1, "calls": [{ "id": "a", "name": "f", "args": {} }] })),
        ("delta", json!({ "text": "" })),
        ("error", json!({ "code": "cancelled", "message": "stopped", "assistant": null })),
    ];
    assert!(!written(Wire::Anthropic, &log, 0).contains("\"text\":\"\""));
}

/// A stream pauses for people once every other call has ended, but for those that another dialect's client makes.
#[test]
fn a_run_rests_when_nothing_but_people_is_waited_for() {
    let call = |id: &str| json!({ "id": id, "name": "f", "args": {} });
    let asked = |id: &str, client: bool| {
        ("approval", json!({ "id": format!("p-{id}"), "call": call(id), "client": client }))
    };
    let ended = |id: &str| {
        let end =
            json!({ "id": id, "name": "f", "result": 1, "error": null, "truncated": false, "round": 1 });
        ("tool_result", end)
    };
    let log = [
        ("turn", json!({ "conversation": null, "run": "r", "message": null, "conversation_id": null })),
        ("tool_calls", json!({ "round": 1, "calls": [call("a"), call("b"), call("c"), call("d")] })),
        asked("a", false),
        asked("b", false),
        asked("c", true),
        ended("d"),
        ended("a"),
        ended("b"),
    ];
    let own = |ids: &[&str]| -> Vec<(String, String)> {
        ids.iter().map(|id| (format!("p-{id}"), (*id).to_owned())).collect()
    };
    let responses = Renderer::responses(Responses::new(json!({})), -1);
    for (mut renderer, client) in [
        (Renderer::after(Wire::UiMessage, 0), false),
        (Renderer::after(Wire::AgUi, 0), false),
        (responses, true),
    ] {
        let mut rests = Vec::new();
        for (seq, (kind, data)) in (1..).zip(&log) {
            renderer.push(seq, seq, kind, &data.to_string(), &mut Vec::new());
            rests.push(renderer.resting().to_vec());
        }
        let last = if client {
            [own(&["a", "b", "c"]), own(&["b", "c"]), own(&["c"])]
        } else {
            [own(&["a", "b"]), own(&["b"]), own(&[])]
        };
        assert_eq!(rests[..5], vec![Vec::new(); 5], "while d is being made");
        assert_eq!(rests[5..], last);
    }
}
