//! The sandbox client as its caller sees it: what it sends, when it lets go, how it hands out lines.

#![expect(clippy::unwrap_used, reason = "a test may panic")]

mod common;

use std::time::{Duration, Instant};

use common::{CONFIG_TOKEN, TOKEN, UPLOAD_OTP, WIDE, client, envelope, listen, run};
use domain::secret::Secret;
use futures_util::FutureExt as _;
use serde_json::json;
use testkit::sandbox::{Action, Release, ScriptedSandbox};
use tokio_util::sync::CancellationToken;
use upstream::sandbox::{Envelope, LineStream, Outcome, Received, SandboxClient, SandboxLimits};
use uuid::Uuid;

const SECOND: Duration = Duration::from_secs(1);

fn ok() -> Action {
    Action::Headers("200 OK", vec![])
}

fn log() -> Action {
    Action::Line(json!({"type": "log", "level": "info", "message": "up"}))
}

fn result() -> Action {
    Action::Line(json!({"type": "result", "message": "done", "ts": 5}))
}

fn delta(number: u64) -> String {
    json!({"type": "delta", "text": number.to_string()}).to_string()
}

fn open(sandbox: &ScriptedSandbox, cancel: &CancellationToken) -> LineStream {
    let envelope = Envelope { execution_id: Some(Uuid::from_u128(5)), ..envelope() };
    client(&sandbox.url(), WIDE).stream(&envelope, cancel.clone())
}

#[tokio::test]
async fn the_envelope_is_sent_as_specified() {
    let sandbox = ScriptedSandbox::start(vec![ok(), result()]).await.unwrap();
    let told = run(&format!("{}/base/?a=b#c", sandbox.url()), WIDE).await;
    assert_eq!(told.ends, [Outcome::Result { message: "done".to_owned(), ts: Some(5) }]);
    let request = sandbox.request(0).await.unwrap();
    assert_eq!((request.method.as_str(), request.path.as_str()), ("POST", "/base/stream"));
    assert_eq!(request.header("authorization"), Some("Bearer bearer-9f1c"));
    assert_eq!(request.header("content-type"), Some("application/json"));
    assert_eq!(request.header("accept-encoding"), Some("identity"));
    let id = |n: u8| format!("00000000-0000-0000-0000-00000000000{n}");
    let expected = json!({
        "version": 1, "session_id": id(1), "agent_url": "http://127.0.0.1:1/agent/1",
        "config_token": CONFIG_TOKEN, "upload_otp": UPLOAD_OTP, "workspace_id": id(2), "chat_id": id(3),
        "execution_id": null, "workflow_id": null,
        "message": { "id": id(4), "content": "Hello", "ts": 1_700_000_000_000_i64 },
        "conversation": [{ "role": "user", "content": "Before", "ts": 1 }], "accepts": ["delta"],
    });
    assert_eq!(request.body, expected);
}

#[tokio::test]
async fn there_is_one_authorization() {
    for (token, expected) in [(Some(TOKEN), "Bearer bearer-9f1c"), (None, "Basic YW5uOnNlY3JldA==")] {
        let sandbox =
            ScriptedSandbox::start(vec![Action::Headers("401 No", vec![]), Action::Bytes(b"secret?".into())])
                .await
                .unwrap();
        let url = sandbox.url().replace("http://", "http://ann:secret@");
        let http = upstream::http::client().unwrap();
        let client = SandboxClient::new(&url, token.map(Secret::new), http, WIDE).unwrap();
        let told = listen(client.stream(&envelope(), CancellationToken::new())).await;
        if token.is_none() {
            assert!(!format!("{told:?}").contains("secret"), "{told:?}");
        }
        let request = sandbox.request(0).await.unwrap();
        let all: Vec<_> = request.headers.iter().filter(|(name, _)| name == "authorization").collect();
        assert_eq!(all, [&("authorization".to_owned(), expected.to_owned())]);
    }
}

#[tokio::test]
async fn nobody_there_is_unreachable() {
    let address = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let told = run(&format!("http://{address}"), WIDE).await;
    let [Outcome::Failed { code, message }] = told.ends.as_slice() else { panic!("{told:?}") };
    assert_eq!(code.as_str(), "sandbox_unreachable");
    assert!(!message.contains(&address.port().to_string()), "{message}");
}

#[tokio::test]
async fn only_http_addresses_are_taken() {
    for url in ["", "sandbox:8080", "ftp://host/", "/stream"] {
        let http = upstream::http::client().unwrap();
        let error = SandboxClient::new(url, None, http, WIDE).unwrap_err();
        assert!(error.to_string().starts_with("SANDBOX_URL"), "{error}");
    }
}

#[tokio::test]
async fn cancelling_lets_go_at_once() {
    // With the lines that come before it is cancelled; where there are none, it is left waiting a while.
    let scripts =
        [(vec![Action::Hang], 0), (vec![ok(), Action::Hang], 0), (vec![ok(), log(), Action::Hang], 1)];
    for (script, lines) in scripts {
        let sandbox = ScriptedSandbox::start(script).await.unwrap();
        let cancel = CancellationToken::new();
        let mut stream = open(&sandbox, &cancel);
        if lines > 0 {
            assert!(matches!(stream.next().await.as_slice(), [Received::Line { .. }]));
        }
        let waiting = tokio::time::timeout(Duration::from_millis(200), stream.next()).await;
        assert!(waiting.is_err(), "{waiting:?}");
        let asked = Instant::now();
        cancel.cancel();
        let (told, gone) = tokio::join!(listen(stream), sandbox.disconnected(0));
        let took = gone.unwrap().disconnected.unwrap() - asked;
        assert!(took < SECOND, "{took:?}");
        assert_eq!(told.ends, [Outcome::Cancelled]);
    }
}

#[tokio::test]
async fn cancelled_before_it_began_sends_nothing() {
    let sandbox = ScriptedSandbox::start(vec![ok(), result()]).await.unwrap();
    let cancel = CancellationToken::new();
    cancel.cancel();
    assert_eq!(listen(open(&sandbox, &cancel)).await.ends, [Outcome::Cancelled]);
    assert!(sandbox.requests().is_empty());
}

#[tokio::test]
async fn a_result_lets_go_of_a_sandbox_that_stays() {
    let sandbox = ScriptedSandbox::start(vec![ok(), log(), result(), Action::Hang]).await.unwrap();
    let mut stream = open(&sandbox, &CancellationToken::new());
    while !matches!(stream.next().await.last(), Some(Received::End(Outcome::Result { .. }))) {}
    sandbox.disconnected(0).await.unwrap();
    assert!(stream.next().await.is_empty());
}

#[tokio::test]
async fn a_dropped_stream_lets_go() {
    let sandbox = ScriptedSandbox::start(vec![ok(), log(), Action::Hang]).await.unwrap();
    let mut stream = open(&sandbox, &CancellationToken::new());
    assert!(matches!(stream.next().await.as_slice(), [Received::Line { .. }]));
    drop(stream);
    sandbox.disconnected(0).await.unwrap();
}

#[tokio::test]
async fn lines_are_handed_out_when_they_come() {
    let release = Release::default();
    let script = vec![ok(), log(), Action::WaitFor(release.clone()), result()];
    let sandbox = ScriptedSandbox::start(script).await.unwrap();
    let mut stream = open(&sandbox, &CancellationToken::new());
    let first = stream.next().await;
    let [Received::Line { raw, .. }] = first.as_slice() else { panic!("{first:?}") };
    assert_eq!(raw.as_ref().unwrap(), &json!({"type": "log", "level": "info", "message": "up"}).to_string());
    release.open();
    let told = listen(stream).await;
    assert_eq!((told.lines, told.ends.len()), (1, 1));
}

#[tokio::test]
async fn what_arrived_together_is_one_batch() {
    let script =
        vec![Action::Chunked("200 OK", vec![]), Action::Lines(10_000, delta), result(), Action::EndChunks];
    let sandbox = ScriptedSandbox::start(script).await.unwrap();
    let told = run(&sandbox.url(), WIDE).await;
    assert_eq!(told.lines, 10_001);
    assert!(told.batches < 2_000, "{} batches", told.batches);
}

#[tokio::test]
async fn an_abandoned_call_loses_nothing() {
    let script = vec![Action::Chunked("200 OK", vec![]), Action::Lines(3_000, delta), result()];
    let sandbox = ScriptedSandbox::start(script).await.unwrap();
    let mut stream = open(&sandbox, &CancellationToken::new());
    let mut texts = Vec::new();
    let mut ends = 0;
    while ends == 0 {
        // Polled once and dropped, over and over.
        let batch = stream.next().now_or_never().unwrap_or_default();
        tokio::task::yield_now().await;
        for received in batch {
            match received {
                Received::Line { raw, .. } => texts.push(String::from_utf8(raw.unwrap().to_vec()).unwrap()),
                Received::End(_) => ends += 1,
                other => panic!("{other:?}"),
            }
        }
    }
    assert_eq!(sandbox.requests().len(), 1);
    let expected: Vec<String> = (0..3_000).map(delta).collect();
    assert_eq!(texts[..3_000], expected);
}

#[tokio::test]
async fn an_abandoned_call_does_not_stop_the_clock() {
    let sandbox = ScriptedSandbox::start(vec![ok(), log(), Action::Hang]).await.unwrap();
    let limits = SandboxLimits { idle: Duration::from_millis(600), ..WIDE };
    let mut stream = client(&sandbox.url(), limits).stream(&envelope(), CancellationToken::new());
    let end = async {
        loop {
            let beat = tokio::time::timeout(Duration::from_millis(50), stream.next()).await;
            if let Some(Received::End(outcome)) = beat.unwrap_or_default().pop() {
                return outcome;
            }
        }
    };
    let outcome = tokio::time::timeout(Duration::from_secs(20), end).await.unwrap();
    assert!(matches!(outcome, Outcome::Failed { code, .. } if code.as_str() == "sandbox_timeout"));
}

/// What a stopped machine does to us: nothing runs here for so long, while the other side goes on.
fn paused(span: Duration) {
    std::thread::sleep(span);
}

#[tokio::test]
async fn a_pause_of_ours_is_no_silence_of_the_sandbox() {
    let elsewhere =
        tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
    for before in [vec![ok(), log()], vec![ok()]] {
        let told = Release::default();
        let script = [before, vec![Action::WaitFor(told.clone()), log(), Action::Hang]].concat();
        let sandbox = elsewhere.spawn(ScriptedSandbox::start(script.clone())).await.unwrap().unwrap();
        let limits = SandboxLimits { idle: Duration::from_millis(300), ..WIDE };
        let mut stream = client(&sandbox.url(), limits).stream(&envelope(), CancellationToken::new());
        if script.len() == 5 {
            assert!(matches!(stream.next().await.as_slice(), [Received::Line { .. }]));
        }
        let pause = async {
            // Once what is waited for is the next line.
            tokio::time::sleep(Duration::from_millis(200)).await;
            told.open();
            paused(Duration::from_secs(2));
        };
        let (batch, ()) = tokio::join!(stream.next(), pause);
        assert!(matches!(batch.as_slice(), [Received::Line { .. }]), "{batch:?}");
        let end = stream.next().await;
        let [Received::End(Outcome::Failed { code, .. })] = end.as_slice() else { panic!("{end:?}") };
        assert_eq!(code.as_str(), "sandbox_timeout", "of a silence that is one");
    }
    elsewhere.shutdown_background();
}
