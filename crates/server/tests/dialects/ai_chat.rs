//! `/v1/ai/chat` as `useChat` uses it.

use reqwest::{Method, RequestBuilder};
use serde_json::{Value, json};
use testkit::sandbox::Release;
use testkit::server::Backend;

use crate::scripts::{answer, delta, lines, result, step, wait_after};
use crate::told::{Frame, Live, joined, kinds};
use crate::world::{CONVERSATIONS, World, ask, stories, thread};

stories!(
    a_chat_streams_and_is_a_conversation_like_any_other,
    ids_of_any_shape_name_a_conversation,
    a_page_that_is_closed_finds_its_stream_again,
    stopping_ends_only_the_run_that_was_meant,
    ids_of_messages_stay_as_they_were_sent,
    messages_are_edited_answered_again_and_heard_once,
    a_chat_from_elsewhere_brings_its_messages,
    what_is_a_clients_own_comes_back,
    files_come_with_the_message,
    a_call_waits_for_the_user_of_the_page,
    a_call_that_asks_nobody_is_made_before_people_are_asked,
    an_approval_that_is_not_there_is_refused,
    refusals_are_words_for_people,
    what_others_have_is_not_there,
    a_name_is_its_users_own,
    a_key_is_one_run,
    files_of_a_chat_from_elsewhere_come_along,
);

pub fn user(id: &str, text: &str) -> Value {
    json!({ "id": id, "role": "user", "parts": [{ "type": "text", "text": text }] })
}

fn post(world: &World, body: &Value) -> RequestBuilder {
    world
        .request(Method::POST, "/v1/ai/chat")
        .header("content-type", "application/json")
        .body(body.to_string())
}

async fn chat(world: &World, body: Value) -> Vec<Frame> {
    Live::open(post(world, &body)).await.rest().await
}

fn text(frames: &[Frame]) -> String {
    joined(frames, "text-delta", "delta")
}

async fn a_chat_streams_and_is_a_conversation_like_any_other(backend: Backend) -> Option<()> {
    let world = World::start(backend).await?;
    let ended =
        json!({ "type": "step", "id": "s", "name": "look", "status": "succeeded", "result": [1], "ts": 7 });
    world.play(lines(vec![delta("I look."), step("s", "running"), ended, delta("It"), result("It is.")]));
    let id = "0190a1b2-0000-7000-8000-00000000000c";
    let message = "0190a1b2-0000-4000-8000-00000000000e";
    let body = json!({ "id": id, "trigger": "submit-message", "messages": [user(message, "What is it?")] });
    let live = Live::open(post(&world, &body)).await;
    assert_eq!(live.header("x-vercel-ai-ui-message-stream"), "v1");
    assert_eq!(live.header("content-type"), "text/event-stream");
    assert_eq!(live.header("cache-control"), "no-cache");
    assert_eq!(
        (live.header("connection"), live.header("x-accel-buffering")),
        ("keep-alive".into(), "no".into())
    );
    assert_eq!(
        (live.header("threadkeep-conversation"), live.header("threadkeep-message")),
        (id.into(), message.into())
    );
    let run = live.run();
    let frames = live.rest().await;
    assert_eq!(
        kinds(&frames),
        [
            "start",
            "start-step",
            "text-start",
            "text-delta",
            "text-end",
            "tool-input-available",
            "tool-output-available",
            "text-start",
            "text-delta",
            "text-delta",
            "text-end",
            "finish-step",
            "finish",
            "[DONE]"
        ]
    );
    assert_eq!(text(&frames), "I look.It is.");
    assert_eq!(frames[0].data["messageId"], json!(run));
    assert_eq!(frames.last().unwrap().id, world.run(&run).await["last_event"].as_i64());
    let stored = world.conversation(id).await;
    assert_eq!(stored["messages"][0]["id"], message);
    assert_eq!(stored["messages"][1]["id"], json!(run), "the id that the stream began with");
    assert_eq!(stored["conversation_id"], message);
    let page = world.get(&format!("/v1/ai/chat/{id}")).await.body;
    assert_eq!((&page["id"], &page["messages"][0]["id"]), (&json!(id), &json!(message)));
    assert_eq!(
        page["messages"][0]["parts"],
        json!([{ "type": "text", "text": "What is it?", "state": "done" }])
    );
    // What a client has that merged what it was told, as it does.
    let mut metadata = frames[0].data["messageMetadata"].clone();
    let finish = &frames[frames.len() - 2].data["messageMetadata"];
    metadata.as_object_mut().unwrap().extend(finish.as_object().unwrap().clone());
    assert!(metadata["createdAt"].is_number(), "{metadata}");
    assert_eq!((&page["messages"][1]["metadata"], &metadata["run"]), (&metadata, &json!(run)));
    let parts = page["messages"][1]["parts"].as_array().unwrap();
    let types: Vec<&str> = parts.iter().map(|part| part["type"].as_str().unwrap()).collect();
    assert_eq!(types, ["step-start", "text", "dynamic-tool", "text"]);
    assert_eq!((&parts[2]["state"], &parts[2]["output"]), (&json!("output-available"), &json!([1])));
    // And the other way round.
    world.play(answer("Again."));
    world.tell(&json!({ "conversation": id, "message": "And now?" })).await;
    let next = chat(&world, json!({ "id": id, "message": user("m-3", "More") })).await;
    assert_eq!(text(&next), "Hello.");
    assert_eq!(world.thread(id).await.len(), 6);
    let whole = world.get(&format!("/v1/runs/{run}/events?wire=ui-message")).await;
    assert_eq!(whole.header("x-vercel-ai-ui-message-stream"), "v1");
    assert!(whole.text.ends_with("data: [DONE]\n\n"));
    Some(())
}

async fn ids_of_any_shape_name_a_conversation(backend: Backend) -> Option<()> {
    let world = World::start(backend).await?;
    for id in ["chat-1", "aB3_x-", "a/b?c#d e", "日本", "..."] {
        let body = |text: &str| json!({ "id": id, "message": user(&format!("{text}!"), text) });
        let first = Live::open(post(&world, &body("one"))).await;
        let conversation = first.header("threadkeep-conversation");
        first.rest().await;
        let second = Live::open(post(&world, &body("two"))).await;
        assert_eq!(second.header("threadkeep-conversation"), conversation, "{id}");
        second.rest().await;
        let stored = world.conversation(&conversation).await;
        assert_eq!(stored["messages"][0]["metadata"]["client_id"], "one!");
        assert_eq!(stored["message_count"], 4);
        let encoded: String = id.bytes().map(|byte| format!("%{byte:02X}")).collect();
        let idle = world.get(&format!("/v1/ai/chat/{encoded}/stream")).await;
        assert_eq!((idle.status, idle.text.as_str()), (204, ""));
        let stopped = world.post(&format!("/v1/ai/chat/{encoded}/stop")).await;
        assert_eq!((stopped.status, &stopped.body), (200, &json!({ "run": null })));
    }
    assert_eq!(world.get("/v1/ai/chat/never-heard-of/stream").await.status, 204);
    // Without an id there is a new one each time.
    let one = Live::open(post(&world, &json!({ "message": user("x", "hi") }))).await;
    let two = Live::open(post(&world, &json!({ "message": user("x", "hi") }))).await;
    assert_ne!(one.header("threadkeep-conversation"), two.header("threadkeep-conversation"));
    Some(())
}

async fn ids_of_messages_stay_as_they_were_sent(backend: Backend) -> Option<()> {
    let world = World::start(backend).await?;
    let id = uuid::Uuid::from_u128(0x0190_a1b2_0000_4000_8000_0000_0000_0abc);
    let spelled = [
        id.to_string(),
        id.to_string().to_uppercase(),
        id.simple().to_string(),
        id.braced().to_string(),
        id.urn().to_string(),
        "msg-1".to_owned(),
    ];
    let kept = async |chat: &str| {
        let page = world.get(&format!("/v1/ai/chat/{chat}")).await.body;
        let messages = page["messages"].as_array().unwrap().clone();
        let ids = messages.iter().filter(|one| one["role"] == "user").map(|one| one["id"].as_str().unwrap());
        ids.map(str::to_owned).collect::<Vec<_>>()
    };
    for name in &spelled {
        // Heard once under each name, though it comes twice.
        for _ in 0..2 {
            chat(&world, json!({ "id": "one", "messages": [user(name, "hi")] })).await;
        }
    }
    assert_eq!(kept("one").await, spelled);
    let again =
        json!({ "id": "one", "trigger": "regenerate-message", "messageId": spelled[5], "messages": [] });
    chat(&world, again).await;
    assert_eq!(kept("one").await, spelled);
    // So are those that a chat brings along.
    let simple = uuid::Uuid::from_u128(7).simple().to_string();
    chat(&world, json!({ "id": "two", "messages": [user(&simple, "hi"), user("x", "ho")] })).await;
    assert_eq!(kept("two").await, [simple.as_str(), "x"]);
    Some(())
}

async fn a_page_that_is_closed_finds_its_stream_again(backend: Backend) -> Option<()> {
    let world = World::start(backend).await?;
    let gate = Release::default();
    world.play(wait_after(vec![delta("One "), delta("two")], &gate, "One two three"));
    let mut live = Live::open(post(&world, &json!({ "id": "c", "message": user("u", "count") }))).await;
    let run = live.run();
    let seen = live.until("text-delta").await;
    drop(live);
    let mut again = Live::open(world.request(Method::GET, "/v1/ai/chat/c/stream")).await;
    assert_eq!(again.run(), run);
    assert_eq!(again.next().await.unwrap().kind(), "start", "from the first chunk on");
    assert_eq!(again.until("text-delta").await.data["delta"], "One ");
    let after = world.request(Method::GET, "/v1/ai/chat/c/stream").header("last-event-id", seen.id.unwrap());
    let rest = Live::open(after).await;
    gate.open();
    assert_eq!(text(&again.rest().await), "two three");
    let rest = rest.rest().await;
    assert_eq!((text(&rest), rest[0].kind()), ("two three".into(), "text-delta"));
    assert_eq!(world.settled(&run).await["status"], "succeeded", "closing was no stop");
    assert_eq!(world.get("/v1/ai/chat/c/stream").await.status, 204);
    Some(())
}

async fn stopping_ends_only_the_run_that_was_meant(backend: Backend) -> Option<()> {
    let world = World::start(backend).await?;
    let gate = Release::default();
    world.play(wait_after(vec![delta("One")], &gate, "never"));
    let mut live = Live::open(post(&world, &json!({ "id": "c", "message": user("u", "count") }))).await;
    let run = live.run();
    live.until("text-delta").await;
    let other = json!({ "activeStreamId": "0190a1b2-0000-7000-8000-00000000000c" });
    let stop = async |body: Value| world.send(Method::POST, "/v1/ai/chat/c/stop", Some(&body)).await;
    assert_eq!(stop(other).await.body, json!({ "run": null }));
    assert_eq!(world.run(&run).await["status"], "running");
    assert_eq!(
        stop(json!({ "activeStreamId": run, "assistantMessage": {} })).await.body,
        json!({ "run": run })
    );
    let rest = live.rest().await;
    assert_eq!(kinds(&rest), ["text-end", "abort", "finish-step", "finish", "[DONE]"]);
    assert_eq!(world.run(&run).await["status"], "cancelled");
    assert_eq!(world.post("/v1/ai/chat/nothing/stop").await.status, 404);
    Some(())
}

async fn messages_are_edited_answered_again_and_heard_once(backend: Backend) -> Option<()> {
    let world = World::start(backend).await?;
    let said = |id: &str, text: &str| json!({ "id": "c", "messages": [user(id, text)] });
    let first = Live::open(post(&world, &said("u1", "one"))).await;
    let (conversation, run) = (first.header("threadkeep-conversation"), first.run());
    first.rest().await;
    // The same request once more is the same run.
    let repeat = Live::open(post(&world, &said("u1", "one"))).await;
    assert_eq!(repeat.run(), run);
    assert_eq!(text(&repeat.rest().await), "Hello.");
    assert_eq!(world.count().await, (1, 1));
    world.play(answer("Second."));
    chat(&world, said("u2", "two")).await;
    // Answered again, by the id of the answer, of the question, or none.
    let answer_id = world.conversation(&conversation).await["messages"][3]["id"].as_str().unwrap().to_owned();
    for message in [json!(answer_id), json!("u2"), Value::Null] {
        world.play(answer("Better."));
        let body = json!({ "id": "c", "trigger": "regenerate-message", "messageId": message,
            "messages": [user("u1", "one"), user("u2", "two")] });
        assert_eq!(text(&chat(&world, body).await), "Better.");
        let told = [("user", "one"), ("assistant", "Hello."), ("user", "two"), ("assistant", "Better.")];
        assert_eq!(world.thread(&conversation).await, thread(&told), "{message}");
    }
    // Edited twice under its own name.
    for new in ["eins", "uno"] {
        let body = json!({ "id": "c", "messageId": "u1", "messages": [user("u1", new)] });
        assert_eq!(text(&chat(&world, body).await), "Hello.");
        assert_eq!(world.thread(&conversation).await, thread(&[("user", new), ("assistant", "Hello.")]));
        assert_eq!(world.conversation(&conversation).await["messages"][0]["metadata"]["client_id"], "u1");
    }
    let unknown = json!({ "id": "c", "trigger": "regenerate-message", "messageId": "nobody" });
    let refused = ask(post(&world, &unknown)).await;
    assert_eq!(refused.status, 422, "{}", refused.text);
    let busy = Release::default();
    world.play(wait_after(vec![delta("a")], &busy, "a"));
    let mut live = Live::open(post(&world, &said("u3", "three"))).await;
    live.until("text-delta").await;
    let refused = ask(post(&world, &said("u4", "four"))).await;
    assert_eq!((refused.status, &refused.body["code"]), (409, &json!("conversation_busy")));
    assert_eq!(refused.header("content-type"), "application/problem+json");
    busy.open();
    live.rest().await;
    // What was refused is not here: however the client sends it once more, it is said now.
    for (id, message_id, trigger) in [
        ("u4", Value::Null, "regenerate-message"),
        ("u5", json!("an answer that never came"), "regenerate-message"),
        ("u6", json!("u6"), "submit-message"),
    ] {
        let before = world.thread(&conversation).await;
        world.play(answer("At last."));
        let body = json!({ "id": "c", "trigger": trigger, "messageId": message_id,
            "messages": [user("u3", "three"), user(id, "four")] });
        assert_eq!(text(&chat(&world, body).await), "At last.");
        let told = [before, thread(&[("user", "four"), ("assistant", "At last.")])].concat();
        assert_eq!(world.thread(&conversation).await, told, "{id}");
    }
    // An answer with a name that is none of ours is one to the message that came with it.
    world.play(answer("Again."));
    let body = json!({ "id": "c", "trigger": "regenerate-message", "messageId": "nobody",
        "messages": [user("u6", "four")] });
    let length = world.thread(&conversation).await.len();
    assert_eq!(text(&chat(&world, body).await), "Again.");
    assert_eq!(world.thread(&conversation).await.len(), length);
    Some(())
}

async fn a_chat_from_elsewhere_brings_its_messages(backend: Backend) -> Option<()> {
    let world = World::start(backend).await?;
    let call = json!({ "type": "tool-look", "toolCallId": "t", "state": "output-available", "input": {}, "output": "x" });
    let before =
        json!({ "id": "a1", "role": "assistant", "parts": [call, { "type": "text", "text": "Hi." }] });
    let body = json!({ "id": "old", "messages": [user("u1", "hi"), before, user("u2", "go on")] });
    let live = Live::open(post(&world, &body)).await;
    let conversation = live.header("threadkeep-conversation");
    live.rest().await;
    let told = [("user", "hi"), ("assistant", "Hi."), ("user", "go on"), ("assistant", "Hello.")];
    assert_eq!(world.thread(&conversation).await, thread(&told));
    assert_eq!(world.conversation(&conversation).await["title"], "hi");
    // What is here is not told again: the client's list counts no more.
    let body = json!({ "id": "old", "messages": [user("x", "forged"), user("u3", "and on")] });
    chat(&world, body).await;
    assert_eq!(world.thread(&conversation).await.len(), 6);
    Some(())
}

async fn what_is_a_clients_own_comes_back(backend: Backend) -> Option<()> {
    let world = World::start(backend).await?;
    let text = |text: &str| json!({ "type": "text", "text": text, "state": "done" });
    let data =
        |n: u32| json!({ "type": "data-chart", "id": format!("d{n}"), "data": { "n": [n, null, "ä"] } });
    let document = json!({ "type": "source-document", "sourceId": "s1", "mediaType": "application/pdf", "title": "A",
        "filename": "a.pdf" });
    let page =
        json!({ "type": "source-url", "sourceId": "s2", "url": "https://a.example/", "title": "A page" });
    let first = json!({ "id": "u1", "role": "user", "metadata": { "mood": "good", "run": 7 },
        "parts": [data(1), text("hi"), page, data(2)] });
    let second = json!({ "id": "a1", "role": "assistant", "metadata": "plain",
        "parts": [{ "type": "step-start" }, data(3), text("Hello."), page, data(4), text("So."), document] });
    let third = json!({ "id": "u2", "role": "user", "metadata": { "createdAt": 1 }, "parts": [text("go on"), data(5)] });
    let body = json!({ "id": "own", "messages": [first, second, third] });
    let live = Live::open(post(&world, &body)).await;
    let conversation = live.header("threadkeep-conversation");
    live.rest().await;
    let shown = async || world.get("/v1/ai/chat/own").await.body["messages"].as_array().unwrap().clone();
    let kept = shown().await;
    assert_eq!(kept[..3], [first, second, third]);
    assert!(kept[3]["metadata"]["createdAt"].is_number());
    // A page that is cited is one in every client's eyes.
    let stored = world.conversation(&conversation).await;
    assert_eq!(stored["messages"][1]["sources"][0]["url"], "https://a.example/");
    assert_eq!(stored["messages"][0]["sources"], json!([]));
    // An edit has what it brings, and what came before is as it was.
    let edited =
        json!({ "id": "u2", "role": "user", "metadata": { "edited": true }, "parts": [text("no"), data(6)] });
    chat(&world, json!({ "id": "own", "messageId": "u2", "messages": [edited] })).await;
    let after = shown().await;
    assert_eq!((&after[..2], &after[2]), (&kept[..2], &edited));
    Some(())
}

async fn files_come_with_the_message(backend: Backend) -> Option<()> {
    let world = World::start(backend).await?;
    let part =
        |url: &str| json!({ "type": "file", "mediaType": "text/plain", "filename": "note.txt", "url": url });
    let with = |id: &str, parts: Value| json!({ "id": "c", "message": { "id": id, "role": "user", "parts": parts } });
    let text_part = json!({ "type": "text", "text": "read it" });
    for (id, url) in [
        ("1", "data:text/plain;base64,aGVsbG8="),
        ("2", "data:text/plain,hel%6Co"),
        ("3", "data:;base64,aGVsbG8"),
    ] {
        let live = Live::open(post(&world, &with(id, json!([part(url), text_part])))).await;
        let conversation = live.header("threadkeep-conversation");
        live.rest().await;
        let messages = world.conversation(&conversation).await["messages"].clone();
        let sent = &messages.as_array().unwrap()[messages.as_array().unwrap().len() - 2];
        assert_eq!(
            (&sent["fileAttachments"][0]["size"], &sent["content"]),
            (&json!(5), &json!("read it")),
            "{url}"
        );
    }
    let conversation = Live::open(post(&world, &json!({ "id": "c", "message": user("4", "hi") }))).await;
    let conversation = {
        let id = conversation.header("threadkeep-conversation");
        conversation.rest().await;
        id
    };
    let files = world.get(&format!("{CONVERSATIONS}/{conversation}/files")).await.body["data"].clone();
    assert_eq!(files.as_array().unwrap().len(), 3);
    // A file that is here is named by its link, and one alone is a message, too.
    let link = format!(
        "{}/v1/chat-conversations/{conversation}/files/{}/content",
        world.server.url(),
        files[1]["id"].as_str().unwrap()
    );
    chat(&world, with("5", json!([part(&link)]))).await;
    let messages = world.conversation(&conversation).await["messages"].clone();
    let sent = &messages.as_array().unwrap()[messages.as_array().unwrap().len() - 2];
    assert_eq!(
        (&sent["fileAttachments"][0]["fileId"], &sent["content"]),
        (&files[1]["id"], &json!("note.txt"))
    );
    // One without a byte is a file, too.
    chat(&world, with("5b", json!([part("data:text/plain,")]))).await;
    let messages = world.conversation(&conversation).await["messages"].clone();
    let sent = &messages.as_array().unwrap()[messages.as_array().unwrap().len() - 2];
    assert_eq!(sent["fileAttachments"][0]["size"], 0, "{sent}");
    let copied = json!({ "id": "other", "message": { "id": "6", "role": "user", "parts": [part(&link)] } });
    chat(&world, copied).await;
    let before = world.count().await;
    let with_id = |id: &str, part: Value| json!({ "id": id, "message": { "id": "7", "role": "user", "parts": [part] } });
    for url in [
        "https://example.com/a.txt",
        "data:nonsense",
        "data:;base64,???",
        "/v1/files/x/content",
        "file:///etc/passwd",
        "/v1/files/0190a1b2-0000-7000-8000-00000000000c/content",
    ] {
        let body = with_id("new", part(url));
        let refused = ask(post(&world, &body)).await;
        assert_eq!(refused.status, 422, "{url}: {}", refused.text);
    }
    assert_eq!(world.count().await, before, "a refused message leaves nothing");
    // Nor does it take the name of the chat.
    let hi = with_id("new", part("data:text/plain,hi"));
    chat(&world, hi).await;
    assert_eq!(world.count().await, (before.0 + 1, before.1 + 1));
    // A turn that is refused keeps none of its files.
    let busy = Release::default();
    world.play(wait_after(vec![delta("a")], &busy, "a"));
    let mut live = Live::open(post(&world, &json!({ "id": "c", "message": user("8", "wait") }))).await;
    live.until("text-delta").await;
    let files =
        async || world.get(&format!("{CONVERSATIONS}/{conversation}/files")).await.body["data"].clone();
    let kept = files().await;
    let refused = ask(post(&world, &with("9", json!([part("data:text/plain,more"), text_part])))).await;
    assert_eq!((refused.status, files().await), (409, kept));
    busy.open();
    live.rest().await;
    Some(())
}

async fn a_call_waits_for_the_user_of_the_page(backend: Backend) -> Option<()> {
    let world = World::start(backend).await?;
    let agent = json!({ "name": "Careful", "runner": "model", "model": "demo/assistant", "tools": ["list_files"],
        "approval": ["list_files"] });
    let agent = world.send(Method::POST, "/v1/agents", Some(&agent)).await;
    assert_eq!(agent.status, 201, "{}", agent.text);
    for (approve, ended) in [(true, "tool-output-available"), (false, "tool-output-denied")] {
        let id = format!("c-{approve}");
        let body = json!({ "id": id, "agent": agent.body["id"], "messages": [user("u", "list files")] });
        let asked = chat(&world, body).await;
        assert_eq!(
            kinds(&asked)[asked.len() - 4..],
            ["tool-approval-request", "finish-step", "finish", "[DONE]"]
        );
        assert_eq!(asked[asked.len() - 2].data["finishReason"], "tool-calls");
        let request = &asked[asked.len() - 4].data;
        // The page was reloaded: it is still asked.
        let again =
            Live::open(world.request(Method::GET, &format!("/v1/ai/chat/{id}/stream"))).await.rest().await;
        assert_eq!(kinds(&again), kinds(&asked));
        let part = json!({ "type": "dynamic-tool", "toolName": "list_files", "toolCallId": request["toolCallId"],
            "state": "approval-responded", "approval": { "id": request["approvalId"], "approved": approve, "reason": "so" } });
        let assistant = json!({ "id": asked[0].data["messageId"], "role": "assistant", "parts": [part] });
        let body = json!({ "id": id, "messageId": asked[0].data["messageId"], "messages": [user("u", "list files"), assistant] });
        let rest = chat(&world, body).await;
        assert_eq!(rest[0].data, asked[0].data, "the same message goes on");
        assert_eq!(kinds(&rest)[1..3], ["start-step", ended]);
        assert_eq!(rest.last().unwrap().kind(), "[DONE]");
        assert!(!text(&rest).is_empty());
        if approve {
            let page = world.get(&format!("/v1/ai/chat/{id}")).await.body;
            let part = &page["messages"][1]["parts"][1];
            let approval = json!({ "id": request["approvalId"], "approved": true, "reason": "so" });
            assert_eq!((&part["state"], &part["approval"]), (&json!("output-available"), &approval));
        }
        if !approve {
            let told = json!({ "type": ended, "toolCallId": request["toolCallId"] });
            assert_eq!(rest[2].data, told);
            let page = world.get(&format!("/v1/ai/chat/{id}")).await.body;
            let call = json!({ "type": "dynamic-tool", "toolName": "list_files", "providerExecuted": true,
                "toolCallId": request["toolCallId"], "input": {}, "state": "output-denied",
                "approval": { "id": request["approvalId"], "approved": false, "reason": "so" } });
            assert_eq!(page["messages"][1]["parts"][1], call);
        }
        // Over: the same word again changes nothing, another is too late.
        for (said, status) in [(approve, 200), (!approve, 409)] {
            let part = json!({ "type": "dynamic-tool", "approval": { "id": request["approvalId"], "approved": said } });
            let late = json!({ "id": id, "messages": [{ "id": "a", "role": "assistant", "parts": [part] }] });
            let answer = ask(post(&world, &late)).await;
            assert_eq!(answer.status, status, "{}", answer.text);
        }
    }
    Some(())
}

async fn a_call_that_asks_nobody_is_made_before_people_are_asked(backend: Backend) -> Option<()> {
    let world = World::start(backend).await?;
    let agent = json!({ "name": "Careful", "runner": "model", "model": "demo/assistant",
        "tools": ["search_pages", "search_user_tables"], "approval": ["search_pages"] });
    let agent = world.send(Method::POST, "/v1/agents", Some(&agent)).await;
    let body = json!({ "id": "c", "agent": agent.body["id"], "messages": [user("u", "search words")] });
    let asked = chat(&world, body).await;
    // People are asked at once; when the message ends, no part of it is left open but the call that is asked for.
    assert_eq!(
        kinds(&asked)[asked.len() - 5..],
        ["tool-approval-request", "tool-output-available", "finish-step", "finish", "[DONE]"]
    );
    let [request, made] = [&asked[asked.len() - 5].data, &asked[asked.len() - 4].data];
    assert_ne!(made["toolCallId"], request["toolCallId"]);
    let part = json!({ "type": "dynamic-tool", "toolName": "search_pages", "toolCallId": request["toolCallId"],
        "state": "approval-responded", "approval": { "id": request["approvalId"], "approved": true } });
    let assistant = json!({ "id": asked[0].data["messageId"], "role": "assistant", "parts": [part] });
    let rest = chat(&world, json!({ "id": "c", "messages": [user("u", "search words"), assistant] })).await;
    let ended = |frame: &&Frame| frame.kind() == "tool-output-available";
    let ended: Vec<&Value> = rest.iter().filter(ended).map(|frame| &frame.data["toolCallId"]).collect();
    assert_eq!(ended, [&request["toolCallId"]], "what it has is not told again");
    assert_eq!(rest[rest.len() - 2].data["finishReason"], "stop");
    Some(())
}

async fn an_approval_that_is_not_there_is_refused(backend: Backend) -> Option<()> {
    let world = World::start(backend).await?;
    let tools = ["search_pages", "search_user_tables"];
    let agent = json!({ "name": "Careful", "runner": "model", "model": "demo/assistant", "tools": tools,
        "approval": tools });
    let agent = world.send(Method::POST, "/v1/agents", Some(&agent)).await;
    let body = json!({ "id": "c", "agent": agent.body["id"], "messages": [user("u", "search words")] });
    let asked = chat(&world, body).await;
    let requests: Vec<&Value> = asked
        .iter()
        .map(|frame| &frame.data)
        .filter(|data| data["type"] == "tool-approval-request")
        .collect();
    let part = |at: usize, state: &str, id: &Value, approved: Value| {
        json!({ "type": "dynamic-tool", "toolName": tools[at], "toolCallId": requests[at]["toolCallId"],
            "state": state, "input": {}, "output": [], "approval": { "id": id, "approved": approved } })
    };
    let known = |at: usize, state: &str| part(at, state, &requests[at]["approvalId"], json!(true));
    let said = |parts: Value| {
        let assistant = json!({ "id": asked[0].data["messageId"], "role": "assistant", "parts": parts });
        json!({ "id": "c", "messages": [user("u", "search words"), assistant] })
    };
    for id in ["nope", "0190a1b2-0000-7000-8000-00000000000c"] {
        let unknown = part(1, "approval-responded", &json!(id), json!(true));
        for (parts, at) in [
            (json!([unknown]), 0),
            (json!([{ "type": "step-start" }, known(0, "approval-responded"), unknown]), 2),
        ] {
            let refused = ask(post(&world, &said(parts)).header("accept", "application/json")).await;
            let pointer = format!("/messages/1/parts/{at}/approval/id");
            let told = (refused.status, &refused.body["source"]["pointer"]);
            assert_eq!(told, (422, &json!(pointer)), "{}", refused.text);
        }
    }
    // The client sends the whole message each time: what waits, and what has ended.
    let first = said(json!([
        known(0, "approval-responded"),
        part(1, "approval-requested", &json!("x"), Value::Null)
    ]));
    let told = chat(&world, first).await;
    assert_eq!(
        kinds(&told),
        ["start", "start-step", "tool-output-available", "finish-step", "finish", "[DONE]"]
    );
    let rest =
        chat(&world, said(json!([known(0, "output-available"), known(1, "approval-responded")]))).await;
    assert_eq!(rest[rest.len() - 2].data["finishReason"], "stop");
    Some(())
}

async fn refusals_are_words_for_people(backend: Backend) -> Option<()> {
    let world = World::start(backend).await?;
    let bad = json!({ "id": "c", "messages": [] });
    // As `fetch` sends it, in a browser and in Node.
    let by_fetch = |request: RequestBuilder| request.header("sec-fetch-mode", "cors").header("accept", "*/*");
    let words = ask(by_fetch(post(&world, &bad))).await;
    assert_eq!((words.status, words.header("content-type")), (422, "text/plain; charset=utf-8"));
    assert_eq!(words.text, "messages must have at least one message.");
    // Any other client gets the problem, and who asks for it.
    let asked = post(&world, &bad).header("sec-fetch-mode", "cors").header("accept", "application/json");
    for request in [post(&world, &bad), post(&world, &bad).header("accept", "*/*"), asked] {
        let problem = ask(request).await;
        assert_eq!(problem.header("content-type"), "application/problem+json");
        assert_eq!((problem.status, &problem.body["code"]), (422, &json!("invalid_value")));
    }
    let nobody = ask(by_fetch(world.server.request(Method::POST, "/v1/ai/chat").body("{}"))).await;
    assert_eq!((nobody.status, nobody.header("www-authenticate")), (401, "Bearer"));
    assert!(nobody.text.starts_with("Send Authorization"), "{}", nobody.text);
    let broken =
        world.request(Method::POST, "/v1/ai/chat").header("content-type", "application/json").body("{");
    assert_eq!(ask(broken).await.status, 400);
    assert_eq!(world.count().await, (0, 0));
    Some(())
}

async fn what_others_have_is_not_there(backend: Backend) -> Option<()> {
    let world = World::start(backend).await?;
    let gate = Release::default();
    world.play(wait_after(vec![delta("secret")], &gate, "secret"));
    let mut live = Live::open(post(&world, &json!({ "id": "mine", "message": user("u", "hi") }))).await;
    live.until("text-delta").await;
    for other in [world.member("bob").await, world.stranger("eve").await] {
        assert_eq!(other.get("/v1/ai/chat/mine/stream").await.status, 204);
        assert_eq!(other.post("/v1/ai/chat/mine/stop").await.status, 404);
    }
    let carl = world.member("carl").await;
    let conversation = live.header("threadkeep-conversation");
    assert_eq!(
        ask(post(&carl, &json!({ "id": conversation, "message": user("v", "let me in") }))).await.status,
        404
    );
    let eve = world.stranger("mallory").await;
    assert_eq!(text(&chat(&eve, json!({ "id": "mine", "message": user("v", "hi") })).await), "Hello.");
    gate.open();
    live.rest().await;
    Some(())
}

async fn a_name_is_its_users_own(backend: Backend) -> Option<()> {
    let world = World::start(backend).await?;
    let (bob, carl) = (world.member("bob").await, world.member("carl").await);
    let said = async |who: &World, id: &str, says: &str| {
        let live = Live::open(post(who, &json!({ "id": id, "message": user("u", says) }))).await;
        let conversation = live.header("threadkeep-conversation");
        live.rest().await;
        let shown = who.get(&format!("/v1/ai/chat/{id}")).await.body["messages"].clone();
        assert_eq!(shown[0]["parts"][0]["text"], says, "{shown}");
        conversation
    };
    let (first, second) = (said(&bob, "main", "bob's").await, said(&carl, "main", "carl's").await);
    assert_ne!(first, second);
    assert_eq!(said(&bob, "main", "bob's").await, first);
    // The other dialect knows it by the same name, and so do the paths of one chat.
    let thread = json!({ "threadId": "main" });
    let connect = |who: &World| who.request(Method::POST, "/v1/ag-ui/connect").json(&thread);
    let joined = Live::open(connect(&carl)).await.rest().await;
    assert_eq!(joined[1].data["messages"][0]["content"], "carl's");
    assert_eq!(carl.post("/v1/ai/chat/main/stop").await.status, 200);
    assert_eq!(carl.get("/v1/ai/chat/other").await.status, 404);
    // Before names were their users' own the workspace had one of each: it stays that to all who see it.
    let old = domain::run::named_id(world.workspace, "old");
    let made = |who: &World| {
        let body = json!({ "data": { "type": "chat_conversation", "id": old } });
        let request = who.request(Method::POST, "/v1/chat-conversations");
        request.header("content-type", "application/vnd.api+json").body(body.to_string())
    };
    assert_eq!(ask(made(&bob)).await.status, 201);
    assert_eq!(said(&bob, "old", "bob's").await, old.to_string());
    let own = said(&carl, "old", "carl's").await;
    assert_ne!(own, old.to_string());
    let shared = json!({ "data": { "type": "chat_conversation", "id": old,
        "attributes": { "visibility": "workspace" } } });
    let patch = bob.request(Method::PATCH, &format!("/v1/chat-conversations/{old}"));
    let patch = patch.header("content-type", "application/vnd.api+json").body(shared.to_string());
    assert_eq!(ask(patch).await.status, 200);
    let dora = world.member("dora").await;
    let shown = dora.get("/v1/ai/chat/old").await.body["messages"].clone();
    assert_eq!(shown[0]["parts"][0]["text"], "bob's");
    assert_eq!(said(&carl, "old", "carl's").await, own, "who has one of his own keeps it");
    // Keys that act for the workspace have its names in common, for one comes in another's place.
    let mut kept = Vec::new();
    for name in ["old key", "new key"] {
        let key = json!({ "name": name, "role": "service" });
        let key = world.send(Method::POST, "/v1/api-keys", Some(&key)).await.body["key"].clone();
        let chat = json!({ "id": "served", "message": user("s", "hi") }).to_string();
        let chat =
            world.server.request(Method::POST, "/v1/ai/chat").bearer_auth(key.as_str().unwrap()).body(chat);
        let live = Live::open(chat.header("content-type", "application/json")).await;
        kept.push(live.header("threadkeep-conversation"));
        live.rest().await;
    }
    assert_eq!(kept[0], kept[1]);
    // Where all see what is new, a name is everybody's.
    let path = format!("/v1/workspaces/{}", world.workspace);
    let patch = world.send(Method::PATCH, &path, Some(&json!({ "default_visibility": "workspace" }))).await;
    assert_eq!(patch.status, 200, "{}", patch.text);
    let first = said(&bob, "team", "bob's").await;
    let live = Live::open(post(&carl, &json!({ "id": "team", "message": user("v", "carl's") }))).await;
    assert_eq!(live.header("threadkeep-conversation"), first);
    live.rest().await;
    Some(())
}

async fn a_key_is_one_run(backend: Backend) -> Option<()> {
    let world = World::start(backend).await?;
    let keyed = |key: &str, body: &Value| post(&world, body).header("idempotency-key", key.to_owned());
    let first = Live::open(keyed("k1", &json!({ "id": "c", "messages": [user("u1", "one")] }))).await;
    let (conversation, run) = (first.header("threadkeep-conversation"), first.run());
    first.rest().await;
    // Another body under a key that was used is refused, though it says what was heard already.
    let other = json!({ "id": "c", "messages": [user("u1", "one")], "mode": "agent" });
    let refused = ask(keyed("k1", &other)).await;
    assert_eq!((refused.status, &refused.body["code"]), (422, &json!("idempotency_key_reused")));
    // The answer that is to be given again is gone when the request comes again.
    let again = json!({ "id": "c", "trigger": "regenerate-message", "messageId": run, "messages": [] });
    let second = Live::open(keyed("k2", &again)).await;
    let redone = second.run();
    second.rest().await;
    assert_ne!(redone, run);
    let repeat = Live::open(keyed("k2", &again)).await;
    assert_eq!(repeat.run(), redone);
    repeat.rest().await;
    assert_eq!(world.thread(&conversation).await, thread(&[("user", "one"), ("assistant", "Hello.")]));
    Some(())
}

async fn files_of_a_chat_from_elsewhere_come_along(backend: Backend) -> Option<()> {
    let world = World::start(backend).await?;
    let file =
        |url: &str| json!({ "type": "file", "mediaType": "text/plain", "filename": "note.txt", "url": url });
    let text = |text: &str| json!({ "type": "text", "text": text, "state": "done" });
    let data = "data:text/plain;base64,aGVsbG8=";
    let drawn = json!({ "type": "file", "mediaType": "image/png", "url": "https://a.example/x.png" });
    let thought =
        json!({ "type": "reasoning-file", "mediaType": "image/png", "url": "https://a.example/y.png" });
    let own = json!({ "type": "custom", "kind": "vendor.thing", "providerMetadata": { "v": { "n": 1 } } });
    let answers = [
        json!({ "id": "a1", "role": "assistant", "metadata": 1,
            "parts": [{ "type": "step-start" }, thought, text("Seen."), drawn, own] }),
        json!({ "id": "a2", "role": "assistant", "metadata": 1, "parts": [{ "type": "step-start" }, drawn] }),
    ];
    let messages = json!([
        { "id": "u1", "role": "user", "parts": [file(data), text("look")] }, answers[0],
        { "id": "u2", "role": "user", "parts": [file(data)] }, answers[1], user("u3", "go on")]);
    let live = Live::open(post(&world, &json!({ "id": "files", "messages": messages }))).await;
    let conversation = live.header("threadkeep-conversation");
    live.rest().await;
    let stored = world.conversation(&conversation).await["messages"].clone();
    for (at, content) in [(0, "look"), (2, "note-1.txt")] {
        let message = &stored[at];
        assert_eq!(
            (&message["content"], &message["fileAttachments"][0]["size"]),
            (&json!(content), &json!(5))
        );
    }
    let shown = world.get("/v1/ai/chat/files").await.body["messages"].clone();
    let kinds = |at: usize| -> Vec<Value> {
        shown[at]["parts"].as_array().unwrap().iter().map(|part| part["type"].clone()).collect()
    };
    // Nobody said the names of files that came alone.
    assert_eq!((kinds(0), kinds(2)), (vec![json!("file"), json!("text")], vec![json!("file")]));
    assert_eq!([&shown[1], &shown[3]], [&answers[0], &answers[1]]);
    // What cannot be had is left out: every message to come brings it again.
    let gone = json!({ "id": "gone", "messages": [
        { "id": "u1", "role": "user", "parts": [text("look"), file("https://a.example/z.txt"), file(data)] },
        user("u2", "go on")] });
    let live = Live::open(post(&world, &gone)).await;
    let conversation = live.header("threadkeep-conversation");
    live.rest().await;
    let stored = world.conversation(&conversation).await["messages"].clone();
    assert_eq!(stored[0]["content"], "look");
    assert_eq!(stored[0]["fileAttachments"].as_array().map(Vec::len), Some(1), "{stored}");
    Some(())
}
