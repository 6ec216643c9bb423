//! `POST /v1/runs/{id}/cancel` in every phase of a run, and the admin's lock.

use std::time::{Duration, Instant};

use futures_util::future::join_all;
use reqwest::Method;
use serde_json::json;
use testkit::sandbox::{Action, Release};
use testkit::server::Backend;

use crate::gateway::{OPENAI, sandbox_of, stream, world_with};
use crate::scripts::{delta, hang_after, open, step};
use crate::world::{CONVERSATIONS, World, ask, refused, stories, thread};

stories!(
    under_way,
    before_the_sandbox_answers,
    many_times_at_once,
    after_the_end,
    in_the_middle_of_a_flood,
    while_a_call_waits_for_a_person,
    the_lock_is_cleared_by_an_admin,
    a_damaged_log_holds_up_no_end,
    what_a_left_run_used_is_kept,
    a_run_that_is_deleted_at_once_is_cancelled,
);

const SOON: Duration = Duration::from_secs(1);
/// By when a cancelled run is settled: 5 seconds (G9), and as much again and again for a machine that has others to serve.
const SETTLED: Duration = Duration::from_secs(15);

async fn under_way(backend: Backend) -> Option<()> {
    let world = World::start(backend).await?;
    world.play(hang_after(vec![delta("so far"), step("s", "running")]));
    let mut stream = world.begin(&json!({ "message": "hi" })).await;
    stream.until("step").await;
    let (run, asked) = (stream.run(), Instant::now());
    let answer = world.cancel(&run).await;
    assert_eq!((answer.status, &answer.body["id"]), (200, &json!(run)));
    let request = world.sandbox.disconnected(0).await.unwrap();
    let took = request.disconnected.unwrap().saturating_duration_since(asked);
    assert!(took < SOON, "the sandbox was let go after {took:?}");
    let told = stream.rest().await;
    assert!(asked.elapsed() < SETTLED, "settled after {:?}", asked.elapsed());
    assert_eq!((told.names(), told.status()), (vec!["turn", "delta", "step", "error", "done"], "cancelled"));
    assert_eq!(told.terminal().data["code"], "cancelled");
    let parts = world.last_parts(&told.conversation()).await;
    assert_eq!(
        (&parts[0]["text"], &parts[1]["status"], &parts[2]["code"]),
        (&json!("so far"), &json!("interrupted"), &json!("cancelled"))
    );
    assert_eq!(told.terminal().data["assistant"]["content"], parts);
    // The conversation is free again.
    let next = world.tell(&json!({ "conversation": told.conversation(), "message": "on" })).await;
    assert_eq!(next.status(), "succeeded");
    Some(())
}

async fn while_a_call_waits_for_a_person(backend: Backend) -> Option<()> {
    let world = World::start(backend).await?;
    let agent =
        json!({ "name": "a", "runner": "model", "tools": ["list_files"], "approval": ["list_files"] });
    let agent = world.send(Method::POST, "/v1/agents", Some(&agent)).await.body["id"].clone();
    let mut stream = world.begin(&json!({ "message": "list files", "agent": agent })).await;
    stream.until("approval").await;
    let path = format!("/v1/runs/{}/approvals", stream.run());
    let waiting = world.get(&path).await.body["data"].clone();
    assert_eq!((waiting.as_array().unwrap().len(), &waiting[0]["status"]), (1, &json!("pending")));
    world.cancel(&stream.run()).await;
    assert_eq!(stream.rest().await.status(), "cancelled");
    assert_eq!(world.get(&path).await.body["data"][0]["status"], "cancelled");
    let late = json!({ "id": waiting[0]["id"], "approve": true });
    refused(&world.send(Method::POST, &path, Some(&late)).await, 409, "run_ended");
    Some(())
}

async fn before_the_sandbox_answers(backend: Backend) -> Option<()> {
    let world = World::start(backend).await?;
    world.play(vec![Action::Hang]);
    let stream = world.begin(&json!({ "message": "hi" })).await;
    world.sandbox.request(0).await.unwrap();
    let asked = Instant::now();
    world.cancel(&stream.run()).await;
    world.sandbox.disconnected(0).await.unwrap();
    let told = stream.rest().await;
    assert!(asked.elapsed() < SETTLED, "settled after {:?}", asked.elapsed());
    assert_eq!((told.names(), told.status()), (vec!["turn", "error", "done"], "cancelled"));
    Some(())
}

async fn many_times_at_once(backend: Backend) -> Option<()> {
    let world = World::start(backend).await?;
    world.play(hang_after(vec![delta("a")]));
    let mut stream = world.begin(&json!({ "message": "hi" })).await;
    stream.until("delta").await;
    let run = stream.run();
    for answer in join_all((0..20).map(|_| world.cancel(&run))).await {
        assert_eq!(answer.status, 200, "{}", answer.text);
    }
    assert_eq!(stream.rest().await.status(), "cancelled");
    let shown = world.conversation(world.run(&run).await["conversation"].as_str().unwrap()).await;
    assert_eq!(shown["message_count"], 2, "one answer");
    Some(())
}

async fn after_the_end(backend: Backend) -> Option<()> {
    let world = World::start(backend).await?;
    let told = world.tell(&json!({ "message": "hi" })).await;
    let before = world.run(&told.run()).await;
    for _ in 0..2 {
        let answer = world.cancel(&told.run()).await;
        assert_eq!((answer.status, &answer.body), (200, &before));
    }
    assert_eq!(world.log(&told.run()).await.bytes, told.bytes);
    Some(())
}

/// A sandbox that never stops talking is stopped all the same.
async fn in_the_middle_of_a_flood(backend: Backend) -> Option<()> {
    let world = World::start(backend).await?;
    let mut script = vec![open()];
    for _ in 0..10_000 {
        script.extend([
            Action::Lines(20, |n| delta(&format!("{n} ")).to_string()),
            Action::Wait(Duration::from_millis(1)),
        ]);
    }
    script.push(Action::Hang);
    world.play(script);
    let mut stream = world.begin(&json!({ "message": "hi" })).await;
    stream.until("delta").await;
    let asked = Instant::now();
    world.cancel(&stream.run()).await;
    let request = world.sandbox.disconnected(0).await.unwrap();
    let took = request.disconnected.unwrap().saturating_duration_since(asked);
    assert!(took < SOON, "the sandbox was let go after {took:?}");
    let told = stream.rest().await;
    assert!(asked.elapsed() < SETTLED, "settled after {:?}", asked.elapsed());
    assert_eq!(told.status(), "cancelled");
    // What was streamed is kept, and nothing else.
    assert_eq!(told.assistant_content(), told.folded());
    Some(())
}

async fn the_lock_is_cleared_by_an_admin(backend: Backend) -> Option<()> {
    let world = World::start(backend).await?;
    let bob = world.member("bob").await;
    world.play(hang_after(vec![delta("so far")]));
    let mut stream = bob.begin(&json!({ "message": "hi" })).await;
    stream.until("delta").await;
    let conversation = stream.conversation();
    let path = format!("{CONVERSATIONS}/{conversation}/lock");
    let body = json!({ "conversation": conversation, "message": "next", "on_busy": "enqueue" });
    let next = bob.begin_async(&body).await;
    // Its owner sees it, and may not; who does not see it is not told that it is there.
    refused(&bob.send(Method::DELETE, &path, None).await, 403, "forbidden");
    refused(&world.member("carl").await.send(Method::DELETE, &path, None).await, 404, "not_found");
    assert_eq!(world.run(&stream.run()).await["status"], "running");

    assert_eq!(world.send(Method::DELETE, &path, None).await.status, 204);
    let run = stream.run();
    let told = stream.rest().await;
    assert_eq!((told.status(), told.terminal().data["code"].as_str()), ("interrupted", Some("interrupted")));
    assert_eq!(bob.run(&run).await["status"], "interrupted");
    assert_eq!(bob.log(&run).await.bytes, told.bytes);
    world.sandbox.disconnected(0).await.unwrap();
    assert_eq!(bob.settled(next["run"].as_str().unwrap()).await["status"], "succeeded");
    let said = [("user", "hi"), ("assistant", "so far"), ("user", "next"), ("assistant", "Hello.")];
    assert_eq!(bob.thread(&conversation).await, thread(&said));
    // With nothing to clear it says the same.
    assert_eq!(world.send(Method::DELETE, &path, None).await.status, 204);
    Some(())
}

/// What can be read of it is kept, and the conversation goes on.
async fn a_damaged_log_holds_up_no_end(backend: Backend) -> Option<()> {
    let world = World::start(backend).await?;
    let gate = Release::default();
    let script = [delta("lost"), step("s1", "running")].map(Action::Line);
    let script = [open()].into_iter().chain(script).chain([Action::WaitFor(gate.clone())]);
    world.play(script.chain([Action::Line(delta("kept")), Action::Hang]).collect());
    let mut stream = world.begin(&json!({ "message": "hi" })).await;
    stream.until("step").await;
    let (run, conversation) = (stream.run(), stream.conversation());
    damage(&world, &run).await;
    gate.open();
    while stream.until("delta").await.data["text"] != "kept" {}
    let path = format!("{CONVERSATIONS}/{conversation}/lock");
    let cleared = world.send(Method::DELETE, &path, None).await;
    assert_eq!(cleared.status, 204, "{}", cleared.text);
    let ended = world.run(&run).await;
    assert_eq!((&ended["status"], &ended["error"]["code"]), (&json!("interrupted"), &json!("interrupted")));
    assert_eq!(
        world.tell(&json!({ "conversation": conversation, "message": "next" })).await.status(),
        "succeeded"
    );
    let said = [("user", "hi"), ("assistant", "kept"), ("user", "next"), ("assistant", "Hello.")];
    assert_eq!(world.thread(&conversation).await, thread(&said));
    Some(())
}

/// Its end is written by whoever clears it, who knows no more than what is stored.
async fn what_a_left_run_used_is_kept(backend: Backend) -> Option<()> {
    let (world, provider) = world_with(backend, stream(OPENAI)).await?;
    let clear = async |conversation: &str| {
        let cleared = world.send(Method::DELETE, &format!("{CONVERSATIONS}/{conversation}/lock"), None).await;
        assert_eq!(cleared.status, 204, "{}", cleared.text);
        world.conversation(conversation).await["messages"][1].clone()
    };
    // A sandbox that has asked a model.
    world.play(hang_after(vec![delta("so far")]));
    let mut running = world.begin(&json!({ "message": "Go" })).await;
    running.until("delta").await;
    let (client, _, model) = sandbox_of(&world).await;
    let body = json!({ "model": "openai/m", "messages": [{ "role": "user", "content": "Hi" }] });
    let url = format!("{}/chat/completions", model["base_url"].as_str().unwrap());
    let asked = ask(client.post(url).bearer_auth(model["api_key"].as_str().unwrap()).json(&body)).await;
    assert_eq!(asked.status, 200, "{}", asked.text);
    let left = clear(&running.conversation()).await;
    let usage = json!({ "input_tokens": 7, "output_tokens": 3 });
    assert_eq!((&left["tokenCount"], &left["metadata"]), (&json!(10), &json!({ "usage": usage })));

    // A model that is asked again after a call: where its prompt began is known to the next turn.
    let call = json!({ "index": 0, "id": "c", "function": { "name": "search_pages", "arguments": "{\"query\":\"x\"}" } });
    let calls = json!({ "choices": [{ "delta": { "tool_calls": [call] } }] });
    let planned = OPENAI.replace("{\"choices\":[{\"delta\":{\"content\":\"Hi\"}}]}", &calls.to_string());
    provider.play(stream(&planned.replace("\"stop\"", "\"tool_calls\"")));
    provider.play(vec![Action::Hang]);
    let turn = json!({ "message": "Look", "mode": "ask", "model": "openai/m", "on_disconnect": "continue" });
    let mut running = world.begin(&turn).await;
    running.until("tool_result").await;
    let left = clear(&running.conversation()).await;
    let metadata = json!({ "model": "openai/m", "context_from": running.message(), "usage": usage });
    assert_eq!((&left["tokenCount"], &left["metadata"]), (&json!(10), &metadata), "{left}");
    assert_eq!(left["parts"][1]["code"], "interrupted", "{left}");
    Some(())
}

/// At whatever moment of its beginning.
async fn a_run_that_is_deleted_at_once_is_cancelled(backend: Backend) -> Option<()> {
    let world = World::start(backend).await?;
    let mut begun = 0;
    for _ in 0..60 {
        let conversation = world.tell(&json!({ "message": "hi" })).await.conversation();
        let path = format!("{CONVERSATIONS}/{conversation}");
        let body = json!({ "conversation": conversation, "message": "next" });
        let turn = world.turn(&body).header("prefer", "respond-async");
        let (turn, gone) = tokio::join!(ask(turn), world.send(Method::DELETE, &path, None));
        assert_eq!(gone.status, 204, "{}", gone.text);
        if turn.status != 202 {
            refused(&turn, 404, "not_found");
            continue;
        }
        begun += 1;
        assert_eq!(world.post(&format!("{path}/restore")).await.status, 200);
        let run = world.settled(turn.body["run"].as_str().unwrap()).await;
        assert!(run["status"] == "cancelled" || run["status"] == "succeeded", "{run}");
    }
    assert!(begun > 0, "no turn was begun before its conversation went");
    Some(())
}

/// Makes all that is stored of a run's log unreadable, past the store.
async fn damage(world: &World, run: &str) {
    let run = uuid::Uuid::parse_str(run).unwrap();
    let changed = match world.server.database() {
        None => {
            let db = rusqlite::Connection::open(world.server.data().join("test.db")).unwrap();
            let text = "UPDATE run_events SET entries = CAST(x'7bff' AS TEXT) WHERE run_id = ?1";
            db.execute(text, [run]).unwrap() as u64
        }
        Some(database) => {
            let url = database.superuser_url().unwrap();
            let (db, connection) = tokio_postgres::connect(&url, tokio_postgres::NoTls).await.unwrap();
            let connection = tokio::spawn(connection);
            let text = "UPDATE run_events SET entries = '{?' WHERE run_id = $1";
            let changed = db.execute(text, &[&run]).await.unwrap();
            connection.abort();
            changed
        }
    };
    assert!(changed > 0);
}
