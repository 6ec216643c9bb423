//! Streams that are cut anywhere and taken up again on the other node: the parts make the log, no gap, no repeat (G7).

use std::time::Duration;

use futures_util::future::join_all;
use serde_json::json;
use testkit::sandbox::Action;

use crate::client::{Caller, new_id, turn};
use crate::house::{accepted, random};
use crate::nodes::nodes;

/// With `turn`, `result` and `done` they are 5,000 events.
const BURSTS: u64 = 100;
const LINES: u64 = 50;
const EVENTS: u64 = 5000;
const READERS: usize = 10;
/// While it runs and after that.
const CUTS: usize = 500;

fn line(n: u64) -> String {
    match n % 10 {
        7 => json!({ "type": "step", "id": format!("s{n}"), "name": "look", "status": "running" }),
        _ => json!({ "type": "delta", "text": format!("word {n} é\n\n") }),
    }
    .to_string()
}

/// 4,997 lines in bursts, over some seconds.
fn long() -> Vec<Action> {
    let mut script = vec![accepted()];
    for burst in 0..BURSTS {
        let lines = if burst == 0 { LINES - 3 } else { LINES };
        script.extend([Action::Lines(lines, line), Action::Wait(Duration::from_millis(40))]);
    }
    script.extend([Action::Line(json!({ "type": "result", "message": "The end." })), Action::EndChunks]);
    script
}

/// The bytes up to the last whole frame with an id, and that id: where a client takes it up again.
fn whole(bytes: &[u8]) -> (usize, Option<i64>) {
    let (mut kept, mut id, mut from) = (0, None, 0);
    while let Some(length) = memchr::memmem::find(&bytes[from..], b"\n\n") {
        let frame = std::str::from_utf8(&bytes[from..from + length]).expect("UTF-8");
        from += length + 2;
        if let Some(last) = frame.lines().find_map(|line| line.strip_prefix("id: ")) {
            (kept, id) = (from, Some(last.parse().expect("a number")));
        }
    }
    (kept, id)
}

/// At most so many bytes of a run after an event, and whether that was the end of the stream.
async fn some(caller: &Caller, (run, wire): (&str, &str), after: i64, most: usize) -> (Vec<u8>, bool) {
    let request = caller.request(reqwest::Method::GET, &format!("/v1/runs/{run}/events?wire={wire}"));
    let mut response = request.header("last-event-id", after).send().await.expect("an answer");
    assert_eq!(response.status(), 200, "{wire} of {run} after {after}");
    let mut bytes = Vec::new();
    while bytes.len() < most {
        match response.chunk().await.expect("a stream that goes on") {
            Some(chunk) => bytes.extend_from_slice(&chunk),
            None => return (bytes, true),
        }
    }
    bytes.truncate(most);
    (bytes, false)
}

/// Reads a run to its end, cut after some bytes again and again, on one node and the other in turn. All that was
/// kept, and how often it was cut.
async fn in_parts(callers: [&Caller; 2], run: (&str, &str), most: u64) -> (Vec<u8>, usize) {
    let (mut kept, mut after, mut cuts) = (Vec::new(), 0, 0);
    loop {
        let most = 1 + random(most) as usize;
        let (bytes, ended) = some(callers[cuts % 2], run, after, most).await;
        if ended {
            kept.extend_from_slice(&bytes);
            return (kept, cuts);
        }
        let (length, last) = whole(&bytes);
        kept.extend_from_slice(&bytes[..length]);
        after = last.unwrap_or(after);
        cuts += 1;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn cut_anywhere_and_resumed_on_the_other_node() {
    let Some(nodes) = nodes(long()).await else { return };
    let accepted = nodes.on_a.start_async(&new_id(), &turn(None, "hello")).await.expect("a turn");
    let (run, both) = (accepted.run.as_str(), [&nodes.on_a, &nodes.on_b]);
    let [a, b] = both;
    let read =
        |n: usize| in_parts(if n.is_multiple_of(2) { [a, b] } else { [b, a] }, (run, "envelope"), 20_000);
    let wires = ["openai", "ui-message"].map(|wire| in_parts([b, a], (run, wire), 40_000));
    let (parts, others) = tokio::join!(join_all((0..READERS).map(read)), join_all(wires));

    let (log, _) = some(b, (run, "envelope"), 0, usize::MAX).await;
    let events = memchr::memmem::find_iter(&log, b"\n\n").count() as u64;
    assert_eq!((events, log.ends_with(b"event: done\ndata: {\"status\":\"succeeded\"}\n\n")), (EVENTS, true));
    let mut cuts = 0;
    for (part, cut) in parts {
        assert!(part == log, "the parts are not the log");
        cuts += cut;
    }
    assert!(cuts > CUTS / 4, "only {cuts} cuts while it ran");
    for (wire, (part, cut)) in ["openai", "ui-message"].into_iter().zip(others) {
        let (log, _) = some(b, (run, wire), 0, usize::MAX).await;
        assert!(cut > 5 && part == log, "{wire}, cut {cut} times: the parts are not the log");
    }
    // The rest of them after its end: every one on the other node than the one before.
    for n in cuts..CUTS {
        let cut = random(log.len() as u64 + 1) as usize;
        let (length, last) = whole(&log[..cut]);
        let (rest, _) = some(both[n % 2], (run, "envelope"), last.unwrap_or(0), usize::MAX).await;
        assert!(rest == log[length..], "cut at byte {cut}, resumed after {last:?}");
    }
}
