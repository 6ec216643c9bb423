//! Killed at random moments under clients who upload, delete, promise and send back, and while it sweeps: over 100 times.
//! Whatever is listed has all of its bytes; after a sweep there are no others.

use std::collections::BTreeSet;
use std::path::Path;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use reqwest::Method;
use serde_json::{Value, json};
use testkit::agent::echo;
use testkit::form::Form;
use testkit::process::command;
use tokio::task::JoinSet;

use crate::caller::{CONVERSATIONS, Caller, bag, id, sha256};
use crate::world::{BINARY, Home, World};

const CLIENTS: u64 = 8;
const GRACE: (&str, &str) = ("THREADKEEP_FILE_GRACE_SECONDS", "1");

fn random(below: u64) -> u64 {
    let mut bytes = [0; 8];
    getrandom::fill(&mut bytes).expect("randomness");
    u64::from_le_bytes(bytes) % below
}

/// What clients were told: files that are there, by id and hash, and files that are gone.
#[derive(Default)]
struct Told {
    kept: BTreeSet<(String, String)>,
    gone: BTreeSet<String>,
    /// Asked for, and no answer came: either is right.
    open: BTreeSet<String>,
}

type Ledger = Arc<Mutex<Told>>;

/// An answer, if the server lives to give it.
async fn sent(request: reqwest::RequestBuilder) -> Option<Value> {
    let response = request.send().await.ok()?;
    let status = response.status().as_u16();
    assert!(status < 500 || status == 503, "{status}: {:?}", response.text().await);
    if status == 204 {
        return Some(Value::Null);
    }
    serde_json::from_str(&response.text().await.ok()?).ok()
}

/// One client, until the server is gone.
async fn work(ann: Caller, chat: String, ledger: Ledger) {
    loop {
        let size = [3, 900, 40_000, 300_000][random(4) as usize];
        let body = crate::uploading::noise(random(250) as u8, size);
        let name = ["a.txt", "b.bin", "A.TXT"][random(3) as usize];
        match random(5) {
            0 => {
                let turn = json!({ "conversation": chat, "message": "make", "on_busy": "enqueue" });
                let request = ann.request(Method::POST, "/v1/turns").header("prefer", "respond-async");
                let request = request.header("content-type", "application/json").body(turn.to_string());
                if sent(request).await.is_none() {
                    return;
                }
            }
            1 => {
                let promise = json!({ "name": name, "size": body.len(), "sha256": sha256(&body) });
                let request = ann.request(Method::POST, &format!("{}/uploads", bag(&chat)));
                let request = request.header("content-type", "application/json").body(promise.to_string());
                let Some(promised) = sent(request).await else { return };
                let Some(url) = promised["url"].as_str() else { continue };
                if sent(ann.anonymous(Method::PUT, url).body(body.clone())).await.is_none() {
                    return;
                }
                let path = format!("{}/uploads/{}/complete", bag(&chat), id(&promised));
                let Some(done) = sent(ann.request(Method::POST, &path)).await else { return };
                note(&ledger, &done);
            }
            2 => {
                let found = ledger.lock().expect("a ledger").kept.pop_first();
                let Some((file, _)) = found else { continue };
                ledger.lock().expect("a ledger").open.insert(file.clone());
                let Some(_) = sent(ann.request(Method::DELETE, &format!("{}/{file}", bag(&chat)))).await
                else {
                    return;
                };
                ledger.lock().expect("a ledger").gone.insert(file);
            }
            _ => {
                let form = Form::of(name, &body).file("second.bin", &body);
                let Some(done) = sent(ann.form(&bag(&chat), &form)).await else { return };
                note(&ledger, &done);
            }
        }
    }
}

fn note(ledger: &Ledger, done: &Value) {
    for file in done["files"].as_array().into_iter().flatten() {
        let entry = (id(file).to_owned(), file["sha256"].as_str().expect("a hash").to_owned());
        ledger.lock().expect("a ledger").kept.insert(entry);
    }
}

/// Everything listed is whole, and what was told is so. The keys of what is listed.
async fn check(ann: &Caller, chat: &str, told: &Told) -> Vec<String> {
    let listed = ann.list(chat).await;
    for file in &listed {
        let got = ann.content(file).await;
        let whole = got.status == 200 && got.bytes.len() as u64 == file["size"].as_u64().unwrap_or(u64::MAX);
        assert!(
            whole && sha256(&got.bytes) == file["sha256"],
            "{} {} bytes: {file}",
            got.status,
            got.bytes.len()
        );
        assert!(!told.gone.contains(id(file)), "deleted, and there again: {file}");
    }
    let there: BTreeSet<&str> = listed.iter().map(id).collect();
    for (file, _) in &told.kept {
        assert!(there.contains(file.as_str()), "{file} was stored, and is not there");
    }
    listed.iter().map(|file| file["storageKey"].as_str().expect("a key").to_owned()).collect()
}

async fn survive(home: Home, rounds: u64) -> Option<()> {
    let mut world = World::start_with(home, &[GRACE]).await?;
    world.sandbox.then(echo("made.txt", b"what the sandbox made"));
    let (mut chats, mut stored) = (Vec::new(), 0);
    // Connections to other servers have to be made again each time.
    let mut least = if home == Home::Sqlite { 30 } else { 400 };
    for round in 0..rounds {
        let chat = world.ann.conversation().await;
        let ledger = Ledger::default();
        let mut clients = JoinSet::new();
        for _ in 0..CLIENTS {
            clients.spawn(work(world.ann.clone(), chat.clone(), Arc::clone(&ledger)));
        }
        // Every few rounds another sweep and purge goes on beside it, and dies as well.
        let purge = (round % 4 == 3)
            .then(|| command(Path::new(BINARY), &world.env(), world.data()).arg("purge").spawn());
        tokio::time::sleep(Duration::from_millis(least + random(270))).await;
        world.process.kill9().await.expect("killed");
        if let Some(Ok(mut purge)) = purge {
            let _ = purge.kill().await;
        }
        clients.join_all().await;
        world.restart(&[]).await;
        let told =
            Arc::try_unwrap(ledger).ok().expect("all clients have ended").into_inner().expect("a ledger");
        let done = told.kept.len() + told.gone.len();
        if done == 0 {
            // The machine has others to serve.
            least = (least * 2).min(4000);
        }
        stored += done;
        check(&world.ann, &chat, &told).await;
        chats.push((chat, told));
    }
    assert!(stored as u64 * 2 > rounds, "{stored} files in {rounds} rounds: the test shows nothing");
    swept(&world, &chats).await;
    Some(())
}

/// What is deleted and what is left over goes; then bytes and rows are one.
async fn swept(world: &World, chats: &[(String, Told)]) {
    // Runs that were cut off are settled first: what their queues start may still write.
    for (chat, _) in chats {
        crate::bad_input::until(async || {
            let runs = world.ann.get(&format!("{CONVERSATIONS}/{chat}/runs?limit=100")).await;
            let runs = runs.body["data"].as_array().cloned().unwrap_or_default();
            runs.iter().all(|run| !matches!(run["status"].as_str(), Some("queued" | "running")))
        })
        .await;
    }
    tokio::time::sleep(Duration::from_millis(1500)).await;
    world.command(&["purge"]).await;
    let mut keys = Vec::new();
    for (chat, told) in chats {
        keys.extend(check(&world.ann, chat, told).await);
    }
    keys.sort();
    // Promises that nobody completed live as long as their links; their bytes wait under `uploads/`.
    let bytes: Vec<String> =
        world.stored().await.into_iter().filter(|key| !key.starts_with("uploads/")).collect();
    let lost: Vec<&String> = keys.iter().filter(|key| !bytes.contains(key)).collect();
    let left: Vec<&String> = bytes.iter().filter(|key| !keys.contains(key)).collect();
    assert!(lost.is_empty() && left.is_empty(), "rows without bytes: {lost:?}; bytes without rows: {left:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn bytes_and_rows_agree_after_sudden_deaths_on_sqlite() {
    survive(Home::Sqlite, 70).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn bytes_and_rows_agree_after_sudden_deaths_on_postgresql() {
    survive(Home::Postgres, 30).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn bytes_and_rows_agree_after_sudden_deaths_on_s3() {
    tokio::join!(survive(Home::SqliteMoto, 12), survive(Home::PostgresS3rver, 12));
}
