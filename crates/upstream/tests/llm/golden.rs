//! A prompt as each vendor is sent it, held still by files. `UPDATE_GENERATED=1` writes them.

use std::path::Path;
use std::sync::Arc;

use domain::model::{
    Answer, Ask, Call, Choice, Dialect, Manner, Part, PartKind, Prompt, Said, ToolSpec, Verbatim, Words,
};
use serde_json::value::RawValue;
use serde_json::{Number, Value, json};
use testkit::sandbox::ScriptedSandbox;
use upstream::llm::{anthropic, openai};

use crate::vendor::{KEY, VENDORS, Vendor, WIDE, body, listen};

fn call(id: &str, name: &str, args: &str) -> Call {
    Call { id: id.into(), name: name.into(), args: args.into() }
}

fn result(id: &str, text: &str, failed: bool) -> Answer {
    Answer { id: id.into(), name: "read_file".into(), text: text.into(), failed }
}

fn everything() -> Ask {
    let schema = r#"{"type":"object","properties":{"name":{"type":"string"}},"required":["name"]}"#;
    let messages = vec![
        Said::User("Read a.txt and b.txt".into()),
        Said::Assistant {
            text: "I look.".into(),
            calls: vec![
                call("c1", "read_file", r#"{"name":"a.txt"}"#),
                call("c2", "read_file", r#"{"name":"b.txt"}"#),
            ],
        },
        Said::Answers(vec![result("c1", "alpha", false), result("c2", "Error: no such file", true)]),
        // An answer that was cut off here: the next words are the user's.
        Said::User("Go on.".into()),
        Said::Assistant { text: "a.txt says alpha.".into(), calls: vec![] },
        Said::User("And now?\n\"Quotes\" & ünïcode".into()),
        Said::Assistant { text: String::new(), calls: vec![call("c3", "read_file", "{}")] },
        Said::Answers(vec![result("c3", "beta", false)]),
    ];
    Ask {
        model: "m-1".into(),
        prompt: Prompt { system: "Be brief.".into(), messages },
        tools: [ToolSpec {
            name: "read_file".into(),
            description: "Reads a file.".into(),
            schema: RawValue::from_string(schema.into()).unwrap(),
        }]
        .into(),
        max_tokens: Some(500),
        ..Ask::default()
    }
}

fn plain() -> Ask {
    let prompt = Prompt { system: String::new(), messages: vec![Said::User("Hi".into())] };
    Ask { model: "m-1".into(), prompt, ..Ask::default() }
}

/// Files beside the words.
fn files(kinds: &[PartKind]) -> Ask {
    let part = |kind: &PartKind| {
        let (name, mime_type, data) = match kind {
            PartKind::Text => ("notes.txt", "text/plain", "buy milk"),
            PartKind::Image => ("photo.png", "image/png", "iVBORw0KGgo="),
            PartKind::Pdf => ("report.pdf", "application/pdf", "JVBERi0xLjc="),
        };
        let (name, mime_type, data) = (name.into(), mime_type.into(), data.into());
        Part { file: uuid::Uuid::nil(), name, mime_type, kind: *kind, chars: 0, at: 0, data }
    };
    let words = Words { text: "What is this?".into(), parts: kinds.iter().map(part).collect() };
    Ask { prompt: Prompt { system: "Be brief.".into(), messages: vec![Said::User(words)] }, ..plain() }
}

/// All that a client may say about the manner of an answer.
fn mannered() -> Ask {
    let manner = Manner {
        temperature: Number::from_f64(1.5),
        top_p: Number::from_f64(0.5),
        stop: vec!["END".into(), "\n".into()],
        choice: Some(Choice::Tool("read_file".into())),
        parallel: Some(false),
        effort: Some("low".into()),
        format: Some(json!({ "type": "json_object" })),
    };
    let mut ask = Ask { manner, ..everything() };
    // A picture that is elsewhere, and nothing said about it.
    let mut part = files(&[PartKind::Image]).prompt.messages.remove(0);
    if let Said::User(words) = &mut part {
        words.text.clear();
        words.parts[0].data = "https://pictures.example/1.png".into();
    }
    ask.prompt.messages = vec![part];
    ask
}

/// A client's own request: what we do not know of it is not lost.
fn verbatim(dialect: Dialect) -> Ask {
    let body = json!({ "model": "ours", "temperature": 0.5, "new_field": { "x": [1] },
        "messages": [{ "role": "user", "content": [{ "type": "new_part", "data": 1 }] }] });
    Ask { verbatim: Some(Verbatim { dialect, body, beta: None }), ..plain() }
}

pub fn held(name: &str, body: &Value) {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden").join(name);
    let now = format!("{}\n", serde_json::to_string_pretty(body).unwrap());
    if std::env::var_os("UPDATE_GENERATED").is_some() {
        std::fs::write(&path, &now).unwrap();
    }
    let kept = std::fs::read_to_string(&path).unwrap_or_default();
    assert_eq!(now, kept, "{name} differs; UPDATE_GENERATED=1 writes it");
}

#[test]
fn requests_are_as_they_were() {
    for (name, ask) in [
        ("everything", everything()),
        ("plain", plain()),
        ("files", files(&[PartKind::Text, PartKind::Image, PartKind::Pdf])),
        ("texts", files(&[PartKind::Text, PartKind::Text])),
        ("last_round", Ask { tools: Arc::default(), ..everything() }),
        ("manner", mannered()),
    ] {
        held(&format!("{name}.openai.json"), &openai::request(&ask));
        held(&format!("{name}.anthropic.json"), &anthropic::request(&ask, anthropic::VERSION));
    }
    held("verbatim.openai.json", &openai::request(&verbatim(Dialect::Openai)));
    held("verbatim.anthropic.json", &anthropic::request(&verbatim(Dialect::Anthropic), "2026-10-21"));
    let sampling = anthropic::request(&verbatim(Dialect::Anthropic), anthropic::VERSION);
    assert_eq!(sampling["temperature"], 0.5);
    thinks_as_asked();
    let strict = anthropic::request(&mannered(), "2026-10-21");
    assert!(strict.get("temperature").is_none() && strict.get("top_p").is_none(), "{strict}");
}

/// Effort in the words of each generation of models, where they take it.
fn thinks_as_asked() {
    let said = |model: &str, effort: &str, ask: Ask| {
        let manner = Manner { effort: Some(effort.into()), ..ask.manner.clone() };
        let request = anthropic::request(&Ask { model: model.into(), manner, ..ask }, anthropic::VERSION);
        (
            request["thinking"].clone(),
            request["output_config"]["effort"].clone(),
            request["max_tokens"].clone(),
        )
    };
    let bare = || Ask { max_tokens: None, ..plain() };
    let budget = |tokens: u64| json!({ "type": "enabled", "budget_tokens": tokens });
    let adaptive = json!({ "type": "adaptive" });
    for (model, effort, ask, expected) in [
        ("claude-opus-4-6", "minimal", bare(), (adaptive.clone(), json!("low"), json!(8192))),
        ("claude-x", "xhigh", bare(), (adaptive, json!("max"), json!(8192))),
        ("claude-x", "none", bare(), (json!(null), json!(null), json!(8192))),
        ("claude-3-7-sonnet-20250219", "low", bare(), (budget(1024), json!(null), json!(9216))),
        ("claude-sonnet-4-20250514", "high", bare(), (budget(16_384), json!(null), json!(24_576))),
        (
            "claude-haiku-4-5",
            "high",
            Ask { max_tokens: Some(4000), ..bare() },
            (budget(2000), json!(null), json!(4000)),
        ),
        // No room for it, and in the middle of calls whose thoughts are not kept.
        (
            "claude-haiku-4-5",
            "high",
            Ask { max_tokens: Some(1000), ..bare() },
            (json!(null), json!(null), json!(1000)),
        ),
    ] {
        assert_eq!(said(model, effort, ask), expected, "{model} {effort}");
    }
    let mut between = everything();
    between.prompt.messages.truncate(
        between.prompt.messages.iter().rposition(|said| matches!(said, Said::Answers(_))).unwrap() + 1,
    );
    assert_eq!(said("claude-3-opus", "high", between).0, Value::Null);
}

#[test]
fn the_strict_version_is_not_sent_what_it_refuses() {
    let text = |more: Value| {
        let mut block = json!({ "type": "text", "text": "x" });
        block.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        block
    };
    let document = json!({ "type": "document", "source": { "type": "text", "data": "x" } });
    let cited = text(json!({ "citations": [{ "type": "char_location" }] }));
    let body = json!({ "top_k": 3, "messages": [
        { "role": "user", "content": [cited, text(json!({ "citations": [] })), document] },
        { "role": "assistant", "content": [document] },
        { "role": "user", "content": "and?" },
        { "role": "assistant", "content": [document, cited] }] });
    let ask = Ask {
        verbatim: Some(Verbatim { dialect: Dialect::Anthropic, body: body.clone(), beta: None }),
        ..plain()
    };
    let strict = anthropic::request(&ask, "2026-10-21");
    let expected = json!([
        { "role": "user", "content": [text(json!({})), text(json!({ "citations": [] })), document] },
        { "role": "user", "content": "and?" },
        { "role": "assistant", "content": [cited] }]);
    assert_eq!((&strict["messages"], strict.get("top_k")), (&expected, None));
    assert_eq!(anthropic::request(&ask, anthropic::VERSION)["messages"], body["messages"]);
}

#[tokio::test]
async fn what_arrives_is_the_request_with_its_credentials() {
    for vendor in VENDORS {
        let server = ScriptedSandbox::start(body(&vendor.hello())).await.unwrap();
        listen(&*vendor.model(&server.url(), WIDE)).await;
        let sent = server.request(0).await.unwrap();
        assert_eq!((sent.method.as_str(), sent.path.as_str()), ("POST", vendor.path()));
        let ask = crate::vendor::ask();
        match vendor {
            Vendor::OpenAi => {
                assert_eq!(sent.header("authorization"), Some(format!("Bearer {KEY}").as_str()));
                assert_eq!(sent.body, openai::request(&ask));
            }
            Vendor::Anthropic => {
                assert_eq!((sent.header("x-api-key"), sent.header("authorization")), (Some(KEY), None));
                assert_eq!(sent.header("anthropic-version"), Some("2023-06-01"));
                assert_eq!(sent.body, anthropic::request(&ask, anthropic::VERSION));
            }
        }
    }
}
