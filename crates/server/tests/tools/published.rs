//! The published MCP servers, as programs and over HTTP, called by a model in whole turns.

use std::io::Write as _;
use std::process::Stdio;

use domain::secret::Secret;
use reqwest::Method;
use serde_json::{Value, json};
use server::config::McpServer;
use testkit::server::Backend;
use tokio::io::{AsyncBufReadExt as _, BufReader};
use tokio::process::{Child, Command};

use crate::world::{World, http, program, stories, tell, until};

stories!(a_tool_that_needs_a_person_waits_and_is_made_as_it_was_shown);

macro_rules! alone {
    ($($name:ident),+ $(,)?) => {
        $(mod $name {
            #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
            async fn works() {
                super::tell(testkit::server::Backend::Sqlite, super::$name).await;
            }
        })+
    };
}

alone!(everything_as_a_program, everything_over_http);

/// A program that `scripts/setup test` has installed; `None`, said aloud, where it has not (which fails in CI).
pub fn installed(name: &str) -> Option<String> {
    let cache = std::env::var_os("XDG_CACHE_HOME").filter(|folder| !folder.is_empty());
    let cache = cache.map(std::path::PathBuf::from);
    let cache = cache.or_else(|| Some(std::path::PathBuf::from(std::env::var_os("HOME")?).join(".cache")))?;
    let path = cache.join("threadkeep-test/mcp/node_modules/.bin").join(name);
    if path.exists() {
        return Some(path.to_str()?.to_owned());
    }
    assert!(std::env::var_os("CI").is_none(), "{name} is not installed: run scripts/setup test");
    // Straight to stderr: what `eprintln!` writes is hidden for tests that pass.
    let _ = writeln!(std::io::stderr(), "SKIPPED: {name} is not installed; run scripts/setup test");
    None
}

async fn everything_as_a_program(backend: Backend) -> Option<()> {
    let command = installed("mcp-server-everything")?;
    let world = World::start(backend, |config| {
        // HOSTNAME or the like would do; this one is always there.
        let env = vec!["CARGO_MANIFEST_DIR".to_owned()];
        let server = McpServer::Stdio { command, args: vec![Secret::new("stdio")], env };
        config.mcp.insert("everything".into(), server);
    });
    let world = world.await?;
    let agent = world.agent(json!([{ "mcp": "everything" }]), json!([])).await;
    let calls = [
        ("everything__echo", json!({ "message": "Grüße" })),
        ("everything__get-sum", json!({ "a": 2, "b": 40 })),
        ("everything__get-tiny-image", json!({})),
        ("everything__get-structured-content", json!({ "location": "Chicago" })),
        ("everything__get-env", json!({})),
        ("everything__echo", json!({ "message": 7 })),
        ("everything__get-structured-content", json!({ "location": "Paris" })),
    ];
    let turn = world.turn(&agent, &calls).await;
    let text =
        |at: usize| turn.call(at)["result"].as_str().unwrap_or_else(|| panic!("{at}: {turn:?}")).to_owned();
    assert!(text(0).contains("Grüße"));
    assert!(text(1).contains("42"), "{}", text(1));
    assert!(text(2).contains("[image image/png, ") && text(2).contains("not shown"), "{}", text(2));
    assert!(turn.call(3)["result"]["temperature"].is_number(), "structured as it is: {}", turn.call(3));
    // Its environment is ours only as far as that is named.
    let env: Value = serde_json::from_str(&text(4)).unwrap();
    let names: Vec<&String> = env.as_object().unwrap().keys().collect();
    assert!(env["PATH"].is_string() && env["CARGO_MANIFEST_DIR"].is_string(), "{names:?}");
    assert!(env.get("CARGO_PKG_NAME").is_none() && std::env::var_os("CARGO_PKG_NAME").is_some(), "{names:?}");
    assert!(turn.failed(5).contains("message must be string"), "{}", turn.failed(5));
    assert!(turn.failed(6).contains("must be one of"), "{}", turn.failed(6));
    let tools = world.get("/v1/tools").await.body;
    assert_eq!(tools["next"], Value::Null);
    let named =
        |name: &str| tools["data"].as_array().unwrap().iter().find(|tool| tool["name"] == name).cloned();
    let echo = named("everything__echo").unwrap();
    assert_eq!((&echo["server"], &echo["read_only"]), (&json!("everything"), &json!(true)), "{echo}");
    assert_eq!(named("everything__gzip-file-as-resource").unwrap()["read_only"], false);
    assert_eq!(named("list_files").unwrap()["server"], Value::Null);
    let agent = world.agent(json!([{ "mcp": "everything", "allow": ["echo", "get-sum"] }]), json!([])).await;
    world.turn(&agent, &[]).await;
    assert_eq!(world.offered(), ["everything__echo", "everything__get-sum"]);
    Some(())
}

/// The file server, with a folder that it may write to.
async fn a_tool_that_needs_a_person_waits_and_is_made_as_it_was_shown(backend: Backend) -> Option<()> {
    let command = installed("mcp-server-filesystem")?;
    let folder = tempfile::tempdir().unwrap();
    let root = folder.path().canonicalize().unwrap();
    let world = World::start(backend, |config| {
        config.mcp.insert("files".into(), program(&command, &[root.to_str().unwrap()]));
    });
    let world = world.await?;
    // By the server's name for it or by the models'.
    for (n, approval) in ["write_file", "files__write_file"].into_iter().enumerate() {
        let agent = world.agent(json!([{ "mcp": "files" }]), json!([approval])).await;
        let path = root.join(format!("note-{n}.txt"));
        let write = json!({ "path": path, "content": "kept" });
        let outside = json!({ "path": "/etc/hostname" });
        world.plan(&[("files__write_file", write.clone()), ("files__read_text_file", outside)]);
        let mut stream = world.begin(&agent).await;
        let run = stream.run();
        let asked = loop {
            let frame = stream.next().await.unwrap();
            if frame.event == "approval" {
                break frame.data;
            }
        };
        assert_eq!((&asked["call"]["name"], &asked["call"]["args"]), (&json!("files__write_file"), &write));
        assert!(!path.exists(), "nothing is done before a person agrees");
        let decision = json!({ "id": asked["id"], "approve": true });
        let decided = world.send(Method::POST, &format!("/v1/runs/{run}/approvals"), Some(&decision)).await;
        assert!((200..300).contains(&decided.status), "{}", decided.text);
        let turn = world.end(stream).await;
        assert_eq!(turn.run["status"], "succeeded", "{turn:?}");
        assert_eq!(std::fs::read_to_string(&path).unwrap(), "kept");
        assert!(turn.failed(1).to_lowercase().contains("denied"), "{}", turn.failed(1));
        let read = world.turn(&agent, &[("files__read_text_file", json!({ "path": path }))]).await;
        assert!(read.call(0)["result"].to_string().contains("kept"), "{read:?}");
    }
    Some(())
}

/// The server over HTTP, on a port of its own; it ends when dropped.
async fn serve(port: u16) -> Option<Child> {
    let mut command = Command::new(installed("mcp-server-everything")?);
    command.arg("streamableHttp").env("PORT", port.to_string()).kill_on_drop(true);
    let mut child = command.stdout(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap();
    let mut said = BufReader::new(child.stderr.take().unwrap()).lines();
    until("it listens", async || {
        let _ = tokio::time::timeout(std::time::Duration::from_millis(50), said.next_line()).await;
        tokio::net::TcpStream::connect(("127.0.0.1", port)).await.is_ok()
    })
    .await;
    // Read on, or it would block on what it says.
    #[expect(clippy::disallowed_methods, reason = "the task ends with the process")]
    tokio::spawn(async move { while let Ok(Some(_)) = said.next_line().await {} });
    Some(child)
}

async fn everything_over_http(backend: Backend) -> Option<()> {
    let port = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    let mut child = serve(port).await?;
    let url = format!("http://127.0.0.1:{port}/mcp");
    let world = World::start(backend, |config| {
        config.tool_networks = vec!["loopback".into()];
        config.mcp.insert("mine".into(), http(&url));
    });
    let world = world.await?;
    let added = world.add(&json!({ "name": "theirs", "url": url })).await;
    assert_eq!(added.status, 201, "{}", added.text);
    let agent = world.agent(json!([{ "mcp": "mine" }, { "mcp": "theirs" }]), json!([])).await;
    let calls = [
        ("mine__echo", json!({ "message": "one" })),
        ("theirs__get-sum", json!({ "a": 1, "b": 1 })),
        ("theirs__trigger-long-running-operation", json!({ "duration": 1, "steps": 2 })),
    ];
    for _ in 0..2 {
        let turn = world.turn(&agent, &calls).await;
        assert!(turn.call(0)["result"].to_string().contains("one"), "{turn:?}");
        assert!(turn.call(1)["result"].to_string().contains('2'), "{turn:?}");
        assert!(turn.call(2)["result"].to_string().contains("completed"), "{turn:?}");
        // It starts again, and has forgotten every session.
        child.kill().await.unwrap();
        child = serve(port).await?;
    }
    // It dies in the middle of a call.
    world.plan(&[("mine__trigger-long-running-operation", json!({ "duration": 60, "steps": 60 }))]);
    let mut stream = world.begin(&agent).await;
    while stream.next().await.unwrap().event != "tool_calls" {}
    tokio::time::sleep(std::time::Duration::from_millis(500)).await;
    child.kill().await.unwrap();
    let turn = world.end(stream).await;
    assert_eq!(turn.run["status"], "succeeded");
    assert!(turn.failed(0).contains("tool server"), "{}", turn.failed(0));
    Some(())
}
