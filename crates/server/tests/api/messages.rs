//! The messages of a thread: their shape and order, windows on them, and what a conversation keeps of them.

use domain::event::StepStatus;
use domain::message::{Block, MessageRole, NewMessage};
use domain::time::{Clock as _, SystemClock};
use serde_json::{Value, json};
use uuid::Uuid;

use crate::world::{World, code, id_of, item, message, parameter, stories};

stories!(messages_have_their_shape, counters_follow_the_messages, windows_on_a_thread, bad_windows);

async fn messages_have_their_shape(world: World) {
    let id = id_of(&world.create(json!({})).await);
    let asked = message(MessageRole::User, "Show me all unpaid invoices from March");
    let step = Block::Step {
        id: "s1".into(),
        name: "query".into(),
        status: StepStatus::Succeeded,
        args: None,
        result: serde_json::from_str(r#"{ "n":7.50 }"#).ok(),
        error: None,
        duration_ms: serde_json::from_str("12").ok(),
        started_at: 1_700_000_000_000,
    };
    let at = SystemClock.now();
    let blocks = [Block::Text { text: "One.".into() }, step, Block::Text { text: "Two.".into() }];
    let answered = NewMessage {
        file_attachments: r#"[{"fileId":"f"}]"#.into(),
        sources: r#"[{"id":"s"}]"#.into(),
        token_count: 42,
        metadata: r#"{"k":1}"#.into(),
        ..NewMessage::new(SystemClock.new_id(), MessageRole::Assistant, &blocks, at)
    };
    world.say(&id, &[asked.clone(), answered.clone()]).await;
    let attributes = world.retrieve(&id).await["attributes"].clone();
    let found = attributes["messages"].as_array().unwrap();
    let first = &found[0];
    assert_eq!(first["id"], asked.id.to_string());
    assert_eq!(
        (first["role"].as_str(), first["content"].as_str()),
        (Some("user"), Some("Show me all unpaid invoices from March"))
    );
    assert_eq!(first["parts"], json!([{ "type": "text", "text": "Show me all unpaid invoices from March" }]));
    assert_eq!(first["createdAt"], asked.created_at.as_millisecond());
    let ts: jiff::Timestamp = first["ts"].as_str().unwrap().parse().unwrap();
    assert_eq!(ts, asked.created_at);
    assert_eq!(
        (&first["fileAttachments"], &first["sources"], &first["metadata"]),
        (&json!([]), &json!([]), &json!({}))
    );
    assert_eq!(
        found[1],
        json!({
            "id": answered.id.to_string(), "role": "assistant", "content": "One.\n\nTwo.",
            "parts": [
                { "type": "text", "text": "One." },
                { "type": "step", "id": "s1", "name": "query", "status": "succeeded", "result": { "n": 7.5 },
                  "durationMs": 12, "startedAt": 1_700_000_000_000_i64 },
                { "type": "text", "text": "Two." }
            ],
            "ts": domain::time::rfc3339(at), "fileAttachments": [{ "fileId": "f" }], "sources": [{ "id": "s" }],
            "tokenCount": 42, "metadata": { "k": 1 }, "createdAt": at.as_millisecond()
        })
    );
}

async fn counters_follow_the_messages(world: World) {
    let id = id_of(&world.create(json!({})).await);
    let show = async || world.retrieve(&id).await["attributes"].clone();
    world.say(&id, &[message(MessageRole::System, "be kind")]).await;
    let now = show().await;
    assert_eq!(now["message_count"], 1);
    assert_eq!([&now["conversation_id"], &now["preview"], &now["title"]], [&Value::Null; 3]);

    let first = world.ask(&id, "\n  First question, étéé\nmore").await;
    let now = show().await;
    assert_eq!(now["conversation_id"], first.to_string());
    assert_eq!(
        (&now["preview"], &now["title"]),
        (&json!("First question, étéé"), &json!("First question, étéé"))
    );
    assert_eq!((&now["message_count"], &now["total_tokens"]), (&json!(2), &json!(0)));

    for (tokens, total) in [(10, 10), (0, 10), (32, 42), (-5, 42)] {
        let mut answer = message(MessageRole::Assistant, "an answer");
        answer.token_count = tokens;
        world.say(&id, &[answer]).await;
        assert_eq!(show().await["total_tokens"], total, "tokens only grow");
    }
    world.ask(&id, "Second question").await;
    let now = show().await;
    assert_eq!((&now["message_count"], &now["conversation_id"]), (&json!(7), &json!(first.to_string())));
    assert_eq!(now["title"], "First question, étéé", "the first message names it");

    // A title that somebody gave stays.
    let named = id_of(&world.create(json!({ "title": "Mine" })).await);
    world.ask(&named, "hello").await;
    let attributes = world.retrieve(&named).await["attributes"].clone();
    assert_eq!((&attributes["title"], &attributes["preview"]), (&json!("Mine"), &json!("hello")));
    // Words that nobody wrote in one line: cut, not refused.
    let long = id_of(&world.create(json!({})).await);
    world.ask(&long, &"ü".repeat(3000)).await;
    let attributes = world.retrieve(&long).await["attributes"].clone();
    assert!(attributes["title"].as_str().unwrap().chars().count() <= 255);
    assert_eq!(attributes["messages"][0]["content"], "ü".repeat(3000));
}

async fn windows_on_a_thread(world: World) {
    let id = id_of(&world.create(json!({})).await);
    let mut all: Vec<Uuid> = Vec::new();
    for n in 0..23 {
        all.push(world.ask(&id, &format!("message {n}")).await);
    }
    let window = async |query: &str| -> Vec<Uuid> {
        let answer = world.get(&format!("{}?{query}", item(&id))).await;
        assert_eq!(answer.status, 200, "{query}: {}", answer.text);
        let messages = answer.body["data"]["attributes"]["messages"].as_array().unwrap().clone();
        assert_eq!(answer.body["data"]["attributes"]["message_count"], 23, "{query}");
        messages.iter().map(|message| message["id"].as_str().unwrap().parse().unwrap()).collect()
    };
    assert_eq!(window("").await, all, "all of them by default, in order");
    assert_eq!(window("page[messages]=5").await, all[18..]);
    assert_eq!(window("page[messages]=23").await, all);
    for more in ["1000", "1001", "1000000"] {
        assert_eq!(window(&format!("page[messages]={more}")).await, all, "{more}");
    }
    assert_eq!(window(&format!("page[messages]=5&page[messages_before]={}", all[18])).await, all[13..18]);
    assert_eq!(window(&format!("page[messages_before]={}", all[3])).await, all[..3]);
    assert_eq!(window(&format!("page[messages]=5&page[messages_before]={}", all[2])).await, all[..2]);
    assert_eq!(window(&format!("page[messages_before]={}", all[0])).await, Vec::<Uuid>::new());
    // Walked back page by page, nothing is missed and nothing comes twice.
    let mut walked = window("page[messages]=7").await;
    while walked[0] != all[0] {
        let before = window(&format!("page[messages]=7&page[messages_before]={}", walked[0])).await;
        walked.splice(..0, before);
    }
    assert_eq!(walked, all);
}

async fn bad_windows(world: World) {
    let id = id_of(&world.create(json!({})).await);
    world.ask(&id, "here").await;
    let other = id_of(&world.create(json!({})).await);
    let elsewhere = world.ask(&other, "elsewhere").await;
    for (query, name) in [
        ("page[messages]=0".to_owned(), "page[messages]"),
        ("page[messages]=1000001".to_owned(), "page[messages]"),
        ("page[messages]=x".to_owned(), "page[messages]"),
        ("page[messages_before]=x".to_owned(), "page[messages_before]"),
        (format!("page[messages_before]={elsewhere}"), "page[messages_before]"),
        ("page[messages_before]=44444444-4444-4444-8444-444444444444".to_owned(), "page[messages_before]"),
    ] {
        let answer = world.get(&format!("{}?{query}", item(&id))).await;
        assert_eq!((answer.status, code(&answer)), (400, "invalid_parameter"), "{query}: {}", answer.text);
        assert_eq!(parameter(&answer), name);
    }
    let nobody = item("44444444-4444-4444-8444-444444444444");
    assert_eq!(world.get(&format!("{nobody}?page[messages_before]={elsewhere}")).await.status, 404);
}
