//! ETags: conditional updates and deletes (412), and reads that were not modified (304).

use reqwest::Method;
use serde_json::json;

use crate::world::{World, change, code, id_of, item, stories};

stories!(
    an_update_can_insist_on_a_version,
    a_delete_can_insist_on_a_version,
    one_of_many_writers_wins,
    a_read_can_be_not_modified,
    every_write_makes_another_etag,
);

async fn etag(world: &World, id: &str) -> String {
    world.get(&item(id)).await.header("etag").to_owned()
}

async fn an_update_can_insist_on_a_version(world: World) {
    let id = id_of(&world.create(json!({ "title": "0" })).await);
    let old = etag(&world, &id).await;
    assert!(old.starts_with('"') && old.ends_with('"') && old.len() > 2, "a strong tag: {old}");
    let patch = async |tag: &str, title: &str| {
        let body = change(&id, &json!({ "title": title }));
        world.send(world.with_body(Method::PATCH, &item(&id), body).header("if-match", tag)).await
    };
    let answer = patch(&old, "1").await;
    assert_eq!(answer.status, 200, "{}", answer.text);
    let new = answer.header("etag").to_owned();
    assert_ne!(new, old);
    assert_eq!(new, etag(&world, &id).await);

    let before = world.everything().await;
    for stale in
        [&old, &format!("W/{new}"), "\"nonsense\"", "nonsense", "\"", "\"999999\"", &new.replace('"', "")]
    {
        let answer = patch(stale, "lost").await;
        assert_eq!((answer.status, code(&answer)), (412, "precondition_failed"), "{stale}: {}", answer.text);
        assert_eq!(answer.body["errors"][0]["source"]["header"], "If-Match");
    }
    assert_eq!(world.everything().await, before);
    assert_eq!(patch(&format!("{old}, {new}"), "2").await.status, 200);
    assert_eq!(patch("*", "3").await.status, 200);
    // What is not there is not there, whatever the condition.
    let nobody = "44444444-4444-4444-8444-444444444444";
    let request = world.with_body(Method::PATCH, &item(nobody), change(nobody, &json!({})));
    assert_eq!(world.send(request.header("if-match", &old)).await.status, 404);
}

async fn a_delete_can_insist_on_a_version(world: World) {
    let id = id_of(&world.create(json!({})).await);
    let old = etag(&world, &id).await;
    world.patch(&id, &json!({ "title": "changed" })).await;
    let request = |tag: &str| world.request(Method::DELETE, &item(&id)).header("if-match", tag.to_owned());
    assert_eq!(world.send(request(&old)).await.status, 412);
    world.retrieve(&id).await;
    assert_eq!(world.send(request(&etag(&world, &id).await)).await.status, 204);
    assert_eq!(world.send(request("*")).await.status, 404);
}

async fn one_of_many_writers_wins(world: World) {
    let id = id_of(&world.create(json!({})).await);
    for _ in 0..10 {
        let tag = etag(&world, &id).await;
        let writers = (0..10).map(|n| {
            let body = change(&id, &json!({ "title": n.to_string() }));
            world.send(world.with_body(Method::PATCH, &item(&id), body).header("if-match", &tag))
        });
        let answers = futures_util::future::join_all(writers).await;
        let won: Vec<_> = answers.iter().filter(|answer| answer.status == 200).collect();
        assert_eq!(won.len(), 1);
        assert_eq!(answers.iter().filter(|answer| answer.status == 412).count(), 9);
        assert_eq!(world.retrieve(&id).await, won[0].body["data"]);
    }
}

async fn a_read_can_be_not_modified(world: World) {
    let id = id_of(&world.create(json!({})).await);
    let tag = etag(&world, &id).await;
    let read = async |tags: &str| {
        world.send(world.request(Method::GET, &item(&id)).header("if-none-match", tags)).await
    };
    for tags in [&tag, &format!("W/{tag}"), &format!("\"x\", {tag}"), "*"] {
        let answer = read(tags).await;
        assert_eq!((answer.status, answer.header("etag")), (304, &*tag), "{tags}");
    }
    world.patch(&id, &json!({ "title": "changed" })).await;
    for tags in [&tag, "\"x\""] {
        assert_eq!(read(tags).await.status, 200, "{tags}");
    }
    // An included workspace changes without the conversation.
    let tag = etag(&world, &id).await;
    let path = format!("{}?include=workspace", item(&id));
    let workspace = format!("/v1/workspaces/{}", world.workspace);
    let rename = world.request(Method::PATCH, &workspace).header("content-type", "application/json");
    assert_eq!(world.send(rename.body(r#"{"name":"renamed"}"#)).await.status, 200);
    let answer = world.send(world.request(Method::GET, &path).header("if-none-match", &tag)).await;
    assert_eq!(answer.status, 200);
    assert_eq!(answer.body["included"][0]["attributes"]["name"], "renamed");
}

async fn every_write_makes_another_etag(world: World) {
    let id = id_of(&world.create(json!({})).await);
    let mut seen = vec![etag(&world, &id).await];
    world.patch(&id, &json!({ "title": "a" })).await;
    seen.push(etag(&world, &id).await);
    world.ask(&id, "hello").await;
    seen.push(etag(&world, &id).await);
    world.delete(&id).await;
    seen.push(world.restore(&id).await.header("etag").to_owned());
    let all = seen.len();
    seen.sort();
    seen.dedup();
    assert_eq!(seen.len(), all, "{seen:?}");
}
