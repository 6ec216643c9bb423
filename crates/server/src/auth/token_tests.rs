//! Genuine tokens of all four algorithms pass; every forged or broken one is refused for the reason it
//! was broken. Keys are made when the tests run; the JWK set comes from a real server on loopback.

use std::sync::Arc;

use axum::{Json, Router, routing::get};
use domain::time::FixedClock;
use serde_json::json;
use tokio_util::task::TaskTracker;

use super::*;
use forgeries::{FORGED, FORGED_KID, Forge};
use mint::{AUDIENCE, ISSUER, Mint, NOW, SECRET, issuer, stranger};

#[path = "token_forgeries.rs"]
mod forgeries;
#[path = "token_mint.rs"]
mod mint;

const ALGORITHMS: [&str; 4] = ["HS256", "RS256", "ES256", "EdDSA"];

async fn jwks(keys: Vec<Value>, clock: Arc<FixedClock>) -> Jwks {
    let tasks = TaskTracker::new();
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}/keys", listener.local_addr().unwrap());
    let set = json!({ "keys": keys });
    let app = Router::new().route("/keys", get(move || std::future::ready(Json(set.clone()))));
    tasks.spawn(async move { axum::serve(listener, app).await.unwrap() });
    Jwks::new(&url, upstream::http::client().unwrap(), clock, tasks).unwrap()
}

fn clock() -> Arc<FixedClock> {
    Arc::new(FixedClock::new(from_ms(NOW * 1000)))
}

fn rules(hs256: Option<&str>, jwks: Option<Jwks>) -> TokenRules {
    TokenRules {
        hs256: hs256.map(Secret::new),
        jwks,
        audience: Some(AUDIENCE.to_owned()),
        issuer: Some(ISSUER.to_owned()),
        default_org: None,
    }
}

fn published() -> Vec<Value> {
    ALGORITHMS[1..].iter().map(|alg| issuer().jwk(alg)).collect()
}

/// The verifiers that know the key of this algorithm: alone, and beside the other kind.
async fn verifiers(alg: &str, clock: &Arc<FixedClock>) -> [TokenRules; 2] {
    let both = rules(Some(SECRET), Some(jwks(published(), clock.clone()).await));
    let alone = match alg {
        "HS256" => rules(Some(SECRET), None),
        _ => rules(None, Some(jwks(published(), clock.clone()).await)),
    };
    [alone, both]
}

async fn assert_refused(alg: &'static str, table: &[(&str, Forge, &str)]) {
    let clock = clock();
    let mint = Mint { alg };
    for rules in verifiers(alg, &clock).await {
        for (name, forge, expected) in table {
            match rules.verify(&forge(&mint), &*clock).await {
                Err(Invalid(reason)) => assert!(reason.contains(expected), "{alg}, {name}: {reason}"),
                other => panic!("{alg}, {name}: {other:?}"),
            }
        }
        assert!(rules.verify(&mint.good(), &*clock).await.is_ok(), "{alg}: the verifier still works");
    }
}

#[tokio::test]
async fn every_forged_token_is_refused() {
    assert!(FORGED.len() >= 60);
    for alg in ALGORITHMS {
        assert_refused(alg, FORGED).await;
    }
}

#[tokio::test]
async fn every_forged_kid_is_refused() {
    for alg in &ALGORITHMS[1..] {
        assert_refused(alg, FORGED_KID).await;
    }
}

/// Base64 skips some lengths, so header and claims are both padded until it fits to the byte.
fn of_greatest_length(mint: &Mint) -> String {
    let pad = (MAX_TOKEN_BYTES - mint.good().len()) * 3 / 4 - 24;
    let padded = |typ: usize, n: usize| {
        let (mut header, mut claims) = (mint.header(), mint.claims());
        header["typ"] = json!("J".repeat(typ));
        claims["pad"] = json!("x".repeat(n));
        mint.raw(header.to_string(), claims.to_string())
    };
    let mut tries = (1..4).flat_map(|typ| (pad..pad + 32).map(move |n| (typ, n)));
    tries.find_map(|(typ, n)| Some(padded(typ, n)).filter(|token| token.len() == MAX_TOKEN_BYTES)).unwrap()
}

#[tokio::test]
async fn genuine_tokens_of_all_four_algorithms_are_accepted() {
    let accepted: &[(&str, Forge, i64)] = &[
        ("plain", |m| m.good(), NOW + 600),
        (
            "no iat, no typ",
            |m| {
                m.raw(json!({ "alg": m.alg, "kid": m.alg }).to_string(), json!({ "sub": "user-1", "org_id": "org-1", "aud": AUDIENCE, "iss": ISSUER, "exp": NOW + 600 }).to_string())
            },
            NOW + 600,
        ),
        ("aud a list", |m| m.claim("aud", json!(["other", AUDIENCE])), NOW + 600),
        ("exp a second from now", |m| m.claim("exp", json!(NOW + 1)), NOW + 1),
        ("exp a whole float", |m| m.claim("exp", json!((NOW + 600) as f64)), NOW + 600),
        ("nbf at the leeway", |m| m.claim("nbf", json!(NOW + 30)), NOW + 600),
        ("claims we do not know", |m| m.text(r#""roles":["admin"],"x":{"y":null}"#), NOW + 600),
        (
            "foreign key material, not read",
            |m| {
                m.raw(
                    json!({ "alg": m.alg, "kid": m.alg, "jku": 1, "jwk": "x", "x5c": {}, "x5u": null })
                        .to_string(),
                    m.claims().to_string(),
                )
            },
            NOW + 600,
        ),
        ("just 8 KiB", of_greatest_length, NOW + 600),
    ];
    let clock = clock();
    for alg in ALGORITHMS {
        for rules in verifiers(alg, &clock).await {
            for (name, make, expires) in accepted {
                let expected = UserToken {
                    user: "user-1".into(),
                    org: "org-1".into(),
                    expires_at: from_ms(expires * 1000),
                };
                assert_eq!(rules.verify(&make(&Mint { alg }), &*clock).await, Ok(expected), "{alg}, {name}");
            }
        }
    }
}

#[tokio::test]
async fn a_token_of_a_kind_that_is_not_configured_is_refused() {
    let clock = clock();
    let nothing = rules(None, None);
    let secret = rules(Some(SECRET), None);
    let set = rules(None, Some(jwks(published(), clock.clone()).await));
    for alg in ALGORITHMS {
        let token = Mint { alg }.good();
        let refused = Err(Invalid("its alg is not accepted here"));
        assert_eq!(nothing.verify(&token, &*clock).await, refused, "{alg}");
        let not_configured = if alg == "HS256" { &set } else { &secret };
        assert_eq!(not_configured.verify(&token, &*clock).await, refused, "{alg}");
    }
}

#[tokio::test]
async fn names_of_the_greatest_length_and_an_exp_beyond_the_calendar_are_taken() {
    let clock = clock();
    let rules = rules(Some(SECRET), None);
    let mint = Mint { alg: "HS256" };
    let name = "é".repeat(255);
    assert_eq!(rules.verify(&mint.claim("sub", json!(name)), &*clock).await.unwrap().user, name);
    assert_eq!(rules.verify(&mint.claim("org_id", json!(name)), &*clock).await.unwrap().org, name);
    for exp in [json!(i64::MAX), json!(u64::MAX), json!(f64::MAX)] {
        let token = rules.verify(&mint.claim("exp", exp.clone()), &*clock).await.unwrap();
        assert_eq!(token.expires_at, Timestamp::MAX, "{exp}");
    }
}

#[tokio::test]
async fn without_audience_and_issuer_any_is_accepted_and_the_default_org_fills_in() {
    let clock = clock();
    let mut rules = rules(Some(SECRET), None);
    (rules.audience, rules.issuer, rules.default_org) = (None, None, Some("home".to_owned()));
    let mint = Mint { alg: "HS256" };
    for token in [mint.good(), mint.claim("aud", json!("other")), mint.without("aud"), mint.without("iss")] {
        assert_eq!(rules.verify(&token, &*clock).await.unwrap().org, "org-1", "the token's own org wins");
    }
    assert_eq!(rules.verify(&mint.without("org_id"), &*clock).await.unwrap().org, "home");
    for org in [json!(""), json!(null), json!(1)] {
        assert!(rules.verify(&mint.claim("org_id", org.clone()), &*clock).await.is_err(), "{org}");
    }
}

#[tokio::test]
async fn a_sole_key_serves_tokens_without_kid() {
    let clock = clock();
    for alg in &ALGORITHMS[1..] {
        let rules = rules(None, Some(jwks(vec![issuer().jwk(alg)], clock.clone()).await));
        let mint = Mint { alg };
        let token = mint.raw(json!({ "alg": alg }).to_string(), mint.claims().to_string());
        assert!(rules.verify(&token, &*clock).await.is_ok(), "{alg}");
        for kid in [json!(null), json!(1), json!([])] {
            let refused = rules.verify(&mint.head("kid", kid.clone()), &*clock).await;
            assert_eq!(refused, Err(Invalid("kid in its header is not a string")), "{alg}, {kid}");
        }
        let forged = mint.signed_by(json!({ "alg": alg }), |text| stranger().sign(alg, text));
        assert_eq!(rules.verify(&forged, &*clock).await, Err(Invalid("its signature is wrong")), "{alg}");
    }
}

#[tokio::test]
async fn without_the_issuers_keys_a_token_is_neither_right_nor_wrong() {
    let clock = clock();
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}/keys", listener.local_addr().unwrap());
    drop(listener);
    let jwks = Jwks::new(&url, upstream::http::client().unwrap(), clock.clone(), TaskTracker::new()).unwrap();
    let rules = rules(None, Some(jwks));
    for alg in &ALGORITHMS[1..] {
        assert_eq!(rules.verify(&Mint { alg }.good(), &*clock).await, Err(TokenFault::Unavailable), "{alg}");
    }
    let broken = Mint { alg: "RS256" }.head("crit", json!([]));
    assert!(matches!(rules.verify(&broken, &*clock).await, Err(Invalid(_))));
}

#[tokio::test]
async fn a_reason_never_repeats_the_token() {
    let clock = clock();
    let rules = rules(Some(SECRET), None);
    let token = Mint { alg: "HS256" }.claim("sub", json!("canary\n"));
    let text = rules.verify(&token, &*clock).await.unwrap_err().to_string();
    assert!(text.contains("sub") && !text.contains("canary"), "{text}");
}
