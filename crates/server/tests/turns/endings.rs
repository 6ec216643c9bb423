//! How a run ends, as its user sees it: every terminal rule, and what is kept of the answer.

use std::time::{Duration, Instant};

use serde_json::{Value, json};
use testkit::sandbox::Action;
use testkit::server::Backend;

use crate::scripts::{bytes, delta, hang_after, lines, open, result, step};
use crate::world::{World, stories, thread};

stories!(
    every_failure,
    a_refused_connection,
    no_sandbox_at_all,
    a_silent_sandbox,
    a_trickling_sandbox_is_not_silent,
    a_run_that_takes_too_long,
    results,
    the_conversation_goes_on_after_a_failure,
);

struct Case {
    name: &'static str,
    script: Vec<Action>,
    code: &'static str,
    /// A part of the message.
    says: &'static str,
    /// The parts before the error's own.
    kept: Value,
}

fn case(
    name: &'static str,
    script: Vec<Action>,
    code: &'static str,
    says: &'static str,
    kept: Value,
) -> Case {
    Case { name, script, code, says, kept }
}

fn status(status: &'static str, body: &str) -> Vec<Action> {
    vec![
        Action::Headers(status, vec![("location", "http://127.0.0.1:1/".into())]),
        Action::Bytes(body.into()),
    ]
}

fn unreachable() -> Vec<Case> {
    let code = "sandbox_unreachable";
    vec![
        case("500", status("500 Oh", "it is <b>broken</b>"), code, "500: it is <b>broken</b>", json!([])),
        case("404", status("404 No", ""), code, "404", json!([])),
        case("redirect", status("302 There", ""), code, "redirects are not followed", json!([])),
        case("closed at once", vec![Action::CloseWrite], code, "could not be reached", json!([])),
        case("reset at once", vec![Action::Reset], code, "could not be reached", json!([])),
        case(
            "no HTTP",
            vec![Action::Raw(b"HELLO\r\n\r\n".to_vec())],
            code,
            "could not be reached",
            json!([]),
        ),
    ]
}

fn protocol() -> Vec<Case> {
    let code = "sandbox_protocol";
    let long = format!("{{\"type\":\"delta\",\"text\":\"{}\"}}\n", "x".repeat(5000));
    let html = "<html>\n<body>It works!</body>\n</html>\n";
    let rejects =
        vec![open(), Action::Line(delta("a")), Action::Lines(100, |_| "nonsense".into()), Action::Hang];
    let mut many = vec![open()];
    for _ in 0..3 {
        many.extend([Action::Lines(99, |_| "{}".into()), Action::Line(delta("."))]);
    }
    vec![
        case("empty body", bytes(""), code, "without sending a line", json!([])),
        case("HTML with 200", bytes(html), code, "3 rejected", json!([])),
        case("only blank lines", bytes("\n \n\r\n"), code, "without", json!([])),
        case(
            "a line too long",
            [bytes("{\"type\":\"delta\",\"text\":\"a\"}\n"), vec![Action::Bytes(long.into())]].concat(),
            code,
            "MAX_LINE_BYTES",
            json!([{ "type": "text", "text": "a" }]),
        ),
        case(
            "a line without end",
            vec![open(), Action::Flood(b'x', 1 << 20), Action::Hang],
            code,
            "MAX_LINE_BYTES",
            json!([]),
        ),
        case(
            "100 rejected in a row",
            rejects,
            code,
            "100 lines in a row",
            json!([{ "type": "text", "text": "a" }]),
        ),
        case(
            "99 rejected in a row, thrice",
            many,
            "sandbox_no_result",
            "after 3 lines",
            json!([{ "type": "text", "text": "..." }]),
        ),
        case("a compressed body", compressed(), code, "without one line", json!([])),
    ]
}

/// A gzip header and noise: nothing is unpacked, so nothing is understood.
fn compressed() -> Vec<Action> {
    let head = vec![("content-encoding", "gzip".to_owned())];
    vec![
        Action::Headers("200 OK", head),
        Action::Bytes(vec![0x1f, 0x8b, 8, 0, 0, 0, 0, 0, 0, 3, b'\n', 1, 2]),
    ]
}

fn no_result() -> Vec<Case> {
    let code = "sandbox_no_result";
    let interrupted = json!([
        { "type": "text", "text": "I look" },
        { "type": "step", "id": "s", "name": "look", "status": "interrupted", "startedAt": 1_700_000_000_100_i64 }
    ]);
    let begun = || vec![delta("I "), delta("look"), step("s", "running")];
    vec![
        case("ends", lines(begun()), code, "ended its answer after 3 lines", interrupted.clone()),
        case(
            "half a line at the end",
            [lines(begun()), vec![Action::Bytes(b"{\"type\":\"res".to_vec())]].concat(),
            code,
            "ended",
            interrupted.clone(),
        ),
        case(
            "a broken chunk",
            vec![
                Action::Chunked("200 OK", vec![]),
                Action::Line(delta("a")),
                Action::Raw(b"ffff\r\nxx".to_vec()),
            ],
            code,
            "broke off",
            json!([{ "type": "text", "text": "a" }]),
        ),
        case(
            "a short body",
            vec![
                Action::Headers("200 OK", vec![("content-length", "1000".into())]),
                Action::Line(delta("a")),
            ],
            code,
            "broke off",
            json!([{ "type": "text", "text": "a" }]),
        ),
        case("only a log", lines(vec![crate::scripts::log("x")]), code, "after 1 lines", json!([])),
    ]
}

fn own_errors() -> Vec<Case> {
    let error = |code: &str| json!({ "type": "error", "code": code, "message": "no room", "ts": 5 });
    vec![
        case("its own error", lines(vec![error("disk_full")]), "disk_full", "no room", json!([])),
        case(
            "its own error after words",
            lines(vec![delta("so far"), error("disk_full"), result("no")]),
            "disk_full",
            "no room",
            json!([{ "type": "text", "text": "so far" }]),
        ),
        case("an error with our code", lines(vec![error("cancelled")]), "cancelled", "no room", json!([])),
    ]
}

async fn every_failure(backend: Backend) -> Option<()> {
    let world = World::start_with(backend, |config| config.limits.max_line_bytes = 4096).await?;
    for case in [unreachable(), protocol(), no_result(), own_errors()].into_iter().flatten() {
        let name = case.name;
        world.play(case.script);
        let told = world.tell(&json!({ "message": name })).await;
        assert_eq!(told.terminal().event, "error", "{name}");
        let error = &told.terminal().data;
        assert_eq!(error["code"], case.code, "{name}: {error}");
        assert!(error["message"].as_str().unwrap().contains(case.says), "{name}: {error}");
        assert_eq!(told.status(), "failed", "{name}");
        let mut parts = case.kept.as_array().unwrap().clone();
        parts.push(json!({ "type": "error", "code": error["code"], "message": error["message"] }));
        assert_eq!(world.last_parts(&told.conversation()).await, json!(parts), "{name}");
        assert_eq!(error["assistant"]["content"], json!(parts), "{name}");
        let run = world.run(&told.run()).await;
        assert_eq!(run["error"], json!({ "code": error["code"], "message": error["message"] }), "{name}");
        assert_eq!(
            (&run["status"], &run["assistant_message"]),
            (&json!("failed"), &error["assistant"]["id"]),
            "{name}"
        );
    }
    Some(())
}

async fn a_refused_connection(backend: Backend) -> Option<()> {
    let world = World::start_with(backend, |config| {
        let free = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
        config.sandbox.url = Some(format!("http://{free}"));
    })
    .await?;
    let told = world.tell(&json!({ "message": "hi" })).await;
    assert_eq!(
        (told.terminal().data["code"].as_str(), told.status()),
        (Some("sandbox_unreachable"), "failed")
    );
    Some(())
}

async fn no_sandbox_at_all(backend: Backend) -> Option<()> {
    let world = World::start_with(backend, |config| config.sandbox.url = None).await?;
    let told = world.tell(&json!({ "message": "hi" })).await;
    let error = &told.terminal().data;
    assert_eq!(error["code"], "sandbox_unreachable");
    assert!(error["message"].as_str().unwrap().contains("SANDBOX_URL"), "{error}");
    Some(())
}

async fn a_silent_sandbox(backend: Backend) -> Option<()> {
    let world = World::start_with(backend, |config| config.limits.sandbox_idle_seconds = 1).await?;
    for (sent, kept) in
        [(vec![], vec![]), (vec![delta("so far")], vec![json!({ "type": "text", "text": "so far" })])]
    {
        world.play(hang_after(sent));
        let told = world.tell(&json!({ "message": "hi" })).await;
        let error = &told.terminal().data;
        assert_eq!((error["code"].as_str(), told.status()), (Some("sandbox_timeout"), "failed"), "{error}");
        assert!(error["message"].as_str().unwrap().contains("SANDBOX_IDLE_SECONDS"), "{error}");
        let parts = world.last_parts(&told.conversation()).await;
        assert_eq!(parts.as_array().unwrap()[..kept.len()], kept);
        assert_eq!(parts.as_array().unwrap().len(), kept.len() + 1);
    }
    // The sandbox was let go.
    world.sandbox.disconnected(0).await.unwrap();
    Some(())
}

/// Slow is not silent: each byte starts the time anew.
async fn a_trickling_sandbox_is_not_silent(backend: Backend) -> Option<()> {
    let world = World::start_with(backend, |config| config.limits.sandbox_idle_seconds = 1).await?;
    let line = format!("{}\n", result("Slow."));
    world.play(vec![open(), Action::Trickle(line.into_bytes(), Duration::from_millis(30))]);
    let told = world.tell(&json!({ "message": "hi" })).await;
    assert_eq!(told.terminal().data["message"], "Slow.");
    Some(())
}

async fn a_run_that_takes_too_long(backend: Backend) -> Option<()> {
    let world = World::start_with(backend, |config| config.limits.run_timeout_seconds = 1).await?;
    // It speaks all the time, and still ends.
    let chatter = format!("{}\n", delta("."));
    world.play(vec![open(), Action::Trickle(chatter.repeat(1000).into_bytes(), Duration::from_millis(2))]);
    let begun = Instant::now();
    let told = world.tell(&json!({ "message": "hi" })).await;
    // 5 seconds after its time (G4), and as much again and again for a machine that has others to serve.
    assert!(begun.elapsed() < Duration::from_secs(1 + 15), "settled after {:?}", begun.elapsed());
    let error = &told.terminal().data;
    assert_eq!((error["code"].as_str(), told.status()), (Some("run_timeout"), "failed"), "{error}");
    let parts = world.last_parts(&told.conversation()).await;
    assert_eq!(parts[1]["code"], "run_timeout");
    assert!(parts[0]["text"].as_str().unwrap().starts_with(".."), "{parts}");
    world.sandbox.disconnected(0).await.unwrap();
    Some(())
}

/// What a `result` makes of the text before it.
async fn results(backend: Backend) -> Option<()> {
    let world = World::start(backend).await?;
    for (sent, parts) in [
        (vec![result("All.")], json!([{ "type": "text", "text": "All." }])),
        (vec![delta("Al"), result("All.")], json!([{ "type": "text", "text": "All." }])),
        (vec![delta("kept"), result("")], json!([{ "type": "text", "text": "kept" }])),
        (vec![result("")], json!([])),
        (
            vec![
                delta("a"),
                json!({ "type": "step", "id": "s", "name": "n", "status": "failed", "error": "no", "ts": 5 }),
                result("b"),
            ],
            json!([{ "type": "text", "text": "a" },
                { "type": "step", "id": "s", "name": "n", "status": "failed", "error": "no", "startedAt": 5 },
                { "type": "text", "text": "b" }]),
        ),
    ] {
        world.play(lines(sent));
        let told = world.tell(&json!({ "message": "hi" })).await;
        assert_eq!(told.status(), "succeeded");
        assert_eq!(world.last_parts(&told.conversation()).await, parts);
        assert_eq!(told.terminal().data["assistant"]["content"], parts);
    }
    // A last line counts without its newline.
    world.play(bytes("{\"type\":\"result\",\"message\":\"no newline\"}"));
    assert_eq!(world.tell(&json!({ "message": "hi" })).await.terminal().data["message"], "no newline");
    Some(())
}

async fn the_conversation_goes_on_after_a_failure(backend: Backend) -> Option<()> {
    let world = World::start(backend).await?;
    world.play(lines(vec![delta("half")]));
    let failed = world.tell(&json!({ "message": "one" })).await;
    assert_eq!(failed.status(), "failed");
    let told = world.tell(&json!({ "conversation": failed.conversation(), "message": "two" })).await;
    assert_eq!(told.status(), "succeeded");
    let said = [("user", "one"), ("assistant", "half"), ("user", "two"), ("assistant", "Hello.")];
    assert_eq!(world.thread(&told.conversation()).await, thread(&said));
    Some(())
}
