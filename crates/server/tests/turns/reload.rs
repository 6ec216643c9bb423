//! Live equals reload: what the stream's events fold to, what the terminal event says, what is stored and what a
//! reload shows are the same bytes, for any script; and the replay after the log's time folds to the same.

use std::collections::BTreeSet;
use std::sync::Arc;

use domain::message::Window;
use domain::secret::Secret;
use domain::time::{Clock as _, SystemClock};
use serde::Deserialize;
use serde_json::value::RawValue;
use serde_json::{Value, json};
use store::ThreadRead;
use testkit::agent::Agent;
use testkit::form::Form;
use testkit::sandbox::{Action, Called, ScriptedSandbox};
use testkit::server::Backend;

use crate::random::Random;
use crate::scripts::{delta, hang_after, lines, open, result};
use crate::sse::Told;
use crate::world::{CONVERSATIONS, World, ask, refused, stories};

stories!(
    live_equals_reload,
    live_equals_reload_of_what_a_model_does,
    other_wires_resume_after_the_logs_time,
    the_replay_after_the_logs_time,
    a_replay_on_a_side_branch,
    the_trace_outlives_the_log,
    a_long_log_is_replayed_after_its_time
);

const SCRIPTS: u64 = 60;

const TEXTS: [&str; 12] = [
    "a",
    "",
    " ",
    "\n",
    "word ",
    "two\n\nlines",
    "ü\u{301}",
    "\u{1F469}\u{200D}\u{1F4BB}",
    "\u{2028}",
    "\"\\/",
    "</script>",
    "data: x\n\n",
];
/// JSON whose spelling must survive, and some that no line may hold.
const VALUES: [&str; 14] = [
    "null",
    "true",
    "0",
    "-0.0",
    "1.50",
    "1e3",
    "12345678901234567890123",
    "\"x\"",
    "[]",
    "{}",
    "[1, 2,\t{ \"b\" : 1, \"a\" : [ ] }]",
    "{\"k\":\"\\u00e9\\n\"}",
    "{\"a\":1,\"a\":2}",
    "\"\\u0000\"",
];

/// A line of any kind, good or bad.
fn line(random: &mut Random) -> String {
    let text = serde_json::to_string(random.one_of(&TEXTS)).unwrap();
    match random.below(12) {
        0..=4 => format!(r#"{{"type":"delta","text":{text}}}"#),
        5 => format!(r#"{{"type":"log","level":"info","message":{text}}}"#),
        6 => ["nonsense", "{}", "[]", "", "{\"type\":\"delta\"}"][random.below(5)].to_owned(),
        _ => step(random, &text),
    }
}

/// A step with some of its fields: few ids, so that many lines are about the same one.
fn step(random: &mut Random, text: &str) -> String {
    let status = *random.one_of(&["running", "running", "succeeded", "failed"]);
    let mut line =
        format!(r#"{{"type":"step","id":"s{}","name":{text},"status":"{status}""#, random.below(6));
    for field in ["args", "result"] {
        if random.below(3) == 0 {
            line.push_str(&format!(r#","{field}":{}"#, random.one_of(&VALUES)));
        }
    }
    if random.below(4) == 0 {
        line.push_str(&format!(r#","error":{text}"#));
    }
    if random.below(3) == 0 {
        line.push_str(&format!(r#","durationMs":{}"#, random.one_of(&["0", "12", "1.50", "3e2"])));
    }
    if random.below(2) == 0 {
        line.push_str(&format!(r#","ts":{}"#, 1_700_000_000_000_u64 + random.next() % 10_000));
    }
    line.push('}');
    line
}

fn script(random: &mut Random) -> Vec<Action> {
    let mut script = vec![open()];
    let lines = [0, 3, 20, 200][random.below(4)];
    let file = (random.below(3) == 0).then(|| random.below(lines + 1));
    for at in 0..lines {
        if file == Some(at) {
            script.push(Action::Call(Arc::new(send_back)));
        }
        script.push(Action::Bytes(format!("{}\n", line(random)).into_bytes()));
    }
    let text = *random.one_of(&TEXTS);
    match random.below(6) {
        0 => {}
        1 => script.push(Action::Line(json!({ "type": "error", "code": "own", "message": text }))),
        2 => script.push(Action::Reset),
        _ => script.push(Action::Line(result(text))),
    }
    script
}

/// Two files come back.
fn send_back(envelope: Value) -> Called {
    Box::pin(async move {
        let form = Form::of("made ü.txt", b"made").file("more.bin", &[0, 159, 146, 150]);
        let sent = Agent::new(envelope).send_back(&form).await.unwrap();
        assert_eq!(sent.status, 200, "{}", sent.text);
        Vec::new()
    })
}

/// What a model says when it is asked: thoughts and words in any order, and calls, or else an end.
fn says(random: &mut Random, calls: Option<u64>) -> Vec<Action> {
    let mut events = Vec::new();
    let mut choose = |delta: Value, reason: Option<&str>| {
        let event = json!({ "choices": [{ "index": 0, "delta": delta, "finish_reason": reason }] });
        events.push(format!("data: {event}\n\n"));
    };
    for _ in 0..random.below(6) {
        let name = *random.one_of(&["content", "content", "reasoning_content"]);
        choose(json!({ name: random.one_of(&TEXTS) }), None);
    }
    match calls {
        None => choose(json!({ "content": "That is all." }), Some("stop")),
        Some(round) => {
            for index in 0..1 + random.below(3) {
                let name =
                    random.one_of(&["search_pages", "search_pages", "list_files", "read_file", "no_tool"]);
                let arguments = random.one_of(&["{\"query\":\"refund\"}", "{}", "{\"query\": 7}", "no JSON"]);
                let function = json!({ "name": name, "arguments": arguments });
                let id = format!("call_{round}_{index}");
                choose(
                    json!({ "tool_calls": [{ "index": index, "id": id, "type": "function", "function": function }] }),
                    None,
                );
            }
            choose(json!({}), Some("tool_calls"));
        }
    }
    let headers = vec![("content-type", "text/event-stream".to_owned())];
    vec![Action::Headers("200 OK", headers), Action::Bytes(events.concat().into_bytes())]
}

/// Where this run's seeds begin; shown where one of them fails.
fn fresh_seed() -> u64 {
    let mut bytes = [0; 4];
    getrandom::fill(&mut bytes).unwrap();
    let seed = u64::from(u32::from_le_bytes(bytes));
    eprintln!("the seeds are those from {seed} on");
    seed
}

#[derive(Deserialize)]
struct Document<'a> {
    #[serde(borrow)]
    data: Data<'a>,
}
#[derive(Deserialize)]
struct Data<'a> {
    #[serde(borrow)]
    attributes: Attributes<'a>,
}
#[derive(Deserialize)]
struct Attributes<'a> {
    #[serde(borrow)]
    messages: Vec<Message<'a>>,
}
#[derive(Deserialize)]
struct Message<'a> {
    #[serde(borrow)]
    parts: &'a RawValue,
}

/// The parts of the newest message as the answer spells them.
async fn reloaded(world: &World, conversation: &str) -> String {
    let answer = world.get(&format!("{CONVERSATIONS}/{conversation}")).await;
    let document: Document<'_> = serde_json::from_str(&answer.text).unwrap();
    document.data.attributes.messages.last().unwrap().parts.get().to_owned()
}

async fn stored(world: &World, conversation: &str) -> String {
    let read = ThreadRead { window: Some(Window::All), branch: None };
    let id = conversation.parse().unwrap();
    let thread = world.server.store().get_thread(&world.scope(), id, read).await.unwrap();
    thread.messages.last().unwrap().content.clone()
}

async fn live_equals_reload(backend: Backend) -> Option<()> {
    let world = World::start(backend).await?;
    let (first, mut seen, mut kinds) = (fresh_seed(), [0; 2], BTreeSet::new());
    for seed in first..first + SCRIPTS {
        world.play(script(&mut Random::new(seed)));
        let told = world.tell(&json!({ "message": format!("seed {seed}") })).await;
        let folded = check(&world, &told, seed).await;
        kinds.extend(told.names().into_iter().map(str::to_owned));
        seen[usize::from(folded.len() > 500)] += 1;
    }
    assert!(seen.iter().all(|count| *count > 2), "small and large ones: {seen:?}");
    assert!(["delta", "step", "file"].iter().all(|kind| kinds.contains(*kind)), "{kinds:?}");
    Some(())
}

/// All that is shown of an answer is the fold of what was streamed, which it answers.
async fn check(world: &World, told: &Told, seed: u64) -> String {
    let (conversation, folded) = (told.conversation(), told.folded());
    assert_eq!(told.assistant_content(), folded, "seed {seed}: the terminal event");
    assert_eq!(stored(world, &conversation).await, folded, "seed {seed}: the store");
    assert_eq!(reloaded(world, &conversation).await, folded, "seed {seed}: a reload");
    assert_eq!(world.log(&told.run()).await.bytes, told.bytes, "seed {seed}: the log");
    folded
}

/// Thoughts, calls, their results and sources.
async fn live_equals_reload_of_what_a_model_does(backend: Backend) -> Option<()> {
    let provider = ScriptedSandbox::start(says(&mut Random::new(1), None)).await.unwrap();
    let world = World::start_with(backend, |config| {
        config.openai.api_key = Some(Secret::new("sk-none"));
        config.openai.base_url = Some(format!("{}/v1", provider.url()));
    })
    .await?;
    let page = json!({ "title": "Refund policy", "body": "Within **30 days** of a purchase.", "url": "https://a.example/r" });
    let made = world.send(reqwest::Method::POST, "/v1/pages", Some(&page)).await;
    assert_eq!(made.status, 201, "{}", made.text);
    let (first, mut kinds) = (fresh_seed(), BTreeSet::new());
    for seed in first..first + SCRIPTS / 2 {
        let mut random = Random::new(seed);
        for round in 0..random.below(4) as u64 {
            provider.play(says(&mut random, Some(round)));
        }
        provider.play(says(&mut random, None));
        let body = json!({ "message": format!("seed {seed}"), "mode": "ask", "model": "openai/m-1" });
        let told = world.tell(&body).await;
        assert_eq!(told.status(), "succeeded", "seed {seed}: {:?}", told.terminal());
        check(&world, &told, seed).await;
        kinds.extend(told.names().into_iter().map(str::to_owned));
    }
    for kind in ["delta", "reasoning", "tool_calls", "tool_result", "sources"] {
        assert!(kinds.contains(kind), "no {kind}: {kinds:?}");
    }
    Some(())
}

/// Ends the time of all logs, as the passing of `EVENT_LOG_TTL_SECONDS` would.
async fn expire(world: &World) {
    let now = SystemClock.now();
    let later = now + jiff::SignedDuration::from_hours(1);
    while world.server.store().system_expire(later, now, 100).await.unwrap() > 0 {}
}

async fn the_replay_after_the_logs_time(backend: Backend) -> Option<()> {
    let world = World::start(backend).await?;
    let (first, mut all) = (fresh_seed(), Vec::new());
    for seed in first..first + 25 {
        world.play(script(&mut Random::new(seed)));
        all.push(world.tell(&json!({ "message": format!("seed {seed}") })).await);
    }
    world.play(lines(vec![delta("half")]));
    all.push(world.tell(&json!({ "message": "a failure" })).await);
    expire(&world).await;
    for told in &all {
        let again = world.log(&told.run()).await;
        assert_eq!(String::from_utf8_lossy(&again.bytes), String::from_utf8_lossy(&told.bytes));
        // Who had seen a part of it, then or now, gets the rest.
        for after in [1, told.frames.len() / 2, told.frames.len() - 1] {
            late_reader(&world, told, after).await;
        }
        let last = told.frames.len();
        let nothing =
            ask(world.request(reqwest::Method::GET, &format!("/v1/runs/{}/events?after={last}", told.run())))
                .await;
        assert_eq!((nothing.status, nothing.text.as_str()), (200, ""));
        let future = ask(world
            .request(reqwest::Method::GET, &format!("/v1/runs/{}/events?after={}", told.run(), last + 1)))
        .await;
        refused(&future, 400, "invalid_parameter");
    }
    Some(())
}

/// A reader that comes back when the log's time is over still gets what it missed, under the same numbers.
async fn late_reader(world: &World, told: &Told, after: usize) {
    let path = format!("/v1/runs/{}/events?after={after}", told.run());
    let rest = ask(world.request(reqwest::Method::GET, &path)).await;
    assert_eq!(rest.status, 200);
    let (frames, _) = crate::sse::frames(rest.text.as_bytes());
    assert_eq!(frames.len(), told.frames.len() - after, "after {after}");
    assert!(told.bytes.ends_with(rest.text.as_bytes()), "after {after}: {}", rest.text);
}

/// The same on the wires that are told from the beginning on.
async fn other_wires_resume_after_the_logs_time(backend: Backend) -> Option<()> {
    let world = World::start(backend).await?;
    world.play(lines(vec![
        delta("one "),
        crate::scripts::step("s", "running"),
        crate::scripts::step("s", "succeeded"),
        delta("two "),
        delta("three "),
        result("two three four"),
    ]));
    let told = world.tell(&json!({ "message": "hi" })).await;
    let resume = async |wire: &str, after: usize| {
        let path = format!("/v1/runs/{}/events?wire={wire}&after={after}", told.run());
        let answer = ask(world.request(reqwest::Method::GET, &path)).await;
        assert_eq!(answer.status, 200, "{wire} after {after}");
        answer.text
    };
    let places: Vec<(&str, usize)> = ["openai", "anthropic", "ui-message", "ag-ui"]
        .into_iter()
        .flat_map(|wire| (1..told.frames.len()).map(move |after| (wire, after)))
        .collect();
    let mut before = Vec::new();
    for (wire, after) in &places {
        before.push(resume(wire, *after).await);
    }
    expire(&world).await;
    for ((wire, after), before) in places.iter().zip(before) {
        assert_eq!(resume(wire, *after).await, before, "{wire} after {after}");
    }
    Some(())
}

/// An answer that an edit has put aside is still its run's.
async fn a_replay_on_a_side_branch(backend: Backend) -> Option<()> {
    let world = World::start(backend).await?;
    world.play(lines(vec![result("The first answer.")]));
    let first = world.tell(&json!({ "message": "hi" })).await;
    world.tell(&json!({ "conversation": first.conversation(), "replace": first.message() })).await;
    expire(&world).await;
    let again = world.log(&first.run()).await;
    assert_eq!(again.folded(), first.folded());
    assert_eq!(again.assistant_content(), first.assistant_content());
    Some(())
}

async fn the_trace_outlives_the_log(backend: Backend) -> Option<()> {
    let world = World::start(backend).await?;
    world.play(lines(vec![
        crate::scripts::log("note"),
        delta("a"),
        json!({ "type": "nonsense" }),
        result("ab"),
    ]));
    let told = world.tell(&json!({ "message": "hi" })).await;
    let before = world.trace(&told.run()).await;
    // One that is under way keeps its log, however old the rest is.
    world.play(hang_after(vec![delta("live")]));
    let mut live = world.begin(&json!({ "message": "hi" })).await;
    live.until("delta").await;
    expire(&world).await;
    assert_eq!(world.trace(&told.run()).await, before);
    assert_eq!(before.1, 1);
    world.cancel(&live.run()).await;
    assert_eq!(live.rest().await.names(), ["turn", "delta", "error", "done"]);
    Some(())
}

/// Several MiB, in entries of all sizes: told again byte by byte, from the beginning and from the middle.
async fn a_long_log_is_replayed_after_its_time(backend: Backend) -> Option<()> {
    let world = World::start(backend).await?;
    let sizes = (0..400).map(|n| if n % 20 == 0 { 150_000 } else { 40 + n * 7 });
    let mut said: Vec<_> = sizes.map(|size| delta(&"word ".repeat(size / 5))).collect();
    said.push(result("the end"));
    world.play(lines(said));
    let told = world.tell(&json!({ "message": "hi" })).await;
    assert!(told.bytes.len() > 3_000_000, "{}", told.bytes.len());
    let trace = async |after: i64| {
        world.get(&format!("/v1/runs/{}/trace?limit=100&after={after}", told.run())).await.body
    };
    let traced = [trace(0).await, trace(250).await, trace(390).await];
    assert_eq!(traced[1]["data"].as_array().unwrap().len(), 100);
    expire(&world).await;
    let again = world.log(&told.run()).await;
    assert!(again.bytes == told.bytes, "{} of {} bytes", again.bytes.len(), told.bytes.len());
    for after in [1, told.frames.len() / 2, told.frames.len() - 1, told.frames.len()] {
        let path = format!("/v1/runs/{}/events?after={after}", told.run());
        let rest = ask(world.request(reqwest::Method::GET, &path)).await;
        assert_eq!(rest.status, 200);
        let (frames, _) = crate::sse::frames(rest.text.as_bytes());
        assert_eq!(frames.len(), told.frames.len() - after, "after {after}");
        assert!(told.bytes.ends_with(rest.text.as_bytes()), "after {after}");
    }
    assert!([trace(0).await, trace(250).await, trace(390).await] == traced);
    Some(())
}
