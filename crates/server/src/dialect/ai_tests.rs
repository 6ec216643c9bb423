//! What a request of the AI SDK is read as, and what is refused at its place.

use serde_json::json;

use super::*;

fn user(id: &str, text: &str) -> Value {
    json!({ "id": id, "role": "user", "parts": [{ "type": "text", "text": text }] })
}

#[test]
fn the_last_message_is_the_turn_and_the_others_come_before() {
    let answer = json!({ "id": "a1", "role": "assistant", "parts": [{ "type": "step-start" },
        { "type": "reasoning", "text": "hm" }, { "type": "text", "text": "Hello." },
        { "type": "dynamic-tool", "toolName": "look", "toolCallId": "c", "state": "output-available",
          "input": { "x": 1 }, "output": [1] },
        { "type": "dynamic-tool", "toolName": "look", "toolCallId": "d", "state": "output-denied", "input": {},
          "approval": { "id": "p", "approved": false, "reason": "no" } }] });
    let body = json!({ "id": "chat-1", "trigger": "submit-message", "mode": "ask", "whatever": 1,
        "messages": [user("u1", "hi"), answer, user("u2", "more")] });
    let asked = read(&body).unwrap();
    assert_eq!(asked.conversation.as_deref(), Some("chat-1"));
    assert_eq!(asked.options.on_disconnect, OnDisconnect::Continue);
    let Want::Answer { message, edit: false } = asked.want else { panic!("{:?}", asked.want) };
    assert_eq!(
        (message.name.as_deref(), message.texts.as_slice()),
        (Some("u2"), ["more".to_owned()].as_slice())
    );
    assert_eq!(asked.before.len(), 2);
    let content = serde_json::to_value(&asked.before[1].content).unwrap();
    assert_eq!(content[1], json!({ "type": "text", "text": "Hello." }));
    assert_eq!((&content[2]["type"], &content[2]["result"]), (&json!("tool_call"), &json!([1])));
    assert_eq!(content[3]["error"], "a person did not allow this call: no");
}

#[test]
fn one_message_edits_and_repeats() {
    let one = read(&json!({ "id": "c", "message": user("u", "hi") })).unwrap();
    assert!(matches!(one.want, Want::Answer { edit: false, .. }));
    let edit = read(&json!({ "id": "c", "messages": [user("u", "ho")], "messageId": "u" })).unwrap();
    assert!(matches!(edit.want, Want::Answer { edit: true, .. }));
    let again = json!({ "id": "c", "messages": [user("u", "hi")], "trigger": "regenerate-message" });
    let Want::Again { message: None, of: Some(of) } = read(&again).unwrap().want else { panic!() };
    assert_eq!(of.name.as_deref(), Some("u"));
    let bare = json!({ "id": "c", "trigger": "regenerate-message", "messageId": "a" });
    assert!(matches!(read(&bare).unwrap().want, Want::Again { message: Some(_), of: None }));
}

#[test]
fn answers_to_approvals_are_decisions() {
    let part = |state: &str, approved: Value| {
        json!({ "type": "dynamic-tool", "toolName": "t", "toolCallId": "c", "state": state,
            "approval": { "id": "p", "approved": approved, "reason": "no" } })
    };
    let assistant = |part: Value| json!({ "id": "a", "role": "assistant", "parts": [part] });
    let body = json!({ "id": "c", "messages": [assistant(part("approval-responded", json!(false)))] });
    let Want::Decide { decided, .. } = read(&body).unwrap().want else { panic!() };
    assert_eq!((decided[0].approval.as_str(), decided[0].approve), ("p", false));
    let waiting = json!({ "id": "c", "messages": [assistant(part("approval-requested", Value::Null))] });
    assert!(read(&waiting).is_err());
}

#[test]
fn what_does_not_fit_is_refused_at_its_place() {
    let file = |url: Value| json!({ "id": "u", "role": "user", "parts": [{ "type": "file", "url": url }] });
    for (body, pointer) in [
        (json!({}), "/messages"),
        (json!({ "id": 7 }), "/id"),
        (json!({ "id": "" }), "/id"),
        (json!({ "id": "a\u{7}" }), "/id"),
        (json!({ "messages": "hi" }), "/messages"),
        (json!({ "messages": [] }), "/messages"),
        (json!({ "messages": [{ "role": "tool" }] }), "/messages/0/role"),
        (json!({ "messages": [user("u", " ")] }), "/messages/0"),
        (
            json!({ "message": { "role": "user", "parts": [{ "type": "text", "text": 1 }] } }),
            "/message/parts/0/text",
        ),
        (json!({ "messages": [file(Value::Null)] }), "/messages/0/parts/0/url"),
        (json!({ "messages": [user("u", "hi")], "trigger": "resume-stream" }), "/trigger"),
        (json!({ "messages": [user("u", "hi")], "mode": "dream" }), "/mode"),
    ] {
        let problem = read(&body).expect_err(&body.to_string());
        let source = serde_json::to_value(&problem.source).unwrap();
        assert_eq!(source["pointer"], pointer, "{body}: {}", problem.detail);
    }
}
