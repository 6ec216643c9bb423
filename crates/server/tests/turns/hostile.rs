//! Hostile sandboxes behind the real binary, all at once: each turn ends in exactly one terminal event within its
//! limit, with the right code, and its conversation goes on. Floods come one by one, and the process stays small.

use std::time::{Duration, Instant};

use futures_util::future::join_all;
use serde_json::{Value, json};
use testkit::hostile::{self, Case, Want};
use testkit::server::Backend;

use crate::process::OwnProcess;
use crate::scripts;
use crate::sse::frames;
use crate::world::stories;

stories!(each_ends_once_within_its_limit, floods_leave_the_process_small);

/// Without an answer (SPEC 6), and as this file sets it.
const HEADERS: Duration = Duration::from_secs(30);
const IDLE: (&str, &str) = ("THREADKEEP_SANDBOX_IDLE_SECONDS", "3");
/// For a machine that plays all of them at once, and has others to serve.
const MARGIN: Duration = Duration::from_secs(15);
const GROWTH_MIB: u64 = 64;

/// One terminal event, then `done`, as the case wants them.
fn check(want: Want, event: &str, data: &Value, status: &str) {
    let (code, part) = match want {
        Want::Result(text) => {
            assert_eq!((event, data["message"].as_str(), status), ("result", Some(text), "succeeded"));
            return;
        }
        Want::Error(code) => (code, ""),
        Want::Unreachable(part) => ("sandbox_unreachable", part),
        Want::Timeout => ("sandbox_timeout", "SANDBOX_IDLE_SECONDS"),
        Want::Protocol(part) => ("sandbox_protocol", part),
        Want::NoResult(part) => ("sandbox_no_result", part),
    };
    assert_eq!((event, data["code"].as_str(), status), ("error", Some(code), "failed"), "{data}");
    assert!(data["message"].as_str().unwrap().contains(part), "{part:?} is not in {data}");
}

/// The run is settled, its rejected lines are counted, and the next turn of the conversation is taken and answered.
async fn check_settled(own: &OwnProcess, run: &str, conversation: &str, case: &Case) {
    let settled = own.get(&format!("/v1/runs/{run}")).await.body;
    assert!(settled["ended_at"].is_string(), "{settled}");
    // Counted by reading all of the trace.
    if case.counts.1 < 1000 {
        let trace = own.get(&format!("/v1/runs/{run}/trace?limit=1")).await.body;
        assert_eq!(trace["rejected"], case.counts.1);
    }
    let next = own.tell(&json!({ "conversation": conversation, "message": "and now?" })).await;
    assert_eq!((next.status(), &next.terminal().data["message"]), ("succeeded", &json!("Hello.")));
}

async fn one(own: &OwnProcess, (group, case): (&str, Case)) {
    let (name, begun) = (format!("{group}: {}", case.name), Instant::now());
    own.sandbox.when_told(&name, case.script.clone());
    let told = own.tell(&json!({ "message": name })).await;
    let took = begun.elapsed();
    let terminal = told.terminal();
    check(case.want, &terminal.event, &terminal.data, told.status());
    let limit = if matches!(case.want, Want::Unreachable(_)) { HEADERS } else { Duration::from_secs(3) };
    assert!(took < limit + MARGIN, "took {took:?}");
    check_settled(own, &told.run(), &told.conversation(), &case).await;
}

async fn each_ends_once_within_its_limit(backend: Backend) -> Option<()> {
    let own = OwnProcess::start(backend, scripts::answer("Hello."), &[IDLE]).await?;
    let groups = [
        ("silence", hostile::silence()),
        ("trickle", hostile::trickles()),
        ("no stream", hostile::no_streams()),
        ("no good line", hostile::without_one_good_line()),
        ("bad lines", hostile::bad_lines()),
        ("terminal lines", hostile::terminal_lines()),
        ("short", hostile::short_streams()),
    ];
    let own = std::sync::Arc::new(own);
    let mut turns = Vec::new();
    for (group, case) in
        groups.into_iter().flat_map(|(group, cases)| cases.into_iter().map(move |case| (group, case)))
    {
        let (own, name) = (own.clone(), format!("{group}: {}", case.name));
        let turn = tokio::spawn(async move { one(&own, (group, case)).await });
        turns.push(async move { turn.await.err().map(|error| format!("{name}: {error}")) });
    }
    assert!(turns.len() >= 100, "{} sandboxes", turns.len());
    let faults: Vec<String> = join_all(turns).await.into_iter().flatten().collect();
    assert!(faults.is_empty(), "{}", faults.join("\n"));
    Some(())
}

/// A process that has done everything once: the first time may take what stays.
async fn warm(backend: Backend) -> Option<OwnProcess> {
    let own = OwnProcess::start(backend, scripts::answer("Hello."), &[]).await?;
    own.tell(&json!({ "message": "hi" })).await;
    Some(own)
}

/// Plays a flood; its run when it has ended, its conversation, and what the process has grown by.
async fn flooded(own: &OwnProcess, case: &Case) -> (Value, String, u64) {
    own.sandbox.when_told(case.name, case.script.clone());
    own.forget_most();
    let (before, _) = own.memory_kib();
    let (run, conversation) = own.begin_async(&json!({ "message": case.name })).await;
    loop {
        let run = own.get(&format!("/v1/runs/{run}")).await.body;
        if run["ended_at"].is_string() {
            return (run, conversation, own.memory_kib().1.saturating_sub(before) / 1024);
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}

/// One after the other: what the process grows by is the one's.
async fn floods_leave_the_process_small(backend: Backend) -> Option<()> {
    let own = warm(backend).await?;
    let bomb = hostile::without_one_good_line().into_iter().filter(|case| case.name.starts_with("a bomb of"));
    // A million lines take a debug build their time: one database shows as much as two.
    let steps = (backend == Backend::Sqlite).then(|| flood("a million steps"));
    let floods = ["a line of 1 GiB", "1 GiB of deltas", "a hundred long steps"].map(flood);
    for case in floods.into_iter().chain(bomb).chain(steps) {
        let (run, conversation, grown) = flooded(&own, &case).await;
        assert!(grown < GROWTH_MIB, "{}: the process grew by {grown} MiB", case.name);
        let (id, last) = (run["id"].as_str().unwrap(), run["last_event"].as_i64().unwrap());
        let rest = own.get(&format!("/v1/runs/{id}/events?after={}", last - 2)).await.text;
        let (frames, _) = frames(rest.as_bytes());
        assert_eq!((frames.len(), frames[1].event.as_str()), (2, "done"), "{}", case.name);
        check(case.want, &frames[0].event, &frames[0].data, frames[1].data["status"].as_str().unwrap());
        check_settled(&own, id, &conversation, &case).await;
    }
    Some(())
}

fn flood(name: &str) -> Case {
    hostile::floods().into_iter().find(|case| case.name == name).expect("a flood")
}
