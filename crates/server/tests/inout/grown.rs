//! Somebody else's conversation imported again after it went on there: what is new comes in, nothing is repeated, and
//! what was written here meanwhile stays.

use reqwest::Method;
use serde_json::{Value, json};

use crate::formats::conversations;
use crate::house::{CONVERSATIONS, House};

/// A thread of Claude's with so many messages; the first and the third have a file of the same name.
fn claude(messages: usize) -> Value {
    let said = |n: usize| {
        let text = format!("the words of number {n}");
        let file = json!([{ "file_name": "notes.txt", "extracted_content": text }]);
        json!({ "uuid": format!("3f2b9a10-0000-4000-8000-{n:012}"), "text": text, "created_at": format!("2025-01-01T00:00:{n:02}Z"),
            "sender": if n.is_multiple_of(2) { "human" } else { "assistant" },
            "attachments": if n == 0 || n == 2 { file } else { json!([]) } })
    };
    json!({ "uuid": "3f2b9a10-0000-4000-8000-aaaaaaaaaaaa", "name": "Line", "created_at": "2025-01-01T00:00:00Z",
        "updated_at": format!("2025-01-01T00:00:{messages:02}Z"), "chat_messages": (0..messages).map(said).collect::<Vec<_>>() })
}

/// A tree of ChatGPT's: each node with its parent; the last is the current one.
fn chatgpt(nodes: &[(&str, Option<&str>)]) -> Value {
    let mut mapping = serde_json::Map::new();
    for (at, (id, parent)) in nodes.iter().enumerate() {
        let children: Vec<&str> =
            nodes.iter().filter(|(_, of)| *of == Some(*id)).map(|(id, _)| *id).collect();
        let role = if id.starts_with('u') { "user" } else { "assistant" };
        let message = json!({ "id": id, "author": { "role": role }, "create_time": 1_700_000_000 + at,
            "content": { "content_type": "text", "parts": [format!("said {id}")] } });
        mapping.insert(
            (*id).to_owned(),
            json!({ "id": id, "message": message, "parent": parent, "children": children }),
        );
    }
    json!({ "id": "tree", "title": "Tree", "create_time": 1_700_000_000, "update_time": 1_700_000_000 + nodes.len(),
        "current_node": nodes.last().map(|(id, _)| id), "mapping": mapping })
}

const SMALL: [(&str, Option<&str>); 2] = [("u1", None), ("a1", Some("u1"))];
/// It went on, the first question was asked otherwise, and that was gone on with.
const LARGE: [(&str, Option<&str>); 6] = [
    ("u1", None),
    ("a1", Some("u1")),
    ("u2", Some("a1")),
    ("a2", Some("u2")),
    ("u3", None),
    ("a3", Some("u3")),
];

fn counts(conversations: u32, messages: u32, files: u32) -> Value {
    json!({ "conversations": conversations, "messages": messages, "files": files, "agents": 0, "pages": 0,
        "tables": 0, "executions": 0 })
}

/// What a reader of a conversation sees: the texts of its messages in order.
async fn texts(house: &House, title: &str) -> Vec<Vec<String>> {
    let all = conversations(house).await;
    let found = all.iter().find(|of| of["title"] == title).unwrap();
    let branches = found["branches"].as_array().unwrap().iter();
    let text = |message: &Value| message["content"][0]["text"].as_str().unwrap().to_owned();
    branches.map(|branch| branch["messages"].as_array().unwrap().iter().map(text).collect()).collect()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_went_on_at_its_source_goes_on_here() {
    for house in House::both().await {
        let write = |name: &str, of: &[Value]| house.write(name, serde_json::to_vec(of).unwrap());
        let before = write("before.json", &[claude(2)]);
        let tree = write("tree.json", &[chatgpt(&SMALL)]);
        house.import(&[&before, &tree]).await;
        let (after, grown) = (write("after.json", &[claude(5)]), write("grown.json", &[chatgpt(&LARGE)]));
        let dry = house.import(&["--dry-run", &after, &grown]).await;
        let told = house.import(&[&after, &grown]).await;
        assert_eq!((&told["grown"], &told["imported"]), (&counts(2, 7, 1), &counts(0, 0, 0)), "{told}");
        assert_eq!(dry["grown"], told["grown"], "{dry}");
        let now = house.export().await;
        // The older export, or the newer one again, changes nothing.
        let again = house.import(&[&after, &grown, &before, &tree]).await;
        assert_eq!(
            (&again["grown"], &again["already_there"]["conversations"]),
            (&counts(0, 0, 0), &json!(4))
        );
        assert_eq!(house.export().await, now);
        // It is what a store has that saw the newer one alone.
        let fresh = House::sqlite();
        fresh.import(&[&after, &grown]).await;
        for title in ["Tree", "Line"] {
            assert_eq!(texts(&house, title).await, texts(&fresh, title).await);
        }
        assert_eq!(texts(&house, "Tree").await.concat().len(), 6);
        let files = now.lines().filter(|line| line.contains("\"blob\"")).count();
        assert!(files == 2 && now.contains("notes-1.txt"), "{now}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_was_written_here_meanwhile_stays_as_it_is() {
    for house in House::both().await {
        let write = |name: &str, of: &Value| house.write(name, of.to_string());
        house.import(&[&write("before.json", &claude(2)), &write("gone.json", &chatgpt(&SMALL))]).await;
        let mut server = house.serve(&[]).await;
        let caller = house.caller(&server);
        let list = caller.get(&format!("{CONVERSATIONS}?sort=title")).await.body;
        let ids = [0, 1].map(|at| list["data"][at]["id"].as_str().unwrap().to_owned());
        caller.turn(&json!({ "conversation": ids[0], "message": "said here", "mode": "ask" })).await;
        caller.upload(&format!("{CONVERSATIONS}/{}/files", ids[0]), "notes-1.txt", b"mine").await;
        let delete = caller.request(Method::DELETE, &format!("{CONVERSATIONS}/{}", ids[1]));
        assert_eq!(delete.send().await.unwrap().status(), 204);
        let told =
            house.import(&[&write("after.json", &claude(4)), &write("more.json", &chatgpt(&LARGE))]).await;
        assert_eq!(
            (&told["grown"], &told["already_there"]["conversations"]),
            (&counts(1, 2, 1), &json!(1)),
            "{told}"
        );
        let branches = texts(&house, "Line").await;
        assert_eq!(
            (branches.len(), &*branches[0][2], &*branches[1][0]),
            (2, "said here", "the words of number 2")
        );
        // The thread that readers see is theirs; the name that was taken has a number.
        let shown = caller.get(&format!("{CONVERSATIONS}/{}", ids[0])).await.body;
        let messages = shown["data"]["attributes"]["messages"].as_array().unwrap();
        assert_eq!((messages.len(), &messages[2]["content"]), (4, &json!("said here")), "{shown}");
        let files = caller.get(&format!("{CONVERSATIONS}/{}/files", ids[0])).await.body;
        let names: Vec<&str> =
            files["data"].as_array().unwrap().iter().map(|file| file["name"].as_str().unwrap()).collect();
        assert!(
            ["notes.txt", "notes-1.txt", "notes-1-1.txt"].iter().all(|name| names.contains(name)),
            "{names:?}"
        );
        assert!(house.export().await.contains("notes-1-1.txt\",\"mimeType"));
        server.terminate().await.unwrap();
    }
}
