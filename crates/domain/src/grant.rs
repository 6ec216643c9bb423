//! Tokens that are signed, not stored. A grant belongs to one run, for its configuration, its upload and its use of
//! the model gateway: it names the run and its fence, so that it dies with it. A link dies by the clock.

mod link;

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use hmac::{Hmac, KeyInit, Mac};
use sha2::Sha256;
use uuid::Uuid;

pub use link::{AssetsLink, LinkError, UploadLink, manifest_of};

use crate::secret::Secret;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum GrantKind {
    Config,
    Upload,
    Model,
}

impl GrantKind {
    fn label(self) -> &'static str {
        match self {
            Self::Config => "threadkeep run config",
            Self::Upload => "threadkeep run upload",
            Self::Model => "threadkeep run model",
        }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Grant {
    pub kind: GrantKind,
    pub workspace: Uuid,
    pub run: Uuid,
    pub fence: i64,
}

const PREFIX: &str = "tkr_";
const BODY: usize = 16 + 16 + 8;
const MAC: usize = 32;

impl Grant {
    /// base64url of workspace, run, fence and their MAC; every part has a fixed length.
    pub fn seal(&self, secret: &Secret) -> String {
        sealed(PREFIX, self.kind.label(), &self.body(), secret)
    }

    /// None for anything that `seal` did not make for this use under this secret.
    pub fn open(text: &str, kind: GrantKind, secret: &Secret) -> Option<Self> {
        let body: [u8; BODY] = opened(text, PREFIX, kind.label(), secret)?;
        Some(Self {
            kind,
            workspace: Uuid::from_slice(&body[..16]).ok()?,
            run: Uuid::from_slice(&body[16..32]).ok()?,
            fence: i64::from_be_bytes(body[32..].try_into().ok()?),
        })
    }

    fn body(&self) -> [u8; BODY] {
        let mut body = [0; BODY];
        body[..16].copy_from_slice(self.workspace.as_bytes());
        body[16..32].copy_from_slice(self.run.as_bytes());
        body[32..].copy_from_slice(&self.fence.to_be_bytes());
        body
    }
}

fn sealed(prefix: &str, label: &str, body: &[u8], secret: &Secret) -> String {
    let mac = keyed(label, secret).chain_update(body).finalize().into_bytes();
    format!("{prefix}{}", URL_SAFE_NO_PAD.encode([body, &mac[..]].concat()))
}

/// The body, if `sealed` made this text. The decoder takes no padding and no stray bits, so a token has one spelling.
fn opened<const N: usize>(text: &str, prefix: &str, label: &str, secret: &Secret) -> Option<[u8; N]> {
    let encoded = text.strip_prefix(prefix)?;
    // Nothing longer is worth decoding.
    if encoded.len() != ((N + MAC) * 4).div_ceil(3) {
        return None;
    }
    let bytes = URL_SAFE_NO_PAD.decode(encoded).ok()?;
    let (body, mac) = bytes.split_first_chunk::<N>()?;
    keyed(label, secret).chain_update(body).verify_slice(mac).ok()?;
    Some(*body)
}

/// A MAC under the key for one use, so that no token serves another.
fn keyed(label: &str, secret: &Secret) -> Hmac<Sha256> {
    let derived = hmac(secret.expose().as_bytes()).chain_update(label).finalize().into_bytes();
    hmac(&derived)
}

#[expect(clippy::expect_used, reason = "HMAC takes a key of any length")]
fn hmac(key: &[u8]) -> Hmac<Sha256> {
    Hmac::new_from_slice(key).expect("HMAC takes a key of any length")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_token_serves_one_use_of_one_run_and_no_changed_byte_passes() {
        let secret = Secret::new("s");
        let grant = Grant {
            kind: GrantKind::Config,
            workspace: Uuid::from_u128(1),
            run: Uuid::from_u128(2),
            fence: 3,
        };
        let text = grant.seal(&secret);
        assert_eq!(Grant::open(&text, GrantKind::Config, &secret), Some(grant));
        assert_eq!(Grant::open(&text, GrantKind::Upload, &secret), None);
        assert_eq!(Grant::open(&text, GrantKind::Config, &Secret::new("t")), None);
        for at in 0..text.len() {
            let mut changed = text.clone().into_bytes();
            changed[at] = if changed[at] == b'A' { b'B' } else { b'A' };
            let changed = String::from_utf8(changed).unwrap();
            assert_eq!(Grant::open(&changed, GrantKind::Config, &secret), None, "byte {at}");
        }
        for bad in ["", "tkr_", "tkr_AAAA", &text[4..], &format!("{text}AA")] {
            assert_eq!(Grant::open(bad, GrantKind::Config, &secret), None, "{bad}");
        }
    }
}
