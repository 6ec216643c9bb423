//! What a workspace keeps for good.

use reqwest::Method;
use serde_json::{Value, json};
use testkit::form::Form;

use crate::caller::{ask, bag, files, id, ids, names, refused};
use crate::world::{Home, World, stories_everywhere};

stories_everywhere!(kept_for_good);

async fn kept_for_good(home: Home) -> Option<()> {
    let world = World::start(home).await?;
    let (ann, bob, eve) = (&world.ann, world.member("bob").await, world.stranger("eve").await);
    let chat = ann.conversation().await;
    let file = ann.put(&chat, "a.txt", b"a").await;
    assert_eq!(ann.list_all("/v1/files").await, Vec::<Value>::new(), "nothing moves there by itself");
    let kept = files(&ann.post("/v1/files", &json!({ "from": file["id"] })).await).remove(0);
    let key = format!("workspace-files/{}/a.txt", world.workspace);
    assert_eq!(
        kept,
        json!({ "id": kept["id"], "chatId": null, "executionId": null, "messageId": null, "name": "a.txt",
            "mimeType": "text/plain", "size": 1, "sha256": file["sha256"], "storageKey": key, "source": "user",
            "createdAt": kept["createdAt"], "deletedAt": null })
    );
    let form = Form::of("a.txt", b"1").file("b.txt", b"22");
    let uploaded = files(&ask(bob.form("/v1/files", &form)).await);
    assert_eq!(names(&uploaded), ["a-1.txt", "b.txt"]);
    // It outlives what it was copied from.
    assert_eq!(ann.delete(&format!("{}/{}", bag(&chat), id(&file))).await, 204);
    assert_eq!(ann.delete(&format!("/v1/chat-conversations/{chat}")).await, 204);
    let all = [vec![kept.clone()], uploaded].concat();
    for member in [ann, &bob] {
        assert_eq!(ids(&member.list_all("/v1/files").await), ids(&all));
        assert_eq!(member.content(&kept).await.bytes, b"a");
    }
    assert_eq!(eve.list_all("/v1/files").await, Vec::<Value>::new());
    for (method, path) in [
        (Method::GET, format!("/v1/files/{}/content", id(&kept))),
        (Method::DELETE, format!("/v1/files/{}", id(&kept))),
    ] {
        refused(&eve.send(method, &path, None).await, 404, "not_found");
    }
    refused(&eve.post("/v1/files", &json!({ "from": kept["id"] })).await, 404, "not_found");
    let page = ann.get("/v1/files?limit=1").await;
    assert!(
        page.body["next"].is_string() && page.body["data"].as_array().unwrap().len() == 1,
        "{}",
        page.text
    );

    assert_eq!(bob.delete(&format!("/v1/files/{}", id(&kept))).await, 204);
    assert_eq!(bob.delete(&format!("/v1/files/{}", id(&kept))).await, 404);
    assert_eq!(ann.content(&kept).await.status, 404);
    assert_eq!(ann.list_all("/v1/files").await.len(), 2);
    // A file of a conversation is not the workspace's to delete.
    let chat = ann.conversation().await;
    let file = ann.put(&chat, "c.txt", b"c").await;
    assert_eq!(ann.delete(&format!("/v1/files/{}", id(&file))).await, 404);
    for bad in [json!({}), json!({ "from": "x" }), json!({ "from": file["id"], "to": 1 })] {
        assert!(matches!(ann.post("/v1/files", &bad).await.status, 400 | 422), "{bad}");
    }
    refused(
        &ann.post("/v1/files", &json!({ "from": "0190b2a0-0000-7000-8000-000000000000" })).await,
        404,
        "not_found",
    );
    Some(())
}
