//! Readers who go away: the run ends with the last of them, or goes on alone, as its turn chose.

use std::time::{Duration, Instant};

use serde_json::{Value, json};
use testkit::sandbox::{Action, Release};
use testkit::server::Backend;
use tokio::io::AsyncWriteExt as _;
use tokio::net::TcpStream;

use crate::scripts::{delta, hang_after, open, result, step, wait_after};
use crate::sse::Stream;
use crate::world::{World, ask, stories, thread};

stories!(
    the_last_reader_ends_the_run,
    a_second_reader_keeps_it_alive,
    a_grace_for_those_who_come_back,
    a_run_that_goes_on_alone,
    a_retry_that_waits_for_nothing_lets_the_run_go_on,
    who_leaves_before_the_answer_leaves_nothing_stuck,
);

/// How soon the sandbox must know.
const SOON: Duration = Duration::from_secs(1);

async fn the_last_reader_ends_the_run(backend: Backend) -> Option<()> {
    let world = World::start(backend).await?;
    for body in [json!({ "message": "hi" }), json!({ "message": "hi", "on_disconnect": "cancel" })] {
        world.play(hang_after(vec![delta("so far")]));
        let number = world.sandbox.requests().len();
        let mut stream = world.begin(&body).await;
        stream.until("delta").await;
        let (run, conversation) = (stream.run(), stream.conversation());
        let gone = Instant::now();
        drop(stream);
        let request = world.sandbox.disconnected(number).await.unwrap();
        let took = request.disconnected.unwrap().duration_since(gone);
        assert!(took < SOON, "the sandbox was let go after {took:?}");
        let run = world.settled(&run).await;
        assert_eq!((&run["status"], &run["error"]["code"]), (&json!("cancelled"), &json!("cancelled")));
        assert_eq!(world.thread(&conversation).await, thread(&[("user", "hi"), ("assistant", "so far")]));
        let parts = world.last_parts(&conversation).await;
        assert_eq!(parts[1]["code"], "cancelled");
    }
    Some(())
}

async fn a_second_reader_keeps_it_alive(backend: Backend) -> Option<()> {
    let world = World::start(backend).await?;
    let gates = [Release::default(), Release::default()];
    world.play(vec![
        open(),
        Action::Line(delta("a")),
        Action::WaitFor(gates[0].clone()),
        Action::Line(delta("b")),
        Action::WaitFor(gates[1].clone()),
        Action::Line(result("ab")),
    ]);
    let mut first = world.begin(&json!({ "message": "hi" })).await;
    first.until("delta").await;
    let mut second = world.follow(&first.run(), 0).await;
    second.until("delta").await;
    drop(first);
    gates[0].open();
    assert_eq!(second.until("delta").await.data["text"], "b");
    // Through the last one, the run ends.
    let run = second.run();
    drop(second);
    world.sandbox.disconnected(0).await.unwrap();
    assert_eq!(world.settled(&run).await["status"], "cancelled");
    Some(())
}

async fn a_grace_for_those_who_come_back(backend: Backend) -> Option<()> {
    let world = World::start_with(backend, |config| config.limits.disconnect_grace_seconds = 30).await?;
    let gate = Release::default();
    world.play(wait_after(vec![delta("a")], &gate, "ab"));
    let mut stream = world.begin(&json!({ "message": "hi" })).await;
    stream.until("delta").await;
    let run = stream.run();
    drop(stream);
    let mut back = world.follow(&run, 2).await;
    gate.open();
    back.until("result").await;
    assert_eq!(world.settled(&run).await["status"], "succeeded");
    Some(())
}

async fn a_run_that_goes_on_alone(backend: Backend) -> Option<()> {
    let world = World::start(backend).await?;
    let gate = Release::default();
    world.play(wait_after(vec![delta("a")], &gate, "ab"));
    let mut stream = world.begin(&json!({ "message": "hi", "on_disconnect": "continue" })).await;
    stream.until("delta").await;
    let (run, conversation) = (stream.run(), stream.conversation());
    drop(stream);
    // Long enough for the server to have seen it: another connection comes and goes.
    let mut other = world.follow(&run, 0).await;
    other.until("delta").await;
    drop(other);
    assert_eq!(world.run(&run).await["status"], "running");
    assert!(world.sandbox.requests()[0].disconnected.is_none());
    gate.open();
    assert_eq!(world.settled(&run).await["status"], "succeeded");
    assert_eq!(world.thread(&conversation).await, thread(&[("user", "hi"), ("assistant", "ab")]));
    Some(())
}

/// With `Prefer: respond-async` it is always `continue`, also for a run that was begun with a stream: one under way, and
/// one that waits for it.
async fn a_retry_that_waits_for_nothing_lets_the_run_go_on(backend: Backend) -> Option<()> {
    let world = World::start(backend).await?;
    let gate = Release::default();
    world.play(wait_after(vec![delta("a")], &gate, "ab"));
    let retried = async |body: &Value| {
        let key = body["message"].as_str().unwrap();
        let sent = world.turn(body).header("idempotency-key", key).send().await.unwrap();
        let stream = Stream::new(sent);
        let again = world.turn(body).header("idempotency-key", key).header("prefer", "respond-async");
        let again = ask(again).await;
        assert_eq!((again.status, &again.body["run"]), (202, &json!(stream.run())), "{}", again.text);
        stream
    };
    let mut first = retried(&json!({ "message": "one" })).await;
    first.until("delta").await;
    let waits = json!({ "conversation": first.conversation(), "message": "two", "on_busy": "enqueue" });
    let second = retried(&waits).await;
    let runs = [first.run(), second.run()];
    drop((first, second));
    // Readers who come and go are what a run of the other kind would end with.
    for run in &runs {
        drop(world.follow(run, 0).await);
    }
    world.play(hang_after(vec![delta("x")]));
    let mut other = world.begin(&json!({ "message": "three" })).await;
    other.until("delta").await;
    drop(other);
    world.sandbox.disconnected(1).await.unwrap();
    gate.open();
    for run in &runs {
        assert_eq!(world.settled(run).await["status"], "succeeded");
    }
    Some(())
}

/// A client that closes its connection while its turn is being accepted: either there is no turn, or it is driven and
/// ends. Not by its lease, which is long.
async fn who_leaves_before_the_answer_leaves_nothing_stuck(backend: Backend) -> Option<()> {
    let world = World::start_with(backend, |config| config.limits.lease_seconds = 600).await?;
    let mut threads = Vec::new();
    for _ in 0..40 {
        let body = json!({ "data": { "type": "chat_conversation", "attributes": {} } });
        let request = world.request(reqwest::Method::POST, crate::world::CONVERSATIONS);
        let made =
            ask(request.header("content-type", "application/vnd.api+json").body(body.to_string())).await;
        threads.push(made.body["data"]["id"].as_str().unwrap().to_owned());
    }
    let address = world.server.url().strip_prefix("http://").unwrap().to_owned();
    for (n, thread) in threads.iter().enumerate() {
        let body = json!({ "conversation": thread, "message": "hi" }).to_string();
        let request = format!(
            "POST /v1/turns HTTP/1.1\r\nhost: {address}\r\nauthorization: Bearer {}\r\n\
             content-type: application/json\r\ncontent-length: {}\r\n\r\n{body}",
            world.bearer(),
            body.len()
        );
        let mut connection = TcpStream::connect(&address).await.unwrap();
        connection.write_all(request.as_bytes()).await.unwrap();
        // Some before the request is read, some while it is written down, some after.
        tokio::time::sleep(Duration::from_micros(150 * n as u64)).await;
    }
    let mut begun = 0;
    for thread in &threads {
        let runs = world.get(&format!("{}/{thread}/runs", crate::world::CONVERSATIONS)).await;
        for run in runs.body["data"].as_array().unwrap() {
            begun += 1;
            world.settled(run["id"].as_str().unwrap()).await;
        }
        let next = world.tell(&json!({ "conversation": thread, "message": "again" })).await;
        assert_eq!(next.status(), "succeeded");
    }
    assert!(begun > 0, "no client left late enough");
    Some(())
}

/// A reader that takes nothing any more, without closing its connection, is nobody's reader after a while.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_reader_that_reads_no_more_is_given_up() {
    crate::world::tell(Backend::Sqlite, read_no_more).await;
}

async fn read_no_more(backend: Backend) -> Option<()> {
    let world = World::start(backend).await?;
    // More than the connection's buffers hold; the answer has the newest of it alone.
    let mut long = step("s", "running");
    long["args"] = "x".repeat(60_000).into();
    world.play(hang_after(vec![long; 200]));
    let address = world.server.url().strip_prefix("http://").unwrap().to_owned();
    let body = json!({ "message": "hi" }).to_string();
    let request = format!(
        "POST /v1/turns HTTP/1.1\r\nhost: {address}\r\nauthorization: Bearer {}\r\n\
         content-type: application/json\r\ncontent-length: {}\r\n\r\n{body}",
        world.bearer(),
        body.len()
    );
    let socket = tokio::net::TcpSocket::new_v4().unwrap();
    socket.set_recv_buffer_size(4096).unwrap();
    let mut connection = socket.connect(address.parse().unwrap()).await.unwrap();
    connection.write_all(request.as_bytes()).await.unwrap();
    world.sandbox.disconnected(0).await.unwrap();
    let list = world.get(crate::world::CONVERSATIONS).await;
    let thread = list.body["data"][0]["id"].as_str().unwrap();
    let runs = world.get(&format!("{}/{thread}/runs", crate::world::CONVERSATIONS)).await;
    let run = world.settled(runs.body["data"][0]["id"].as_str().unwrap()).await;
    assert_eq!(run["status"], "cancelled", "{run}");
    drop(connection);
    Some(())
}

/// As after a write that is there though it was answered as failed: the run is this node's, which knows nothing of it
/// and drives no other.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_run_that_its_idle_node_knows_nothing_of_is_ended() {
    crate::world::tell(Backend::Sqlite, begun_past_the_server).await;
}

#[expect(clippy::disallowed_methods, reason = "written past the server, which has the clock")]
async fn begun_past_the_server(backend: Backend) -> Option<()> {
    let world = World::start_with(backend, |config| config.limits.lease_seconds = 2).await?;
    world.play(hang_after(vec![delta("a")]));
    let mut known = world.begin(&json!({ "message": "hi" })).await;
    known.until("delta").await;
    let (node, known_run) = (node_of(&world, &known.run()), known.run());
    drop(known);
    // A reader that came before that would keep it alive.
    world.sandbox.disconnected(0).await.unwrap();
    world.settled(&known_run).await;
    let (limits, id) = (domain::limits::Limits::default(), uuid::Uuid::new_v4);
    let turn = serde_json::from_value(
        json!({ "message": { "content": r#"[{"type":"text","text":"lost"}]"#, "text": "lost" }, "on_busy": "reject",
        "on_disconnect": "continue" }),
    );
    let new = store::turns::NewTurn {
        run: id(),
        message: id(),
        conversation: id(),
        branch: id(),
        turn: turn.unwrap(),
        idempotency: None,
        node,
        lease_seconds: 2,
        open_runs: limits.open_runs(),
        tokens: limits.tokens(),
        now: jiff::Timestamp::now(),
    };
    world.server.store().begin_turn(&world.scope(), &new).await.unwrap();
    let run = world.settled(&new.run.to_string()).await;
    assert_eq!(run["status"], "interrupted", "{run}");
    Some(())
}

/// The node that drives a run, as its row says.
#[expect(clippy::disallowed_methods, reason = "past the store, which tells no one")]
fn node_of(world: &World, run: &str) -> uuid::Uuid {
    let db = rusqlite::Connection::open(world.server.data().join("test.db")).unwrap();
    let run = uuid::Uuid::parse_str(run).unwrap();
    let node: String = db.query_row("SELECT node FROM runs WHERE id = ?1", [run], |row| row.get(0)).unwrap();
    node.parse().unwrap()
}
