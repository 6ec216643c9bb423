//! The keys of an identity provider: a JWK set fetched from the address the operator configured, kept
//! for ten minutes and looked up by `kid`. In comes a token's `kid`; out goes one public key together
//! with the one algorithm it may be used with.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use domain::time::Clock;
use jiff::Timestamp;
use jsonwebtoken::{Algorithm, DecodingKey};
use reqwest::{StatusCode, Url};
use serde::Deserialize;
use serde_json::value::RawValue;
use tokio::sync::OwnedMutexGuard;
use tokio_util::task::TaskTracker;

use crate::error::UpstreamError;

const WHAT: &str = "the JWK set (THREADKEEP_JWKS_URL)";
const FETCH_TIMEOUT: Duration = Duration::from_secs(5);
const MAX_BYTES: usize = 256 * 1024;
const FRESH_MS: i64 = 10 * 60 * 1000;
const COOL_DOWN_MS: i64 = 30 * 1000;

/// A public key and the only algorithm a token may name to be verified with it.
#[derive(Debug)]
pub struct VerifyKey {
    pub key: DecodingKey,
    pub algorithm: Algorithm,
}

pub struct Jwks {
    source: Arc<Source>,
    tasks: TaskTracker,
}

struct Source {
    client: reqwest::Client,
    url: Url,
    clock: Arc<dyn Clock>,
    state: Mutex<State>,
    /// Held by the one fetch under way.
    gate: Arc<tokio::sync::Mutex<()>>,
}

#[derive(Default)]
struct State {
    keys: Option<KeySet>,
    fetched_at: Option<Timestamp>,
    attempted_at: Option<Timestamp>,
    /// Why the last attempt failed; none when it succeeded.
    failure: Option<String>,
}

#[derive(Debug, Default)]
struct KeySet {
    by_kid: HashMap<String, Arc<VerifyKey>>,
    /// The set's only key, which may serve a token without a `kid`.
    sole: Option<Arc<VerifyKey>>,
}

impl Jwks {
    /// Nothing is fetched before the first token needs a key. Fetches run on `tasks`, so that a caller
    /// who goes away cannot waste the one attempt per cool-down.
    pub fn new(
        url: &str,
        client: reqwest::Client,
        clock: Arc<dyn Clock>,
        tasks: TaskTracker,
    ) -> Result<Self, UpstreamError> {
        let bad = |reason: String| UpstreamError::Url { setting: "THREADKEEP_JWKS_URL", reason };
        let url = Url::parse(url).map_err(|error| bad(error.to_string()))?;
        if !matches!(url.scheme(), "http" | "https") {
            return Err(bad(format!("its scheme is {}", url.scheme())));
        }
        let source = Source { client, url, clock, state: Mutex::default(), gate: Arc::default() };
        Ok(Self { source: Arc::new(source), tasks })
    }

    /// The key for a token's `kid`: `Ok(None)` when the provider has no such key, an error when that
    /// cannot be said because the set could not be fetched. Known keys outlive a failing provider.
    pub async fn key(&self, kid: Option<&str>) -> Result<Option<Arc<VerifyKey>>, UpstreamError> {
        let (known, fresh) = self.source.look_up(kid);
        if known.is_some() && fresh {
            return Ok(known);
        }
        let gate = self.source.gate.clone();
        // Whoever holds a known key does not wait for another caller's refetch; an unknown kid must.
        let gate = if known.is_some() { gate.try_lock_owned().ok() } else { Some(gate.lock_owned().await) };
        if let Some(gate) = gate
            && self.source.claim_attempt()
        {
            // A panic in the task leaves the failure that `claim_attempt` wrote.
            let _ = self.tasks.spawn(self.source.clone().refetch(gate)).await;
        }
        let state = self.source.state();
        match (state.find(kid), &state.failure) {
            (Some(key), _) => Ok(Some(key)),
            (None, None) => Ok(None),
            (None, Some(reason)) => Err(UpstreamError::Unavailable { what: WHAT, reason: reason.clone() }),
        }
    }
}

impl Source {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn look_up(&self, kid: Option<&str>) -> (Option<Arc<VerifyKey>>, bool) {
        let now = self.clock.now();
        let state = self.state();
        (state.find(kid), within(state.fetched_at, FRESH_MS, now))
    }

    /// True at most once per cool-down, whatever came of the last attempt.
    fn claim_attempt(&self) -> bool {
        let now = self.clock.now();
        let mut state = self.state();
        if within(state.attempted_at, COOL_DOWN_MS, now) {
            return false;
        }
        state.attempted_at = Some(now);
        state.failure = Some("the fetch was broken off".to_owned());
        true
    }

    async fn refetch(self: Arc<Self>, _gate: OwnedMutexGuard<()>) {
        let fetched = self.fetch().await;
        let now = self.clock.now();
        let mut state = self.state();
        match fetched {
            Ok(keys) => {
                state.keys = Some(keys);
                state.fetched_at = Some(now);
                state.failure = None;
            }
            Err(error) => {
                tracing::warn!(%error, kept = state.keys.is_some(), "the JWK set could not be refreshed");
                state.failure = Some(error.to_string());
            }
        }
    }

    async fn fetch(&self) -> Result<KeySet, UpstreamError> {
        let request = self.client.get(self.url.clone()).timeout(FETCH_TIMEOUT);
        let mut response = request.send().await.map_err(|error| UpstreamError::request(WHAT, error))?;
        if response.status() != StatusCode::OK {
            return Err(UpstreamError::Status { what: WHAT, status: response.status().as_u16() });
        }
        let mut body = Vec::new();
        while let Some(chunk) = response.chunk().await.map_err(|error| UpstreamError::request(WHAT, error))? {
            if body.len() + chunk.len() > MAX_BYTES {
                return Err(UpstreamError::TooLarge { what: WHAT, limit: MAX_BYTES });
            }
            body.extend_from_slice(&chunk);
        }
        KeySet::parse(&body)
    }
}

impl State {
    fn find(&self, kid: Option<&str>) -> Option<Arc<VerifyKey>> {
        let keys = self.keys.as_ref()?;
        match kid {
            Some(kid) => keys.by_kid.get(kid).cloned(),
            None => keys.sole.clone(),
        }
    }
}

/// A moment in the future (the clock was set back) counts as long ago.
fn within(then: Option<Timestamp>, ms: i64, now: Timestamp) -> bool {
    then.is_some_and(|then| (0..ms).contains(&(now.as_millisecond() - then.as_millisecond())))
}

#[derive(Deserialize)]
struct Document<'a> {
    #[serde(borrow)]
    keys: Vec<&'a RawValue>,
}

#[derive(Deserialize, PartialEq)]
struct Jwk {
    kty: String,
    kid: Option<String>,
    #[serde(rename = "use")]
    purpose: Option<String>,
    key_ops: Option<Vec<String>>,
    alg: Option<String>,
    crv: Option<String>,
    n: Option<String>,
    e: Option<String>,
    x: Option<String>,
    y: Option<String>,
    d: Option<String>,
}

impl KeySet {
    /// Entries that cannot verify one of our signatures are passed over, so that a provider may
    /// publish other keys in the same set.
    fn parse(body: &[u8]) -> Result<Self, UpstreamError> {
        let document: Document<'_> = serde_json::from_slice(body)
            .map_err(|error| UpstreamError::Malformed { what: WHAT, reason: error.to_string() })?;
        let entries = document.keys.len();
        let mut nameless = Vec::new();
        let mut named: HashMap<String, Option<(Jwk, Arc<VerifyKey>)>> = HashMap::new();
        for raw in document.keys {
            let Ok(jwk) = serde_json::from_str::<Jwk>(raw.get()) else { continue };
            let Some(key) = jwk.verify_key().map(Arc::new) else { continue };
            match jwk.kid.clone() {
                None => nameless.push(key),
                Some(kid) => match named.entry(kid) {
                    Entry::Vacant(free) => drop(free.insert(Some((jwk, key)))),
                    // Two different keys under one kid: neither serves, for the token could mean either.
                    Entry::Occupied(mut taken) => {
                        if taken.get().as_ref().is_none_or(|(first, _)| *first != jwk) {
                            taken.insert(None);
                        }
                    }
                },
            }
        }
        let kids = named.len();
        let by_kid: HashMap<_, _> =
            named.into_iter().filter_map(|(kid, entry)| Some((kid, entry?.1))).collect();
        let sole = match (nameless.as_slice(), kids) {
            ([key], 0) => Some(key.clone()),
            ([], 1) => by_kid.values().next().cloned(),
            _ => None,
        };
        if by_kid.is_empty() && sole.is_none() {
            tracing::warn!(entries, "the JWK set holds no key that can verify a user's token");
        }
        Ok(Self { by_kid, sole })
    }
}

impl Jwk {
    fn verify_key(&self) -> Option<VerifyKey> {
        let for_signatures = self.purpose.as_deref().is_none_or(|purpose| purpose == "sig")
            && self.key_ops.as_ref().is_none_or(|ops| ops.iter().any(|op| op == "verify"));
        // A key whose private half is published proves nothing.
        if !for_signatures || self.d.is_some() {
            return None;
        }
        let (algorithm, name, key) = match (self.kty.as_str(), self.crv.as_deref()) {
            ("RSA", None) => {
                let (n, e) = (decode(&self.n)?, decode(&self.e)?);
                // 2048 to 8192 bits is what the verifier takes.
                (256..=1024).contains(&n.len()).then_some(())?;
                (Algorithm::RS256, "RS256", DecodingKey::from_rsa_raw_components(&n, &e))
            }
            ("EC", Some("P-256")) => {
                let (x, y) = (decode(&self.x)?, decode(&self.y)?);
                (x.len() == 32 && y.len() == 32).then_some(())?;
                let point = [&[4], x.as_slice(), y.as_slice()].concat();
                (Algorithm::ES256, "ES256", DecodingKey::from_ec_der(&point))
            }
            ("OKP", Some("Ed25519")) => {
                let x = decode(&self.x)?;
                (x.len() == 32).then_some(())?;
                (Algorithm::EdDSA, "EdDSA", DecodingKey::from_ed_der(&x))
            }
            _ => return None,
        };
        self.alg.as_deref().is_none_or(|alg| alg == name).then_some(VerifyKey { key, algorithm })
    }
}

fn decode(text: &Option<String>) -> Option<Vec<u8>> {
    URL_SAFE_NO_PAD.decode(text.as_ref()?).ok()
}

#[cfg(test)]
#[path = "jwks_tests.rs"]
mod tests;
