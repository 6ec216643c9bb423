//! The key cache against a real provider on loopback that counts its visitors and can be told to
//! answer anything. The key texts only have to be well formed here; signatures are verified elsewhere.

use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

use axum::Router;
use axum::body::Body;
use axum::extract::State as Shared;
use axum::http::{HeaderMap, StatusCode, header};
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use domain::time::{FixedClock, from_ms};
use futures_util::{StreamExt, stream};
use serde_json::{Value, json};
use tokio::sync::Notify;

use super::*;

const SECOND: i64 = 1000;

#[derive(Clone)]
enum Answer {
    Json(Value),
    Text(String),
    Status(StatusCode),
    Redirect(&'static str),
    /// Half a body, then silence.
    Stall,
    /// Waits for `go`, then a set.
    Held(Value),
}

struct Provider {
    answer: Mutex<Answer>,
    visits: AtomicUsize,
    agent: Mutex<Option<String>>,
    arrived: Notify,
    go: Notify,
}

impl Provider {
    fn say(&self, answer: Answer) {
        *self.answer.lock().unwrap() = answer;
    }

    fn visits(&self) -> usize {
        self.visits.load(Ordering::SeqCst)
    }
}

async fn respond(Shared(provider): Shared<Arc<Provider>>, headers: HeaderMap) -> Response {
    provider.visits.fetch_add(1, Ordering::SeqCst);
    *provider.agent.lock().unwrap() = headers.get("user-agent").map(|v| v.to_str().unwrap().to_owned());
    provider.arrived.notify_one();
    let answer = provider.answer.lock().unwrap().clone();
    match answer {
        Answer::Json(value) => axum::Json(value).into_response(),
        Answer::Text(text) => text.into_response(),
        Answer::Status(status) => status.into_response(),
        Answer::Redirect(to) => (StatusCode::FOUND, [(header::LOCATION, to)]).into_response(),
        Answer::Stall => stalled().into_response(),
        Answer::Held(value) => {
            provider.go.notified().await;
            axum::Json(value).into_response()
        }
    }
}

/// A body that yields one piece and never ends.
fn stalled() -> Body {
    let piece = stream::iter([Ok::<_, std::convert::Infallible>("{\"keys\":[")]);
    Body::from_stream(piece.chain(stream::pending()))
}

struct Bench {
    provider: Arc<Provider>,
    clock: Arc<FixedClock>,
    jwks: Arc<Jwks>,
    tasks: TaskTracker,
}

async fn bench(answer: Answer) -> Bench {
    let provider = Arc::new(Provider {
        answer: Mutex::new(answer),
        visits: AtomicUsize::new(0),
        agent: Mutex::new(None),
        arrived: Notify::new(),
        go: Notify::new(),
    });
    let tasks = TaskTracker::new();
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}/keys", listener.local_addr().unwrap());
    let app = Router::new().route("/keys", get(respond)).with_state(provider.clone());
    tasks.spawn(async move { axum::serve(listener, app).await.unwrap() });
    let clock = Arc::new(FixedClock::new(from_ms(1_778_749_956_000)));
    let client = crate::http::client().unwrap();
    let jwks = Arc::new(Jwks::new(&url, client, clock.clone(), tasks.clone()).unwrap());
    Bench { provider, clock, jwks, tasks }
}

fn b64(byte: u8, len: usize) -> String {
    URL_SAFE_NO_PAD.encode(vec![byte; len])
}

fn rsa(kid: &str) -> Value {
    json!({ "kty": "RSA", "kid": kid, "use": "sig", "alg": "RS256", "n": b64(0xc1, 256), "e": "AQAB" })
}

fn ec(kid: &str) -> Value {
    json!({ "kty": "EC", "kid": kid, "crv": "P-256", "x": b64(1, 32), "y": b64(2, 32) })
}

fn ed(kid: &str) -> Value {
    json!({ "kty": "OKP", "kid": kid, "crv": "Ed25519", "key_ops": ["verify"], "x": b64(3, 32) })
}

fn set(keys: Vec<Value>) -> Answer {
    Answer::Json(json!({ "keys": keys }))
}

async fn algorithm(jwks: &Jwks, kid: Option<&str>) -> Option<Algorithm> {
    jwks.key(kid).await.unwrap().map(|key| key.algorithm)
}

async fn failure(jwks: &Jwks, kid: Option<&str>) -> String {
    jwks.key(kid).await.unwrap_err().to_string()
}

#[tokio::test]
async fn each_key_type_has_its_one_algorithm_and_one_fetch_serves_all() {
    let b = bench(set(vec![rsa("r"), ec("e"), ed("d")])).await;
    assert_eq!(b.provider.visits(), 0);
    for (kid, expected) in [("r", Algorithm::RS256), ("e", Algorithm::ES256), ("d", Algorithm::EdDSA)] {
        assert_eq!(algorithm(&b.jwks, Some(kid)).await, Some(expected), "{kid}");
    }
    assert_eq!(b.provider.visits(), 1);
    let agent = b.provider.agent.lock().unwrap().clone().unwrap();
    assert_eq!(agent, format!("threadkeep/{}", env!("CARGO_PKG_VERSION")));
}

#[tokio::test]
async fn only_a_sole_key_serves_a_token_without_kid() {
    let mut unnamed = ec("");
    unnamed.as_object_mut().unwrap().remove("kid");
    let table = [
        ("one named key", vec![rsa("r")], Some(Algorithm::RS256)),
        ("one unnamed key", vec![unnamed.clone()], Some(Algorithm::ES256)),
        (
            "one usable key beside junk",
            vec![json!({ "kty": "oct", "k": "AAAA" }), ed("d")],
            Some(Algorithm::EdDSA),
        ),
        ("the same key twice", vec![ed("d"), ed("d")], Some(Algorithm::EdDSA)),
        ("two keys", vec![rsa("r"), ec("e")], None),
        ("one named, one unnamed", vec![rsa("r"), unnamed.clone()], None),
        ("two unnamed", vec![unnamed.clone(), unnamed], None),
        ("an ambiguous kid", vec![rsa("r"), ec("r")], None),
        ("none", vec![], None),
    ];
    for (name, keys, expected) in table {
        let b = bench(set(keys)).await;
        assert_eq!(algorithm(&b.jwks, None).await, expected, "{name}");
    }
}

#[tokio::test]
async fn junk_beside_good_keys_is_passed_over() {
    let with = |mut key: Value, field: &str, value: Value| {
        key["kid"] = json!("junk");
        key[field] = value;
        key
    };
    let without = |mut key: Value, field: &str| {
        key["kid"] = json!("junk");
        key.as_object_mut().unwrap().remove(field);
        key
    };
    let junk = [
        json!(null),
        json!(7),
        json!("junk"),
        json!([]),
        json!({}),
        json!({ "kid": "junk" }),
        json!({ "kty": "oct", "kid": "junk", "k": b64(9, 32), "alg": "HS256" }),
        json!({ "kty": "oct", "kid": "junk", "k": b64(9, 32), "alg": "RS256" }),
        with(rsa(""), "use", json!("enc")),
        with(rsa(""), "use", json!(null))
            .as_object()
            .map(|o| with(json!(o), "key_ops", json!(["sign"])))
            .unwrap(),
        with(rsa(""), "key_ops", json!([])),
        with(rsa(""), "key_ops", json!("verify")),
        with(rsa(""), "alg", json!("RS512")),
        with(rsa(""), "alg", json!("PS256")),
        with(rsa(""), "alg", json!("RSA-OAEP")),
        with(rsa(""), "alg", json!("HS256")),
        with(rsa(""), "alg", json!("none")),
        with(rsa(""), "n", json!(b64(0xc1, 128))),
        with(rsa(""), "n", json!(b64(0xc1, 1025))),
        with(rsa(""), "n", json!("not base64!")),
        with(rsa(""), "n", json!(12)),
        with(rsa(""), "d", json!("AQAB")),
        with(rsa(""), "kid", json!(12)),
        without(rsa(""), "n"),
        without(rsa(""), "e"),
        without(rsa(""), "kty"),
        with(ec(""), "crv", json!("P-384")),
        with(ec(""), "crv", json!("secp256k1")),
        with(ec(""), "alg", json!("ES384")),
        with(ec(""), "x", json!(b64(1, 31))),
        with(ec(""), "y", json!(b64(1, 33))),
        without(ec(""), "crv"),
        without(ec(""), "y"),
        with(ed(""), "crv", json!("Ed448")),
        with(ed(""), "crv", json!("X25519")),
        with(ed(""), "x", json!(b64(1, 57))),
        with(ed(""), "alg", json!("ES256")),
        with(ed(""), "use", json!("SIG")),
    ];
    for junk in junk {
        let b = bench(set(vec![junk.clone(), rsa("good"), junk.clone()])).await;
        assert_eq!(algorithm(&b.jwks, Some("good")).await, Some(Algorithm::RS256), "{junk}");
        assert_eq!(algorithm(&b.jwks, Some("junk")).await, None, "{junk}");
        assert_eq!(algorithm(&b.jwks, None).await, Some(Algorithm::RS256), "{junk}");
    }
}

#[tokio::test]
async fn a_kid_with_two_keys_serves_neither() {
    let mut other = rsa("k");
    other["n"] = json!(b64(0xc3, 256));
    let repeated_field =
        format!("{{\"keys\":[{{\"kid\":\"k\",\"kid\":\"k2\",{}]}}", &rsa("").to_string()[1..]);
    let table = [
        ("two types", set(vec![rsa("k"), ec("k"), ed("good")])),
        ("two moduli", set(vec![rsa("k"), other.clone(), ed("good")])),
        ("three, the first again last", set(vec![rsa("k"), other, rsa("k"), ed("good")])),
        ("a field twice in one key", Answer::Text(repeated_field)),
    ];
    for (name, answer) in table {
        let b = bench(answer).await;
        assert_eq!(algorithm(&b.jwks, Some("k")).await, None, "{name}");
    }
}

#[tokio::test]
async fn a_kid_is_only_a_map_key() {
    let b = bench(set(vec![rsa("r")])).await;
    let long = "k".repeat(8000);
    for kid in ["", "R", "r ", "../r", "http://127.0.0.1/keys", "r' or '1'='1", "r\0", "*", &long] {
        assert_eq!(algorithm(&b.jwks, Some(kid)).await, None, "{kid}");
    }
    assert_eq!(b.provider.visits(), 1);
}

#[tokio::test]
async fn rotation_is_seen_after_the_cool_down_and_old_keys_go() {
    let b = bench(set(vec![rsa("old")])).await;
    assert!(algorithm(&b.jwks, Some("old")).await.is_some());
    b.provider.say(set(vec![ec("new")]));

    b.clock.advance_ms(30 * SECOND - 1);
    for _ in 0..100 {
        assert_eq!(algorithm(&b.jwks, Some("new")).await, None);
    }
    assert_eq!(b.provider.visits(), 1, "no refetch within the cool-down");

    b.clock.advance_ms(1);
    assert_eq!(algorithm(&b.jwks, Some("new")).await, Some(Algorithm::ES256));
    assert_eq!(algorithm(&b.jwks, Some("old")).await, None);
    assert_eq!(b.provider.visits(), 2);

    for round in 3..6 {
        b.clock.advance_ms(30 * SECOND);
        for n in 0..100 {
            assert_eq!(algorithm(&b.jwks, Some(&format!("forged-{n}"))).await, None);
        }
        assert_eq!(b.provider.visits(), round, "a flood of unknown kids costs one fetch per cool-down");
    }
}

#[tokio::test]
async fn a_known_key_is_refetched_after_ten_minutes() {
    let b = bench(set(vec![rsa("r")])).await;
    assert!(algorithm(&b.jwks, Some("r")).await.is_some());
    b.clock.advance_ms(600 * SECOND - 1);
    assert!(algorithm(&b.jwks, Some("r")).await.is_some());
    assert_eq!(b.provider.visits(), 1);
    b.provider.say(set(vec![ec("e")]));
    b.clock.advance_ms(1);
    assert_eq!(algorithm(&b.jwks, Some("r")).await, None, "a withdrawn key is gone when the set is stale");
    assert_eq!(b.provider.visits(), 2);
}

#[tokio::test]
async fn a_clock_set_back_does_not_freeze_the_set() {
    let b = bench(set(vec![rsa("r")])).await;
    assert!(algorithm(&b.jwks, Some("r")).await.is_some());
    b.provider.say(set(vec![ec("e")]));
    b.clock.advance_ms(-3600 * SECOND);
    assert_eq!(algorithm(&b.jwks, Some("e")).await, Some(Algorithm::ES256));
}

#[tokio::test]
async fn without_any_set_every_failure_is_an_error_and_is_not_repeated_within_the_cool_down() {
    let huge = format!("{{\"keys\":[],\"pad\":\"{}\"}}", "x".repeat(MAX_BYTES));
    let table = [
        ("status 500", Answer::Status(StatusCode::INTERNAL_SERVER_ERROR), "status 500"),
        ("status 204", Answer::Status(StatusCode::NO_CONTENT), "status 204"),
        ("redirect", Answer::Redirect("/keys"), "status 302"),
        ("huge", Answer::Text(huge), "larger than 262144 bytes"),
        ("not JSON", Answer::Text("<html>sign in</html>".into()), "malformed"),
        ("cut short", Answer::Text("{\"keys\":[".into()), "malformed"),
        ("no keys", Answer::Json(json!({})), "malformed"),
        ("keys is no list", Answer::Json(json!({ "keys": {} })), "malformed"),
        ("keys twice", Answer::Text("{\"keys\":[],\"keys\":[]}".into()), "malformed"),
        ("a bare list", Answer::Json(json!([rsa("r")])), "malformed"),
        ("deep nesting", Answer::Text(format!("{{\"keys\":{}", "[".repeat(100_000))), "malformed"),
        ("empty body", Answer::Text(String::new()), "malformed"),
    ];
    for (name, answer, expected) in table {
        let b = bench(answer).await;
        for _ in 0..3 {
            let text = failure(&b.jwks, Some("r")).await;
            assert!(text.contains(expected) && text.contains("THREADKEEP_JWKS_URL"), "{name}: {text}");
        }
        assert_eq!(b.provider.visits(), 1, "{name}");
        b.provider.say(set(vec![rsa("r")]));
        b.clock.advance_ms(30 * SECOND);
        assert_eq!(algorithm(&b.jwks, Some("r")).await, Some(Algorithm::RS256), "{name}: recovers");
    }
}

#[tokio::test]
async fn a_set_of_just_the_greatest_size_is_taken() {
    let shell = json!({ "keys": [rsa("r")], "pad": "" }).to_string();
    let pad = "x".repeat(MAX_BYTES - shell.len());
    let full = json!({ "keys": [rsa("r")], "pad": pad }).to_string();
    assert_eq!(full.len(), MAX_BYTES);
    let b = bench(Answer::Text(full)).await;
    assert!(algorithm(&b.jwks, Some("r")).await.is_some());
}

#[tokio::test]
async fn old_keys_outlive_a_failing_provider() {
    let b = bench(set(vec![rsa("r")])).await;
    assert!(algorithm(&b.jwks, Some("r")).await.is_some());
    b.provider.say(Answer::Status(StatusCode::BAD_GATEWAY));
    for attempt in 2..5 {
        b.clock.advance_ms(3600 * SECOND);
        for _ in 0..10 {
            assert_eq!(algorithm(&b.jwks, Some("r")).await, Some(Algorithm::RS256));
        }
        assert!(failure(&b.jwks, Some("new")).await.contains("status 502"), "whether it exists is not known");
        assert_eq!(b.provider.visits(), attempt);
    }
}

#[tokio::test]
async fn a_provider_that_refuses_connections_is_an_error_without_the_address() {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    drop(listener);
    let clock = Arc::new(FixedClock::new(from_ms(0)));
    let url = format!("http://user:hunter2@{address}/keys?token=hunter2");
    let jwks = Jwks::new(&url, crate::http::client().unwrap(), clock, TaskTracker::new()).unwrap();
    let text = failure(&jwks, None).await;
    assert!(text.contains("refused"), "{text}");
    assert!(!text.contains("hunter2"), "{text}");
}

#[tokio::test]
async fn a_provider_that_never_finishes_is_given_up_on() {
    let b = bench(Answer::Stall).await;
    let jwks = b.jwks.clone();
    let caller = b.tasks.spawn(async move { failure(&jwks, Some("r")).await });
    b.provider.arrived.notified().await;
    // From here on time jumps to the next timer, so what is measured is the time-out itself.
    tokio::time::pause();
    let waiting_since = tokio::time::Instant::now();
    let text = caller.await.unwrap();
    assert!(text.contains("timed out"), "{text}");
    assert!(waiting_since.elapsed() <= Duration::from_millis(5001), "{:?}", waiting_since.elapsed());
}

#[tokio::test]
async fn many_callers_share_one_fetch() {
    let b = bench(Answer::Held(json!({ "keys": [rsa("r")] }))).await;
    let callers: Vec<_> = (0..50)
        .map(|_| {
            let jwks = b.jwks.clone();
            b.tasks.spawn(async move { algorithm(&jwks, Some("r")).await })
        })
        .collect();
    b.provider.arrived.notified().await;
    b.provider.go.notify_one();
    for caller in callers {
        assert_eq!(caller.await.unwrap(), Some(Algorithm::RS256));
    }
    assert_eq!(b.provider.visits(), 1);
}

#[tokio::test]
async fn a_known_key_does_not_wait_for_a_refetch_under_way() {
    let b = bench(set(vec![rsa("r")])).await;
    assert!(algorithm(&b.jwks, Some("r")).await.is_some());
    b.clock.advance_ms(600 * SECOND);
    b.provider.arrived.notified().await;
    b.provider.say(Answer::Held(json!({ "keys": [ec("r")] })));
    let jwks = b.jwks.clone();
    let first = b.tasks.spawn(async move { algorithm(&jwks, Some("r")).await });
    b.provider.arrived.notified().await;
    assert_eq!(algorithm(&b.jwks, Some("r")).await, Some(Algorithm::RS256), "answered while the fetch hangs");
    b.provider.go.notify_one();
    assert_eq!(first.await.unwrap(), Some(Algorithm::ES256));
}

#[tokio::test]
async fn a_caller_who_goes_away_does_not_waste_the_attempt() {
    let b = bench(Answer::Held(json!({ "keys": [rsa("r")] }))).await;
    let jwks = b.jwks.clone();
    let caller = b.tasks.spawn(async move { algorithm(&jwks, Some("r")).await });
    b.provider.arrived.notified().await;
    caller.abort();
    assert!(caller.await.unwrap_err().is_cancelled());
    b.provider.go.notify_one();
    assert_eq!(algorithm(&b.jwks, Some("r")).await, Some(Algorithm::RS256));
    assert_eq!(b.provider.visits(), 1);
}

#[test]
fn only_http_addresses_are_taken() {
    for url in [
        "",
        "keys",
        "/keys",
        "file:///etc/passwd",
        "ftp://host/keys",
        "data:,{}",
        "http://",
        "https://:99999/",
    ] {
        let clock = Arc::new(FixedClock::new(from_ms(0)));
        let made = Jwks::new(url, crate::http::client().unwrap(), clock, TaskTracker::new());
        let text = made.err().map(|error| error.to_string()).unwrap_or_default();
        assert!(text.contains("THREADKEEP_JWKS_URL"), "{url}: {text:?}");
    }
}
