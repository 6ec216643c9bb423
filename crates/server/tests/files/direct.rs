//! Direct uploads: a promise, the bytes past the API by a signed link, and a completion that checks them. On the folder
//! the link is ours, on S3 it is the bucket's.

use domain::grant::UploadLink;
use domain::secret::Secret;
use futures_util::future::join_all;
use reqwest::Method;
use serde_json::{Value, json};
use testkit::server::Answer;

use crate::caller::{CONVERSATIONS, Caller, ask, bag, files, got, id, names, refused, sha256};
use crate::uploading::noise;
use crate::world::{Home, World, stories, stories_everywhere};

stories_everywhere!(promise_put_complete, what_is_not_as_promised);
stories!(
    no_changed_link,
    gone_while_it_is_completed,
    what_cannot_be_promised,
    promises_count_against_the_bag
);

async fn promise(caller: &Caller, chat: &str, name: &str, bytes: &[u8]) -> Value {
    let body = json!({ "name": name, "size": bytes.len(), "sha256": sha256(bytes), "mimeType": "image/png" });
    let answer = caller.post(&format!("{}/uploads", bag(chat)), &body).await;
    assert_eq!(answer.status, 201, "{}", answer.text);
    let mut members: Vec<&String> = answer.body.as_object().unwrap().keys().collect();
    members.sort();
    assert_eq!(members, ["expires_at", "headers", "id", "method", "url"]);
    assert_eq!(answer.body["method"], "PUT");
    answer.body
}

/// Puts bytes as the promise's answer says, without a credential.
async fn put(caller: &Caller, promised: &Value, bytes: &[u8]) -> u16 {
    let mut request = caller.anonymous(Method::PUT, promised["url"].as_str().unwrap()).body(bytes.to_vec());
    for (name, value) in promised["headers"].as_object().unwrap() {
        request = request.header(name, value.as_str().unwrap());
    }
    got(request).await.status
}

async fn complete(caller: &Caller, chat: &str, promised: &Value) -> Answer {
    caller.send(Method::POST, &format!("{}/uploads/{}/complete", bag(chat), id(promised)), None).await
}

async fn promise_put_complete(home: Home) -> Option<()> {
    let world = World::start(home).await?;
    let ann = &world.ann;
    let chat = ann.conversation().await;
    let bytes = noise(5, 6_500_000);
    let promised = promise(ann, &chat, "big.bin", &bytes).await;
    // Nobody sees it yet, and there is nothing to complete.
    assert_eq!(ann.list(&chat).await, Vec::<Value>::new());
    refused(&complete(ann, &chat, &promised).await, 409, "upload_missing");
    let other = ann.put(&chat, "big.bin", b"another").await;
    assert_eq!(other["name"], "big-1.bin", "a promised name is taken");
    let status = put(ann, &promised, &bytes).await;
    assert!((200..300).contains(&status), "{status}");
    assert_eq!(names(&ann.list(&chat).await), ["big-1.bin"]);
    let done = complete(ann, &chat, &promised).await;
    let file = files(&done).remove(0);
    assert_eq!(
        (&file["id"], &file["name"], &file["size"], &file["sha256"], &file["source"]),
        (&promised["id"], &json!("big.bin"), &json!(bytes.len()), &json!(sha256(&bytes)), &json!("user"))
    );
    assert_eq!(file["mimeType"], "application/octet-stream", "not what it said it was");
    assert!(ann.content(&file).await.bytes == bytes);
    // Again: the same answer.
    let again = complete(ann, &chat, &promised).await;
    assert_eq!((again.status, &again.body), (done.status, &done.body));
    // What is put now changes nothing.
    put(ann, &promised, &noise(6, bytes.len())).await;
    complete(ann, &chat, &promised).await;
    assert!(ann.content(&file).await.bytes == bytes);
    // Like any other file of the bag.
    let (_, agent) = world.hanging(&chat).await;
    assert_eq!(names(&agent.assets().await.unwrap().0), ["big-1.bin", "big.bin"]);
    Some(())
}

/// A client that leaves during the completion comes back to a file, whenever that was.
async fn gone_while_it_is_completed(home: Home) -> Option<()> {
    let world = World::start(home).await?;
    let ann = &world.ann;
    let chat = ann.conversation().await;
    let bytes = noise(9, 3_000_000);
    for n in 0..20u32 {
        let name = format!("{n}.bin");
        let promised = promise(ann, &chat, &name, &bytes).await;
        assert_eq!(put(ann, &promised, &bytes).await, 204);
        let moment = std::time::Duration::from_micros(u64::from(n) * 400);
        tokio::time::timeout(moment, complete(ann, &chat, &promised)).await.ok();
        assert_eq!(names(&files(&complete(ann, &chat, &promised).await)), [name]);
    }
    Some(())
}

async fn what_is_not_as_promised(home: Home) -> Option<()> {
    let world = World::start(home).await?;
    let ann = &world.ann;
    let chat = ann.conversation().await;
    for wrong in [&b"0123456789x"[..], b"012345678", b"012345678X", b""] {
        let promised = promise(ann, &chat, "a.txt", b"0123456789").await;
        let status = put(ann, &promised, wrong).await;
        let done = complete(ann, &chat, &promised).await;
        assert!(matches!(done.status, 404 | 409 | 422), "{} put {status}: {}", wrong.len(), done.text);
        assert!(status >= 400 || done.status == 422, "somebody says so: {status} {}", done.text);
        assert_eq!(ann.list(&chat).await, Vec::<Value>::new());
    }
    // Nobody waits for the bytes of a conversation that is deleted, or of an upload that is completed.
    let gone = ann.conversation().await;
    let promised = promise(ann, &gone, "gone.txt", b"gone").await;
    assert_eq!(ann.delete(&format!("{CONVERSATIONS}/{gone}")).await, 204);
    let stored = world.stored().await.len();
    if !world.on_s3() {
        assert_eq!(put(ann, &promised, b"gone").await, 410);
        assert_eq!(world.stored().await.len(), stored);
    }
    // Completions at once: one file, and everyone is told of it.
    let promised = promise(ann, &chat, "b.txt", b"right").await;
    put(ann, &promised, b"right").await;
    let answers = join_all((0..8).map(|_| complete(ann, &chat, &promised))).await;
    for answer in &answers {
        assert_eq!((answer.status, &answer.body), (201, &answers[0].body));
    }
    let listed = ann.list(&chat).await;
    assert_eq!(names(&listed), ["b.txt"]);
    assert!(world.on_s3() || put(ann, &promised, b"right").await == 410);
    assert_eq!(ann.content(&listed[0]).await.bytes, b"right");
    assert_eq!(complete(ann, &chat, &promised).await.status, 201);
    // Of another conversation, or another person.
    let other = ann.conversation().await;
    refused(&complete(ann, &other, &promised).await, 404, "not_found");
    let bob = world.member("bob").await;
    refused(&complete(&bob, &chat, &promised).await, 404, "not_found");
    refused(
        &bob.post(
            &format!("{}/uploads", bag(&chat)),
            &json!({ "name": "a", "size": 1, "sha256": sha256(b"a") }),
        )
        .await,
        404,
        "not_found",
    );
    Some(())
}

async fn no_changed_link(home: Home) -> Option<()> {
    let world = World::start(home).await?;
    let ann = &world.ann;
    let chat = ann.conversation().await;
    let promised = promise(ann, &chat, "a.txt", b"0123456789").await;
    let url = promised["url"].as_str().unwrap().to_owned();
    let token = url.rsplit('/').next().unwrap().to_owned();
    let mut tried = 0;
    for at in 0..token.len() {
        let mut text = token.clone().into_bytes();
        text[at] = if text[at] == b'A' { b'B' } else { b'A' };
        let changed = String::from_utf8(text).unwrap();
        let status =
            got(ann.anonymous(Method::PUT, &url.replace(&token, &changed)).body("0123456789")).await.status;
        assert_eq!(status, 401, "{changed}");
        tried += 1;
    }
    assert!(tried >= 80, "{tried}");
    for method in [Method::GET, Method::POST, Method::DELETE] {
        assert_eq!(got(ann.anonymous(method, &url)).await.status, 405);
    }
    // One that was good, a while ago.
    let secret = Secret::new("the secret of the server itself, longer than 32 bytes");
    let mut link = UploadLink::open(&token, &secret, 0).unwrap();
    link.expires_at_ms = ann.put(&chat, "now", b"x").await["createdAt"].as_i64().unwrap() - 1;
    let expired = url.replace(&token, &link.seal(&secret));
    assert_eq!(got(ann.anonymous(Method::PUT, &expired).body("0123456789")).await.status, 410);
    refused(&complete(ann, &chat, &promised).await, 409, "upload_missing");
    assert_eq!(put(ann, &promised, b"0123456789").await, 204);
    files(&complete(ann, &chat, &promised).await);
    Some(())
}

async fn what_cannot_be_promised(home: Home) -> Option<()> {
    let world = World::start_with(home, &[("THREADKEEP_MAX_FILE_BYTES", "1000")]).await?;
    let ann = &world.ann;
    let chat = ann.conversation().await;
    let good = json!({ "name": "a", "size": 1, "sha256": sha256(b"a") });
    for (member, value, status) in [
        ("size", json!(-1), 400),
        ("size", json!("1"), 400),
        ("size", json!(1001), 413),
        ("sha256", json!("abc"), 422),
        ("sha256", json!("zz".repeat(32)), 422),
        ("sha256", json!("é".repeat(32)), 422),
        ("name", json!(1), 400),
        ("colour", json!("red"), 400),
    ] {
        let mut body = good.clone();
        body[member] = value;
        let answer = ann.post(&format!("{}/uploads", bag(&chat)), &body).await;
        let as_told = answer.status == status || (status == 400 && answer.status == 422);
        assert!(as_told, "{body}: {}", answer.text);
    }
    for missing in ["name", "size", "sha256"] {
        let mut body = good.clone();
        body.as_object_mut().unwrap().remove(missing);
        let answer = ann.post(&format!("{}/uploads", bag(&chat)), &body).await;
        assert!(matches!(answer.status, 400 | 422), "{missing}: {}", answer.text);
    }
    // A name is made safe here too.
    let promised = promise(ann, &chat, "../../x", b"a").await;
    put(ann, &promised, b"a").await;
    assert_eq!(files(&complete(ann, &chat, &promised).await)[0]["name"], "x");
    Some(())
}

async fn promises_count_against_the_bag(home: Home) -> Option<()> {
    let world = World::start_with(home, &[("THREADKEEP_MAX_BAG_BYTES", "1000")]).await?;
    let ann = &world.ann;
    let chat = ann.conversation().await;
    ann.put(&chat, "a", &[1; 400]).await;
    promise(ann, &chat, "b", &[1; 400]).await;
    let body = json!({ "name": "c", "size": 400, "sha256": sha256(&[1; 400]) });
    let answer = ann.post(&format!("{}/uploads", bag(&chat)), &body).await;
    refused(&answer, 413, "bag_full");
    assert_eq!(answer.body["limit"], 1000);
    refused(&ask(ann.form(&bag(&chat), &testkit::form::Form::of("d", &[1; 400]))).await, 413, "bag_full");
    ann.put(&chat, "e", &[1; 100]).await;
    Some(())
}
