//! A stream that is cut anywhere and taken up again: the parts make the log, no gap, no repeat.

use std::time::Duration;

use futures_util::future::join_all;
use reqwest::Method;
use serde_json::json;
use testkit::sandbox::{Action, Release};
use testkit::server::Backend;

use crate::random::Random;
use crate::scripts::{delta, open, result, step, wait_after};
use crate::sse::{Stream, Told, frames};
use crate::world::{World, ask, refused, stories};

stories!(
    cut_at_any_byte_after_the_end,
    cut_again_and_again_while_it_runs,
    two_readers_get_the_same_bytes,
    places_that_are_none,
    resumed_on_the_other_wire,
);

const CUTS: usize = 500;
/// With `turn`, `result` and `done` they are 5,000 events.
const LINES: u64 = 4997;

fn line(n: u64) -> String {
    match n % 50 {
        7 => step(&format!("s{}", n / 100), if n % 100 < 50 { "running" } else { "succeeded" }).to_string(),
        _ => delta(&format!("word {n} ü\n\n")).to_string(),
    }
}

/// The events after a place, by the header or by the parameter.
async fn resume(world: &World, run: &str, after: i64, by_header: bool) -> Stream {
    if !by_header {
        return world.follow(run, after).await;
    }
    let request = world.request(Method::GET, &format!("/v1/runs/{run}/events"));
    Stream::new(request.header("last-event-id", after.to_string()).send().await.unwrap())
}

async fn cut_at_any_byte_after_the_end(backend: Backend) -> Option<()> {
    let world = World::start(backend).await?;
    world.play(vec![open(), Action::Lines(LINES, line), Action::Line(result("The end."))]);
    let told = world.tell(&json!({ "message": "hi" })).await;
    assert_eq!(told.frames.len(), 5000);
    let run = told.run();
    let mut random = Random::new(5);
    for number in 0..CUTS {
        // Also right at the start and right at the end.
        let cut = match number {
            0 => 0,
            1 => told.bytes.len(),
            _ => random.below(told.bytes.len()),
        };
        let (seen, whole) = frames(&told.bytes[..cut]);
        let after = seen.last().map_or(0, |frame| frame.id);
        let mut rest = resume(&world, &run, after, number % 2 == 0).await;
        while rest.read().await {}
        assert!(rest.bytes == told.bytes[whole..], "cut at byte {cut}, resumed after {after}");
    }
    Some(())
}

/// Readers who lose their connection after a few bytes, over and over, while the sandbox writes.
async fn cut_again_and_again_while_it_runs(backend: Backend) -> Option<()> {
    let world = World::start(backend).await?;
    let mut script = vec![open()];
    for _ in 0..100 {
        script.extend([Action::Lines(40, line), Action::Wait(Duration::from_millis(10))]);
    }
    script.push(Action::Line(result("The end.")));
    world.play(script);
    let run = world.begin_async(&json!({ "message": "hi" })).await["run"].as_str().unwrap().to_owned();
    let readers = (0..8).map(|seed| {
        let (world, run) = (world.clone(), run.clone());
        async move {
            let (mut random, mut kept, mut after, mut cuts) = (Random::new(seed), Vec::new(), 0, 0);
            loop {
                let mut stream = resume(&world, &run, after, random.below(2) == 0).await;
                let enough = 1 + random.below(20_000);
                while stream.bytes.len() < enough && stream.read().await {}
                let (seen, whole) = frames(&stream.bytes[..stream.bytes.len().min(enough)]);
                kept.extend_from_slice(&stream.bytes[..whole]);
                after = seen.last().map_or(after, |frame| frame.id);
                if seen.last().is_some_and(|frame| frame.event == "done") {
                    return (Told::new(kept), cuts);
                }
                cuts += 1;
            }
        }
    });
    let told = join_all(readers).await;
    let whole = world.log(&run).await;
    assert_eq!(whole.frames.len(), 4003);
    for (told, cuts) in told {
        assert!(told.bytes == whole.bytes);
        assert!(cuts > 5, "only {cuts} cuts");
    }
    Some(())
}

async fn two_readers_get_the_same_bytes(backend: Backend) -> Option<()> {
    let world = World::start(backend).await?;
    let gate = Release::default();
    world.play(wait_after(vec![delta("a"), step("s", "running"), delta("b")], &gate, "ab"));
    let first = world.begin(&json!({ "message": "hi" })).await;
    let run = first.run();
    let second = world.follow(&run, 0).await;
    for name in
        ["threadkeep-run", "threadkeep-conversation", "threadkeep-message", "content-type", "cache-control"]
    {
        assert_eq!(second.header(name), first.header(name), "{name}");
    }
    gate.open();
    let (first, second) = tokio::join!(first.rest(), second.rest());
    assert_eq!(first.bytes, second.bytes);
    assert_eq!(world.log(&run).await.bytes, first.bytes);
    Some(())
}

async fn places_that_are_none(backend: Backend) -> Option<()> {
    let world = World::start(backend).await?;
    let told = world.tell(&json!({ "message": "hi" })).await;
    let run = told.run();
    let get = |query: &str| world.request(Method::GET, &format!("/v1/runs/{run}/events{query}"));
    for bad in ["4", "1000000", "-1", "x", "", "1.5", "9223372036854775808", "0x1"] {
        let answer = ask(get(&format!("?after={bad}"))).await;
        refused(&answer, 400, "invalid_parameter");
        assert_eq!(answer.body["source"]["parameter"], "after", "{bad}: {}", answer.text);
    }
    for bad in ["4", "-1", "x", "1 2", "99999999999999999999"] {
        let answer = ask(get("").header("last-event-id", bad)).await;
        refused(&answer, 400, "invalid_header");
        assert_eq!(answer.body["source"]["header"], "Last-Event-ID", "{bad}");
    }
    refused(&ask(get("?after=1&after=2")).await, 400, "invalid_parameter");
    refused(&ask(get("?after=x").header("last-event-id", "2")).await, 400, "invalid_parameter");
    let reconnected = ask(get("?after=1").header("last-event-id", "2")).await;
    assert_eq!(reconnected.text, ask(get("?after=2")).await.text, "the header is the newer one");
    for (query, meant) in [("", ""), ("?after=1", "?after=1")] {
        let none_seen = ask(get(query).header("last-event-id", "")).await;
        assert_eq!((none_seen.status, none_seen.text), (200, ask(get(meant)).await.text), "{query}");
    }
    refused(&ask(get("?surprise=1")).await, 400, "unknown_parameter");
    refused(&ask(get("?after=1&after=1")).await, 400, "invalid_parameter");
    // Both may say the same; the last place has nothing after it.
    let answer = ask(get("?after=2").header("last-event-id", "2")).await;
    assert_eq!((answer.status, frames(answer.text.as_bytes()).0.len()), (200, 1));
    let answer = ask(get("?after=3")).await;
    assert_eq!((answer.status, answer.text.as_str()), (200, ""));
    // A run that is under way has no events of the future either.
    world.play(crate::scripts::hang_after(vec![delta("a")]));
    let mut live = world.begin(&json!({ "message": "hi" })).await;
    live.until("delta").await;
    refused(
        &ask(world.request(Method::GET, &format!("/v1/runs/{}/events?after=3", live.run()))).await,
        400,
        "invalid_parameter",
    );
    // Another's run is not there.
    let stranger = world.stranger("eve").await;
    refused(&stranger.get(&format!("/v1/runs/{run}/events?after=1")).await, 404, "not_found");
    Some(())
}

async fn resumed_on_the_other_wire(backend: Backend) -> Option<()> {
    let world = World::start(backend).await?;
    world.play(crate::scripts::lines(vec![delta("a"), delta("b"), result("ab")]));
    let run = world.tell(&json!({ "message": "hi" })).await.run();
    let answer = world.get(&format!("/v1/runs/{run}/events?wire=ndjson&after=2")).await;
    let lines: Vec<serde_json::Value> =
        answer.text.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert_eq!(lines, [json!({ "type": "delta", "text": "b" }), result("ab")]);
    Some(())
}
