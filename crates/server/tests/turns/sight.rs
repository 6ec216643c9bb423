//! Who sees a run: whoever sees its conversation, as long as that is there.

use futures_util::StreamExt as _;
use reqwest::Method;
use serde_json::json;
use testkit::sandbox::{Action, Release};
use testkit::server::Backend;

use crate::scripts::{delta, open, result, wait_after};
use crate::sse::Stream;
use crate::world::{CONVERSATIONS, World, ask, refused, stories, thread};

stories!(
    private_and_shared,
    out_of_sight,
    another_workspace,
    strangers,
    a_deleted_conversation,
    a_conversation_deleted_as_openais,
    other_nodes_are_told_of_a_delete,
    a_deleted_conversations_queue,
    a_restored_conversation
);

/// Every way to a run and its conversation.
fn ways(run: &str, conversation: &str) -> Vec<(Method, String)> {
    vec![
        (Method::GET, format!("/v1/runs/{run}")),
        (Method::GET, format!("/v1/runs/{run}/events")),
        (Method::GET, format!("/v1/runs/{run}/trace")),
        (Method::POST, format!("/v1/runs/{run}/cancel")),
        (Method::GET, format!("{CONVERSATIONS}/{conversation}/runs")),
        (Method::GET, format!("{CONVERSATIONS}/{conversation}/queue")),
        (Method::GET, format!("{CONVERSATIONS}/{conversation}/branches")),
        (Method::POST, format!("{CONVERSATIONS}/{conversation}/branches/{conversation}/select")),
    ]
}

async fn assert_hidden(who: &World, run: &str, conversation: &str) {
    for (method, path) in ways(run, conversation) {
        refused(&who.send(method, &path, None).await, 404, "not_found");
    }
    refused(&ask(who.turn(&json!({ "conversation": conversation, "message": "x" }))).await, 404, "not_found");
}

async fn private_and_shared(backend: Backend) -> Option<()> {
    let world = World::start(backend).await?;
    let bob = world.member("bob").await;
    let carl = world.member("carl").await;
    let gate = Release::default();
    world.play(wait_after(vec![delta("a")], &gate, "ab"));
    let stream = bob.begin(&json!({ "message": "mine" })).await;
    let (run, conversation) = (stream.run(), stream.conversation());
    assert_hidden(&carl, &run, &conversation).await;
    // The admin sees all of the workspace.
    assert_eq!(world.run(&run).await["status"], "running");
    share(&bob, &conversation, "workspace").await;
    let reader = carl.follow(&run, 0).await;
    gate.open();
    assert_eq!(reader.rest().await.bytes, stream.rest().await.bytes);
    for (method, path) in ways(&run, &conversation) {
        assert_eq!(carl.send(method.clone(), &path, None).await.status, 200, "{method} {path}");
    }
    assert_eq!(
        carl.tell(&json!({ "conversation": conversation, "message": "ours" })).await.status(),
        "succeeded"
    );
    Some(())
}

/// A reader who may not see the conversation any more is told nothing more of it; the others go on.
async fn out_of_sight(backend: Backend) -> Option<()> {
    let world = World::start(backend).await?;
    let carl = world.member("carl").await;
    let gate = Release::default();
    world.play(wait_after(vec![delta("a")], &gate, "ab"));
    let mut stream = world.begin(&json!({ "message": "mine" })).await;
    let (run, conversation) = (stream.run(), stream.conversation());
    share(&world, &conversation, "workspace").await;
    let mut reader = carl.follow(&run, 0).await;
    share(&world, &conversation, "private").await;
    assert_cut(&mut reader).await;
    // Nor one who is no member any more.
    share(&world, &conversation, "workspace").await;
    let mut reader = carl.follow(&run, 0).await;
    let path = format!("/v1/workspaces/{}/members/carl", world.workspace);
    assert_eq!(world.send(Method::DELETE, &path, None).await.status, 204);
    assert_cut(&mut reader).await;
    gate.open();
    stream.until("done").await;
    Some(())
}

/// The stream ends without an end of its run, and before the first heartbeat: nobody waited for the next look.
/// Who named no workspace was in one; coming into another ends no stream.
async fn another_workspace(backend: Backend) -> Option<()> {
    let world = World::start(backend).await?;
    let gate = Release::default();
    world.play(wait_after(vec![delta("a")], &gate, "ab"));
    let mut stream = world.begin(&json!({ "message": "mine" })).await;
    stream.until("delta").await;
    let other = world.server.person("ann", "acme").create_workspace("Another").await.unwrap();
    assert_ne!(other, world.workspace.to_string());
    // Rights change in hers, so it is looked again what she may see.
    let path = format!("/v1/workspaces/{}/members", world.workspace);
    let added = world.send(Method::POST, &path, Some(&json!({ "user": "bob", "role": "member" }))).await;
    assert_eq!(added.status, 201, "{}", added.text);
    let removed = world.send(Method::DELETE, &format!("{path}/bob"), None).await;
    assert_eq!(removed.status, 204, "{}", removed.text);
    gate.open();
    assert_eq!(stream.rest().await.status(), "succeeded");
    Some(())
}

async fn assert_cut(reader: &mut Stream) {
    while reader.read().await {}
    let told = String::from_utf8_lossy(&reader.bytes);
    assert!(!told.contains("event: done") && !told.contains("\n:"), "{told}");
}

async fn share(owner: &World, conversation: &str, visibility: &str) {
    let body = json!({ "data": { "type": "chat_conversation", "id": conversation, "attributes": { "visibility": visibility } } });
    let patch = owner.request(Method::PATCH, &format!("{CONVERSATIONS}/{conversation}"));
    let patch = ask(patch.header("content-type", "application/vnd.api+json").body(body.to_string())).await;
    assert_eq!(patch.status, 200, "{}", patch.text);
}

async fn strangers(backend: Backend) -> Option<()> {
    let world = World::start(backend).await?;
    let told = world.tell(&json!({ "message": "mine" })).await;
    let eve = world.stranger("eve").await;
    assert_hidden(&eve, &told.run(), &told.conversation()).await;
    assert_eq!(world.thread(&told.conversation()).await.len(), 2);
    // Nor in a workspace that she is not in.
    let body = json!({ "workspace": world.workspace, "message": "x" });
    refused(&ask(eve.turn(&body)).await, 404, "not_found");
    for header in [false, true] {
        let mut request =
            eve.request(Method::GET, &format!("/v1/runs/{}?workspace={}", told.run(), world.workspace));
        if header {
            request = eve.request(Method::GET, &format!("/v1/runs/{}", told.run()));
            request = request.header("threadkeep-workspace", world.workspace.to_string());
        }
        refused(&ask(request).await, 404, "not_found");
    }
    Some(())
}

async fn delete(world: &World, conversation: &str) {
    assert_eq!(
        world.send(Method::DELETE, &format!("{CONVERSATIONS}/{conversation}"), None).await.status,
        204
    );
}

/// After the 204 no stream says another word of it but that it is over, the sandbox is let go and the runs are gone.
async fn a_deleted_conversation(backend: Backend) -> Option<()> {
    let world = World::start(backend).await?;
    let gate = Release::default();
    world.play(vec![
        open(),
        Action::Line(delta("before")),
        Action::WaitFor(gate.clone()),
        Action::Line(delta("after")),
        Action::Line(result("after all")),
    ]);
    let mut stream = world.begin(&json!({ "message": "hi", "on_disconnect": "continue" })).await;
    stream.until("delta").await;
    let (run, conversation) = (stream.run(), stream.conversation());
    let lines = world.request(Method::GET, &format!("/v1/runs/{run}/events?wire=ndjson"));
    let lines = lines.send().await.unwrap();
    delete(&world, &conversation).await;
    gate.open();
    while stream.read().await {}
    let text = String::from_utf8_lossy(&stream.bytes).into_owned();
    assert!(!text.contains("after"), "{text}");
    let ended = "event: done\ndata: {\"status\":\"cancelled\"}\n\n";
    assert!(text.contains("event: error\n") && text.ends_with(ended), "{text}");
    let lines = lines.text().await.unwrap();
    assert!(!lines.contains("after") && lines.lines().last().unwrap().contains("\"error\""), "{lines}");
    world.sandbox.disconnected(0).await.unwrap();
    assert_hidden(&world, &run, &conversation).await;
    Some(())
}

/// The same by the other way to delete it.
async fn a_conversation_deleted_as_openais(backend: Backend) -> Option<()> {
    let world = World::start(backend).await?;
    let gate = Release::default();
    world.play(wait_after(vec![delta("before")], &gate, "before and after"));
    let mut stream = world.begin(&json!({ "message": "hi", "on_disconnect": "continue" })).await;
    stream.until("delta").await;
    let path = format!("/v1/conversations/conv_{}", stream.conversation().replace('-', ""));
    let gone = world.send(Method::DELETE, &path, None).await;
    assert_eq!(gone.status, 200, "{}", gone.text);
    gate.open();
    while stream.read().await {}
    let text = String::from_utf8_lossy(&stream.bytes).into_owned();
    assert!(!text.contains("after"), "{text}");
    assert!(text.ends_with("event: done\ndata: {\"status\":\"cancelled\"}\n\n"), "{text}");
    Some(())
}

/// Whoever streams there looks again, on every node, and does not wait for the next heartbeat of whoever runs it.
async fn other_nodes_are_told_of_a_delete(backend: Backend) -> Option<()> {
    let world = World::start(backend).await?;
    // The file has one process.
    let Some(mut heard) = world.server.store().system_news() else { return Some(()) };
    for way in [CONVERSATIONS, "/v1/conversations"] {
        let mut told = async |path: String| {
            world.send(Method::DELETE, &path, None).await;
            while let Some(news) = heard.next().await {
                if news == store::turns::News::Rights(world.workspace) {
                    break;
                }
            }
        };
        // The first ones may come before it listens.
        let mut tries = 0;
        loop {
            let conversation = world.tell(&json!({ "message": "hi" })).await.conversation();
            let soon = std::time::Duration::from_secs(2);
            if tokio::time::timeout(soon, told(format!("{way}/{conversation}"))).await.is_ok() {
                break;
            }
            tries += 1;
            assert!(tries < 10, "nobody is told of {way}");
        }
    }
    Some(())
}

async fn a_deleted_conversations_queue(backend: Backend) -> Option<()> {
    let world = World::start(backend).await?;
    world.play(crate::scripts::hang_after(vec![]));
    let first = world.begin_async(&json!({ "message": "one" })).await;
    world.sandbox.request(0).await.unwrap();
    let body = json!({ "conversation": first["conversation"], "message": "two", "on_busy": "enqueue" });
    let queued = world.begin_async(&body).await;
    delete(&world, first["conversation"].as_str().unwrap()).await;
    world.sandbox.disconnected(0).await.unwrap();
    // A turn elsewhere comes and goes; the queued one never did.
    world.tell(&json!({ "message": "elsewhere" })).await;
    let asked: Vec<String> = world
        .sandbox
        .requests()
        .iter()
        .map(|request| request.body["message"]["content"].to_string())
        .collect();
    assert_eq!(asked, ["\"one\"", "\"elsewhere\""]);
    assert_hidden(&world, queued["run"].as_str().unwrap(), first["conversation"].as_str().unwrap()).await;
    Some(())
}

/// What was streamed before the delete comes back with the conversation.
async fn a_restored_conversation(backend: Backend) -> Option<()> {
    let world = World::start(backend).await?;
    world.play(crate::scripts::hang_after(vec![delta("so far")]));
    let mut stream = world.begin(&json!({ "message": "hi" })).await;
    stream.until("delta").await;
    let (run, conversation) = (stream.run(), stream.conversation());
    delete(&world, &conversation).await;
    world.sandbox.disconnected(0).await.unwrap();
    let restored = world.post(&format!("{CONVERSATIONS}/{conversation}/restore")).await;
    assert_eq!(restored.status, 200, "{}", restored.text);
    let run = world.settled(&run).await;
    assert_eq!(run["status"], "cancelled");
    assert_eq!(world.thread(&conversation).await, thread(&[("user", "hi"), ("assistant", "so far")]));
    assert_eq!(
        world.tell(&json!({ "conversation": conversation, "message": "on" })).await.status(),
        "succeeded"
    );
    Some(())
}
