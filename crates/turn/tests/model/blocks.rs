//! Anthropic's answers within one run: what it wants back as it said it.

use domain::run::{Run, StartTurn};
use serde_json::{Number, Value, json};
use testkit::sandbox::Action;

use crate::world::{World, sse};

/// An answer of these blocks, streamed piece by piece.
fn answer(blocks: &[Value], reason: &str) -> Vec<Action> {
    let mut events = vec![json!({ "type": "message_start", "message": { "usage": { "input_tokens": 10 } } })];
    for (index, block) in blocks.iter().enumerate() {
        let (mut start, mut deltas) = (block.clone(), Vec::new());
        for (name, kind, piece) in [
            ("thinking", "thinking_delta", "thinking"),
            ("signature", "signature_delta", "signature"),
            ("text", "text_delta", "text"),
            ("input", "input_json_delta", "partial_json"),
        ] {
            let Some(whole) = start.get_mut(name).map(Value::take) else { continue };
            start[name] = if name == "input" { json!({}) } else { json!("") };
            let whole = whole.as_str().map_or_else(|| whole.to_string(), str::to_owned);
            let (one, two) = whole.split_at(whole.len() / 2);
            deltas.extend([one, two].map(|part| json!({ "type": kind, piece: part })));
        }
        events.push(json!({ "type": "content_block_start", "index": index, "content_block": start }));
        events.extend(
            deltas
                .into_iter()
                .map(|delta| json!({ "type": "content_block_delta", "index": index, "delta": delta })),
        );
        events.push(json!({ "type": "content_block_stop", "index": index }));
    }
    events.push(json!({ "type": "message_delta", "delta": { "stop_reason": reason }, "usage": { "output_tokens": 5 } }));
    events.push(json!({ "type": "message_stop" }));
    let frame = |event: &Value| format!("event: {}\ndata: {event}\n\n", event["type"].as_str().unwrap());
    sse(events.iter().map(frame).collect())
}

fn thought(text: &str) -> Value {
    json!({ "type": "thinking", "thinking": text, "signature": format!("sig-{text}") })
}

fn text(text: &str) -> Value {
    json!({ "type": "text", "text": text })
}

fn call(id: &str, name: &str) -> Value {
    json!({ "type": "tool_use", "id": id, "name": name, "input": { "text": "x" } })
}

/// Hidden thoughts come back hidden.
fn redacted() -> Value {
    json!({ "type": "redacted_thinking", "data": "aGlkZGVu" })
}

fn asks(model: &str) -> impl FnOnce(&mut StartTurn) {
    let model = format!("anthropic/{model}");
    move |turn| {
        turn.model = Some(model);
        turn.brought.manner.effort = Some("high".into());
        turn.brought.manner.temperature = Number::from_f64(0.5);
    }
}

async fn tell(world: &World, change: impl FnOnce(&mut StartTurn)) -> (Run, Vec<(String, Value)>) {
    let run = world.begin_as("Go", change).await;
    let events = world.follow(&run, "").await;
    (world.store.get_run(&world.scope, run.id).await.unwrap(), events)
}

/// The blocks of one message of a request, with the calls' ids left out: they are ours.
fn content(request: &Value, at: usize) -> Vec<Value> {
    let mut blocks = request["messages"][at]["content"].as_array().unwrap().clone();
    blocks.iter_mut().filter(|block| block["type"] == "tool_use").for_each(|call| call["id"] = json!("ours"));
    blocks
}

#[tokio::test]
async fn thoughts_go_back_with_their_calls_and_thinking_stays_on() {
    for model in ["claude-opus-4-6", "claude-sonnet-4-5"] {
        let world = World::start(|_| {}).await;
        let first = [
            thought("one"),
            redacted(),
            text("I look."),
            thought("two"),
            call("toolu_1", "echo"),
            call("toolu_2", "json"),
        ];
        // The second round comes without a thought of its own.
        let second = [call("toolu_3", "echo")];
        world.script(vec![
            answer(&first, "tool_use"),
            answer(&second, "tool_use"),
            answer(&[text("Done.")], "end_turn"),
        ]);
        let (run, _) = tell(&world, asks(model)).await;
        assert_eq!(run.error, None);
        let sent = world.sent();
        assert_eq!(sent.len(), 3);
        for request in &sent {
            assert_eq!(request["thinking"], sent[0]["thinking"], "{model}");
            assert!(request["thinking"].is_object() && request["temperature"].is_null(), "{request}");
            assert_eq!(request["max_tokens"], sent[0]["max_tokens"]);
        }
        let ours = |blocks: &[Value]| -> Vec<Value> {
            let mut blocks = blocks.to_vec();
            blocks
                .iter_mut()
                .filter(|block| block["type"] == "tool_use")
                .for_each(|call| call["id"] = json!("ours"));
            blocks
        };
        assert_eq!(content(&sent[1], 1), ours(&first));
        assert_eq!((content(&sent[2], 1), content(&sent[2], 3)), (ours(&first), ours(&second)));
        // Each call and its answer go by one id.
        for (made, given) in [(1, 2), (3, 4)] {
            let ids = |at: usize, name: &str| -> Vec<Value> {
                let blocks = sent[2]["messages"][at]["content"].as_array().unwrap();
                blocks.iter().map(|block| block[name].clone()).filter(|id| !id.is_null()).collect()
            };
            assert_eq!(ids(made, "id"), ids(given, "tool_use_id"));
        }
        // A later turn is told the words and calls alone.
        world.script(vec![answer(&[text("Yes.")], "end_turn")]);
        let after = |turn: &mut StartTurn| {
            asks(model)(turn);
            turn.conversation = run.conversation;
        };
        assert_eq!(tell(&world, after).await.0.error, None);
        let sent = world.sent();
        assert!(!sent[3]["messages"].to_string().contains("thinking") && sent[3]["thinking"].is_object());
    }
}

#[tokio::test]
async fn an_answer_that_calls_without_a_thought_turns_budgeted_thinking_off() {
    let world = World::start(|_| {}).await;
    world.script(vec![answer(&[call("toolu_1", "echo")], "tool_use"), answer(&[text("Done.")], "end_turn")]);
    let (run, _) = tell(&world, asks("claude-sonnet-4-5")).await;
    assert_eq!(run.error, None);
    let sent = world.sent();
    assert_eq!((&sent[1]["thinking"], &sent[1]["temperature"]), (&Value::Null, &json!(0.5)));
}

/// What a provider did itself.
fn searched() -> [Value; 2] {
    [
        json!({ "type": "server_tool_use", "id": "srv_1", "name": "web_search", "input": { "query": "x" } }),
        json!({ "type": "web_search_tool_result", "tool_use_id": "srv_1", "content": [{ "type": "web_search_result" }] }),
    ]
}

#[tokio::test]
async fn a_paused_answer_is_gone_on_with() {
    let world = World::start(|_| {}).await;
    let [search, found] = searched();
    let parts = [vec![thought("one"), text("Part one, "), search], vec![found, text("part two, ")]];
    world.script(vec![
        answer(&parts[0], "pause_turn"),
        answer(&parts[1], "pause_turn"),
        answer(&[text("part three.")], "end_turn"),
    ]);
    let (run, events) = tell(&world, asks("claude-sonnet-4-5")).await;
    assert_eq!((&run.error, run.usage.output_tokens), (&None, 15));
    let sent = world.sent();
    assert_eq!(sent.len(), 3);
    assert_eq!(content(&sent[1], 1), parts[0]);
    assert_eq!(content(&sent[2], 1), parts.concat());
    assert!(sent.iter().all(|request| request["thinking"] == sent[0]["thinking"]));
    let whole = "Part one, part two, part three.";
    let ended = events.iter().find(|(kind, _)| kind == "result").map(|(_, data)| data).unwrap();
    assert_eq!((&ended["message"], &ended["assistant"]["metadata"]["finish"]), (&json!(whole), &Value::Null));
    let blocks = world.last_blocks(&run).await;
    assert_eq!(blocks[1], json!({ "type": "text", "text": whole }));
    assert_eq!(blocks.as_array().unwrap().len(), 2);
}

#[tokio::test]
async fn a_pause_before_calls_and_a_thought_after_one_keep_their_places() {
    let world = World::start(|_| {}).await;
    let parts = [vec![text("I look.")], vec![call("toolu_1", "echo")]];
    world.script(vec![
        answer(&parts[0], "pause_turn"),
        answer(&parts[1], "tool_use"),
        answer(&[text("First.")], "pause_turn"),
        answer(&[text("Then "), thought("two"), text("Second.")], "end_turn"),
    ]);
    let (run, events) = tell(&world, |turn| turn.model = Some("anthropic/claude-x".into())).await;
    assert_eq!(run.error, None);
    let sent = world.sent();
    assert_eq!(content(&sent[2], 1), [text("I look."), call("ours", "echo")]);
    assert_eq!(content(&sent[3], 3), [text("First.")]);
    let ended = events.iter().find(|(kind, _)| kind == "result").map(|(_, data)| data).unwrap();
    assert_eq!(ended["message"], "Second.");
    let blocks = world.last_blocks(&run).await;
    let kept: Vec<&str> =
        blocks.as_array().unwrap().iter().filter_map(|block| block["text"].as_str()).collect();
    assert_eq!(kept, ["I look.", "First.Then ", "two", "Second."]);
}

#[tokio::test]
async fn an_answer_is_gone_on_with_as_often_as_calls_are_made() {
    let world = World::start(|limits| limits.max_tool_rounds = 2).await;
    world.script((0..4).map(|_| answer(&[text("on ")], "pause_turn")).collect());
    let (run, events) = tell(&world, |turn| turn.model = Some("anthropic/claude-x".into())).await;
    assert_eq!((run.error, world.sent().len()), (None, 3));
    let ended = events.iter().find(|(kind, _)| kind == "result").map(|(_, data)| data).unwrap();
    assert_eq!(
        (&ended["message"], &ended["assistant"]["metadata"]["finish"]),
        (&json!("on on on "), &json!("length"))
    );
}
