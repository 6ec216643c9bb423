//! Out of the bag: a file, or a conversation with all of its files, gone on every path at once.

use reqwest::Method;
use serde_json::{Value, json};

use crate::caller::{CONVERSATIONS, ask, bag, content_path, id, ids, refused};
use crate::world::{Home, World, stories};

stories!(a_deleted_file, a_deleted_conversation, a_deleted_workspace, what_is_under_way_breaks_off);

async fn a_deleted_file(home: Home) -> Option<()> {
    let world = World::start(home).await?;
    let ann = &world.ann;
    let chat = ann.conversation().await;
    let (gone, kept) = (ann.put(&chat, "a.txt", b"gone").await, ann.put(&chat, "b.txt", b"kept").await);
    let path = format!("{}/{}", bag(&chat), id(&gone));
    assert_eq!(ann.delete(&path).await, 204);
    refused(&ann.send(Method::DELETE, &path, None).await, 404, "not_found");
    assert_eq!(ids(&ann.list(&chat).await), [id(&kept)]);
    refused(&ann.get(&content_path(&gone)).await, 404, "not_found");
    refused(&ann.get(&format!("/v1/files/{}/content", id(&gone))).await, 404, "not_found");
    refused(&ann.post("/v1/files", &json!({ "from": gone["id"] })).await, 404, "not_found");
    // Its name stays taken.
    assert_eq!(ann.put(&chat, "A.TXT", b"new").await["name"], "A-1.TXT");
    Some(())
}

async fn a_deleted_conversation(home: Home) -> Option<()> {
    let world = World::start(home).await?;
    let ann = &world.ann;
    let chat = ann.conversation().await;
    let file = ann.put(&chat, "a.txt", b"canary").await;
    let (ids, agent) = world.hanging(&chat).await;
    let config = agent.config().await.unwrap();
    let url = config.body["assets"]["url"].as_str().unwrap().to_owned();
    assert_eq!(agent.fetch(&url).await.unwrap().status(), 200);
    let promise = json!({ "name": "p", "size": 1, "sha256": "0".repeat(64) });
    let promised = ann.post(&format!("{}/uploads", bag(&chat)), &promise).await;
    assert_eq!(promised.status, 201, "{}", promised.text);

    assert_eq!(ann.delete(&format!("{CONVERSATIONS}/{chat}")).await, 204);
    let file_path = format!("{}/{}", bag(&chat), id(&file));
    for (method, path, body) in [
        (Method::GET, bag(&chat), Value::Null),
        (Method::GET, content_path(&file), Value::Null),
        (Method::GET, format!("/v1/files/{}/content", id(&file)), Value::Null),
        (Method::DELETE, file_path, Value::Null),
        (Method::POST, "/v1/files".to_owned(), json!({ "from": file["id"] })),
        (Method::POST, format!("{}/uploads", bag(&chat)), promise.clone()),
        (Method::POST, format!("{}/uploads/{}/complete", bag(&chat), id(&promised.body)), Value::Null),
    ] {
        let body = Some(&body).filter(|body| !body.is_null());
        refused(&ann.send(method.clone(), &path, body).await, 404, "not_found");
    }
    refused(&ann.upload(&chat, &testkit::form::Form::of("b", b"b")).await, 404, "not_found");
    assert_eq!(agent.fetch(&url).await.unwrap().status(), 410);
    assert_eq!(agent.config().await.unwrap().status, 401);
    assert_eq!(agent.send_back(&testkit::form::Form::of("b", b"b")).await.unwrap().status, 401);
    let answer = ask(ann.request(Method::GET, &format!("/v1/runs/{}", ids["run"].as_str().unwrap()))).await;
    assert_eq!(answer.status, 404);

    let restored = ann.send(Method::POST, &format!("{CONVERSATIONS}/{chat}/restore"), None).await;
    assert_eq!(restored.status, 200, "{}", restored.text);
    assert_eq!(ann.list(&chat).await, std::slice::from_ref(&file));
    assert_eq!(ann.content(&file).await.bytes, b"canary");
    // What was deleted before stays so.
    Some(())
}

async fn a_deleted_workspace(home: Home) -> Option<()> {
    let world = World::start(home).await?;
    let ann = &world.ann;
    let chat = ann.conversation().await;
    let file = ann.put(&chat, "a.txt", b"canary").await;
    let (_, agent) = world.hanging(&chat).await;
    let url = agent.config().await.unwrap().body["assets"]["url"].as_str().unwrap().to_owned();
    let path = format!("/v1/workspaces/{}", world.workspace);
    assert_eq!(ann.delete(&format!("{path}?cascade=true")).await, 204);
    assert_ne!(ann.get(&format!("{}?workspace={}", content_path(&file), world.workspace)).await.status, 200);
    assert_eq!(agent.fetch(&url).await.unwrap().status(), 410);
    Some(())
}

/// How many bytes still come, and whether they end well.
async fn rest(mut response: reqwest::Response) -> (usize, bool) {
    let mut came = 0;
    loop {
        match response.chunk().await {
            Ok(Some(chunk)) => came += chunk.len(),
            end => return (came, end.is_ok()),
        }
    }
}

/// More than the buffers between two processes hold.
async fn what_is_under_way_breaks_off(home: Home) -> Option<()> {
    let world = World::start(home).await?;
    let ann = &world.ann;
    let size = 48 << 20;
    for whole in [false, true] {
        let chat = ann.conversation().await;
        let file = ann.put(&chat, "large.bin", &vec![7; size]).await;
        let (_, agent) = world.hanging(&chat).await;
        let url = agent.config().await.unwrap().body["assets"]["url"].as_str().unwrap().to_owned();
        let paths = [content_path(&file), format!("/v1/files/{}/content", id(&file)), url];
        let mut under_way = Vec::new();
        for path in &paths {
            let response = ann.request(Method::GET, path).send().await.unwrap();
            assert_eq!(response.status(), 200);
            under_way.push(response);
        }
        let gone =
            if whole { format!("{CONVERSATIONS}/{chat}") } else { format!("{}/{}", bag(&chat), id(&file)) };
        assert_eq!(ann.delete(&gone).await, 204);
        for (response, path) in under_way.into_iter().zip(&paths) {
            let (came, ended) = rest(response).await;
            assert!(!ended && came < size, "{path}: {came}");
        }
    }
    Some(())
}
