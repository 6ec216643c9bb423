//! Is this user token genuine, current and meant for us? In comes the text after `Bearer`; out goes the
//! user and the org it speaks for, or which part of it is wrong.
//! The token never chooses how it is judged: each key has one algorithm, and the header's own key
//! material and addresses (`jwk`, `jku`, `x5c`, `x5u`) are not read.

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use domain::secret::Secret;
use domain::time::{Clock, from_ms};
use jiff::Timestamp;
use jsonwebtoken::{Algorithm, DecodingKey, crypto};
use serde_json::{Map, Value};
use upstream::jwks::Jwks;

use self::TokenFault::Invalid;

const MAX_TOKEN_BYTES: usize = 8 * 1024;
const MAX_NAME_CHARS: usize = 255;
/// How far the issuer's clock may be ahead of ours. An end has no leeway: sessions and open streams have none, either.
const LEEWAY_MS: f64 = 30_000.0;

/// How user tokens are verified, as configured. With neither `hs256` nor `jwks` no token is accepted.
pub struct TokenRules {
    /// Shared with the issuer, of any length: the start warns of fewer than the 32 bytes that RFC 7518, 3.2
    /// asks for, since some issuers have them so.
    pub hs256: Option<Secret>,
    pub jwks: Option<Jwks>,
    pub audience: Option<String>,
    pub issuer: Option<String>,
    /// The org of a token that has no `org_id`.
    pub default_org: Option<String>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UserToken {
    pub user: String,
    pub org: String,
    pub expires_at: Timestamp,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum TokenFault {
    /// The reason may be shown to the caller: it names a part of the token, never its content.
    #[error("the token is not valid: {0}")]
    Invalid(&'static str),
    #[error("tokens cannot be verified now: the issuer's keys could not be fetched; try again shortly")]
    Unavailable,
}

impl TokenRules {
    pub async fn verify(&self, token: &str, clock: &dyn Clock) -> Result<UserToken, TokenFault> {
        if token.len() > MAX_TOKEN_BYTES {
            return Err(Invalid("it is longer than 8 KiB"));
        }
        let (message, signature) = token.rsplit_once('.').ok_or(Invalid("it does not have three parts"))?;
        let (header, payload) = message.split_once('.').ok_or(Invalid("it does not have three parts"))?;
        if payload.contains('.') {
            return Err(Invalid("it does not have three parts"));
        }
        let header = object(header).ok_or(Invalid("its header is not a strict JSON object in base64url"))?;
        if header.contains_key("crit") {
            return Err(Invalid("its header has crit, which is not supported"));
        }
        self.check_signature(&header, message, signature).await?;
        let claims =
            object(payload).ok_or(Invalid("its claims are not a strict JSON object in base64url"))?;
        self.check_claims(&claims, clock.now())
    }

    async fn check_signature(
        &self,
        header: &Map<String, Value>,
        message: &str,
        signature: &str,
    ) -> Result<(), TokenFault> {
        let alg = header.get("alg").and_then(Value::as_str).ok_or(Invalid("its header has no alg"))?;
        let genuine = match (alg, &self.hs256, &self.jwks) {
            ("HS256", Some(secret), _) => {
                let key = DecodingKey::from_secret(secret.expose().as_bytes());
                crypto::verify(signature, message.as_bytes(), &key, Algorithm::HS256)
            }
            ("RS256" | "ES256" | "EdDSA", _, Some(jwks)) => {
                let kid = match header.get("kid") {
                    None => None,
                    Some(Value::String(kid)) => Some(kid.as_str()),
                    Some(_) => return Err(Invalid("kid in its header is not a string")),
                };
                let found = jwks.key(kid).await.map_err(|_| TokenFault::Unavailable)?;
                let found = found.ok_or(Invalid("its kid names no key of the issuer"))?;
                if name(found.algorithm) != Some(alg) {
                    return Err(Invalid("its alg is not that of the key its kid names"));
                }
                crypto::verify(signature, message.as_bytes(), &found.key, found.algorithm)
            }
            _ => return Err(Invalid("its alg is not accepted here")),
        };
        if matches!(genuine, Ok(true)) { Ok(()) } else { Err(Invalid("its signature is wrong")) }
    }

    fn check_claims(&self, claims: &Map<String, Value>, now: Timestamp) -> Result<UserToken, TokenFault> {
        let now = now.as_millisecond() as f64;
        let exp = moment(claims, "exp", "exp is not a number")?.ok_or(Invalid("exp is missing"))?;
        let nbf = moment(claims, "nbf", "nbf is not a number")?;
        moment(claims, "iat", "iat is not a number")?;
        if now >= exp {
            return Err(Invalid("exp has passed"));
        }
        if nbf.is_some_and(|nbf| now + LEEWAY_MS < nbf) {
            return Err(Invalid("nbf is still to come"));
        }
        if let Some(issuer) = &self.issuer
            && claims.get("iss").and_then(Value::as_str) != Some(issuer)
        {
            return Err(Invalid("iss is not the configured issuer"));
        }
        if let Some(audience) = &self.audience
            && !names_audience(claims.get("aud"), audience)
        {
            return Err(Invalid("aud does not name the configured audience"));
        }
        let user = claims.get("sub").ok_or(Invalid("sub is missing"))?;
        let user = plain_name(user)
            .ok_or(Invalid("sub is not a text of 1 to 255 characters without control characters"))?;
        let org = match (claims.get("org_id"), &self.default_org) {
            (Some(org), _) => plain_name(org)
                .ok_or(Invalid("org_id is not a text of 1 to 255 characters without control characters"))?,
            (None, Some(org)) => org,
            (None, None) => return Err(Invalid("org_id is missing")),
        };
        // `as` saturates: a moment beyond the calendar becomes its end.
        Ok(UserToken { user: user.to_owned(), org: org.to_owned(), expires_at: from_ms(exp as i64) })
    }
}

/// One base64url part as an object that means the same to every reader.
fn object(part: &str) -> Option<Map<String, Value>> {
    let bytes = URL_SAFE_NO_PAD.decode(part).ok()?;
    domain::json::check(&bytes).ok()?;
    serde_json::from_slice(&bytes).ok()
}

fn name(algorithm: Algorithm) -> Option<&'static str> {
    match algorithm {
        Algorithm::RS256 => Some("RS256"),
        Algorithm::ES256 => Some("ES256"),
        Algorithm::EdDSA => Some("EdDSA"),
        _ => None,
    }
}

/// A NumericDate (RFC 7519, 2) in milliseconds; a claim that is there but no number is a fault.
fn moment(claims: &Map<String, Value>, claim: &str, fault: &'static str) -> Result<Option<f64>, TokenFault> {
    match claims.get(claim) {
        None => Ok(None),
        Some(value) => value.as_f64().map(|seconds| Some(seconds * 1000.0)).ok_or(Invalid(fault)),
    }
}

fn names_audience(aud: Option<&Value>, audience: &str) -> bool {
    match aud {
        Some(Value::String(one)) => one == audience,
        Some(Value::Array(many)) => {
            many.iter().all(Value::is_string) && many.iter().any(|one| one.as_str() == Some(audience))
        }
        _ => false,
    }
}

fn plain_name(value: &Value) -> Option<&str> {
    let text = value.as_str()?;
    let length = text.chars().count();
    ((1..=MAX_NAME_CHARS).contains(&length) && !text.chars().any(char::is_control)).then_some(text)
}

#[cfg(test)]
#[path = "token_tests.rs"]
mod tests;
