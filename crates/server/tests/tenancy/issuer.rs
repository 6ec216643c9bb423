//! An identity provider on loopback: keys made for the run, a JWK set over HTTP, and a switch to take it down.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use aws_lc_rs::rand::SystemRandom;
use aws_lc_rs::rsa::KeySize;
use aws_lc_rs::signature::{
    ECDSA_P256_SHA256_FIXED_SIGNING, EcdsaKeyPair, Ed25519KeyPair, KeyPair, RSA_PKCS1_SHA256, RsaKeyPair,
    RsaPublicKeyComponents,
};
use axum::Router;
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use domain::time::{Clock as _, SystemClock};
use serde_json::{Value, json};
use tokio::net::TcpListener;

pub fn b64(bytes: impl AsRef<[u8]>) -> String {
    URL_SAFE_NO_PAD.encode(bytes)
}

/// Claims that are in order.
pub fn claims(user: &str) -> Value {
    json!({ "sub": user, "org_id": "acme", "exp": SystemClock.now().as_second() + 600 })
}

pub struct Issuer {
    rsa: RsaKeyPair,
    ec: EcdsaKeyPair,
    ed: Ed25519KeyPair,
    pub url: String,
    pub down: Arc<AtomicBool>,
    pub visits: Arc<AtomicUsize>,
}

impl Issuer {
    pub async fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let issuer = Self {
            rsa: RsaKeyPair::generate(KeySize::Rsa2048).unwrap(),
            ec: EcdsaKeyPair::generate(&ECDSA_P256_SHA256_FIXED_SIGNING).unwrap(),
            ed: Ed25519KeyPair::generate().unwrap(),
            url: format!("http://{}/jwks.json", listener.local_addr().unwrap()),
            down: Arc::default(),
            visits: Arc::default(),
        };
        let (set, down, visits) = (issuer.set(), Arc::clone(&issuer.down), Arc::clone(&issuer.visits));
        let answer = async move || -> Response {
            visits.fetch_add(1, Ordering::SeqCst);
            if down.load(Ordering::SeqCst) {
                return StatusCode::INTERNAL_SERVER_ERROR.into_response();
            }
            axum::Json(set).into_response()
        };
        let router = Router::new().route("/jwks.json", get(answer));
        #[expect(clippy::disallowed_methods, reason = "it serves until the test ends")]
        tokio::spawn(async move { axum::serve(listener, router).await });
        issuer
    }

    fn set(&self) -> Value {
        let rsa = RsaPublicKeyComponents::<Vec<u8>>::from(self.rsa.public_key());
        let point = self.ec.public_key().as_ref();
        json!({ "keys": [
            { "kty": "RSA", "kid": "RS256", "use": "sig", "n": b64(rsa.n), "e": b64(rsa.e) },
            { "kty": "EC", "kid": "ES256", "crv": "P-256", "x": b64(&point[1..33]), "y": b64(&point[33..]) },
            { "kty": "OKP", "kid": "EdDSA", "crv": "Ed25519", "x": b64(self.ed.public_key()) },
        ] })
    }

    pub fn sign(&self, header: &Value, claims: &Value, alg: &str) -> String {
        let message = format!("{}.{}", b64(header.to_string()), b64(claims.to_string()));
        let (bytes, random) = (message.as_bytes(), SystemRandom::new());
        let signature = match alg {
            "RS256" => {
                let mut signature = vec![0; self.rsa.public_modulus_len()];
                self.rsa.sign(&RSA_PKCS1_SHA256, &random, bytes, &mut signature).unwrap();
                signature
            }
            "ES256" => self.ec.sign(&random, bytes).unwrap().as_ref().to_vec(),
            _ => self.ed.sign(bytes).as_ref().to_vec(),
        };
        format!("{message}.{}", b64(signature))
    }

    /// A good token of this algorithm.
    pub fn token(&self, alg: &str, user: &str) -> String {
        self.sign(&json!({ "alg": alg, "kid": alg }), &claims(user), alg)
    }
}
