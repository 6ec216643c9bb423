//! PostgreSQL goes away in the middle of runs and comes back, or only falls silent: what was accepted stays, what is
//! asked meanwhile is refused as a whole, and no event is lost, doubled or shown before it is stored.

use std::time::{Duration, Instant};

use serde_json::json;
use testkit::sandbox::{Action, Release};

use crate::client::{Caller, new_id, turn};
use crate::house::{House, LEASE, SETTLED, accepted, delta, story};
use crate::ledger::fold;

/// Some words, and the rest when it is let go on.
fn in_two_parts(gate: &Release) -> Vec<Action> {
    let mut script = vec![accepted(), delta("Once "), delta("upon "), Action::WaitFor(gate.clone())];
    script.extend((0..50).map(|n| delta(&format!("word {n} "))));
    script.extend([Action::Line(json!({ "type": "result", "message": "The end." })), Action::EndChunks]);
    script
}

async fn ready(caller: &Caller, wanted: u16) {
    let since = Instant::now();
    while caller.get("/readyz").await.status != wanted {
        assert!(since.elapsed() < Duration::from_secs(20), "/readyz is not {wanted}");
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_run_outlives_a_short_outage() {
    let words = Release::default();
    let Some(house) = House::postgres(in_two_parts(&words)).await else { return };
    house.sandbox.then(story(Duration::ZERO));
    let gate = house.gate().await;
    let server = house.serve_behind(&gate).await;
    let caller = house.first_caller(&server).await;
    let (accepted, mut stream) = caller.start(&new_id(), &turn(None, "hello")).await.expect("a turn");
    let mut seen = stream.until(3).await;

    gate.close();
    ready(&caller, 503).await;
    words.open();
    let refused = caller.post("/v1/turns", &turn(None, "meanwhile")).await;
    assert_eq!((refused.status, &refused.body["status"]), (503, &json!(503)), "{}", refused.text);
    assert!(caller.start_async(&new_id(), &turn(Some(&accepted.conversation), "queued")).await.is_err());
    let silence = tokio::time::timeout(Duration::from_millis(300), stream.next()).await;
    assert!(silence.is_err(), "shown before it was stored: {silence:?}");

    gate.open();
    seen.extend(stream.rest().await.expect("a whole stream"));
    let log = caller.events(&accepted.run, 0).await;
    assert_eq!(seen, log);
    assert_eq!((log.len(), log[54].json()), (55, json!({ "status": "succeeded" })));
    let (messages, count) = caller.thread(&accepted.conversation).await;
    assert_eq!(
        (messages.len(), count, &messages[1]["parts"]),
        (2, 2, &fold(&log)),
        "nothing of what was refused"
    );
    let next = caller.say(Some(&accepted.conversation), "go on").await;
    assert_eq!(caller.events(&next.run, 0).await.last().expect("an end").json()["status"], "succeeded");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_node_without_its_database_loses_its_runs() {
    let words = Release::default();
    let Some(house) = House::postgres(in_two_parts(&words)).await else { return };
    house.sandbox.then(story(Duration::ZERO));
    let gate = house.gate().await;
    let (cut_off, other) = (house.serve_behind(&gate).await, house.serve().await);
    let (here, there) = (house.first_caller(&cut_off).await, house.caller(&other));
    let (accepted, mut stream) = here.start(&new_id(), &turn(None, "hello")).await.expect("a turn");
    let mut seen = stream.until(3).await;

    gate.close();
    let since = Instant::now();
    words.open();
    let log = there.events(&accepted.run, 0).await;
    assert!(since.elapsed() > LEASE / 2 && since.elapsed() <= SETTLED, "settled after {:?}", since.elapsed());
    assert_eq!((&log[..3], log.len()), (&seen[..], 5), "what was streamed is kept, and nothing else");
    assert_eq!(log[4].json(), json!({ "status": "interrupted" }));
    // Its sandbox is told to stop: nobody could keep what it says.
    house.sandbox.disconnected(0).await.expect("a request");

    gate.open();
    seen.extend(stream.rest().await.expect("a whole stream"));
    assert_eq!(seen, log);
    ready(&here, 200).await;
    let next = here.say(Some(&accepted.conversation), "go on").await;
    assert_eq!(here.events(&next.run, 0).await.last().expect("an end").json()["status"], "succeeded");
    assert_eq!(there.events(&accepted.run, 0).await, log);
}

/// The end of a run is committed, and its node does not hear of it: it is not written again, and everybody is told.
#[tokio::test(flavor = "multi_thread")]
async fn an_end_whose_answer_is_lost_is_written_once() {
    let words = Release::default();
    let Some(house) = House::postgres(in_two_parts(&words)).await else { return };
    house.sandbox.then(story(Duration::ZERO));
    let gate = house.gate().await;
    let server = house.serve_behind(&gate).await;
    let caller = house.first_caller(&server).await;
    let (accepted, mut stream) = caller.start(&new_id(), &turn(None, "hello")).await.expect("a turn");
    let mut seen = stream.until(3).await;
    // The answer's text is written with the end alone.
    gate.lose_answer("The end.", "COMMIT\0");
    words.open();
    seen.extend(stream.rest().await.expect("a whole stream"));
    assert_eq!(gate.lost(), 1, "the test shows nothing");
    let log = caller.events(&accepted.run, 0).await;
    assert_eq!((&seen, log.len(), log[54].json()), (&log, 55, json!({ "status": "succeeded" })));
    let run = caller.run(&accepted.run).await;
    assert_eq!((&run["status"], run["ended_at"].is_string()), (&json!("succeeded"), true), "{run}");
    let (messages, count) = caller.thread(&accepted.conversation).await;
    assert_eq!((messages.len(), count, &messages[1]["parts"]), (2, 2, &fold(&log)), "one answer");
    // It knows the end that it finds for its own.
    assert!(!server.output().contains("no longer writes"), "{}", server.output());
    let next = caller.say(Some(&accepted.conversation), "go on").await;
    assert_eq!(caller.events(&next.run, 0).await.last().expect("an end").json()["status"], "succeeded");
}

/// Words without an end, one after the other.
fn talking() -> Vec<Action> {
    let words =
        (0..600).flat_map(|n| [delta(&format!("word {n} ")), Action::Wait(Duration::from_millis(50))]);
    [accepted()].into_iter().chain(words).chain([Action::Hang]).collect()
}

/// Connections stay open and nothing comes through them: nobody tells the node that it has lost its runs.
#[tokio::test(flavor = "multi_thread")]
async fn a_node_whose_database_falls_silent_lets_its_sandbox_go_before_another_runs_the_next_turn() {
    let Some(house) = House::postgres(talking()).await else { return };
    house.sandbox.then(story(Duration::ZERO));
    let gate = house.gate().await;
    let (cut_off, other) = (house.serve_behind(&gate).await, house.serve().await);
    let (here, there) = (house.first_caller(&cut_off).await, house.caller(&other));
    let (accepted, mut stream) = here.start(&new_id(), &turn(None, "hello")).await.expect("a turn");
    let seen = stream.until(3).await;
    // The other node starts it as soon as it has settled the first.
    let queued = there.say(Some(&accepted.conversation), "and then").await;

    gate.fall_silent();
    let asking = async {
        ready(&here, 503).await;
        let list = here.get("/v1/chat-conversations").await;
        assert_eq!((list.status, list.header("retry-after").is_empty()), (503, false), "{}", list.text);
        assert_eq!(here.post("/v1/turns", &turn(None, "meanwhile")).await.status, 503);
        assert_eq!(here.get("/healthz").await.status, 200);
    };
    let settled = async { (there.events(&accepted.run, 0).await, there.events(&queued.run, 0).await) };
    let (log, next) = tokio::time::timeout(SETTLED * 2, async { tokio::join!(settled, asking).0 })
        .await
        .expect("neither a request nor a run waits for what does not come");
    assert_eq!(log[..3], seen[..], "what was streamed is kept");
    assert_eq!(log.last().expect("an end").json(), json!({ "status": "interrupted" }));
    assert_eq!(next.last().expect("an end").json(), json!({ "status": "succeeded" }));
    let first = house.sandbox.disconnected(0).await.expect("a request that was given up");
    let second = house.sandbox.disconnected(1).await.expect("the next turn's");
    assert!(first.disconnected < second.arrived, "two at once: {first:?} {second:?}");

    gate.open();
    ready(&here, 200).await;
    assert_eq!(here.events(&accepted.run, 0).await, log, "the node that came back wrote nothing");
    let (messages, count) = here.thread(&accepted.conversation).await;
    assert_eq!((messages.len(), count, &messages[1]["parts"]), (4, 4, &fold(&log)));
    let more = here.say(Some(&accepted.conversation), "go on").await;
    assert_eq!(there.events(&more.run, 0).await.last().expect("an end").json()["status"], "succeeded");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_node_whose_database_is_silent_can_be_stopped() {
    let Some(house) = House::postgres(talking()).await else { return };
    let gate = house.gate().await;
    let (mut cut_off, other) = (house.serve_behind(&gate).await, house.serve().await);
    let here = house.first_caller(&cut_off).await;
    let (accepted, mut stream) = here.start(&new_id(), &turn(None, "hello")).await.expect("a turn");
    let seen = stream.until(3).await;
    gate.fall_silent();
    let ended = cut_off.terminate().await.expect("an end");
    assert_eq!(ended.code(), Some(0), "{}", cut_off.output());
    let log = house.caller(&other).events(&accepted.run, 0).await;
    assert_eq!(
        (&log[..3], log.last().expect("an end").json()),
        (&seen[..], json!({ "status": "interrupted" }))
    );
}

/// Shorter than the lease: it goes on where it was, over the connections it had or over others.
#[tokio::test(flavor = "multi_thread")]
async fn a_run_outlives_a_short_silence() {
    let words = Release::default();
    let Some(house) = House::postgres(in_two_parts(&words)).await else { return };
    let gate = house.gate().await;
    let server = house.serve_behind(&gate).await;
    let caller = house.first_caller(&server).await;
    let (accepted, mut stream) = caller.start(&new_id(), &turn(None, "hello")).await.expect("a turn");
    let mut seen = stream.until(3).await;
    gate.fall_silent();
    words.open();
    let silence = tokio::time::timeout(Duration::from_millis(700), stream.next()).await;
    assert!(silence.is_err(), "shown before it was stored: {silence:?}");
    gate.open();
    seen.extend(stream.rest().await.expect("a whole stream"));
    let log = caller.events(&accepted.run, 0).await;
    assert_eq!((&seen, log.len(), log[54].json()), (&log, 55, json!({ "status": "succeeded" })));
}
