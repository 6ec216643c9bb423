//! What whoever runs the server sees: health, metrics, request ids, common headers and rate limits.

use std::collections::HashSet;

use domain::conversation::{ConversationFilter, ConversationQuery, Seek, Sort};
use reqwest::Method;
use serde_json::json;
use testkit::server::Backend;

use crate::world::{CONVERSATIONS, World, code, creation, id_of, item, stories};

stories!(health_and_readiness, metrics_count_routes, request_ids, no_limit_no_headers);

async fn health_and_readiness(world: World) {
    for (path, status) in [("/healthz", "ok"), ("/readyz", "ready")] {
        let answer = world.send(world.server.request(Method::GET, path)).await;
        assert_eq!((answer.status, &answer.body), (200, &json!({ "status": status })), "{path}");
    }
    let home = world.send(world.server.request(Method::GET, "/")).await;
    assert_eq!(home.status, 200);
    assert!(home.header("content-security-policy").contains("default-src 'none'"));
    assert!(home.text.contains("Threadkeep"), "{}", home.text);
    assert!(!home.text.contains("<script>"), "nothing runs inline: {}", home.text);
}

async fn metrics_count_routes(world: World) {
    let id = id_of(&world.create(json!({ "title": "a title that nobody counts" })).await);
    world.retrieve(&id).await;
    world.get(&format!("{CONVERSATIONS}?filter[query]=unheardof")).await;
    world.get("/a/path/that/nobody/counts").await;
    let odd = Method::from_bytes(b"COUNTEDBYNOBODY").unwrap();
    world.send(world.server.request(odd, "/healthz")).await;
    let answer = world.send(world.server.request(Method::GET, "/metrics")).await;
    assert_eq!(answer.status, 200);
    assert!(answer.header("content-type").starts_with("text/plain"));
    let counted = |labels: &str| {
        let line = format!("threadkeep_http_requests_total{{{labels}}} ");
        let found = answer.text.lines().find_map(|text| text.strip_prefix(&line));
        found.and_then(|count| count.parse::<u64>().ok()).unwrap_or(0)
    };
    assert!(counted(r#"method="POST",route="/v1/chat-conversations",status="201""#) > 0, "{}", answer.text);
    assert!(
        counted(r#"method="GET",route="/v1/chat-conversations/{id}",status="200""#) > 0,
        "{}",
        answer.text
    );
    assert!(counted(r#"method="GET",route="none",status="404""#) > 0, "{}", answer.text);
    assert!(answer.text.contains("threadkeep_http_request_duration_seconds_bucket"), "{}", answer.text);
    assert!(counted(r#"method="other",route="/healthz",status="405""#) > 0, "{}", answer.text);
    for secret in ["BYNOBODY", id.as_str(), &world.workspace.to_string(), "nobody", "unheardof", "ann"] {
        assert!(!answer.text.contains(secret), "{secret} is in {}", answer.text);
    }
}

async fn request_ids(world: World) {
    let with = async |id: &str| {
        let request = world.request(Method::GET, CONVERSATIONS).header("x-request-id", id);
        world.send(request).await.header("x-request-id").to_owned()
    };
    for own in ["abc", "a-b_c.d:1", &"x".repeat(128)] {
        assert_eq!(with(own).await, own);
    }
    for refused in ["", "a b", "a\"b", "<x>", "é", &"x".repeat(129)] {
        let given = with(refused).await;
        assert!(given != refused && given.len() >= 16, "{refused}: {given}");
    }
    let mut seen = HashSet::new();
    for path in [CONVERSATIONS, "/healthz", "/nowhere", "/v1/workspaces"] {
        assert!(seen.insert(world.get(path).await.header("x-request-id").to_owned()), "{path}");
    }
}

async fn no_limit_no_headers(world: World) {
    let answer = world.get(CONVERSATIONS).await;
    assert_eq!((answer.header("ratelimit"), answer.header("ratelimit-policy")), ("", ""));
}

async fn a_caller_has_a_rate(backend: Backend) {
    let Some(world) = World::start(backend, |config| config.limits.requests_per_second = 5).await else {
        return;
    };
    let answer = world.get(&item("44444444-4444-4444-8444-444444444444")).await;
    assert_eq!(answer.header("ratelimit-policy"), "\"requests\";q=5;w=1");
    assert!(answer.header("ratelimit").starts_with("\"requests\";r="), "{}", answer.header("ratelimit"));
    // Ten at once pass: one made the workspace, one was the question above.
    let mut made = 0;
    let refused = loop {
        let answer = world.post(creation(&json!({}))).await;
        match answer.status {
            201 => made += 1,
            _ => break answer,
        }
        assert!(made < 1000, "never refused");
    };
    assert!(made >= 8, "refused after {made}");
    assert_eq!((refused.status, code(&refused)), (429, "rate_limited"), "{}", refused.text);
    assert!(refused.header("retry-after").parse::<u64>().unwrap() >= 1);
    assert_eq!(refused.header("ratelimit"), "\"requests\";r=0;t=1");
    assert_eq!(refused.header("ratelimit-policy"), "\"requests\";q=5;w=1");
    assert_eq!(refused.body["errors"][0]["meta"]["limit"], 5, "{}", refused.text);

    // Nothing was written behind the refusal, and nobody else pays for it.
    let query = ConversationQuery {
        filter: ConversationFilter::default(),
        sort: Sort::default(),
        seek: Seek::Start,
        limit: 1000,
        with_context: false,
    };
    let kept = world.server.store().list_conversations(&world.scope(), &query).await.unwrap();
    assert_eq!(kept.items.len(), made);
    world.other("bob", "acme").await.create(json!({})).await;
    let open = world.send(world.server.request(Method::GET, "/healthz")).await;
    assert_eq!(open.status, 200);
}

#[tokio::test]
async fn a_caller_has_a_rate_on_sqlite() {
    a_caller_has_a_rate(Backend::Sqlite).await;
}

#[tokio::test]
async fn a_caller_has_a_rate_on_postgres() {
    a_caller_has_a_rate(Backend::Postgres).await;
}
