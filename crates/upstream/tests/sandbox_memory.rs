//! Sandboxes that send without end: the run ends as it should, and memory does not grow with what they send.
//! Alone in its process, as it measures it.

#![expect(clippy::unwrap_used, reason = "a test may panic")]

mod common;

use common::{WIDE, run};
use testkit::hostile::{Want, floods};
use testkit::sandbox::{Action, ScriptedSandbox};
use upstream::sandbox::Outcome;

const GROWTH_KIB: u64 = 64 * 1024;

fn peak_kib() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find(|line| line.starts_with("VmHWM:")).unwrap();
    line.split_whitespace().nth(1).unwrap().parse().unwrap()
}

#[tokio::test]
async fn memory_stays_bounded() {
    let some = vec![Action::Headers("200 OK", vec![]), Action::Flood(b'x', 2 << 20)];
    run(&ScriptedSandbox::start(some).await.unwrap().url(), WIDE).await;
    let before = peak_kib();
    for case in floods() {
        let sandbox = ScriptedSandbox::start(case.script).await.unwrap();
        let told = run(&sandbox.url(), WIDE).await;
        match (case.want, told.ends.as_slice()) {
            (Want::Protocol(part), [Outcome::Failed { code, message }]) => {
                assert!(
                    code.as_str() == "sandbox_protocol" && message.contains(part),
                    "{}: {told:?}",
                    case.name
                );
            }
            (Want::Result(_), [Outcome::Result { .. }]) => {
                let counted = (told.lines, told.rejected, told.ignored);
                assert_eq!(counted, case.counts, "{}", case.name);
            }
            _ => panic!("{}: {told:?}", case.name),
        }
    }
    let grown = peak_kib() - before;
    assert!(grown < GROWTH_KIB, "grew by {grown} KiB");
}
