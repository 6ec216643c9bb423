//! PostgreSQL itself crashes in the middle of runs, and has forgotten the newest that it took; the nodes and the readers
//! live on, and have not.

use std::time::Duration;

use serde_json::{Value, json};
use testkit::process::ServerProcess;
use testkit::sandbox::{Action, Release};

use crate::client::{Caller, new_id, turn};
use crate::house::{House, accepted, delta, random};
use crate::ledger::fold;
use crate::nodes::status;

const WORDS: i64 = 400;
/// The turn, its words, `result` and `done`.
const ALL: i64 = WORDS + 3;
const MENDED: &str = "the database had lost the end of a run's log";

/// Longer than PostgreSQL takes to recover.
async fn node(house: &House) -> ServerProcess {
    house.try_serve_with("", &[("THREADKEEP_LEASE_SECONDS", "30")]).await.expect("a server")
}

fn words(between: Duration) -> Vec<Action> {
    let words = (0..WORDS).flat_map(|n| [delta(&format!("word {n} ")), Action::Wait(between)]);
    [accepted()].into_iter().chain(words).collect()
}

fn end() -> [Action; 2] {
    [Action::Line(json!({ "type": "result", "message": "The end." })), Action::EndChunks]
}

#[tokio::test(flavor = "multi_thread")]
async fn runs_outlive_a_crash_of_postgresql() {
    let mut script = words(Duration::from_millis(10));
    script.extend(end());
    let Some(house) = House::crashing(script).await else { return };
    let cluster = house.cluster.as_ref().expect("a cluster");
    let (a, b) = (node(&house).await, node(&house).await);
    let (on_a, on_b) = (house.first_caller(&a).await, house.caller(&b));
    let mut readers = Vec::new();
    for _ in 0..6 {
        let (accepted, mut here) = on_a.start(&new_id(), &turn(None, "hello")).await.expect("a turn");
        let mut there = on_b.follow(&accepted.run, 0).await;
        let reading = async move { tokio::join!(here.rest(), there.rest()) };
        readers.push((accepted, tokio::spawn(reading)));
    }
    // Each comes before all of what is lost could be on the disk.
    let mut watched = on_a.follow(&readers[0].0.run, 0).await;
    for seq in [50, 150, 250] {
        watched.until(seq).await;
        cluster.crash().await.expect("a crash");
    }
    for (accepted, reading) in readers {
        let (here, there) = reading.await.expect("readers");
        let log = on_b.events(&accepted.run, 0).await;
        let numbers: Vec<i64> = log.iter().map(|event| event.seq).collect();
        assert_eq!((status(&log), numbers), ("succeeded".to_owned(), (1..=ALL).collect()));
        assert_eq!(here.expect("a whole stream"), log, "the reader of its node");
        assert_eq!(there.expect("a whole stream"), log, "the reader of the other");
        let k = i64::try_from(random(ALL as u64)).expect("a number");
        assert_eq!(on_a.events(&accepted.run, k).await, log[k as usize..]);
        let (messages, count) = on_b.thread(&accepted.conversation).await;
        assert_eq!((messages.len(), count, &messages[1]["parts"]), (2, 2, &fold(&log)));
    }
    assert!(a.output().contains(MENDED), "nothing was lost, the test shows nothing: {}", a.output());
}

/// What was lost is there again before the run has anything more to write.
#[tokio::test(flavor = "multi_thread")]
async fn what_a_waiting_run_had_said_is_there_again_at_once() {
    let more = Release::default();
    let mut script = words(Duration::from_millis(2));
    script.push(Action::WaitFor(more.clone()));
    script.extend(end());
    let Some(house) = House::crashing(script).await else { return };
    let (a, b) = (node(&house).await, node(&house).await);
    let (on_a, on_b) = (house.first_caller(&a).await, house.caller(&b));
    let (accepted, mut stream) = on_a.start(&new_id(), &turn(None, "hello")).await.expect("a turn");
    let mut seen = stream.until(WORDS + 1).await;
    house.cluster.as_ref().expect("a cluster").crash().await.expect("a crash");
    assert_eq!(on_b.follow(&accepted.run, 0).await.until(WORDS + 1).await, seen);
    more.open();
    seen.extend(stream.rest().await.expect("a whole stream"));
    assert_eq!((&seen, seen.len()), (&on_b.events(&accepted.run, 0).await, ALL as usize));
}

/// As a crash would, if it took all but the first event.
async fn forget(house: &House, run: &str) {
    let text = format!(
        "WITH lost AS (DELETE FROM run_events WHERE run_id = '{run}' AND last_entry > 1) \
         UPDATE runs SET last_entry = 1, last_event = 1 WHERE id = '{run}'"
    );
    house.superuser().await.batch_execute(&text).await.expect("forgotten");
}

/// The numbers of a run's entries, as its trace tells them.
async fn entries(caller: &Caller, run: &str) -> Vec<i64> {
    let trace = caller.get(&format!("/v1/runs/{run}/trace?limit=100")).await;
    let entries = trace.body["data"].as_array().expect("entries").iter();
    entries.map(|entry| entry["seq"].as_i64().expect("a number")).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn an_end_finds_what_came_before_it_forgotten() {
    let gate = Release::default();
    let mut script = vec![accepted(), delta("Once "), delta("upon "), Action::WaitFor(gate.clone())];
    script.extend(end());
    let Some(house) = House::postgres(script).await else { return };
    let server = node(&house).await;
    let caller = house.first_caller(&server).await;
    let (accepted, mut stream) = caller.start(&new_id(), &turn(None, "hello")).await.expect("a turn");
    let mut seen = stream.until(3).await;
    forget(&house, &accepted.run).await;
    gate.open();
    seen.extend(stream.rest().await.expect("a whole stream"));
    assert_eq!((status(&seen), &seen), ("succeeded".to_owned(), &caller.events(&accepted.run, 0).await));
    assert_eq!(caller.thread(&accepted.conversation).await.0[1]["parts"], fold(&seen));
}

/// More than a node keeps: the run ends, and no number means two events.
#[tokio::test(flavor = "multi_thread")]
async fn a_run_that_lost_too_much_ends_after_all_that_its_readers_saw() {
    let gate = Release::default();
    let large = "x".repeat(32 * 1024);
    let mut script = vec![accepted()];
    script.extend((0..20).flat_map(|_| [delta(&large), Action::Wait(Duration::from_millis(20))]));
    script.extend([Action::WaitFor(gate.clone()), delta("more")]);
    script.extend(end());
    let Some(house) = House::postgres(script).await else { return };
    let server = node(&house).await;
    let caller = house.first_caller(&server).await;
    let (accepted, mut stream) = caller.start(&new_id(), &turn(None, "hello")).await.expect("a turn");
    let seen = stream.until(21).await;
    forget(&house, &accepted.run).await;
    gate.open();
    let rest = stream.rest().await.expect("a whole stream");
    let told: Vec<(i64, &str)> = rest.iter().map(|event| (event.seq, event.kind.as_str())).collect();
    assert_eq!((status(&rest), &told[..]), ("interrupted".to_owned(), &[(22, "error"), (23, "done")][..]));
    let log = caller.events(&accepted.run, 0).await;
    assert_eq!((&log[..1], &log[1..]), (&seen[..1], &rest[..]));
    assert_eq!(caller.events(&accepted.run, 21).await, rest);
    let parts: Value = caller.thread(&accepted.conversation).await.0[1]["parts"].clone();
    assert_eq!(parts, fold(&log));
    let entries = entries(&caller, &accepted.run).await;
    assert_eq!(entries, (1..=entries.len() as i64).collect::<Vec<_>>(), "a trace without a gap");
}
