//! Private and shared conversations: who sees them, and what those who see them may not do.

use serde_json::{Value, json};
use testkit::server::{Backend, TestServer};

use crate::setup::{Team, delete, document, expect, get, ids, patch, post};

const CONVERSATIONS: &str = "/v1/chat-conversations";

async fn private_is_for_its_owner_and_admins(backend: Backend) {
    let Some(server) = TestServer::start(backend).await else { return };
    let team = Team::new(&server).await;
    team.member("third", "member").await;
    let third = server.person("third", "acme");
    let id = team.mate.create_conversation(json!({ "title": "Private" })).await.unwrap();
    let path = format!("{CONVERSATIONS}/{id}");
    let visibility = get(&team.mate, &path).await.body["data"]["attributes"]["visibility"].clone();
    assert_eq!(visibility, "private");
    for (caller, sees) in [(&team.mate, true), (&team.boss, true), (&third, false)] {
        assert_eq!(get(caller, &path).await.status, if sees { 200 } else { 404 });
        for query in ["", "?filter[query]=private", "?filter[kind]=assistant_sandbox", "?sort=title"] {
            let listed = get(caller, &format!("{CONVERSATIONS}{query}")).await;
            assert_eq!(ids(&listed).len(), usize::from(sees), "{query}: {listed:?}");
        }
    }
}

async fn shared_may_be_seen_and_edited_but_not_deleted_or_reshared(backend: Backend) {
    let Some(server) = TestServer::start(backend).await else { return };
    let team = Team::new(&server).await;
    team.member("third", "member").await;
    let third = server.person("third", "acme");
    let attributes = json!({ "title": "Shared", "visibility": "workspace" });
    let id = team.mate.create_conversation(attributes).await.unwrap();
    let path = format!("{CONVERSATIONS}/{id}");
    let change = |attributes: Value| document(Some(&id), attributes);

    expect(&get(&third, &path).await, 200, "");
    assert_eq!(ids(&get(&third, CONVERSATIONS).await), [&id]);
    expect(&patch(&third, &path, change(json!({ "title": "Renamed" }))).await, 200, "");
    let before = get(&team.mate, &path).await.text;
    let denied = patch(&third, &path, change(json!({ "title": "x", "visibility": "private" }))).await;
    expect(&denied, 403, "forbidden");
    assert_eq!(denied.body["errors"][0]["source"]["pointer"], "/data/attributes/visibility");
    expect(&delete(&third, &path).await, 403, "forbidden");
    assert_eq!(get(&team.mate, &path).await.text, before);

    // The owner and an admin may.
    expect(&patch(&team.mate, &path, change(json!({ "visibility": "private" }))).await, 200, "");
    expect(&get(&third, &path).await, 404, "not_found");
    expect(&patch(&third, &path, change(json!({ "visibility": "workspace" }))).await, 404, "not_found");
    expect(&delete(&third, &path).await, 404, "not_found");
    expect(&patch(&team.boss, &path, change(json!({ "visibility": "workspace" }))).await, 200, "");
    expect(&get(&third, &path).await, 200, "");
    // Shared with the workspace, not with the org.
    let outsider = server.person("outsider", "acme");
    outsider.create_workspace("Other").await.unwrap();
    expect(&get(&outsider, &path).await, 404, "not_found");
    assert!(ids(&get(&outsider, CONVERSATIONS).await).is_empty());
}

async fn the_deleted_are_for_their_owner_and_admins(backend: Backend) {
    let Some(server) = TestServer::start(backend).await else { return };
    let team = Team::new(&server).await;
    team.member("third", "member").await;
    let third = server.person("third", "acme");
    for visibility in ["private", "workspace"] {
        let attributes = json!({ "title": "Gone", "visibility": visibility });
        let id = team.mate.create_conversation(attributes).await.unwrap();
        let (path, restore) = (format!("{CONVERSATIONS}/{id}"), format!("{CONVERSATIONS}/{id}/restore"));
        for admin in [false, true] {
            expect(&delete(&team.mate, &path).await, 204, "");
            expect(&delete(&team.mate, &path).await, 404, "not_found");
            for (caller, sees) in [(&team.mate, 1), (&team.boss, 1), (&third, 0)] {
                expect(&get(caller, &path).await, 404, "not_found");
                assert!(ids(&get(caller, CONVERSATIONS).await).iter().all(|listed| *listed != id));
                let deleted = get(caller, &format!("{CONVERSATIONS}?filter[deleted]=true")).await;
                assert_eq!(ids(&deleted).len(), sees, "{visibility}: {deleted:?}");
                let found = format!("{CONVERSATIONS}?filter[deleted]=true&filter[query]=gone");
                assert_eq!(ids(&get(caller, &found).await).len(), sees, "{visibility}");
            }
            expect(&post(&third, &restore, Value::Null).await, 404, "not_found");
            let restorer = if admin { &team.boss } else { &team.mate };
            expect(&post(restorer, &restore, Value::Null).await, 200, "");
            expect(&get(&team.mate, &path).await, 200, "");
        }
        expect(&delete(&team.boss, &path).await, 204, "");
        expect(&post(&team.mate, &restore, Value::Null).await, 200, "");
        expect(&delete(&team.mate, &path).await, 204, "");
        expect(&post(&team.boss, &restore, Value::Null).await, 200, "");
    }
}

async fn the_workspace_sets_the_default(backend: Backend) {
    let Some(server) = TestServer::start(backend).await else { return };
    let team = Team::new(&server).await;
    let path = format!("/v1/workspaces/{}", team.workspace);
    let made = |attributes: Value| team.mate.create_conversation(attributes);
    let visibility = async |id: String| {
        let answer = get(&team.mate, &format!("{CONVERSATIONS}/{id}")).await;
        answer.body["data"]["attributes"]["visibility"].as_str().unwrap().to_owned()
    };
    let first = made(json!({})).await.unwrap();
    assert_eq!(visibility(first.clone()).await, "private");
    expect(&patch(&team.mate, &path, json!({ "default_visibility": "workspace" })).await, 403, "forbidden");
    expect(&patch(&team.boss, &path, json!({ "default_visibility": "workspace" })).await, 200, "");
    assert_eq!(visibility(made(json!({})).await.unwrap()).await, "workspace");
    assert_eq!(visibility(made(json!({ "visibility": "private" })).await.unwrap()).await, "private");
    // What was there stays as it was.
    assert_eq!(visibility(first).await, "private");
    let body = json!({ "name": "Open", "default_visibility": "workspace" });
    assert_eq!(post(&team.boss, "/v1/workspaces", body).await.body["default_visibility"], "workspace");
}

on_both!(
    private_is_for_its_owner_and_admins,
    shared_may_be_seen_and_edited_but_not_deleted_or_reshared,
    the_deleted_are_for_their_owner_and_admins,
    the_workspace_sets_the_default,
);
