//! Dead while somebody changes a run from outside: cancels it, puts another turn in its place, edits what it answers,
//! clears its lock. Afterwards each run has ended once, no message is lost or there twice, and the conversation goes on.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use reqwest::Method;
use serde_json::{Value, json};
use tokio::sync::Semaphore;
use tokio::task::JoinSet;

use crate::client::{Accepted, Caller, new_id, turn};
use crate::house::{House, endless, story};
use crate::ledger::check_log;
use crate::points::dies;

#[derive(Debug, Clone, Copy, PartialEq)]
enum Move {
    Cancel,
    Interrupt,
    Rollback,
    Edit,
    Regenerate,
    ClearLock,
}

/// The places that each comes by; where the turn before it has come by too, the second time.
const DEATHS: [(Move, &[&str]); 6] = [
    (Move::Cancel, &["settle.before=1", "settle.after=1", "settle.published=1"]),
    (
        Move::Interrupt,
        &["accept.before=2", "accept.after=2", "settle.before=1", "settle.after=1", "queue.started=1"],
    ),
    (
        Move::Rollback,
        &["accept.before=2", "accept.after=2", "settle.before=1", "settle.after=1", "queue.started=1"],
    ),
    (
        Move::Edit,
        &["accept.before=2", "accept.after=2", "dispatch.after=2", "sandbox.ended=2", "settle.after=2"],
    ),
    (Move::Regenerate, &["accept.before=2", "accept.after=2", "settle.before=2", "settle.after=2"]),
    (Move::ClearLock, &["settle.before=1", "settle.after=1", "settle.published=1"]),
];
const AT_ONCE: usize = 6;

impl Move {
    /// Whether the first turn is over by then.
    fn replaces(self) -> bool {
        matches!(self, Self::Edit | Self::Regenerate)
    }

    /// The turn that it is, if it is one.
    fn turn(self, first: &Accepted) -> Option<Value> {
        let mut body = turn(Some(&first.conversation), "better");
        match self {
            Self::Cancel | Self::ClearLock => return None,
            Self::Interrupt => body["on_busy"] = "interrupt".into(),
            Self::Rollback => body["on_busy"] = "rollback".into(),
            Self::Edit => body["replace"] = first.message.clone().into(),
            Self::Regenerate => {
                body = json!({ "conversation": first.conversation, "replace": first.message, "on_disconnect": "continue" });
            }
        }
        Some(body)
    }

    /// The request that is none: the process may die before it answers.
    async fn ask(self, caller: &Caller, first: &Accepted) {
        let _ = match self {
            Self::Cancel => caller.cancel(&first.run).await.map(drop),
            _ => {
                let path = format!("/v1/chat-conversations/{}/lock", first.conversation);
                caller.request(Method::DELETE, &path).send().await.map(drop).map_err(Into::into)
            }
        };
    }
}

/// Every message of a conversation, on whichever branch.
async fn messages(caller: &Caller, conversation: &str) -> BTreeSet<String> {
    let path = format!("/v1/chat-conversations/{conversation}");
    let branches = caller.get(&format!("{path}/branches")).await.body["data"].clone();
    let mut found = BTreeSet::new();
    for branch in branches.as_array().expect("branches") {
        let id = branch["id"].as_str().expect("an id");
        let read = caller.get(&format!("{path}?branchId={id}&fields[chat_conversation]=messages")).await;
        let listed = read.body["data"]["attributes"]["messages"].as_array().expect("messages").clone();
        let ids: Vec<&str> = listed.iter().map(|message| message["id"].as_str().expect("an id")).collect();
        let own: BTreeSet<String> = ids.iter().map(|id| (*id).to_owned()).collect();
        assert_eq!(own.len(), ids.len(), "a message is there twice: {listed:?}");
        found.extend(own);
    }
    found
}

/// All runs have ended once, and their messages are the conversation's.
async fn check(caller: &Caller, conversation: &str) {
    let mut wanted = Vec::new();
    for run in caller.runs(conversation).await {
        let log = caller.events(&run, 0).await;
        check_log(&log);
        let shown = caller.run(&run).await;
        assert_eq!(shown["status"], log.last().expect("an end").json()["status"], "{shown}");
        wanted.extend([log[0].json()["message"].clone(), shown["assistant_message"].clone()]);
    }
    let wanted: BTreeSet<String> = wanted.iter().map(|id| id.as_str().expect("an id").to_owned()).collect();
    assert_eq!(messages(caller, conversation).await, wanted);
}

async fn survive(postgres: bool, act: Move, failpoint: &str) {
    let Some(house) = House::on(postgres, story(Duration::from_millis(5))).await else { return };
    if !act.replaces() {
        house.sandbox.when_told("first", endless());
    }
    let mut server = house.try_serve(failpoint).await.expect("a server");
    let caller = house.first_caller(&server).await;
    let (first, mut stream) = caller.start(&new_id(), &turn(None, "first")).await.expect("a turn");
    let seen =
        if act.replaces() { stream.rest().await.expect("a whole stream") } else { stream.until(7).await };
    let (key, body) = (new_id(), act.turn(&first));
    let accepted = match &body {
        Some(body) => caller.start_async(&key, body).await.map_err(|error| {
            assert!(error.downcast_ref::<reqwest::Error>().is_some(), "{error:#}");
        }),
        None => {
            act.ask(&caller, &first).await;
            Err(())
        }
    };
    dies(&mut server, failpoint.split('=').next().expect("a name")).await;

    let server = house.serve().await;
    let caller = house.caller(&server);
    let log = caller.events(&first.run, 0).await;
    assert_eq!(log[..seen.len()], seen, "what was received is in the log");
    if let Some(body) = &body {
        let again = caller.start_async(&key, body).await.expect("the same request again");
        assert!(
            accepted.is_err() || accepted == Ok(again.clone()),
            "another run than {accepted:?}: {again:?}"
        );
        caller.events(&again.run, 0).await;
    }
    let next = caller.say(Some(&first.conversation), "and now?").await;
    let log = caller.events(&next.run, 0).await;
    assert_eq!(log.last().expect("an end").json()["status"], "succeeded");
    check(&caller, &first.conversation).await;
}

async fn survive_all(postgres: bool) {
    let (turns, mut stories) = (Arc::new(Semaphore::new(AT_ONCE)), JoinSet::new());
    for (act, failpoint) in
        DEATHS.into_iter().flat_map(|(act, points)| points.iter().map(move |point| (act, *point)))
    {
        let turns = Arc::clone(&turns);
        stories.spawn(async move {
            let _turn = turns.acquire().await;
            let told = tokio::spawn(survive(postgres, act, failpoint)).await;
            told.err().map(|error| format!("{act:?} {failpoint}: {error}"))
        });
    }
    let failed: Vec<String> = stories.join_all().await.into_iter().flatten().collect();
    assert!(failed.is_empty(), "{} failed:\n{}", failed.len(), failed.join("\n"));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_change_from_outside_survives_a_death_on_sqlite() {
    survive_all(false).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_change_from_outside_survives_a_death_on_postgresql() {
    survive_all(true).await;
}
