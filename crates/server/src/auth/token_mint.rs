//! An issuer for the tests: keys made when the tests run, and tokens that are genuine unless asked
//! otherwise.

use std::sync::OnceLock;

use aws_lc_rs::hmac;
use aws_lc_rs::rand::SystemRandom;
use aws_lc_rs::rsa::KeySize;
use aws_lc_rs::signature::{
    ECDSA_P256_SHA256_FIXED_SIGNING, EcdsaKeyPair, Ed25519KeyPair, KeyPair, RSA_PKCS1_SHA256, RsaEncoding,
    RsaKeyPair, RsaPublicKeyComponents,
};
use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use serde_json::{Value, json};

pub(super) const NOW: i64 = 1_778_749_956;
pub(super) const SECRET: &str = "0123456789abcdef0123456789abcdef-the-shared-secret";
pub(super) const AUDIENCE: &str = "threadkeep";
pub(super) const ISSUER: &str = "https://issuer.test/";

pub(super) struct Keys {
    pub(super) rsa: RsaKeyPair,
    pub(super) ec: EcdsaKeyPair,
    pub(super) ed: Ed25519KeyPair,
}

impl Keys {
    pub(super) fn generate() -> Self {
        Self {
            rsa: RsaKeyPair::generate(KeySize::Rsa2048).unwrap(),
            ec: EcdsaKeyPair::generate(&ECDSA_P256_SHA256_FIXED_SIGNING).unwrap(),
            ed: Ed25519KeyPair::generate().unwrap(),
        }
    }

    pub(super) fn jwk(&self, alg: &str) -> Value {
        match alg {
            "RS256" => {
                let public = RsaPublicKeyComponents::<Vec<u8>>::from(self.rsa.public_key());
                json!({ "kty": "RSA", "kid": "RS256", "use": "sig", "n": b64(public.n), "e": b64(public.e) })
            }
            "ES256" => {
                let point = self.ec.public_key().as_ref();
                let (x, y) = (b64(&point[1..33]), b64(&point[33..]));
                json!({ "kty": "EC", "kid": "ES256", "crv": "P-256", "alg": "ES256", "x": x, "y": y })
            }
            _ => json!({ "kty": "OKP", "kid": "EdDSA", "crv": "Ed25519", "x": b64(self.ed.public_key()) }),
        }
    }

    pub(super) fn sign(&self, alg: &str, message: &str) -> Vec<u8> {
        let message = message.as_bytes();
        match alg {
            "HS256" => mac(hmac::HMAC_SHA256, SECRET.as_bytes(), message),
            "RS256" => self.rsa_sign(&RSA_PKCS1_SHA256, message),
            "ES256" => self.ec.sign(&SystemRandom::new(), message).unwrap().as_ref().to_vec(),
            _ => self.ed.sign(message).as_ref().to_vec(),
        }
    }

    pub(super) fn rsa_sign(&self, encoding: &'static dyn RsaEncoding, message: &[u8]) -> Vec<u8> {
        let mut signature = vec![0; self.rsa.public_modulus_len()];
        self.rsa.sign(encoding, &SystemRandom::new(), message, &mut signature).unwrap();
        signature
    }
}

pub(super) fn issuer() -> &'static Keys {
    static KEYS: OnceLock<Keys> = OnceLock::new();
    KEYS.get_or_init(Keys::generate)
}

pub(super) fn stranger() -> &'static Keys {
    static KEYS: OnceLock<Keys> = OnceLock::new();
    KEYS.get_or_init(Keys::generate)
}

pub(super) fn mac(algorithm: hmac::Algorithm, key: &[u8], message: &[u8]) -> Vec<u8> {
    hmac::sign(&hmac::Key::new(algorithm, key), message).as_ref().to_vec()
}

pub(super) fn b64(bytes: impl AsRef<[u8]>) -> String {
    URL_SAFE_NO_PAD.encode(bytes)
}

/// Makes tokens of one algorithm, genuine unless told otherwise.
#[derive(Clone, Copy)]
pub(super) struct Mint {
    pub(super) alg: &'static str,
}

impl Mint {
    pub(super) fn header(&self) -> Value {
        json!({ "alg": self.alg, "typ": "JWT", "kid": self.alg })
    }

    pub(super) fn claims(&self) -> Value {
        json!({ "sub": "user-1", "org_id": "org-1", "aud": AUDIENCE, "iss": ISSUER,
                "iat": NOW - 60, "nbf": NOW - 60, "exp": NOW + 600 })
    }

    pub(super) fn raw(&self, header: impl AsRef<[u8]>, claims: impl AsRef<[u8]>) -> String {
        let message = format!("{}.{}", b64(header), b64(claims));
        let signature = b64(issuer().sign(self.alg, &message));
        format!("{message}.{signature}")
    }

    pub(super) fn signed_by(&self, header: Value, sign: impl FnOnce(&str) -> Vec<u8>) -> String {
        let message = format!("{}.{}", b64(header.to_string()), b64(self.claims().to_string()));
        let signature = b64(sign(&message));
        format!("{message}.{signature}")
    }

    pub(super) fn good(&self) -> String {
        self.raw(self.header().to_string(), self.claims().to_string())
    }

    pub(super) fn parts(&self) -> (String, String, String) {
        let token = self.good();
        let mut parts = token.split('.').map(str::to_owned);
        (parts.next().unwrap(), parts.next().unwrap(), parts.next().unwrap())
    }

    pub(super) fn head(&self, field: &str, value: Value) -> String {
        let mut header = self.header();
        header[field] = value;
        self.raw(header.to_string(), self.claims().to_string())
    }

    pub(super) fn claim(&self, field: &str, value: Value) -> String {
        let mut claims = self.claims();
        claims[field] = value;
        self.raw(self.header().to_string(), claims.to_string())
    }

    pub(super) fn without(&self, field: &str) -> String {
        let mut claims = self.claims();
        claims.as_object_mut().unwrap().remove(field);
        self.raw(self.header().to_string(), claims.to_string())
    }

    /// The claims as text, with `more` put in front of the first field.
    pub(super) fn text(&self, more: &str) -> String {
        self.raw(self.header().to_string(), format!("{{{more},{}", &self.claims().to_string()[1..]))
    }
}
