//! `Idempotency-Key`: a retry gets the run that the first try made, whatever became of its answer.

use std::collections::HashSet;

use futures_util::future::join_all;
use reqwest::Method;
use serde_json::{Value, json};
use testkit::sandbox::Release;
use testkit::server::{Answer, Backend};

use crate::scripts::{delta, wait_after};
use crate::world::{CONVERSATIONS, World, ask, refused, stories};

stories!(
    a_retry_gets_the_same_run,
    a_retry_of_a_stream_gets_the_same_bytes,
    another_body_is_refused,
    keys_belong_to_their_caller,
    one_key_is_one_run_in_all_workspaces_of_its_caller,
    fifty_at_once_make_one_run,
    refused_turns_leave_no_key,
    a_retry_after_a_delete_finds_nothing,
    a_retry_does_not_mind_what_went_since,
    a_retry_goes_on_after_what_was_seen,
);

async fn keyed(world: &World, key: &str, body: &Value) -> Answer {
    ask(world.turn(body).header("idempotency-key", key).header("prefer", "respond-async")).await
}

async fn a_retry_gets_the_same_run(backend: Backend) -> Option<()> {
    let world = World::start(backend).await?;
    let body = json!({ "message": "once" });
    let first = keyed(&world, "k1", &body).await;
    world.settled(first.body["run"].as_str().unwrap()).await;
    let again = keyed(&world, "k1", &body).await;
    assert_eq!((again.status, &again.body["status"]), (202, &json!("succeeded")));
    for id in ["run", "conversation", "message"] {
        assert_eq!(again.body[id], first.body[id], "{id}");
    }
    let other = keyed(&world, "k2", &body).await;
    assert_ne!(other.body["run"], first.body["run"]);
    world.settled(other.body["run"].as_str().unwrap()).await;
    assert_eq!(world.count().await, (2, 2));
    // Within a conversation, too: busy is no answer to one's own retry.
    let gate = Release::default();
    world.play(wait_after(vec![], &gate, "Done."));
    let body = json!({ "conversation": first.body["conversation"], "message": "again" });
    let third = keyed(&world, "k3", &body).await;
    let retried = keyed(&world, "k3", &body).await;
    assert_eq!((retried.status, &retried.body), (202, &third.body));
    gate.open();
    Some(())
}

async fn a_retry_of_a_stream_gets_the_same_bytes(backend: Backend) -> Option<()> {
    let world = World::start(backend).await?;
    let gate = Release::default();
    world.play(wait_after(vec![delta("a")], &gate, "ab"));
    let body = json!({ "message": "once", "on_disconnect": "continue" });
    let send = async || {
        let sent = world.turn(&body).header("idempotency-key", "k").send().await.unwrap();
        crate::sse::Stream::new(sent)
    };
    let mut lost = send().await;
    lost.until("delta").await;
    drop(lost);
    let again = send().await;
    gate.open();
    let told = again.rest().await;
    assert_eq!(send().await.rest().await.bytes, told.bytes);
    assert_eq!(world.log(&told.run()).await.bytes, told.bytes);
    assert_eq!(world.count().await, (1, 1));
    Some(())
}

async fn another_body_is_refused(backend: Backend) -> Option<()> {
    let world = World::start(backend).await?;
    keyed(&world, "k", &json!({ "message": "one" })).await;
    for body in [json!({ "message": "two" }), json!({ "message": "one", "mode": "agent" })] {
        let answer = keyed(&world, "k", &body).await;
        refused(&answer, 422, "idempotency_key_reused");
        assert_eq!(answer.body["source"]["header"], "Idempotency-Key");
    }
    assert_eq!(world.count().await, (1, 1));
    let header = |value: &str| world.turn(&json!({ "message": "x" })).header("idempotency-key", value);
    for request in
        [header(""), header(" "), header(&"k".repeat(256)), header("a").header("idempotency-key", "b")]
    {
        let answer = ask(request).await;
        refused(&answer, 400, "invalid_header");
        assert_eq!(answer.body["source"]["header"], "Idempotency-Key");
    }
    assert_eq!(world.count().await, (1, 1));
    Some(())
}

async fn keys_belong_to_their_caller(backend: Backend) -> Option<()> {
    let world = World::start(backend).await?;
    let (mate, stranger) = (world.member("bob").await, world.stranger("eve").await);
    let body = json!({ "name": "k", "role": "service", "workspace": world.workspace });
    let service = world.send(Method::POST, "/v1/api-keys", Some(&body)).await.body["key"].clone();
    let body = json!({ "message": "mine" });
    let mut runs = HashSet::new();
    for _ in 0..2 {
        for who in [&world, &mate, &stranger] {
            runs.insert(keyed(who, "k", &body).await.body["run"].as_str().unwrap().to_owned());
        }
        for user in ["ann", "bob"] {
            let request = world
                .server
                .request(Method::POST, "/v1/turns")
                .bearer_auth(service.as_str().unwrap())
                .header("threadkeep-user", user)
                .header("idempotency-key", "k")
                .header("prefer", "respond-async")
                .header("content-type", "application/json")
                .body(body.to_string());
            runs.insert(ask(request).await.body["run"].as_str().unwrap().to_owned());
        }
    }
    assert_eq!(runs.len(), 5);
    Some(())
}

async fn one_key_is_one_run_in_all_workspaces_of_its_caller(backend: Backend) -> Option<()> {
    let world = World::start(backend).await?;
    let second = world.server.person("ann", "acme").create_workspace("Second").await.unwrap();
    let (first, second) = (json!(world.workspace), json!(second));
    let named = |workspace: &Value, key: &str, body: &Value| {
        world
            .turn(body)
            .header("threadkeep-workspace", workspace.as_str().unwrap())
            .header("prefer", "respond-async")
            .header("idempotency-key", key)
    };
    let said = json!({ "message": "once" });
    let made = ask(named(&first, "k", &said)).await;
    assert_eq!(made.status, 202, "{}", made.text);
    refused(&ask(named(&second, "k", &said)).await, 422, "idempotency_key_reused");
    let body = json!({ "message": "once", "workspace": second });
    refused(&keyed(&world, "k", &body).await, 422, "idempotency_key_reused");
    assert_eq!(ask(named(&first, "k", &said)).await.body["run"], made.body["run"]);
    // What is no repetition goes where it is meant to.
    let other = ask(named(&second, "k2", &said)).await;
    assert_eq!(other.status, 202, "{}", other.text);
    refused(&ask(named(&first, "k2", &said)).await, 422, "idempotency_key_reused");
    assert_eq!(ask(named(&second, "k2", &said)).await.body["run"], other.body["run"]);
    // An API key is a caller of its own.
    let key = json!({ "name": "k", "role": "member", "workspace": second });
    let key = world.send(Method::POST, "/v1/api-keys", Some(&key)).await.body["key"].clone();
    let request = world.server.request(Method::POST, "/v1/turns").bearer_auth(key.as_str().unwrap());
    let request = request.header("idempotency-key", "k").header("prefer", "respond-async");
    let by_key = ask(request.header("content-type", "application/json").body(said.to_string())).await;
    assert_eq!(by_key.status, 202, "{}", by_key.text);
    assert_ne!(by_key.body["run"], made.body["run"]);
    Some(())
}

async fn fifty_at_once_make_one_run(backend: Backend) -> Option<()> {
    let world = World::start(backend).await?;
    let first = world.tell(&json!({ "message": "before" })).await;
    // A first turn, and a later one.
    for (round, body) in
        [json!({ "message": "one" }), json!({ "conversation": first.conversation(), "message": "two" })]
            .iter()
            .enumerate()
    {
        let key = format!("round {round}");
        let answers = join_all((0..50).map(|_| keyed(&world, &key, body))).await;
        let runs: HashSet<String> = answers
            .iter()
            .map(|answer| {
                assert_eq!(answer.status, 202, "{}", answer.text);
                answer.body["run"].as_str().unwrap().to_owned()
            })
            .collect();
        assert_eq!(runs.len(), 1);
        world.settled(runs.iter().next().unwrap()).await;
    }
    assert_eq!(world.count().await, (2, 3));
    assert_eq!(world.sandbox.requests().len(), 3);
    Some(())
}

/// A refusal is not remembered: the same key works once the way is free.
async fn refused_turns_leave_no_key(backend: Backend) -> Option<()> {
    let world = World::start(backend).await?;
    let gate = Release::default();
    world.play(wait_after(vec![], &gate, "Done."));
    let running = world.begin_async(&json!({ "message": "one" })).await;
    let body = json!({ "conversation": running["conversation"], "message": "two" });
    refused(&keyed(&world, "k", &body).await, 409, "conversation_busy");
    gate.open();
    world.settled(running["run"].as_str().unwrap()).await;
    let accepted = keyed(&world, "k", &body).await;
    assert_eq!(accepted.status, 202, "{}", accepted.text);
    let path = format!("{CONVERSATIONS}/{}/runs", running["conversation"].as_str().unwrap());
    assert_eq!(world.get(&path).await.body["data"].as_array().unwrap().len(), 2);
    Some(())
}

async fn a_retry_after_a_delete_finds_nothing(backend: Backend) -> Option<()> {
    let world = World::start(backend).await?;
    let body = json!({ "message": "once" });
    let first = keyed(&world, "k", &body).await;
    world.settled(first.body["run"].as_str().unwrap()).await;
    let path = format!("{CONVERSATIONS}/{}", first.body["conversation"].as_str().unwrap());
    assert_eq!(world.send(Method::DELETE, &path, None).await.status, 204);
    refused(&keyed(&world, "k", &body).await, 404, "not_found");
    refused(&ask(world.turn(&body).header("idempotency-key", "k")).await, 404, "not_found");
    assert_eq!(world.send(Method::POST, &format!("{path}/restore"), None).await.status, 200);
    assert_eq!(keyed(&world, "k", &body).await.body["run"], first.body["run"]);
    Some(())
}

async fn a_retry_does_not_mind_what_went_since(backend: Backend) -> Option<()> {
    let world = World::start_with(backend, |config| config.limits.context_budget_chars = 40_000).await?;
    let body = json!({ "name": "Helper", "runner": "sandbox" });
    let agent = world.send(Method::POST, "/v1/agents", Some(&body)).await.body["id"].clone();
    // A model would not be sent it; the agent's sandbox is.
    let long = "x".repeat(50_000);
    let first = json!({ "message": "once", "agent": agent });
    let ask_long = json!({ "message": long, "agent": agent, "mode": "ask" });
    let made = [keyed(&world, "k1", &first).await, keyed(&world, "k2", &ask_long).await];
    for made in &made {
        assert_eq!(made.status, 202, "{}", made.text);
        world.settled(made.body["run"].as_str().unwrap()).await;
    }
    let path = format!("/v1/agents/{}", agent.as_str().unwrap());
    assert_eq!(world.send(Method::DELETE, &path, None).await.status, 204);
    for (key, body, made) in [("k1", &first, &made[0]), ("k2", &ask_long, &made[1])] {
        let again = keyed(&world, key, body).await;
        assert_eq!((again.status, &again.body["run"]), (202, &made.body["run"]), "{}", again.text);
        let streamed = ask(world.turn(body).header("idempotency-key", key)).await;
        assert_eq!(streamed.status, 200, "{}", streamed.text);
    }
    // A new request is refused as ever, and one with the key of another as that.
    refused(&keyed(&world, "k3", &first).await, 422, "invalid_value");
    let other = json!({ "message": "twice", "agent": agent });
    refused(&keyed(&world, "k1", &other).await, 422, "idempotency_key_reused");
    assert_eq!(world.count().await, (2, 2));
    Some(())
}

/// A client that sends its request again and says how far it has come gets the rest, as from the run's own events.
async fn a_retry_goes_on_after_what_was_seen(backend: Backend) -> Option<()> {
    let world = World::start(backend).await?;
    let gate = Release::default();
    world.play(wait_after(vec![delta("a"), delta("b")], &gate, "abc"));
    let body = json!({ "message": "once", "on_disconnect": "continue" });
    let send = async |wire: &str, seen: &str| {
        let request = world.request(Method::POST, &format!("/v1/turns?wire={wire}"));
        let request = request.header("content-type", "application/json").header("idempotency-key", "k");
        ask(request.header("last-event-id", seen).body(body.to_string())).await
    };
    let request = world.turn(&body).header("idempotency-key", "k");
    // The first of them has seen nothing of this run, whatever it says.
    let mut lost = crate::sse::Stream::new(request.header("last-event-id", "7").send().await.unwrap());
    assert_eq!(lost.until("delta").await.id, 2);
    let run = lost.run();
    drop(lost);
    gate.open();
    let whole = world.log(&run).await;
    for wire in ["envelope", "ndjson", "openai", "anthropic", "ui-message", "ag-ui"] {
        for seen in 0..=whole.frames.len() {
            let path = format!("/v1/runs/{run}/events?wire={wire}&after={seen}");
            let again = send(wire, &seen.to_string()).await;
            assert_eq!((again.status, again.text), (200, world.get(&path).await.text), "{wire} {seen}");
        }
    }
    for seen in ["99", "-1", "x"] {
        let answer = send("envelope", seen).await;
        refused(&answer, 400, "invalid_header");
        assert_eq!(answer.body["source"]["header"], "Last-Event-ID");
    }
    assert_eq!(world.count().await, (1, 1));
    Some(())
}
