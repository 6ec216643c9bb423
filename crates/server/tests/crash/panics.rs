//! A bug in the walk ends one run, not its process: what was streamed is kept, the run says so, and the next turn goes
//! ahead.

use crate::client::{new_id, turn};
use crate::house::{House, story};
use crate::nodes::status;

async fn a_bug_ends_its_run_alone(postgres: bool) {
    for point in ["dispatch.after", "append.before", "sandbox.ended"] {
        let Some(house) = House::on(postgres, story(std::time::Duration::ZERO)).await else { return };
        let server = house.try_serve(&format!("{point}=1:panic")).await.expect("a server");
        let caller = house.first_caller(&server).await;
        let (accepted, mut stream) = caller.start(&new_id(), &turn(None, "hello")).await.expect("a turn");
        let log = stream.rest().await.expect("a whole stream");
        assert_eq!(status(&log), "failed", "{point}: {}", server.output());
        let run = caller.run(&accepted.run).await;
        assert_eq!(run["error"]["code"], "internal", "{point}: {run}");
        assert_eq!(log, caller.events(&accepted.run, 0).await, "{point}");
        let next = caller.say(Some(&accepted.conversation), "go on").await;
        assert_eq!(status(&caller.events(&next.run, 0).await), "succeeded", "{point}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_bug_ends_its_run_alone_on_sqlite() {
    a_bug_ends_its_run_alone(false).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_bug_ends_its_run_alone_on_postgresql() {
    a_bug_ends_its_run_alone(true).await;
}

/// The end panics, and so does the end of what was left: after a lease it is tried once more.
async fn a_bug_at_the_end_of_a_run_does_not_keep_its_conversation(postgres: bool) {
    let Some(house) = House::on(postgres, story(std::time::Duration::ZERO)).await else { return };
    let server = house.try_serve("settle.before=1-2:panic").await.expect("a server");
    let caller = house.first_caller(&server).await;
    let (accepted, mut stream) = caller.start(&new_id(), &turn(None, "hello")).await.expect("a turn");
    let log = stream.rest().await.expect("a whole stream");
    assert_eq!(status(&log), "interrupted", "{}", server.output());
    let next = caller.say(Some(&accepted.conversation), "go on").await;
    assert_eq!(status(&caller.events(&next.run, 0).await), "succeeded");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_bug_at_the_end_of_a_run_does_not_keep_its_conversation_on_sqlite() {
    a_bug_at_the_end_of_a_run_does_not_keep_its_conversation(false).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_bug_at_the_end_of_a_run_does_not_keep_its_conversation_on_postgresql() {
    a_bug_at_the_end_of_a_run_does_not_keep_its_conversation(true).await;
}
