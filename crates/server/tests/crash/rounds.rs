//! Dead in every phase of a round of tool calls. Afterwards the next turn is one that a strict provider accepts, a call
//! with an effect is never made twice, and what waits for a person goes on waiting (G16).

use std::sync::Arc;
use std::time::Duration;

use serde_json::{Value, json};
use testkit::process::ServerProcess;
use testkit::sandbox::{Action, ScriptedSandbox};
use tokio::sync::Semaphore;
use tokio::task::JoinSet;

use crate::client::{Caller, new_id};
use crate::house::House;
use crate::points::dies;

/// Where it dies; whether the calls wait for a person; whether the effect of the round's call is there before the
/// death, and at the end.
pub const DEATHS: [(&str, bool, usize, usize); 8] = [
    // While the model is asked, the first time and after rounds.
    ("model.asked", false, 0, 0),
    // Before anything is stored of the call, after that, after it was made, after its result is stored.
    ("tools.planned", false, 0, 0),
    ("tools.announced", false, 0, 0),
    ("tools.made", false, 1, 1),
    ("tools.stored", false, 1, 1),
    // Before anybody is told that it waits, and while it waits: it can still be approved.
    ("approvals.kept", true, 0, 1),
    ("kill -9", true, 0, 1),
    // It may have been made by now.
    ("approvals.started", true, 0, 0),
];
const AT_ONCE: usize = 8;

fn stream(events: &[Value]) -> Vec<Action> {
    let headers = vec![("content-type", "text/event-stream".to_owned())];
    let events: String = events.iter().map(|event| format!("data: {event}\n\n")).collect();
    vec![Action::Headers("200 OK", headers), Action::Bytes(events.into_bytes())]
}

#[derive(Debug, Clone, Copy, PartialEq)]
enum Vendor {
    OpenAi,
    Anthropic,
}

impl Vendor {
    fn model(self) -> &'static str {
        match self {
            Self::OpenAi => "openai/m",
            Self::Anthropic => "anthropic/m",
        }
    }

    /// A call with some words, for 7 tokens in and 3 out.
    fn calls(self, round: usize) -> Vec<Action> {
        let id = format!("call_{round}");
        let call = json!({ "index": 0, "id": id, "type": "function",
            "function": { "name": "note_effect", "arguments": "{}" } });
        match self {
            Self::OpenAi => stream(&[
                json!({ "choices": [{ "index": 0, "delta": { "content": "I do it." } }] }),
                json!({ "choices": [{ "index": 0, "delta": { "tool_calls": [call] }, "finish_reason": "tool_calls" }],
                    "usage": { "prompt_tokens": 7, "completion_tokens": 3 } }),
            ]),
            Self::Anthropic => stream(&[
                json!({ "type": "message_start", "message": { "usage": { "input_tokens": 7, "output_tokens": 1 } } }),
                json!({ "type": "content_block_start", "index": 0, "content_block": { "type": "text", "text": "I do it." } }),
                json!({ "type": "content_block_stop", "index": 0 }),
                json!({ "type": "content_block_start", "index": 1,
                    "content_block": { "type": "tool_use", "id": id, "name": "note_effect", "input": {} } }),
                json!({ "type": "content_block_stop", "index": 1 }),
                json!({ "type": "message_delta", "delta": { "stop_reason": "tool_use" }, "usage": { "output_tokens": 3 } }),
                json!({ "type": "message_stop" }),
            ]),
        }
    }

    fn says(self, text: &str) -> Vec<Action> {
        match self {
            Self::OpenAi => stream(&[
                json!({ "choices": [{ "index": 0, "delta": { "content": text }, "finish_reason": "stop" }] }),
            ]),
            Self::Anthropic => stream(&[
                json!({ "type": "content_block_start", "index": 0, "content_block": { "type": "text", "text": text } }),
                json!({ "type": "message_delta", "delta": { "stop_reason": "end_turn" } }),
                json!({ "type": "message_stop" }),
            ]),
        }
    }

    /// Each message as the other vendor has it: who speaks, which calls it makes, which call it answers.
    fn told(self, body: &Value) -> Vec<(String, Vec<String>, Option<String>)> {
        let text = |value: &Value| value.as_str().expect("a text").to_owned();
        let messages = body["messages"].as_array().expect("messages");
        let mut told = Vec::new();
        for message in messages {
            let role = text(&message["role"]);
            if self == Self::OpenAi {
                let calls = message["tool_calls"].as_array().map(Vec::as_slice).unwrap_or_default();
                let calls: Vec<String> = calls.iter().map(|call| text(&call["id"])).collect();
                assert!(message["content"].is_string() || !calls.is_empty(), "{body}");
                let answers = message["tool_call_id"].as_str().map(str::to_owned);
                told.push((role, calls, answers));
                continue;
            }
            let parts = message["content"].as_array().expect("parts");
            assert!(!parts.is_empty(), "{body}");
            let of = |kind: &str| parts.iter().filter(move |part| part["type"] == kind).collect::<Vec<_>>();
            // Answers come first, and nobody speaks twice.
            let answers = of("tool_result");
            assert_eq!(parts.iter().take(answers.len()).collect::<Vec<_>>(), answers, "{body}");
            assert!(
                told.last().is_none_or(|(last, ..)| (last == "tool" || *last == "user") != (role == "user")),
                "{body}"
            );
            told.extend(
                answers.iter().map(|part| ("tool".into(), Vec::new(), Some(text(&part["tool_use_id"])))),
            );
            if answers.len() < parts.len() {
                told.push((role, of("tool_use").iter().map(|part| text(&part["id"])).collect(), None));
            }
        }
        told
    }
}

/// What the strictest provider looks at: who speaks after whom, and that every call has its one answer at once.
fn assert_accepted(vendor: Vendor, body: &Value) {
    let (mut last, mut open) = (String::new(), Vec::new());
    for (role, calls, answers) in vendor.told(body) {
        match role.as_str() {
            "system" => assert_eq!(last, "", "{body}"),
            "user" if vendor == Vendor::Anthropic && last == "tool" => assert!(open.is_empty(), "{body}"),
            "user" => assert!(open.is_empty() && last != "user", "{body}"),
            "assistant" => {
                assert!(open.is_empty() && matches!(last.as_str(), "user" | "tool"), "{body}");
                open = calls;
            }
            "tool" => {
                assert_eq!(open.first(), answers.as_ref(), "{body}");
                open.remove(0);
            }
            _ => panic!("{role} is nobody: {body}"),
        }
        last = role;
    }
    assert!(open.is_empty() && matches!(last.as_str(), "user" | "tool"), "{body}");
}

struct Round {
    house: House,
    provider: ScriptedSandbox,
    effects: tempfile::TempDir,
}

impl Round {
    async fn serve(&self, failpoint: &str) -> ServerProcess {
        let (model, file) = (format!("{}/v1", self.provider.url()), self.effects.path().join("effects"));
        let more = [
            ("OPENAI_BASE_URL", model.as_str()),
            ("ANTHROPIC_BASE_URL", &self.provider.url()),
            ("THREADKEEP_LOCAL_MODELS", "off"),
            ("EFFECT_FILE", file.to_str().expect("a path")),
        ];
        self.house.try_serve_with(failpoint, &more).await.expect("a server")
    }

    fn effects(&self) -> usize {
        std::fs::read_to_string(self.effects.path().join("effects")).map_or(0, |text| text.lines().count())
    }
}

async fn status(caller: &Caller, run: &str) -> Value {
    caller.get(&format!("/v1/runs/{run}")).await.body["status"].clone()
}

/// The approval that a run waits for.
async fn waiting(caller: &Caller, run: &str) -> Value {
    loop {
        let listed = caller.get(&format!("/v1/runs/{run}/approvals")).await;
        let mut all = listed.body["data"].as_array().into_iter().flatten();
        if let Some(approval) = all.find(|approval| approval["status"] == "pending") {
            return approval["id"].clone();
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

async fn decide(caller: &Caller, run: &str) {
    let id = waiting(caller, run).await;
    let path = format!("/v1/runs/{run}/approvals");
    // The process may die before it has answered.
    let decided = caller.request(reqwest::Method::POST, &path).json(&json!({ "id": id, "approve": true }));
    let _ = decided.send().await;
}

async fn survive(
    postgres: bool,
    vendor: Vendor,
    hit: usize,
    (point, asks, before, after): (&str, bool, usize, usize),
) {
    let Some(house) = House::on(postgres, Vec::new()).await else { return };
    let provider = ScriptedSandbox::start(vendor.says("Done.")).await.expect("a provider");
    // Rounds that it has been through, and the one that it dies in; nobody asks for a call before he is asked.
    let (through, called) = (hit - 1, hit - usize::from(point == "model.asked"));
    (1..=called).for_each(|round| provider.play(vendor.calls(round)));
    let (before, after) = (through + before, through + after);
    let round = Round { house, provider, effects: tempfile::tempdir().expect("a folder") };
    let failpoint = if point == "kill -9" { String::new() } else { format!("{point}={hit}") };
    let mut server = round.serve(&failpoint).await;
    let caller = round.house.first_caller(&server).await;
    let approval = if asks { json!(["note_effect"]) } else { json!([]) };
    let agent = json!({ "name": "Doer", "tools": ["note_effect"], "approval": approval });
    let agent = caller.post("/v1/agents", &agent).await.body["id"].clone();
    let body = json!({ "message": "Do it", "agent": agent, "model": vendor.model(), "mode": "ask" });
    let turn = caller.start_async(&new_id(), &body).await.expect("an accepted turn");
    for _ in 0..if asks { through } else { 0 } {
        decide(&caller, &turn.run).await;
    }
    match point {
        "kill -9" => {
            waiting(&caller, &turn.run).await;
            server.kill9().await.expect("killed");
        }
        "approvals.started" => {
            decide(&caller, &turn.run).await;
            dies(&mut server, point).await;
        }
        _ => dies(&mut server, point).await,
    }
    assert_eq!(round.effects(), before, "{point}");

    let server = round.serve("").await;
    let caller = round.house.caller(&server);
    let goes_on = asks && before < after;
    if goes_on {
        assert_eq!(status(&caller, &turn.run).await, "running", "{point}");
        // The first event, then words, call, question and result of each round: up to the last question.
        caller.follow(&turn.run, 0).await.until(4 * hit as i64).await;
        decide(&caller, &turn.run).await;
    }
    let events = caller.events(&turn.run, 0).await;
    let expected = if goes_on { "succeeded" } else { "interrupted" };
    assert_eq!(status(&caller, &turn.run).await, expected, "{point}: {events:?}");
    assert_eq!(round.effects(), after, "{point}");
    // Whoever decides is asked, also where it died between keeping the question and telling of it, and asked once.
    let asked = events.iter().filter(|event| event.kind == "approval").count();
    assert_eq!(asked, if asks { hit } else { 0 }, "{point}: {events:?}");
    // What was used before it died is counted.
    let used = caller.get(&format!("/v1/runs/{}", turn.run)).await.body["usage"].clone();
    assert_eq!(used["total_tokens"], 10 * called, "{failpoint}: {used}");
    // The conversation goes on, and whatever the round left is told in a way that is accepted.
    let next = caller.say(Some(&turn.conversation), "And now?").await;
    caller.events(&next.run, 0).await;
    assert_eq!(status(&caller, &next.run).await, "succeeded", "{point}");
    assert_eq!(round.effects(), after, "{point}: nothing is made again");
    let requests = round.provider.requests();
    assert!(requests.len() > called, "{point}");
    requests.iter().for_each(|request| assert_accepted(vendor, &request.body));
    let last = requests.last().map(|request| request.body.to_string()).unwrap_or_default();
    let unknown = last.contains("it is not known whether it took effect");
    assert_eq!(
        unknown,
        matches!(point, "tools.announced" | "tools.made" | "approvals.started"),
        "{point}: {last}"
    );
}

async fn survive_all(postgres: bool) {
    let (turns, mut stories) = (Arc::new(Semaphore::new(AT_ONCE)), JoinSet::new());
    // The first time with either of them; what comes after it is told to both in the same way.
    let all = [(Vendor::OpenAi, 1), (Vendor::Anthropic, 1), (Vendor::OpenAi, 2), (Vendor::OpenAi, 3)];
    for ((vendor, hit), death) in all.into_iter().flat_map(|one| DEATHS.map(|death| (one, death))) {
        if death.0 == "kill -9" && hit > 1 {
            continue;
        }
        let turns = Arc::clone(&turns);
        stories.spawn(async move {
            let _turn = turns.acquire().await;
            let told = tokio::spawn(survive(postgres, vendor, hit, death)).await;
            told.err().map(|error| format!("{vendor:?} {}={hit}: {error}", death.0))
        });
    }
    let failed: Vec<String> = stories.join_all().await.into_iter().flatten().collect();
    assert!(failed.is_empty(), "{} failed:\n{}", failed.len(), failed.join("\n"));
}

#[tokio::test(flavor = "multi_thread")]
async fn no_call_is_made_twice_and_the_thread_goes_on_on_sqlite() {
    survive_all(false).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn no_call_is_made_twice_and_the_thread_goes_on_on_postgresql() {
    survive_all(true).await;
}
