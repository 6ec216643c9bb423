//! The built-in sandbox beside the server: there without any setting, back when it dies, gone with the server.

use std::time::Duration;

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use reqwest::Method;
use serde_json::json;
use testkit::process::ServerProcess;

use crate::house::{House, stop_well};

/// Every process with its parent.
pub fn processes() -> Vec<(u32, u32)> {
    let entries = std::fs::read_dir("/proc").expect("/proc").filter_map(Result::ok);
    let pids = entries.filter_map(|entry| entry.file_name().to_str()?.parse::<u32>().ok());
    let known = pids.filter_map(|pid| {
        let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
        Some((pid, stat.rsplit_once(") ")?.1.split(' ').nth(1)?.parse().ok()?))
    });
    known.collect()
}

/// The server's child that is a sandbox, if it is there.
fn child(server: &ServerProcess) -> Option<u32> {
    let own = server.pid()?;
    let children = processes().into_iter().filter(|(_, parent)| *parent == own).map(|(pid, _)| pid);
    children.into_iter().find(|pid| {
        let line = std::fs::read_to_string(format!("/proc/{pid}/cmdline")).unwrap_or_default();
        line.contains("sandbox\0")
    })
}

fn alive(pid: u32) -> bool {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    !stat.is_empty() && !stat.contains(") Z ")
}

pub async fn until<T>(what: &str, found: impl FnMut() -> Option<T>) -> T {
    until_for(Duration::from_secs(10), what, found).await
}

pub async fn until_for<T>(patience: Duration, what: &str, mut found: impl FnMut() -> Option<T>) -> T {
    let looking = async {
        loop {
            if let Some(found) = found() {
                return found;
            }
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    };
    let found = tokio::time::timeout(patience, looking).await;
    found.unwrap_or_else(|_| panic!("never came true: {what}"))
}

/// A turn in agent mode to its end.
pub async fn turn(house: &House, server: &ServerProcess, message: &str) -> String {
    let body = json!({ "message": message, "mode": "agent" });
    let answer = house.caller(server).send(Method::POST, "/v1/turns?wire=ndjson", Some(&body)).await;
    let answer = answer.expect("an answer");
    assert_eq!(answer.status, 200);
    answer.text
}

#[tokio::test]
async fn an_agent_turn_reaches_the_built_in_sandbox_without_any_setting() {
    let house = House::sqlite();
    let mut server = house.serve_with(&[("OPENAI_API_KEY", "sk-canary"), ("OPENAI_BASE_URL", "")]).await;
    let text = turn(&house, &server, "run echo $((6 * 7))").await;
    assert!(!text.contains("sandbox_unreachable") && !text.contains("sandbox_isolation"), "{text}");
    let pid = until("the sandbox is there", || child(&server)).await;
    let environment = std::fs::read_to_string(format!("/proc/{pid}/environ")).expect("its environment");
    assert!(!environment.contains("canary"), "the server's keys are not its own: {environment}");
    assert_eq!(server.stdout().lines().count(), 1, "one line is for people: {}", server.stdout());
    // It dies, and is back on the same address.
    kill(Pid::from_raw(i32::try_from(pid).expect("a pid")), Signal::SIGKILL).expect("a signal");
    let next = until("another one is there", || child(&server).filter(|other| *other != pid)).await;
    let text = turn(&house, &server, "run true").await;
    assert!(!text.contains("sandbox_unreachable"), "{text}");
    stop_well(&mut server, Signal::SIGTERM).await;
    until("it is gone with the server", || (!alive(next)).then_some(())).await;
}

/// Whatever runs for the server of this data folder: its rooms name the folder that they must not see.
fn rooms(house: &House) -> Vec<u32> {
    let folder = house.data().to_string_lossy().into_owned();
    let entries = std::fs::read_dir("/proc").expect("/proc").filter_map(Result::ok);
    let pids = entries.filter_map(|entry| entry.file_name().to_str()?.parse::<u32>().ok());
    pids.filter(|pid| {
        let line = std::fs::read_to_string(format!("/proc/{pid}/cmdline")).unwrap_or_default();
        line.contains("sandbox-child") && line.contains(&folder) && alive(*pid)
    })
    .collect()
}

#[tokio::test]
async fn a_killed_server_leaves_no_sandbox() {
    let house = House::sqlite();
    // At any moment of its start, while it looks which rooms can be made here.
    for moment in 0..40 {
        let mut server = house.serve().await;
        let pid = until("the sandbox is there", || child(&server)).await;
        tokio::time::sleep(Duration::from_millis(moment * 2)).await;
        server.kill9().await.expect("an end");
        until("it is gone", || (!alive(pid)).then_some(())).await;
        until("its rooms are gone", || rooms(&house).is_empty().then_some(())).await;
    }
}

#[tokio::test]
async fn what_an_agent_made_is_there_in_its_next_turn() {
    let house = House::sqlite();
    let server = house.serve().await;
    let caller = house.caller(&server);
    let made = turn(&house, &server, "write hello.txt: Hello from the agent").await;
    assert!(made.contains("\"type\":\"file\"") && made.contains("hello.txt"), "{made}");
    let list: serde_json::Value =
        serde_json::from_str(&caller.get("/v1/chat-conversations").await.text).expect("a list");
    let chat = list["data"][0]["id"].as_str().expect("a conversation");
    let body = json!({ "conversation": chat, "message": "read hello.txt", "mode": "agent" });
    let read = caller.send(Method::POST, "/v1/turns?wire=ndjson", Some(&body)).await.expect("an answer");
    assert!(read.text.contains("Hello from the agent"), "{}", read.text);
    let files = caller.get(&format!("/v1/chat-conversations/{chat}/files")).await.text;
    assert_eq!(
        (files.matches("\"id\"").count(), files.contains("\"source\":\"sandbox\"")),
        (1, true),
        "{files}"
    );
}

#[tokio::test]
async fn a_file_named_like_the_folder_for_files_hinders_no_turn() {
    let house = House::sqlite();
    let server = house.serve().await;
    let caller = house.caller(&server);
    let made = turn(&house, &server, "write assets: Hello").await;
    assert!(made.contains("\"type\":\"file\"") && made.contains("\"_assets\""), "{made}");
    let list: serde_json::Value =
        serde_json::from_str(&caller.get("/v1/chat-conversations").await.text).expect("a list");
    let body = json!({ "conversation": list["data"][0]["id"], "message": "read _assets", "mode": "agent" });
    let read = caller.send(Method::POST, "/v1/turns?wire=ndjson", Some(&body)).await.expect("an answer");
    assert!(read.text.contains("The file says:\\n\\nHello"), "{}", read.text);
}

#[tokio::test]
async fn the_demo_model_searches_pages_and_tables_in_a_sandbox_too() {
    let house = House::sqlite();
    let server = house.serve().await;
    let page = json!({ "title": "Whales", "body": "The blue whale is the largest.", "url": "https://example.com/whales" });
    house.caller(&server).send(Method::POST, "/v1/pages", Some(&page)).await.expect("a page");
    for mode in ["agent", "task_flow"] {
        let body = json!({ "message": "search blue whale", "mode": mode });
        let answer = house.caller(&server).send(Method::POST, "/v1/turns?wire=ndjson", Some(&body)).await;
        let text = answer.expect("an answer").text;
        let result = text.lines().find(|line| line.contains("\"type\":\"result\"")).expect("a result");
        for said in ["In the pages I found", "Whales (https://example.com/whales)", "No row of a table"] {
            assert!(result.contains(said), "{mode}: {result}");
        }
    }
}

#[tokio::test]
async fn a_remote_sandbox_takes_its_place() {
    let house = House::sqlite();
    let server = house.serve_with(&[("SANDBOX_URL", "http://127.0.0.1:9")]).await;
    let text = turn(&house, &server, "hello").await;
    assert!(text.contains("sandbox_unreachable"), "{text}");
    assert_eq!(child(&server), None);
}

#[tokio::test]
async fn the_sandbox_alone_says_what_is_missing() {
    let house = House::sqlite();
    let ran = house.run(&["sandbox", "--address", "0.0.0.0:0"], &[]).await;
    assert_eq!(ran.code, Some(1));
    assert!(ran.stderr.contains("SANDBOX_TOKEN"), "{ran:?}");
    let ran = house.run(&["doctor"], &[]).await;
    assert!(
        ran.stdout.contains("ok   sandbox: ") && ran.stdout.contains("namespaces, landlock, seccomp"),
        "{ran:?}"
    );
}
