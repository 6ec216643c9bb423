//! The browser's session: a signed cookie, the ticket in the address that local mode prints, and the
//! check that an unsafe request made with the cookie comes from our own pages.
//! Every signature here is HMAC-SHA256 under a key derived from the server's secret for that one use.

use axum::http::{HeaderMap, HeaderName, header};
use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use domain::secret::Secret;
use domain::time::from_ms;
use hmac::{Hmac, KeyInit, Mac};
use jiff::Timestamp;
use sha2::Sha256;
use uuid::Uuid;

pub const COOKIE: &str = "threadkeep_session";

const VERSION: u8 = 1;
const MAC_BYTES: usize = 32;
const SESSION_USE: &str = "threadkeep session cookie";
const TICKET_USE: &str = "threadkeep login ticket";

/// There is no CSRF token in it: `same_origin` is the defence.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Session {
    pub user: String,
    pub org: String,
    pub expires_at: Timestamp,
}

impl Session {
    /// base64url of `[version, user, org, expiry in ms]` as JSON, followed by its MAC.
    pub fn seal(&self, secret: &Secret) -> String {
        let expires = self.expires_at.as_millisecond();
        let body = serde_json::json!([VERSION, self.user, self.org, expires]).to_string();
        let mac = keyed(secret, SESSION_USE).chain_update(&body).finalize().into_bytes();
        URL_SAFE_NO_PAD.encode([body.as_bytes(), mac.as_slice()].concat())
    }

    /// None for anything `seal` did not make under this secret, and for a session that has ended.
    pub fn open(text: &str, secret: &Secret, now: Timestamp) -> Option<Self> {
        let sealed = URL_SAFE_NO_PAD.decode(text).ok()?;
        let (body, mac) = sealed.split_at_checked(sealed.len().checked_sub(MAC_BYTES)?)?;
        keyed(secret, SESSION_USE).chain_update(body).verify_slice(mac).ok()?;
        let (version, user, org, expires): (u8, String, String, i64) = serde_json::from_slice(body).ok()?;
        let session = Self { user, org, expires_at: from_ms(expires) };
        (version == VERSION && now < session.expires_at).then_some(session)
    }

    /// The first session cookie that opens: another server on the same host may have set one of its own,
    /// for cookies do not know ports.
    pub fn from_headers(headers: &HeaderMap, secret: &Secret, now: Timestamp) -> Option<Self> {
        headers
            .get_all(header::COOKIE)
            .iter()
            .filter_map(|value| value.to_str().ok())
            .flat_map(|cookies| cookies.split(';'))
            .filter_map(|cookie| cookie.trim().split_once('='))
            .filter(|(name, _)| *name == COOKIE)
            .find_map(|(_, value)| Self::open(value, secret, now))
    }

    /// The `Set-Cookie` text. Lax, not Strict: a link to a conversation from a mail or a web terminal
    /// must find its reader logged in, and no GET changes anything; unsafe methods need `same_origin`.
    pub fn set_cookie(&self, secret: &Secret, now: Timestamp, public_url: &str) -> String {
        let left = (self.expires_at.as_millisecond() - now.as_millisecond()).max(0) / 1000;
        cookie(&self.seal(secret), left, public_url)
    }
}

/// The `Set-Cookie` text that ends the session.
pub fn clear_cookie(public_url: &str) -> String {
    cookie("", 0, public_url)
}

fn cookie(value: &str, max_age: i64, public_url: &str) -> String {
    // Over plain http a browser would drop a Secure cookie.
    let https = public_url.get(..8).is_some_and(|start| start.eq_ignore_ascii_case("https://"));
    let secure = if https { "; Secure" } else { "" };
    format!("{COOKIE}={value}; Path=/; Max-Age={max_age}; HttpOnly; SameSite=Lax{secure}")
}

/// The ticket in the address printed at start. `boot_id` is made anew by each start, so a ticket dies
/// with its process; it need not be secret.
pub fn login_ticket(secret: &Secret, boot_id: Uuid) -> String {
    let mac = keyed(secret, TICKET_USE).chain_update(boot_id.as_bytes()).finalize();
    URL_SAFE_NO_PAD.encode(mac.into_bytes())
}

pub fn check_login_ticket(ticket: &str, secret: &Secret, boot_id: Uuid) -> bool {
    let Ok(mac) = URL_SAFE_NO_PAD.decode(ticket) else { return false };
    keyed(secret, TICKET_USE).chain_update(boot_id.as_bytes()).verify_slice(&mac).is_ok()
}

/// May a cookie vouch for this unsafe request? `Origin` must be one of ours to the byte; without `Origin`
/// the browser itself must say `Sec-Fetch-Site: same-origin` (`none` is an address typed in: never a POST).
pub fn same_origin(headers: &HeaderMap, public_origins: &[String]) -> bool {
    let fetch_site = HeaderName::from_static("sec-fetch-site");
    match only(headers, &header::ORIGIN) {
        Ok(Some(origin)) => origin != b"null" && public_origins.iter().any(|ours| ours.as_bytes() == origin),
        Ok(None) => only(headers, &fetch_site) == Ok(Some(b"same-origin")),
        Err(Repeated) => false,
    }
}

#[derive(Debug, PartialEq)]
struct Repeated;

fn only<'h>(headers: &'h HeaderMap, name: &HeaderName) -> Result<Option<&'h [u8]>, Repeated> {
    let mut values = headers.get_all(name).iter();
    let first = values.next().map(|value| value.as_bytes());
    if values.next().is_some() { Err(Repeated) } else { Ok(first) }
}

/// A MAC under the key for one use: HMAC(secret, use), so that no signature serves another purpose.
fn keyed(secret: &Secret, used_for: &str) -> Hmac<Sha256> {
    let derived = hmac(secret.expose().as_bytes()).chain_update(used_for).finalize().into_bytes();
    hmac(&derived)
}

#[expect(clippy::expect_used, reason = "HMAC takes a key of any length")]
fn hmac(key: &[u8]) -> Hmac<Sha256> {
    Hmac::new_from_slice(key).expect("HMAC takes a key of any length")
}

#[cfg(test)]
#[path = "session_tests.rs"]
mod tests;
