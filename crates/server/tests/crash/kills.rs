//! Killed at random moments under clients who talk, cancel, queue and walk away: 50 times.

use std::time::{Duration, Instant};

use futures_util::future::join_all;
use serde_json::json;
use tokio::task::JoinSet;

use crate::client::{Caller, new_id, now, turn as turn_of};
use crate::house::{House, SETTLED, endless, random, story};
use crate::ledger::{Due, Ledger};

const CLIENTS: usize = 8;

/// One client: turn after turn in one conversation after another, until the server is gone.
async fn talk(caller: Caller, ledger: Ledger) {
    let mut conversation: Option<String> = None;
    loop {
        let Some(mut reading) = ledger.ask(&caller, conversation.as_deref()).await else { return };
        conversation = Some(reading.accepted.conversation.clone());
        let Some(_) = reading.next().await else { return };
        match random(6) {
            // Another one, queued behind it and read at the same time.
            0 | 1 => {
                let second = async { ledger.ask(&caller, conversation.as_deref()).await };
                let (_, second) = tokio::join!(reading.rest(), second);
                let Some(second) = second else { return };
                second.rest().await;
            }
            2 => {
                reading.cancel(&caller).await;
                reading.rest().await;
            }
            // Walks away; the run goes on without.
            3 => drop(reading),
            4 => {
                reading.rest().await;
                conversation = None;
            }
            _ => {
                reading.rest().await;
            }
        }
    }
}

async fn survive(house: House, rounds: usize) {
    let all = Ledger::default();
    let mut server = house.serve().await;
    house.first_caller(&server).await;
    for _ in 0..rounds {
        let ledger = Ledger::default();
        let mut clients = JoinSet::new();
        for _ in 0..CLIENTS {
            clients.spawn(talk(house.caller(&server), ledger.clone()));
        }
        tokio::time::sleep(Duration::from_millis(100 + random(700))).await;
        server.kill9().await.expect("killed");
        clients.join_all().await;
        server = house.serve().await;
        let due = if house.is_postgres() { Due::By(Instant::now() + SETTLED) } else { Due::AtOnce };
        let caller = house.caller(&server);
        ledger.check(&caller, due).await;
        ledger.check_going_on(&caller).await;
        all.absorb(&ledger);
    }
    let caller = house.caller(&server);
    all.check(&caller, Due::By(Instant::now() + 60 * SETTLED)).await;
    let mut interrupted = 0;
    for (_, asked) in all.entries() {
        let run = caller.run(&asked.accepted.expect("checked").run).await;
        interrupted += usize::from(run["status"] == "interrupted");
    }
    let shows = interrupted > rounds && all.received() > 20 * rounds;
    assert!(shows, "{interrupted} interrupted, {} events: the test shows nothing", all.received());
}

fn script() -> Vec<testkit::sandbox::Action> {
    story(Duration::from_millis(7))
}

#[tokio::test(flavor = "multi_thread")]
async fn nothing_acknowledged_is_lost_to_sudden_deaths_on_sqlite() {
    survive(House::sqlite(script()).await, 25).await;
}

/// Each death costs a lease, so five houses die side by side.
#[tokio::test(flavor = "multi_thread")]
async fn nothing_acknowledged_is_lost_to_sudden_deaths_on_postgresql() {
    let mut houses = JoinSet::new();
    for _ in 0..5 {
        let Some(house) = House::postgres(script()).await else { return };
        houses.spawn(survive(house, 5));
    }
    houses.join_all().await;
}

/// More runs than one sweep takes, some in conversations that were deleted in the meantime.
async fn everything_left_is_settled(house: House) {
    let mut server = house.serve().await;
    let caller = house.first_caller(&server).await;
    let said = join_all((0..120).map(|_| caller.say(None, "hello"))).await;
    let (deleted, kept) = said.split_at(5);
    join_all(deleted.iter().map(|turn| caller.follow_to_first(&turn.run))).await;
    let paths = deleted.iter().map(|turn| format!("/v1/chat-conversations/{}", turn.conversation));
    join_all(paths.map(async |path| assert_eq!(caller.delete(&path).await, 204))).await;
    server.kill9().await.expect("killed");
    let server = house.serve().await;
    let (caller, begun) = (house.caller(&server), now());
    if house.is_postgres() {
        join_all(kept.iter().map(|turn| caller.events(&turn.run, 0))).await;
        for turn in kept {
            let after = caller.settled_after(&turn.run, begun).await;
            assert!(after <= SETTLED, "settled after {after:?}");
        }
    }
    for turn in kept {
        assert_eq!(caller.run(&turn.run).await["status"], "interrupted");
    }
    for turn in deleted {
        let restored =
            caller.post(&format!("/v1/chat-conversations/{}/restore", turn.conversation), &json!({})).await;
        assert_eq!(restored.status, 200, "{}", restored.text);
        let log = caller.events(&turn.run, 0).await;
        let status = log.last().expect("an end").json()["status"].clone();
        assert!(status == "interrupted" || status == "cancelled", "{status}");
        let mut next = turn_of(Some(&turn.conversation), "go on");
        next["on_busy"] = "reject".into();
        caller.start_async(&new_id(), &next).await.expect("a conversation that is free");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn everything_left_is_settled_on_sqlite() {
    everything_left_is_settled(House::sqlite(endless()).await).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn everything_left_is_settled_on_postgresql() {
    if let Some(house) = House::postgres(endless()).await {
        everything_left_is_settled(house).await;
    }
}
