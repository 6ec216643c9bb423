//! Links: what was sealed opens until its time, and nothing else ever does.

use base64::Engine as _;
use base64::engine::general_purpose::{STANDARD_NO_PAD, URL_SAFE, URL_SAFE_NO_PAD};

use super::*;
use crate::grant::{Grant, GrantKind};

const NOW: i64 = 1_700_000_000_000;
const LATER: i64 = NOW + 300_000;

fn secret() -> Secret {
    Secret::new("a secret of the installation")
}

fn assets() -> AssetsLink {
    AssetsLink {
        workspace: Uuid::from_u128(0xfbef_0001),
        run: Uuid::from_u128(0xfbff_0002),
        expires_at_ms: LATER,
        manifest: manifest_of([(Uuid::from_u128(3), [0xfb; 32])]),
    }
}

fn upload() -> UploadLink {
    UploadLink {
        workspace: Uuid::from_u128(0xfbef_0001),
        file: Uuid::from_u128(0xfbff_0002),
        size: 49 << 20,
        sha256: [0xfb; 32],
        expires_at_ms: LATER,
    }
}

/// Texts that say the same to a careless reader, or nearly.
fn changes(token: &str) -> Vec<String> {
    let (prefix, encoded) = token.split_at(4);
    let bytes = URL_SAFE_NO_PAD.decode(encoded).unwrap();
    let again = |bytes: &[u8]| format!("{prefix}{}", URL_SAFE_NO_PAD.encode(bytes));
    let mut out = vec![String::new(), prefix.into(), encoded.into(), format!("{token}{token}"), again(&[])];
    for at in 0..bytes.len() {
        for bit in 0..8 {
            let mut changed = bytes.clone();
            changed[at] ^= 1 << bit;
            out.push(again(&changed));
        }
        out.extend([again(&bytes[..at]), again(&bytes[at..][1..])]);
    }
    for (at, c) in token.char_indices() {
        let (before, rest) = (&token[..at], &token[at + 1..]);
        let twin = if c.is_ascii_uppercase() { c.to_ascii_lowercase() } else { c.to_ascii_uppercase() };
        let swapped = if c == 'A' { 'B' } else { 'A' };
        for other in [twin, swapped, '=', ' ', '+', '/', '.', '\0', 'é'] {
            if other != c {
                out.push(format!("{before}{other}{rest}"));
            }
        }
        out.push(format!("{before}%{:02X}{rest}", u32::from(c)));
        out.push(format!("{before}%{:02x}{rest}", u32::from(c)));
        out.push(format!("{before}{rest}"));
        out.push(before.to_owned());
        out.push(format!("{before}\n{}", &token[at..]));
    }
    let after =
        ["=", "==", "A", "AA", "AAAA", "\0", "\n", " ", "%00", "%3D", "&sig=", "?", "/", ",", ".", "#"];
    out.extend(after.map(|end| format!("{token}{end}")));
    out.extend([" ", "\n", "\u{feff}", "/", "%20"].map(|start| format!("{start}{token}")));
    out.extend([
        format!("{prefix}{}", URL_SAFE.encode(&bytes)),
        format!("{prefix}{}", STANDARD_NO_PAD.encode(&bytes)),
    ]);
    out.extend([
        token.to_uppercase(),
        token.to_lowercase(),
        token.replace('_', "%5F"),
        token.replace('-', "+"),
    ]);
    out.extend([again(&[&bytes[..], &[0]].concat()), again(&[&[0], &bytes[..]].concat())]);
    // Two fields of one length changed for one another, and stray bits in the last character.
    out.push(again(&[&bytes[16..32], &bytes[..16], &bytes[32..]].concat()));
    let alphabet = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_";
    out.extend(alphabet.chars().map(|last| format!("{}{last}", &token[..token.len() - 1])));
    out.retain(|text| text != token);
    out
}

#[test]
fn no_changed_link_opens() {
    let (assets_token, upload_token) = (assets().seal(&secret()), upload().seal(&secret()));
    assert_eq!(AssetsLink::open(&assets_token, &secret(), NOW), Ok(assets()));
    assert_eq!(UploadLink::open(&upload_token, &secret(), NOW), Ok(upload()));
    for token in [&assets_token, &upload_token] {
        let changes = changes(token);
        assert!(changes.len() > 1000, "{}", changes.len());
        for text in changes {
            assert_eq!(AssetsLink::open(&text, &secret(), NOW), Err(LinkError::Forged), "{text:?}");
            assert_eq!(UploadLink::open(&text, &secret(), NOW), Err(LinkError::Forged), "{text:?}");
        }
    }
}

#[test]
fn a_token_is_safe_in_a_path_and_in_a_query() {
    for token in [assets().seal(&secret()), upload().seal(&secret())] {
        assert!(
            token.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'-' || byte == b'_'),
            "{token}"
        );
    }
}

#[test]
fn a_link_serves_its_own_use_under_its_own_secret() {
    let run =
        Grant { kind: GrantKind::Upload, workspace: assets().workspace, run: assets().run, fence: LATER };
    let others = [GrantKind::Config, GrantKind::Upload, GrantKind::Model].map(|kind| Grant { kind, ..run });
    let mut foreign: Vec<String> = others.iter().map(|grant| grant.seal(&secret())).collect();
    foreign.extend(
        ["", "another", "a secret of the installation "].map(|other| assets().seal(&Secret::new(other))),
    );
    foreign.extend(
        ["", "another", "a secret of the installation "].map(|other| upload().seal(&Secret::new(other))),
    );
    let swap = |token: String, prefix: &str| format!("{prefix}{}", &token[4..]);
    foreign.extend(["tku_", "tkr_", "tkA_", ""].map(|prefix| swap(assets().seal(&secret()), prefix)));
    foreign.extend(["tka_", "tkr_", "tkU_", ""].map(|prefix| swap(upload().seal(&secret()), prefix)));
    // The body of one kind under the key of the other, as long as the other's.
    let mut body = [assets().workspace.as_bytes().as_slice(), assets().run.as_bytes()].concat();
    body.extend(LATER.to_be_bytes());
    body.extend(assets().manifest);
    foreign.push(sealed("tka_", UploadLink::LABEL, &body, &secret()));
    foreign.push(sealed("tka_", GrantKind::Config.label(), &body, &secret()));
    body.extend(LATER.to_be_bytes());
    foreign.push(sealed("tku_", AssetsLink::LABEL, &body, &secret()));
    foreign.push(sealed("tka_", AssetsLink::LABEL, &body, &secret()));
    for text in &foreign {
        assert_eq!(AssetsLink::open(text, &secret(), NOW), Err(LinkError::Forged), "{text}");
        assert_eq!(UploadLink::open(text, &secret(), NOW), Err(LinkError::Forged), "{text}");
    }
    for kind in [GrantKind::Config, GrantKind::Upload, GrantKind::Model] {
        assert_eq!(Grant::open(&assets().seal(&secret()), kind, &secret()), None);
        assert_eq!(Grant::open(&upload().seal(&secret()), kind, &secret()), None);
    }
}

#[test]
fn a_link_ends_at_its_time() {
    for (expires_at_ms, now, expected) in [
        (LATER, LATER - 1, None),
        (LATER, LATER, Some(LinkError::Expired)),
        (LATER, LATER + 1, Some(LinkError::Expired)),
        (LATER, i64::MAX, Some(LinkError::Expired)),
        (i64::MAX, i64::MAX, Some(LinkError::Expired)),
        (i64::MAX, i64::MIN, None),
        (i64::MIN, i64::MIN, Some(LinkError::Expired)),
        (i64::MIN, NOW, Some(LinkError::Expired)),
        (0, NOW, Some(LinkError::Expired)),
        (-1, NOW, Some(LinkError::Expired)),
    ] {
        let token = AssetsLink { expires_at_ms, ..assets() }.seal(&secret());
        assert_eq!(AssetsLink::open(&token, &secret(), now).err(), expected, "{expires_at_ms} at {now}");
        let token = UploadLink { expires_at_ms, ..upload() }.seal(&secret());
        assert_eq!(UploadLink::open(&token, &secret(), now).err(), expected, "{expires_at_ms} at {now}");
    }
    // One that is both forged and old says nothing of its time.
    let old = AssetsLink { expires_at_ms: 0, ..assets() }.seal(&Secret::new("another"));
    assert_eq!(AssetsLink::open(&old, &secret(), NOW), Err(LinkError::Forged));
}

#[test]
fn a_manifest_stands_for_these_files_in_this_order() {
    let [a, b] = [(Uuid::from_u128(1), [1; 32]), (Uuid::from_u128(2), [2; 32])];
    let lists = [
        vec![],
        vec![a],
        vec![b],
        vec![a, b],
        vec![b, a],
        vec![a, a],
        vec![(a.0, b.1)],
        vec![(b.0, a.1)],
        vec![(a.0, b.1), (b.0, a.1)],
    ];
    let manifests: std::collections::HashSet<_> =
        lists.iter().map(|list| manifest_of(list.clone())).collect();
    assert_eq!(manifests.len(), lists.len());
    assert_eq!(manifest_of([a, b]), manifest_of(vec![a, b]));
}
