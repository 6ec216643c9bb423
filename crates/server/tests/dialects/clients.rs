//! The vendors' own libraries, as programs of theirs, against the real binary with the demo model and a scripted
//! sandbox. `scripts/clients/install` puts them into the cache folder.

use std::path::{Path, PathBuf};

use serde_json::json;
use testkit::process::ServerProcess;
use testkit::sandbox::ScriptedSandbox;
use tokio::process::Command;

use crate::scripts::{delta, lines, result};

/// Where the libraries are; without them the tests say so and end.
fn libraries() -> Option<PathBuf> {
    let cache = std::env::var_os("XDG_CACHE_HOME").filter(|folder| !folder.is_empty()).map(PathBuf::from);
    let cache = cache.or_else(|| Some(PathBuf::from(std::env::var_os("HOME")?).join(".cache")))?;
    let folder = cache.join("threadkeep-test/clients");
    if folder.join("installed").exists() {
        return Some(folder.join("node_modules"));
    }
    assert!(std::env::var_os("CI").is_none(), "the client libraries are missing: run scripts/setup test");
    eprintln!("SKIPPED: the client libraries are missing: run scripts/setup test");
    None
}

async fn works(program: &str, library: &[&str]) {
    let Some(libraries) = libraries() else { return };
    let step = |status: &str, field: &str, value: serde_json::Value| {
        let mut step = json!({ "type": "step", "id": "s", "name": "look", "status": status, "ts": 1 });
        step[field] = value;
        step
    };
    // One that says what it is given only at its end.
    let begun = json!({ "type": "step", "id": "t", "name": "late", "status": "running", "ts": 2 });
    let late = json!({ "type": "step", "id": "t", "name": "late", "status": "succeeded", "args": { "z": 3 },
        "result": "r", "ts": 3 });
    let script = lines(vec![
        delta("I look."),
        step("running", "args", json!({ "y": 2 })),
        step("succeeded", "result", json!([1])),
        begun,
        delta("It"),
        late,
        result("It is."),
    ]);
    let sandbox = ScriptedSandbox::start(script).await.unwrap();
    let folder = tempfile::tempdir().unwrap();
    let url = sandbox.url();
    let data = folder.path().join("data");
    std::fs::create_dir(&data).unwrap();
    let binary = Path::new(env!("CARGO_BIN_EXE_threadkeep"));
    let mut server = ServerProcess::start(binary, &[("SANDBOX_URL", &url)], &data).await.unwrap();
    let key = std::fs::read_to_string(local_key(&data)).unwrap();
    // A module finds its libraries beside itself.
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../scripts/clients").join(program);
    std::fs::copy(source, folder.path().join(program)).unwrap();
    std::os::unix::fs::symlink(libraries, folder.path().join("node_modules")).unwrap();
    let mut node = Command::new("node");
    node.arg(program).args([server.url(), key.trim()]).args(library).current_dir(folder.path());
    let ended = tokio::time::timeout(std::time::Duration::from_secs(120), node.kill_on_drop(true).output());
    let ended = ended.await.expect("a program that is not stuck").unwrap();
    let said = String::from_utf8_lossy(&ended.stdout).into_owned() + &String::from_utf8_lossy(&ended.stderr);
    assert!(ended.status.success(), "{program} {library:?}: {said}\n{}", server.output());
    server.terminate().await.unwrap();
}

/// The key is in the data folder, wherever the process was told that is.
fn local_key(data: &Path) -> PathBuf {
    let inside = data.join("local.key");
    if inside.exists() { inside } else { data.join("threadkeep-data/local.key") }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_ai_sdk() {
    works("ai.mjs", &["ai"]).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_ai_sdk_of_version_6() {
    works("ai.mjs", &["ai6"]).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn openais_library() {
    works("openai.mjs", &[]).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn anthropics_library() {
    works("anthropic.mjs", &[]).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_ag_ui_client() {
    works("ag-ui.mjs", &[]).await;
}
