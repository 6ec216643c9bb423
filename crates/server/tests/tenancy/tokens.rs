//! User tokens as the server meets them: good ones let their user in, others are a 401 in the path's own
//! error form, and a provider that cannot be asked is a 503.

use std::sync::atomic::Ordering;

use domain::time::{Clock as _, SystemClock};
use jsonwebtoken::{Algorithm, EncodingKey, Header, encode};
use serde_json::{Value, json};
use testkit::server::{Answer, Backend, JWT_SECRET, TestServer, token};

use crate::issuer::{Issuer, b64, claims};
use crate::setup::{expect, get, post};

const CONVERSATIONS: &str = "/v1/chat-conversations";

fn hs256(claims: &Value) -> String {
    signed(Algorithm::HS256, claims, JWT_SECRET)
}

fn signed(algorithm: Algorithm, claims: &Value, secret: &str) -> String {
    encode(&Header::new(algorithm), claims, &EncodingKey::from_secret(secret.as_bytes())).unwrap()
}

fn claim(name: &str, value: Value) -> Value {
    let mut claims = claims("ann");
    claims[name] = value;
    claims
}

fn without(name: &str) -> Value {
    let mut claims = claims("ann");
    claims.as_object_mut().unwrap().remove(name);
    claims
}

/// The refusal, as a problem and as a JSON:API document; which part was wrong is said, the token is not.
async fn refused(server: &TestServer, name: &str, bearer: &str) {
    let caller = server.caller(bearer);
    let plain: Answer = get(&caller, "/v1/workspaces").await;
    assert_eq!((plain.status, &plain.body["status"]), (401, &json!(401)), "{name}: {plain:?}");
    assert_eq!(plain.header("content-type"), "application/problem+json", "{name}");
    let document = get(&caller, CONVERSATIONS).await;
    assert_eq!(document.header("content-type"), "application/vnd.api+json", "{name}");
    assert_eq!(document.body["errors"][0]["status"], "401", "{name}: {document:?}");
    for answer in [plain, document] {
        expect(&answer, 401, "unauthenticated");
        assert_eq!(answer.header("www-authenticate"), "Bearer", "{name}");
        assert!(!answer.text.contains(bearer), "{name}: {answer:?}");
    }
    expect(&post(&caller, "/v1/workspaces", json!({ "name": "x" })).await, 401, "unauthenticated");
}

async fn forged_and_broken_tokens_are_refused(backend: Backend) {
    let Some(server) = TestServer::start(backend).await else { return };
    let good = hs256(&claims("ann"));
    expect(&get(&server.caller(&good), "/v1/session").await, 200, "");
    let now = SystemClock.now().as_second();
    let (message, signature) = good.rsplit_once('.').unwrap();
    let (header, payload) = message.split_once('.').unwrap();
    let none = format!("{}.{payload}.", b64(r#"{"alg":"none"}"#));
    let none_signed = format!("{}.{payload}.{signature}", b64(r#"{"alg":"none"}"#));
    let admin = b64(claim("sub", json!("admin")).to_string());
    for (name, bearer) in [
        ("expired", hs256(&claim("exp", json!(now - 120)))),
        ("just expired", hs256(&claim("exp", json!(now - 1)))),
        ("not yet", hs256(&claim("nbf", json!(now + 600)))),
        ("exp as text", hs256(&claim("exp", json!((now + 600).to_string())))),
        ("no exp", hs256(&without("exp"))),
        ("no sub", hs256(&without("sub"))),
        ("an empty sub", hs256(&claim("sub", json!("")))),
        ("a sub with a control character", hs256(&claim("sub", json!("a\u{1}")))),
        ("no org_id", hs256(&without("org_id"))),
        ("an empty org_id", hs256(&claim("org_id", json!("")))),
        ("HS384", signed(Algorithm::HS384, &claims("ann"), JWT_SECRET)),
        (
            "another secret",
            signed(Algorithm::HS256, &claims("ann"), "another secret, as long as the right one"),
        ),
        ("none", none),
        ("none with a signature", none_signed),
        ("another payload", format!("{header}.{admin}.{signature}")),
        ("no signature", format!("{message}.")),
        ("two parts", message.to_owned()),
        ("four parts", format!("{good}.x")),
        ("too long", format!("{good}{}", "A".repeat(8192))),
    ] {
        refused(&server, name, &bearer).await;
    }
    assert_eq!(get(&server.caller(&good), "/v1/workspaces").await.body["data"], json!([]));
}

async fn the_settings_are_held_against_the_token(backend: Backend) {
    let Some(server) = TestServer::start_with(backend, |config| {
        config.auth.default_org = Some("the default".into());
        config.auth.audience = Some("threadkeep".into());
        config.auth.issuer = Some("https://issuer.example/".into());
    })
    .await
    else {
        return;
    };
    let full = |org: Option<&str>, aud: Value, iss: &str| {
        let mut claims = without("org_id");
        claims["aud"] = aud;
        claims["iss"] = iss.into();
        if let Some(org) = org {
            claims["org_id"] = org.into();
        }
        hs256(&claims)
    };
    let issuer = "https://issuer.example/";
    for (bearer, org) in [
        (full(None, json!("threadkeep"), issuer), "the default"),
        (full(Some("acme"), json!(["other", "threadkeep"]), issuer), "acme"),
    ] {
        assert_eq!(get(&server.caller(&bearer), "/v1/session").await.body["org_id"], org);
        let made = post(&server.caller(&bearer), "/v1/workspaces", json!({ "name": "x" })).await;
        assert_eq!(made.body["org_id"], org);
    }
    refused(&server, "no audience", &hs256(&claims("ann"))).await;
    refused(&server, "another audience", &full(None, json!("other"), issuer)).await;
    refused(&server, "another issuer", &full(None, json!("threadkeep"), "https://issuer.example")).await;
    let mut empty = claims("ann");
    empty["org_id"] = json!(null);
    (empty["aud"], empty["iss"]) = (json!("threadkeep"), json!(issuer));
    refused(&server, "an org_id that is null is not a missing one", &hs256(&empty)).await;
}

async fn with_jwks(backend: Backend, url: &str) -> Option<TestServer> {
    let url = url.to_owned();
    TestServer::start_with(backend, |config| {
        config.auth.jwt_secret = None;
        config.auth.jwks_url = Some(url);
    })
    .await
}

async fn a_providers_keys_let_its_users_in(backend: Backend) {
    let issuer = Issuer::start().await;
    let Some(server) = with_jwks(backend, &issuer.url).await else { return };
    for alg in ["RS256", "ES256", "EdDSA"] {
        let ann = server.caller(&issuer.token(alg, alg)).create_workspace(alg).await;
        assert!(ann.is_ok(), "{alg}: {ann:?}");
    }
    assert_eq!(issuer.visits.load(Ordering::SeqCst), 1);

    let stranger = Issuer::start().await;
    let head = |alg: &str, kid: &str| json!({ "alg": alg, "kid": kid });
    for alg in ["RS256", "ES256", "EdDSA"] {
        refused(&server, "another provider's key", &stranger.token(alg, "ann")).await;
        let expired = claim("exp", json!(SystemClock.now().as_second() - 120));
        refused(&server, "expired", &issuer.sign(&head(alg, alg), &expired, alg)).await;
        let unknown = issuer.sign(&head(alg, "unknown"), &claims("ann"), alg);
        refused(&server, "an unknown kid", &unknown).await;
    }
    for (alg, kid) in [("RS256", "ES256"), ("ES256", "RS256"), ("EdDSA", "ES256"), ("HS256", "RS256")] {
        let crossed = issuer.sign(&head(alg, kid), &claims("ann"), alg);
        refused(&server, "one algorithm's token under another's key", &crossed).await;
    }
    refused(&server, "HS256 where no secret is set", &token("ann", "acme")).await;
    let nameless = issuer.sign(&json!({ "alg": "ES256" }), &claims("ann"), "ES256");
    refused(&server, "no kid among several keys", &nameless).await;
    // Unknown kids do not make us ask again and again.
    assert_eq!(issuer.visits.load(Ordering::SeqCst), 1);
    // Keys that are known outlive the provider.
    issuer.down.store(true, Ordering::SeqCst);
    expect(&get(&server.caller(&issuer.token("ES256", "ES256")), CONVERSATIONS).await, 200, "");
}

async fn a_provider_that_is_down_is_a_503(backend: Backend) {
    let issuer = Issuer::start().await;
    issuer.down.store(true, Ordering::SeqCst);
    let Some(server) = with_jwks(backend, &issuer.url).await else { return };
    let caller = server.caller(&issuer.token("RS256", "ann"));
    for path in [CONVERSATIONS, "/v1/workspaces"] {
        let answer = get(&caller, path).await;
        expect(&answer, 503, "unavailable");
        assert!(answer.header("retry-after").parse::<u32>().unwrap() > 0, "{answer:?}");
        assert_eq!(answer.header("www-authenticate"), "");
    }
    // What needs no provider is told at once.
    refused(&server, "none", &format!("{}.e30.", b64(r#"{"alg":"none"}"#))).await;
    expect(&get(&server.caller("tk_garbage"), CONVERSATIONS).await, 401, "unauthenticated");
    assert_eq!(issuer.visits.load(Ordering::SeqCst), 1);
}

on_both!(
    forged_and_broken_tokens_are_refused,
    the_settings_are_held_against_the_token,
    a_providers_keys_let_its_users_in,
    a_provider_that_is_down_is_a_503,
);
