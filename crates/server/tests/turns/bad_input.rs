//! Requests that are refused: the answer names the input and says what to do, and nothing is written.

use reqwest::Method;
use serde_json::{Value, json};
use testkit::sandbox::Release;
use testkit::server::{Answer, Backend};

use crate::scripts::wait_after;
use crate::world::{CONVERSATIONS, World, ask, refused, stories};

stories!(bad_bodies, bad_headers_and_parameters, bad_edits_of_a_run, what_is_not_there);

/// The body, the status and code it gets, and what the answer names: a pointer, or a word of its detail.
fn bodies() -> Vec<(String, u16, &'static str, &'static str)> {
    let text = |value: Value| value.to_string();
    let block = |block: Value| text(json!({ "message": [block] }));
    let id = "0190d3a0-0000-7000-8000-000000000000";
    vec![
        (String::new(), 400, "malformed_document", ""),
        ("{".into(), 400, "malformed_document", ""),
        ("[]".into(), 422, "invalid_value", ""),
        ("\"hi\"".into(), 422, "invalid_value", ""),
        (text(json!({})), 422, "invalid_value", "/message"),
        (text(json!({ "message": null })), 422, "invalid_value", "/message"),
        (text(json!({ "message": "" })), 422, "invalid_value", "/message"),
        (text(json!({ "message": " \n\t" })), 422, "invalid_value", "/message"),
        (text(json!({ "message": 5 })), 422, "invalid_value", "/message"),
        (text(json!({ "message": {} })), 422, "invalid_value", "/message"),
        (text(json!({ "message": [] })), 422, "invalid_value", "/message"),
        (block(json!("hi")), 422, "invalid_value", "/message/0"),
        (block(json!({ "type": "text" })), 422, "invalid_value", "/message/0/text"),
        (block(json!({ "type": "text", "text": 1 })), 422, "invalid_value", "/message/0/text"),
        (block(json!({ "type": "step", "id": "s" })), 422, "invalid_value", "/message/0/type"),
        (r#"{"message":"a","message":"b"}"#.into(), 400, "malformed_document", "/message"),
        (r#"{"message":"\u0000"}"#.into(), 400, "malformed_document", "/message"),
        (r#"{"message":"\ud800"}"#.into(), 400, "malformed_document", ""),
        (text(json!({ "message": "hi", "surprise": 1 })), 400, "unknown_field", "surprise"),
        (text(json!({ "message": "hi", "mode": "dream" })), 422, "invalid_value", "dream"),
        (text(json!({ "message": "hi", "source": "moon" })), 422, "invalid_value", "moon"),
        (text(json!({ "message": "hi", "on_busy": "shout" })), 422, "invalid_value", "shout"),
        (text(json!({ "message": "hi", "on_disconnect": "cry" })), 422, "invalid_value", "cry"),
        (text(json!({ "message": "hi", "conversation": "x" })), 422, "invalid_value", "UUID"),
        (text(json!({ "message": "hi", "workspace": 7 })), 422, "invalid_value", "UUID"),
        (text(json!({ "message": "hi", "replace": id })), 422, "invalid_value", "/replace"),
        (text(json!({ "message": "hi", "attachments": [id] })), 422, "invalid_value", "/attachments/0"),
        (text(json!({ "message": "hi", "page_path": "x".repeat(513) })), 422, "invalid_value", "/page_path"),
        (text(json!({ "message": "hi", "page_path": "a\nb" })), 422, "invalid_value", "/page_path"),
        (text(json!({ "message": "hi", "model": "x".repeat(256) })), 422, "invalid_value", "/model"),
        (text(json!({ "message": "hi", "model": "" })), 422, "invalid_value", "/model"),
        (text(json!({ "message": "hi", "mode": "ask", "model": "gpt" })), 422, "invalid_value", "/model"),
        (text(json!({ "message": "hi", "agent": "a\u{7}" })), 422, "invalid_value", "/agent"),
        (text(json!({ "message": "hi", "agent": "helper" })), 422, "invalid_value", "/agent"),
        (text(json!({ "message": "hi", "agent": "" })), 422, "invalid_value", "/agent"),
        (text(json!({ "message": "hi", "workflow": "x".repeat(256) })), 422, "invalid_value", "/workflow"),
    ]
}

fn names(answer: &Answer, what: &str) -> bool {
    answer.body["source"]["pointer"] == what || (!what.starts_with('/') && answer.text.contains(what))
}

async fn bad_bodies(backend: Backend) -> Option<()> {
    let world = World::start(backend).await?;
    for (body, status, code, what) in bodies() {
        let shown: String = body.chars().take(80).collect();
        for prefer in ["respond-async", "none"] {
            let request = world
                .request(Method::POST, "/v1/turns")
                .header("content-type", "application/json")
                .header("prefer", prefer)
                .body(body.clone());
            let answer = ask(request).await;
            assert_eq!(
                (answer.status, answer.body["code"].as_str()),
                (status, Some(code)),
                "{shown}: {}",
                answer.text
            );
            refused(&answer, status, code);
            assert!(names(&answer, what), "{shown} does not name {what}: {}", answer.text);
        }
    }
    assert_eq!(world.count().await, (0, 0));
    assert!(world.sandbox.requests().is_empty());
    // The largest there may be.
    let room = (2 << 20) - json!({ "message": "" }).to_string().len();
    let told = world.tell(&json!({ "message": "x".repeat(room) })).await;
    assert_eq!(told.status(), "succeeded");
    Some(())
}

async fn bad_headers_and_parameters(backend: Backend) -> Option<()> {
    let world = World::start(backend).await?;
    let body = json!({ "message": "hi" }).to_string();
    let post = |path: &str, kind: &str| {
        world.request(Method::POST, path).header("content-type", kind).body(body.clone())
    };
    let json = "application/json";
    for (request, status, code, what) in [
        (post("/v1/turns", "text/plain"), 415, "unsupported_media_type", "Content-Type"),
        (
            world.request(Method::POST, "/v1/turns").body(body.clone()),
            415,
            "unsupported_media_type",
            "Content-Type",
        ),
        (post("/v1/turns?wire=morse", json), 400, "invalid_parameter", "morse"),
        (post("/v1/turns?wire=", json), 400, "invalid_parameter", "wire"),
        (post("/v1/turns?wire=ndjson&wire=envelope", json), 400, "invalid_parameter", "twice"),
        (post("/v1/turns?surprise=1", json), 400, "unknown_parameter", "surprise"),
        (post("/v1/turns?after=1", json), 400, "unknown_parameter", "after"),
        (post("/v1/turns?wire=%ff", json), 400, "invalid_parameter", "wire"),
        (post("/v1/turns?workspace=nonsense", json), 400, "invalid_parameter", "workspace"),
    ] {
        let answer = ask(request).await;
        assert_eq!(
            (answer.status, answer.body["code"].as_str()),
            (status, Some(code)),
            "{what}: {}",
            answer.text
        );
        assert!(answer.text.contains(what), "{what}: {}", answer.text);
    }
    let get = ask(world.request(Method::GET, "/v1/turns")).await;
    refused(&get, 405, "method_not_allowed");
    assert_eq!(world.count().await, (0, 0));
    Some(())
}

async fn bad_edits_of_a_run(backend: Backend) -> Option<()> {
    let world = World::start(backend).await?;
    let gate = Release::default();
    world.play(wait_after(vec![], &gate, "Done."));
    let first = world.begin_async(&json!({ "message": "one" })).await;
    let body = json!({ "conversation": first["conversation"], "message": "two", "on_busy": "enqueue" });
    let queued = world.begin_async(&body).await;
    let path = format!("/v1/runs/{}", queued["run"].as_str().unwrap());
    for (body, status, code, what) in [
        (json!({}), 422, "invalid_value", "message"),
        (json!({ "message": "" }), 422, "invalid_value", "/message"),
        (json!({ "message": [{ "type": "file" }] }), 422, "invalid_value", "/message/0/type"),
        (json!({ "message": "hi", "mode": "agent" }), 400, "unknown_field", "mode"),
    ] {
        let answer = world.send(Method::PATCH, &path, Some(&body)).await;
        refused(&answer, status, code);
        assert!(names(&answer, what), "{body}: {}", answer.text);
    }
    let listed =
        world.get(&format!("{CONVERSATIONS}/{}/queue", first["conversation"].as_str().unwrap())).await;
    assert_eq!(listed.body["data"][0]["text"], "two");
    gate.open();
    Some(())
}

/// What is not there, by every path that names a thing.
async fn what_is_not_there(backend: Backend) -> Option<()> {
    let world = World::start(backend).await?;
    let told = world.tell(&json!({ "message": "hi" })).await;
    let before = world.count().await;
    let absent = "0190d3a0-0000-7000-8000-000000000000";
    for id in [absent, "nonsense", &told.run().to_uppercase().replace('-', "")] {
        for (method, path) in [
            (Method::GET, format!("/v1/runs/{id}")),
            (Method::GET, format!("/v1/runs/{id}/events")),
            (Method::GET, format!("/v1/runs/{id}/trace")),
            (Method::POST, format!("/v1/runs/{id}/cancel")),
            (Method::GET, format!("{CONVERSATIONS}/{id}/runs")),
            (Method::GET, format!("{CONVERSATIONS}/{id}/queue")),
            (Method::GET, format!("{CONVERSATIONS}/{id}/branches")),
            (Method::DELETE, format!("{CONVERSATIONS}/{id}/lock")),
            (Method::POST, format!("{CONVERSATIONS}/{id}/branches/{absent}/select")),
        ] {
            let answer = world.send(method.clone(), &path, None).await;
            assert_eq!(
                (answer.status, answer.body["code"].as_str()),
                (404, Some("not_found")),
                "{method} {path}"
            );
        }
        let edit =
            world.send(Method::PATCH, &format!("/v1/runs/{id}"), Some(&json!({ "message": "x" }))).await;
        refused(&edit, 404, "not_found");
    }
    refused(&ask(world.turn(&json!({ "conversation": absent, "message": "hi" }))).await, 404, "not_found");
    refused(&ask(world.turn(&json!({ "workspace": absent, "message": "hi" }))).await, 404, "not_found");
    // A message that is not in the conversation, or not a user's, cannot be replaced.
    let assistant = told.terminal().data["assistant"]["id"].as_str().unwrap().to_owned();
    for replace in [absent, &assistant] {
        let body = json!({ "conversation": told.conversation(), "message": "x", "replace": replace });
        let answer = ask(world.turn(&body)).await;
        refused(&answer, 422, "invalid_value");
        assert_eq!(answer.body["source"]["pointer"], "/replace");
    }
    assert_eq!(world.count().await, before);
    Some(())
}
