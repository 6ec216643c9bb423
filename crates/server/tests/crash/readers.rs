//! Whose readers count, on two nodes: those of a node that stops are on their way to the next one; those that wait for a
//! queued run are its readers once it runs.

use std::time::{Duration, Instant};

use testkit::sandbox::{Action, Release};

use crate::client::{new_id, turn};
use crate::house::{SETTLED, accepted, delta};
use crate::nodes::{nodes, status};

/// By when a node that died with its readers is missed.
const MISSED: Duration = Duration::from_secs(45);

#[tokio::test(flavor = "multi_thread")]
async fn a_node_that_stops_takes_no_run_of_another_along() {
    let gate = Release::default();
    let end = Action::Line(serde_json::json!({ "type": "result", "message": "end" }));
    let script = vec![accepted(), delta("a"), Action::WaitFor(gate.clone()), end, Action::EndChunks];
    let Some(mut nodes) = nodes(script).await else { return };
    let mut body = turn(None, "hello");
    body["on_disconnect"] = "cancel".into();
    let (run, stream) = nodes.on_a.start(&new_id(), &body).await.expect("a turn");
    let mut there = nodes.on_b.follow(&run.run, 0).await;
    there.until(2).await;
    drop(stream);
    nodes.b.terminate().await.expect("an end");
    let bytes = there.rest_of_bytes().await;
    assert!(bytes.ends_with(b"retry: 500\n\n"), "{}", String::from_utf8_lossy(&bytes));
    // Longer than the other node takes to miss a reader that left by itself.
    tokio::time::sleep(Duration::from_secs(4)).await;
    let mut back = nodes.on_a.follow(&run.run, 2).await;
    gate.open();
    assert_eq!(status(&back.rest().await.expect("a whole stream")), "succeeded");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_run_that_was_queued_ends_with_its_last_reader() {
    let gate = Release::default();
    let Some(nodes) = nodes(vec![accepted(), delta("a"), Action::WaitFor(gate.clone())]).await else {
        return;
    };
    let first = nodes.on_a.say(None, "first").await;
    let mut body = turn(Some(&first.conversation), "second");
    body["on_disconnect"] = "cancel".into();
    let (second, mut queued) = nodes.on_a.start(&new_id(), &body).await.expect("a queued turn");
    // While it waits, this node asks whoever will drive it, and hears itself.
    tokio::time::sleep(Duration::from_secs(1)).await;
    nodes.on_a.cancel(&first.run).await.expect("an answer");
    queued.until(2).await;
    drop(queued);
    let left = Instant::now();
    while nodes.on_a.run(&second.run).await["status"] == "running" {
        assert!(left.elapsed() < SETTLED, "nobody missed it");
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    assert_eq!(nodes.on_a.run(&second.run).await["status"], "cancelled");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_run_ends_with_the_node_of_its_only_reader() {
    let script = vec![accepted(), delta("a"), Action::WaitFor(Release::default())];
    let Some(mut nodes) = nodes(script).await else { return };
    let mut body = turn(None, "hello");
    body["on_disconnect"] = "cancel".into();
    let (run, stream) = nodes.on_a.start(&new_id(), &body).await.expect("a turn");
    let mut there = nodes.on_b.follow(&run.run, 0).await;
    there.until(2).await;
    drop(stream);
    // Longer than its node waits for readers.
    tokio::time::sleep(Duration::from_secs(4)).await;
    assert_eq!(nodes.on_a.run(&run.run).await["status"], "running");
    nodes.b.kill9().await.expect("killed");
    let died = Instant::now();
    while nodes.on_a.run(&run.run).await["status"] == "running" {
        assert!(died.elapsed() < MISSED + SETTLED, "nobody missed it");
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    assert_eq!(nodes.on_a.run(&run.run).await["status"], "cancelled");
}
