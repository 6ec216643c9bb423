//! An import that is killed at any moment and started again: the same end as one that was left alone.

use std::time::Instant;

use serde_json::json;

use crate::house::{House, random};

/// An export of ours with many conversations, some with files.
async fn source(house: &House) -> String {
    let mut rows = Vec::new();
    for number in 0..40 {
        let id = format!("3f2b9a10-0000-4000-8000-{number:012}");
        let file =
            json!([{ "file_name": "a.txt", "extracted_content": format!("text {number} ").repeat(200) }]);
        let files = if number % 3 == 0 { file } else { json!([]) };
        let said = |n: u32| json!({ "uuid": format!("m{n}"), "sender": if n.is_multiple_of(2) { "human" } else { "assistant" }, "text": format!("message {n} of {number}"), "created_at": "2025-01-01T00:00:00Z", "attachments": if n == 0 { files.clone() } else { json!([]) } });
        rows.push(json!({ "uuid": id, "name": format!("Thread {number}"), "created_at": "2025-01-01T00:00:00Z", "updated_at": "2025-01-01T00:00:00Z", "chat_messages": (0..10).map(said).collect::<Vec<_>>() }));
    }
    house.import(&[&house.write("claude.json", serde_json::to_vec(&rows).unwrap())]).await;
    let path = house.path("own");
    let ran = house.run(&["export", "-o", path.to_str().unwrap()]).await;
    assert_eq!(ran.code, Some(0), "{ran:?}");
    path.to_str().unwrap().to_owned()
}

async fn empty(postgres: bool) -> Option<House> {
    let house = if postgres { House::postgres().await? } else { House::sqlite() };
    // The schema and the workspace are there before: what is killed is the import.
    assert_eq!(house.run(&["migrate"]).await.code, Some(0));
    Some(house)
}

/// Kills it as often, each time at some moment of the time that it takes alone; what has come to its end begins anew.
async fn killed(postgres: bool, kills: u32, source: &str, whole: &str) {
    let Some(mut house) = empty(postgres).await else { return };
    let began = Instant::now();
    house.import(&[source]).await;
    let mut alone = began.elapsed();
    assert_eq!(house.export().await, whole);
    house = empty(postgres).await.unwrap();
    let mut landed = 0;
    for round in 0..kills {
        let mut child = house.command(&["import", source]).spawn().unwrap();
        let moment = alone.mul_f64(random(1000) as f64 / 1000.0);
        tokio::time::sleep(moment).await;
        child.start_kill().unwrap();
        if child.wait().await.unwrap().success() {
            // It takes less than was thought: the first time the machine was busier.
            alone = moment;
            assert_eq!(house.export().await, whole);
            house = empty(postgres).await.unwrap();
            continue;
        }
        landed += 1;
        // What is there is whole: it is part of the end.
        if round % 8 == 0 {
            let now = house.run(&["export"]).await;
            assert!(now.stdout.lines().all(|line| whole.contains(line)), "round {round}");
        }
    }
    house.import(&[source]).await;
    assert_eq!(house.export().await, whole);
    assert!(landed >= kills / 5, "only {landed} of {kills} kills came before the end");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn killed_at_any_moment_it_goes_on_to_the_same_end() {
    let origin = House::sqlite();
    let source = source(&origin).await;
    let whole = origin.export().await;
    tokio::join!(killed(false, 50, &source, &whole), killed(true, 15, &source, &whole));
}
