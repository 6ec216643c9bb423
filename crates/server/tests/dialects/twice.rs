//! The same first message twice at nearly the same time: a double click, two windows, a client that does not wait.

use futures_util::future::join_all;
use reqwest::{Method, RequestBuilder};
use serde_json::{Value, json};
use testkit::server::Backend;

use crate::ai_chat::user;
use crate::told::Live;
use crate::world::{World, stories, thread};

stories!(a_chat_that_brings_messages_is_begun_once, a_thread_that_brings_messages_is_begun_once);

/// How often; who comes first is a matter of luck.
const ROUNDS: usize = 12;
const COPIES: u64 = 3;
const FILES: usize = 6;

/// All copies are the run of one, which has all that was brought.
async fn once(world: &World, request: impl Fn(usize) -> RequestBuilder) {
    for round in 0..ROUNDS {
        let copies = (0..COPIES).map(|copy| {
            let sent = request(round);
            async move {
                // Sometimes together, sometimes one while the other is on its way.
                tokio::time::sleep(std::time::Duration::from_millis(copy * 4 * (round as u64 % 4))).await;
                let live = Live::open(sent).await;
                let ids = (live.header("threadkeep-conversation"), live.run());
                live.rest().await;
                ids
            }
        });
        let ids = join_all(copies).await;
        assert!(ids.iter().all(|copy| *copy == ids[0]), "round {round}: {ids:?}");
        let told = [("user", "first"), ("assistant", "Hi."), ("user", "go on"), ("assistant", "Hello.")];
        assert_eq!(world.thread(&ids[0].0).await, thread(&told), "round {round}");
        let stored = world.conversation(&ids[0].0).await;
        assert_eq!(
            stored["messages"][0]["fileAttachments"].as_array().map(Vec::len),
            Some(FILES),
            "{stored}"
        );
    }
}

async fn a_chat_that_brings_messages_is_begun_once(backend: Backend) -> Option<()> {
    let world = World::start(backend).await?;
    let file = |n: usize| {
        json!({ "type": "file", "mediaType": "text/plain", "filename": format!("{n}.txt"),
            "url": format!("data:text/plain;base64,{}", "aGVs".repeat(5000)) })
    };
    let hi = json!({ "id": "a1", "role": "assistant", "parts": [{ "type": "text", "text": "Hi." }] });
    let mut first = user("u1", "first");
    first["parts"].as_array_mut().unwrap().extend((0..FILES).map(file));
    let messages: [Value; 3] = [first, hi, user("u2", "go on")];
    for keyed in [false, true] {
        once(&world, |round| {
            let body = json!({ "id": format!("chat {keyed} {round}"), "messages": messages });
            let sent = world.request(Method::POST, "/v1/ai/chat").header("content-type", "application/json");
            let sent = sent.body(body.to_string());
            if keyed { sent.header("idempotency-key", format!("key {round}")) } else { sent }
        })
        .await;
    }
    Some(())
}

async fn a_thread_that_brings_messages_is_begun_once(backend: Backend) -> Option<()> {
    let world = World::start(backend).await?;
    let file = json!({ "type": "document", "source": { "type": "data", "value": "aGVs".repeat(5000), "mimeType": "text/plain" } });
    let mut first = vec![file; FILES];
    first.push(json!({ "type": "text", "text": "first" }));
    let messages = json!([{ "id": "u1", "role": "user", "content": first },
        { "id": "a1", "role": "assistant", "content": "Hi." }, { "id": "u2", "role": "user", "content": "go on" }]);
    once(&world, |round| {
        let body = json!({ "threadId": format!("thread {round}"), "runId": format!("run {round}"), "state": {},
            "messages": messages, "tools": [], "context": [], "forwardedProps": {} });
        let sent = world.request(Method::POST, "/v1/ag-ui").header("content-type", "application/json");
        sent.body(body.to_string())
    })
    .await;
    Some(())
}
