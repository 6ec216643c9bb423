//! Files that a turn attaches: copied into its message, marked with its id, checked before anything is written.

use reqwest::Method;
use serde_json::{Value, json};
use testkit::sandbox::Release;

use crate::caller::{attachment, bag, id, refused};
use crate::scripts;
use crate::world::{Home, World, stories};

stories!(
    an_attached_file,
    files_without_a_word,
    what_cannot_be_attached,
    a_queued_turn,
    a_cancelled_queued_turn,
    an_edit_keeps_what_was_attached,
    an_attachment_outlives_its_file,
);

async fn an_attached_file(home: Home) -> Option<()> {
    let world = World::start(home).await?;
    let ann = &world.ann;
    let chat = ann.conversation().await;
    let (a, b) = (ann.put(&chat, "a.txt", b"a").await, ann.put(&chat, "b.txt", b"bb").await);
    // In the order asked for.
    let turn = json!({ "conversation": chat, "message": "look", "attachments": [b["id"], a["id"]] });
    let told = ann.turn(&turn).await;
    let messages = ann.messages(&chat).await;
    assert_eq!(messages[0]["fileAttachments"], json!([attachment(&b), attachment(&a)]), "{}", messages[0]);
    assert_eq!(messages[1]["fileAttachments"].as_array().map(Vec::len), Some(0));
    for file in ann.list(&chat).await {
        assert_eq!(file["messageId"], json!(told.message()));
    }
    // The sandbox finds them in its configuration like every other file of the bag.
    let envelope = world.agent(0).await.envelope;
    assert_eq!(envelope["message"]["content"], "look");
    // Attached again, to a later message: the first keeps its copy.
    let again = json!({ "conversation": chat, "message": "again", "attachments": [a["id"]] });
    let told = ann.turn(&again).await;
    let messages = ann.messages(&chat).await;
    assert_eq!(messages[0]["fileAttachments"], json!([attachment(&b), attachment(&a)]));
    assert_eq!(messages[2]["fileAttachments"], json!([attachment(&a)]));
    assert_eq!(messages[2]["id"], json!(told.message()));
    Some(())
}

/// A picture that is pasted and sent: its name is the text for all who read only that, and is told as nobody's words.
async fn files_without_a_word(home: Home) -> Option<()> {
    let world = World::start(home).await?;
    let ann = &world.ann;
    let chat = ann.conversation().await;
    let (a, b) = (ann.put(&chat, "a.png", b"a").await, ann.put(&chat, "b.png", b"b").await);
    for (at, message) in
        [json!(""), json!(" \n"), json!([]), json!([{ "type": "text", "text": "" }])].iter().enumerate()
    {
        let turn = json!({ "conversation": chat, "message": message, "attachments": [a["id"], b["id"]] });
        ann.turn(&turn).await;
        let said = ann.messages(&chat).await[2 * at].clone();
        assert_eq!(
            (&said["content"], said["fileAttachments"].as_array().map(Vec::len)),
            (&json!("a.png, b.png"), Some(2))
        );
        assert_eq!(said["parts"], json!([{ "type": "text", "text": "a.png, b.png" }]));
        assert_eq!(world.agent(at).await.envelope["message"]["content"], "a.png, b.png");
    }
    let shown = ann.get(&format!("/v1/ai/chat/{chat}")).await.body["messages"][0]["parts"].clone();
    assert!(shown.as_array().unwrap().iter().all(|part| part["type"] == "file"), "{shown}");
    for bad in [
        json!({ "message": "", "attachments": [] }),
        json!({ "message": [{ "type": "x" }], "attachments": [a["id"]] }),
    ] {
        refused(&ann.post("/v1/turns", &bad).await, 422, "invalid_value");
    }
    Some(())
}

async fn what_cannot_be_attached(home: Home) -> Option<()> {
    let world = World::start(home).await?;
    let ann = &world.ann;
    let (chat, other) = (ann.conversation().await, ann.conversation().await);
    let own = ann.put(&chat, "own", b"x").await;
    let foreign = ann.put(&other, "foreign", b"x").await;
    let deleted = ann.put(&chat, "deleted", b"x").await;
    assert_eq!(ann.delete(&format!("{}/{}", bag(&chat), id(&deleted))).await, 204);
    let kept = ann.post("/v1/files", &json!({ "from": own["id"] })).await.body["files"][0].clone();
    let nothing = json!("0190b2a0-0000-7000-8000-000000000000");
    for bad in [&foreign["id"], &deleted["id"], &kept["id"], &nothing] {
        let turn = json!({ "conversation": chat, "message": "x", "attachments": [own["id"], bad] });
        let answer = ann.try_begin(&turn).await;
        assert_eq!(answer.status, 422, "{}", answer.text);
        let pointer = answer.body["pointer"].as_str().or(answer.body["source"]["pointer"].as_str());
        assert!(
            answer.text.contains("attachments") && pointer.is_none_or(|at| at == "/attachments/1"),
            "{}",
            answer.text
        );
    }
    for bad in [json!(["x"]), json!([1]), json!("x"), json!({})] {
        let answer =
            ann.try_begin(&json!({ "conversation": chat, "message": "x", "attachments": bad })).await;
        assert!(matches!(answer.status, 400 | 422), "{}", answer.text);
    }
    // A first turn has no bag to take from.
    let answer = ann.try_begin(&json!({ "message": "x", "attachments": [own["id"]] })).await;
    assert_eq!(answer.status, 422, "{}", answer.text);
    let many: Vec<&Value> = (0..11).map(|_| &own["id"]).collect();
    let answer = ann.try_begin(&json!({ "conversation": chat, "message": "x", "attachments": many })).await;
    assert_eq!((answer.status, answer.body["limit"].as_u64()), (422, Some(10)), "{}", answer.text);
    // Nothing was written.
    assert_eq!(ann.messages(&chat).await, Vec::<Value>::new());
    assert!(ann.list(&chat).await.iter().all(|file| file["messageId"].is_null()));
    assert_eq!(world.sandbox.requests().len(), 0);
    // The same one twice is one, or a refusal: never two.
    let twice = json!({ "conversation": chat, "message": "x", "attachments": [own["id"], own["id"]] });
    let answer = ann.try_begin(&twice).await;
    if answer.status == 202 {
        ann.log(&answer.body["run"]).await;
        assert_eq!(ann.messages(&chat).await[0]["fileAttachments"], json!([attachment(&own)]));
    } else {
        assert_eq!(answer.status, 422, "{}", answer.text);
    }
    // Nobody attaches what they do not see.
    let bob = world.member("bob").await;
    let his = bob.conversation().await;
    let answer =
        bob.try_begin(&json!({ "conversation": his, "message": "x", "attachments": [own["id"]] })).await;
    assert_eq!(answer.status, 422, "{}", answer.text);
    Some(())
}

async fn a_queued_turn(home: Home) -> Option<()> {
    let world = World::start(home).await?;
    let ann = &world.ann;
    let chat = ann.conversation().await;
    let (a, b) = (ann.put(&chat, "a.txt", b"a").await, ann.put(&chat, "b.txt", b"bb").await);
    let gate = Release::default();
    world.sandbox.play(scripts::wait_after(vec![], &gate, "First."));
    let first = ann.begin(&json!({ "conversation": chat, "message": "one" })).await;
    let turn = json!({ "conversation": chat, "message": "two", "attachments": [a["id"], b["id"]], "on_busy": "enqueue" });
    let second = ann.begin(&turn).await;
    assert_eq!(second["status"], "queued");
    assert_eq!(ann.messages(&chat).await.len(), 1, "it takes its place when it starts");
    // What goes while it waits is not attached.
    assert_eq!(ann.delete(&format!("{}/{}", bag(&chat), id(&b))).await, 204);
    gate.open();
    ann.log(&first["run"]).await;
    ann.log(&second["run"]).await;
    let messages = ann.messages(&chat).await;
    assert_eq!(messages[2]["content"], "two");
    assert_eq!(messages[2]["fileAttachments"], json!([attachment(&a)]));
    assert_eq!(ann.list(&chat).await[0]["messageId"], second["message"]);
    Some(())
}

/// A message that never came has no files.
async fn a_cancelled_queued_turn(home: Home) -> Option<()> {
    let world = World::start(home).await?;
    let ann = &world.ann;
    let chat = ann.conversation().await;
    let (a, b) = (ann.put(&chat, "a.txt", b"a").await, ann.put(&chat, "b.txt", b"bb").await);
    let gate = Release::default();
    world.sandbox.play(scripts::wait_after(vec![], &gate, "First."));
    let first = ann.begin(&json!({ "conversation": chat, "message": "one", "attachments": [b["id"]] })).await;
    let turn = json!({ "conversation": chat, "message": "two", "attachments": [a["id"], b["id"]], "on_busy": "enqueue" });
    let second = ann.begin(&turn).await;
    let messages_of = async || {
        let files = ann.list(&chat).await;
        ["a.txt", "b.txt"]
            .map(|name| files.iter().find(|file| file["name"] == name).unwrap()["messageId"].clone())
    };
    // What another message has stays there until this one comes.
    assert_eq!(messages_of().await, [second["message"].clone(), first["message"].clone()]);
    let cancel = format!("/v1/runs/{}/cancel", second["run"].as_str().unwrap());
    let cancelled = ann.send(Method::POST, &cancel, None).await;
    assert_eq!((cancelled.status, &cancelled.body["status"]), (200, &json!("cancelled")));
    assert_eq!(messages_of().await, [Value::Null, first["message"].clone()]);
    let third = ann.begin(&turn).await;
    gate.open();
    ann.log(&first["run"]).await;
    ann.log(&third["run"]).await;
    assert_eq!(messages_of().await, [third["message"].clone(), third["message"].clone()]);
    Some(())
}

async fn an_edit_keeps_what_was_attached(home: Home) -> Option<()> {
    let world = World::start(home).await?;
    let ann = &world.ann;
    let chat = ann.conversation().await;
    let (a, b) = (ann.put(&chat, "a.txt", b"a").await, ann.put(&chat, "b.txt", b"bb").await);
    let told = ann.turn(&json!({ "conversation": chat, "message": "one", "attachments": [a["id"]] })).await;
    let edit = ann.turn(&json!({ "conversation": chat, "replace": told.message(), "message": "uno" })).await;
    let messages = ann.messages(&chat).await;
    assert_eq!((&messages[0]["content"], messages.len()), (&json!("uno"), 2));
    assert_eq!(messages[0]["fileAttachments"], json!([attachment(&a)]));
    // Others, if they are named; none, if that is said.
    for (asked, expected) in [(json!([b["id"]]), json!([attachment(&b)])), (json!([]), json!([]))] {
        let turn = json!({ "conversation": chat, "replace": edit.message(), "message": "eins", "attachments": asked });
        ann.turn(&turn).await;
        assert_eq!(ann.messages(&chat).await[0]["fileAttachments"], expected);
    }
    let turn = json!({ "conversation": chat, "replace": edit.message(), "attachments": [a["id"]] });
    refused_422(&ann.try_begin(&turn).await);
    Some(())
}

fn refused_422(answer: &testkit::server::Answer) {
    let code = answer.body["code"].as_str().unwrap_or_default().to_owned();
    refused(answer, 422, &code);
}

async fn an_attachment_outlives_its_file(home: Home) -> Option<()> {
    let world = World::start(home).await?;
    let ann = &world.ann;
    let chat = ann.conversation().await;
    let file = ann.put(&chat, "a.txt", b"a").await;
    ann.turn(&json!({ "conversation": chat, "message": "one", "attachments": [file["id"]] })).await;
    assert_eq!(ann.delete(&format!("{}/{}", bag(&chat), id(&file))).await, 204);
    // The message says what was attached; the bytes are gone.
    assert_eq!(ann.messages(&chat).await[0]["fileAttachments"], json!([attachment(&file)]));
    assert_eq!(ann.content(&file).await.status, 404);
    Some(())
}
