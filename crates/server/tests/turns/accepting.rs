//! A turn that is accepted without waiting for it, and one that comes too late.

use std::sync::Arc;

use serde_json::json;
use testkit::sandbox::Release;
use testkit::server::Backend;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;

use crate::scripts::{delta, wait_after};
use crate::world::{World, ask, stories, thread};

stories!(respond_async, other_preferences_are_passed_over, a_draining_server_takes_no_turns);

async fn respond_async(backend: Backend) -> Option<()> {
    let world = World::start(backend).await?;
    let gate = Release::default();
    world.play(wait_after(vec![delta("a")], &gate, "ab"));
    // Even where the turn asks for its end without readers: nobody reads from the start.
    let request = world.turn(&json!({ "message": "hi", "on_disconnect": "cancel" }));
    let answer = ask(request.header("prefer", "wait=5, Respond-Async")).await;
    assert_eq!((answer.status, answer.header("content-type")), (202, "application/json"));
    assert_eq!(answer.header("preference-applied"), "respond-async");
    let ids = answer.body.clone();
    let text = |name: &str| ids[name].as_str().unwrap().to_owned();
    let (run, conversation, message) = (text("run"), text("conversation"), text("message"));
    assert_eq!(
        ids,
        json!({ "conversation": conversation, "run": run, "message": message, "status": "running" })
    );
    for (header, id) in [
        ("threadkeep-run", &run),
        ("threadkeep-conversation", &conversation),
        ("threadkeep-message", &message),
    ] {
        assert_eq!(answer.header(header), id, "{header}");
    }
    assert_eq!(world.run(&run).await["status"], "running");
    // A reader that comes and goes does not end it.
    let mut stream = world.follow(&run, 0).await;
    stream.until("delta").await;
    drop(stream);
    gate.open();
    assert_eq!(world.settled(&run).await["status"], "succeeded");
    assert_eq!(world.thread(&conversation).await, thread(&[("user", "hi"), ("assistant", "ab")]));
    Some(())
}

async fn other_preferences_are_passed_over(backend: Backend) -> Option<()> {
    let world = World::start(backend).await?;
    let answer =
        ask(world.turn(&json!({ "message": "hi" })).header("prefer", "wait=5, return=minimal")).await;
    assert_eq!((answer.status, answer.header("content-type")), (200, "text/event-stream"));
    assert_eq!(answer.header("preference-applied"), "");
    Some(())
}

/// New turns are sent elsewhere; the one under way ends well.
async fn a_draining_server_takes_no_turns(backend: Backend) -> Option<()> {
    let world = World::start(backend).await?;
    let gate = Release::default();
    world.play(wait_after(vec![delta("a")], &gate, "ab"));
    let mut stream = world.begin(&json!({ "message": "hi" })).await;
    stream.until("delta").await;

    let address = world.server.url().trim_start_matches("http://").to_owned();
    let body = json!({ "message": "too late" }).to_string();
    let mut late = TcpStream::connect(&address).await.unwrap();
    let head = format!(
        "POST /v1/turns HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {}\r\nContent-Type: application/json\r\n\
         Content-Length: {}\r\n",
        world.bearer(),
        body.len()
    );
    late.write_all(head.as_bytes()).await.unwrap();
    // Connections are taken in order: once a later one was answered, the first is the server's.
    let requests = world.sandbox.requests().len();
    let mut later = TcpStream::connect(&address).await.unwrap();
    later.write_all(b"GET /healthz HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n").await.unwrap();
    later.read_to_end(&mut Vec::new()).await.unwrap();

    let World { server, sandbox, .. } = world;
    let server = Arc::into_inner(server).expect("the only one");
    let finish = async {
        // The run keeps the door open for its sandbox alone.
        let ready =
            reqwest::Client::builder().no_proxy().build().unwrap().get(format!("http://{address}/readyz"));
        while ready.try_clone().unwrap().send().await.is_ok_and(|answer| answer.status() == 200) {
            tokio::task::yield_now().await;
        }
        late.write_all(format!("\r\n{body}").as_bytes()).await.unwrap();
        let mut text = String::new();
        late.read_to_string(&mut text).await.unwrap();
        gate.open();
        (text, stream.rest().await)
    };
    let ((text, told), ()) = tokio::join!(finish, server.stop());
    assert!(text.starts_with("HTTP/1.1 503 "), "{text}");
    assert!(text.contains("retry-after: 1") && text.contains("\"code\":\"unavailable\""), "{text}");
    assert_eq!((told.status(), sandbox.requests().len()), ("succeeded", requests));
    Some(())
}
