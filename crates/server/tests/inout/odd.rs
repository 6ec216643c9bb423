//! Exports that hold what no text can, rows beside the conversations, a newer version of ours, and more tabs than are
//! kept: what comes in of them, on both databases.

use serde_json::{Value, json};

use crate::formats::{conversations, fixture};
use crate::house::House;

const TITLE: &str = "cut HALF title";
const SAID: &str = "half HALF emoji, and all the rest";

/// The record with half of an emoji in its texts, and in the texts that are JSON themselves.
fn cut(record: &Value) -> String {
    record.to_string().replace("HALF", "\\ud83d")
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn half_a_surrogate_pair_takes_nothing_with_it() {
    let id = |n: u32| format!("c7e1a2f3-88d4-4b9e-9c6a-{n:012}");
    let blocks = json!([{ "type": "text", "text": SAID }]);
    let node = |id: &str, parent: Option<&str>, role: &str, text: &str| {
        let message = json!({ "id": id, "author": { "role": role }, "create_time": 1_700_000_000,
            "content": { "content_type": "text", "parts": [text] } });
        json!({ "id": id, "message": message, "parent": parent, "children": [] })
    };
    let records = [
        json!({ "id": id(1), "type": "assistant_sandbox", "title": TITLE,
            "messages": [{ "id": "m", "role": "user", "content": blocks, "createdAt": 1_700_000_000_000_i64 }] }),
        json!({ "thread_id": id(2), "title": TITLE, "created_at": "2026-01-01T00:00:00Z",
            "messages": cut(&json!([{ "role": "user", "content": SAID }])) }),
        json!({ "id": "chatgpt", "title": TITLE, "current_node": "c", "mapping": {
            "a": node("a", None, "user", SAID), "b": node("b", Some("a"), "assistant", "Four"),
            "c": node("c", Some("b"), "user", SAID), "d": node("d", Some("c"), "assistant", "Welcome") } }),
        json!({ "uuid": id(4), "name": TITLE, "created_at": "2026-01-01T00:00:00Z",
            "chat_messages": [{ "uuid": id(14), "sender": "human", "text": SAID, "content": blocks }] }),
        json!({ "conversationId": "libre", "title": TITLE, "exportAt": "now",
            "messages": [{ "messageId": "m", "sender": "User", "isCreatedByUser": true, "text": SAID }] }),
        json!({ "id": "webui", "title": TITLE, "chat": { "history": { "currentId": "w",
            "messages": { "w": { "id": "w", "role": "user", "content": SAID } } } } }),
        json!({ "conversations": [{ "id": id(7), "user_id": "local", "title": TITLE, "message_count": 1 }],
            "messages": [{ "id": id(17), "conversation_id": id(7), "role": "user", "content": SAID }] }),
        json!({ "object": "list", "HALF": 1, "data": [{ "object": "thread.message", "thread_id": "t", "role": "user",
            "content": [{ "type": "text", "text": { "value": SAID } }] }] }),
    ];
    for house in House::both().await {
        for (at, record) in records.iter().enumerate() {
            let told = house.import(&[&house.write(&format!("{at}.json"), cut(record))]).await;
            let counts = (&told["imported"]["conversations"], &told["refused"]);
            assert_eq!(counts, (&json!(1), &json!(0)), "{record}: {told}");
        }
        let all = conversations(&house).await;
        assert_eq!(all.len(), records.len());
        for of in &all {
            let said = &of["branches"][0]["messages"][0]["content"][0]["text"];
            assert_eq!(said, &SAID.replace("HALF", "\u{fffd}"), "{of}");
        }
        let titled = all.iter().filter(|of| of["title"] == TITLE.replace("HALF", "\u{fffd}")).count();
        assert_eq!(titled, records.len() - 1, "all but the one without a title");
        let answers = |of: &&Value| of["branches"][0]["messages"].as_array().unwrap().len() == 4;
        assert_eq!(all.iter().filter(answers).count(), 1, "no answer is joined to the one before");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn rows_beside_the_conversations_become_none() {
    let house = House::sqlite();
    let feedback = json!([{ "id": "fb1", "conversation_id": "c", "user_id": "user-abc", "rating": "thumbsUp",
        "content": "{}", "workspace_id": null, "created_at": "2026-01-01T00:00:00Z" }]);
    let member = json!([{ "id": "u", "org_id": "o" }]);
    let folder = |name: &str, bytes: &[u8]| house.write(&format!("export/{name}"), bytes);
    folder("conversations.json", &std::fs::read(fixture("chatgpt.json")).unwrap());
    folder("message_feedback.json", feedback.to_string().as_bytes());
    folder("members.json", member.to_string().as_bytes());
    let told = house.import(&[house.path("export").to_str().unwrap()]).await;
    assert_eq!((&told["imported"]["conversations"], &told["refused"]), (&json!(3), &json!(0)), "{told}");
    let all = conversations(&house).await;
    assert!(all.iter().all(|of| of["user_id"] == "local"), "{all:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nothing_of_an_export_of_a_newer_version_is_taken() {
    let house = House::sqlite();
    house.import(&[fixture("claude.json").to_str().unwrap()]).await;
    let lines = house.export().await;
    for (name, line) in [("newer", r#""version":2"#), ("strange", r#""version":"new""#)] {
        let fresh = House::sqlite();
        let path = fresh.write("export.jsonl", lines.replacen(r#""version":1"#, line, 1));
        let ran = fresh.run(&["import", "--json", &path]).await;
        let (told, empty) = (ran.json(), fresh.export().await);
        assert_eq!((ran.code, &told["refused"]), (Some(1), &json!(1)), "{name}: {told}");
        assert_eq!(told["imported"]["conversations"], 0, "{name}: {told}");
        assert!(!empty.contains("\"conversation\""), "{name}: {empty}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn old_tabs_are_cut_where_the_setting_says() {
    let names: Vec<String> = (0..60).map(|n| format!("tab-{n}")).collect();
    let row = json!({ "thread_id": "0b8e7b8c-91b5-4d38-8f3c-0e5a3f7d2a11", "title": "Old", "tabs": names,
        "created_at": "2026-05-14T09:12:30Z" });
    for (most, kept) in [("0", 0), ("2", 2), ("100", 60)] {
        let house = House::sqlite();
        let path = house.write("row.json", row.to_string());
        let told = house.import(&["--max-persisted-tabs", most, &path]).await;
        assert_eq!(told["imported"]["conversations"], 1, "{most}: {told}");
        let all = conversations(&house).await;
        assert_eq!(all[0]["tabs"].as_array().unwrap().len(), kept, "{most}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn files_of_chatgpt_have_the_endings_that_they_lie_under() {
    let house = House::sqlite();
    let part = |kind: &str, pointer: &str| json!({ "content_type": kind, "asset_pointer": pointer });
    let said = json!({ "id": "q", "author": { "role": "user" }, "content": { "content_type": "multimodal_text", "parts": [
        part("image_asset_pointer", "file-service://file-Plot777"), part("audio_asset_pointer", "sediment://file_audio1"),
        "Look" ] }, "metadata": { "attachments": [{ "id": "file-Make1", "name": "Makefile" }] } });
    let thread = json!([{ "id": "c", "title": "Files", "create_time": 1_700_000_000, "current_node": "q",
        "mapping": { "q": { "id": "q", "message": said, "parent": null, "children": [] } } }]);
    house.write("export/conversations.json", thread.to_string());
    for name in ["file-Plot777-img.png", "file_audio1-x.wav", "file-Make1-Makefile"] {
        house.write(&format!("export/{name}"), format!("bytes of {name}"));
    }
    let told = house.import(&[house.path("export").to_str().unwrap()]).await;
    assert_eq!(told["imported"]["files"], 3, "{told}");
    let all = conversations(&house).await;
    let mut names: Vec<&str> =
        all[0]["files"].as_array().unwrap().iter().map(|file| file["name"].as_str().unwrap()).collect();
    names.sort_unstable();
    assert_eq!(names, ["Makefile", "audio file_audio1.wav", "image file-Plot777.png"]);
}
