//! Sandboxes that do everything but what they should, over real sockets: each ends in exactly one outcome,
//! and in the right one.

#![expect(clippy::unwrap_used, reason = "a test may panic")]

mod common;

use std::time::Duration;

use common::{CONFIG_TOKEN, TOKEN, Told, UPLOAD_OTP, WIDE, run};
use testkit::hostile::{self, Case, Want};
use testkit::sandbox::{Action, ScriptedSandbox};
use tokio::task::JoinSet;
use upstream::sandbox::{Outcome, SandboxLimits};

/// Long enough for a first line on a busy machine, and shorter than any silence here.
const PATIENCE: Duration = Duration::from_secs(1);

fn check(told: &Told, want: Want, counts: (u64, u64, u64)) -> Result<(), String> {
    let [end] = told.ends.as_slice() else { return Err(format!("ends: {:?}", told.ends)) };
    let fits = match (want, end) {
        (Want::Result(text), Outcome::Result { message, .. }) => message == text,
        (Want::Error(text), Outcome::Error { code, .. }) => code == text,
        (_, Outcome::Failed { code, message }) => {
            let (name, part) = match want {
                Want::Unreachable(part) => ("sandbox_unreachable", part),
                Want::Timeout => ("sandbox_timeout", "1 s"),
                Want::Protocol(part) => ("sandbox_protocol", part),
                Want::NoResult(part) => ("sandbox_no_result", part),
                Want::Result(_) | Want::Error(_) => return Err(format!("{end:?}")),
            };
            let secret = [TOKEN, CONFIG_TOKEN, UPLOAD_OTP].iter().any(|secret| message.contains(secret));
            code.as_str() == name
                && message.contains(part)
                && !secret
                && !message.chars().any(char::is_control)
                && message.chars().count() < 500
        }
        _ => false,
    };
    let counted = (told.lines, told.rejected, told.ignored);
    if fits && counted == counts {
        Ok(())
    } else {
        Err(format!("{end:?} {counted:?}, not {want:?} {counts:?}"))
    }
}

async fn play(cases: Vec<Case>, limits: SandboxLimits) {
    let mut runs = JoinSet::new();
    for Case { name, script, want, counts } in cases {
        runs.spawn(async move {
            let sandbox = ScriptedSandbox::start(script).await.unwrap();
            let told = run(&sandbox.url(), limits).await;
            assert_eq!(sandbox.requests().len(), 1, "{name}: sent more than once");
            let gone = tokio::time::timeout(WIDE.idle, sandbox.disconnected(0)).await;
            assert!(gone.is_ok(), "{name}: the connection is still open");
            check(&told, want, counts).map_err(|fault| format!("{name}: {fault}"))
        });
    }
    let faults: Vec<String> = runs.join_all().await.into_iter().filter_map(Result::err).collect();
    assert!(faults.is_empty(), "{}", faults.join("\n"));
}

#[tokio::test]
async fn silence_ends_in_time() {
    play(hostile::silence(), SandboxLimits { headers: PATIENCE, idle: PATIENCE, ..WIDE }).await;
}

#[tokio::test]
async fn a_trickle_is_alive() {
    // The whole takes longer than the idle limit.
    play(hostile::trickles(), SandboxLimits { idle: Duration::from_secs(2), ..WIDE }).await;
}

#[tokio::test]
async fn answers_that_are_no_streams() {
    play(hostile::no_streams(), WIDE).await;
}

#[tokio::test]
async fn bodies_without_one_good_line() {
    play(hostile::without_one_good_line(), WIDE).await;
}

#[tokio::test]
async fn bad_lines_between_good_ones() {
    play(hostile::bad_lines(), WIDE).await;
}

#[tokio::test]
async fn the_first_terminal_line_wins() {
    play(hostile::terminal_lines(), WIDE).await;
}

#[tokio::test]
async fn streams_that_stop_short() {
    play(hostile::short_streams(), WIDE).await;
}

/// What a sandbox repeats of its secrets is not told.
#[tokio::test]
async fn secrets_are_not_repeated() {
    let secrets = format!("bad token {TOKEN}\r\n\x1b[31m {CONFIG_TOKEN} {UPLOAD_OTP}\0{}", "x".repeat(500));
    let script = vec![Action::Headers("401 Unauthorized", vec![]), Action::Bytes(secrets.into_bytes())];
    let want = Want::Unreachable("401: bad token **** [31m **** **** xxx");
    play(vec![Case { name: "401", script, want, counts: (0, 0, 0) }], WIDE).await;
}
