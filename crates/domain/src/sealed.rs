//! Secrets that must be kept and used again: encrypted under the server's own secret, bound to what they belong to.

use aws_lc_rs::aead::{AES_256_GCM, Aad, LessSafeKey, NONCE_LEN, Nonce, UnboundKey};
use hmac::{Hmac, KeyInit, Mac};
use sha2::Sha256;

use crate::secret::Secret;

const LABEL: &str = "threadkeep sealed secrets";

/// A random nonce, then the text and its tag. `owner` says whose it is; only with the same it can be opened.
/// `None` where the machine has no randomness.
pub fn seal(text: &Secret, owner: &str, key: &Secret) -> Option<Vec<u8>> {
    let mut nonce = [0; NONCE_LEN];
    getrandom::fill(&mut nonce).ok()?;
    let mut body = text.expose().as_bytes().to_vec();
    let unique = Nonce::assume_unique_for_key(nonce);
    derived(key)?.seal_in_place_append_tag(unique, Aad::from(owner), &mut body).ok()?;
    Some([&nonce[..], &body].concat())
}

/// None for anything that `seal` did not make for this owner under this key.
pub fn open(sealed: &[u8], owner: &str, key: &Secret) -> Option<Secret> {
    let (nonce, body) = sealed.split_first_chunk::<NONCE_LEN>()?;
    let mut body = body.to_vec();
    let text = derived(key)?
        .open_in_place(Nonce::assume_unique_for_key(*nonce), Aad::from(owner), &mut body)
        .ok()?;
    Some(Secret::new(std::str::from_utf8(text).ok()?))
}

fn derived(key: &Secret) -> Option<LessSafeKey> {
    let mac = Hmac::<Sha256>::new_from_slice(key.expose().as_bytes()).ok()?;
    let key = mac.chain_update(LABEL).finalize().into_bytes();
    Some(LessSafeKey::new(UnboundKey::new(&AES_256_GCM, &key).ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_its_owner_opens_it_and_no_changed_byte_passes() {
        let (key, text) = (Secret::new("k"), Secret::new("a token: é"));
        let sealed = seal(&text, "w/n", &key).unwrap();
        assert_eq!(open(&sealed, "w/n", &key), Some(text.clone()));
        assert_eq!(open(&sealed, "w/m", &key), None);
        assert_eq!(open(&sealed, "w/n", &Secret::new("l")), None);
        assert_ne!(seal(&text, "w/n", &key).unwrap(), sealed, "each is its own");
        for at in 0..sealed.len() {
            let mut changed = sealed.clone();
            changed[at] ^= 1;
            assert_eq!(open(&changed, "w/n", &key), None, "byte {at}");
            assert_eq!(open(&sealed[..at], "w/n", &key), None, "{at} bytes");
        }
    }
}
