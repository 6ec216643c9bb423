//! Calls that wait for a person: decided once, over restarts, and never made twice.

use domain::approval::{Decision, NOT_MADE};
use domain::fold::INTERRUPTED;
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
    // What needs nobody goes ahead, and holds up no question.
    let events = world.follow(&run, "tool_result").await;
    let kinds: Vec<&str> = events.iter().map(|(kind, _)| kind.as_str()).collect();
    assert_eq!(kinds, ["turn", "delta", "tool_calls", "approval", "tool_result"]);
    let (asked, ended) = (&events[3].1, &events[4].1);
    assert_eq!(asked["call"], json!({ "id": "a", "name": "effect", "args": { "text": "x" } }));
    assert_eq!(ended["id"], "b");
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

/// Calls that never end, one that asks nobody and one that was agreed to, hold up neither the question, nor the call that
/// is agreed to after them, nor the word that another is not.
#[tokio::test]
async fn calls_hold_each_other_up_in_nothing() {
    let world = World::start(|limits| limits.tool_timeout_seconds = 3600).await;
    let agent = world.agent(
        json!({ "tools": ["effect", "never", "echo", "json"], "approval": ["effect", "echo", "json"] }),
    );
    let agent = agent.await;
    let call = |id, name| (id, name, r#"{"text":"x"}"#);
    let four = [call("a", "never"), call("b", "effect"), call("c", "echo"), call("d", "json")];
    world.script(vec![calls("", &four), says("Done.")]);
    let run = world.begin(None, "Go", Some(agent)).await;
    world.follow(&run, "approval").await;
    let asked = world.store.list_approvals(world.scope.workspace, run.id).await.unwrap();
    let mut ended = Vec::new();
    for (one, approve) in asked.iter().zip([true, false, true]) {
        world.store.decide_approval(&world.scope, run.id, one.id, &decision(approve, None)).await.unwrap();
        ended = world.results(&run, ended.len() + 1).await;
    }
    assert_eq!(ended, ["b", "c", "d"]);
    assert_eq!(world.made(), 1);
    world.turns.cancel(&world.scope, run.id).await.unwrap();
    world.follow(&run, "").await;
    let blocks = world.last_blocks(&run).await;
    assert_eq!((&blocks[0]["error"], &blocks[1]["result"]), (&json!("interrupted"), &json!("done")));
}

/// One that was agreed to and goes on and on does not hold up the next.
#[tokio::test]
async fn calls_that_were_agreed_to_are_made_in_parallel() {
    let world = World::start(|limits| limits.tool_timeout_seconds = 3600).await;
    let agent = world.agent(json!({ "tools": ["effect", "never"], "approval": ["effect", "never"] })).await;
    world.script(vec![calls("", &[("a", "never", "{}"), ("b", "effect", "{}")])]);
    let run = world.begin(None, "Go", Some(agent)).await;
    world.follow(&run, "approval").await;
    let listed = || world.store.list_approvals(world.scope.workspace, run.id);
    let asked = listed().await.unwrap();
    world.store.decide_approval(&world.scope, run.id, asked[0].id, &decision(true, None)).await.unwrap();
    while !listed().await.unwrap()[0].started {
        tokio::time::sleep(std::time::Duration::from_millis(10)).await;
    }
    world.store.decide_approval(&world.scope, run.id, asked[1].id, &decision(true, None)).await.unwrap();
    assert_eq!(world.results(&run, 1).await, ["b"]);
    world.turns.cancel(&world.scope, run.id).await.unwrap();
    world.follow(&run, "").await;
    let blocks = world.last_blocks(&run).await;
    // It was begun: nobody knows what came of it.
    assert_eq!((&blocks[0]["error"], &blocks[1]["result"]), (&json!("interrupted"), &json!("done")));
}

#[tokio::test]
async fn a_restart_goes_on_waiting() {
    let (mut world, run, id) = waiting().await;
    world.restart().await;
    let found = world.store.get_run(&world.scope, run.id).await.unwrap();
    assert_eq!(found.status, RunStatus::Running);
    // Whoever comes now is told what the node before has told.
    world.follow(&run, "approval").await;
    world.store.decide_approval(&world.scope, run.id, id, &decision(true, None)).await.unwrap();
    let events = world.follow(&run, "").await;
    assert_eq!(world.made(), 1);
    let asked = events.iter().filter(|(kind, _)| kind == "approval");
    assert_eq!(asked.count(), 1, "what was asked is not asked again");
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
    let events = world.follow(&run, "tool_result").await;
    assert_eq!(events.iter().filter(|(kind, _)| kind == "approval").count(), 1);
    let ended = &events.last().unwrap().1;
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

/// A model is told of a call that nobody has made that it was not made, also where another node ends its run; of one
/// that its client may have made, that nobody knows.
#[tokio::test]
async fn a_call_that_waited_to_the_end_is_told_as_not_made() {
    for (restart, client) in [(false, false), (true, false), (false, true), (true, true)] {
        let mut world = World::start(|_| {}).await;
        let agent = world.agent(json!({ "tools": ["effect"], "approval": ["effect"] })).await;
        world.script(vec![calls("", &[("a", "effect", "{}")]), says("I see.")]);
        let change = |turn: &mut StartTurn| {
            turn.agent = Some(agent);
            turn.brought.tools = brought(if client { &["effect"] } else { &[] });
        };
        let run = world.begin_as("Go", change).await;
        world.follow(&run, "approval").await;
        if restart {
            world.restart().await;
        }
        world.turns.cancel(&world.scope, run.id).await.unwrap();
        world.follow(&run, "").await;
        let error = world.last_blocks(&run).await[0]["error"].clone();
        assert_eq!(error, if client { INTERRUPTED } else { NOT_MADE });
        world.tell(run.conversation, "And now?", None).await;
        let sent = world.sent();
        accepted(&sent[1]);
        let mut messages = sent[1]["messages"].as_array().unwrap().iter();
        let told = messages.find(|message| message["role"] == "tool").unwrap()["content"].as_str().unwrap();
        let unknown = told.contains("it is not known whether it took effect");
        assert_eq!((unknown, told.contains("was not made")), (client, !client), "{told}");
        assert_eq!(world.made(), 0);
    }
}
