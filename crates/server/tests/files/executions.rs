//! Executions: the sandbox's lines as they came, a bag of their own, and an end when nobody listens.

use std::time::{Duration, Instant};

use reqwest::{Method, RequestBuilder};
use serde_json::{Value, json};
use testkit::agent::echo;
use testkit::form::Form;
use testkit::sandbox::Action;

use crate::assets::read_zip;
use crate::caller::{Caller, ask, files, id, names, refused};
use crate::scripts;
use crate::world::{Home, World, stories, stories_everywhere};

stories_everywhere!(its_own_bag);
stories!(
    lines_as_they_came,
    an_answer_told_by_its_deltas,
    in_the_wire_asked_for,
    how_it_ended,
    dropping_the_request_cancels,
    once_by_its_key,
    nobody_elses,
    what_is_refused
);

fn execute(caller: &Caller, body: &Value) -> RequestBuilder {
    let request = caller.request(Method::POST, "/v1/executions").header("content-type", "application/json");
    request.body(body.to_string())
}

/// The execution that an answer began, once it has ended.
async fn ended(caller: &Caller, execution: &str) -> Value {
    let path = format!("/v1/executions/{execution}");
    loop {
        let answer = caller.get(&path).await;
        assert_eq!(answer.status, 200, "{}", answer.text);
        if !answer.body["ended_at"].is_null() {
            return answer.body;
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

/// An empty result leaves what was said before.
async fn an_answer_told_by_its_deltas(home: Home) -> Option<()> {
    let world = World::start(home).await?;
    let lines = [
        r#"{"type":"delta","text":"Looking."}"#,
        r#"{"type":"step","id":"s1","name":"look","status":"succeeded"}"#,
        r#"{"type":"delta","text":"It is "}"#,
        r#"{"type":"delta","text":"there."}"#,
        r#"{"type":"result","message":""}"#,
    ];
    world.sandbox.play(scripts::bytes(lines.join("\n") + "\n"));
    let answer = ask(execute(&world.ann, &json!({ "prompt": "look" }))).await;
    let shown = ended(&world.ann, answer.header("threadkeep-execution")).await;
    assert_eq!(shown["response"], "Looking.\n\nIt is there.");
    Some(())
}

async fn lines_as_they_came(home: Home) -> Option<()> {
    let world = World::start(home).await?;
    let lines = [
        r#"{"type":"log","level":"info","message":"héllo 中","extra":{"b":1,"a":[1.50,1e3]}}"#,
        r#"{ "type" : "step", "id":"s1","name":"look","status":"running","args":{"z":1,"a":2},"unknown":null}"#,
        r#"{"type":"delta","text":"He\u006clo"}"#,
        r#"{"type":"step","id":"s1","name":"look","status":"succeeded","result":1.0,"ts":1700000000000}"#,
        r#"{"type":"result","message":"Hello.","more":[1, 2]}"#,
    ];
    let body = lines.join("\n") + "\n";
    world.sandbox.play(scripts::bytes(body.clone()));
    let answer = ask(execute(&world.ann, &json!({ "prompt": "do it", "workflow": "wf-1" }))).await;
    assert_eq!((answer.status, answer.text.as_str()), (200, body.as_str()));
    assert!(answer.header("content-type").starts_with("application/x-ndjson"), "{:?}", answer.headers);
    let (execution, run) = (answer.header("threadkeep-execution"), answer.header("threadkeep-run"));
    let envelope = world.agent(0).await.envelope;
    assert_eq!(
        (
            &envelope["execution_id"],
            &envelope["chat_id"],
            &envelope["workflow_id"],
            &envelope["message"]["content"]
        ),
        (&json!(execution), &Value::Null, &json!("wf-1"), &json!("do it"))
    );
    assert_eq!((&envelope["conversation"], &envelope["workspace_id"]), (&json!([]), &json!(world.workspace)));
    let shown = ended(&world.ann, execution).await;
    assert_eq!(
        shown,
        json!({ "id": execution, "status": "succeeded", "response": "Hello.", "files": [], "error": null, "run": run,
            "created_at": shown["created_at"], "ended_at": shown["ended_at"] })
    );
    let run = world.ann.get(&format!("/v1/runs/{run}")).await.body;
    assert_eq!((&run["execution"], &run["conversation"]), (&json!(execution), &Value::Null));
    // The same lines again for whoever attaches later.
    let again = world.ann.get(&format!("/v1/runs/{}/events?wire=ndjson", id(&run))).await;
    assert_eq!(again.text, body);
    // As server-sent events every number has its frame, a log's too.
    let events = world.ann.get(&format!("/v1/runs/{}/events", id(&run))).await.text;
    let of = |name: &str| events.lines().filter_map(|line| line.strip_prefix(name)).collect::<Vec<_>>();
    assert_eq!(of("event: "), ["turn", "log", "step", "delta", "step", "result", "done"]);
    assert_eq!(of("id: "), ["1", "2", "3", "4", "5", "6", "7"]);
    assert_eq!(run["last_event"], 7);
    assert!(of("data: ")[2].contains(r#""unknown":null,"ts":"#), "{events}");
    // It is no conversation.
    assert_eq!(world.ann.get("/v1/chat-conversations").await.body["data"], json!([]));
    Some(())
}

async fn in_the_wire_asked_for(home: Home) -> Option<()> {
    let world = World::start(home).await?;
    let body = json!({ "prompt": "do it" });
    let wired = async |wire: &str| {
        let request = world.ann.request(Method::POST, &format!("/v1/executions?wire={wire}"));
        ask(request.header("content-type", "application/json").body(body.to_string())).await
    };
    let log = r#"{"type":"log","level":"info","message":"x"}"#;
    let result = r#"{"type":"result","message":"Hello."}"#;
    for wire in ["ndjson", "envelope", "openai", "anthropic", "ui-message", "ag-ui"] {
        world.sandbox.play(scripts::bytes(format!("{log}\n{result}\n")));
        let answer = wired(wire).await;
        assert_eq!(answer.status, 200, "{wire}: {}", answer.text);
        assert!(answer.text.contains("Hello."), "{wire}: {}", answer.text);
        assert!(!answer.header("threadkeep-execution").is_empty());
        let run = answer.header("threadkeep-run");
        let again = world.ann.get(&format!("/v1/runs/{run}/events?wire={wire}")).await;
        assert_eq!(again.text, answer.text, "{wire}");
        assert_eq!(again.header("content-type"), answer.header("content-type"), "{wire}");
        if wire == "ndjson" {
            assert_eq!(answer.text, format!("{log}\n{result}\n"));
        }
    }
    // By `Accept`, too; what that says nothing about are lines.
    for (accept, kind) in [("text/event-stream", "text/event-stream"), ("*/*", "application/x-ndjson")] {
        let answer = ask(execute(&world.ann, &body).header("accept", accept)).await;
        assert_eq!((answer.status, answer.header("content-type")), (200, kind));
    }
    let answer = wired("telegraph").await;
    refused(&answer, 400, "invalid_parameter");
    assert_eq!(answer.body["source"]["parameter"], "wire");
    Some(())
}

async fn how_it_ended(home: Home) -> Option<()> {
    let world = World::start(home).await?;
    // The sandbox's own error is its own line; a failure of ours is a line too.
    let own = r#"{"type":"error","code":"no_luck","message":"No luck.","hint":1}"#;
    for (script, last, code) in [
        (scripts::bytes(format!("{own}\n")), Some(own), "no_luck"),
        (scripts::lines(vec![scripts::delta("x")]), None, "sandbox_no_result"),
        (vec![Action::Headers("500 Oops", vec![])], None, "sandbox_unreachable"),
        (scripts::bytes("what\n"), None, "sandbox_protocol"),
    ] {
        world.sandbox.play(script);
        let answer = ask(execute(&world.ann, &json!({ "prompt": "x" }))).await;
        assert_eq!(answer.status, 200);
        let line = answer.text.lines().last().unwrap();
        let parsed: Value = serde_json::from_str(line).unwrap();
        assert_eq!((&parsed["type"], &parsed["code"]), (&json!("error"), &json!(code)), "{}", answer.text);
        assert!(parsed["message"].as_str().is_some_and(|text| !text.is_empty()));
        assert!(last.is_none_or(|last| last == line), "{line}");
        let shown = ended(&world.ann, answer.header("threadkeep-execution")).await;
        assert_eq!((&shown["status"], &shown["response"]), (&json!("failed"), &Value::Null));
        assert_eq!(shown["error"]["code"], code);
    }
    Some(())
}

async fn its_own_bag(home: Home) -> Option<()> {
    let world = World::start(home).await?;
    let ann = &world.ann;
    let kept = files(&ask(ann.form("/v1/files", &Form::of("kept.txt", b"kept"))).await).remove(0);
    world.sandbox.play(echo("out.txt", b"made"));
    // By a form: files, and an asset by its id.
    let form = Form::of("in.txt", b"in")
        .field("workspace", &world.workspace)
        .field("prompt", "read it")
        .field("workflow", "wf")
        .field("assets", id(&kept));
    let answer = ask(ann.form("/v1/executions", &form.file("in.txt", b"twin"))).await;
    assert_eq!((answer.status, answer.text.contains("3 given, 201")), (200, true), "{}", answer.text);
    let envelope = world.agent(0).await.envelope;
    assert_eq!(
        (&envelope["message"]["content"], &envelope["workflow_id"]),
        (&json!("read it"), &json!("wf"))
    );
    let execution = answer.header("threadkeep-execution").to_owned();
    let shown = ended(ann, &execution).await;
    // What it was given is not what it wrote.
    let written = shown["files"].as_array().unwrap();
    assert_eq!(names(written), ["out.txt"]);
    assert_eq!(
        (&written[0]["executionId"], &written[0]["chatId"], &written[0]["source"]),
        (&json!(execution), &Value::Null, &json!("sandbox"))
    );
    let bytes = ann.content(&written[0]).await;
    assert_eq!((bytes.status, bytes.bytes.as_slice()), (200, &b"made"[..]));
    // By JSON, and what the sandbox gets of it.
    world.sandbox.play(scripts::hang_after(vec![]));
    let going = execute(ann, &json!({ "prompt": "x", "assets": [kept["id"]] })).send().await.unwrap();
    let agent = world.agent(1).await;
    let (listed, zip) = agent.assets().await.unwrap();
    assert_eq!(names(&listed), ["kept.txt"]);
    assert_eq!(read_zip(&zip), [("kept.txt".to_owned(), b"kept".to_vec())]);
    drop(going);
    // Nothing moved into the workspace by itself; the asset is still there.
    assert_eq!(ann.list_all("/v1/files").await, [kept]);
    // Kept for good.
    let again = files(&ann.post("/v1/files", &json!({ "from": written[0]["id"] })).await).remove(0);
    assert_eq!((&again["executionId"], &again["name"]), (&Value::Null, &json!("out.txt")));
    assert_eq!(ann.content(&again).await.bytes, b"made");
    Some(())
}

async fn dropping_the_request_cancels(home: Home) -> Option<()> {
    let world = World::start(home).await?;
    for round in 0..3 {
        world.sandbox.play(scripts::hang_after(vec![scripts::log("going")]));
        let mut response = execute(&world.ann, &json!({ "prompt": "x" })).send().await.unwrap();
        let execution = response.headers()["threadkeep-execution"].to_str().unwrap().to_owned();
        assert!(response.chunk().await.unwrap().is_some());
        let dropped = Instant::now();
        drop(response);
        let request = world.sandbox.disconnected(round).await.unwrap();
        let after = request.disconnected.unwrap().duration_since(dropped);
        assert!(after < Duration::from_secs(1), "{after:?}");
        assert_eq!(ended(&world.ann, &execution).await["status"], "cancelled");
    }
    Some(())
}

async fn once_by_its_key(home: Home) -> Option<()> {
    let world = World::start(home).await?;
    let ann = &world.ann;
    let body = json!({ "prompt": "x" });
    let first = ask(execute(ann, &body).header("idempotency-key", "k1")).await;
    let again = ask(execute(ann, &body).header("idempotency-key", "k1")).await;
    assert_eq!(first.header("threadkeep-execution"), again.header("threadkeep-execution"));
    assert_eq!((first.text, again.status), (again.text, 200));
    let other = ask(execute(ann, &json!({ "prompt": "y" })).header("idempotency-key", "k1")).await;
    assert_eq!(other.status, 422, "{}", other.text);
    // With files: the same form is the same request, another file or field is not.
    let form = Form::of("a", b"1").field("prompt", "x");
    let send =
        async |form: Form| ask(ann.form("/v1/executions", &form).header("idempotency-key", "k2")).await;
    let first = send(form.clone()).await;
    let again = send(form.clone()).await;
    assert_eq!((first.status, again.status), (200, 200), "{}", again.text);
    assert_eq!(first.header("threadkeep-execution"), again.header("threadkeep-execution"));
    assert_eq!(send(Form::of("a", b"2").field("prompt", "x")).await.status, 422);
    assert_eq!(send(Form::of("b", b"1").field("prompt", "x")).await.status, 422);
    assert_eq!(send(form.field("workflow", "w")).await.status, 422);
    // What it was given and who it was for may have gone since.
    let kept = ask(ann.form("/v1/files", &Form::of("kept.txt", b"kept"))).await;
    let kept = id(&files(&kept)[0]).to_owned();
    let agent = ann.post("/v1/agents", &json!({ "name": "Helper", "runner": "sandbox" })).await;
    let agent = id(&agent.body).to_owned();
    let body = json!({ "prompt": "z", "assets": [kept], "agent": agent });
    let first = ask(execute(ann, &body).header("idempotency-key", "k3")).await;
    assert_eq!(first.status, 200, "{}", first.text);
    for path in [format!("/v1/files/{kept}"), format!("/v1/agents/{agent}")] {
        assert_eq!(ann.delete(&path).await, 204, "{path}");
        let again = ask(execute(ann, &body).header("idempotency-key", "k3")).await;
        assert_eq!(first.header("threadkeep-execution"), again.header("threadkeep-execution"));
        assert_eq!((&first.text, again.status), (&again.text, 200));
        assert_eq!(ask(execute(ann, &body)).await.status, 422);
    }
    assert_eq!(world.sandbox.requests().len(), 3);
    Some(())
}

async fn nobody_elses(home: Home) -> Option<()> {
    let world = World::start(home).await?;
    let (bob, eve, mallory) =
        (world.member("bob").await, world.stranger("eve").await, world.member("mallory").await);
    world.sandbox.play(echo("out.txt", b"made"));
    let answer = ask(execute(&bob, &json!({ "prompt": "x" }))).await;
    let path = format!("/v1/executions/{}", answer.header("threadkeep-execution"));
    let run = format!("/v1/runs/{}", answer.header("threadkeep-run"));
    let file = ended(&bob, answer.header("threadkeep-execution")).await["files"][0].clone();
    let content = format!("/v1/files/{}/content", id(&file));
    for other in [&eve, &mallory] {
        for path in [&path, &run, &content] {
            refused(&other.get(path).await, 404, "not_found");
        }
        refused(&other.post("/v1/files", &json!({ "from": file["id"] })).await, 404, "not_found");
        // Nor as an asset of their own.
        let answer = ask(execute(other, &json!({ "prompt": "x", "assets": [file["id"]] }))).await;
        assert_eq!(answer.status, 422, "{}", answer.text);
    }
    // Admins see all of the workspace.
    assert_eq!(world.ann.get(&path).await.status, 200);
    assert_eq!(world.ann.get(&content).await.text, "made");
    Some(())
}

async fn what_is_refused(home: Home) -> Option<()> {
    let world = World::start(home).await?;
    let ann = &world.ann;
    let nothing = "0190b2a0-0000-7000-8000-000000000000";
    for (body, status) in [
        (json!({}), 422),
        (json!({ "prompt": "" }), 422),
        (json!({ "prompt": 1 }), 400),
        (json!({ "prompt": "x", "colour": "red" }), 400),
        (json!({ "prompt": "x", "assets": [nothing] }), 422),
        (json!({ "prompt": "x", "assets": ["x"] }), 400),
        (json!([]), 400),
    ] {
        let answer = ask(execute(ann, &body)).await;
        assert!(
            answer.status == status || (status == 400 && answer.status == 422),
            "{body}: {}",
            answer.text
        );
    }
    for (form, status) in [
        (Form::of("a", b"x"), 422),
        (Form::of("a", b"x").field("prompt", "x").field("prompt", "y"), 400),
        (Form::of("a", b"x").field("prompt", "x").field("colour", "red"), 400),
        (Form::of("a", b"x").field("prompt", "x").field("assets", "nonsense"), 422),
        (Form::of("a", b"x").field("prompt", "x").field("workspace", nothing), 422),
    ] {
        let answer = ask(ann.form("/v1/executions", &form)).await;
        assert_eq!(answer.status, status, "{}", answer.text);
    }
    let text = ann.request(Method::POST, "/v1/executions").header("content-type", "text/plain").body("x");
    assert_eq!(ask(text).await.status, 415);
    assert_eq!(world.sandbox.requests().len(), 0);
    crate::bad_input::until(async || crate::bad_input::blobs(&world).is_empty()).await;
    refused(&ann.get(&format!("/v1/executions/{nothing}")).await, 404, "not_found");
    Some(())
}
