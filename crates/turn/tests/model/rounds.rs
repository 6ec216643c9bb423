//! Rounds of calls: announced, made in parallel, answered; failures told to the model; an end to it.

use domain::model::{Choice, Manner};
use serde_json::{Value, json};

use crate::world::{World, accepted, calls, says};

fn kinds(events: &[(String, Value)]) -> Vec<&str> {
    events.iter().map(|(kind, _)| kind.as_str()).collect()
}

fn results(events: &[(String, Value)]) -> Vec<&Value> {
    events.iter().filter(|(kind, _)| kind == "tool_result").map(|(_, data)| data).collect()
}

#[tokio::test]
async fn calls_are_announced_made_answered_and_kept() {
    let world = World::start(|_| {}).await;
    let two = [("a", "echo", r#"{"text":"one"}"#), ("b", "json", "")];
    world.script(vec![calls("I look.", &two), says("Done.")]);
    let (run, events) = world.tell(None, "Go", None).await;
    let names = kinds(&events);
    assert_eq!(names[..3], ["turn", "delta", "tool_calls"]);
    assert_eq!(names[names.len() - 3..], ["delta", "result", "done"]);
    let announced = json!({ "round": 1, "calls": [
        { "id": "a", "name": "echo", "args": { "text": "one" } }, { "id": "b", "name": "json", "args": {} }] });
    assert_eq!(events[2].1, announced);
    assert_eq!(results(&events).len(), 2);
    assert!(names.contains(&"sources"));
    // What a reload shows.
    let blocks = world.last_blocks(&run).await;
    let kept: Vec<&str> =
        blocks.as_array().unwrap().iter().map(|block| block["type"].as_str().unwrap()).collect();
    assert_eq!(kept, ["text", "tool_call", "tool_call", "source", "text"]);
    assert_eq!((&blocks[1]["result"], &blocks[2]["result"]), (&json!("one"), &json!({ "rows": [1, 2] })));
    // What the model was told.
    let sent = world.sent();
    sent.iter().for_each(accepted);
    let told = &sent[1]["messages"];
    assert_eq!(
        (&told[2]["content"], &told[3]["content"], &told[4]["content"]),
        (&json!("I look."), &json!("one"), &json!("{\"rows\":[1,2]}"))
    );
    let offered: Vec<&str> = sent[0]["tools"]
        .as_array()
        .unwrap()
        .iter()
        .map(|tool| tool["function"]["name"].as_str().unwrap())
        .collect();
    assert!(
        offered.contains(&"echo") && !offered.contains(&"effect"),
        "only what changes nothing: {offered:?}"
    );
    assert_eq!((run.usage.input_tokens, run.usage.output_tokens), (20, 10));
    // The next turn tells it the same way.
    world.tell(run.conversation, "And?", None).await;
    let sent = world.sent();
    let again = sent[2]["messages"].as_array().unwrap();
    accepted(&sent[2]);
    assert_eq!(again[..5], told.as_array().unwrap()[..5], "the prefix stays");
}

#[tokio::test]
async fn a_long_result_is_cut_once_and_the_whole_is_in_the_trace() {
    let world = World::start(|_| {}).await;
    world.script(vec![calls("", &[("a", "long", "{}")]), says("Done.")]);
    let (run, events) = world.tell(None, "Go", None).await;
    let result = results(&events)[0];
    let kept = result["result"].as_str().unwrap();
    assert_eq!((kept.chars().count(), &result["truncated"]), (4000, &json!(true)));
    assert!(kept.ends_with("[cut: 6000 characters in all]"), "{kept}");
    assert_eq!(world.sent()[1]["messages"][3]["content"], kept);
    let trace = world.store.read_trace(&world.scope, run.id, 0, 1 << 20).await.unwrap();
    let whole =
        trace.entries.iter().flat_map(|entries| entries.lines()).find(|line| line.contains("tool_output"));
    let whole: Value = serde_json::from_str(whole.unwrap()).unwrap();
    assert_eq!(whole["data"]["output"].as_str().unwrap().chars().count(), 6000);
}

#[tokio::test]
async fn what_fails_is_told_to_the_model() {
    let world = World::start(|limits| limits.tool_timeout_seconds = 1).await;
    let bad = [
        ("a", "broken", "{}"),
        ("b", "no_such_tool", "{}"),
        ("c", "echo", "{\"text\":"),
        ("d", "echo", r#"{"text":7}"#),
        ("e", "never", "{}"),
        ("f", "effect", "{}"),
        ("a", "json", "{}"),
    ];
    world.script(vec![calls("", &bad), says("I see.")]);
    let (run, events) = world.tell(None, "Go", None).await;
    assert_eq!(run.error, None);
    let told: Vec<String> = world.sent()[1]["messages"]
        .as_array()
        .unwrap()
        .iter()
        .filter(|message| message["role"] == "tool")
        .map(|message| message["content"].as_str().unwrap().to_owned())
        .collect();
    for (told, words) in told.iter().zip([
        "it is broken",
        "there is no tool",
        "not valid JSON",
        "text must be string",
        "did not answer within 1 s",
        "there is no tool",
        "rows",
    ]) {
        assert!(told.contains(words), "{told} / {words}");
    }
    assert_eq!((told.len(), results(&events).len(), world.made()), (7, 7, 0));
    accepted(&world.sent()[1]);
}

#[tokio::test]
async fn after_five_rounds_the_model_must_answer() {
    let world = World::start(|_| {}).await;
    let again = || calls("", &[("same", "echo", r#"{"text":"x"}"#)]);
    world.script((0..5).map(|_| again()).collect());
    let (run, events) = world.tell(None, "Go", None).await;
    assert_eq!(run.error, None);
    let sent = world.sent();
    assert_eq!(sent.len(), 6);
    assert!(sent[4]["tools"].is_array() && sent[5]["tools"].is_null());
    sent.iter().for_each(accepted);
    // An id that a provider repeats in a later round is another call.
    assert_eq!(results(&events).len(), 5);
    let blocks = world.last_blocks(&run).await;
    let rounds: Vec<i64> =
        blocks.as_array().unwrap().iter().filter_map(|block| block["round"].as_i64()).collect();
    assert_eq!(rounds, [1, 2, 3, 4, 5]);
    // One that calls on and says nothing.
    world.script((0..6).map(|_| again()).collect());
    let (run, _) = world.tell(None, "Go", None).await;
    assert_eq!(run.error.unwrap().code, "tool_rounds_exhausted");
}

/// A bug ends the run, not the conversation.
#[tokio::test]
async fn a_run_that_panics_is_settled() {
    let world = World::start(|_| {}).await;
    world.script(vec![calls("", &[("a", "panics", "{}")])]);
    let (run, told) = world.tell(None, "Go", None).await;
    assert_eq!(
        (run.error.unwrap().code.as_str(), &told.last().unwrap().1["status"]),
        ("internal", &json!("failed"))
    );
    let (next, _) = world.tell(run.conversation, "Go on", None).await;
    assert_eq!(next.error, None);
}

#[tokio::test]
async fn a_cancelled_call_is_kept_as_interrupted_and_the_next_turn_goes_on() {
    let world = World::start(|_| {}).await;
    world.script(vec![calls("Wait.", &[("a", "never", "{}"), ("b", "json", "{}")])]);
    let run = world.begin(None, "Go", None).await;
    world.follow(&run, "tool_result").await;
    world.turns.cancel(&world.scope, run.id).await.unwrap();
    world.follow(&run, "").await;
    let blocks = world.last_blocks(&run).await;
    assert_eq!((&blocks[1]["error"], &blocks[2]["error"]), (&json!("interrupted"), &Value::Null));
    let (next, _) = world.tell(run.conversation, "Go on", None).await;
    assert_eq!(next.error, None);
    let sent = world.sent().pop().unwrap();
    accepted(&sent);
    let told = sent["messages"][3]["content"].as_str().unwrap();
    assert!(told.contains("not known whether"), "{told}");
}

#[tokio::test]
async fn an_agent_has_its_own_words_model_tools_and_limit() {
    let world = World::start(|_| {}).await;
    let agent = world
        .agent(json!({ "instructions": "Speak like a pirate.", "tools": ["effect", { "mcp": "x" }], "max_rounds": 1 }))
        .await;
    world.script(vec![calls("", &[("a", "effect", "{}")]), says("Arr.")]);
    let (run, _) = world.tell(None, "Go", Some(agent)).await;
    assert_eq!((run.error, world.made()), (None, 1));
    let sent = world.sent();
    assert!(sent[0]["messages"][0]["content"].as_str().unwrap().starts_with("Speak like a pirate."));
    assert_eq!(sent[0]["tools"].as_array().unwrap().len(), 1);
    assert!(sent[1]["tools"].is_null(), "one round is all it has");
}

#[tokio::test]
async fn what_is_to_be_called_is_asked_for_once() {
    let world = World::start(|_| {}).await;
    let named = json!({ "type": "function", "function": { "name": "echo" } });
    for (choice, first) in [(Choice::Any, json!("required")), (Choice::Tool("echo".into()), named)] {
        let before = world.sent().len();
        world.script(vec![calls("", &[("a", "echo", r#"{"text":"one"}"#)]), says("Done.")]);
        let asked = Manner { choice: Some(choice), parallel: Some(false), ..Manner::default() };
        let run = world.begin_as("Go", |turn| turn.brought.manner = asked).await;
        world.follow(&run, "").await;
        let sent = world.sent().split_off(before);
        let told: Vec<&Value> = sent.iter().map(|request| &request["tool_choice"]).collect();
        assert_eq!(told, [&first, &Value::Null], "it may answer after the call");
        assert!(sent.iter().all(|request| request["parallel_tool_calls"] == false));
    }
    // Where none may be called, none is offered; one that is not there cannot be asked for.
    for (choice, offered) in [(Choice::None, false), (Choice::Tool("nope".into()), true)] {
        world.script(vec![says("Done.")]);
        let asked = Manner { choice: Some(choice), ..Manner::default() };
        let run = world.begin_as("Go", |turn| turn.brought.manner = asked).await;
        world.follow(&run, "").await;
        let sent = world.sent().pop().unwrap();
        assert_eq!((sent["tools"].is_array(), &sent["tool_choice"]), (offered, &Value::Null));
    }
}
