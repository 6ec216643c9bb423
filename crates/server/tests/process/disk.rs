//! A full disk and one that cannot be written (G18): writes fail whole, reads go on, and writes come back by
//! themselves. Needs a file system of its own, so it is skipped, aloud, where none may be mounted.

use std::fs::{self, File};
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use nix::sys::signal::Signal;
use rustix::process::{Pid, Resource, Rlimit, prlimit};
use serde_json::json;
use tempfile::TempDir;
use testkit::process::ServerProcess;
use testkit::sandbox::{Action, Release, ScriptedSandbox};

use crate::house::{BINARY, CONVERSATIONS, Caller, House, stop_well};

/// A small file system in memory, unmounted with the value.
struct SmallDisk(TempDir);

impl SmallDisk {
    fn mount(options: &str) -> Option<Self> {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let mut command = Command::new("mount");
        let tried = command.args(["-t", "tmpfs", "-o", options, "tmpfs"]).arg(folder.path()).output();
        match tried {
            Ok(output) if output.status.success() => Some(Self(folder)),
            tried => {
                let test = std::thread::current().name().unwrap_or("a test").to_owned();
                let _ = writeln!(std::io::stderr(), "SKIPPED: {test} (a tmpfs cannot be mounted: {tried:?})");
                None
            }
        }
    }

    fn path(&self) -> &Path {
        self.0.path()
    }

    /// Takes every byte that is left.
    fn fill(&self) -> PathBuf {
        let path = self.path().join("ballast");
        let mut file = File::create(&path).expect("a file");
        while file.write_all(&[7; 4096]).is_ok() {}
        while file.write_all(&[7]).is_ok() {}
        path
    }
}

impl Drop for SmallDisk {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg("--lazy").arg(self.path()).output();
    }
}

async fn titles(caller: &Caller) -> Vec<String> {
    let answer = caller.get(&format!("{CONVERSATIONS}?page[size]=100")).await;
    assert_eq!(answer.status, 200, "reads go on: {}", answer.text);
    let rows = answer.body["data"].as_array().expect("a list").iter();
    let mut titles: Vec<String> =
        rows.map(|row| row["attributes"]["title"].as_str().expect("a title").to_owned()).collect();
    titles.sort();
    titles
}

/// Writes until one is refused; answers the titles that were acknowledged, and the refusal.
async fn write_until_full(caller: &Caller, prefix: &str) -> (Vec<String>, testkit::server::Answer) {
    let mut kept = Vec::new();
    for n in 0..60 {
        let title = format!("{prefix}{n:03}");
        let padding = "x".repeat(100_000);
        let answer = caller.create(json!({ "title": title, "context": { "padding": padding } })).await;
        if answer.status != 201 {
            return (kept, answer);
        }
        kept.push(title);
    }
    panic!("the disk takes 6 MB more");
}

#[tokio::test]
async fn a_full_disk_refuses_writes_whole_and_recovers() {
    let Some(disk) = SmallDisk::mount("size=8m") else { return };
    let house = House::sqlite();
    let data = disk.path().join("data");
    let env = [("THREADKEEP_DATA", data.to_str().expect("a path"))];
    let mut server: ServerProcess = house.serve_with(&env).await;
    let key = fs::read_to_string(data.join("local.key")).expect("local.key");
    let caller = Caller::new(server.url(), key.trim());
    let mut kept = Vec::new();
    for round in ["a", "b", "c"] {
        let title = format!("{round} before");
        assert_eq!(
            caller.create(json!({ "title": title })).await.status,
            201,
            "there is space: {}",
            server.output()
        );
        kept.push(title);
        let ballast = disk.fill();
        let (more, refusal) = write_until_full(&caller, round).await;
        kept.extend(more);
        assert_eq!(refusal.status, 503, "{}", refusal.text);
        assert_eq!(refusal.body["errors"][0]["code"], "unavailable", "{}", refusal.text);
        assert!(!refusal.header("retry-after").is_empty(), "{:?}", refusal.headers);
        kept.sort();
        assert_eq!(titles(&caller).await, kept, "nothing of the refused write is there");
        assert_eq!(caller.get("/healthz").await.status, 200);
        fs::remove_file(ballast).expect("removed");
    }
    assert_eq!(caller.create(json!({ "title": "after" })).await.status, 201, "{}", server.output());
    kept.insert(0, "after".into());
    kept.sort();
    assert_eq!(titles(&caller).await, kept);

    // Killed on a full disk, it starts on a full disk and still has everything.
    let ballast = disk.fill();
    server.kill9().await.expect("killed");
    let mut server = house.serve_with(&env).await;
    let caller = Caller::new(server.url(), key.trim());
    assert_eq!(titles(&caller).await, kept);
    fs::remove_file(ballast).expect("removed");
    assert_eq!(caller.create(json!({ "title": "z last" })).await.status, 201, "{}", server.output());
    kept.push("z last".into());
    server.kill9().await.expect("killed");
    let mut server = house.serve_with(&env).await;
    assert_eq!(titles(&Caller::new(server.url(), key.trim())).await, kept);
    stop_well(&mut server, Signal::SIGTERM).await;
}

/// Waits for what a run is, as long as a busy machine may take.
async fn until_status(caller: &Caller, run: &str, wanted: &[&str]) -> String {
    for _ in 0..600 {
        let answer = caller.get(&format!("/v1/runs/{run}")).await;
        assert_eq!(answer.status, 200, "reads go on: {}", answer.text);
        let status = answer.body["status"].as_str().expect("a status").to_owned();
        if wanted.contains(&status.as_str()) {
            return status;
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    panic!("{run} is not {wanted:?}: {}", caller.get(&format!("/v1/runs/{run}")).await.text);
}

#[tokio::test]
async fn a_full_disk_refuses_turns_whole_and_those_under_way_go_on() {
    let Some(disk) = SmallDisk::mount("size=12m") else { return };
    let gate = Release::default();
    let said = |text: &str| Action::Line(json!({ "type": "delta", "text": text }));
    let long = "word ".repeat(100_000);
    let sandbox = ScriptedSandbox::start(vec![
        Action::Chunked("200 OK", vec![("content-type", "application/x-ndjson".into())]),
        said("before "),
        Action::WaitFor(gate.clone()),
        said(&long),
        Action::Line(json!({ "type": "result", "message": format!("before {long}") })),
        Action::EndChunks,
    ]);
    let sandbox = sandbox.await.expect("a sandbox");
    let house = House::sqlite();
    let (data, url) = (disk.path().join("data"), sandbox.url());
    let env = [("THREADKEEP_DATA", data.to_str().expect("a path")), ("SANDBOX_URL", url.as_str())];
    let mut server: ServerProcess = house.serve_with(&env).await;
    let key = fs::read_to_string(data.join("local.key")).expect("local.key");
    let caller = Caller::new(server.url(), key.trim());
    let body = json!({ "message": "hi", "on_disconnect": "continue" });
    let under_way = caller.start_turn(&body).await;
    let (run, conversation) = (under_way["run"].as_str().expect("a run"), &under_way["conversation"]);
    sandbox.request(0).await.expect("a request");

    let ballast = disk.fill();
    // What is left of pages that SQLite has already is soon used up.
    write_until_full(&caller, "x").await;
    let before = titles(&caller).await;
    let (first, later) = (
        json!({ "message": &long }),
        json!({ "message": &long, "conversation": conversation, "on_busy": "enqueue" }),
    );
    for body in [&first, &later, &first] {
        let refused = caller.send(reqwest::Method::POST, "/v1/turns", Some(body)).await.expect("an answer");
        assert_eq!((refused.status, &refused.body["code"]), (503, &json!("unavailable")), "{}", refused.text);
        assert!(!refused.header("retry-after").is_empty(), "{:?}", refused.headers);
    }
    assert_eq!(titles(&caller).await, before, "nothing of the refused turns is there");
    let thread = format!("{CONVERSATIONS}/{}", conversation.as_str().expect("an id"));
    let queue = caller.get(&format!("{thread}/queue")).await;
    assert_eq!((queue.status, &queue.body["data"]), (200, &json!([])), "{}", queue.text);
    assert_eq!(caller.get(&format!("/v1/runs/{run}/trace")).await.status, 200);
    // The run under way has more to say than there is space for.
    gate.open();
    tokio::time::sleep(Duration::from_millis(300)).await;
    assert_eq!(until_status(&caller, run, &["running", "failed"]).await, "running", "{}", server.output());

    fs::remove_file(ballast).expect("removed");
    assert_eq!(until_status(&caller, run, &["succeeded", "failed", "interrupted"]).await, "succeeded");
    let answer = caller.get(&format!("/v1/runs/{run}/events")).await;
    assert!(answer.text.contains(&long) && answer.text.contains("event: done"), "{}", answer.status);
    // Nothing is stuck: the conversation takes the next turn.
    let next = caller.start_turn(&json!({ "message": "and?", "conversation": conversation })).await;
    until_status(&caller, next["run"].as_str().expect("a run"), &["succeeded"]).await;
    stop_well(&mut server, Signal::SIGTERM).await;
}

#[tokio::test]
async fn a_start_on_a_full_or_read_only_disk_says_so_in_one_sentence() {
    let (Some(full), Some(fixed)) = (SmallDisk::mount("size=64k"), SmallDisk::mount("ro,size=1m")) else {
        return;
    };
    let house = House::sqlite();
    full.fill();
    for disk in [&full, &fixed] {
        let data = disk.path().join("data");
        let ran = house.run(&["serve"], &[("THREADKEEP_DATA", data.to_str().expect("a path"))]).await;
        assert_eq!((ran.code, ran.stdout.as_str()), (Some(1), ""), "{BINARY}: {ran:?}");
        assert_eq!(ran.stderr.lines().count(), 1, "{ran:?}");
        assert!(ran.stderr.contains("THREADKEEP_DATA") && !ran.stderr.contains("panicked"), "{ran:?}");
    }
}

/// How large a file of this process may become (`ulimit -f`); no process but ours is limited by it.
fn limit_files(server: &ServerProcess, bytes: Option<u64>) {
    let pid = server.pid().and_then(|pid| Pid::from_raw(i32::try_from(pid).ok()?));
    let limit = Rlimit { current: bytes, maximum: None };
    prlimit(pid, Resource::Fsize, limit).expect("a limit");
}

#[tokio::test]
async fn a_limit_on_file_sizes_is_a_full_disk_and_not_the_end() {
    let house = House::sqlite();
    let mut server = house.serve().await;
    let caller = house.caller(&server);
    let made = caller.create(json!({ "title": "a before" })).await;
    let files = format!("{CONVERSATIONS}/{}/files", made.body["data"]["id"].as_str().expect("an id"));
    let large = "x".repeat(12 << 20);
    let mut kept = vec!["a before".to_owned()];
    for round in ["b", "c"] {
        limit_files(&server, Some(8 << 20));
        let refused = caller.upload(&files, "large.txt", &large).await;
        assert!(refused.contains("storage_full"), "{refused}: {}", server.output());
        let stored = caller.upload(&files, &format!("{round}.txt"), "small").await;
        assert!(stored.contains("\"sha256\""), "{stored}");
        // What the database has by now is more than its log may have on top of it.
        limit_files(&server, Some(2 << 20));
        let (more, refusal) = write_until_full(&caller, round).await;
        kept.extend(more);
        kept.sort();
        assert_eq!(refusal.status, 503, "{}", refusal.text);
        assert!(!refusal.header("retry-after").is_empty(), "{:?}", refusal.headers);
        assert_eq!(titles(&caller).await, kept, "nothing of the refused write is there");
        limit_files(&server, None);
        let title = format!("{round} then");
        assert_eq!(caller.create(json!({ "title": title })).await.status, 201, "{}", server.output());
        kept.push(title);
    }
    let stored = caller.upload(&files, "large.txt", &large).await;
    assert!(stored.contains("\"sha256\""), "{stored}");
    server.kill9().await.expect("killed");
    let mut server = house.serve().await;
    kept.sort();
    assert_eq!(titles(&house.caller(&server)).await, kept);
    stop_well(&mut server, Signal::SIGTERM).await;
}
