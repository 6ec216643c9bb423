//! What is found in files of each shape, whole and broken.

use std::io::BufReader;

use proptest::prelude::*;

use super::*;

fn scan(text: &[u8], limit: usize) -> Vec<(Place, Found)> {
    // A buffer of a few bytes, so that everything is cut somewhere.
    let mut scan = Scan::with_limit(BufReader::with_capacity(3, text), limit);
    let mut all = Vec::new();
    while let Some(found) = scan.next().unwrap() {
        all.push(found);
        assert!(all.len() < 1000, "it does not end");
    }
    all
}

fn texts(text: &str) -> Vec<String> {
    let shown = |(_, found)| match found {
        Found::Text(text) => text.trim().to_owned(),
        Found::Bad(reason) => format!("bad: {reason}"),
        Found::Broken(reason) => format!("broken: {reason}"),
    };
    scan(text.as_bytes(), 64).into_iter().map(shown).collect()
}

#[test]
fn elements_lines_and_documents_are_told_apart() {
    for (text, expected) in [
        ("", &[][..]),
        (" \n ", &[]),
        ("[]", &[]),
        (" [ ] \n", &[]),
        ("\u{feff}[1]", &["1"]),
        (
            r#"[{"a":"]},{"},  {"b":["\"",2]} ,3,"x",null]"#,
            &[r#"{"a":"]},{"}"#, r#"{"b":["\"",2]}"#, "3", "\"x\"", "null"],
        ),
        ("{\"a\":1}\n\n{\"b\":2}\r\n{\"c\":3}", &[r#"{"a":1}"#, r#"{"b":2}"#, r#"{"c":3}"#]),
        ("{\n \"a\": 1\n}\n", &["{\n \"a\": 1\n}"]),
        ("{\"a\":1}", &[r#"{"a":1}"#]),
        // A broken line costs itself alone.
        ("{\"a\":}\n{\"b\":2}\n{\"c\"\n", &[r#"{"a":}"#, r#"{"b":2}"#, r#"{"c""#]),
    ] {
        assert_eq!(texts(text), expected, "{text}");
    }
}

#[test]
fn a_broken_array_gives_what_is_before_and_says_where_it_broke() {
    for (text, before, reason) in [
        ("[", 0, "ends within its array"),
        ("[1,", 1, "ends within its array"),
        ("[{\"a\":1},{\"b\":", 1, "ends within this one"),
        ("[{\"a\":1},{\"b\":\"}", 1, "ends within this one"),
        ("[1}", 1, "not whole"),
        ("[{}{}]", 1, "neither a comma"),
        ("[,1]", 0, "missing"),
        ("[1]x", 1, "after the array"),
        ("[1,]", 1, "missing"),
        ("[] []", 0, "after the array"),
    ] {
        let found = texts(text);
        let (last, good) = found.split_last().unwrap();
        assert!(last.starts_with("broken: ") && last.contains(reason), "{text}: {found:?}");
        assert_eq!(good.len(), before, "{text}: {found:?}");
    }
    let found = texts("{\n\"a\": \n");
    assert_eq!(found, ["{\n\"a\":"], "a document is judged by its parser");
}

#[test]
fn what_is_too_large_is_passed_over_and_the_rest_is_read() {
    let large = "x".repeat(100);
    for (text, what) in [
        (format!("[\"{large}\",{{\"a\":1}}]"), "an element of the array may have"),
        (format!("{{\"b\":\"{large}\"}}\n{{\"a\":1}}\n"), "a line may have"),
    ] {
        let found = texts(&text);
        assert!(found[0].starts_with("bad: it has more than") && found[0].contains(what), "{found:?}");
        assert_eq!(found[1], r#"{"a":1}"#);
    }
    let document = texts(&format!("{{\n\"b\":\"{large}\"\n}}\n"));
    assert!(document.len() == 1 && document[0].starts_with("broken: it has more than"), "{document:?}");
    assert!(document[0].ends_with("or JSON Lines"), "{document:?}");
}

#[test]
fn places_are_those_of_the_file() {
    let found = scan(b"[\n {\"a\":\n1},\n  2]", 64);
    let places: Vec<(u64, u64, u64)> =
        found.iter().map(|(place, _)| (place.line, place.byte, place.number)).collect();
    assert_eq!(places, [(2, 3, 1), (4, 15, 2)]);
    let found = scan(b"{}\n\n{\"b\":\xff}\n", 64);
    assert_eq!((found[1].0.line, found[1].0.byte, found[1].0.number), (3, 4, 2));
    assert!(matches!(&found[1].1, Found::Bad(reason) if reason.contains("UTF-8")), "{found:?}");
}

proptest! {
    #[test]
    fn any_bytes_come_to_an_end(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
        scan(&bytes, 16);
    }

    #[test]
    fn an_array_of_anything_is_found_again(values in proptest::collection::vec("\\PC{0,12}", 1..9)) {
        let texts: Vec<String> = values.iter().map(|value| serde_json::json!({ "v": [value] }).to_string()).collect();
        let array = format!("[{}]", texts.join(" ,\n"));
        let found: Vec<Found> = scan(array.as_bytes(), 4096).into_iter().map(|(_, found)| found).collect();
        prop_assert_eq!(found, texts.into_iter().map(Found::Text).collect::<Vec<_>>());
    }
}
