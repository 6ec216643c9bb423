//! Asked to stop (SIGTERM) with runs under way: they end or are interrupted, readers hear of it, the exit is clean.

use std::time::{Duration, Instant};

use nix::sys::signal::Signal;
use reqwest::Method;
use serde_json::json;
use testkit::process::ServerProcess;
use testkit::sandbox::{Action, Release};

use crate::client::{new_id, turn};
use crate::house::{House, accepted, delta, endless, story};

async fn ends_well(server: &mut ServerProcess) {
    let status = server.terminate().await.expect("an end");
    assert_eq!(status.code(), Some(0), "{}", server.output());
}

async fn a_run_that_ends_in_time_is_waited_for(postgres: bool) {
    let Some(house) = House::on(postgres, story(Duration::from_millis(100))).await else { return };
    let mut server = house.serve().await;
    let caller = house.first_caller(&server).await;
    let (accepted, mut stream) = caller.start(&new_id(), &turn(None, "hello")).await.expect("a turn");
    stream.until(1).await;
    let (events, ()) = tokio::join!(stream.rest(), ends_well(&mut server));
    let events = events.expect("a whole stream");
    assert_eq!(events.last().expect("an end").json()["status"], "succeeded");
    let server = house.serve().await;
    let log = house.caller(&server).events(&accepted.run, 1).await;
    assert_eq!(log, events);
}

async fn a_run_that_does_not_is_interrupted(postgres: bool) {
    let Some(house) = House::on(postgres, endless()).await else { return };
    house.sandbox.then(story(Duration::ZERO));
    let mut server = house.serve().await;
    let caller = house.first_caller(&server).await;
    let (accepted, mut stream) = caller.start(&new_id(), &turn(None, "hello")).await.expect("a turn");
    let queued = caller.say(Some(&accepted.conversation), "and then").await;
    stream.until(3).await;
    let asked = Instant::now();
    let (events, ()) = tokio::join!(stream.rest(), ends_well(&mut server));
    assert!(asked.elapsed() < Duration::from_secs(29), "{:?}", asked.elapsed());
    let events = events.expect("a whole stream");
    assert_eq!(events.last().expect("an end").json()["status"], "interrupted");
    let server = house.serve().await;
    let caller = house.caller(&server);
    assert_eq!(caller.events(&accepted.run, 3).await, events, "settled once, before the exit");
    let (messages, _) = caller.thread(&accepted.conversation).await;
    let parts = messages[1]["parts"].as_array().expect("an answer");
    assert!(parts.contains(&json!({ "type": "text", "text": "Let me see." })), "{parts:?}");
    let log = caller.events(&queued.run, 0).await;
    assert_eq!(log.last().expect("an end").json()["status"], "succeeded", "the queue goes on");
}

/// What a run under way needs of its server it gets until its end, over new connections; nobody else gets anything.
async fn a_sandbox_calls_back_until_its_run_has_ended(postgres: bool) {
    let gate = Release::default();
    let result = Action::Line(json!({ "type": "result", "message": "Written." }));
    let script =
        vec![accepted(), delta("I write."), Action::WaitFor(gate.clone()), result, Action::EndChunks];
    let Some(house) = House::on(postgres, script).await else { return };
    let mut server = house.serve().await;
    let caller = house.first_caller(&server).await;
    let (accepted, mut stream) = caller.start(&new_id(), &turn(None, "hello")).await.expect("a turn");
    stream.until(2).await;
    let envelope = house.sandbox.request(0).await.expect("an envelope").body;
    server.signal(Signal::SIGTERM).expect("a signal");
    // The connection that it keeps may be closed under a request.
    let ready = || caller.request(Method::GET, "/readyz").send();
    while ready().await.is_ok_and(|answer| answer.status() == 200) {}
    for path in ["/v1/chat-conversations", "/v1/workspaces", "/v1/models", "/"] {
        let refused = caller.get(path).await;
        assert_eq!((refused.status, refused.header("retry-after")), (503, "1"), "{path}: {}", refused.text);
    }
    // A browser's own reader gives up for good on any other status.
    let reader = caller.request(Method::GET, &format!("/v1/runs/{}/events", accepted.run));
    let reader = reader.header("accept", "text/event-stream").send().await.expect("an answer");
    assert_eq!(
        (reader.status().as_u16(), reader.text().await.expect("a text")),
        (200, "retry: 500\n\n".into())
    );
    let text = |name: &str| envelope[name].as_str().expect("a text").to_owned();
    let client = reqwest::Client::builder().no_proxy().build().expect("a client");
    let config = client.get(format!("{}/config", text("agent_url"))).bearer_auth(text("config_token"));
    assert_eq!(config.send().await.expect("an answer").status(), 200);
    let form =
        "--x\r\ncontent-disposition: form-data; name=\"f\"; filename=\"a.txt\"\r\n\r\nwritten\r\n--x--\r\n";
    let results = client.post(format!("{}/results", text("agent_url"))).body(form);
    let results = results.header("authorization", text("upload_otp"));
    let results = results.header("content-type", "multipart/form-data; boundary=x");
    assert_eq!(results.send().await.expect("an answer").status(), 201);
    gate.open();
    let events = stream.rest().await.expect("a whole stream");
    assert!(events.iter().any(|event| event.kind == "file"), "{events:?}");
    assert_eq!(events.last().expect("an end").json()["status"], "succeeded");
    assert_eq!(server.ended().await.expect("an end").code(), Some(0), "{}", server.output());
    let server = house.serve().await;
    let files = format!("/v1/chat-conversations/{}/files", accepted.conversation);
    assert_eq!(house.caller(&server).get(&files).await.body["data"][0]["name"], "a.txt");
}

async fn runs_are_drained(postgres: bool) {
    tokio::join!(
        a_run_that_ends_in_time_is_waited_for(postgres),
        a_run_that_does_not_is_interrupted(postgres),
        a_sandbox_calls_back_until_its_run_has_ended(postgres),
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn runs_are_drained_on_sqlite() {
    runs_are_drained(false).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn runs_are_drained_on_postgresql() {
    runs_are_drained(true).await;
}

/// The run is another node's: its reader is let go at once, and reads on there.
#[tokio::test(flavor = "multi_thread")]
async fn readers_of_other_nodes_runs_are_let_go() {
    let pause = || Action::Wait(Duration::from_millis(60));
    let mut script = vec![accepted()];
    for n in 0..200 {
        script.extend([delta(&format!("{n} ")), pause()]);
    }
    script.extend([Action::Line(json!({ "type": "result", "message": "end" })), Action::EndChunks]);
    let Some(house) = House::postgres(script).await else { return };
    let (a, mut b) = (house.serve().await, house.serve().await);
    let on_a = house.first_caller(&a).await;
    let run = on_a.say(None, "hello").await.run;
    let mut reader = house.caller(&b).follow(&run, 0).await;
    let mut events = reader.until(5).await;
    let asked = Instant::now();
    let (rest, ()) = tokio::join!(reader.rest(), ends_well(&mut b));
    assert!(asked.elapsed() < Duration::from_secs(5), "{:?}", asked.elapsed());
    events.extend(rest.expect("a stream that ends as it should"));
    let seen = events.last().expect("an event").seq;
    events.extend(on_a.events(&run, seen).await);
    assert_eq!(events, on_a.events(&run, 0).await);
}
