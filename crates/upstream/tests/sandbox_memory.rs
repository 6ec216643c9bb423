//! Sandboxes that send without end: the run ends as it should, and memory does not grow with what they send.
//! Alone in its process, as it measures it.

#![expect(clippy::unwrap_used, reason = "a test may panic")]

mod common;

use common::{Told, WIDE, run};
use testkit::sandbox::{Action, ScriptedSandbox};
use upstream::sandbox::{MAX_STEPS, Outcome};

const GROWTH_KIB: u64 = 64 * 1024;

fn peak_kib() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find(|line| line.starts_with("VmHWM:")).unwrap();
    line.split_whitespace().nth(1).unwrap().parse().unwrap()
}

fn step(number: u64) -> String {
    format!(r#"{{"type":"step","id":"{number}","name":"n","status":"running"}}"#)
}

fn delta(_: u64) -> String {
    format!(r#"{{"type":"delta","text":"{}"}}"#, "x".repeat(1000))
}

async fn played(script: Vec<Action>) -> Told {
    let sandbox =
        ScriptedSandbox::start([vec![Action::Headers("200 OK", vec![])], script].concat()).await.unwrap();
    run(&sandbox.url(), WIDE).await
}

fn is_protocol(told: &Told, part: &str) -> bool {
    matches!(told.ends.as_slice(), [Outcome::Failed { code, message }]
        if code.as_str() == "sandbox_protocol" && message.contains(part))
}

#[tokio::test]
async fn memory_stays_bounded() {
    let result = Action::Bytes(br#"{"type":"result","message":"done"}"#.to_vec());
    played(vec![Action::Lines(1000, step), result.clone()]).await;
    let before = peak_kib();

    let told = played(vec![Action::Flood(b'x', 1 << 30)]).await;
    assert!(is_protocol(&told, "1048576 bytes"), "a line of 1 GiB: {told:?}");

    let told = played(vec![Action::Flood(b'\n', 1 << 30)]).await;
    assert!(is_protocol(&told, "64 MiB"), "blank lines: {told:?}");

    let told = played(vec![Action::Lines(1 << 20, delta)]).await;
    assert!(is_protocol(&told, "64 MiB"), "deltas: {told:?}");

    // Short enough to stay under the limit on bytes: the steps beyond the limit are left out one by one.
    let told = played(vec![Action::Lines(1_000_000, step), result]).await;
    assert!(matches!(told.ends.as_slice(), [Outcome::Result { .. }]), "a million steps: {told:?}");
    assert_eq!((told.lines, told.rejected), (MAX_STEPS as u64 + 1, 1_000_000 - MAX_STEPS as u64));

    let grown = peak_kib() - before;
    assert!(grown < GROWTH_KIB, "grew by {grown} KiB");
}
