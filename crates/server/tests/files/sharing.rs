//! Who sees a file: whoever sees its conversation, by that conversation's path alone; and a fork has files of its own.

use reqwest::Method;
use serde_json::{Value, json};
use testkit::agent::echo;
use testkit::form::Form;

use crate::caller::{CONVERSATIONS, bag, content_path, files, id, names, refused};
use crate::world::{Home, World, stories, stories_everywhere};

stories!(who_sees_what);
stories_everywhere!(a_fork_has_its_own_copies);

async fn who_sees_what(home: Home) -> Option<()> {
    let world = World::start(home).await?;
    let (bob, carol, eve) =
        (world.member("bob").await, world.member("carol").await, world.stranger("eve").await);
    let private = bob.conversation().await;
    let shared = bob.conversation_with(json!({ "visibility": "workspace" })).await;
    let (own, open) =
        (bob.put(&private, "own.txt", b"own").await, bob.put(&shared, "open.txt", b"open").await);
    for stranger in [&carol, &eve] {
        for (method, path) in [
            (Method::GET, bag(&private)),
            (Method::GET, content_path(&own)),
            (Method::HEAD, content_path(&own)),
            (Method::GET, format!("/v1/files/{}/content", id(&own))),
            (Method::DELETE, format!("{}/{}", bag(&private), id(&own))),
        ] {
            assert_eq!(stranger.send(method.clone(), &path, None).await.status, 404, "{method} {path}");
        }
        refused(&stranger.upload(&private, &Form::of("x", b"x")).await, 404, "not_found");
        refused(&stranger.post("/v1/files", &json!({ "from": own["id"] })).await, 404, "not_found");
    }
    assert_eq!(eve.get(&content_path(&open)).await.status, 404);
    // What is shared is seen by the workspace; admins see all of it.
    assert_eq!(carol.content(&open).await.bytes, b"open");
    assert_eq!(names(&carol.list(&shared).await), ["open.txt"]);
    assert_eq!(world.ann.content(&own).await.bytes, b"own");
    // A file is found under its own conversation only, also by those who see both.
    for (chat, file) in [(&private, &open), (&shared, &own)] {
        let path = format!("{}/{}", bag(chat), id(file));
        refused(&bob.get(&format!("{path}/content")).await, 404, "not_found");
        refused(&bob.send(Method::DELETE, &path, None).await, 404, "not_found");
    }
    let answer = world.ann.anonymous(Method::GET, &format!("{}{}", world.ann.url(), content_path(&open)));
    assert_eq!(crate::caller::got(answer).await.status, 401);
    assert_eq!(bob.content(&own).await.bytes, b"own");
    Some(())
}

async fn a_fork_has_its_own_copies(home: Home) -> Option<()> {
    let world = World::start(home).await?;
    let ann = &world.ann;
    let chat = ann.conversation().await;
    let attached = ann.put(&chat, "attached.txt", b"attached").await;
    world.sandbox.play(echo("made.txt", b"made"));
    let told =
        ann.turn(&json!({ "conversation": chat, "message": "one", "attachments": [attached["id"]] })).await;
    let through = told.terminal().data["assistant"]["id"].clone();
    ann.turn(&json!({ "conversation": chat, "message": "two" })).await;
    let later = ann.put(&chat, "later.txt", b"later").await;
    let document = json!({ "through": through });
    let request = ann.request(Method::POST, &format!("{CONVERSATIONS}/{chat}/fork"));
    let request = request.header("content-type", "application/json").body(document.to_string());
    let forked = crate::caller::ask(request).await;
    assert_eq!(forked.status, 201, "{}", forked.text);
    let fork = id(&forked.body["data"]).to_owned();
    let copies = ann.list(&fork).await;
    let mut copied = names(&copies);
    copied.sort_unstable();
    assert_eq!(copied, ["attached.txt", "made.txt"], "what came later is not in it: {later}");
    for copy in &copies {
        assert_eq!(copy["chatId"], json!(fork));
        let prefix = format!("assistant-chat-bag/{}/{fork}/", world.workspace);
        assert!(copy["storageKey"].as_str().unwrap().starts_with(&prefix));
    }
    let of = |name: &str| copies.iter().find(|copy| copy["name"] == name).unwrap();
    // Its messages name the copies.
    let messages = ann.messages(&fork).await;
    assert_eq!(messages[0]["fileAttachments"][0]["fileId"], of("attached.txt")["id"]);
    let block =
        messages[1]["parts"].as_array().unwrap().iter().find(|block| block["type"] == "file").unwrap();
    assert_eq!(block["fileId"], of("made.txt")["id"]);
    // Each has its own from now on.
    assert_eq!(ann.delete(&format!("{CONVERSATIONS}/{chat}")).await, 204);
    assert_eq!(ann.content(of("attached.txt")).await.bytes, b"attached");
    assert_eq!(ann.content(of("made.txt")).await.bytes, b"made");
    let more = files(&ann.upload(&fork, &Form::of("later.txt", b"x")).await);
    assert_eq!(names(&more), ["later.txt"]);
    world.command(&["purge"]).await;
    assert_eq!(ann.content(of("attached.txt")).await.bytes, b"attached");
    let gone: Vec<Value> = vec![];
    assert_eq!(ann.list_all("/v1/files").await, gone);
    Some(())
}
