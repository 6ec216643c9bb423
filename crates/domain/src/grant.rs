//! Tokens that belong to one run: for its configuration, its upload and its use of the model gateway. Signed, not
//! stored; they name the run and its fence, so that they die with it.

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use hmac::{Hmac, KeyInit, Mac};
use sha2::Sha256;
use uuid::Uuid;

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

const BODY: usize = 16 + 16 + 8;
const MAC: usize = 32;

impl Grant {
    /// base64url of workspace, run, fence and their MAC; every part has a fixed length.
    pub fn seal(&self, secret: &Secret) -> String {
        let body = self.body();
        let mac = keyed(self.kind, secret).chain_update(body).finalize().into_bytes();
        format!("tkr_{}", URL_SAFE_NO_PAD.encode([&body[..], &mac[..]].concat()))
    }

    /// None for anything that `seal` did not make for this use under this secret.
    pub fn open(text: &str, kind: GrantKind, secret: &Secret) -> Option<Self> {
        let bytes = URL_SAFE_NO_PAD.decode(text.strip_prefix("tkr_")?).ok()?;
        if bytes.len() != BODY + MAC {
            return None;
        }
        let (body, mac) = bytes.split_at(BODY);
        keyed(kind, secret).chain_update(body).verify_slice(mac).ok()?;
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

/// A MAC under the key for one use, so that no token serves another.
fn keyed(kind: GrantKind, secret: &Secret) -> Hmac<Sha256> {
    let derived = hmac(secret.expose().as_bytes()).chain_update(kind.label()).finalize().into_bytes();
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
