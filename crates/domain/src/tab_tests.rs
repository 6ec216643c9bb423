//! Tables of tabs and sub-paths, and traversal spelled in random ways.

use proptest::prelude::*;

use super::*;

const UUID: &str = "3a9c1e2d-44b7-4f0e-8c6a-2b1d3e5f7a9c";

fn tab(key: &str, destination: &str, sub_path: Option<&str>) -> Tab {
    Tab { key: key.into(), destination_id: destination.into(), sub_path: sub_path.map(Into::into) }
}

fn pointers(tabs: &[Tab], active: Option<&str>) -> Vec<String> {
    check_tabs(tabs, active, 50).into_iter().map(|fault| fault.pointer).collect()
}

#[test]
fn json_names_are_exact() {
    let text = format!(
        r#"[{{"key":"a","destinationId":"a"}},{{"key":"{UUID}","destinationId":"new_tab","subPath":"/x"}}]"#
    );
    let tabs: Vec<Tab> = serde_json::from_str(&text).unwrap();
    assert_eq!(tabs, [tab("a", "a", None), tab(UUID, "new_tab", Some("/x"))]);
    assert_eq!(serde_json::to_string(&tabs).unwrap(), text);
    for wrong in [
        r#"{"key":"a"}"#,
        r#"{"key":"a","destination_id":"a"}"#,
        r#"{"key":"a","destinationId":"a","extra":1}"#,
        r#"{"key":1,"destinationId":"a"}"#,
    ] {
        assert!(serde_json::from_str::<Tab>(wrong).is_err(), "{wrong}");
    }
}

#[test]
fn tabs_follow_the_rules() {
    let long = "x".repeat(65);
    let upper = UUID.to_uppercase();
    let bare = UUID.replace('-', "");
    let invoices = tab("invoices", "invoices", None);
    for (tabs, active, expected) in [
        (vec![], None, vec![]),
        (vec![invoices.clone(), tab(UUID, "new_tab", Some("/new-tab"))], Some("invoices"), vec![]),
        (vec![tab(UUID, "new_tab", None), tab(&upper, "new_tab", None)], Some(UUID), vec![]),
        (vec![invoices.clone()], None, vec![]),
        (vec![], Some("invoices"), vec!["/active_tab_key"]),
        (vec![invoices.clone()], Some("Invoices"), vec!["/active_tab_key"]),
        (vec![invoices.clone()], Some(""), vec!["/active_tab_key"]),
        (vec![invoices.clone(), invoices.clone()], None, vec!["/tabs/1/key"]),
        (vec![tab(UUID, "new_tab", None), tab(UUID, "new_tab", None)], None, vec!["/tabs/1/key"]),
        (vec![tab("new_tab", "new_tab", None)], None, vec!["/tabs/0/key"]),
        (vec![tab(&bare, "new_tab", None)], None, vec!["/tabs/0/key"]),
        (vec![tab(UUID, "invoices", None)], None, vec!["/tabs/0/key"]),
        (vec![tab(&long, &long, None)], None, vec!["/tabs/0/key"]),
        (vec![tab("", "", None)], None, vec!["/tabs/0/destinationId"]),
        (
            vec![tab("a", "a", Some("../b")), tab("b", "c", None)],
            None,
            vec!["/tabs/0/subPath", "/tabs/1/key"],
        ),
    ] {
        assert_eq!(pointers(&tabs, active), expected, "{tabs:?} {active:?}");
    }
}

#[test]
fn fifty_tabs_pass_and_one_more_does_not() {
    let tabs: Vec<Tab> = (0..51).map(|n| tab(&format!("t{n}"), &format!("t{n}"), None)).collect();
    assert_eq!(check_tabs(&tabs[..50], Some("t49"), 50), []);
    assert_eq!(pointers(&tabs, None), ["/tabs"]);
}

#[test]
fn safe_sub_paths_pass() {
    for path in [
        "",
        "/",
        "/workspaces/9f3e2d1a/new-tab",
        "records/invoices?x=1..2",
        "records?next=https%3A%2F%2Fexample.com%2Fa",
        "a..b/c",
        "...",
        "/..a/b../.c/./d",
        "file%20name",
        "100%",
        "100%25",
        "%2",
        "%zz/%",
        "a//b",
        "at/12:30",
        "12:30",
        "?q=a:b#c:d",
        "r%C3%A9sum%C3%A9/日本語 x",
        "./a",
    ] {
        assert_eq!(is_safe_sub_path(path), Ok(()), "{path:?}");
    }
    assert!(is_safe_sub_path(&"é".repeat(512)).is_ok());
    assert!(is_safe_sub_path(&"é".repeat(513)).is_err());
}

#[test]
fn unsafe_sub_paths_are_refused() {
    for path in [
        "..",
        "../a",
        "a/..",
        "/a/../b",
        "a\\..\\b",
        "..?x=1",
        "a/..#top",
        " ../a",
        "a/.. ",
        "\u{feff}../a",
        "%2e%2e/a",
        ".%2E/a",
        "%2e./a",
        "a%2f..%2fb",
        "a%5c..%5Cb",
        "%252e%252e%252fa",
        "%2e%252e/a",
        "a/%25%32%65%2e",
        "%25252e%25252e/a",
        "%c0%ae%c0%ae/a",
        "a%ff",
        ".\t./a",
        ".%09./a",
        "a\0b",
        "a%00b",
        "a%250ab",
        "a\u{7f}",
        "a\u{85}b",
        "https://example.com",
        "HTTP:x",
        "javascript:alert(1)",
        "java\nscript:alert(1)",
        "javascript%3Aalert(1)",
        "data%253A,x",
        " mailto:a@b",
        "web+x.y-z:1",
        "//host",
        "\\\\host",
        "/\\host",
        "\\/host",
        "%2f%2fhost",
        "/%2Fhost",
        "/%5chost",
        "%5c%255chost",
        " //host",
        "%20//host",
        "\t//host",
        "/\t/host",
        "///host",
        "/.//host",
        ".//host",
        "/././\\host",
    ] {
        assert!(is_safe_sub_path(path).is_err(), "{path:?}");
    }
}

/// The character as itself or percent-encoded up to three times, each hex digit in either case.
fn spelled(c: char) -> impl Strategy<Value = String> {
    (0usize..4, any::<bool>()).prop_map(move |(times, upper)| {
        let mut text = c.to_string();
        for layer in 0..times {
            text = if layer == 0 {
                let code = u32::from(c);
                if upper { format!("%{code:02X}") } else { format!("%{code:02x}") }
            } else {
                text.replace('%', "%25")
            };
        }
        text
    })
}

fn separator() -> impl Strategy<Value = String> {
    prop_oneof![spelled('/'), spelled('\\')]
}

/// A harmless segment: letters, digits, lone dots, escapes of harmless characters.
fn segment() -> impl Strategy<Value = String> {
    "([a-zé本0-9_~-]|%20|%C3%A9){1,6}([.]{1,3}[a-z0-9]{1,3})?"
}

proptest! {
    #[test]
    fn climbing_is_refused_however_it_is_spelled(
        before in prop::collection::vec((segment(), separator()), 0..4),
        dots in (spelled('.'), spelled('.')),
        after in prop::option::of((separator(), segment())),
    ) {
        let mut path: String = before.into_iter().map(|(segment, separator)| segment + &separator).collect();
        path.push_str(&dots.0);
        path.push_str(&dots.1);
        path.extend(after.map(|(separator, segment)| separator + &segment));
        prop_assert!(is_safe_sub_path(&path).is_err(), "{}", path);
    }

    #[test]
    fn protocol_relative_is_refused_however_it_is_spelled(
        blank in "[ \u{3000}]{0,2}", first in separator(), second in separator(), host in segment(),
    ) {
        let path = format!("{blank}{first}{second}{host}");
        prop_assert!(is_safe_sub_path(&path).is_err(), "{}", path);
    }

    #[test]
    fn safe_segments_pass(
        root in "/?", segments in prop::collection::vec(segment(), 0..8), query in "([?][a-z]{1,3}=[a-z0-9:]{0,4}([.]{2}[a-z0-9]|/[a-z0-9.]{0,3}[a-z]){0,2})?",
    ) {
        let path = format!("{root}{}{query}", segments.join("/"));
        prop_assert_eq!(is_safe_sub_path(&path), Ok(()), "{}", path);
    }

    #[test]
    fn no_text_panics(path in ".{0,40}") {
        let _ = is_safe_sub_path(&path);
    }
}
