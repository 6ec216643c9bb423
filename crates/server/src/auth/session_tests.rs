//! What was sealed opens, and nothing else does.

use axum::http::HeaderValue;
use proptest::prelude::*;

use super::*;

const NOW: i64 = 1_778_749_956_000;

fn secret() -> Secret {
    Secret::new("the server's secret")
}

fn session() -> Session {
    Session { user: "user-1".into(), org: "org-1".into(), expires_at: from_ms(NOW + 60_000) }
}

fn open(text: &str) -> Option<Session> {
    Session::open(text, &secret(), from_ms(NOW))
}

fn headers(lines: &[(&'static str, &str)]) -> HeaderMap {
    let mut headers = HeaderMap::new();
    for (name, value) in lines {
        headers.append(*name, HeaderValue::from_str(value).unwrap());
    }
    headers
}

#[test]
fn every_flipped_bit_and_every_other_character_is_refused() {
    let sealed = session().seal(&secret());
    assert_eq!(open(&sealed), Some(session()));
    let bytes = URL_SAFE_NO_PAD.decode(&sealed).unwrap();
    for at in 0..bytes.len() {
        for bit in 0..8 {
            let mut bytes = bytes.clone();
            bytes[at] ^= 1 << bit;
            assert_eq!(open(&URL_SAFE_NO_PAD.encode(bytes)), None, "bit {bit} of byte {at}");
        }
    }
    for at in 0..sealed.len() {
        for other in ["A", "B", "_", "=", "+", "", " ", "é"] {
            let text = format!("{}{other}{}", &sealed[..at], &sealed[at + 1..]);
            assert!(text == sealed || open(&text).is_none(), "{other:?} at {at}");
        }
    }
}

#[test]
fn cut_extended_and_foreign_texts_are_refused() {
    let sealed = session().seal(&secret());
    for end in 0..sealed.len() {
        assert_eq!(open(&sealed[..end]), None, "cut at {end}");
    }
    let bytes = URL_SAFE_NO_PAD.decode(&sealed).unwrap();
    let zeros = URL_SAFE_NO_PAD.encode([0u8; 32]);
    let longer = URL_SAFE_NO_PAD.encode([bytes.as_slice(), b"x"].concat());
    let boot = Uuid::from_u128(1);
    for text in
        [&format!("{sealed}A"), &format!("{sealed}="), &zeros, &longer, &login_ticket(&secret(), boot)]
    {
        assert_eq!(open(text), None, "{text}");
    }
    for other in ["", "the server's secre", "the server's secret ", "The server's secret"] {
        assert_eq!(Session::open(&sealed, &Secret::new(other), from_ms(NOW)), None, "{other:?}");
    }
}

#[test]
fn genuine_signatures_over_other_shapes_are_refused() {
    let sign = |body: &str| {
        let mac = keyed(&secret(), SESSION_USE).chain_update(body).finalize().into_bytes();
        URL_SAFE_NO_PAD.encode([body.as_bytes(), mac.as_slice()].concat())
    };
    let later = NOW + 1000;
    assert!(open(&sign(&format!("[1,\"u\",\"o\",{later}]"))).is_some());
    for body in [
        format!("[0,\"u\",\"o\",{later}]"),
        format!("[2,\"u\",\"o\",{later}]"),
        format!("[1,\"u\",{later}]"),
        format!("[1,\"u\",\"o\",{later},0]"),
        format!("[1,\"u\",\"o\",\"{later}\"]"),
        String::new(),
    ] {
        assert_eq!(open(&sign(&body)), None, "{body}");
    }
    let under_another_use = keyed(&secret(), TICKET_USE).chain_update(format!("[1,\"u\",\"o\",{later}]"));
    let text =
        [format!("[1,\"u\",\"o\",{later}]").as_bytes(), &under_another_use.finalize().into_bytes()].concat();
    assert_eq!(open(&URL_SAFE_NO_PAD.encode(text)), None);
}

#[test]
fn a_session_ends_at_its_time() {
    let sealed = session().seal(&secret());
    assert!(Session::open(&sealed, &secret(), from_ms(NOW + 59_999)).is_some());
    assert!(Session::open(&sealed, &secret(), from_ms(NOW + 60_000)).is_none());
}

#[test]
fn the_cookie_text_is_exact() {
    let sealed = session().seal(&secret());
    let plain = format!("threadkeep_session={sealed}; Path=/; Max-Age=60; HttpOnly; SameSite=Lax");
    let table = [
        ("http://127.0.0.1:8080", plain.clone()),
        ("https://chat.example", format!("{plain}; Secure")),
        ("HTTPS://chat.example", format!("{plain}; Secure")),
        ("http://https.example", plain.clone()),
        ("http://é", plain),
    ];
    for (url, expected) in table {
        assert_eq!(session().set_cookie(&secret(), from_ms(NOW), url), expected, "{url}");
    }
    let ended = session().set_cookie(&secret(), from_ms(NOW + 999_999), "http://h");
    assert!(ended.contains("; Max-Age=0;"), "{ended}");
    assert_eq!(
        clear_cookie("https://h"),
        "threadkeep_session=; Path=/; Max-Age=0; HttpOnly; SameSite=Lax; Secure"
    );
}

#[test]
fn the_longest_names_fit_a_cookie() {
    let longest = Session { user: "\u{10ffff}".repeat(255), org: "\u{10ffff}".repeat(255), ..session() };
    assert!(longest.set_cookie(&secret(), from_ms(NOW), "https://h").len() < 4096);
}

#[test]
fn the_cookie_is_found_among_others() {
    let good = format!("threadkeep_session={}", session().seal(&secret()));
    let found: &[&[(&'static str, &str)]] = &[
        &[("cookie", &good)],
        &[("cookie", &format!("a=b; {good}; c"))],
        &[("cookie", &format!("a=b;{good}"))],
        &[("cookie", "a=b"), ("cookie", &good)],
        &[("cookie", &format!("threadkeep_session=of-another-port; {good}"))],
    ];
    for lines in found {
        assert_eq!(
            Session::from_headers(&headers(lines), &secret(), from_ms(NOW)),
            Some(session()),
            "{lines:?}"
        );
    }
    let missing: &[&[(&'static str, &str)]] = &[
        &[],
        &[("cookie", "")],
        &[("cookie", "threadkeep_session")],
        &[("cookie", "threadkeep_session=")],
        &[("cookie", &format!("x{good}"))],
        &[("cookie", &good.replacen("threadkeep_session", "Threadkeep_Session", 1))],
        &[("x-cookie", &good)],
    ];
    for lines in missing {
        assert_eq!(Session::from_headers(&headers(lines), &secret(), from_ms(NOW)), None, "{lines:?}");
    }
}

#[test]
fn a_ticket_is_good_for_one_start_under_one_secret() {
    let (boot, next) = (Uuid::from_u128(1), Uuid::from_u128(2));
    let ticket = login_ticket(&secret(), boot);
    assert_eq!(ticket.len(), 43);
    assert!(check_login_ticket(&ticket, &secret(), boot));
    assert!(!check_login_ticket(&ticket, &secret(), next));
    assert!(!check_login_ticket(&ticket, &Secret::new("another"), boot));
    for end in 0..ticket.len() {
        assert!(!check_login_ticket(&ticket[..end], &secret(), boot), "cut at {end}");
        let other = if &ticket[end..=end] == "A" { "B" } else { "A" };
        let changed = format!("{}{other}{}", &ticket[..end], &ticket[end + 1..]);
        assert!(!check_login_ticket(&changed, &secret(), boot), "changed at {end}");
    }
    assert!(!check_login_ticket(&format!("{ticket}A"), &secret(), boot));
    assert!(!check_login_ticket(&session().seal(&secret()), &secret(), boot));
}

#[test]
fn only_our_own_pages_may_use_the_cookie_for_unsafe_requests() {
    let ours = ["http://127.0.0.1:8080".to_owned(), "https://chat.example".to_owned()];
    let origin = |value: &str| same_origin(&headers(&[("origin", value)]), &ours);
    assert!(origin("http://127.0.0.1:8080"));
    assert!(origin("https://chat.example"));
    for foreign in [
        "null",
        "",
        "*",
        "https://evil.example",
        "https://chat.example.evil.example",
        "https://evil-chat.example",
        "https://sub.chat.example",
        "https://chat.example:8443",
        "https://chat.example/",
        "https://chat.example https://evil.example",
        "HTTPS://CHAT.EXAMPLE",
        "http://chat.example",
        "http://127.0.0.1",
        "http://127.0.0.1:80800",
        "http://localhost:8080",
        "chat.example",
    ] {
        assert!(!origin(foreign), "{foreign:?}");
        let both = headers(&[("origin", foreign), ("sec-fetch-site", "same-origin")]);
        assert!(!same_origin(&both, &ours), "{foreign:?} with Sec-Fetch-Site");
    }
    let twice = headers(&[("origin", "https://chat.example"), ("origin", "https://evil.example")]);
    assert!(!same_origin(&twice, &ours));
    assert!(!same_origin(&headers(&[("origin", "null")]), &["null".to_owned()]));

    assert!(same_origin(&headers(&[("sec-fetch-site", "same-origin")]), &ours));
    for site in ["same-site", "cross-site", "none", "", "Same-Origin", "same-origin, cross-site"] {
        assert!(!same_origin(&headers(&[("sec-fetch-site", site)]), &ours), "{site:?}");
    }
    let twice = headers(&[("sec-fetch-site", "same-origin"), ("sec-fetch-site", "cross-site")]);
    assert!(!same_origin(&twice, &ours));
    assert!(!same_origin(&HeaderMap::new(), &ours));
}

proptest! {
    #[test]
    fn what_was_sealed_opens_as_it_was(
        user in any::<String>(), org in any::<String>(), left in 1i64..4_000_000_000_000, key in any::<String>(),
    ) {
        let session = Session { user, org, expires_at: from_ms(NOW + left) };
        let key = Secret::new(key);
        let sealed = session.seal(&key);
        prop_assert!(sealed.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'-' || b == b'_'));
        prop_assert_eq!(Session::open(&sealed, &key, from_ms(NOW)), Some(session.clone()));
        prop_assert_eq!(Session::open(&sealed, &key, session.expires_at), None);
    }

    #[test]
    fn text_from_anywhere_never_opens(text in any::<String>(), bytes in any::<Vec<u8>>()) {
        prop_assert_eq!(open(&text), None);
        prop_assert_eq!(open(&URL_SAFE_NO_PAD.encode(bytes)), None);
    }

    #[test]
    fn names_cannot_shift_into_each_other(a in "[a-c\",\\[\\]\\\\]{0,6}", b in "[a-c\",\\[\\]\\\\]{0,6}", cut in 0usize..12) {
        let joined = format!("{a}{b}");
        let cut = cut.min(joined.len());
        let one = Session { user: a.clone(), org: b, ..session() };
        let two = Session { user: joined[..cut].to_owned(), org: joined[cut..].to_owned(), ..session() };
        prop_assert_eq!(one == two, one.seal(&secret()) == two.seal(&secret()));
    }
}
