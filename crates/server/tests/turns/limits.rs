//! How much one user and one workspace may have open: past it a turn is refused before anything is written.

use serde_json::{Value, json};
use testkit::sandbox::Release;
use testkit::server::Backend;

use crate::scripts::{hang_after, wait_after};
use crate::world::{World, ask, refused, stories};

stories!(open_runs, open_runs_of_a_workspace, requests_of_a_workspace, open_streams);

async fn open_runs(backend: Backend) -> Option<()> {
    let world = World::start_with(backend, |config| config.limits.max_open_runs_per_user = 3).await?;
    let gate = Release::default();
    world.play(wait_after(vec![], &gate, "Done."));
    world.play(hang_after(vec![]));
    let first = world.begin_async(&json!({ "message": "one" })).await;
    // Each has its own script, in the order they reach the sandbox.
    world.sandbox.request(0).await.unwrap();
    world.begin_async(&json!({ "message": "two" })).await;
    world.sandbox.request(1).await.unwrap();
    // A queued one is open, too.
    world
        .begin_async(&json!({ "conversation": first["conversation"], "message": "q", "on_busy": "enqueue" }))
        .await;
    let before = world.count().await;
    assert_eq!(before, (2, 3));
    for request in [
        world.turn(&json!({ "message": "three" })),
        world.turn(&json!({ "message": "3" })).header("prefer", "respond-async"),
    ] {
        let answer = ask(request).await;
        refused(&answer, 429, "too_many_runs");
        assert_eq!((&answer.body["limit"], answer.header("retry-after")), (&json!(3), "1"));
        assert_eq!(answer.header("ratelimit-policy"), "\"runs-user\";q=3");
        assert_eq!(answer.header("ratelimit"), "\"runs-user\";r=0;t=1");
    }
    for (path, body) in others("three") {
        let answer = world.send(reqwest::Method::POST, path, Some(&body)).await;
        assert_eq!((answer.status, answer.header("ratelimit")), (429, "\"runs-user\";r=0;t=1"), "{path}");
    }
    assert_eq!(world.count().await, before);
    // Each user has their own.
    assert_eq!(world.member("bob").await.tell(&json!({ "message": "mine" })).await.status(), "succeeded");
    // One that ends makes room: the queued one is the second then.
    gate.open();
    world.settled(first["run"].as_str().unwrap()).await;
    assert_eq!(
        ask(world.turn(&json!({ "message": "three" })).header("prefer", "respond-async")).await.status,
        202
    );
    Some(())
}

async fn open_runs_of_a_workspace(backend: Backend) -> Option<()> {
    let world = World::start_with(backend, |config| config.limits.max_open_runs_per_workspace = 2).await?;
    let gate = Release::default();
    world.play(wait_after(vec![], &gate, "Done."));
    world.play(wait_after(vec![], &gate, "Done."));
    let bob = world.member("bob").await;
    let respond = |world: &World| world.turn(&json!({ "message": "x" })).header("prefer", "respond-async");
    let first = ask(respond(&world)).await;
    assert_eq!(
        (first.status, first.header("ratelimit-policy")),
        (202, "\"runs-user\";q=100, \"runs-workspace\";q=2")
    );
    assert_eq!(first.header("ratelimit"), "\"runs-user\";r=99;t=1, \"runs-workspace\";r=1;t=1");
    let second = ask(respond(&bob)).await;
    assert_eq!(second.header("ratelimit"), "\"runs-user\";r=99;t=1, \"runs-workspace\";r=0;t=1");
    let before = world.count().await;
    let execution = json!({ "prompt": "Go" });
    for answer in [
        ask(respond(&world)).await,
        ask(bob.turn(&json!({ "message": "x" }))).await,
        bob.send(reqwest::Method::POST, "/v1/executions", Some(&execution)).await,
    ] {
        refused(&answer, 429, "too_many_runs");
        assert_eq!((&answer.body["limit"], answer.header("retry-after")), (&json!(2), "1"));
        assert!(
            answer.body["detail"].as_str().unwrap().starts_with("This workspace has 2 runs"),
            "{answer:?}"
        );
        assert_eq!(answer.header("ratelimit"), "\"runs-user\";r=99;t=1, \"runs-workspace\";r=0;t=1");
    }
    assert_eq!(world.count().await, before, "nothing was written");
    gate.open();
    for answer in [&first, &second] {
        world.settled(answer.header("threadkeep-run")).await;
    }
    assert_eq!(ask(world.turn(&json!({ "message": "x" }))).await.status, 200);
    for (path, body) in others("x") {
        let answer = world.send(reqwest::Method::POST, path, Some(&body)).await;
        assert!(answer.header("ratelimit").contains("\"runs-workspace\";r="), "{path}: {answer:?}");
    }
    Some(())
}

async fn requests_of_a_workspace(backend: Backend) -> Option<()> {
    let world =
        World::start_with(backend, |config| config.limits.requests_per_second_per_workspace = 5).await?;
    let session = world.get("/v1/session").await;
    assert_eq!(session.body["limits"]["requests_per_second_per_workspace"], 5, "{}", session.text);
    assert_eq!(session.body["limits"]["tokens_per_day_per_user"], Value::Null);
    assert_eq!(session.header("ratelimit"), "", "a session is of no workspace");
    let bob = world.member("bob").await;
    let mut passed = 0;
    let answer = loop {
        let answer = if passed % 2 == 0 { &world } else { &bob }.get("/v1/agents").await;
        assert_eq!(answer.header("ratelimit-policy"), "\"requests-workspace\";q=5;w=1");
        match answer.status {
            200 => passed += 1,
            _ => break answer,
        }
        assert!(passed < 1000, "never refused");
    };
    refused(&answer, 429, "rate_limited");
    assert!(answer.body["detail"].as_str().unwrap().contains("of this workspace"), "{}", answer.text);
    assert_eq!((&answer.body["limit"], answer.header("retry-after")), (&json!(5), "1"));
    assert_eq!(answer.header("ratelimit"), "\"requests-workspace\";r=0;t=1");
    Some(())
}

/// A turn in the words of other people's clients.
pub fn others(text: &str) -> [(&'static str, Value); 3] {
    let id = "0190d3a0-0000-7000-8000-0000000000aa";
    let message = json!({ "id": "m", "role": "user", "parts": [{ "type": "text", "text": text }] });
    [
        ("/v1/responses", json!({ "model": "agent", "input": text })),
        ("/v1/ai/chat", json!({ "id": id, "messages": [message] })),
        (
            "/v1/ag-ui",
            json!({ "threadId": id, "runId": "r", "state": {}, "tools": [], "context": [], "forwardedProps": {},
                "messages": [{ "id": "m", "role": "user", "content": text }] }),
        ),
    ]
}

async fn open_streams(backend: Backend) -> Option<()> {
    let world = World::start_with(backend, |config| config.limits.max_streams_per_user = 2).await?;
    let gate = Release::default();
    world.play(wait_after(vec![], &gate, "Done."));
    let first = world.begin(&json!({ "message": "one" })).await;
    let second = world.follow(&first.run(), 0).await;
    let before = world.count().await;
    assert_eq!(before, (1, 1));
    let reads = world.request(reqwest::Method::GET, &format!("/v1/runs/{}/events", first.run()));
    for request in [reads, world.turn(&json!({ "message": "two" }))] {
        let answer = ask(request).await;
        refused(&answer, 429, "too_many_streams");
        assert_eq!((&answer.body["limit"], answer.header("retry-after")), (&json!(2), "1"));
    }
    assert_eq!(world.count().await, before, "refused before anything is written");
    world.sandbox.request(0).await.unwrap();
    assert_eq!(world.sandbox.requests().len(), 1);
    // What asks for no stream is not refused for it.
    world.begin_async(&json!({ "message": "three" })).await;
    gate.open();
    first.rest().await;
    second.rest().await;
    assert_eq!(world.tell(&json!({ "message": "four" })).await.status(), "succeeded");
    Some(())
}
