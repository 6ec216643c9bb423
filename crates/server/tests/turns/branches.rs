//! Edits of a thread: a message replaced, an answer made anew, branches read and chosen, and forks.

use reqwest::Method;
use serde_json::{Value, json};
use testkit::server::{Answer, Backend};

use crate::scripts::{answer, hang_after};
use crate::world::{CONVERSATIONS, World, ask, refused, said, stories, thread};

stories!(
    an_edit,
    a_new_answer,
    choosing_a_branch,
    a_branch_of_a_branch,
    a_fork,
    bad_forks,
    an_edit_while_busy
);

async fn branches(world: &World, conversation: &str) -> Vec<Value> {
    let answer = world.get(&format!("{CONVERSATIONS}/{conversation}/branches")).await;
    assert_eq!((answer.status, &answer.body["next"]), (200, &Value::Null), "{}", answer.text);
    answer.body["data"].as_array().unwrap().clone()
}

async fn read(world: &World, conversation: &str, branch: &Value) -> Vec<(String, String)> {
    let answer =
        world.get(&format!("{CONVERSATIONS}/{conversation}?branchId={}", branch.as_str().unwrap())).await;
    assert_eq!(answer.status, 200, "{}", answer.text);
    said(&answer.body["data"]["attributes"]["messages"])
}

/// A turn with this message and this answer.
async fn turn(world: &World, conversation: Option<&str>, message: &str, reply: &str) -> crate::sse::Told {
    world.play(answer(reply));
    let mut body = json!({ "message": message });
    if let Some(conversation) = conversation {
        body["conversation"] = conversation.into();
    }
    world.tell(&body).await
}

async fn an_edit(backend: Backend) -> Option<()> {
    let world = World::start(backend).await?;
    let first = turn(&world, None, "q1", "a1").await;
    let conversation = first.conversation();
    let second = turn(&world, Some(&conversation), "q2", "a2").await;
    turn(&world, Some(&conversation), "q3", "a3").await;
    world.play(answer("a2b"));
    let body = json!({ "conversation": conversation, "replace": second.message(), "message": "q2b" });
    let edited = world.tell(&body).await;
    assert_ne!(edited.message(), second.message());
    let now = thread(&[("user", "q1"), ("assistant", "a1"), ("user", "q2b"), ("assistant", "a2b")]);
    assert_eq!(world.thread(&conversation).await, now);
    assert_eq!(world.conversation(&conversation).await["message_count"], 4);
    // The sandbox heard of what stands before it alone.
    let sent = world.sandbox.request(3).await.unwrap().body;
    let heard: Vec<&str> = sent["conversation"]
        .as_array()
        .unwrap()
        .iter()
        .map(|turn| turn["content"].as_str().unwrap())
        .collect();
    assert_eq!((heard, sent["message"]["content"].as_str()), (vec!["q1", "a1"], Some("q2b")));

    let listed = branches(&world, &conversation).await;
    let a1 = first.terminal().data["assistant"]["id"].clone();
    assert_eq!(listed.len(), 2);
    assert_eq!(listed[0]["id"], conversation);
    assert_eq!((&listed[0]["current"], &listed[0]["from_message"]), (&json!(false), &Value::Null));
    assert_eq!((&listed[1]["current"], &listed[1]["from_message"]), (&json!(true), &a1));
    assert_eq!(listed[1]["head"], edited.terminal().data["assistant"]["id"]);
    let names: Vec<&String> = listed[1].as_object().unwrap().keys().collect();
    assert_eq!(names.len(), 5, "{names:?}");
    // Nothing was destroyed.
    let old = read(&world, &conversation, &listed[0]["id"]).await;
    assert_eq!(
        old,
        thread(&[
            ("user", "q1"),
            ("assistant", "a1"),
            ("user", "q2"),
            ("assistant", "a2"),
            ("user", "q3"),
            ("assistant", "a3")
        ])
    );
    assert_eq!(read(&world, &conversation, &listed[1]["id"]).await, now);
    Some(())
}

async fn a_new_answer(backend: Backend) -> Option<()> {
    let world = World::start(backend).await?;
    let first = turn(&world, None, "q1", "a1").await;
    let conversation = first.conversation();
    world.play(answer("a1b"));
    let again = world.tell(&json!({ "conversation": conversation, "replace": first.message() })).await;
    assert_eq!(again.message(), first.message(), "the same question");
    assert_eq!(world.thread(&conversation).await, thread(&[("user", "q1"), ("assistant", "a1b")]));
    let sent = world.sandbox.request(1).await.unwrap().body;
    assert_eq!((&sent["conversation"], &sent["message"]["content"]), (&json!([]), &json!("q1")));
    let listed = branches(&world, &conversation).await;
    assert_eq!(listed[1]["from_message"], first.message());
    assert_eq!(
        read(&world, &conversation, &listed[0]["id"]).await,
        thread(&[("user", "q1"), ("assistant", "a1")])
    );
    // The first message's id stays what it was.
    assert_eq!(again.frames[0].data["conversation_id"], first.message());
    Some(())
}

async fn select(world: &World, conversation: &str, branch: &Value) -> Answer {
    world.post(&format!("{CONVERSATIONS}/{conversation}/branches/{}/select", branch.as_str().unwrap())).await
}

async fn choosing_a_branch(backend: Backend) -> Option<()> {
    let world = World::start(backend).await?;
    let first = turn(&world, None, "q1", "a1").await;
    let conversation = first.conversation();
    world.play(answer("a1b"));
    world.tell(&json!({ "conversation": conversation, "replace": first.message(), "message": "q1b" })).await;
    let listed = branches(&world, &conversation).await;
    let answer = select(&world, &conversation, &listed[0]["id"]).await;
    assert_eq!(
        (answer.status, &answer.body["id"], &answer.body["current"]),
        (200, &listed[0]["id"], &json!(true))
    );
    assert_eq!(world.thread(&conversation).await, thread(&[("user", "q1"), ("assistant", "a1")]));
    // The next turn goes on from there.
    turn(&world, Some(&conversation), "q2", "a2").await;
    assert_eq!(
        world.thread(&conversation).await,
        thread(&[("user", "q1"), ("assistant", "a1"), ("user", "q2"), ("assistant", "a2")])
    );
    assert_eq!(
        read(&world, &conversation, &listed[1]["id"]).await,
        thread(&[("user", "q1b"), ("assistant", "a1b")])
    );
    let now = branches(&world, &conversation).await;
    assert_eq!((now.len(), &now[0]["current"], &now[1]["current"]), (2, &json!(true), &json!(false)));
    let absent = json!("0190d3a0-0000-7000-8000-000000000000");
    refused(&select(&world, &conversation, &absent).await, 404, "not_found");
    let missing =
        world.get(&format!("{CONVERSATIONS}/{conversation}?branchId={}", absent.as_str().unwrap())).await;
    assert_eq!(missing.status, 404);
    Some(())
}

async fn a_branch_of_a_branch(backend: Backend) -> Option<()> {
    let world = World::start(backend).await?;
    let first = turn(&world, None, "q1", "a1").await;
    let conversation = first.conversation();
    let second = turn(&world, Some(&conversation), "q2", "a2").await;
    for n in 0..3 {
        world.play(answer(&format!("a2.{n}")));
        let body = json!({ "conversation": conversation, "replace": second.message() });
        world.tell(&body).await;
    }
    let third = turn(&world, Some(&conversation), "q3", "a3").await;
    world.play(answer("a3b"));
    world.tell(&json!({ "conversation": conversation, "replace": third.message(), "message": "q3b" })).await;
    let now = [
        ("user", "q1"),
        ("assistant", "a1"),
        ("user", "q2"),
        ("assistant", "a2.2"),
        ("user", "q3b"),
        ("assistant", "a3b"),
    ];
    assert_eq!(world.thread(&conversation).await, thread(&now));
    let listed = branches(&world, &conversation).await;
    assert_eq!(listed.len(), 5);
    let mut ends = Vec::new();
    for branch in &listed {
        ends.push(read(&world, &conversation, &branch["id"]).await.last().unwrap().1.clone());
    }
    assert_eq!(ends, ["a2", "a2.0", "a2.1", "a3", "a3b"]);
    Some(())
}

async fn fork(world: &World, conversation: &str, body: &Value) -> Answer {
    let request = world.request(Method::POST, &format!("{CONVERSATIONS}/{conversation}/fork"));
    ask(request.header("content-type", "application/json").body(body.to_string())).await
}

async fn a_fork(backend: Backend) -> Option<()> {
    let world = World::start(backend).await?;
    let first = turn(&world, None, "q1", "a1").await;
    let conversation = first.conversation();
    let second = turn(&world, Some(&conversation), "q2", "a2").await;
    let a1 = first.terminal().data["assistant"]["id"].clone();
    let made = fork(&world, &conversation, &json!({ "through": a1 })).await;
    assert_eq!(
        (made.status, made.header("content-type")),
        (201, "application/vnd.api+json"),
        "{}",
        made.text
    );
    let resource = &made.body["data"];
    let id = resource["id"].as_str().unwrap();
    assert_eq!((&resource["type"], id == conversation), (&json!("chat_conversation"), false));
    assert_eq!(resource["links"]["self"], format!("{}{CONVERSATIONS}/{id}", world.server.url()));
    assert_eq!(said(&resource["attributes"]["messages"]), thread(&[("user", "q1"), ("assistant", "a1")]));
    let shown = world.conversation(id).await;
    assert_eq!(
        (&shown["message_count"], &shown["title"], &shown["preview"]),
        (&json!(2), &json!("q1"), &json!("q1"))
    );
    assert_eq!(shown["conversation_id"], shown["messages"][0]["id"]);
    // They go their own ways.
    turn(&world, Some(id), "q2 of the fork", "a").await;
    assert_eq!(world.thread(id).await.len(), 4);
    assert_eq!(world.thread(&conversation).await.len(), 4);
    assert_eq!(world.thread(&conversation).await[2].1, "q2");
    // Through a user's message, and through one of another branch.
    let through = fork(&world, &conversation, &json!({ "through": second.message() })).await;
    assert_eq!(said(&through.body["data"]["attributes"]["messages"]).len(), 3);
    world.play(answer("a1b"));
    world.tell(&json!({ "conversation": conversation, "replace": first.message() })).await;
    let side = fork(&world, &conversation, &json!({ "through": second.message() })).await;
    let expected = thread(&[("user", "q1"), ("assistant", "a1"), ("user", "q2")]);
    assert_eq!(said(&side.body["data"]["attributes"]["messages"]), expected);
    Some(())
}

async fn bad_forks(backend: Backend) -> Option<()> {
    let world = World::start(backend).await?;
    let told = world.tell(&json!({ "message": "q1" })).await;
    let other = world.tell(&json!({ "message": "q2" })).await;
    let before = world.count().await;
    let absent = "0190d3a0-0000-7000-8000-000000000000";
    for (conversation, body, status, pointer) in [
        (told.conversation(), json!({ "through": other.message() }), 422, Some("/through")),
        (told.conversation(), json!({ "through": absent }), 422, Some("/through")),
        (told.conversation(), json!({ "through": 5 }), 422, Some("/through")),
        (told.conversation(), json!({}), 422, Some("/through")),
        (told.conversation(), json!({ "through": told.message(), "x": 1 }), 400, Some("/x")),
        (absent.to_owned(), json!({ "through": told.message() }), 404, None),
    ] {
        let answer = fork(&world, &conversation, &body).await;
        assert_eq!(
            (answer.status, answer.header("content-type")),
            (status, "application/vnd.api+json"),
            "{body}: {}",
            answer.text
        );
        assert_eq!(
            answer.body["errors"][0]["source"]["pointer"].as_str(),
            pointer,
            "{body}: {}",
            answer.text
        );
    }
    assert_eq!(world.count().await, before);
    Some(())
}

/// An edit waits, or makes way, like any other turn.
async fn an_edit_while_busy(backend: Backend) -> Option<()> {
    let world = World::start(backend).await?;
    let first = turn(&world, None, "q1", "a1").await;
    let conversation = first.conversation();
    world.play(hang_after(vec![crate::scripts::delta("half")]));
    let mut busy = world.begin(&json!({ "conversation": conversation, "message": "q2" })).await;
    busy.until("delta").await;
    let edit = json!({ "conversation": conversation, "replace": first.message(), "message": "q1b" });
    let answer = ask(world.turn(&edit)).await;
    refused(&answer, 409, "conversation_busy");
    assert_eq!(branches(&world, &conversation).await.len(), 1);
    let mut edit = edit;
    edit["on_busy"] = "interrupt".into();
    let told = world.tell(&edit).await;
    assert_eq!((told.status(), busy.rest().await.status()), ("succeeded", "cancelled"));
    assert_eq!(world.thread(&conversation).await, thread(&[("user", "q1b"), ("assistant", "Hello.")]));
    let kept = read(&world, &conversation, &json!(conversation)).await;
    assert_eq!(kept, thread(&[("user", "q1"), ("assistant", "a1"), ("user", "q2"), ("assistant", "half")]));
    Some(())
}
