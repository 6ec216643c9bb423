//! Forged and broken tokens: a name, how it is made, and what the refusal must speak of (empty where
//! that depends on what else the verifier accepts).

use aws_lc_rs::encoding::{AsDer, PublicKeyX509Der};
use aws_lc_rs::hmac;
use aws_lc_rs::rand::SystemRandom;
use aws_lc_rs::signature::{
    ECDSA_P256_SHA256_ASN1_SIGNING, EcdsaKeyPair, KeyPair, RSA_PKCS1_SHA384, RSA_PKCS1_SHA512,
    RSA_PSS_SHA256, RsaPublicKeyComponents,
};
use base64::Engine;
use base64::engine::general_purpose::STANDARD_NO_PAD;
use serde_json::json;

use super::mint::{AUDIENCE, ISSUER, Keys, Mint, NOW, SECRET, b64, issuer, mac, stranger};

pub(super) type Forge = fn(&Mint) -> String;

const SIGNATURE: &str = "signature is wrong";
const ALG: &str = "alg";
const SHAPE: &str = "three parts";
const HEADER: &str = "header is not a strict JSON object";
const CLAIMS: &str = "claims are not a strict JSON object";
const CRIT: &str = "crit";
const LONG: &str = "8 KiB";

/// Refused by every verifier, whichever algorithm the token names. Name, how it is made, why.
pub(super) const FORGED: &[(&str, Forge, &str)] = &[
    // The algorithm.
    ("alg none, no signature", |m| m.signed_by(json!({ "alg": "none" }), |_| vec![]), ALG),
    (
        "alg none, no signature, two parts",
        |m| m.signed_by(json!({ "alg": "none" }), |_| vec![]).trim_end_matches('.').into(),
        SHAPE,
    ),
    ("alg None", |m| m.signed_by(json!({ "alg": "None" }), |_| vec![]), ALG),
    ("alg NONE", |m| m.signed_by(json!({ "alg": "NONE" }), |_| vec![]), ALG),
    ("alg nOnE", |m| m.signed_by(json!({ "alg": "nOnE" }), |_| vec![]), ALG),
    ("alg none with a genuine signature", |m| m.head("alg", json!("none")), ALG),
    ("alg missing", |m| m.raw(r#"{"typ":"JWT"}"#, m.claims().to_string()), ALG),
    ("alg null", |m| m.head("alg", json!(null)), ALG),
    ("alg a number", |m| m.head("alg", json!(256)), ALG),
    ("alg a list", |m| m.head("alg", json!([m.alg])), ALG),
    ("alg empty", |m| m.head("alg", json!("")), ALG),
    ("alg in lower case", |m| m.head("alg", json!(m.alg.to_lowercase())), ALG),
    ("alg with a space", |m| m.head("alg", json!(format!("{} ", m.alg))), ALG),
    ("alg unknown", |m| m.head("alg", json!("HS1")), ALG),
    (
        "HS384 with the secret",
        |m| {
            m.signed_by(json!({ "alg": "HS384" }), |t| {
                mac(hmac::HMAC_SHA384, SECRET.as_bytes(), t.as_bytes())
            })
        },
        ALG,
    ),
    (
        "HS512 with the secret",
        |m| {
            m.signed_by(json!({ "alg": "HS512" }), |t| {
                mac(hmac::HMAC_SHA512, SECRET.as_bytes(), t.as_bytes())
            })
        },
        ALG,
    ),
    (
        "RS384 with the issuer's key",
        |m| {
            m.signed_by(json!({ "alg": "RS384", "kid": "RS256" }), |t| {
                issuer().rsa_sign(&RSA_PKCS1_SHA384, t.as_bytes())
            })
        },
        ALG,
    ),
    (
        "RS512 with the issuer's key",
        |m| {
            m.signed_by(json!({ "alg": "RS512", "kid": "RS256" }), |t| {
                issuer().rsa_sign(&RSA_PKCS1_SHA512, t.as_bytes())
            })
        },
        ALG,
    ),
    (
        "PS256 with the issuer's key",
        |m| {
            m.signed_by(json!({ "alg": "PS256", "kid": "RS256" }), |t| {
                issuer().rsa_sign(&RSA_PSS_SHA256, t.as_bytes())
            })
        },
        ALG,
    ),
    (
        "PSS signature called RS256",
        |m| {
            m.signed_by(json!({ "alg": "RS256", "kid": "RS256" }), |t| {
                issuer().rsa_sign(&RSA_PSS_SHA256, t.as_bytes())
            })
        },
        "",
    ),
    ("ES384 named", |m| m.head("alg", json!("ES384")), ALG),
    ("ES256K named", |m| m.head("alg", json!("ES256K")), ALG),
    ("Ed25519 named", |m| m.head("alg", json!("Ed25519")), ALG),
    (
        "HS256 keyed with the RSA public key in DER",
        |m| {
            public_key_as_secret(m, |k| {
                AsDer::<PublicKeyX509Der<'_>>::as_der(k.rsa.public_key()).unwrap().as_ref().to_vec()
            })
        },
        "",
    ),
    (
        "HS256 keyed with the RSA public key in PKCS#1",
        |m| public_key_as_secret(m, |k| k.rsa.public_key().as_ref().to_vec()),
        "",
    ),
    (
        "HS256 keyed with the RSA modulus",
        |m| public_key_as_secret(m, |k| RsaPublicKeyComponents::<Vec<u8>>::from(k.rsa.public_key()).n),
        "",
    ),
    (
        "HS256 keyed with the RSA JWK's text",
        |m| public_key_as_secret(m, |k| k.jwk("RS256").to_string().into_bytes()),
        "",
    ),
    (
        "HS256 keyed with the EC point",
        |m| public_key_as_secret(m, |k| k.ec.public_key().as_ref().to_vec()),
        "",
    ),
    (
        "HS256 keyed with the Ed25519 public key",
        |m| public_key_as_secret(m, |k| k.ed.public_key().as_ref().to_vec()),
        "",
    ),
    ("HS256 keyed with nothing", |m| public_key_as_secret(m, |_| vec![]), ""),
    ("HS256 keyed with a zero byte", |m| public_key_as_secret(m, |_| vec![0]), ""),
    (
        "HS256 keyed with the secret cut short",
        |m| public_key_as_secret(m, |_| SECRET.as_bytes()[..32].to_vec()),
        "",
    ),
    // Keys the token brings along.
    ("a stranger's key", |m| m.signed_by(m.header(), |t| sign_as_stranger(m, t)), SIGNATURE),
    (
        "a stranger's key in jwk",
        |m| {
            m.signed_by(json!({ "alg": m.alg, "kid": m.alg, "jwk": stranger().jwk(m.alg) }), |t| {
                sign_as_stranger(m, t)
            })
        },
        SIGNATURE,
    ),
    (
        "a stranger's set in jku",
        |m| {
            m.signed_by(json!({ "alg": m.alg, "kid": m.alg, "jku": "http://127.0.0.1:9/keys" }), |t| {
                sign_as_stranger(m, t)
            })
        },
        SIGNATURE,
    ),
    (
        "a stranger's certificate in x5c",
        |m| m.signed_by(json!({ "alg": m.alg, "kid": m.alg, "x5c": ["MIIB"] }), |t| sign_as_stranger(m, t)),
        SIGNATURE,
    ),
    (
        "a stranger's certificate in x5u",
        |m| {
            m.signed_by(json!({ "alg": m.alg, "kid": m.alg, "x5u": "http://127.0.0.1:9/c.pem" }), |t| {
                sign_as_stranger(m, t)
            })
        },
        SIGNATURE,
    ),
    // crit.
    ("crit exp", |m| m.head("crit", json!(["exp"])), CRIT),
    ("crit empty", |m| m.head("crit", json!([])), CRIT),
    ("crit null", |m| m.head("crit", json!(null)), CRIT),
    (
        "crit b64 false",
        |m| {
            m.raw(
                json!({ "alg": m.alg, "kid": m.alg, "crit": ["b64"], "b64": false }).to_string(),
                m.claims().to_string(),
            )
        },
        CRIT,
    ),
    // The signature.
    ("no signature", |m| m.signed_by(m.header(), |_| vec![]), SIGNATURE),
    ("signature of zeros", |m| m.signed_by(m.header(), |_| vec![0; 64]), SIGNATURE),
    ("signature of zeros, RSA size", |m| m.signed_by(m.header(), |_| vec![0; 256]), SIGNATURE),
    (
        "signature cut short",
        |m| {
            m.signed_by(m.header(), |t| {
                let mut s = issuer().sign(m.alg, t);
                s.pop();
                s
            })
        },
        SIGNATURE,
    ),
    (
        "signature with a byte more",
        |m| {
            m.signed_by(m.header(), |t| {
                let mut s = issuer().sign(m.alg, t);
                s.push(0);
                s
            })
        },
        SIGNATURE,
    ),
    (
        "signature with a zero byte in front",
        |m| {
            m.signed_by(m.header(), |t| {
                let mut s = issuer().sign(m.alg, t);
                s.insert(0, 0);
                s
            })
        },
        SIGNATURE,
    ),
    (
        "signature with its first bit flipped",
        |m| {
            m.signed_by(m.header(), |t| {
                let mut s = issuer().sign(m.alg, t);
                s[0] ^= 0x80;
                s
            })
        },
        SIGNATURE,
    ),
    (
        "signature with its last bit flipped",
        |m| {
            m.signed_by(m.header(), |t| {
                let mut s = issuer().sign(m.alg, t);
                *s.last_mut().unwrap() ^= 1;
                s
            })
        },
        SIGNATURE,
    ),
    (
        "signature of another message",
        |m| m.signed_by(m.header(), |_| issuer().sign(m.alg, "e30.e30")),
        SIGNATURE,
    ),
    (
        "signature over the decoded parts",
        |m| m.signed_by(m.header(), |_| issuer().sign(m.alg, &format!("{}.{}", m.header(), m.claims()))),
        SIGNATURE,
    ),
    ("signature padded", |m| m.good() + "=", SIGNATURE),
    ("signature with a line end", |m| m.good() + "\n", SIGNATURE),
    (
        "signature in the standard alphabet",
        |m| {
            let (h, c, s) = m.parts();
            format!("{h}.{c}.{}+/", &s[..s.len() - 2])
        },
        SIGNATURE,
    ),
    ("signature with non-canonical last bits", last_bits, SIGNATURE),
    ("ES256 signature in DER", |m| m.signed_by(json!({ "alg": "ES256", "kid": "ES256" }), der_signature), ""),
    // Parts exchanged after signing.
    (
        "claims exchanged",
        |m| {
            let (h, _, s) = m.parts();
            let mut c = m.claims();
            c["sub"] = json!("admin");
            format!("{h}.{}.{s}", b64(c.to_string()))
        },
        SIGNATURE,
    ),
    (
        "claims exchanged and expired",
        |m| {
            let (h, _, s) = m.parts();
            format!("{h}.{}.{s}", b64(r#"{"exp":1}"#))
        },
        SIGNATURE,
    ),
    (
        "claims that are no JSON, unsigned",
        |m| {
            let (h, _, s) = m.parts();
            format!("{h}.{}.{s}", b64("{"))
        },
        SIGNATURE,
    ),
    (
        "header exchanged",
        |m| {
            let (_, c, s) = m.parts();
            format!("{}.{c}.{s}", b64(json!({ "alg": m.alg, "kid": m.alg }).to_string()))
        },
        SIGNATURE,
    ),
    (
        "header and claims exchanged for each other",
        |m| {
            let (h, c, s) = m.parts();
            format!("{c}.{h}.{s}")
        },
        ALG,
    ),
    // The shape.
    ("empty", |_| String::new(), SHAPE),
    ("one part", |m| m.parts().0, SHAPE),
    (
        "two parts",
        |m| {
            let (h, c, _) = m.parts();
            format!("{h}.{c}")
        },
        SHAPE,
    ),
    ("four parts", |m| m.good() + ".e30", SHAPE),
    ("five parts", |m| m.good() + ".e30.e30", SHAPE),
    ("a trailing dot", |m| m.good() + ".", SHAPE),
    ("a leading dot", |m| format!(".{}", m.good()), SHAPE),
    ("two dots", |_| "..".to_owned(), HEADER),
    ("an API key", |_| "tk_0123456789abcdef".to_owned(), SHAPE),
    ("a space in front", |m| format!(" {}", m.good()), HEADER),
    ("the scheme left in", |m| format!("Bearer {}", m.good()), HEADER),
    ("not ASCII", |m| format!("é{}", m.good()), HEADER),
    ("a NUL in front", |m| format!("\0{}", m.good()), HEADER),
    (
        "8 KiB and one byte",
        |m| {
            let t = m.good();
            format!("{t}{}", "A".repeat(8193 - t.len()))
        },
        LONG,
    ),
    ("a megabyte", |m| m.claim("pad", json!("x".repeat(1 << 20))), LONG),
    // The header.
    (
        "header padded",
        |m| resigned(m, format!("{}=", b64(m.header().to_string())), b64(m.claims().to_string())),
        HEADER,
    ),
    (
        "header in the standard alphabet",
        |m| resigned(m, STANDARD_NO_PAD.encode(r#"{"alg":"HS256","x":"???>>>~~~"}"#), b64("{}")),
        HEADER,
    ),
    ("header a list", |m| m.raw("[]", m.claims().to_string()), HEADER),
    ("header a string", |m| m.raw("\"HS256\"", m.claims().to_string()), HEADER),
    ("header empty", |m| m.raw("", m.claims().to_string()), HEADER),
    ("header cut short", |m| m.raw(r#"{"alg":"HS256""#, m.claims().to_string()), HEADER),
    ("header followed by another", |m| m.raw(format!("{0}{0}", m.header()), m.claims().to_string()), HEADER),
    (
        "header with a byte order mark",
        |m| m.raw(format!("\u{feff}{}", m.header()), m.claims().to_string()),
        HEADER,
    ),
    (
        "header not UTF-8",
        |m| m.raw([b"{\"alg\":\"".as_slice(), &[0xff], b"\"}"].concat(), m.claims().to_string()),
        HEADER,
    ),
    (
        "alg twice, none last",
        |m| m.raw(format!(r#"{{"alg":"{}","alg":"none"}}"#, m.alg), m.claims().to_string()),
        HEADER,
    ),
    (
        "alg twice, none first",
        |m| m.raw(format!(r#"{{"alg":"none","alg":"{}"}}"#, m.alg), m.claims().to_string()),
        HEADER,
    ),
    (
        "alg twice, once escaped",
        |m| m.raw(format!(r#"{{"\u0061lg":"none","alg":"{}"}}"#, m.alg), m.claims().to_string()),
        HEADER,
    ),
    (
        "kid twice",
        |m| m.raw(format!(r#"{{"alg":"{0}","kid":"{0}","kid":"x"}}"#, m.alg), m.claims().to_string()),
        HEADER,
    ),
    (
        "header nested too deep",
        |m| {
            m.raw(
                format!(r#"{{"alg":"{}","x":{}1{}}}"#, m.alg, "[".repeat(200), "]".repeat(200)),
                m.claims().to_string(),
            )
        },
        HEADER,
    ),
    // The claims as JSON, genuinely signed.
    ("claims a list", |m| m.raw(m.header().to_string(), "[]"), CLAIMS),
    ("claims a string", |m| m.raw(m.header().to_string(), "\"user-1\""), CLAIMS),
    ("claims null", |m| m.raw(m.header().to_string(), "null"), CLAIMS),
    ("claims empty", |m| m.raw(m.header().to_string(), ""), CLAIMS),
    ("claims cut short", |m| m.raw(m.header().to_string(), &m.claims().to_string()[1..]), CLAIMS),
    ("claims followed by junk", |m| m.raw(m.header().to_string(), format!("{}x", m.claims())), CLAIMS),
    (
        "claims padded",
        |m| resigned(m, b64(m.header().to_string()), format!("{}=", b64(m.claims().to_string()))),
        CLAIMS,
    ),
    ("claims not UTF-8", |m| m.raw(m.header().to_string(), b"{\"sub\":\"\xff\"}"), CLAIMS),
    ("sub twice", |m| m.text(r#""sub":"admin""#), CLAIMS),
    ("sub twice, once escaped", |m| m.text(r#""s\u0075b":"admin""#), CLAIMS),
    ("exp twice", |m| m.text(r#""exp":99999999999"#), CLAIMS),
    ("org_id twice", |m| m.text(r#""org_id":"other""#), CLAIMS),
    ("an unknown claim twice", |m| m.text(r#""x":1,"x":1"#), CLAIMS),
    ("a key twice within a claim", |m| m.text(r#""x":{"y":1,"y":2}"#), CLAIMS),
    ("a lone surrogate", |m| m.text(r#""x":"\ud800""#), CLAIMS),
    ("a NUL", |m| m.text(r#""x":"\u0000""#), CLAIMS),
    ("nested too deep", |m| m.text(&format!(r#""x":{}1{}"#, "[".repeat(200), "]".repeat(200))), CLAIMS),
    ("NaN", |m| m.text(r#""x":NaN"#), CLAIMS),
    ("a number beyond range", |m| m.text(r#""x":1e999"#), CLAIMS),
    // The times.
    ("exp missing", |m| m.without("exp"), "exp is missing"),
    ("exp null", |m| m.claim("exp", json!(null)), "exp is not a number"),
    ("exp a string", |m| m.claim("exp", json!((NOW + 600).to_string())), "exp is not a number"),
    ("exp an empty string", |m| m.claim("exp", json!("")), "exp is not a number"),
    ("exp a date", |m| m.claim("exp", json!("2099-01-01T00:00:00Z")), "exp is not a number"),
    ("exp true", |m| m.claim("exp", json!(true)), "exp is not a number"),
    ("exp a list", |m| m.claim("exp", json!([NOW + 600])), "exp is not a number"),
    ("exp an object", |m| m.claim("exp", json!({ "at": NOW + 600 })), "exp is not a number"),
    (
        "exp in another case",
        |m| {
            let mut c = m.claims();
            let exp = c["exp"].take();
            c.as_object_mut().unwrap().remove("exp");
            c["Exp"] = exp;
            m.raw(m.header().to_string(), c.to_string())
        },
        "exp is missing",
    ),
    ("exp an hour ago", |m| m.claim("exp", json!(NOW - 3600)), "exp has passed"),
    ("exp a second ago", |m| m.claim("exp", json!(NOW - 1)), "exp has passed"),
    ("exp this moment", |m| m.claim("exp", json!(NOW)), "exp has passed"),
    ("exp zero", |m| m.claim("exp", json!(0)), "exp has passed"),
    ("exp negative", |m| m.claim("exp", json!(-1)), "exp has passed"),
    ("exp the least number", |m| m.claim("exp", json!(i64::MIN)), "exp has passed"),
    ("exp the most negative float", |m| m.claim("exp", json!(f64::MIN)), "exp has passed"),
    ("nbf tomorrow", |m| m.claim("nbf", json!(NOW + 86_400)), "nbf is still to come"),
    ("nbf just beyond the leeway", |m| m.claim("nbf", json!(NOW as f64 + 30.001)), "nbf is still to come"),
    ("nbf the greatest float", |m| m.claim("nbf", json!(f64::MAX)), "nbf is still to come"),
    ("nbf a string", |m| m.claim("nbf", json!("0")), "nbf is not a number"),
    ("nbf null", |m| m.claim("nbf", json!(null)), "nbf is not a number"),
    ("nbf false", |m| m.claim("nbf", json!(false)), "nbf is not a number"),
    ("iat a string", |m| m.claim("iat", json!(NOW.to_string())), "iat is not a number"),
    ("iat null", |m| m.claim("iat", json!(null)), "iat is not a number"),
    ("iat an object", |m| m.claim("iat", json!({})), "iat is not a number"),
    // The names.
    ("sub missing", |m| m.without("sub"), "sub is missing"),
    ("sub null", |m| m.claim("sub", json!(null)), "sub is not a text"),
    ("sub empty", |m| m.claim("sub", json!("")), "sub is not a text"),
    ("sub a number", |m| m.claim("sub", json!(1)), "sub is not a text"),
    ("sub a list", |m| m.claim("sub", json!(["user-1"])), "sub is not a text"),
    ("sub an object", |m| m.claim("sub", json!({ "id": "user-1" })), "sub is not a text"),
    ("sub of 256 characters", |m| m.claim("sub", json!("é".repeat(256))), "sub is not a text"),
    ("sub with a line end", |m| m.claim("sub", json!("user-1\nadmin")), "sub is not a text"),
    ("sub with DEL", |m| m.claim("sub", json!("user-1\u{7f}")), "sub is not a text"),
    ("sub with a C1 control", |m| m.claim("sub", json!("user-1\u{85}")), "sub is not a text"),
    ("org_id missing", |m| m.without("org_id"), "org_id is missing"),
    ("org_id null", |m| m.claim("org_id", json!(null)), "org_id is not a text"),
    ("org_id empty", |m| m.claim("org_id", json!("")), "org_id is not a text"),
    ("org_id a number", |m| m.claim("org_id", json!(7)), "org_id is not a text"),
    ("org_id a list", |m| m.claim("org_id", json!(["org-1"])), "org_id is not a text"),
    ("org_id of 256 characters", |m| m.claim("org_id", json!("o".repeat(256))), "org_id is not a text"),
    ("org_id with a tab", |m| m.claim("org_id", json!("org\t1")), "org_id is not a text"),
    // Whom it is from and for.
    ("iss missing", |m| m.without("iss"), "iss"),
    ("iss of another", |m| m.claim("iss", json!("https://evil.test/")), "iss"),
    ("iss without its slash", |m| m.claim("iss", json!("https://issuer.test")), "iss"),
    ("iss in upper case", |m| m.claim("iss", json!(ISSUER.to_uppercase())), "iss"),
    ("iss a list", |m| m.claim("iss", json!([ISSUER])), "iss"),
    ("iss null", |m| m.claim("iss", json!(null)), "iss"),
    ("aud missing", |m| m.without("aud"), "aud"),
    ("aud of another", |m| m.claim("aud", json!("other")), "aud"),
    ("aud a longer name", |m| m.claim("aud", json!("threadkeep-admin")), "aud"),
    ("aud a shorter name", |m| m.claim("aud", json!("thread")), "aud"),
    ("aud empty", |m| m.claim("aud", json!("")), "aud"),
    ("aud an empty list", |m| m.claim("aud", json!([])), "aud"),
    ("aud a list of others", |m| m.claim("aud", json!(["a", "b"])), "aud"),
    ("aud a list that is not all text", |m| m.claim("aud", json!([AUDIENCE, 1])), "aud"),
    ("aud a list in a list", |m| m.claim("aud", json!([[AUDIENCE]])), "aud"),
    ("aud an object", |m| m.claim("aud", json!({ "threadkeep": true })), "aud"),
    ("aud null", |m| m.claim("aud", json!(null)), "aud"),
];

/// Refused where the key comes from the set by `kid`. A shared secret has no `kid`.
pub(super) const FORGED_KID: &[(&str, Forge, &str)] = &[
    ("kid unknown", |m| m.head("kid", json!("unknown")), "kid"),
    ("kid empty", |m| m.head("kid", json!("")), "kid"),
    ("kid a number", |m| m.head("kid", json!(1)), "kid"),
    ("kid null", |m| m.head("kid", json!(null)), "kid"),
    ("kid a list", |m| m.head("kid", json!([m.alg])), "kid"),
    ("kid in lower case", |m| m.head("kid", json!(m.alg.to_lowercase())), "kid"),
    ("kid a path", |m| m.head("kid", json!(format!("../{}", m.alg))), "kid"),
    ("kid a device", |m| m.head("kid", json!("/dev/null")), "kid"),
    ("kid an address", |m| m.head("kid", json!("http://127.0.0.1:9/keys")), "kid"),
    ("kid a query", |m| m.head("kid", json!("x' OR '1'='1")), "kid"),
    ("kid of a key of another type", |m| m.head("kid", json!(other(m.alg))), "not that of the key"),
    ("kid missing, many keys", |m| m.raw(json!({ "alg": m.alg }).to_string(), m.claims().to_string()), "kid"),
    ("alg of another key", |m| m.head("alg", json!(other(m.alg))), "not that of the key"),
    (
        "alg and kid of another key",
        |m| m.raw(json!({ "alg": other(m.alg), "kid": other(m.alg) }).to_string(), m.claims().to_string()),
        SIGNATURE,
    ),
    (
        "HS256 with the kid of a public key",
        |m| {
            m.signed_by(json!({ "alg": "HS256", "kid": m.alg }), |t| {
                mac(hmac::HMAC_SHA256, &issuer().jwk(m.alg).to_string().into_bytes(), t.as_bytes())
            })
        },
        "",
    ),
];

fn other(alg: &str) -> &'static str {
    match alg {
        "RS256" => "ES256",
        "ES256" => "EdDSA",
        _ => "RS256",
    }
}

fn public_key_as_secret(mint: &Mint, secret: impl FnOnce(&Keys) -> Vec<u8>) -> String {
    let header = json!({ "alg": "HS256", "typ": "JWT", "kid": mint.alg });
    mint.signed_by(header, |text| mac(hmac::HMAC_SHA256, &secret(issuer()), text.as_bytes()))
}

fn sign_as_stranger(mint: &Mint, text: &str) -> Vec<u8> {
    match mint.alg {
        "HS256" => mac(hmac::HMAC_SHA256, b"another secret, as long as it has to be", text.as_bytes()),
        alg => stranger().sign(alg, text),
    }
}

fn der_signature(text: &str) -> Vec<u8> {
    let pkcs8 = issuer().ec.to_pkcs8v1().unwrap();
    let pair = EcdsaKeyPair::from_pkcs8(&ECDSA_P256_SHA256_ASN1_SIGNING, pkcs8.as_ref()).unwrap();
    pair.sign(&SystemRandom::new(), text.as_bytes()).unwrap().as_ref().to_vec()
}

/// A genuine signature over parts that are given as they stand.
fn resigned(mint: &Mint, header: String, claims: String) -> String {
    let message = format!("{header}.{claims}");
    let signature = b64(issuer().sign(mint.alg, &message));
    format!("{message}.{signature}")
}

/// The same signature bytes under a second spelling: the last character's unused bits set.
fn last_bits(mint: &Mint) -> String {
    const ALPHABET: &[u8] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_";
    let mut token = mint.good();
    let last = token.pop().unwrap();
    let value = ALPHABET.iter().position(|c| *c == last as u8).unwrap();
    token.push(char::from(ALPHABET[value | 1]));
    token
}
