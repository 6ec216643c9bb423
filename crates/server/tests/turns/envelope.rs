//! What the sandbox is sent: one POST with the envelope, to the letter.

use std::time::Duration;

use domain::secret::Secret;
use serde_json::{Value, json};
use testkit::server::Backend;

use crate::scripts::{answer, hang_after, lines};
use crate::world::{World, stories};

stories!(
    the_envelope,
    the_bearer_token,
    the_replay,
    failed_answers_in_the_replay,
    what_was_sent_is_in_the_trace,
    all_that_is_left_out_is_in_the_trace,
);

async fn the_envelope(backend: Backend) -> Option<()> {
    let world = World::start(backend).await?;
    let told = world.tell(&json!({ "message": "hi", "workflow": "w1" })).await;
    let sent = world.sandbox.request(0).await.unwrap();
    assert_eq!((sent.method.as_str(), sent.path.as_str()), ("POST", "/stream"));
    assert_eq!(sent.header("content-type"), Some("application/json"));
    assert_eq!(sent.header("authorization"), None);
    let agent_url = format!("{}/v1/agent/{}/{}", world.server.url(), world.workspace, told.run());
    let shown = world.conversation(&told.conversation()).await;
    let (config_token, upload_otp) = (sent.body["config_token"].clone(), sent.body["upload_otp"].clone());
    assert_eq!(
        sent.body,
        json!({
            "version": 1, "session_id": told.run(), "agent_url": agent_url, "config_token": config_token,
            "upload_otp": upload_otp, "workspace_id": world.workspace, "chat_id": told.conversation(),
            "execution_id": null, "workflow_id": "w1",
            "message": { "id": told.message(), "content": "hi", "ts": shown["messages"][0]["createdAt"] },
            "conversation": [], "accepts": ["delta"],
        })
    );
    let secrets = [config_token.as_str().unwrap(), upload_otp.as_str().unwrap()];
    assert!(secrets.iter().all(|secret| secret.len() >= 40) && secrets[0] != secrets[1], "{secrets:?}");
    // What the sandbox holds never reaches the chat.
    let text = String::from_utf8(told.bytes).unwrap();
    assert!(!secrets.iter().any(|secret| text.contains(secret)));
    Some(())
}

async fn the_bearer_token(backend: Backend) -> Option<()> {
    let world =
        World::start_with(backend, |config| config.sandbox.token = Some(Secret::new("the sandbox's token")))
            .await?;
    world.tell(&json!({ "message": "hi" })).await;
    let sent = world.sandbox.request(0).await.unwrap();
    assert_eq!(sent.header("authorization"), Some("Bearer the sandbox's token"));
    Some(())
}

/// Before the twelfth message stand 22: the last 20 go along, oldest first, as plain text with their times.
async fn the_replay(backend: Backend) -> Option<()> {
    let world = World::start(backend).await?;
    let blocks = json!([{ "type": "text", "text": "a" }, { "type": "text", "text": "b" }]);
    let conversation = world.tell(&json!({ "message": "q0" })).await.conversation();
    for n in 1..=11 {
        let step = json!({ "type": "step", "id": "s", "name": "n", "status": "succeeded", "ts": 5 });
        world.play(lines(vec![
            json!({ "type": "delta", "text": "x" }),
            step,
            json!({ "type": "result", "message": format!("a{n}") }),
        ]));
        let message = if n == 10 { blocks.clone() } else { json!(format!("q{n}")) };
        world.tell(&json!({ "conversation": conversation, "message": message })).await;
    }
    let sent = world.sandbox.request(11).await.unwrap().body;
    let shown = world.conversation(&conversation).await;
    let expected: Vec<Value> = shown["messages"].as_array().unwrap()[2..22]
        .iter()
        .map(|message| json!({ "role": message["role"], "content": message["content"], "ts": message["createdAt"] }))
        .collect();
    assert_eq!(sent["conversation"], json!(expected));
    assert_eq!((&expected[0]["content"], &expected[1]["content"]), (&json!("q1"), &json!("x\n\na1")));
    assert_eq!(expected[18]["content"], "a\n\nb");
    assert_eq!(sent["message"]["content"], "q11");
    Some(())
}

/// A partial answer was said and goes along; so does one without a word, as a turn in which nothing was said.
async fn failed_answers_in_the_replay(backend: Backend) -> Option<()> {
    let world = World::start(backend).await?;
    world.play(lines(vec![json!({ "type": "delta", "text": "half an" })]));
    let conversation = world.tell(&json!({ "message": "one" })).await.conversation();
    world.play(lines(vec![json!({ "type": "error", "code": "oops", "message": "no" })]));
    world.tell(&json!({ "conversation": conversation, "message": "two" })).await;
    let step = json!({ "type": "step", "id": "s", "name": "n", "status": "succeeded" });
    world.play(lines(vec![step, json!({ "type": "result", "message": "" })]));
    world.tell(&json!({ "conversation": conversation, "message": "three" })).await;
    let last = world.tell(&json!({ "conversation": conversation, "message": "four" })).await;
    let sent = world.sandbox.request(3).await.unwrap().body;
    let said: Vec<(&str, &str)> = sent["conversation"]
        .as_array()
        .unwrap()
        .iter()
        .map(|turn| (turn["role"].as_str().unwrap(), turn["content"].as_str().unwrap()))
        .collect();
    let answered = [("user", "one"), ("assistant", "half an"), ("user", "two"), ("assistant", "")];
    assert_eq!(said, [&answered[..], &[("user", "three"), ("assistant", "")]].concat());
    let (entries, _) = world.trace(&last.run()).await;
    let dispatch = entries.iter().find(|entry| entry["kind"] == "dispatch").unwrap();
    let messages = dispatch["line"]["messages"].as_array().unwrap();
    assert_eq!((messages.len(), &dispatch["line"]["cuts"]), (7, &json!([])));
    Some(())
}

/// Which messages went out, for every dispatch, also while nothing comes back.
async fn what_was_sent_is_in_the_trace(backend: Backend) -> Option<()> {
    let world = World::start(backend).await?;
    world.play(answer("A."));
    let first = world.tell(&json!({ "message": "one" })).await;
    world.play(hang_after(vec![]));
    let body = json!({ "conversation": first.conversation(), "message": "two", "on_disconnect": "continue" });
    let mut stream = world.begin(&body).await;
    stream.until("turn").await;
    world.sandbox.request(1).await.unwrap();
    let (mut entries, mut rejected) = world.trace(&stream.run()).await;
    while entries.len() < 2 {
        tokio::time::sleep(Duration::from_millis(10)).await;
        (entries, rejected) = world.trace(&stream.run()).await;
    }
    assert_eq!(rejected, 0);
    let kinds: Vec<&str> = entries.iter().map(|entry| entry["kind"].as_str().unwrap()).collect();
    assert_eq!(kinds, ["turn", "dispatch"]);
    let assistant = first.terminal().data["assistant"]["id"].clone();
    assert_eq!(
        entries[1]["line"],
        json!({ "messages": [first.message(), assistant, stream.message()], "cuts": [] })
    );
    Some(())
}

/// Also where nothing is replayed.
async fn all_that_is_left_out_is_in_the_trace(backend: Backend) -> Option<()> {
    let world = World::start_with(backend, |config| config.limits.replay_turn_limit = 0).await?;
    let first = world.tell(&json!({ "message": "one" })).await;
    let next = world.tell(&json!({ "conversation": first.conversation(), "message": "two" })).await;
    let (entries, _) = world.trace(&next.run()).await;
    let dispatch = entries.iter().find(|entry| entry["kind"] == "dispatch").unwrap();
    let sent = json!({ "messages": [next.message()], "cuts": ["the 2 messages before the first one sent"] });
    assert_eq!(dispatch["line"], sent);
    Some(())
}
