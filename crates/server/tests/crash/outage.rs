//! PostgreSQL goes away in the middle of runs and comes back: what was accepted stays, what is asked meanwhile is
//! refused as a whole, and no event is lost, doubled or shown before it is stored.

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
