//! Killed at any moment, `migrate` leaves the old schema or the new one, never a part of it.

use std::path::Path;
use std::time::{Duration, Instant};

use serde_json::json;
use testkit::process::command;

use crate::house::{BINARY, House, Ran};

const KILLS: u32 = 30;

/// Starts `migrate` and kills it after a while. Answers whether it was still under way.
async fn killed_after(house: &House, wait: Duration) -> bool {
    let env: Vec<_> = house.database().map(|database| ("DATABASE_URL", database.url())).into_iter().collect();
    let mut command = command(Path::new(BINARY), &env, house.data());
    let mut child = command.arg("migrate").spawn().expect("the binary runs");
    tokio::time::sleep(wait).await;
    let running = child.try_wait().expect("a child").is_none();
    child.kill().await.expect("killed");
    running
}

/// The versions before and after; a half-made schema would stand in its own way here.
fn versions(ran: &Ran) -> (Option<i64>, Option<i64>) {
    assert_eq!(ran.code, Some(0), "{ran:?}");
    let [json] = &ran.json_lines()[..] else { panic!("one line: {ran:?}") };
    (json["before"].as_i64(), json["after"].as_i64())
}

async fn leaves_one_schema_or_the_other(houses: impl AsyncFn() -> House) {
    let first = houses().await;
    let began = Instant::now();
    let (_, new) = versions(&first.run(&["migrate", "--json"], &[]).await);
    let whole = began.elapsed();
    let mut under_way = 0;
    for kill in 0..KILLS {
        let house = houses().await;
        under_way += u32::from(killed_after(&house, whole * kill / KILLS).await);
        let (before, after) = versions(&house.run(&["migrate", "--json"], &[]).await);
        assert!(before.is_none() || before == new, "kill {kill} left version {before:?}");
        assert_eq!(after, new);
        let server = house.serve().await;
        let made = house.caller(&server).create(json!({ "title": "after" })).await;
        assert_eq!(made.status, 201, "{}", made.text);
    }
    assert!(under_way > KILLS / 6, "{under_way} of {KILLS} were killed under way: the test shows nothing");
}

#[tokio::test]
async fn a_killed_migration_leaves_one_schema_or_the_other_on_sqlite() {
    leaves_one_schema_or_the_other(async || House::sqlite()).await;
}

#[tokio::test]
async fn a_killed_migration_leaves_one_schema_or_the_other_on_postgresql() {
    if House::postgres().await.is_some() {
        leaves_one_schema_or_the_other(async || House::postgres().await.expect("PostgreSQL")).await;
    }
}
