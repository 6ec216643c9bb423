//! Threads of every odd kind, and a reader as strict as the strictest provider.

use std::collections::HashSet;

use serde_json::json;
use uuid::Uuid;

use super::*;
use crate::model::Prompt;
use crate::time::from_ms;

/// Panics unless both vendors accept the prompt.
pub(crate) fn accepted(prompt: &Prompt) {
    let messages = &prompt.messages;
    let shown = || serde_json::to_string_pretty(messages).unwrap();
    assert!(matches!(messages.first(), Some(Said::User(_))), "begins with the user: {}", shown());
    let last = messages.last();
    assert!(
        matches!(last, Some(Said::User(_) | Said::Answers(_))),
        "ends with something to answer: {}",
        shown()
    );
    let mut ids = HashSet::new();
    let word =
        |text: &str| !text.is_empty() && text.chars().all(|c| c.is_ascii_alphanumeric() || "_-".contains(c));
    for (at, said) in messages.iter().enumerate() {
        let next = messages.get(at + 1);
        match said {
            Said::User(words) => {
                assert!(!words.text.trim().is_empty());
                assert!(!matches!(next, Some(Said::User(_) | Said::Answers(_))), "{}", shown());
            }
            Said::Assistant { text, calls } if calls.is_empty() => {
                assert!(!text.trim().is_empty());
                assert!(matches!(next, Some(Said::User(_))), "{}", shown());
            }
            Said::Assistant { text, calls } => {
                assert!(text.is_empty() || !text.trim().is_empty(), "a text without a word: {}", shown());
                let Some(Said::Answers(answers)) = next else { panic!("calls without answers: {}", shown()) };
                let pairs = calls.iter().map(|call| &call.id).zip(answers.iter().map(|answer| &answer.id));
                assert!(
                    calls.len() == answers.len() && pairs.into_iter().all(|(a, b)| a == b),
                    "{}",
                    shown()
                );
                for call in calls {
                    assert!(word(&call.id) && call.id.len() <= 40 && ids.insert(&call.id), "{}", shown());
                    assert!(word(&call.name) && call.name.len() <= 64, "{}", shown());
                    let args: Value = serde_json::from_str(&call.args).unwrap();
                    assert!(args.is_object(), "{}", shown());
                }
            }
            Said::Answers(answers) => {
                assert!(matches!(at.checked_sub(1).map(|at| &messages[at]), Some(Said::Assistant { .. })));
                assert!(answers.iter().all(|answer| !answer.text.is_empty()));
                assert!(!matches!(next, Some(Said::Answers(_))));
            }
        }
    }
}

pub(crate) fn message(seq: i64, role: MessageRole, content: &Value) -> Message {
    let texts: Vec<&str> = content
        .as_array()
        .unwrap()
        .iter()
        .filter(|block| block["type"] == "text")
        .filter_map(|block| block["text"].as_str())
        .collect();
    Message {
        id: Uuid::from_u128(seq as u128),
        seq,
        role,
        text: texts.join("\n\n"),
        content: content.to_string(),
        file_attachments: "[]".into(),
        sources: "[]".into(),
        token_count: 0,
        metadata: "{}".into(),
        created_at: from_ms(1_700_000_000_000 + seq),
    }
}

fn said(content: &Value) -> Value {
    serde_json::to_value(of_message(&message(7, MessageRole::Assistant, content))).unwrap()
}

fn text(text: &str) -> Value {
    json!({ "type": "text", "text": text })
}

fn called(round: u32, args: &Value, result: &Value, error: &Value) -> Value {
    let id = format!("id {error}");
    json!({ "type": "tool_call", "id": id, "name": "f", "args": args, "result": result, "error": error,
        "truncated": false, "round": round })
}

#[test]
fn a_call_that_came_to_nothing_is_told_so() {
    for (error, text) in [(json!(null), NO_OUTPUT), (json!("interrupted"), UNKNOWN)] {
        let told = said(&json!([called(1, &json!({}), &json!(null), &error)]));
        assert_eq!(told[1]["answers"][0]["text"], text);
    }
}

#[test]
fn an_answer_is_told_with_its_calls_round_by_round() {
    let null = json!(null);
    let content = json!([
        { "type": "reasoning", "text": "hm" },
        text("I look."),
        called(1, &json!({ "x": 1 }), &json!("alpha"), &null),
        called(1, &json!("{bad"), &null, &json!("the arguments are not valid JSON")),
        called(2, &null, &json!({ "rows": [1] }), &null),
        { "type": "step", "id": "s", "name": "ran", "status": "succeeded", "startedAt": 1 },
        text("Alpha."),
        { "type": "source", "id": "1", "title": "A", "snippet": "a" },
        text("Done."),
        called(3, &json!({}), &null, &json!("interrupted")),
    ]);
    assert_eq!(
        said(&content),
        json!([
            { "assistant": { "text": "I look.", "calls": [
                { "id": "call_7_0", "name": "f", "args": "{\"x\":1}" },
                { "id": "call_7_1", "name": "f", "args": "{\"invalid_arguments\":\"{bad\"}" }] } },
            { "answers": [
                { "id": "call_7_0", "name": "f", "text": "alpha", "failed": false },
                { "id": "call_7_1", "name": "f", "text": "Error: the arguments are not valid JSON", "failed": true }] },
            { "assistant": { "text": "", "calls": [{ "id": "call_7_2", "name": "f", "args": "{}" }] } },
            { "answers": [{ "id": "call_7_2", "name": "f", "text": "{\"rows\":[1]}", "failed": false }] },
            { "assistant": { "text": "Alpha.\n\nDone.", "calls": [{ "id": "call_7_3", "name": "f", "args": "{}" }] } },
            { "answers": [{ "id": "call_7_3", "name": "f", "text": UNKNOWN, "failed": true }] },
        ])
    );
}

#[test]
fn an_answer_without_a_word_is_told_as_none() {
    for content in [
        json!([]),
        json!([text("")]),
        json!([text(" \n")]),
        json!([{ "type": "error", "code": "cancelled", "message": "m" }]),
        json!([{ "type": "new_kind", "x": 1 }]),
        json!("broken"),
    ] {
        let message =
            Message { content: content.to_string(), ..message(7, MessageRole::Assistant, &json!([])) };
        let none = Said::Assistant { text: NO_ANSWER.to_owned(), calls: Vec::new() };
        assert_eq!(of_message(&message), [none], "{content}");
    }
}

#[test]
fn white_space_beside_calls_is_told_as_none() {
    let (null, result) = (json!(null), json!("alpha"));
    let mut content = json!([
        text("\n\n"),
        called(1, &json!({}), &result, &null),
        text(" "),
        called(1, &json!({}), &result, &null),
        text("\n"),
        called(2, &json!({}), &result, &null),
    ]);
    content[3]["id"] = json!("another");
    let called = |places: &[usize]| -> Value {
        let call = |place: &usize| json!({ "id": call_id(7, *place), "name": "f", "args": "{}" });
        let calls: Vec<Value> = places.iter().map(call).collect();
        json!({ "assistant": { "text": "", "calls": calls } })
    };
    let told = said(&content);
    assert_eq!(
        (&told[0], &told[2], told.as_array().map(Vec::len)),
        (&called(&[0, 1]), &called(&[2]), Some(4))
    );
}

#[test]
fn a_user_is_told_with_the_names_of_what_was_attached() {
    let mut message = message(1, MessageRole::User, &json!([text("Look")]));
    message.file_attachments =
        json!([{ "fileId": Uuid::nil(), "name": "a.txt", "mimeType": "text/plain", "size": 3, "sha256": "" }]).to_string();
    let shown = crate::part::shown(&message, crate::part::Takes::default(), 1000);
    let told = words(&message, shown);
    assert_eq!(told.text, "Look\n\n[Attached files: a.txt (text/plain, 3 bytes)]");
    assert_eq!((told.parts.len(), of_message(&message)), (1, vec![Said::User("Look".into())]));
}

#[test]
fn any_history_becomes_one_that_is_accepted() {
    let user = |text: &str| Said::User(text.into());
    let plain = |text: &str| Said::Assistant { text: text.into(), calls: vec![] };
    let call = |id: &str| Call { id: id.into(), name: "f".into(), args: "{}".into() };
    let calls = |text: &str, ids: &[&str]| Said::Assistant {
        text: text.into(),
        calls: ids.iter().map(|id| call(id)).collect(),
    };
    let answer = |id: &str| Answer { id: id.into(), name: "f".into(), text: "x".into(), failed: false };
    let unknown = |id: &str| Answer { text: UNKNOWN.into(), failed: true, ..answer(id) };
    let answers = |ids: &[&str]| Said::Answers(ids.iter().map(|id| answer(id)).collect());
    for (name, given, expected) in [
        ("two questions", vec![user("a"), user("b")], vec![user("a\n\nb")]),
        ("an empty answer", vec![user("a"), plain(" "), user("b")], vec![user("a\n\nb")]),
        (
            "two answers",
            vec![user("a"), plain("1"), plain("2"), user("b")],
            vec![user("a"), plain("1\n\n2"), user("b")],
        ),
        ("an answer first", vec![plain("hi"), answers(&["x"]), user("a")], vec![user("a")]),
        ("an answer last", vec![user("a"), plain("hi")], vec![user("a")]),
        (
            "calls without answers",
            vec![user("a"), calls("", &["1", "2"]), user("b")],
            vec![
                user("a"),
                calls("", &["1", "2"]),
                Said::Answers(vec![unknown("1"), unknown("2")]),
                user("b"),
            ],
        ),
        (
            "answers in another order, and one too many",
            vec![user("a"), calls("t", &["1", "2"]), answers(&["9", "2", "1"])],
            vec![user("a"), calls("t", &["1", "2"]), answers(&["1", "2"])],
        ),
        ("answers to nothing", vec![user("a"), answers(&["1"]), user("b")], vec![user("a\n\nb")]),
        (
            "white space and then calls",
            vec![
                user("a"),
                plain("t"),
                calls("\n\n", &["1"]),
                answers(&["1"]),
                calls(" ", &["2"]),
                answers(&["2"]),
            ],
            vec![user("a"), calls("t", &["1"]), answers(&["1"]), calls("", &["2"]), answers(&["2"])],
        ),
        (
            "a text and then calls",
            vec![user("a"), plain("t"), calls("u", &["1"]), answers(&["1"])],
            vec![user("a"), calls("t\n\nu", &["1"]), answers(&["1"])],
        ),
    ] {
        let got = valid(given);
        assert_eq!(got, expected, "{name}");
        assert_eq!(valid(got.clone()), got, "{name}: what is valid stays");
        accepted(&Prompt { system: String::new(), messages: got });
    }
}

#[test]
fn names_that_a_provider_would_refuse_are_made_good() {
    for (name, good) in [("a.b c", "a_b_c"), ("", "unknown"), ("ü", "_"), (&"x".repeat(99), &"x".repeat(64))]
    {
        assert_eq!(tool_name(name), good);
    }
}
