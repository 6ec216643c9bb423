//! A file without a byte is a file: it is taken, listed, served, zipped, copied and kept like any other.

use reqwest::Method;
use serde_json::{Value, json};
use testkit::agent::echo;
use testkit::form::Form;

use crate::assets::read_zip;
use crate::caller::{CONVERSATIONS, ask, bag, files, got, id, names, sha256};
use crate::world::{Home, World, stories_everywhere};

stories_everywhere!(an_empty_file_is_a_file, a_fork_copies_it);

async fn is_empty(world: &World, file: &Value) {
    assert_eq!((&file["size"], &file["sha256"]), (&json!(0), &json!(sha256(b""))), "{file}");
    let whole = world.ann.content(file).await;
    assert_eq!((whole.status, whole.header("content-length"), whole.bytes.len()), (200, "0", 0));
    for range in ["bytes=0-", "bytes=0-0", "bytes=-1"] {
        let part = world.ann.content_with(file, &[("range", range)]).await;
        assert_eq!((part.status, part.header("content-range")), (416, "bytes */0"), "{range}");
    }
}

async fn an_empty_file_is_a_file(home: Home) -> Option<()> {
    let world = World::start(home).await?;
    let ann = &world.ann;
    let chat = ann.conversation().await;
    // Alone, and between others.
    let alone = ann.put(&chat, "alone.txt", b"").await;
    let form = Form::of("a.txt", b"a").file("between.png", b"").file("b.txt", b"b");
    let three = files(&ann.upload(&chat, &form).await);
    assert_eq!(names(&three), ["a.txt", "between.png", "b.txt"]);
    // By a link.
    let promise = json!({ "name": "direct.bin", "size": 0, "sha256": sha256(b"") });
    let promised = ann.post(&format!("{}/uploads", bag(&chat)), &promise).await;
    assert_eq!(promised.status, 201, "{}", promised.text);
    let put = got(ann.anonymous(Method::PUT, promised.body["url"].as_str().unwrap()).body("")).await;
    assert!((200..300).contains(&put.status), "{}", put.status);
    let complete = format!("{}/uploads/{}/complete", bag(&chat), id(&promised.body));
    let direct = files(&ann.send(Method::POST, &complete, None).await).remove(0);
    for file in [&alone, &three[1], &direct] {
        is_empty(&world, file).await;
    }
    let mut listed = names(&ann.list(&chat).await).iter().map(ToString::to_string).collect::<Vec<_>>();
    listed.sort();
    assert_eq!(listed, ["a.txt", "alone.txt", "b.txt", "between.png", "direct.bin"]);
    // Into the sandbox.
    let (_, agent) = world.hanging(&chat).await;
    let zipped = read_zip(&agent.assets().await.unwrap().1);
    let sizes: Vec<(&str, usize)> = zipped.iter().map(|(name, body)| (name.as_str(), body.len())).collect();
    let expected = [("a.txt", 1), ("alone.txt", 0), ("b.txt", 1), ("between.png", 0), ("direct.bin", 0)];
    assert_eq!(sizes, expected);
    // Kept for good: copied, and sent there.
    let kept = files(&ann.post("/v1/files", &json!({ "from": alone["id"] })).await).remove(0);
    is_empty(&world, &kept).await;
    let sent = files(&ask(ann.form("/v1/files", &Form::of("sent.txt", b""))).await).remove(0);
    is_empty(&world, &sent).await;
    Some(())
}

async fn a_fork_copies_it(home: Home) -> Option<()> {
    let world = World::start(home).await?;
    let ann = &world.ann;
    let chat = ann.conversation().await;
    let attached = ann.put(&chat, "attached.txt", b"").await;
    world.sandbox.play(echo("made.txt", b""));
    let turn = json!({ "conversation": chat, "message": "one", "attachments": [attached["id"]] });
    let told = ann.turn(&turn).await;
    let through = told.terminal().data["assistant"]["id"].clone();
    let request = ann.request(Method::POST, &format!("{CONVERSATIONS}/{chat}/fork"));
    let body = json!({ "through": through }).to_string();
    let forked = ask(request.header("content-type", "application/json").body(body)).await;
    assert_eq!(forked.status, 201, "{}", forked.text);
    let copies = ann.list(id(&forked.body["data"])).await;
    assert_eq!(copies.len(), 2, "{copies:?}");
    for copy in &copies {
        is_empty(&world, copy).await;
    }
    Some(())
}
