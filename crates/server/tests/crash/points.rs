//! Dead at each step of the walk, the first, second and third time it comes there; then started again.

use std::collections::BTreeSet;
use std::os::unix::process::ExitStatusExt as _;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use nix::sys::signal::Signal;
use testkit::process::ServerProcess;
use tokio::sync::Semaphore;
use tokio::task::JoinSet;

use crate::client::Caller;
use crate::house::{House, SETTLED, endless, story};
use crate::ledger::{Due, Ledger};
use crate::rounds::DEATHS;

/// Every place that the walk of a turn comes by.
pub const WALK: [&str; 12] = [
    "accept.before",
    "accept.after",
    "dispatch.after",
    "append.before",
    "append.after",
    "append.published",
    "sandbox.ended",
    "settle.before",
    "settle.after",
    "settle.published",
    "queue.before",
    "queue.started",
];
/// Those of ending what a dead process left.
const SWEEP: [&str; 2] = ["sweep.taken", "sweep.settled"];
const CONVERSATIONS: usize = 3;
const AT_ONCE: usize = 6;

/// A conversation: a turn, another that waits for it, both read to their ends.
async fn converse(caller: Caller, ledger: Ledger) {
    let Some(first) = ledger.ask(&caller, None).await else { return };
    let conversation = first.accepted.conversation.clone();
    let second = async {
        if let Some(second) = ledger.ask(&caller, Some(&conversation)).await {
            second.rest().await;
        }
    };
    tokio::join!(first.rest(), second);
}

/// Waits for the death that the failpoint brings.
pub async fn dies(server: &mut ServerProcess, point: &str) {
    let status = server.ended().await.unwrap_or_else(|error| panic!("{point} was not come by: {error:#}"));
    assert_eq!(status.signal(), Some(Signal::SIGABRT as i32), "{point}: {}", server.output());
    assert!(server.output().contains(&format!("failpoint {point}")), "{}", server.output());
}

async fn dies_in_the_walk(house: &House, point: &str, hit: usize, ledger: &Ledger) {
    let mut server = house.try_serve(&format!("{point}={hit}")).await.expect("a server");
    let caller = house.first_caller(&server).await;
    let mut clients = JoinSet::new();
    for _ in 0..CONVERSATIONS {
        clients.spawn(converse(caller.clone(), ledger.clone()));
    }
    dies(&mut server, point).await;
    clients.join_all().await;
}

async fn dies_in_the_sweep(house: &House, point: &str, hit: usize, ledger: &Ledger) {
    for _ in 1..CONVERSATIONS {
        house.sandbox.then(endless());
    }
    house.sandbox.then(story(Duration::from_millis(5)));
    let mut server = house.serve().await;
    let caller = house.first_caller(&server).await;
    for _ in 0..CONVERSATIONS {
        let mut reading = ledger.ask(&caller, None).await.expect("a turn");
        ledger.ask(&caller, Some(&reading.accepted.conversation)).await.expect("a queued turn");
        while reading.next().await.expect("an event").seq < 4 {}
    }
    server.kill9().await.expect("killed");
    // The embedded store is swept before there is an address.
    match house.try_serve(&format!("{point}={hit}")).await {
        Ok(mut server) => dies(&mut server, point).await,
        Err(error) => assert!(format!("{error:#}").contains(&format!("failpoint {point}")), "{error:#}"),
    }
}

async fn survive(postgres: bool, point: &'static str, hit: usize) {
    let sweep = SWEEP.contains(&point);
    // A turn that is to wait in the queue must be there before the one under way has ended, on a slow machine too.
    let pause = Duration::from_millis(if point.starts_with("queue.") { 80 } else { 15 });
    let script = if sweep { endless() } else { story(pause) };
    let Some(house) = House::on(postgres, script).await else { return };
    let ledger = Ledger::default();
    match sweep {
        true => dies_in_the_sweep(&house, point, hit, &ledger).await,
        false => dies_in_the_walk(&house, point, hit, &ledger).await,
    }
    let server = house.serve().await;
    let caller = house.caller(&server);
    let due = if postgres { Due::By(Instant::now() + SETTLED) } else { Due::AtOnce };
    ledger.check(&caller, due).await;
    ledger.check_going_on(&caller).await;
    ledger.check(&caller, Due::AtOnce).await;
}

/// The names in `point!("…")` of these sources.
fn points_in(folder: &Path, found: &mut BTreeSet<String>) {
    for entry in std::fs::read_dir(folder).expect("a folder") {
        let path = entry.expect("an entry").path();
        if path.is_dir() {
            points_in(&path, found);
        } else {
            let text = std::fs::read_to_string(&path).expect("a source");
            let names = text.split("point!(\"").skip(1).filter_map(|rest| rest.split('"').next());
            found.extend(names.map(str::to_owned));
        }
    }
}

#[test]
fn every_place_has_its_story() {
    let mut found = BTreeSet::new();
    points_in(&Path::new(env!("CARGO_MANIFEST_DIR")).join("../turn/src"), &mut found);
    let rounds = DEATHS.map(|(point, ..)| point).into_iter().filter(|point| *point != "kill -9");
    let told: BTreeSet<String> = WALK.into_iter().chain(SWEEP).chain(rounds).map(str::to_owned).collect();
    assert_eq!(found, told, "in the sources, and in these stories");
}

async fn survive_all(postgres: bool) {
    let turns = Arc::new(Semaphore::new(AT_ONCE));
    let mut stories = JoinSet::new();
    for point in WALK.into_iter().chain(SWEEP) {
        for hit in 1..=3 {
            let turns = Arc::clone(&turns);
            stories.spawn(async move {
                let _turn = turns.acquire().await;
                let told = tokio::spawn(survive(postgres, point, hit)).await;
                told.err().map(|error| format!("{point}={hit}: {error}"))
            });
        }
    }
    let failed: Vec<String> = stories.join_all().await.into_iter().flatten().collect();
    assert!(failed.is_empty(), "{} failed:\n{}", failed.len(), failed.join("\n"));
}

#[tokio::test(flavor = "multi_thread")]
async fn guarantees_hold_after_a_death_at_every_step_on_sqlite() {
    survive_all(false).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn guarantees_hold_after_a_death_at_every_step_on_postgresql() {
    survive_all(true).await;
}
