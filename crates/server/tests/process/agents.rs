//! Agent turns with the server, the sandbox and what is between them as processes of their own: a run that is cancelled
//! in any phase is gone with all it had, and what the operator gives to agents reaches the model and the room.

use std::path::Path;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use axum::Router;
use axum::body::{Body, to_bytes};
use axum::extract::{Request, State};
use axum::http::Response;
use reqwest::Method;
use serde_json::{Value, json};
use testkit::process::{ServerProcess, command};
use testkit::sandbox::{Action, ScriptedSandbox};
use tokio::io::{AsyncBufReadExt as _, BufReader};
use tokio::process::Child;
use tokio::task::JoinSet;

use crate::house::{BINARY, Caller, House, client};
use crate::sandbox::{until, until_for};

const GONE: Duration = Duration::from_secs(2);

/// What stands between the sandbox and the server, and lets a request wait for ever.
#[derive(Default)]
struct Between {
    server: String,
    /// The end of the path that nobody gets beyond, and whether somebody came there.
    shut: Option<(&'static str, bool)>,
}

type Way = Arc<Mutex<Between>>;

async fn pass(State(way): State<Way>, request: Request) -> Response<Body> {
    let path = request.uri().path_and_query().map(ToString::to_string).unwrap_or_default();
    let server = {
        let mut way = way.lock().expect("the way");
        match &mut way.shut {
            Some((end, came)) if path.ends_with(*end) => {
                *came = true;
                None
            }
            _ => Some(way.server.clone()),
        }
    };
    let Some(server) = server else { return std::future::pending().await };
    let (head, body) = request.into_parts();
    let body = to_bytes(body, usize::MAX).await.expect("a body");
    let mut headers = head.headers;
    // How it comes is not how it goes on: whole.
    for name in ["host", "transfer-encoding", "content-length"] {
        headers.remove(name);
    }
    let asked = client().request(head.method, format!("{server}{path}")).headers(headers).body(body);
    let answer = asked.send().await.expect("an answer");
    let mut passed = Response::new(Body::empty());
    (*passed.status_mut(), *passed.headers_mut()) = (answer.status(), answer.headers().clone());
    passed.headers_mut().remove("transfer-encoding");
    *passed.body_mut() = answer.bytes().await.expect("a body").into();
    passed
}

/// A server whose sandbox is a process beside it, and reaches it only by the way between.
struct Parted {
    caller: Caller,
    way: Way,
    sandbox: Child,
    _server: Child,
    _house: House,
    _tasks: JoinSet<()>,
}

impl Parted {
    async fn start(provider: &str) -> Self {
        let (house, way) = (House::sqlite(), Way::default());
        let one = [("THREADKEEP_SANDBOX_CONCURRENCY", "1")];
        let mut sandbox = command(Path::new(BINARY), &one, house.data());
        let mut sandbox = sandbox.args(["sandbox", "--address", "127.0.0.1:0"]).spawn().expect("a sandbox");
        let mut said = BufReader::new(sandbox.stdout.take().expect("its words")).lines();
        let ready = said.next_line().await.expect("a line").expect("a line");

        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let public = format!("http://{}", listener.local_addr().expect("an address"));
        let router = Router::new().fallback(pass).with_state(Arc::clone(&way));
        let mut tasks = JoinSet::new();
        tasks.spawn(async move { axum::serve(listener, router).await.expect("served") });

        let free = std::net::TcpListener::bind("127.0.0.1:0").expect("a port");
        let listen = free.local_addr().expect("an address").to_string();
        drop(free);
        let (url, openai) = (format!("http://{listen}"), format!("{provider}/v1"));
        way.lock().expect("the way").server.clone_from(&url);
        let settings = [
            ("THREADKEEP_LISTEN", listen.as_str()),
            ("THREADKEEP_PUBLIC_URL", &public),
            ("SANDBOX_URL", ready.rsplit(' ').next().expect("an address")),
            ("OPENAI_BASE_URL", &openai),
            ("THREADKEEP_MODEL", "demo/assistant"),
            ("THREADKEEP_LOCAL_MODELS", "off"),
        ];
        let mut server = command(Path::new(BINARY), &settings, house.data());
        let server = server.arg("serve").spawn().expect("a server");
        let ready = format!("{url}/readyz");
        while client().get(&ready).send().await.is_err() {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        let caller = Caller::new(&url, &house.file("local.key"));
        Self { caller, way, sandbox, _server: server, _house: house, _tasks: tasks }
    }

    /// Nobody gets beyond the paths that end so.
    fn shut(&self, end: Option<&'static str>) {
        self.way.lock().expect("the way").shut = end.map(|end| (end, false));
    }

    async fn somebody_came(&self) {
        let came = || self.way.lock().expect("the way").shut.is_some_and(|(_, came)| came).then_some(());
        until("somebody comes to what is shut", came).await;
    }

    async fn begin(&self, conversation: &Value, message: &str, model: &str) -> String {
        let body =
            json!({ "conversation": conversation, "message": message, "mode": "agent", "model": model });
        self.caller.start_turn(&body).await["run"].as_str().expect("a run").to_owned()
    }

    /// Until the log has these words.
    async fn heard(&self, run: &str, words: &str) {
        loop {
            let trace = self.caller.get(&format!("/v1/runs/{run}/trace?limit=100")).await.text;
            if trace.contains(words) {
                return;
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }

    /// Cancels the run: it settles once, and whatever its room had is gone.
    async fn cancel(&self, phase: &str, run: &str, kept: usize) {
        let path = format!("/v1/runs/{run}/cancel");
        for _ in 0..2 {
            let cancelled = self.caller.send(Method::POST, &path, None).await.expect("an answer");
            assert_eq!(cancelled.status, 200, "{phase}: {}", cancelled.text);
        }
        let rooms = || (descendants(self.sandbox.id()).len() <= kept).then_some(());
        until_for(GONE, &format!("{phase}: the room is gone"), rooms).await;
        let events = self.caller.get(&format!("/v1/runs/{run}/events")).await.text;
        assert_eq!(events.matches("event: done").count(), 1, "{phase}: {events}");
        assert_eq!(events.matches("event: error").count(), 1, "{phase}: {events}");
        let settled = self.caller.get(&format!("/v1/runs/{run}")).await.body;
        assert_eq!(settled["status"], "cancelled", "{phase}: {settled}");
    }

    /// A whole turn.
    async fn turn(&self, conversation: &Value, message: &str) -> String {
        let body = json!({ "conversation": conversation, "message": message, "mode": "agent" });
        let path = "/v1/turns?wire=ndjson";
        self.caller.send(Method::POST, path, Some(&body)).await.expect("an answer").text
    }
}

/// The processes below one.
fn descendants(of: Option<u32>) -> Vec<u32> {
    let parents: Vec<(u32, u32)> = crate::sandbox::processes();
    let mut found: Vec<u32> = of.into_iter().collect();
    let mut at = 0;
    while let Some(parent) = found.get(at).copied() {
        found.extend(parents.iter().filter(|(_, above)| *above == parent).map(|(pid, _)| *pid));
        at += 1;
    }
    found.split_off(1)
}

#[tokio::test(flavor = "multi_thread")]
async fn a_turn_that_is_cancelled_in_any_phase_leaves_nothing_and_the_next_one_works() {
    let head = Action::Headers("200 OK", vec![("content-type", "text/event-stream".to_owned())]);
    let provider = ScriptedSandbox::start(vec![head, Action::Hang]).await.expect("a provider");
    let parted = Parted::start(&provider.url()).await;
    let demo = "demo/assistant";
    let body = json!({ "message": "write a.txt: one", "mode": "agent" });
    let first = parted.caller.start_turn(&body).await;
    let (chat, other) = (&first["conversation"], json!(null));
    parted.heard(first["run"].as_str().expect("a run"), "\"done\"").await;
    let keep = "run mkdir -p assets && head -c 20000000 /dev/zero > assets/big";
    // Where it stands, what it was told, and what nobody gets beyond.
    for (phase, message, shut) in [
        ("configuration", "run true", "/config"),
        ("unpacking", "run true", "/assets.zip"),
        ("the gateway", "run true", "/chat/completions"),
        ("collecting and posting results", keep, "/results"),
    ] {
        parted.shut(Some(shut));
        let run = parted.begin(chat, message, demo).await;
        parted.somebody_came().await;
        parted.cancel(phase, &run, 0).await;
        parted.shut(None);
        let next = parted.turn(chat, "run cat a.txt; echo next").await;
        assert!(next.contains("onenext") && next.contains("\"succeeded\""), "{phase}: {next}");
    }
    // The provider does not answer; it is let go.
    let run = parted.begin(chat, "Hello", "openai/m").await;
    provider.request(0).await.expect("asked");
    parted.cancel("model", &run, 0).await;
    provider.disconnected(0).await.expect("let go");
    // A program that will not go by itself, and one that waits for its place.
    let stubborn =
        "run trap '' TERM HUP INT; (setsid sh -c 'trap \"\" TERM; sleep 1000' &); echo; sleep 1000";
    let running = parted.begin(chat, stubborn, demo).await;
    parted.heard(&running, "\"name\":\"shell\"").await;
    until("it runs", || (descendants(parted.sandbox.id()).len() > 3).then_some(())).await;
    let waiting = parted.begin(&other, "run true", demo).await;
    parted.heard(&waiting, "wait for a free place").await;
    parted.cancel("waiting for a place", &waiting, usize::MAX).await;
    parted.cancel("running a tool", &running, 0).await;
    let next = parted.turn(chat, "run cat a.txt; echo next").await;
    assert!(next.contains("onenext") && !next.contains("wait for a free place"), "{next}");
    // What was cancelled has left no file behind.
    let files =
        parted.caller.get(&format!("/v1/chat-conversations/{}/files", chat.as_str().expect("an id"))).await;
    assert_eq!(files.body["data"].as_array().map(Vec::len), Some(1), "{}", files.text);
}

fn stream(events: &[Value]) -> Vec<Action> {
    let headers = vec![("content-type", "text/event-stream".to_owned())];
    let events: String = events.iter().map(|event| format!("data: {event}\n\n")).collect();
    vec![Action::Headers("200 OK", headers), Action::Bytes(events.into_bytes())]
}

#[tokio::test(flavor = "multi_thread")]
async fn what_the_operator_and_the_agent_give_reaches_the_model_and_the_room() {
    let call = json!({ "index": 0, "id": "c", "type": "function",
        "function": { "name": "recipe_add_node", "arguments": "{\"kind\":\"leaf\"}" } });
    let calls = json!({ "choices": [{ "index": 0, "delta": { "tool_calls": [call] }, "finish_reason": "tool_calls" }] });
    let says =
        json!({ "choices": [{ "index": 0, "delta": { "content": "Added." }, "finish_reason": "stop" }] });
    let provider = ScriptedSandbox::start(stream(&[calls])).await.expect("a provider");
    provider.then(stream(&[says]));
    let house = House::sqlite();
    let script =
        "#!/bin/sh\n# Adds a node.\n# @param kind  which node\nread args; echo \"{\\\"got\\\": $args}\"\n";
    for (name, text) in [("recipes/add-node.sh", script), ("skills/tone.md", "Speak plainly.")] {
        let path = house.data().join(name);
        std::fs::create_dir_all(path.parent().expect("a folder")).expect("a folder");
        std::fs::write(path, text).expect("a file");
    }
    let openai = format!("{}/v1", provider.url());
    let server = house.serve_with(&[("OPENAI_BASE_URL", &openai), ("THREADKEEP_LOCAL_MODELS", "off")]).await;
    let caller = house.caller(&server);
    let agent = json!({ "name": "Gardener", "runner": "sandbox", "instructions": "Trees only.", "model": "openai/m" });
    let agent =
        caller.send(Method::POST, "/v1/agents", Some(&agent)).await.expect("an agent").body["id"].clone();
    let turn = json!({ "message": "Add a leaf", "agent": agent });
    let turn = caller.send(Method::POST, "/v1/turns?wire=ndjson", Some(&turn)).await.expect("a turn").text;
    let step = turn.lines().filter_map(|line| serde_json::from_str::<Value>(line).ok());
    let step =
        step.into_iter().find(|line| line["name"] == "recipes/add-node.sh" && line["status"] == "succeeded");
    assert_eq!(step.expect(&turn)["result"], json!({ "got": { "kind": "leaf" } }));
    assert!(turn.contains("Added."), "{turn}");
    let asked = provider.request(0).await.expect("asked").body;
    let system = asked["messages"][0]["content"].as_str().expect("a prompt");
    assert!(system.contains("Trees only.") && system.contains("Speak plainly."), "{system}");
    let tools = asked["tools"].as_array().expect("tools");
    let recipe = tools.iter().find(|tool| tool["function"]["name"] == "recipe_add_node").expect("the recipe");
    assert_eq!(recipe["function"]["description"], "Adds a node.");
    assert_eq!(recipe["function"]["parameters"]["properties"]["kind"]["description"], "which node");
    // What cannot be taken is told by the check, and keeps no turn from going.
    std::fs::write(house.data().join("recipes/bad.sh"), b"\xff").expect("a file");
    let doctor = house.run(&["doctor"], &[]).await;
    assert!(doctor.stdout.contains("FAIL recipes and skills: left out: "), "{doctor:?}");
    let again = json!({ "message": "Hi", "agent": agent });
    let turn = caller.send(Method::POST, "/v1/turns?wire=ndjson", Some(&again)).await.expect("a turn").text;
    assert!(turn.contains("Added."), "{turn}");
    std::fs::remove_file(house.data().join("recipes/bad.sh")).expect("removed");
    let doctor = house.run(&["doctor"], &[]).await;
    assert!(doctor.stdout.contains("ok   recipes and skills: 1 and 1"), "{doctor:?}");
}

/// Where user namespaces are off: said at the start, by the check, and to every turn; and allowed by name.
#[tokio::test(flavor = "multi_thread")]
async fn where_user_namespaces_are_off_the_server_says_so() {
    const LAST: &str = "#!/bin/sh\nexec unshare -U --map-user=1000 --map-group=1000 --keep-caps sh -c 'echo 0 > \
        /proc/sys/user/max_user_namespaces && exec setpriv --ambient-caps=-all --inh-caps=-all --bounding-set=-all \
        \"$0\" \"$@\"' ";
    let house = House::sqlite();
    let binary = house.data().join("walled");
    std::fs::write(&binary, format!("{LAST}{BINARY} \"$@\"\n")).expect("a script");
    std::fs::set_permissions(&binary, std::os::unix::fs::PermissionsExt::from_mode(0o755)).expect("a mode");
    for (allowed, start, checked, turn) in [
        (
            "",
            "refuses to run: the layer namespaces",
            "FAIL sandbox: the built-in",
            "SANDBOX_ALLOW_MISSING=namespaces",
        ),
        ("namespaces", "missing, as allowed: namespaces", "ok   sandbox: no namespaces", "42"),
    ] {
        let env = [("SANDBOX_ALLOW_MISSING", allowed)];
        let env = if allowed.is_empty() { &[][..] } else { &env };
        let mut server = ServerProcess::start(&binary, env, house.data()).await.expect("a server");
        until("the start says it", || server.output().contains(start).then_some(())).await;
        let said = crate::sandbox::turn(&house, &server, "run echo $((6 * 7))").await;
        assert!(said.contains(turn), "{said}");
        assert_eq!(said.contains("sandbox_isolation"), allowed.is_empty(), "{said}");
        let doctor = command(&binary, env, house.data()).arg("doctor").output().await.expect("a check");
        let doctor = String::from_utf8_lossy(&doctor.stdout).into_owned();
        assert!(doctor.contains(checked), "{doctor}");
        server.terminate().await.expect("an end");
    }
}
