//! Every format that is read: a fixture of its documented structure, odd things included, and what becomes of it, block
//! by block, on both databases. `UPDATE_FIXTURES=1` writes down what comes out, to be looked at.

use std::collections::HashMap;
use std::path::PathBuf;

use serde_json::{Map, Value, json};

use crate::house::House;

const FIXTURES: [&str; 9] = [
    "copilot_chats",
    "conversations",
    "chat_conversations",
    "chatgpt",
    "claude",
    "librechat",
    "librechat_nested",
    "open_webui",
    "assistants",
];

pub fn fixture(name: &str) -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/inout/fixtures").join(name)
}

/// A conversation of an export without what depends on the workspace: ids are the places of what they name.
pub fn simplified(conversation: &Value) -> Value {
    let mut conversation = conversation.clone();
    // They come in the order of their ids.
    let files = conversation["files"].as_array_mut().unwrap();
    files.sort_by_key(|file| (file["createdAt"].as_i64(), file["name"].to_string()));
    let conversation = &conversation;
    let mut places: HashMap<&str, String> = HashMap::new();
    for (b, branch) in conversation["branches"].as_array().unwrap().iter().enumerate() {
        places.insert(branch["id"].as_str().unwrap(), format!("branch {b}"));
        for (m, message) in branch["messages"].as_array().unwrap().iter().enumerate() {
            places.insert(message["id"].as_str().unwrap(), format!("message {b}/{m}"));
        }
    }
    for (f, file) in conversation["files"].as_array().unwrap().iter().enumerate() {
        places.insert(file["id"].as_str().unwrap(), format!("file {f}"));
    }
    for tab in conversation["tabs"].as_array().unwrap().iter().filter(|tab| tab["destinationId"] == "new_tab")
    {
        let key = tab["key"].as_str().unwrap();
        assert_eq!(key.len(), 36, "{tab}");
        let number = places.len();
        places.insert(key, format!("tab {number}"));
    }
    places.insert(conversation["id"].as_str().unwrap(), "itself".into());
    replaced(conversation, &places)
}

fn replaced(value: &Value, places: &HashMap<&str, String>) -> Value {
    match value {
        Value::String(text) => places.get(text.as_str()).map_or_else(|| value.clone(), |place| json!(place)),
        Value::Array(values) => values.iter().map(|value| replaced(value, places)).collect(),
        Value::Object(members) => {
            let members = members.iter().map(|(name, value)| (name.clone(), replaced(value, places)));
            Value::Object(members.collect::<Map<_, _>>())
        }
        other => other.clone(),
    }
}

/// By title and time, because ids differ from one workspace to the next.
pub async fn conversations(house: &House) -> Vec<Value> {
    let lines = house.export().await;
    let all = lines.lines().map(|line| serde_json::from_str::<Value>(line).unwrap());
    let mut all: Vec<Value> =
        all.filter(|line| line["type"] == "conversation").map(|line| simplified(&line)).collect();
    all.sort_by_key(|of| (of["created_at"].to_string(), of["title"].to_string(), of.to_string()));
    all
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_format_becomes_the_conversations_it_tells_of() {
    let houses = [House::both().await, House::both().await];
    for (at, name) in FIXTURES.into_iter().enumerate() {
        let source = fixture(&format!("{name}.json"));
        // Two formats share a house; each is taken out again by what it alone has.
        for house in &houses[at % 2] {
            let told = house.import(&[source.to_str().unwrap()]).await;
            let again = house.import(&[source.to_str().unwrap()]).await;
            assert_eq!(again["already_there"], told["imported"], "{name}: {again}");
        }
    }
    let mut found = Vec::new();
    for house in houses.iter().flatten() {
        found.push(conversations(house).await);
    }
    let both: Vec<&[Vec<Value>]> = found.chunks(found.len() / 2).collect();
    for (at, of) in both.iter().enumerate() {
        let path = fixture(&format!("expected_{at}.json"));
        if std::env::var_os("UPDATE_FIXTURES").is_some() {
            std::fs::write(&path, serde_json::to_string_pretty(&of[0]).unwrap() + "\n").unwrap();
        }
        let expected: Vec<Value> = serde_json::from_str(&std::fs::read_to_string(&path).unwrap()).unwrap();
        for conversations in *of {
            assert_eq!(conversations.len(), expected.len());
            for (found, expected) in conversations.iter().zip(&expected) {
                assert_eq!(found, expected);
            }
        }
    }
}

/// As a database without a type for JSON dumps its tables.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn columns_of_json_may_be_texts() {
    let house = House::sqlite();
    let said = json!([{ "role": "user", "content": "Hello", "ts": "2026-05-14T09:12:33.000Z" }]);
    let row = json!({
        "thread_id": "0b8e7b8c-91b5-4d38-8f3c-0e5a3f7d2a11", "title": "A row", "source": "web",
        "messages": said.to_string(), "context": r#"{"root":"x","rowCount":7}"#,
        "tabs": r#"[{"key":"invoices","destinationId":"invoices"}]"#, "active_tab_key": "invoices",
        "created_at": "2026-05-14T09:12:30Z", "updated_at": "2026-05-14T09:12:36Z",
    });
    let id = "0b8e7b8c-91b5-4d38-8f3c-0e5a3f7d2a12";
    let tables = json!({
        "conversations": [{ "id": id, "user_id": "u1", "org_id": "o", "workspace_id": "w", "title": "Two tables",
            "created_at": "2026-05-15T08:00:00Z", "updated_at": "2026-05-15T08:00:00Z" }],
        "messages": [{ "id": "0b8e7b8c-91b5-4d38-8f3c-0e5a3f7d2a13", "conversation_id": id, "role": "assistant",
            "content": "[not JSON]", "sources": r#"[{"title":"Page","url":"https://a.example"}]"#,
            "metadata": r#"{"k":1.50}"#, "attachments": "[]", "created_at": "2026-05-15T08:00:01Z" }],
    });
    for (name, document) in [("row.json", &row), ("tables.json", &tables)] {
        let told = house.import(&[&house.write(name, document.to_string())]).await;
        assert_eq!((&told["imported"]["conversations"], &told["refused"]), (&json!(1), &json!(0)), "{told}");
    }
    let all = conversations(&house).await;
    let message = |at: usize| &all[at]["branches"][0]["messages"][0];
    assert_eq!(message(0)["content"], json!([{ "type": "text", "text": "Hello" }]));
    assert_eq!(all[0]["context"], json!({ "root": "x", "rowCount": 7 }));
    assert_eq!(
        (&all[0]["tabs"][0]["key"], &all[0]["active_tab_key"]),
        (&json!("invoices"), &json!("invoices"))
    );
    assert_eq!(message(1)["content"][0], json!({ "type": "text", "text": "[not JSON]" }));
    assert_eq!(message(1)["sources"][0]["url"], "https://a.example");
    assert_eq!(message(1)["metadata"], json!({ "k": 1.5 }));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn tables_as_csv_are_put_together() {
    let house = House::sqlite();
    let (a, b) = ("0b8e7b8c-91b5-4d38-8f3c-0e5a3f7d2a01", "0b8e7b8c-91b5-4d38-8f3c-0e5a3f7d2a02");
    let messages = format!(
        "id,conversation_id,role,content,sources,token_count,metadata,attachments,created_at\n\
         m2,{a},assistant,\"Yes, \"\"really\"\".\nTwo lines\",,7,\"{{\"\"k\"\":1.50}}\",,2026-01-05 08:00:09+00\n\
         m1,{a},user,Really?,,,,,2026-01-05 08:00:05+00\n\
         m9,nobody,user,lost,,,,,2026-01-05 08:00:05+00\n"
    );
    let rows = format!(
        "id,user_id,org_id,workspace_id,agent_id,model,preview,message_count,created_at,updated_at\n\
         {a},u1,o,w,,,Really?,2,2026-01-05 08:00:00+00,2026-01-05 08:10:00+00\n{b},u1,o,w,,,,0,2026-01-06 08:00:00+00,2026-01-06 08:00:00+00\n"
    );
    let (messages, rows) = (house.write("messages.csv", messages), house.write("conversations.csv", rows));
    let ran = house.run(&["import", "--json", &messages, &rows]).await;
    assert_eq!(
        (ran.code, &ran.json()["imported"]["messages"], &ran.json()["refused"]),
        (Some(1), &json!(2), &json!(1)),
        "{ran:?}"
    );
    assert!(ran.stderr.contains("nobody"), "{ran:?}");
    let all = conversations(&house).await;
    assert_eq!(all.len(), 2);
    let said = all[0]["branches"][0]["messages"].as_array().unwrap();
    assert_eq!(
        (&said[0]["content"][0]["text"], &said[1]["content"][0]["text"]),
        (&json!("Really?"), &json!("Yes, \"really\".\nTwo lines"))
    );
    assert_eq!((&said[1]["tokenCount"], &said[1]["metadata"]["k"]), (&json!(7), &json!(1.5)));
}
