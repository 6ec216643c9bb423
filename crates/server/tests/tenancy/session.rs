//! The browser's session where user tokens are verified: a cookie for a token, and no use of it from
//! another site's pages.

use domain::secret::Secret;
use domain::time::{Clock as _, SystemClock, from_ms};
use reqwest::{Method, RequestBuilder};
use serde_json::{Value, json};
use server::auth::session::Session;
use testkit::server::{Answer, Backend, TestServer, token};

use crate::setup::{Team, ask, delete, document, expect, get, ids};

const CONVERSATIONS: &str = "/v1/chat-conversations";
const SECRET: &str = "the secret of this test's cookies, as long as it should be";

async fn start(backend: Backend) -> Option<TestServer> {
    TestServer::start_with(backend, |config| config.secret = Some(Secret::new(SECRET))).await
}

/// Exchanges a token: the whole `Set-Cookie`, and the part that is sent back.
async fn log_in(server: &TestServer, bearer: &str) -> (String, String) {
    let answer = ask(server.request(Method::POST, "/v1/session").bearer_auth(bearer)).await;
    expect(&answer, 201, "");
    let whole = answer.header("set-cookie").to_owned();
    let pair = whole.split(';').next().unwrap().to_owned();
    (whole, pair)
}

fn with(server: &TestServer, method: Method, path: &str, cookie: &str) -> RequestBuilder {
    server.request(method, path).header("cookie", cookie)
}

async fn a_token_becomes_a_cookie_that_ends_with_it(backend: Backend) {
    let Some(server) = start(backend).await else { return };
    let team = Team::new(&server).await;
    let bearer = token("mate", "acme");
    let (whole, cookie) = log_in(&server, &bearer).await;
    assert!(whole.contains("; HttpOnly") && whole.contains("; SameSite=Lax"), "{whole}");
    let age: i64 = whole.split("Max-Age=").nth(1).unwrap().split(';').next().unwrap().parse().unwrap();
    assert!((3500..=3600).contains(&age), "{whole}");

    let (_, sealed) = cookie.split_once('=').unwrap();
    let secret = Secret::new(SECRET);
    let now = SystemClock.now();
    let session = Session::open(sealed, &secret, now).unwrap();
    let exp = claims(&bearer)["exp"].as_i64().unwrap();
    assert_eq!((session.user.as_str(), session.expires_at.as_second()), ("mate", exp));

    let read = |cookie: &str| ask(with(&server, Method::GET, CONVERSATIONS, cookie));
    expect(&read(&cookie).await, 200, "");
    expect(&read(&format!("other=1; {cookie}; more=2")).await, 200, "");
    let seal = |expires_at| Session { expires_at, ..session.clone() };
    let ended = seal(from_ms(now.as_millisecond() - 1)).seal(&secret);
    expect(&read(&format!("threadkeep_session={ended}")).await, 401, "unauthenticated");
    let other = session.seal(&Secret::new("another server's secret, which is as long"));
    expect(&read(&format!("threadkeep_session={other}")).await, 401, "unauthenticated");

    // Every character counts.
    for at in 0..sealed.len() {
        let mut changed = sealed.to_owned();
        changed.replace_range(at..=at, if &sealed[at..=at] == "A" { "B" } else { "A" });
        expect(&read(&format!("threadkeep_session={changed}")).await, 401, "unauthenticated");
    }
    // The cookie says who; the membership says what.
    expect(&delete(&team.boss, &team.members("/mate")).await, 204, "");
    expect(&read(&cookie).await, 400, "workspace_required");
    let named = format!("{CONVERSATIONS}?workspace={}", team.workspace);
    expect(&ask(with(&server, Method::GET, &named, &cookie)).await, 404, "not_found");
}

fn claims(token: &str) -> Value {
    use base64::Engine as _;
    let part = token.split('.').nth(1).unwrap();
    serde_json::from_slice(&base64::engine::general_purpose::URL_SAFE_NO_PAD.decode(part).unwrap()).unwrap()
}

async fn a_bearer_is_never_overruled_by_a_cookie(backend: Backend) {
    let Some(server) = start(backend).await else { return };
    let team = Team::new(&server).await;
    let (_, cookie) = log_in(&server, &token("boss", "acme")).await;
    let wrong = with(&server, Method::GET, CONVERSATIONS, &cookie).bearer_auth("garbage");
    expect(&ask(wrong).await, 401, "unauthenticated");
    let other = with(&server, Method::GET, "/v1/session", &cookie).bearer_auth(token("mate", "acme"));
    assert_eq!(ask(other).await.body["user"], "mate");
    let (_, key) = team.key(&team.boss, "admin").await;
    expect(&ask(server.request(Method::POST, "/v1/session").bearer_auth(key)).await, 403, "forbidden");
    // With a bearer nothing is ambient, so a page of another origin may call.
    let cross = team.boss.request(Method::GET, CONVERSATIONS).header("origin", "https://app.example");
    expect(&ask(cross).await, 200, "");
}

/// Every unsafe thing that a browser could be made to send with the cookie.
fn unsafe_requests<'a>(
    server: &'a TestServer,
    team: &Team<'_>,
    id: &str,
    cookie: &'a str,
) -> Vec<RequestBuilder> {
    let (json, jsonapi) = ("application/json", "application/vnd.api+json");
    let item = format!("{CONVERSATIONS}/{id}");
    let members = team.members("");
    let new = document(None, json!({ "title": "Planted" }));
    let change = document(Some(id), json!({ "title": "Changed" }));
    let requests: [(Method, &str, &str, Value); 7] = [
        (Method::POST, CONVERSATIONS, jsonapi, new),
        (Method::PATCH, &item, jsonapi, change),
        (Method::DELETE, &item, json, Value::Null),
        (Method::POST, "/v1/api-keys", json, json!({ "name": "planted", "role": "admin" })),
        (Method::POST, &members, json, json!({ "user": "evil", "role": "admin" })),
        (Method::POST, "/v1/workspaces", json, json!({ "name": "Planted" })),
        (Method::DELETE, "/v1/session", json, Value::Null),
    ];
    let build = |(method, path, kind, body): (Method, &str, &str, Value)| {
        let request = with(server, method, path, cookie).header("content-type", kind);
        if body.is_null() { request } else { request.body(body.to_string()) }
    };
    requests.into_iter().map(build).collect()
}

async fn state(team: &Team<'_>) -> Vec<String> {
    let mut state = Vec::new();
    for path in [CONVERSATIONS, "/v1/workspaces", "/v1/api-keys", "/v1/audit?limit=100"] {
        state.push(get(&team.boss, path).await.text);
    }
    state
}

async fn another_sites_page_changes_nothing(backend: Backend) {
    let Some(server) = start(backend).await else { return };
    let team = Team::new(&server).await;
    let id = team.boss.create_conversation(json!({ "title": "Mine" })).await.unwrap();
    let (_, cookie) = log_in(&server, &token("boss", "acme")).await;
    let before = state(&team).await;
    let url = server.url();
    let origins = [
        ("origin", "https://evil.example".to_owned()),
        ("origin", "null".into()),
        ("origin", format!("{url}.evil.example")),
        ("origin", format!("{url}0")),
        ("origin", url.replace("127.0.0.1", "localhost")),
        ("origin", "http://127.0.0.1".into()),
        ("origin", String::new()),
        ("sec-fetch-site", "cross-site".into()),
        ("sec-fetch-site", "same-site".into()),
        ("sec-fetch-site", "none".into()),
        ("x-nothing", "at all".into()),
    ];
    for (name, value) in &origins {
        for request in unsafe_requests(&server, &team, &id, &cookie) {
            let answer: Answer = ask(request.header(*name, value)).await;
            expect(&answer, 403, "cross_origin");
            assert_eq!(answer.header("access-control-allow-origin"), "");
            assert_eq!(answer.header("set-cookie"), "");
        }
    }
    // Two origins are none, whichever comes first.
    for request in unsafe_requests(&server, &team, &id, &cookie) {
        let twice = request.header("origin", url).header("origin", "https://evil.example");
        expect(&ask(twice).await, 403, "cross_origin");
    }
    assert_eq!(state(&team).await, before);

    // A foreign Origin is not saved by what else the request says.
    let request = unsafe_requests(&server, &team, &id, &cookie).remove(0);
    let both = request.header("origin", "https://evil.example").header("sec-fetch-site", "same-origin");
    expect(&ask(both).await, 403, "cross_origin");
    // No preflight is answered.
    let preflight = with(&server, Method::OPTIONS, CONVERSATIONS, &cookie)
        .header("origin", "https://evil.example")
        .header("access-control-request-method", "POST");
    let answer = ask(preflight).await;
    assert!(answer.status >= 400 && answer.header("access-control-allow-origin").is_empty(), "{answer:?}");

    // From our own pages all of it works.
    for request in unsafe_requests(&server, &team, &id, &cookie) {
        let answer = ask(request.header("origin", url)).await;
        assert!((200..300).contains(&answer.status), "{answer:?}");
    }
}

/// A form can be sent across sites without asking first, but never as JSON.
async fn a_simple_request_is_no_write(backend: Backend) {
    let Some(server) = start(backend).await else { return };
    let team = Team::new(&server).await;
    let (_, cookie) = log_in(&server, &token("boss", "acme")).await;
    let new = document(None, json!({ "title": "Planted" })).to_string();
    let workspace = json!({ "name": "Planted" }).to_string();
    for kind in [
        "text/plain",
        "text/plain; application/json",
        "application/x-www-form-urlencoded",
        "multipart/form-data",
        "",
    ] {
        for (path, body) in [(CONVERSATIONS, &new), ("/v1/workspaces", &workspace)] {
            let own = with(&server, Method::POST, path, &cookie).header("origin", server.url());
            let answer = ask(own.header("content-type", kind).body(body.clone())).await;
            expect(&answer, 415, "unsupported_media_type");
            let cross = with(&server, Method::POST, path, &cookie).header("origin", "https://evil.example");
            let answer = ask(cross.header("content-type", kind).body(body.clone())).await;
            expect(&answer, 403, "cross_origin");
        }
    }
    assert!(ids(&get(&team.boss, CONVERSATIONS).await).is_empty());
    assert_eq!(ids(&get(&team.boss, "/v1/workspaces").await), [&team.workspace]);
}

async fn behind_https_the_cookie_is_secure_and_the_public_origin_is_ours(backend: Backend) {
    let change = |config: &mut server::config::Config| {
        config.public_url = Some("https://threads.example".into());
    };
    let Some(server) = TestServer::start_with(backend, change).await else { return };
    let (whole, cookie) = log_in(&server, &token("boss", "acme")).await;
    assert!(whole.contains("; Secure"), "{whole}");
    for (origin, status) in [
        ("https://threads.example", 201),
        ("http://threads.example", 403),
        ("https://threads.example.evil.example", 403),
        ("https://threads.example:8443", 403),
    ] {
        let request = with(&server, Method::POST, "/v1/workspaces", &cookie).header("origin", origin);
        let request = request.header("content-type", "application/json").body(r#"{"name":"x"}"#);
        assert_eq!(ask(request).await.status, status, "{origin}");
    }
}

on_both!(
    a_token_becomes_a_cookie_that_ends_with_it,
    a_bearer_is_never_overruled_by_a_cookie,
    another_sites_page_changes_nothing,
    a_simple_request_is_no_write,
    behind_https_the_cookie_is_secure_and_the_public_origin_is_ours,
);
