//! Programs as tool servers: they end with the server, with what they have started; one that dies or hangs is started
//! again; and what they say reaches no log with a secret in it.

use std::path::Path;

use serde_json::json;
use testkit::process::{ServerProcess, command};
use testkit::server::Backend;

use crate::published::installed;
use crate::world::{World, program, tell, until};

const RUDE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/tools/rude.mjs");

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_program_that_dies_hangs_or_floods_is_started_again() {
    tell(Backend::Sqlite, dies_hangs_or_floods).await;
}

fn is_gone(pid: &str) -> bool {
    // One that has ended but was not waited for is gone as well.
    let state = std::fs::read_to_string(format!("/proc/{pid}/stat"));
    state.is_err()
        || state.is_ok_and(|state| state.rsplit(')').next().is_some_and(|rest| rest.starts_with(" Z")))
}

async fn dies_hangs_or_floods(backend: Backend) -> Option<()> {
    installed("mcp-server-everything")?;
    let world = World::start(backend, |config| {
        config.limits.tool_timeout_seconds = 2;
        config.mcp.insert("r".into(), program("node", &[RUDE, "plain"]));
        config.mcp.insert("none".into(), program("/does/not/exist", &[]));
        config.mcp.insert("dead".into(), program("node", &[RUDE, "dies-at-once"]));
    });
    let world = world.await?;
    let agent = world.agent(json!([{ "mcp": "r" }, { "mcp": "none" }, { "mcp": "dead" }]), json!([])).await;
    let pid = async || {
        let turn = world.turn(&agent, &[("r__echo", json!({}))]).await;
        turn.call(0)["result"].as_str().unwrap_or_else(|| panic!("{turn:?}")).to_owned()
    };
    let first = pid().await;
    assert_eq!(pid().await, first, "it is kept");
    let turn = world.turn(&agent, &[("r__garbage", json!({}))]).await;
    assert_eq!(turn.call(0)["result"], "after garbage");
    assert!(turn.trace.contains("/does/not/exist cannot be started"), "{}", turn.trace);
    assert!(turn.trace.contains("tool server dead: "), "{}", turn.trace);
    // A call that is merely late does not cost the process its life.
    let turn = world.turn(&agent, &[("r__late", json!({})), ("r__echo", json!({ "text": "beside" }))]).await;
    assert!(turn.failed(0).contains("did not answer within 2 s"));
    assert_eq!(turn.call(1)["result"], "beside");
    assert_eq!(pid().await, first);
    for (tool, words) in
        [("r__die", "ended before it had answered"), ("r__flood", "ended before it had answered")]
    {
        let before = pid().await;
        let turn = world.turn(&agent, &[(tool, json!({}))]).await;
        assert!(turn.failed(0).contains(words), "{tool}: {}", turn.failed(0));
        until("it is gone", async || is_gone(&before)).await;
        assert_ne!(pid().await, before, "{tool}: another one is started");
    }
    let before = pid().await;
    let turn = world.turn(&agent, &[("r__hang", json!({}))]).await;
    assert!(turn.failed(0).contains("did not answer within 2 s"));
    until("it is ended, as it shows no sign of life", async || is_gone(&before)).await;
    assert_ne!(pid().await, before);
    Some(())
}

/// The whole binary, its configuration file, its logs and its end.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn programs_end_with_the_server_and_their_secrets_are_in_no_log() {
    if installed("mcp-server-everything").is_none() {
        return;
    }
    let data = tempfile::tempdir().unwrap();
    let file = data.path().join("config.toml");
    let table = |name: &str, how: &str| {
        format!(
            "[mcp.{name}]\ncommand = \"node\"\nargs = [{RUDE:?}, {how:?}, \"canary-argument\"]\nenv = [\"RUDE_CANARY\"]\n"
        )
    };
    std::fs::write(&file, table("breeder", "breeds") + &table("dead", "dies-at-once")).unwrap();
    let binary = Path::new(env!("CARGO_BIN_EXE_threadkeep"));
    let config = file.to_str().unwrap();
    let provider = testkit::sandbox::ScriptedSandbox::start(Vec::new()).await.unwrap();
    let env = [
        ("THREADKEEP_CONFIG", config),
        ("RUDE_CANARY", "canary-environment"),
        ("RUST_LOG", "debug"),
        ("OPENAI_API_KEY", "sk-canary"),
        ("OPENAI_BASE_URL", &provider.url()),
    ];
    let mut server = ServerProcess::start(binary, &env, data.path()).await.unwrap();
    let key = std::fs::read_to_string(data.path().join("local.key")).unwrap();
    let client = reqwest::Client::builder().no_proxy().build().unwrap();
    let get = async |path: &str| {
        let asked =
            client.get(format!("{}{path}", server.url())).bearer_auth(key.trim()).send().await.unwrap();
        asked.json::<serde_json::Value>().await.unwrap()
    };
    let servers = get("/v1/tool-servers").await;
    let names = |list: &serde_json::Value| {
        list["data"]
            .as_array()
            .unwrap()
            .iter()
            .map(|one| one["name"].as_str().unwrap().to_owned())
            .collect::<Vec<_>>()
    };
    assert_eq!(names(&servers), ["breeder", "dead"]);
    assert_eq!(servers["data"][0]["source"], "operator");
    assert!(names(&get("/v1/tools").await).contains(&"breeder__pids".to_owned()));
    // Its own pid, and that of the child which would outlive it.
    until("its child is known", async || server.output().contains("child ")).await;
    let output = server.output();
    let child = output.split("child ").nth(1).unwrap();
    let child: String = child.chars().take_while(char::is_ascii_digit).collect();
    assert!(!is_gone(&child));
    until("the death of the other is told", async || server.output().contains("the tool server has ended"))
        .await;
    assert!(server.terminate().await.unwrap().success());
    until("the child of the tool server is gone", async || is_gone(&child)).await;
    let output = server.output();
    assert!(output.contains("started with **** and ****"), "{output}");
    for canary in ["canary-argument", "canary-environment", "sk-canary"] {
        assert!(!output.contains(canary), "{canary}: {output}");
    }
    // Each is told of by the check, and ends with it.
    let doctor = command(binary, &env, data.path()).arg("doctor").output().await.unwrap();
    let said = String::from_utf8_lossy(&doctor.stdout);
    assert!(said.contains("ok   tool server breeder: 7 tools"), "{said}");
    assert!(said.contains("FAIL tool server dead: the tool server"), "{said}");
}
