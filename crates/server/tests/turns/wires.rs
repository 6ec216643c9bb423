//! The same run in each dialect, by `?wire=` and by `Accept`.

use futures_util::future::join_all;
use reqwest::Method;
use serde_json::{Value, json};
use testkit::sandbox::Action;
use testkit::server::Backend;

use crate::scripts::{bytes, delta, lines, log, open, result, step};
use crate::world::{World, ask, stories};

stories!(
    by_parameter_and_by_accept,
    ndjson_to_the_letter,
    a_failure_of_ours_in_ndjson,
    dialects_that_only_add_resume_at_every_event,
    what_a_dialect_leaves_out_does_not_silence_it,
);

const EVENTS: &str = "text/event-stream";
const NDJSON: &str = "application/x-ndjson";

async fn by_parameter_and_by_accept(backend: Backend) -> Option<()> {
    let world = World::start(backend).await?;
    let run = world.tell(&json!({ "message": "hi" })).await.run();
    for (query, accept, kind) in [
        ("", None, EVENTS),
        ("", Some("*/*"), EVENTS),
        ("", Some("text/html"), EVENTS),
        ("", Some(EVENTS), EVENTS),
        ("", Some(NDJSON), NDJSON),
        ("", Some("text/event-stream;q=0.1, application/x-ndjson"), NDJSON),
        ("", Some("application/x-ndjson;q=0.1, text/event-stream"), EVENTS),
        ("?wire=envelope", Some(NDJSON), EVENTS),
        ("?wire=ndjson", Some(EVENTS), NDJSON),
        ("?wire=ndjson", None, NDJSON),
    ] {
        let turn = world.request(Method::POST, &format!("/v1/turns{query}"));
        let turn =
            turn.header("content-type", "application/json").body(json!({ "message": "hi" }).to_string());
        let events = world.request(Method::GET, &format!("/v1/runs/{run}/events{query}"));
        for mut request in [turn, events] {
            if let Some(accept) = accept {
                request = request.header("accept", accept);
            }
            let answer = ask(request).await;
            assert_eq!((answer.status, answer.header("content-type")), (200, kind), "{query} {accept:?}");
            assert_eq!(answer.text.starts_with("id: 1\nevent: turn\n"), kind == EVENTS, "{query} {accept:?}");
            assert_ne!(answer.header("threadkeep-run"), "");
        }
    }
    for bad in ["open-ai", "NDJSON", "", "envelope%20"] {
        let answer = world.get(&format!("/v1/runs/{run}/events?wire={bad}")).await;
        assert_eq!((answer.status, &answer.body["source"]["parameter"]), (400, &json!("wire")), "{bad}");
        assert!(
            answer.text.contains("envelope, ndjson, openai, anthropic, ui-message or ag-ui"),
            "{}",
            answer.text
        );
    }
    Some(())
}

async fn ndjson_to_the_letter(backend: Backend) -> Option<()> {
    let world = World::start(backend).await?;
    let ended =
        json!({ "type": "step", "id": "s", "name": "look", "status": "failed", "error": "no", "ts": 7 });
    world.play(lines(vec![log("hidden"), delta("a\n"), step("s", "running"), ended.clone(), result("ab")]));
    let turn =
        world.request(Method::POST, "/v1/turns?wire=ndjson").header("content-type", "application/json");
    let answer = ask(turn.body(json!({ "message": "hi" }).to_string())).await;
    let told: Vec<Value> = answer.text.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert_eq!(told, [delta("a\n"), step("s", "running"), ended, result("ab")]);
    assert!(answer.text.ends_with('\n'));
    let again = world.get(&format!("/v1/runs/{}/events?wire=ndjson", answer.header("threadkeep-run"))).await;
    assert_eq!(again.text, answer.text);
    Some(())
}

async fn a_failure_of_ours_in_ndjson(backend: Backend) -> Option<()> {
    let world = World::start(backend).await?;
    world.play(bytes("nonsense\n"));
    let turn =
        world.request(Method::POST, "/v1/turns?wire=ndjson").header("content-type", "application/json");
    let answer = ask(turn.body(json!({ "message": "hi" }).to_string())).await;
    let lines: Vec<Value> = answer.text.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert_eq!(lines.len(), 1);
    assert_eq!((&lines[0]["type"], &lines[0]["code"]), (&json!("error"), &json!("sandbox_protocol")));
    assert_eq!(lines[0].get("assistant"), None);
    Some(())
}

/// A step that says again that it runs is told by `envelope` each time, and by the others once.
async fn what_a_dialect_leaves_out_does_not_silence_it(backend: Backend) -> Option<()> {
    // They take their time, so they take it together; of what a dialect leaves out one database shows as much as two.
    if backend == Backend::Sqlite {
        let silences =
            async { tokio::join!(silence_is_filled(backend), silence_is_filled(Backend::Postgres)) };
        tokio::join!(silences, repeated_steps(backend)).1?;
    }
    Some(())
}

/// On every wire of events, on the node's own run and on one that is only attached to.
async fn silence_is_filled(backend: Backend) -> Option<()> {
    let world = World::start(backend).await?;
    let pause = Action::Wait(std::time::Duration::from_secs(18));
    world.play(vec![open(), Action::Line(delta("a")), pause, Action::Line(result("ab"))]);
    let mut first = world.begin(&json!({ "message": "hi" })).await;
    first.until("delta").await;
    let paths = ["envelope", "openai", "anthropic", "ui-message", "ag-ui", "ndjson"]
        .map(|wire| (wire, format!("/v1/runs/{}/events?wire={wire}", first.run())));
    let attached = join_all(paths.iter().map(|(wire, path)| async { (*wire, world.get(path).await.text) }));
    let (attached, first) = tokio::join!(attached, first.rest());
    let text = String::from_utf8(first.bytes).unwrap();
    for (wire, text) in attached.into_iter().chain([("the first", text)]) {
        let heartbeats = text.matches("\n\n: heartbeat\n\n").count();
        assert_eq!(heartbeats, usize::from(wire != "ndjson"), "{backend:?} {wire}: {text}");
    }
    Some(())
}

async fn repeated_steps(backend: Backend) -> Option<()> {
    let world = World::start(backend).await?;
    let pause = Action::Wait(std::time::Duration::from_secs(3));
    let again = [Action::Line(step("s", "running")), pause];
    let script = [open()].into_iter().chain(std::iter::repeat_n(again, 6).flatten());
    world.play(script.chain([Action::Line(result("done"))]).collect());
    let turn =
        world.request(Method::POST, "/v1/turns?wire=openai").header("content-type", "application/json");
    let told = ask(turn.body(json!({ "message": "hi" }).to_string())).await;
    assert_eq!(told.text.matches("\n: heartbeat\n\n").count(), 1, "{}", told.text);
    let events = world.get(&format!("/v1/runs/{}/events", told.header("threadkeep-run"))).await;
    assert_eq!(events.text.matches("event: step\n").count(), 6, "{}", events.text);
    Some(())
}

async fn dialects_that_only_add_resume_at_every_event(backend: Backend) -> Option<()> {
    let world = World::start(backend).await?;
    let ended =
        json!({ "type": "step", "id": "s", "name": "look", "status": "succeeded", "result": 1, "ts": 7 });
    world.play(lines(vec![delta("I "), delta("look."), step("s", "running"), ended, result("Done.")]));
    let run = world.tell(&json!({ "message": "hi" })).await.run();
    let events = world.run(&run).await["last_event"].as_i64().unwrap();
    for (wire, end) in [
        ("openai", "data: [DONE]\n\n"),
        ("anthropic", "{\"type\":\"message_stop\"}\n\n"),
        ("ui-message", "data: [DONE]\n\n"),
        ("ag-ui", "\"type\":\"RUN_FINISHED\"}\n\n"),
    ] {
        let path = format!("/v1/runs/{run}/events?wire={wire}");
        let whole = world.get(&path).await;
        assert_eq!((whole.status, whole.header("content-type")), (200, EVENTS));
        assert!(whole.text.ends_with(end), "{}", whole.text);
        for after in 0..=events {
            let rest =
                ask(world.request(Method::GET, &path).header("last-event-id", after.to_string())).await;
            assert!(whole.text.ends_with(&rest.text), "{wire} after {after}: {}", rest.text);
            let seen = &whole.text[..whole.text.len() - rest.text.len()];
            let last = seen.lines().rev().find_map(|line| line.strip_prefix("id: "));
            assert!(last.is_none_or(|last| last.parse::<i64>().unwrap() <= after), "{wire} after {after}");
        }
        let beyond = world.get(&format!("{path}&after={}", events + 1)).await;
        assert_eq!(beyond.status, 400, "{}", beyond.text);
    }
    Some(())
}
