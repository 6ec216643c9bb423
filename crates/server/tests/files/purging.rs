//! `threadkeep purge` and the retention setting: rows and bytes of what was deleted go for good, and nothing else does.

use std::path::Path;

use serde_json::{Value, json};
use testkit::agent::echo;
use testkit::form::Form;
use testkit::server::token;
use tokio_postgres::NoTls;

use crate::bad_input::{blobs, until};
use crate::caller::{CONVERSATIONS, Caller, ask, bag, files, id, names};
use crate::world::{Home, World, stories, stories_everywhere};

stories!(nothing_is_left, nor_of_a_removed_workspace, by_itself);
stories_everywhere!(what_is_not_deleted_stays);

const CANARY: &str = "canary-5f2b9c-of-the-purge";

/// The files below a folder that hold these bytes.
fn holding(folder: &Path, bytes: &[u8], found: &mut Vec<String>) {
    for entry in std::fs::read_dir(folder).unwrap().flatten() {
        let path = entry.path();
        if entry.file_type().unwrap().is_dir() {
            holding(&path, bytes, found);
        } else if std::fs::read(&path)
            .is_ok_and(|held| held.windows(bytes.len()).any(|window| window == bytes))
        {
            found.push(path.display().to_string());
        }
    }
}

/// Where the canary is: files of the data folder, and rows of the database.
async fn sightings(world: &World) -> Vec<String> {
    let mut found = Vec::new();
    holding(world.data(), CANARY.as_bytes(), &mut found);
    if let Some(database) = world.database() {
        let (client, connection) =
            tokio_postgres::connect(&database.superuser_url().unwrap(), NoTls).await.unwrap();
        let connection = tokio::spawn(connection);
        let tables = "SELECT schemaname || '.' || tablename FROM pg_tables WHERE schemaname NOT IN ('pg_catalog', 'information_schema')";
        for row in client.query(tables, &[]).await.unwrap() {
            let table: String = row.get(0);
            let count = format!("SELECT count(*) FROM {table} AS r WHERE r::text LIKE '%{CANARY}%'");
            if client.query_one(&count, &[]).await.unwrap().get::<_, i64>(0) > 0 {
                found.push(table);
            }
        }
        connection.abort();
    }
    found
}

async fn nothing_is_left(home: Home) -> Option<()> {
    let mut world = World::start(home).await?;
    let ann = world.ann.clone();
    let chat = ann.conversation_with(json!({ "title": CANARY, "context": { "x": CANARY } })).await;
    let file = ann.put(&chat, &format!("{CANARY}.txt"), CANARY.as_bytes()).await;
    world.sandbox.play(echo("canary-5f2b9c-of-the-purge-made.txt", b"canary-5f2b9c-of-the-purge"));
    ann.turn(&json!({ "conversation": chat, "message": CANARY, "attachments": [file["id"]] })).await;
    let live = ann.conversation().await;
    let deleted = ann.put(&live, "b.txt", CANARY.as_bytes()).await;
    let kept = ann.put(&live, "kept.txt", b"kept").await;
    assert_eq!(ann.delete(&format!("{}/{}", bag(&live), id(&deleted))).await, 204);
    assert_eq!(ann.delete(&format!("{CONVERSATIONS}/{chat}")).await, 204);
    assert!(sightings(&world).await.len() > 2, "the canary is there to be found");

    // Told first, and not done.
    let would = world.command(&["purge", "--dry-run"]).await;
    assert!(would.contains("Would remove 1 conversation"), "{would}");
    let would: Value = serde_json::from_str(&world.command(&["purge", "--dry-run", "--json"]).await).unwrap();
    assert_eq!(would, json!({ "would_remove": { "workspaces": 0, "conversations": 1, "files": 3 } }));
    let none: Value =
        serde_json::from_str(&world.command(&["purge", "--older-than-days", "1", "--json"]).await).unwrap();
    assert_eq!(none["removed"], json!({ "workspaces": 0, "conversations": 0, "files": 0 }));
    assert_eq!(
        ann.send(reqwest::Method::POST, &format!("{CONVERSATIONS}/{chat}/restore"), None).await.status,
        200
    );
    assert_eq!(ann.content(&file).await.bytes, CANARY.as_bytes());
    assert_eq!(ann.delete(&format!("{CONVERSATIONS}/{chat}")).await, 204);

    let removed: Value = serde_json::from_str(&world.command(&["purge", "--json"]).await).unwrap();
    assert_eq!(removed, json!({ "removed": { "workspaces": 0, "conversations": 1, "files": 3 } }));
    assert_eq!(
        ann.send(reqwest::Method::POST, &format!("{CONVERSATIONS}/{chat}/restore"), None).await.status,
        404
    );
    assert_eq!(ann.content(&kept).await.bytes, b"kept");
    assert_eq!(blobs(&world), [kept["storageKey"].as_str().unwrap()]);
    // In no file and no row; a server that ends folds its log of writes away.
    world.process.terminate().await.unwrap();
    assert_eq!(sightings(&world).await, Vec::<String>::new());
    world.restart(&[]).await;
    assert_eq!(world.ann.put(&live, "b.txt", b"again").await["name"], "b.txt", "even its name is free again");
    let again: Value = serde_json::from_str(&world.command(&["purge", "--json"]).await).unwrap();
    assert_eq!(again["removed"], json!({ "workspaces": 0, "conversations": 0, "files": 0 }));
    Some(())
}

async fn nor_of_a_removed_workspace(home: Home) -> Option<()> {
    let mut world = World::start(home).await?;
    let ann = world.ann.clone();
    // Another one, which stays.
    let other = Caller::new(world.process.url(), &token("eve", "acme"));
    assert_eq!(other.post("/v1/workspaces", &json!({ "name": "Eve's" })).await.status, 201);
    assert_eq!(other.post("/v1/agents", &json!({ "name": "Kept" })).await.status, 201);
    let agent = ann.post("/v1/agents", &json!({ "name": CANARY, "instructions": CANARY })).await;
    assert_eq!(agent.status, 201, "{}", agent.text);
    let execute = async |caller: &Caller, prompt: &'static str| {
        world.sandbox.play(echo(prompt, prompt.as_bytes()));
        let request = caller.request(reqwest::Method::POST, "/v1/executions");
        let request = request.header("content-type", "application/json").header("idempotency-key", prompt);
        let answer = ask(request.body(json!({ "prompt": prompt }).to_string())).await;
        assert_eq!(answer.status, 200, "{}", answer.text);
        answer.header("threadkeep-execution").to_owned()
    };
    execute(&ann, CANARY).await;
    let kept = execute(&other, "kept").await;
    ask(ann.form("/v1/files", &Form::of(&format!("{CANARY}.txt"), CANARY.as_bytes()))).await;
    let chat = ann.conversation_with(json!({ "title": CANARY })).await;
    ann.turn(&json!({ "conversation": chat, "message": CANARY })).await;
    assert_eq!(ann.delete(&format!("/v1/workspaces/{}?cascade=true", world.workspace)).await, 204);
    assert!(sightings(&world).await.len() > 2, "the canary is there to be found");

    let would: Value = serde_json::from_str(&world.command(&["purge", "--dry-run", "--json"]).await).unwrap();
    assert_eq!(would["would_remove"]["workspaces"], 1);
    let removed = world.command(&["purge"]).await;
    assert!(removed.starts_with("Removed 1 workspace, 1 conversation and "), "{removed}");
    let again: Value = serde_json::from_str(&world.command(&["purge", "--json"]).await).unwrap();
    assert_eq!(again["removed"], json!({ "workspaces": 0, "conversations": 0, "files": 0 }));
    assert_eq!(other.get("/v1/agents").await.body["data"][0]["name"], "Kept");
    let kept = other.get(&format!("/v1/executions/{kept}")).await.body;
    assert_eq!(blobs(&world), [kept["files"][0]["storageKey"].as_str().unwrap()]);
    world.process.terminate().await.unwrap();
    assert_eq!(sightings(&world).await, Vec::<String>::new());
    Some(())
}

async fn what_is_not_deleted_stays(home: Home) -> Option<()> {
    let world = World::start_with(home, &[("THREADKEEP_FILE_GRACE_SECONDS", "1")]).await?;
    let ann = &world.ann;
    let (live, gone) = (ann.conversation().await, ann.conversation().await);
    let kept = ann.put(&live, "kept.txt", b"kept").await;
    let deleted = ann.put(&gone, "gone.txt", b"gone").await;
    let workspace = files(&ask(ann.form("/v1/files", &Form::of("ws.txt", b"ws"))).await).remove(0);
    world.sandbox.play(echo("out.txt", b"made"));
    let request =
        ann.request(reqwest::Method::POST, "/v1/executions").header("content-type", "application/json");
    let execution = ask(request.body(json!({ "prompt": "x" }).to_string()))
        .await
        .header("threadkeep-execution")
        .to_owned();
    let made = ann.get(&format!("/v1/executions/{execution}")).await.body["files"][0].clone();
    assert_eq!(ann.delete(&format!("{CONVERSATIONS}/{gone}")).await, 204);
    // Past the grace period, so that the orphan scan looks at all of them.
    tokio::time::sleep(std::time::Duration::from_millis(2200)).await;
    let removed: Value = serde_json::from_str(&world.command(&["purge", "--json"]).await).unwrap();
    assert_eq!(removed, json!({ "removed": { "workspaces": 0, "conversations": 1, "files": 1 } }));
    for (file, bytes) in [(&kept, &b"kept"[..]), (&workspace, b"ws"), (&made, b"made")] {
        assert_eq!(ann.content(file).await.bytes, bytes, "{}", file["name"]);
    }
    assert_eq!(ann.content(&deleted).await.status, 404);
    assert_eq!(names(&ann.list(&live).await), ["kept.txt"]);
    Some(())
}

async fn by_itself(home: Home) -> Option<()> {
    let mut world = World::start_with(home, &[("THREADKEEP_FILE_GRACE_SECONDS", "1")]).await?;
    let ann = world.ann.clone();
    let (chat, recent) = (ann.conversation().await, ann.conversation().await);
    for chat in [&chat, &recent] {
        ann.put(chat, "a.txt", b"a").await;
        assert_eq!(ann.delete(&format!("{CONVERSATIONS}/{chat}")).await, 204);
    }
    // As if one of them had been deleted two days ago.
    world.process.terminate().await.unwrap();
    age(&world, &chat).await;
    world.restart(&[("THREADKEEP_RETENTION_DAYS", "1")]).await;
    until(async || blobs(&world).len() == 1).await;
    assert!(blobs(&world)[0].contains(&recent));
    let restore = async |chat: &str| {
        world.ann.send(reqwest::Method::POST, &format!("{CONVERSATIONS}/{chat}/restore"), None).await.status
    };
    until(async || restore(&chat).await == 404).await;
    assert_eq!(restore(&recent).await, 200);
    Some(())
}

/// Moves the deletion of a conversation two days back.
async fn age(world: &World, chat: &str) {
    let sqlite = "UPDATE chat_conversations SET deleted_at = deleted_at - 172800000 WHERE id = ?1";
    let postgres = "UPDATE chat_conversations SET deleted_at = deleted_at - interval '2 days' WHERE id = $1";
    world.alter(chat, sqlite, postgres).await;
}
