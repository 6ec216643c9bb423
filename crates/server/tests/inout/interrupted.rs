//! An import that is killed at any moment and started again: the same end as one that was left alone.

use std::time::Duration;

use serde_json::json;

use crate::house::House;

/// An export of ours with many conversations, some with files.
async fn source(house: &House) -> String {
    let mut rows = Vec::new();
    for number in 0..60 {
        let id = format!("3f2b9a10-0000-4000-8000-{number:012}");
        let file =
            json!([{ "file_name": "a.txt", "extracted_content": format!("text {number} ").repeat(200) }]);
        let files = if number % 3 == 0 { file } else { json!([]) };
        let said = |n: u32| json!({ "uuid": format!("m{n}"), "sender": if n.is_multiple_of(2) { "human" } else { "assistant" }, "text": format!("message {n} of {number}"), "created_at": "2025-01-01T00:00:00Z", "attachments": if n == 0 { files.clone() } else { json!([]) } });
        rows.push(json!({ "uuid": id, "name": format!("Thread {number}"), "created_at": "2025-01-01T00:00:00Z", "updated_at": "2025-01-01T00:00:00Z", "chat_messages": (0..20).map(said).collect::<Vec<_>>() }));
    }
    house.import(&[&house.write("claude.json", serde_json::to_vec(&rows).unwrap())]).await;
    let path = house.path("own");
    let ran = house.run(&["export", "-o", path.to_str().unwrap()]).await;
    assert_eq!(ran.code, Some(0), "{ran:?}");
    path.to_str().unwrap().to_owned()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn killed_at_any_moment_it_goes_on_to_the_same_end() {
    let origin = House::sqlite();
    let source = source(&origin).await;
    let whole = origin.export().await;
    for house in House::both().await {
        // The workspace is there before: what is killed is the import.
        house.import(&["--dry-run", &source]).await;
        let mut left = 0;
        // Early and late, in no order: each round has a moment of its own.
        for round in 0..50_u64 {
            let mut child = house.command(&["import", &source]).spawn().unwrap();
            tokio::time::sleep(Duration::from_millis(15 + round * 37 % 150)).await;
            child.start_kill().unwrap();
            child.wait().await.unwrap();
            // What is there is whole: it is part of the end.
            if round % 16 == 15 {
                let now = house.export().await;
                left = now.lines().filter(|line| line.starts_with("{\"type\":\"conversation\"")).count();
                assert!(now.lines().all(|line| whole.contains(line)), "round {round}");
            }
        }
        house.import(&[&source]).await;
        assert_eq!(house.export().await, whole, "{left} were there");
    }
}
