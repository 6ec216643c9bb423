//! Servers that do not do as they should: the call fails with words, the run goes on, and nothing grows without end.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use serde_json::{Value, json};
use testkit::server::Backend;

use crate::fake::{Asked, Fake, Reply, text, tool};
use crate::world::{Turn, World, http, until};

macro_rules! tests {
    ($($name:ident),+ $(,)?) => {
        mod alone {
            $(#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
            async fn $name() {
                crate::world::tell(testkit::server::Backend::Sqlite, super::$name).await;
            })+
        }
    };
}

tests!(
    a_bad_answer_to_a_call_is_an_error_for_the_model,
    a_call_that_hangs_is_given_up_and_the_server_told,
    a_lost_session_is_begun_anew,
    the_stateless_era_is_spoken_where_it_is_asked_for,
    a_server_without_memory_gets_its_state_back,
    a_list_that_changes_is_offered_anew,
    lists_have_pages_and_odd_tools_get_safe_names,
    a_server_that_is_down_leaves_the_run_alone,
    answers_come_as_events_beside_pings_and_notes,
    a_flood_of_questions_is_not_answered_by_a_flood,
);

fn on_call(asked: &Asked, reply: impl FnOnce() -> Reply) -> Option<Reply> {
    (asked.method() == "tools/call").then(reply)
}

async fn world(fake: &Fake) -> World {
    let url = fake.url();
    let change = |config: &mut server::config::Config| {
        config.mcp.insert("f".into(), http(&url));
        config.limits.tool_timeout_seconds = 2;
    };
    World::start(Backend::Sqlite, change).await.unwrap()
}

async fn echo(world: &World, agent: &str) -> Turn {
    world.turn(agent, &[("f__echo", json!({ "text": "hi" }))]).await
}

async fn a_bad_answer_to_a_call_is_an_error_for_the_model(_: Backend) -> Option<()> {
    let fake = Fake::start(|_| None).await;
    let world = world(&fake).await;
    let agent = world.agent(json!([{ "mcp": "f" }]), json!([])).await;
    assert_eq!(echo(&world, &agent).await.call(0)["result"], "hi");
    let other = Fake::start(|_| None).await;
    let elsewhere = other.url();
    let mib = 1024 * 1024;
    let event = |value: Value| format!("data: {value}\n\n").into_bytes();
    let cases: Vec<(Reply, &str)> = vec![
        (Reply::Json(json!({ "jsonrpc": "2.0", "id": 9_999, "result": text("other") })), "no answer"),
        (Reply::Json(json!([])), "no answer"),
        (Reply::Json(json!("x")), "no answer"),
        (Reply::Raw(200, "application/json", b"{\"id\":".to_vec()), "no answer"),
        (Reply::Raw(200, "text/html", b"<html>hello</html>".to_vec()), "no answer"),
        (Reply::Raw(200, "application/json", vec![0xff; 100]), "no answer"),
        (Reply::Raw(200, "application/json", vec![b'['; 100_000]), "no answer"),
        (Reply::Raw(202, "text/plain", Vec::new()), "no answer"),
        (Reply::Raw(500, "text/plain", b"oh".to_vec()), "status 500"),
        (Reply::Raw(401, "text/plain", b"oh".to_vec()), "status 401"),
        (Reply::Elsewhere(elsewhere), "status 307"),
        (Reply::Error(200, json!({ "code": -32602, "message": "Bad\u{7} words" })), "refused: Bad words"),
        (Reply::Error(400, json!({ "code": 1, "message": "Not now" })), "refused: Not now"),
        (Reply::Error(200, json!({})), "did not say why"),
        (Reply::Events(vec![]), "ended before the answer"),
        (
            Reply::Events(vec![json!({ "jsonrpc": "2.0", "id": 77_777, "result": {} })]),
            "ended before the answer",
        ),
        (Reply::Raw(200, "text/event-stream", event(json!(1))[..5].to_vec()), "ended before the answer"),
        (Reply::Flood("application/json", b"{".to_vec(), 32 * mib), "more than"),
        (Reply::Flood("text/event-stream", b"data: ".to_vec(), 32 * mib), "more than"),
        (Reply::Result(json!({})), "no result of a tool"),
        (Reply::Result(json!("text")), "no result of a tool"),
        (Reply::Result(json!({ "content": [], "resultType": "input_required" })), "more input"),
        (
            Reply::Result(json!({ "content": [{ "type": "text", "text": "broke" }], "isError": true })),
            "broke",
        ),
    ];
    for (reply, words) in cases {
        let shown = format!("{reply:?}").chars().take(200).collect::<String>();
        fake.play(move |asked| on_call(asked, || reply.clone()));
        let turn = echo(&world, &agent).await;
        assert!(turn.failed(0).contains(words), "{shown}: {}", turn.failed(0));
        assert!(world.answers()[0].contains(words), "the model is told: {shown}");
    }
    assert!(other.asked().is_empty(), "a redirect is not followed");
    // A long result is cut for the model, and whole in the trace.
    fake.play(|asked| on_call(asked, || Reply::Result(text(&"long ".repeat(20_000)))));
    let turn = echo(&world, &agent).await;
    assert_eq!((turn.call(0)["truncated"].as_bool(), world.answers()[0].chars().count()), (Some(true), 4000));
    assert!(turn.trace.matches("long ").count() >= 20_000);
    fake.play(|_| None);
    assert_eq!(echo(&world, &agent).await.call(0)["result"], "hi", "and it goes on");
    Some(())
}

async fn a_call_that_hangs_is_given_up_and_the_server_told(_: Backend) -> Option<()> {
    let fake = Fake::start(|asked| on_call(asked, || Reply::Hang)).await;
    let world = world(&fake).await;
    let agent = world.agent(json!([{ "mcp": "f" }]), json!([])).await;
    let turn = echo(&world, &agent).await;
    assert!(turn.failed(0).contains("did not answer within 2 s"), "{}", turn.failed(0));
    let call = fake.of("tools/call").pop().unwrap();
    until("the server hears of it", async || !fake.of("notifications/cancelled").is_empty()).await;
    assert_eq!(fake.of("notifications/cancelled")[0].body["params"]["requestId"], call.body["id"]);
    // A cancelled run lets go, too.
    world.plan(&[("f__echo", json!({ "text": "hi" }))]);
    let stream = world.begin(&agent).await;
    until("it is called", async || fake.of("tools/call").len() == 2).await;
    let cancelled =
        world.send(reqwest::Method::POST, &format!("/v1/runs/{}/cancel", stream.run()), None).await;
    assert_eq!(cancelled.status, 200);
    let turn = world.end(stream).await;
    assert_eq!(turn.run["status"], "cancelled");
    until("the server hears of that", async || fake.of("notifications/cancelled").len() == 2).await;
    Some(())
}

async fn a_lost_session_is_begun_anew(_: Backend) -> Option<()> {
    // Sessions are numbered, and only the newest is known.
    let (newest, polite) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicBool::new(true)));
    let (known, says_404) = (Arc::clone(&newest), Arc::clone(&polite));
    let fake = Fake::start(move |asked| {
        let session = asked.header("mcp-session-id").to_owned();
        if asked.method() == "initialize" {
            return Some(Reply::Session((known.fetch_add(1, Ordering::SeqCst) + 1).to_string()));
        }
        match session == known.load(Ordering::SeqCst).to_string() {
            true => None,
            false if says_404.load(Ordering::SeqCst) => Some(Reply::Raw(404, "text/plain", Vec::new())),
            // Some say it so.
            false => {
                Some(Reply::Error(400, json!({ "code": -32000, "message": "No valid session ID provided" })))
            }
        }
    });
    let fake = fake.await;
    let world = world(&fake).await;
    let agent = world.agent(json!([{ "mcp": "f" }]), json!([])).await;
    assert_eq!(echo(&world, &agent).await.call(0)["result"], "hi");
    for begun in 1..3 {
        assert_eq!(fake.of("initialize").len(), begun);
        // The server has started again, and knows nothing.
        newest.fetch_add(1, Ordering::SeqCst);
        assert_eq!(echo(&world, &agent).await.call(0)["result"], "hi");
        polite.store(false, Ordering::SeqCst);
    }
    let calls = fake.of("tools/call");
    assert!(calls.iter().all(|call| call.header("mcp-protocol-version") == "2025-11-25"));
    world.server.stop().await;
    let last = fake.asked().pop().unwrap();
    assert_eq!(last.http, reqwest::Method::DELETE, "the session is ended");
    Some(())
}

async fn the_stateless_era_is_spoken_where_it_is_asked_for(_: Backend) -> Option<()> {
    let fake = Fake::start(|asked| {
        let meta = &asked.body["params"]["_meta"];
        let version = "2026-07-28";
        let name = asked.body["params"]["name"].as_str().unwrap_or("");
        let same = asked.header("mcp-protocol-version") == version
            && meta["io.modelcontextprotocol/protocolVersion"] == version
            && meta["io.modelcontextprotocol/clientCapabilities"].is_object()
            && asked.header("mcp-method") == asked.method()
            && asked.header("mcp-name") == name
            && asked.header("mcp-session-id").is_empty();
        match asked.method() {
            "initialize" => {
                let data = json!({ "supported": [version], "requested": "2025-11-25" });
                Some(Reply::Error(400, json!({ "code": -32022, "message": "Unsupported", "data": data })))
            }
            _ if !same => Some(Reply::Error(400, json!({ "code": -32020, "message": "Header mismatch" }))),
            "server/discover" => {
                Some(Reply::Result(json!({ "resultType": "complete", "supportedVersions": [version] })))
            }
            "tools/call" => {
                let result =
                    json!({ "resultType": "complete", "content": [{ "type": "text", "text": "new" }] });
                Some(Reply::Result(result))
            }
            _ => None,
        }
    });
    let fake = fake.await;
    let world = world(&fake).await;
    let agent = world.agent(json!([{ "mcp": "f" }]), json!([])).await;
    let turn = echo(&world, &agent).await;
    assert_eq!(turn.call(0)["result"], "new", "{turn:?}");
    assert_eq!(fake.of("initialize").len(), 1);
    assert!(fake.of("notifications/initialized").is_empty());
    Some(())
}

async fn a_server_without_memory_gets_its_state_back(_: Backend) -> Option<()> {
    let stateless = |asked: &Asked, called: Value| match asked.method() {
        "initialize" => Some(Reply::Error(400, json!({ "code": -32022, "message": "Unsupported" }))),
        "server/discover" => Some(Reply::Result(json!({ "resultType": "complete" }))),
        "tools/call" => Some(Reply::Result(called)),
        _ => None,
    };
    let wants = |more: Value| {
        let mut result = json!({ "resultType": "input_required" });
        result.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        result
    };
    let fake = Fake::start(move |asked| {
        let next = match asked.body["params"]["requestState"].as_str() {
            None => wants(json!({ "requestState": "s1" })),
            Some("s1") => wants(json!({ "requestState": "s2", "inputRequests": {} })),
            _ => text("done"),
        };
        stateless(asked, next)
    });
    let fake = fake.await;
    let world = world(&fake).await;
    let agent = world.agent(json!([{ "mcp": "f" }]), json!([])).await;
    assert_eq!(echo(&world, &agent).await.call(0)["result"], "done");
    let calls = fake.of("tools/call");
    let params = |name: &str| calls.iter().map(|call| call.body["params"][name].clone()).collect::<Vec<_>>();
    assert_eq!(params("requestState"), [Value::Null, json!("s1"), json!("s2")]);
    assert_eq!(params("arguments"), vec![json!({ "text": "hi" }); 3]);
    // A person's word is not to be had, and the tool may do without.
    let ask = json!({ "method": "elicitation/create", "params": { "message": "Sure?" } });
    fake.play(move |asked| {
        let responses = &asked.body["params"]["inputResponses"];
        let asks = json!({ "a": ask, "b": ask });
        stateless(
            asked,
            match responses {
                Value::Null => wants(json!({ "inputRequests": asks, "requestState": "e" })),
                given => text(&format!("{given} {}", asked.body["params"]["requestState"])),
            },
        )
    });
    let declined = json!({ "a": { "action": "decline" }, "b": { "action": "decline" } });
    assert_eq!(echo(&world, &agent).await.call(0)["result"], format!("{declined} \"e\""));
    // Nobody goes on for ever, and what else is asked for is not there.
    let sampling = json!({ "a": { "method": "sampling/createMessage", "params": {} } });
    for (more, times) in
        [(json!({ "requestState": "s" }), 6), (json!({ "requestState": "s", "inputRequests": sampling }), 1)]
    {
        let before = fake.of("tools/call").len();
        fake.play(move |asked| stateless(asked, wants(more.clone())));
        let turn = echo(&world, &agent).await;
        assert!(turn.failed(0).contains("more input"), "{}", turn.failed(0));
        assert_eq!(fake.of("tools/call").len() - before, times);
    }
    Some(())
}

async fn a_list_that_changes_is_offered_anew(_: Backend) -> Option<()> {
    let fake = Fake::start(|asked| {
        on_call(asked, || {
            let changed = json!({ "jsonrpc": "2.0", "method": "notifications/tools/list_changed" });
            let answer = json!({ "jsonrpc": "2.0", "id": asked.body["id"], "result": text("done") });
            Reply::Events(vec![changed, answer])
        })
    });
    let fake = fake.await;
    let world = world(&fake).await;
    let agent = world.agent(json!([{ "mcp": "f" }]), json!([])).await;
    world.turn(&agent, &[("f__echo", json!({}))]).await;
    assert_eq!(world.offered(), ["f__echo"]);
    let listed = fake.of("tools/list").len();
    fake.play(|asked| {
        let tools = json!({ "tools": [tool("other")] });
        (asked.method() == "tools/list").then_some(Reply::Result(tools))
    });
    // A call of what is no more is told of.
    let turn = world.turn(&agent, &[("f__echo", json!({}))]).await;
    assert!(turn.failed(0).contains("no tool \"f__echo\"; there are: f__other"), "{}", turn.failed(0));
    assert_eq!(fake.of("tools/list").len(), listed + 1);
    // Until it says so again the list is believed for a while.
    world.turn(&agent, &[]).await;
    assert_eq!(world.offered(), ["f__other"]);
    assert_eq!(fake.of("tools/list").len(), listed + 1);
    Some(())
}

async fn lists_have_pages_and_odd_tools_get_safe_names(_: Backend) -> Option<()> {
    let fake = Fake::start(|asked| {
        let page = match (asked.method(), asked.body["params"]["cursor"].as_str()) {
            ("tools/list", None) => json!({ "tools": [tool("one"), { "name": "" }, 7], "nextCursor": "2" }),
            ("tools/list", Some("2")) => {
                json!({ "tools": [tool("a.b"), tool("a/b"), tool(&"x".repeat(90))], "nextCursor": "3" })
            }
            ("tools/list", Some(_)) => json!({ "tools": [tool("last")] }),
            ("tools/call", _) => text(asked.body["params"]["name"].as_str().unwrap()),
            _ => return None,
        };
        Some(Reply::Result(page))
    });
    let fake = fake.await;
    let world = world(&fake).await;
    let agent = world.agent(json!([{ "mcp": "f" }, { "mcp": "f", "allow": ["one"] }]), json!([])).await;
    world.turn(&agent, &[]).await;
    let offered = world.offered();
    let fit = |name: &String| {
        name.len() <= 64 && name.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'_' || b == b'-')
    };
    assert!(offered.len() == 5 && offered.iter().all(fit), "{offered:?}");
    let calls: Vec<(&str, Value)> = offered.iter().map(|name| (name.as_str(), json!({}))).collect();
    let turn = world.turn(&agent, &calls).await;
    let given: Vec<&str> = (0..5).map(|at| turn.call(at)["result"].as_str().unwrap()).collect();
    assert_eq!(given, ["one", "a.b", "a/b", &"x".repeat(90), "last"], "each is its own");
    // By either name, and nothing else.
    let agent = world.agent(json!([{ "mcp": "f", "allow": ["last", offered[1]] }]), json!([])).await;
    world.turn(&agent, &[]).await;
    assert_eq!(world.offered(), [offered[1].as_str(), "f__last"]);
    // A model that leaves out whose tool it is means the only one of that name.
    let turn = world.turn(&agent, &[("last", json!({})), ("one", json!({}))]).await;
    assert_eq!((&turn.call(0)["name"], &turn.call(0)["result"]), (&json!("f__last"), &json!("last")));
    assert!(turn.failed(1).starts_with("there is no tool \"one\""), "{turn:?}");
    let agent = world.agent(json!([{ "mcp": "f" }]), json!(["last"])).await;
    world.plan(&[("last", json!({}))]);
    let mut stream = world.begin(&agent).await;
    let run = stream.run();
    let asked = loop {
        let frame = stream.next().await.unwrap();
        if frame.event == "approval" {
            break frame.data;
        }
    };
    let no = json!({ "id": asked["id"], "approve": false });
    world.send(reqwest::Method::POST, &format!("/v1/runs/{run}/approvals"), Some(&no)).await;
    assert_eq!(world.end(stream).await.failed(0), domain::approval::denial(None));
    // A list without an end is not followed for ever.
    fake.play(|asked| {
        let page = json!({ "tools": vec![tool("t"); 100], "nextCursor": "again" });
        (asked.method() == "tools/list").then_some(Reply::Result(page))
    });
    Some(())
}

async fn a_server_that_is_down_leaves_the_run_alone(_: Backend) -> Option<()> {
    let fake = Fake::start(|_| None).await;
    let (up, gone) = (fake.url(), std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap());
    let world = World::start(Backend::Sqlite, |config| {
        config.mcp.insert("up".into(), http(&up));
        config.mcp.insert("gone".into(), http(&format!("http://{gone}/mcp?key=canary-in-url")));
    });
    let world = world.await?;
    let tools =
        json!(["list_files", { "mcp": "up" }, { "mcp": "gone" }, { "mcp": "never" }, { "composio": "mail" }]);
    let agent = world.agent(tools, json!([])).await;
    let turn = world.turn(&agent, &[("gone__echo", json!({})), ("up__echo", json!({ "text": 1 }))]).await;
    assert_eq!(world.offered(), ["list_files", "up__echo"]);
    assert!(turn.failed(0).contains("no tool \"gone__echo\""));
    assert!(turn.failed(1).contains("text must be string"), "arguments are checked: {}", turn.failed(1));
    for note in
        ["tool server gone: ", "cannot be reached", "no tool server \\\"never\\\"", "COMPOSIO_API_KEY"]
    {
        assert!(turn.trace.contains(note), "{note}: {}", turn.trace);
    }
    assert!(!turn.trace.contains("canary-in-url"));
    let listed = world.get("/v1/tools").await.body;
    let names = listed["data"].as_array().unwrap().iter().map(|tool| tool["name"].as_str().unwrap());
    let names: Vec<&str> = names.collect();
    assert!(names.contains(&"up__echo") && names.contains(&"read_file"), "{names:?}");
    Some(())
}

async fn answers_come_as_events_beside_pings_and_notes(_: Backend) -> Option<()> {
    let fake = Fake::start(|asked| {
        on_call(asked, || {
            let ping = json!({ "jsonrpc": "2.0", "id": "p-1", "method": "ping" });
            let roots = json!({ "jsonrpc": "2.0", "id": 5, "method": "roots/list" });
            let progress = json!({ "jsonrpc": "2.0", "method": "notifications/progress", "params": {} });
            let answer = json!({ "jsonrpc": "2.0", "id": asked.body["id"], "result": text("streamed") });
            Reply::Events(vec![ping, roots, progress, answer])
        })
    });
    let fake = fake.await;
    let world = world(&fake).await;
    let agent = world.agent(json!([{ "mcp": "f" }]), json!([])).await;
    assert_eq!(echo(&world, &agent).await.call(0)["result"], "streamed");
    let replies = |id: Value| {
        fake.asked().into_iter().filter(move |asked| asked.body["id"] == id && asked.method() == "")
    };
    until("both are answered", async || replies(json!("p-1")).count() + replies(json!(5)).count() == 2).await;
    assert_eq!(replies(json!("p-1")).next().unwrap().body["result"], json!({}));
    assert_eq!(replies(json!(5)).next().unwrap().body["error"]["code"], -32601);
    Some(())
}

async fn a_flood_of_questions_is_not_answered_by_a_flood(_: Backend) -> Option<()> {
    let fake = Fake::start(|asked| match asked.method() {
        // Our answers to its questions.
        "" if !asked.body["id"].is_null() => Some(Reply::Hang),
        "tools/call" => {
            let ping = |n: usize| json!({ "jsonrpc": "2.0", "id": format!("p-{n}"), "method": "ping" });
            let answer = json!({ "jsonrpc": "2.0", "id": asked.body["id"], "result": text("streamed") });
            Some(Reply::Events((0..1000).map(ping).chain([answer]).collect()))
        }
        _ => None,
    });
    let fake = fake.await;
    let world = world(&fake).await;
    let agent = world.agent(json!([{ "mcp": "f" }]), json!([])).await;
    assert_eq!(echo(&world, &agent).await.call(0)["result"], "streamed");
    let replies = || fake.of("").iter().filter(|asked| !asked.body["id"].is_null()).count();
    until("some are answered", async || replies() == 8).await;
    // Another call takes longer than those that the first one would have begun.
    assert_eq!(echo(&world, &agent).await.call(0)["result"], "streamed");
    assert_eq!(replies(), 8);
    Some(())
}
