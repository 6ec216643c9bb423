//! The first turn of a conversation: one request makes the conversation, the message and the run, and streams
//! the answer.

use reqwest::Method;
use serde_json::{Value, json};
use testkit::sandbox::Release;
use testkit::server::Backend;

use crate::scripts::{delta, lines, result, step, wait_after};
use crate::sse::Told;
use crate::world::{CONVERSATIONS, World, stories, thread};

stories!(
    the_whole_story,
    the_next_turn_goes_on,
    accepted_means_durable,
    what_a_turn_says_of_its_conversation,
    a_message_in_blocks,
    titles_and_previews,
    a_conversation_that_was_made_before,
);

async fn the_whole_story(backend: Backend) -> Option<()> {
    let world = World::start(backend).await?;
    let ended = json!({ "type": "step", "id": "s1", "name": "look", "status": "succeeded", "result": { "n": 7.50 },
        "durationMs": 12, "ts": 1_700_000_000_200_i64 });
    world.play(lines(vec![
        delta("I "),
        delta("look."),
        step("s1", "running"),
        ended,
        delta("7 are"),
        result("7 are unpaid."),
    ]));
    let stream = world.begin(&json!({ "message": "How many are unpaid?\nThanks" })).await;
    for (name, value) in [
        ("content-type", "text/event-stream"),
        ("cache-control", "no-cache, no-store, no-transform"),
        ("x-accel-buffering", "no"),
        ("x-content-type-options", "nosniff"),
    ] {
        assert_eq!(stream.header(name), value, "{name}");
    }
    let (run, conversation, message) = (stream.run(), stream.conversation(), stream.message());
    let told = stream.rest().await;

    // The thread, as a reload shows it.
    let shown = world.conversation(&conversation).await;
    let assistant = shown["messages"][1].clone();
    let parts = json!([
        { "type": "text", "text": "I look." },
        { "type": "step", "id": "s1", "name": "look", "status": "succeeded", "result": { "n": 7.50 }, "durationMs": 12,
          "startedAt": 1_700_000_000_100_i64 },
        { "type": "text", "text": "7 are unpaid." }
    ]);
    assert_eq!(assistant["parts"], parts);
    let said = [("user", "How many are unpaid?\nThanks"), ("assistant", "I look.\n\n7 are unpaid.")];
    assert_eq!(world.thread(&conversation).await, thread(&said));
    assert_eq!(shown["messages"][0]["id"], message);
    assert_eq!((&shown["conversation_id"], &shown["message_count"]), (&json!(message), &json!(2)));

    // The stream, to the letter.
    let answer = json!({ "id": assistant["id"], "role": "assistant", "content": parts, "fileAttachments": [],
        "sources": [], "tokenCount": 0, "metadata": {}, "createdAt": assistant["createdAt"] });
    let expected = [
        (
            "turn",
            json!({ "conversation": conversation, "run": run, "message": message, "conversation_id": message }),
        ),
        ("delta", json!({ "text": "I " })),
        ("delta", json!({ "text": "look." })),
        (
            "step",
            json!({ "type": "step", "id": "s1", "name": "look", "status": "running", "ts": 1_700_000_000_100_i64 }),
        ),
        (
            "step",
            json!({ "type": "step", "id": "s1", "name": "look", "status": "succeeded", "result": { "n": 7.50 },
            "durationMs": 12, "ts": 1_700_000_000_200_i64 }),
        ),
        ("delta", json!({ "text": "7 are" })),
        ("result", json!({ "message": "7 are unpaid.", "assistant": answer })),
        ("done", json!({ "status": "succeeded" })),
    ];
    let streamed: Vec<(&str, Value)> =
        told.frames.iter().map(|frame| (frame.event.as_str(), frame.data.clone())).collect();
    assert_eq!(streamed, expected);

    assert_run(&world, &told, &assistant).await;
    Some(())
}

/// The run as JSON, complete, alone and in its conversation's list.
async fn assert_run(world: &World, told: &Told, assistant: &Value) {
    let run = world.run(&told.run()).await;
    assert_eq!(
        run,
        json!({
            "id": told.run(), "conversation": told.conversation(), "execution": null, "status": "succeeded",
            "message": told.message(), "assistant_message": assistant["id"],
            "usage": { "input_tokens": 0, "output_tokens": 0, "total_tokens": 0 },
            "error": null, "last_event": told.frames.len(),
            "created_at": run["created_at"], "started_at": run["started_at"], "ended_at": run["ended_at"],
        })
    );
    let time = |name: &str| run[name].as_str().unwrap().parse::<jiff::Timestamp>().unwrap();
    assert!(time("created_at") <= time("started_at") && time("started_at") <= time("ended_at"), "{run}");
    let listed = world.get(&format!("{CONVERSATIONS}/{}/runs", told.conversation())).await;
    assert_eq!(listed.body, json!({ "data": [run], "next": null }));
}

async fn the_next_turn_goes_on(backend: Backend) -> Option<()> {
    let world = World::start(backend).await?;
    let first = world.tell(&json!({ "message": "one" })).await;
    let conversation = first.conversation();
    let mut runs = vec![first.run()];
    for text in ["two", "three"] {
        let told = world.tell(&json!({ "conversation": conversation, "message": text })).await;
        assert_eq!(told.conversation(), conversation);
        assert_eq!(told.frames[0].data["conversation_id"], first.message());
        runs.insert(0, told.run());
    }
    let said = [
        ("user", "one"),
        ("assistant", "Hello."),
        ("user", "two"),
        ("assistant", "Hello."),
        ("user", "three"),
        ("assistant", "Hello."),
    ];
    assert_eq!(world.thread(&conversation).await, thread(&said));
    // Newest first, and page by page.
    let path = format!("{CONVERSATIONS}/{conversation}/runs");
    let page = world.get(&format!("{path}?limit=2")).await.body;
    let rest = world.get(&format!("{path}?limit=2&after={}", page["next"].as_str().unwrap())).await.body;
    let pages = [page["data"].as_array().unwrap().clone(), rest["data"].as_array().unwrap().clone()].concat();
    assert_eq!(pages.iter().map(|run| run["id"].as_str().unwrap()).collect::<Vec<_>>(), runs);
    assert_eq!(rest["next"], Value::Null);
    Some(())
}

/// Before the first byte of the body, everything that was accepted can be read.
async fn accepted_means_durable(backend: Backend) -> Option<()> {
    let world = World::start(backend).await?;
    let gate = Release::default();
    world.play(wait_after(vec![], &gate, "Late."));
    let stream = world.begin(&json!({ "message": "keep this" })).await;
    let run = world.run(&stream.run()).await;
    assert_eq!((&run["status"], &run["message"]), (&json!("running"), &json!(stream.message())));
    assert_eq!((&run["assistant_message"], &run["ended_at"]), (&Value::Null, &Value::Null));
    assert_eq!(world.thread(&stream.conversation()).await, thread(&[("user", "keep this")]));
    gate.open();
    assert_eq!(stream.rest().await.status(), "succeeded");
    Some(())
}

async fn what_a_turn_says_of_its_conversation(backend: Backend) -> Option<()> {
    let world = World::start(backend).await?;
    let agent = json!({ "name": "Helper", "runner": "sandbox" });
    let agent = world.send(reqwest::Method::POST, "/v1/agents", Some(&agent)).await.body["id"].clone();
    let helper = agent.as_str().unwrap();
    let told = world
        .tell(&json!({ "message": "go", "mode": "task_flow", "source": "extension", "page_path": "/a?b=1", "model": "m",
            "agent": agent, "workflow": "flow" }))
        .await;
    let shown = world.conversation(&told.conversation()).await;
    for (name, value) in [
        ("mode", "task_flow"),
        ("source", "extension"),
        ("page_path", "/a?b=1"),
        ("model", "m"),
        ("agent_id", helper),
        ("workflow_id", "flow"),
        ("user_id", "ann"),
    ] {
        assert_eq!(shown[name], value, "{name}");
    }
    // A later turn's mode and page are the newest; what it does not say stays.
    let body =
        json!({ "conversation": told.conversation(), "message": "on", "mode": "agent", "page_path": "/c" });
    world.tell(&body).await;
    let shown = world.conversation(&told.conversation()).await;
    assert_eq!((&shown["mode"], &shown["page_path"]), (&json!("agent"), &json!("/c")));
    assert_eq!((&shown["model"], &shown["source"]), (&json!("m"), &json!("extension")));
    Some(())
}

async fn a_message_in_blocks(backend: Backend) -> Option<()> {
    let world = World::start(backend).await?;
    let blocks = json!([{ "type": "text", "text": "first \u{1F980}" }, { "type": "text", "text": "second" }]);
    let told = world.tell(&json!({ "message": blocks })).await;
    let shown = world.conversation(&told.conversation()).await;
    assert_eq!(shown["messages"][0]["parts"], blocks);
    assert_eq!(shown["messages"][0]["content"], "first \u{1F980}\n\nsecond");
    assert_eq!(
        world.sandbox.request(0).await.unwrap().body["message"]["content"],
        "first \u{1F980}\n\nsecond"
    );
    Some(())
}

async fn titles_and_previews(backend: Backend) -> Option<()> {
    let world = World::start(backend).await?;
    let long = format!("  \n{}\nmore", "ö".repeat(300));
    let told = world.tell(&json!({ "message": long })).await;
    let shown = world.conversation(&told.conversation()).await;
    assert_eq!(shown["title"], "ö".repeat(80));
    assert_eq!(shown["preview"], "ö".repeat(255));
    // Later messages change neither.
    world.tell(&json!({ "conversation": told.conversation(), "message": "another" })).await;
    assert_eq!(world.conversation(&told.conversation()).await["title"], shown["title"]);
    // A tab keeps words apart.
    let told = world.tell(&json!({ "message": "name\tamount\u{7}\u{3000}sum\r\nAda\t3" })).await;
    let shown = world.conversation(&told.conversation()).await;
    assert_eq!((&shown["title"], &shown["preview"]), (&json!("name amount\u{3000}sum"), &shown["title"]));
    Some(())
}

/// A conversation made by the resource's own POST: its title stays, its first turn gives it its id of old.
async fn a_conversation_that_was_made_before(backend: Backend) -> Option<()> {
    let world = World::start(backend).await?;
    let document = json!({ "data": { "type": "chat_conversation", "attributes": { "title": "Mine" } } });
    let made = world
        .request(Method::POST, CONVERSATIONS)
        .header("content-type", "application/vnd.api+json")
        .body(document.to_string());
    let made = crate::world::ask(made).await;
    let id = made.body["data"]["id"].as_str().unwrap();
    let told = world.tell(&json!({ "conversation": id, "message": "hi" })).await;
    assert_eq!(told.conversation(), id);
    assert_eq!(told.frames[0].data["conversation_id"], told.message());
    let shown = world.conversation(id).await;
    assert_eq!((&shown["title"], &shown["preview"]), (&json!("Mine"), &json!("hi")));
    Some(())
}
