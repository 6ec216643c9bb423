//! Sound documents pass; every kind of fault is found and named at its place.

use proptest::prelude::*;

use super::*;

fn fault(text: &str) -> JsonFault {
    check(text.as_bytes()).expect_err(text)
}

fn nested(depth: usize) -> String {
    "[".repeat(depth) + &"]".repeat(depth)
}

#[test]
fn sound_documents_pass() {
    for text in [
        "null",
        " 0 ",
        "-0.0e-5",
        "1e308",
        "12345678901234567890123456789",
        r#""\u0001 \ud83d\ude00""#,
        r#"{"":{"":[]},"a":[{"a":1},{"a":2}]}"#,
        "\"\u{2028}\u{feff}\"",
    ] {
        assert_eq!(check(text.as_bytes()), Ok(()), "{text}");
    }
    assert_eq!(check(nested(MAX_DEPTH).as_bytes()), Ok(()));
}

#[test]
fn syntax_faults_name_their_place() {
    for (text, pointer) in [
        ("", ""),
        ("{} x", ""),
        ("{}{}", ""),
        ("\u{feff}{}", ""),
        ("[1 2]", ""),
        ("[1,]", ""),
        ("{\"a\":[0,tru]}", "/a/1"),
        ("{\"a/b\":{\"~\":+1}}", "/a~1b/~0"),
        ("[1e400]", "/0"),
        ("[0,-1e400]", "/1"),
        ("[01]", "/0"),
        ("[NaN]", "/0"),
        ("{\"a\":\"\n\"}", "/a"),
        (r#"{"a":"\ud800"}"#, "/a"),
        (r#"{"a":"\ud800\u0041"}"#, "/a"),
        (r#"{"a":"\udc00"}"#, "/a"),
        (r#"{"a":{"\udfff":1}}"#, "/a"),
        ("{'a':1}", ""),
        ("{\"a\":1", ""),
    ] {
        let fault = fault(text);
        assert!(matches!(fault.kind, JsonFaultKind::Syntax { .. }), "{text}: {fault:?}");
        assert_eq!(fault.pointer, pointer, "{text}");
    }
}

#[test]
fn other_faults_name_their_place() {
    for (text, pointer, kind) in [
        (r#"{"a":[{"b":1,"b":1}]}"#, "/a/0/b", JsonFaultKind::DuplicateKey("b".into())),
        (r#"{"b":1,"\u0062":1}"#, "/b", JsonFaultKind::DuplicateKey("b".into())),
        (r#"{"a":["x\u0000y"]}"#, "/a/0", JsonFaultKind::Nul),
        (r#"{"a":{"\u0000":1}}"#, "/a", JsonFaultKind::Nul),
    ] {
        assert_eq!(fault(text), JsonFault { pointer: pointer.into(), kind }, "{text}");
    }
    assert_eq!(fault(&nested(MAX_DEPTH + 1)).kind, JsonFaultKind::TooDeep);
    assert_eq!(check(b"[\"\xff\"]").unwrap_err().kind, JsonFaultKind::NotUtf8 { at: 2 });
    assert_eq!(check(b"{}\xc3").unwrap_err().kind, JsonFaultKind::NotUtf8 { at: 2 });
}

#[test]
fn hostile_depth_does_not_exhaust_the_stack() {
    assert_eq!(fault(&"[".repeat(2 << 20)).kind, JsonFaultKind::TooDeep);
    assert_eq!(fault(&"{\"a\":".repeat(400_000)).kind, JsonFaultKind::TooDeep);
}

#[test]
fn sentences_say_where_and_what() {
    for (text, sentence) in [
        (r#"{"a":1,"a":2}"#, r#"the key "a" is given more than once, at /a: give it once"#),
        ("[tru]", "not valid JSON at line 1, column 5, in /0: expected ident"),
        (r#""\u0000""#, "a text in the document holds the character U+0000, which cannot be kept: remove it"),
    ] {
        assert_eq!(fault(text).to_string(), sentence);
    }
    assert!(fault(&nested(65)).to_string().starts_with("more than 64 arrays and objects"));
}

fn tree() -> impl Strategy<Value = serde_json::Value> {
    let leaf = prop_oneof![
        Just(serde_json::Value::Null),
        any::<i64>().prop_map(Into::into),
        any::<f64>().prop_map(Into::into),
        "[^\0]{0,8}".prop_map(Into::into),
    ];
    leaf.prop_recursive(5, 40, 5, |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..5).prop_map(Into::into),
            prop::collection::btree_map("[^\0]{0,4}", inner, 0..5)
                .prop_map(|map| serde_json::Value::Object(map.into_iter().collect())),
        ]
    })
}

proptest! {
    #[test]
    fn whatever_is_serialised_passes(value in tree()) {
        prop_assert_eq!(check(value.to_string().as_bytes()), Ok(()));
    }

    #[test]
    fn no_bytes_panic_and_what_passes_parses(bytes in prop::collection::vec(any::<u8>(), 0..64)) {
        if check(&bytes).is_ok() {
            prop_assert!(serde_json::from_slice::<serde_json::Value>(&bytes).is_ok());
        }
    }

    #[test]
    fn a_pointer_leads_to_the_doubled_key(keys in prop::collection::vec("[a-c/~]{0,3}", 1..5)) {
        let mut text = r#"{"twin":0,"twin":1}"#.to_owned();
        let mut pointer = "/twin".to_owned();
        for key in &keys {
            text = format!("{{{}:{text}}}", serde_json::to_string(key).unwrap());
            pointer = format!("/{}{pointer}", key.replace('~', "~0").replace('/', "~1"));
        }
        prop_assert_eq!(fault(&text).pointer, pointer);
    }
}

#[test]
fn a_key_is_missed_among_neither_few_nor_many() {
    for count in [1, 15, 16, 17, 40] {
        let keys: Vec<String> = (0..count).map(|n| format!("\"k{n}\":{n}")).collect();
        assert_eq!(check(format!("{{{}}}", keys.join(",")).as_bytes()), Ok(()));
        for again in [0, count - 1] {
            let document =
                format!("{{{},\"k\\u{:04x}{}\":0}}", keys.join(","), u32::from('0') + again / 10, again % 10);
            let document =
                if again < 10 { format!("{{{},\"k{again}\":0}}", keys.join(",")) } else { document };
            let fault = check(document.as_bytes()).unwrap_err();
            assert_eq!(fault.kind, JsonFaultKind::DuplicateKey(format!("k{again}")), "{document}");
        }
    }
}

#[test]
fn what_is_kept_may_hold_any_number() {
    for text in [
        "1e400",
        "[-1E+400,1]",
        r#"{"a":[1e400,{"b":"1e400 \" 1e400"}],"c":9e9999999999}"#,
        &format!("[{}]", "9".repeat(400)),
        r#"["\\",1e400,"\\\"",1e400]"#,
    ] {
        assert!(check(text.as_bytes()).is_err(), "{text}");
        assert_eq!(check_kept(text.as_bytes()), Ok(()), "{text}");
    }
    let read = value(r#"{"a":[1e400,1.5],"b":"1e400\""}"#);
    assert_eq!(read, serde_json::json!({ "a": ["1e400", 1.5], "b": "1e400\"" }));
    for (text, pointer) in [
        (r#"{"a":1e400,"a":1}"#, "/a"),
        ("[1e400,1e]", "/1"),
        ("[1e400,01]", "/1"),
        ("[1e400 1e400]", ""),
        (r#"[1e400,"\u0000"]"#, "/1"),
    ] {
        assert_eq!(check_kept(text.as_bytes()).expect_err(text).pointer, pointer, "{text}");
    }
}

#[test]
fn what_no_text_can_hold_is_mended() {
    for (text, expected) in [
        (r#""a\u0000b""#, Some(r#""a\ufffdb""#)),
        (r#""\ud83e""#, Some(r#""\ufffd""#)),
        (r#""\ud83e\ud83e\udDF5""#, Some(r#""\ufffd\ud83e\udDF5""#)),
        (r#""\uDDF5\u0041\n""#, Some(r#""\ufffd\u0041\n""#)),
        (r#""\ud83e\uddf5 \\u0000 \\\\ud83e ü""#, None),
        (r#"{"\u0000":1}"#, Some(r#"{"\ufffd":1}"#)),
        (r#""\u00"#, None),
        ("\"\\ü", None),
        ("\\", None),
    ] {
        assert_eq!(mended(text).as_deref(), expected, "{text}");
    }
}
