//! Dead in every phase of a round of tool calls. Afterwards the next turn is one that a strict provider accepts, a call
//! with an effect is never made twice, and what waits for a person goes on waiting (G16).

use std::time::Duration;

use serde_json::{Value, json};
use testkit::process::ServerProcess;
use testkit::sandbox::{Action, ScriptedSandbox};
use tokio::task::JoinSet;

use crate::client::{Caller, new_id};
use crate::house::House;
use crate::points::dies;

/// Where it dies; whether the call waits for a person; how often the effect is there before the death, and at the end.
const DEATHS: [(&str, bool, usize, usize); 7] = [
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

fn stream(events: &[Value]) -> Vec<Action> {
    let headers = vec![("content-type", "text/event-stream".to_owned())];
    let events: String = events.iter().map(|event| format!("data: {event}\n\n")).collect();
    vec![Action::Headers("200 OK", headers), Action::Bytes(events.into_bytes())]
}

fn calls() -> Vec<Action> {
    let call = json!({ "index": 0, "id": "call_a", "type": "function",
        "function": { "name": "note_effect", "arguments": "{}" } });
    stream(&[
        json!({ "choices": [{ "index": 0, "delta": { "content": "I do it." } }] }),
        json!({ "choices": [{ "index": 0, "delta": { "tool_calls": [call] }, "finish_reason": "tool_calls" }] }),
    ])
}

fn says(text: &str) -> Vec<Action> {
    stream(&[json!({ "choices": [{ "index": 0, "delta": { "content": text }, "finish_reason": "stop" }] })])
}

/// What the strictest provider looks at: who speaks after whom, and that every call has its one answer at once.
fn assert_accepted(body: &Value) {
    let messages = body["messages"].as_array().expect("messages");
    let mut last = "";
    let mut open: Vec<&str> = Vec::new();
    for message in messages {
        let role = message["role"].as_str().expect("a role");
        match role {
            "system" => assert_eq!(last, "", "{body}"),
            "user" => assert!(open.is_empty() && last != "user", "{body}"),
            "assistant" => {
                assert!(open.is_empty() && matches!(last, "user" | "tool"), "{body}");
                let calls = message["tool_calls"].as_array().map(Vec::as_slice).unwrap_or_default();
                assert!(message["content"].is_string() || !calls.is_empty(), "{body}");
                open = calls.iter().map(|call| call["id"].as_str().expect("an id")).collect();
            }
            "tool" => {
                let id = message["tool_call_id"].as_str().expect("an id");
                assert_eq!(open.first(), Some(&id), "{body}");
                open.remove(0);
            }
            _ => panic!("{role} is nobody: {body}"),
        }
        last = role;
    }
    assert!(open.is_empty() && matches!(last, "user" | "tool"), "{body}");
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
        if let Some(approval) = listed.body["data"].as_array().and_then(|all| all.first()) {
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

async fn survive(postgres: bool, (point, asks, before, after): (&str, bool, usize, usize)) {
    let Some(house) = House::on(postgres, Vec::new()).await else { return };
    let provider = ScriptedSandbox::start(calls()).await.expect("a provider");
    provider.then(says("Done."));
    let round = Round { house, provider, effects: tempfile::tempdir().expect("a folder") };
    let failpoint = if point == "kill -9" { String::new() } else { format!("{point}=1") };
    let mut server = round.serve(&failpoint).await;
    let caller = round.house.first_caller(&server).await;
    let approval = if asks { json!(["note_effect"]) } else { json!([]) };
    let agent = json!({ "name": "Doer", "tools": ["note_effect"], "approval": approval });
    let agent = caller.post("/v1/agents", &agent).await.body["id"].clone();
    let body = json!({ "message": "Do it", "agent": agent, "model": "openai/m", "mode": "ask" });
    let turn = caller.start_async(&new_id(), &body).await.expect("an accepted turn");
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
        decide(&caller, &turn.run).await;
    }
    let events = caller.events(&turn.run, 0).await;
    let expected = if goes_on { "succeeded" } else { "interrupted" };
    assert_eq!(status(&caller, &turn.run).await, expected, "{point}: {events:?}");
    assert_eq!(round.effects(), after, "{point}");
    // The conversation goes on, and whatever the round left is told in a way that is accepted.
    let next = caller.say(Some(&turn.conversation), "And now?").await;
    caller.events(&next.run, 0).await;
    assert_eq!(status(&caller, &next.run).await, "succeeded", "{point}");
    assert_eq!(round.effects(), after, "{point}: nothing is made again");
    let requests = round.provider.requests();
    assert!(requests.len() >= 2, "{point}");
    requests.iter().for_each(|request| assert_accepted(&request.body));
    let last = requests.last().map(|request| request.body.to_string()).unwrap_or_default();
    let unknown = last.contains("it is not known whether it took effect");
    assert_eq!(
        unknown,
        matches!(point, "tools.announced" | "tools.made" | "approvals.started"),
        "{point}: {last}"
    );
}

async fn survive_all(postgres: bool) {
    let mut stories = JoinSet::new();
    for death in DEATHS {
        stories.spawn(async move {
            let told = tokio::spawn(survive(postgres, death)).await;
            told.err().map(|error| format!("{}: {error}", death.0))
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
