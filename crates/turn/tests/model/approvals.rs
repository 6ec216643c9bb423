//! Calls that wait for a person: decided once, over restarts, and never made twice.

use domain::approval::Decision;
use domain::run::{BroughtTool, Run, RunStatus, StartTurn};
use domain::time::{Clock as _, SystemClock};
use serde_json::{Value, json};
use store::StoreError;
use uuid::Uuid;

use crate::world::{World, accepted, calls, says};

async fn waiting() -> (World, Run, Uuid) {
    let world = World::start(|_| {}).await;
    let agent = world.agent(json!({ "tools": ["effect", "echo"], "approval": ["effect"] })).await;
    let two = [("a", "effect", r#"{"text":"x"}"#), ("b", "echo", r#"{"text":"free"}"#)];
    world.script(vec![calls("May I?", &two), says("Done.")]);
    let run = world.begin(None, "Go", Some(agent)).await;
    let events = world.follow(&run, "approval").await;
    let asked = &events.last().expect("it asks").1;
    assert_eq!(asked["call"], json!({ "id": "a", "name": "effect", "args": { "text": "x" } }));
    // What needs nobody has gone ahead.
    let ended = events.iter().find(|(kind, _)| kind == "tool_result").map(|(_, data)| &data["id"]);
    assert_eq!(ended, Some(&json!("b")));
    let id = asked["id"].as_str().unwrap().parse().unwrap();
    (world, run, id)
}

fn decision(approve: bool, reason: Option<&str>) -> Decision {
    Decision {
        approve,
        reason: reason.map(Into::into),
        by: "ann".into(),
        at: SystemClock.now(),
        result: None,
    }
}

/// A client's own tools, by their names.
fn brought(names: &[&str]) -> Vec<BroughtTool> {
    let tool = |name: &&str| BroughtTool {
        name: (*name).to_owned(),
        description: "The client's".into(),
        parameters: json!({ "type": "object" }),
    };
    names.iter().map(tool).collect()
}

/// The call of a client's tool waits over a restart, and its result goes to the model, cut like any other. A name of the
/// server's own is the client's where it brings it.
#[tokio::test]
async fn a_restart_goes_on_waiting_for_the_client() {
    let mut world = World::start(|_| {}).await;
    let agent = world.agent(json!({ "tools": ["effect", "echo"], "approval": ["effect"] })).await;
    let three =
        [("a", "weather", r#"{"at":"here"}"#), ("b", "echo", r#"{"text":"free"}"#), ("c", "effect", "{")];
    world.script(vec![calls("", &three), says("Done.")]);
    let change = |turn: &mut StartTurn| {
        (turn.agent, turn.brought.tools) = (Some(agent), brought(&["weather", "effect"]));
    };
    let run = world.begin_as("Go", change).await;
    let events = world.follow(&run, "approval").await;
    let asked = &events.last().expect("it waits").1;
    assert_eq!((&asked["client"], &asked["call"]["id"]), (&json!(true), &json!("a")));
    world.restart().await;
    assert_eq!(world.store.get_run(&world.scope, run.id).await.unwrap().status, RunStatus::Running);
    for (one, result) in world
        .store
        .list_approvals(world.scope.workspace, run.id)
        .await
        .unwrap()
        .iter()
        .zip(["é".repeat(9000), "2".into()])
    {
        let made = Decision { result: Some(result), ..decision(true, None) };
        world.store.decide_approval(&world.scope, run.id, one.id, &made).await.unwrap();
    }
    world.follow(&run, "").await;
    let blocks = world.last_blocks(&run).await;
    assert_eq!(
        (&blocks[0]["truncated"], blocks[0]["result"].as_str().unwrap().chars().count()),
        (&json!(true), 4000)
    );
    assert_eq!((&blocks[2]["name"], &blocks[2]["result"]), (&json!("effect"), &json!("2")));
    assert_eq!(world.made(), 0, "the server's own tool of that name is not called");
    let sent = world.sent();
    let names =
        sent[0]["tools"].as_array().unwrap().iter().map(|tool| tool["function"]["name"].as_str().unwrap());
    assert_eq!(names.collect::<Vec<_>>(), ["echo", "weather", "effect"]);
    sent.iter().for_each(accepted);
    assert_eq!(world.store.get_run(&world.scope, run.id).await.unwrap().status, RunStatus::Succeeded);
}

async fn call_block(world: &World, run: &Run) -> Value {
    world.last_blocks(run).await[1].clone()
}

#[tokio::test]
async fn an_approved_call_is_made_and_a_denied_one_is_not() {
    for (approve, made) in [(true, 1), (false, 0)] {
        let (world, run, id) = waiting().await;
        assert_eq!(world.made(), 0);
        let decided = decision(approve, Some("not today"));
        world.store.decide_approval(&world.scope, run.id, id, &decided).await.unwrap();
        // The same again is nothing new; the other way is refused.
        world.store.decide_approval(&world.scope, run.id, id, &decided).await.unwrap();
        let other = world.store.decide_approval(&world.scope, run.id, id, &decision(!approve, None)).await;
        assert!(matches!(other, Err(StoreError::Conflict { code: "approval_decided", .. })), "{other:?}");
        world.follow(&run, "").await;
        assert_eq!(world.made(), made);
        let block = call_block(&world, &run).await;
        if approve {
            assert_eq!(block["result"], "done");
        } else {
            assert!(block["error"].as_str().unwrap().contains("not today"), "{block}");
        }
        world.sent().iter().for_each(accepted);
        let settled = world.store.get_run(&world.scope, run.id).await.unwrap();
        assert_eq!((settled.status, settled.usage.input_tokens), (RunStatus::Succeeded, 20));
    }
}

#[tokio::test]
async fn a_restart_goes_on_waiting() {
    let (mut world, run, id) = waiting().await;
    world.restart().await;
    let found = world.store.get_run(&world.scope, run.id).await.unwrap();
    assert_eq!(found.status, RunStatus::Running);
    world.store.decide_approval(&world.scope, run.id, id, &decision(true, None)).await.unwrap();
    world.follow(&run, "").await;
    assert_eq!(world.made(), 1);
    assert_eq!(call_block(&world, &run).await["result"], "done");
    let settled = world.store.get_run(&world.scope, run.id).await.unwrap();
    assert_eq!((settled.status, settled.usage.input_tokens), (RunStatus::Succeeded, 20));
    world.sent().iter().for_each(accepted);
}

/// Another call of the round is being made when the process goes: people are asked all the same.
#[tokio::test]
async fn a_restart_beside_a_call_under_way_asks() {
    let mut world = World::start(|_| {}).await;
    let agent = world.agent(json!({ "tools": ["effect", "never"], "approval": ["effect"] })).await;
    world.script(vec![calls("", &[("a", "effect", r#"{"text":"x"}"#), ("b", "never", "{}")]), says("Done.")]);
    let run = world.begin(None, "Go", Some(agent)).await;
    let id = loop {
        let kept = world.store.list_approvals(world.scope.workspace, run.id).await.unwrap();
        match kept.first() {
            Some(one) => break one.id,
            None => tokio::time::sleep(std::time::Duration::from_millis(10)).await,
        }
    };
    world.restart().await;
    let events = world.follow(&run, "approval").await;
    let ended = events.iter().find(|(kind, _)| kind == "tool_result").map(|(_, data)| data).unwrap();
    assert_eq!((&ended["id"], &ended["error"]), (&json!("b"), &json!("interrupted")));
    world.store.decide_approval(&world.scope, run.id, id, &decision(true, None)).await.unwrap();
    world.follow(&run, "").await;
    assert_eq!(world.made(), 1);
    assert_eq!(world.store.get_run(&world.scope, run.id).await.unwrap().status, RunStatus::Succeeded);
    world.sent().iter().for_each(accepted);
}

#[tokio::test]
async fn a_node_that_is_told_to_stop_leaves_it_waiting() {
    let (mut world, run, id) = waiting().await;
    world.turns.drain(std::time::Duration::from_secs(5)).await;
    assert_eq!(world.store.get_run(&world.scope, run.id).await.unwrap().status, RunStatus::Running);
    world.store.decide_approval(&world.scope, run.id, id, &decision(false, None)).await.unwrap();
    world.restart().await;
    world.follow(&run, "").await;
    assert_eq!(
        (world.made(), world.store.get_run(&world.scope, run.id).await.unwrap().status),
        (0, RunStatus::Succeeded)
    );
}

#[tokio::test]
async fn a_call_that_may_have_been_made_is_not_made_again() {
    let (mut world, run, id) = waiting().await;
    // As if the process had died between the note and the call.
    world.turns.drain(std::time::Duration::from_secs(5)).await;
    world.store.decide_approval(&world.scope, run.id, id, &decision(true, None)).await.unwrap();
    let node = SystemClock.new_id();
    let held = world.store.system_take_expired(node, 30, 10).await.unwrap();
    assert!(world.store.start_approved(&held[0], id).await.unwrap());
    assert!(!world.store.start_approved(&held[0], id).await.unwrap());
    world.restart().await;
    world.follow(&run, "").await;
    assert_eq!(world.made(), 0);
    assert_eq!(call_block(&world, &run).await["error"], "interrupted");
    assert_eq!(world.store.get_run(&world.scope, run.id).await.unwrap().status, RunStatus::Interrupted);
}

#[tokio::test]
async fn nothing_is_decided_after_the_end_or_by_who_does_not_see_it() {
    let (world, run, id) = waiting().await;
    let stranger =
        domain::scope::Scope { user: "bob".into(), role: domain::scope::Role::Member, ..world.scope.clone() };
    let unseen = world.store.decide_approval(&stranger, run.id, id, &decision(true, None)).await;
    assert!(matches!(unseen, Err(StoreError::NotFound)), "{unseen:?}");
    let unknown = world.store.decide_approval(&world.scope, run.id, Uuid::nil(), &decision(true, None)).await;
    assert!(matches!(unknown, Err(StoreError::NotFound)), "{unknown:?}");
    world.turns.cancel(&world.scope, run.id).await.unwrap();
    world.follow(&run, "").await;
    let late = world.store.decide_approval(&world.scope, run.id, id, &decision(true, None)).await;
    assert!(matches!(late, Err(StoreError::Conflict { code: "run_ended", .. })), "{late:?}");
    assert_eq!(world.made(), 0);
}
