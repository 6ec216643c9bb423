//! Documents in, writes or pointed errors out.

use domain::conversation::{ConversationPatch, Mode, Source as Surface, Visibility};
use domain::tab::Tab;
use proptest::prelude::*;
use serde_json::{Value, json};
use uuid::Uuid;

use super::document::{ConversationWrite, Operation, read};
use super::error::{ErrorDocument, Source};
use super::field::{Field, Writer};

const ID: &str = "c7e1a2f3-88d4-4b9e-9c6a-3f0e1d2b5a7c";
const OTHER: &str = "9f3e2d1a-7b4c-4e5f-8a2b-1c0d3e6f9a8b";
const MAX_TABS: usize = 50;

type Pointed = (u16, &'static str, String);

fn id() -> Uuid {
    Uuid::try_parse(ID).unwrap()
}

fn create(text: &str) -> Result<ConversationWrite, ErrorDocument> {
    read(text.as_bytes(), Operation::Create, MAX_TABS)
}

fn update(text: &str) -> Result<ConversationWrite, ErrorDocument> {
    read(text.as_bytes(), Operation::Update { id: id() }, MAX_TABS)
}

/// A document with these attributes, as text.
fn with(attributes: &str) -> String {
    format!(r#"{{"data":{{"type":"chat_conversation","id":"{ID}","attributes":{attributes}}}}}"#)
}

fn pointed(found: Result<ConversationWrite, ErrorDocument>) -> Vec<Pointed> {
    let errors = match found {
        Ok(write) => panic!("no error in {write:?}"),
        Err(errors) => errors,
    };
    let pointer = |source: &Option<Source>| match source {
        Some(Source::Pointer(pointer)) => pointer.clone(),
        other => panic!("{other:?} is no pointer"),
    };
    errors.errors().iter().map(|e| (e.status, e.code, pointer(&e.source))).collect()
}

fn one(status: u16, code: &'static str, pointer: &str) -> Vec<Pointed> {
    vec![(status, code, pointer.to_owned())]
}

#[test]
fn the_smallest_documents() {
    assert_eq!(create(r#"{"data":{"type":"chat_conversation"}}"#), Ok(ConversationWrite::default()));
    let text = format!(r#"{{"data":{{"type":"chat_conversation","id":"{ID}"}}}}"#);
    let expected = ConversationWrite { id: Some(id()), ..ConversationWrite::default() };
    assert_eq!(update(&text), Ok(expected.clone()));
    assert_eq!(update(&with(&format!(r#"{{"thread_id":"{ID}"}}"#))), Ok(expected));
}

#[test]
fn a_whole_create_is_read_to_the_byte() {
    let context = r#"{ "z": 1.50, "a": 1E+2, "selectionType" : "rows", "big": 12345678901234567890123, "beyond": [1e400] }"#;
    let text = format!(
        r#"{{"jsonapi":{{"version":"1.1"}},"meta":{{}},"links":{{}},"@note":1,"data":{{
            "type":"chat_conversation","id":"{ID}","lid":"x","meta":{{}},
            "relationships":{{"workspace":{{"data":{{"type":"workspace","id":"{OTHER}"}}}}}},
            "attributes":{{"@note":1,"thread_id":"{ID}","title":"Zoë","mode":"task_flow","source":"web",
                "page_path":"/a","context":{context},
                "tabs":[{{"key":"a","destinationId":"a","subPath":"/x"}},{{"key":"b","destinationId":"b"}}],
                "active_tab_key":"b","model":"demo/assistant","agent_id":"ag","visibility":"workspace"}}}}}}"#
    );
    let tab = |key: &str, sub_path: Option<&str>| Tab {
        key: key.into(),
        destination_id: key.into(),
        sub_path: sub_path.map(str::to_owned),
    };
    let expected = ConversationWrite {
        id: Some(id()),
        id_is_attribute: false,
        workspace: Uuid::try_parse(OTHER).ok(),
        source: Some(Surface::Web),
        patch: ConversationPatch {
            title: Some(Some("Zoë".into())),
            mode: Some(Some(Mode::TaskFlow)),
            page_path: Some(Some("/a".into())),
            context: Some(Some(context.into())),
            tabs: Some(vec![tab("a", Some("/x")), tab("b", None)]),
            active_tab_key: Some(Some("b".into())),
            model: Some(Some("demo/assistant".into())),
            agent_id: Some(Some("ag".into())),
            visibility: Some(Visibility::Workspace),
        },
    };
    assert_eq!(create(&text), Ok(expected));
}

#[test]
fn null_is_a_value_where_it_may_stand() {
    let nulls = r#"{"title":null,"mode":null,"page_path":null,"context":null,"active_tab_key":null,
        "model":null,"agent_id":null}"#;
    let patch = ConversationPatch {
        title: Some(None),
        mode: Some(None),
        page_path: Some(None),
        context: Some(None),
        active_tab_key: Some(None),
        model: Some(None),
        agent_id: Some(None),
        ..ConversationPatch::default()
    };
    assert_eq!(update(&with(nulls)).unwrap().patch, patch);
    assert_eq!(create(&with(r#"{"source":null}"#)).unwrap().source, None);
}

#[test]
fn the_id_may_come_as_thread_id() {
    let text = format!(r#"{{"data":{{"type":"chat_conversation","attributes":{{"thread_id":"{ID}"}}}}}}"#);
    assert_eq!(create(&text).unwrap().id, Some(id()));
    assert_eq!(create(&text.replace("c7e1", "C7E1")).unwrap().id, Some(id()));
}

#[test]
fn malformed_documents() {
    let cases = [
        ("", ""),
        ("{", ""),
        ("[]", ""),
        ("null", ""),
        ("{}", ""),
        (r#"{"data":{"type":"chat_conversation"}} x"#, ""),
        (r#"{"data":null}"#, "/data"),
        (r#"{"data":[]}"#, "/data"),
        (r#"{"data":{}}"#, "/data"),
        (r#"{"data":{"type":1}}"#, "/data/type"),
        (r#"{"data":{"type":"chat_conversation","attributes":[]}}"#, "/data/attributes"),
        (r#"{"data":{"type":"chat_conversation","attributes":null}}"#, "/data/attributes"),
        (r#"{"data":{"type":"chat_conversation","relationships":[]}}"#, "/data/relationships"),
        (r#"{"data":{"type":"chat_conversation","title":"x"}}"#, "/data/title"),
        (r#"{"data":{"type":"chat_conversation"},"a/b":1}"#, "/a~1b"),
        (r#"{"data":{"type":"chat_conversation"},"included":[]}"#, "/included"),
        (r#"{"data":{"type":"chat_conversation"},"errors":[]}"#, "/errors"),
        (r#"{"data":{"type":"chat_conversation"},"meta":1}"#, "/meta"),
        (r#"{"data":{"type":"chat_conversation"},"jsonapi":"1.1"}"#, "/jsonapi"),
        (
            r#"{"data":{"type":"chat_conversation","attributes":{"title":"a","title":"b"}}}"#,
            "/data/attributes/title",
        ),
        (
            r#"{"data":{"type":"chat_conversation","attributes":{"title":"a\u0000"}}}"#,
            "/data/attributes/title",
        ),
    ];
    for (text, pointer) in cases {
        assert_eq!(pointed(create(text)), one(400, "malformed_document", pointer), "{text}");
    }
    let latin = b"{\"data\":{\"type\":\"chat_conversation\",\"attributes\":{\"title\":\"\xe9\"}}}";
    assert_eq!(pointed(read(latin, Operation::Create, MAX_TABS))[0].0, 400);
    let deep = with(&format!(r#"{{"context":{{"a":{}1{}}}}}"#, "[".repeat(200), "]".repeat(200)));
    assert_eq!(pointed(create(&deep))[0].1, "malformed_document");
}

#[test]
fn types_and_ids() {
    let document = |kind: &str, id: &str| format!(r#"{{"data":{{"type":"{kind}","id":{id}}}}}"#);
    let wrong = document("chat_conversations", &format!("\"{ID}\""));
    assert_eq!(pointed(create(&wrong)), one(409, "type_conflict", "/data/type"));
    assert_eq!(pointed(update(&wrong)), one(409, "type_conflict", "/data/type"));
    for bad in ["1", "null", "\"\"", "\"abc\"", "\"c7e1a2f388d44b9e9c6a3f0e1d2b5a7c\"", "{}"] {
        let found = pointed(create(&document("chat_conversation", bad)));
        assert_eq!(found, one(422, "invalid_value", "/data/id"), "{bad}");
    }
    for bad in ["\"abc\"".to_owned(), format!("\"{OTHER}\"")] {
        let found = pointed(update(&document("chat_conversation", &bad)));
        assert_eq!(found, one(409, "id_conflict", "/data/id"), "{bad}");
    }
    let missing = r#"{"data":{"type":"chat_conversation"}}"#;
    assert_eq!(pointed(update(missing)), one(400, "malformed_document", "/data"));
    let differ = with(&format!(r#"{{"thread_id":"{OTHER}"}}"#));
    assert_eq!(pointed(create(&differ)), one(422, "invalid_value", "/data/attributes/thread_id"));
    assert_eq!(pointed(update(&differ)), one(403, "read_only_field", "/data/attributes/thread_id"));
}

#[test]
fn the_workspace_relationship() {
    let at = "/data/relationships/workspace";
    let cases = [
        (json!({ "owner": {} }), 400, "unknown_field", "/data/relationships/owner".to_owned()),
        (json!({ "workspace": null }), 400, "malformed_document", at.to_owned()),
        (json!({ "workspace": {} }), 400, "malformed_document", at.to_owned()),
        (json!({ "workspace": { "data": null } }), 422, "invalid_value", format!("{at}/data")),
        (json!({ "workspace": { "data": [] } }), 400, "malformed_document", format!("{at}/data")),
        (
            json!({ "workspace": { "data": { "id": OTHER } } }),
            400,
            "malformed_document",
            format!("{at}/data"),
        ),
        (
            json!({ "workspace": { "data": { "type": "workspace" } } }),
            400,
            "malformed_document",
            format!("{at}/data"),
        ),
        (
            json!({ "workspace": { "data": { "type": "user", "id": OTHER } } }),
            422,
            "invalid_value",
            format!("{at}/data/type"),
        ),
        (
            json!({ "workspace": { "data": { "type": "workspace", "id": "x" } } }),
            422,
            "invalid_value",
            format!("{at}/data/id"),
        ),
    ];
    for (relationships, status, code, pointer) in cases {
        let text =
            json!({ "data": { "type": "chat_conversation", "relationships": relationships } }).to_string();
        assert_eq!(pointed(create(&text)), one(status, code, &pointer), "{text}");
    }
    let stays = ConversationWrite { workspace: Some(id()), ..ConversationWrite::default() };
    assert_eq!(stays.check_workspace(id()), Ok(()));
    assert_eq!(ConversationWrite::default().check_workspace(id()), Ok(()));
    let refused = stays.check_workspace(Uuid::nil()).expect_err("another workspace");
    assert_eq!((refused.status, refused.source), (403, Some(Source::pointer(at))));
}

#[test]
fn bad_values_are_pointed_at() {
    let long = |chars: usize| "é".repeat(chars);
    let cases = [
        ("title", json!(1)),
        ("title", json!([])),
        ("title", json!(long(256))),
        ("title", json!("a\nb")),
        ("title", json!("a\u{85}")),
        ("mode", json!("chat")),
        ("mode", json!("Ask")),
        ("mode", json!("")),
        ("mode", json!(true)),
        ("page_path", json!(long(513))),
        ("page_path", json!("/a\u{7f}")),
        ("page_path", json!({})),
        ("context", json!([])),
        ("context", json!("{}")),
        ("tabs", Value::Null),
        ("tabs", json!({})),
        ("active_tab_key", json!(5)),
        ("active_tab_key", json!(long(65))),
        ("model", json!(long(256))),
        ("model", json!("a\tb")),
        ("model", json!("")),
        ("agent_id", json!(long(256))),
        ("agent_id", json!(" ")),
        ("agent_id", json!("\u{1b}[0m")),
        ("agent_id", json!(7)),
        ("visibility", Value::Null),
        ("visibility", json!("public")),
    ];
    for (name, value) in cases {
        let expected = one(422, "invalid_value", &format!("/data/attributes/{name}"));
        let text = with(&json!({ name: value }).to_string());
        assert_eq!(pointed(create(&text)), expected, "create {text}");
        assert_eq!(pointed(update(&text)), expected, "update {text}");
    }
    for (name, value) in [("source", json!("app")), ("source", json!(1)), ("thread_id", Value::Null)] {
        let expected = one(422, "invalid_value", &format!("/data/attributes/{name}"));
        assert_eq!(pointed(create(&with(&json!({ name: value }).to_string()))), expected);
    }
    for (name, chars) in [("title", 255), ("page_path", 512), ("model", 255), ("agent_id", 255)] {
        assert!(create(&with(&json!({ name: long(chars) }).to_string())).is_ok(), "{name}");
    }
}

#[test]
fn what_the_client_may_not_set() {
    for field in Field::ALL.iter().filter(|field| field.writer() != Writer::Client) {
        let text = with(&json!({ field.name(): null }).to_string());
        let expected = one(403, "read_only_field", &format!("/data/attributes/{}", field.name()));
        assert_eq!(pointed(update(&text)), expected, "{}", field.name());
        if field.writer() == Writer::System {
            assert_eq!(pointed(create(&text)), expected, "{}", field.name());
        }
    }
    let same = with(&json!({ "source": ID }).to_string());
    assert_eq!(pointed(update(&same)), one(403, "read_only_field", "/data/attributes/source"));
    for name in ["titel", "id", "type", "workspace", "owner", "a/b"] {
        let pointer = format!("/data/attributes/{}", name.replace('/', "~1"));
        let found = pointed(create(&with(&json!({ name: 1 }).to_string())));
        assert_eq!(found, one(400, "unknown_field", &pointer));
    }
}

#[test]
fn tabs_are_checked_one_by_one_and_with_the_active_key() {
    let tab = |key: &str| json!({ "key": key, "destinationId": key });
    let cases = [
        (json!({ "tabs": ["invoices"] }), "tabs/0"),
        (json!({ "tabs": [tab("a"), { "key": "b" }] }), "tabs/1"),
        (json!({ "tabs": [{ "key": 1, "destinationId": "a" }] }), "tabs/0/key"),
        (json!({ "tabs": [{ "key": "a", "destinationId": "a", "subPath": 1 }] }), "tabs/0/subPath"),
        (
            json!({ "tabs": [{ "key": "a", "destinationId": "a", "subPath": "/x/%2e%2e/y" }] }),
            "tabs/0/subPath",
        ),
        (json!({ "tabs": [{ "key": "a", "destinationId": "a", "x/y": 1 }] }), "tabs/0/x~1y"),
        (json!({ "tabs": [{ "key": "a", "destinationId": "new_tab" }] }), "tabs/0/key"),
        (json!({ "tabs": [tab("a"), tab("a")] }), "tabs/1/key"),
        (json!({ "tabs": (0..51).map(|n| tab(&n.to_string())).collect::<Vec<_>>() }), "tabs"),
        (json!({ "tabs": [tab("a")], "active_tab_key": "b" }), "active_tab_key"),
        (json!({ "tabs": [], "active_tab_key": "b" }), "active_tab_key"),
        // A tab that cannot be read is the one mistake, not the key that would be its own.
        (json!({ "tabs": [tab("a"), { "key": "b" }], "active_tab_key": "b" }), "tabs/1"),
    ];
    for (attributes, path) in cases {
        let expected = one(422, "invalid_value", &format!("/data/attributes/{path}"));
        let text = with(&attributes.to_string());
        assert_eq!(pointed(create(&text)), expected, "create {text}");
        assert_eq!(pointed(update(&text)), expected, "update {text}");
    }
    let alone = with(r#"{"active_tab_key":"b"}"#);
    assert_eq!(pointed(create(&alone)), one(422, "invalid_value", "/data/attributes/active_tab_key"));
    assert_eq!(update(&alone).unwrap().patch.active_tab_key, Some(Some("b".into())));
    let fifty = json!({ "tabs": (0..50).map(|n| tab(&n.to_string())).collect::<Vec<_>>() });
    assert_eq!(update(&with(&fifty.to_string())).unwrap().patch.tabs.map(|tabs| tabs.len()), Some(50));
}

#[test]
fn context_faults_are_pointed_at() {
    let text = with(r#"{"context":{"selectionType":"row","columns":[1]}}"#);
    let mut pointers: Vec<_> = pointed(create(&text)).into_iter().map(|(_, _, pointer)| pointer).collect();
    pointers.sort();
    assert_eq!(pointers, ["/data/attributes/context/columns", "/data/attributes/context/selectionType"]);
}

#[test]
fn all_errors_come_together() {
    let text = r#"{"x":1,"data":{"type":"other","id":"y","attributes":{"title":1,"created_at":1,"nope":1}}}"#;
    let found = create(text).expect_err("six errors");
    assert_eq!(found.status(), 400);
    let mut codes: Vec<_> = found.errors().iter().map(|e| e.code).collect();
    codes.sort_unstable();
    let expected = [
        "invalid_value",
        "invalid_value",
        "malformed_document",
        "read_only_field",
        "type_conflict",
        "unknown_field",
    ];
    assert_eq!(codes, expected);
    let details = found.errors().iter().all(|e| e.detail.ends_with('.') && !e.detail.ends_with(".."));
    assert!(details, "{found:?}");
}

fn any_json() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
        any::<String>().prop_map(Value::from),
        Just(json!(ID)),
        Just(json!("chat_conversation")),
    ];
    let names = prop::sample::select(vec![
        "data",
        "type",
        "id",
        "attributes",
        "relationships",
        "workspace",
        "title",
        "tabs",
        "key",
        "context",
        "@x",
    ]);
    leaf.prop_recursive(5, 40, 6, move |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..4).prop_map(Value::from),
            prop::collection::vec((names.clone(), inner), 0..6).prop_map(|members| members
                .into_iter()
                .map(|(name, value)| (name.to_owned(), value))
                .collect()),
        ]
    })
}

proptest! {
    #[test]
    fn no_bytes_panic(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
        let _ = read(&bytes, Operation::Create, MAX_TABS);
        let _ = read(&bytes, Operation::Update { id: id() }, MAX_TABS);
    }

    #[test]
    fn no_document_panics(value in any_json(), attributes in any_json()) {
        let data = json!({ "data": { "type": "chat_conversation", "id": ID, "attributes": attributes } });
        for text in [value.to_string(), data.to_string()] {
            let _ = (create(&text), update(&text));
        }
    }
}
