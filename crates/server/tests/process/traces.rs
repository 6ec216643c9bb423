//! Traces: what a collector gets over real HTTP, what it never gets, and what happens without it.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use axum::body::Bytes;
use axum::extract::State;
use axum::http::HeaderMap;
use axum::routing::post;
use nix::sys::signal::Signal;
use serde_json::json;
use testkit::sandbox::{Action, ScriptedSandbox};
use tokio::net::TcpListener;
use tokio::sync::watch;
use tokio::task::JoinSet;

use crate::house::{House, stop_well};

const TRACE: &str = "4bf92f3577b34da6a3ce929d0e0e4736";
const PARENT: &str = "00f067aa0ba902b7";
const WORDS: &str = "the words of a person 7391";

type Bodies = Arc<watch::Sender<Vec<(HeaderMap, Bytes)>>>;

/// A collector that keeps what it gets.
struct Collector {
    url: String,
    bodies: Bodies,
    _tasks: JoinSet<()>,
}

impl Collector {
    async fn start() -> Self {
        let bodies: Bodies = Arc::new(watch::Sender::new(Vec::new()));
        let take = |State(bodies): State<Bodies>, headers: HeaderMap, body: Bytes| async move {
            bodies.send_modify(|all| all.push((headers, body)));
        };
        let router = axum::Router::new().route("/v1/traces", post(take)).with_state(Arc::clone(&bodies));
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let url = format!("http://{}", listener.local_addr().expect("an address"));
        let mut tasks = JoinSet::new();
        tasks.spawn(async move { axum::serve(listener, router).await.expect("it serves") });
        Self { url, bodies, _tasks: tasks }
    }

    /// All spans, once they are as wanted.
    async fn spans(&self, wanted: impl Fn(&[Span]) -> bool) -> Vec<Span> {
        let mut seen = self.bodies.subscribe();
        let all = seen.wait_for(|bodies| wanted(&spans(bodies)));
        let all = tokio::time::timeout(std::time::Duration::from_secs(30), all).await;
        spans(&all.expect("the spans come in time").expect("the collector is there"))
    }
}

/// A span as OTLP has it.
#[derive(Debug, Clone)]
struct Span {
    trace: String,
    id: String,
    parent: String,
    name: String,
    kind: u64,
    attributes: HashMap<String, String>,
    resource: HashMap<String, String>,
    nanoseconds: u64,
}

fn spans(bodies: &[(HeaderMap, Bytes)]) -> Vec<Span> {
    let mut found = Vec::new();
    for (_, body) in bodies {
        for resource_spans in messages(body, 1) {
            let resource = attributes(messages(resource_spans, 1)[0], 1);
            for span in messages(resource_spans, 2).into_iter().flat_map(|scope| messages(scope, 2)) {
                let hex = |field| messages(span, field).concat().iter().map(|b| format!("{b:02x}")).collect();
                let fixed =
                    |field| fields(span).into_iter().find(|(f, _)| *f == field).map_or(0, |(_, v)| number(v));
                found.push(Span {
                    trace: hex(1),
                    id: hex(2),
                    parent: hex(4),
                    name: String::from_utf8(messages(span, 5).concat()).expect("a name"),
                    kind: fixed(6),
                    attributes: attributes(span, 9),
                    resource: resource.clone(),
                    nanoseconds: fixed(8) - fixed(7),
                });
            }
        }
    }
    found
}

enum Field<'a> {
    Number(u64),
    Bytes(&'a [u8]),
}

fn number(field: Field<'_>) -> u64 {
    match field {
        Field::Number(number) => number,
        Field::Bytes(_) => panic!("not a number"),
    }
}

/// The fields of a protobuf message with their numbers.
fn fields(mut rest: &[u8]) -> Vec<(u64, Field<'_>)> {
    let mut found = Vec::new();
    while !rest.is_empty() {
        let tag = varint(&mut rest);
        let field = match tag & 7 {
            0 => Field::Number(varint(&mut rest)),
            1 => {
                let (fixed, tail) = rest.split_at(8);
                rest = tail;
                Field::Number(u64::from_le_bytes(fixed.try_into().expect("eight bytes")))
            }
            2 => {
                let length = usize::try_from(varint(&mut rest)).expect("a length");
                let (bytes, tail) = rest.split_at(length);
                rest = tail;
                Field::Bytes(bytes)
            }
            other => panic!("wire type {other}"),
        };
        found.push((tag >> 3, field));
    }
    found
}

fn varint(rest: &mut &[u8]) -> u64 {
    let mut value = 0;
    for shift in (0..64).step_by(7) {
        let (byte, tail) = rest.split_first().expect("a byte");
        *rest = tail;
        value |= u64::from(byte & 0x7f) << shift;
        if byte & 0x80 == 0 {
            return value;
        }
    }
    panic!("too long a number")
}

fn messages(message: &[u8], field: u64) -> Vec<&[u8]> {
    let found = fields(message).into_iter().filter(|(number, _)| *number == field);
    found.filter_map(|(_, value)| if let Field::Bytes(bytes) = value { Some(bytes) } else { None }).collect()
}

fn attributes(message: &[u8], field: u64) -> HashMap<String, String> {
    let pair = |pair: &[u8]| {
        let key = String::from_utf8(messages(pair, 1).concat()).expect("a key");
        let value = messages(pair, 2).concat();
        let value = match fields(&value).into_iter().next() {
            Some((1, Field::Bytes(text))) => String::from_utf8(text.to_vec()).expect("text"),
            Some((3, Field::Number(number))) => number.to_string(),
            _ => panic!("an attribute of another kind"),
        };
        (key, value)
    };
    messages(message, field).into_iter().map(pair).collect()
}

async fn answering() -> ScriptedSandbox {
    let open = Action::Headers("200 OK", vec![("content-type", "application/x-ndjson".to_owned())]);
    let said = Action::Line(json!({ "type": "delta", "text": WORDS }));
    let ended = Action::Line(json!({ "type": "result", "message": "" }));
    // Apart, so that what is said is stored before the end.
    let pause = Action::Wait(Duration::from_millis(200));
    ScriptedSandbox::start(vec![open, said, pause, ended]).await.expect("a sandbox")
}

/// A turn with a trace of its caller's, to its end.
async fn turn(house: &House, url: &str) {
    let request = crate::house::client()
        .post(format!("{url}/v1/turns"))
        .bearer_auth(house.file("local.key"))
        .header("traceparent", format!("00-{TRACE}-{PARENT}-01"))
        .json(&json!({ "message": WORDS }));
    let answer = request.send().await.expect("an answer");
    assert_eq!(answer.status(), 200);
    assert!(answer.text().await.expect("a body").contains("succeeded"));
}

#[tokio::test]
async fn a_turn_is_one_trace_from_its_caller_to_the_sandbox() {
    let (house, sandbox, collector) = (House::sqlite(), answering().await, Collector::start().await);
    let sandbox_url = sandbox.url();
    let server = house
        .serve_with(&[
            ("SANDBOX_URL", &sandbox_url),
            ("OTEL_EXPORTER_OTLP_ENDPOINT", &collector.url),
            ("OTEL_EXPORTER_OTLP_HEADERS", "authorization=Bearer%20collectors-key"),
            ("OTEL_SERVICE_NAME", "tested"),
        ])
        .await;
    turn(&house, server.url()).await;
    let ours = |spans: &[Span]| spans.iter().filter(|span| span.trace == TRACE).cloned().collect::<Vec<_>>();
    let all = collector.spans(|spans| ours(spans).iter().any(|span| span.name == "turn")).await;
    let spans = ours(&all);
    let one = |name: &str| {
        let named: Vec<&Span> = spans.iter().filter(|span| span.name == name).collect();
        assert!(!named.is_empty(), "{name} in {spans:#?}");
        named[0]
    };
    let request = one("POST /v1/turns");
    assert_eq!((request.parent.as_str(), request.kind), (PARENT, 2));
    assert_eq!(request.attributes["http.response.status_code"], "200");
    assert_eq!(request.attributes["http.route"], "/v1/turns");
    assert_eq!(request.resource["service.name"], "tested");
    let run = one("turn");
    assert_eq!(run.parent, request.id);
    assert_eq!(one("turn.begin").parent, request.id);
    for name in ["turn.append", "turn.settle", "sandbox POST /stream"] {
        assert_eq!(one(name).parent, run.id, "{name}");
    }
    assert_eq!(one("turn.settle").attributes["threadkeep.status"], "succeeded");
    assert!(run.nanoseconds >= one("turn.settle").nanoseconds);
    let sent = sandbox.request(0).await.expect("a request");
    assert_eq!(sent.header("traceparent"), Some(format!("00-{TRACE}-{}-01", run.id).as_str()));

    let secrets = [WORDS.to_owned(), house.file("local.key"), house.file("secret.key")];
    for (headers, body) in collector.bodies.borrow().iter() {
        assert_eq!(headers["authorization"], "Bearer collectors-key");
        assert_eq!(headers["content-type"], "application/x-protobuf");
        for secret in &secrets {
            assert!(
                !body.windows(secret.len()).any(|part| part == secret.as_bytes()),
                "{secret} is in a span"
            );
        }
    }
    assert!(!server.output().contains("collectors-key"));
}

#[tokio::test]
async fn a_collector_that_is_away_or_silent_costs_nothing_but_spans() {
    let silent = TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let silent_url = format!("http://{}", silent.local_addr().expect("an address"));
    for url in ["http://127.0.0.1:1", &silent_url] {
        let (house, sandbox) = (House::sqlite(), answering().await);
        let sandbox_url = sandbox.url();
        let mut server =
            house.serve_with(&[("SANDBOX_URL", &sandbox_url), ("OTEL_EXPORTER_OTLP_ENDPOINT", url)]).await;
        for _ in 0..3 {
            turn(&house, server.url()).await;
        }
        stop_well(&mut server, Signal::SIGTERM).await;
        assert!(server.output().matches("collector takes nothing").count() <= 1, "{}", server.output());
    }
    let house = House::sqlite();
    let refused = house.run(&["serve"], &[("OTEL_EXPORTER_OTLP_ENDPOINT", "127.0.0.1:4318")]).await;
    assert!(refused.code == Some(1) && refused.stderr.contains("OTEL_EXPORTER_OTLP_ENDPOINT"), "{refused:?}");
}

#[tokio::test]
async fn without_a_collector_the_callers_trace_goes_on_to_the_sandbox() {
    let (house, sandbox) = (House::sqlite(), answering().await);
    let sandbox_url = sandbox.url();
    let server = house.serve_with(&[("SANDBOX_URL", &sandbox_url)]).await;
    turn(&house, server.url()).await;
    let sent = sandbox.request(0).await.expect("a request");
    assert_eq!(sent.header("traceparent"), Some(format!("00-{TRACE}-{PARENT}-01").as_str()));
}
