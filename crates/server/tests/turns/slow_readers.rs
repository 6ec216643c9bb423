//! Readers who do not read, beside readers who do: the one kind does not notice the other, and costs little.
//! The server is a process of its own here, so that its memory is its own.

use std::path::Path;
use std::time::Duration;

use futures_util::future::join_all;
use serde_json::{Value, json};
use testkit::process::ServerProcess;
use testkit::sandbox::{Action, Release, ScriptedSandbox};
use testkit::server::{JWT_SECRET, token};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpSocket, TcpStream};

use crate::scripts::{delta, open, result};
use crate::sse::{Told, frames};

const STALLED: usize = 500;
const READING: usize = 500;
/// Of 500 bytes each: far more than the sockets of a reader who does not read will hold.
const EVENTS: u64 = 1000;
/// For the server, all in all: a stalled reader may cost its connection, and some of the log.
const GROWTH_KIB: u64 = 128 * 1024;

fn line(n: u64) -> String {
    delta(&format!("{n:0>480}")).to_string()
}

/// Resident memory of a process.
fn rss_kib(pid: u32) -> u64 {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
    let line = status.lines().find(|line| line.starts_with("VmRSS:")).unwrap();
    line.split_whitespace().nth(1).unwrap().parse().unwrap()
}

/// A connection that has asked for a run's events; a stalled one with a window that is soon full.
async fn asking(address: &str, bearer: &str, run: &str, stalled: bool) -> TcpStream {
    let socket = TcpSocket::new_v4().unwrap();
    if stalled {
        socket.set_recv_buffer_size(8 * 1024).unwrap();
    }
    let mut stream = socket.connect(address.parse().unwrap()).await.unwrap();
    let request = format!(
        "GET /v1/runs/{run}/events HTTP/1.0\r\nHost: x\r\nAuthorization: Bearer {bearer}\r\nConnection: close\r\n\r\n"
    );
    stream.write_all(request.as_bytes()).await.unwrap();
    stream
}

/// Everything that a connection gives, without the head.
async fn read(mut stream: TcpStream) -> Vec<u8> {
    let mut bytes = Vec::new();
    stream.read_to_end(&mut bytes).await.unwrap();
    let head = bytes.windows(4).position(|four| four == b"\r\n\r\n").expect("a head");
    assert!(bytes.starts_with(b"HTTP/1.0 200 "), "{}", String::from_utf8_lossy(&bytes[..head]));
    bytes.split_off(head + 4)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn stalled_readers_cost_nobody_anything() {
    let gate = Release::default();
    let script = vec![
        open(),
        Action::Line(delta("first")),
        Action::WaitFor(gate.clone()),
        Action::Lines(EVENTS, line),
        Action::Line(result("The end.")),
    ];
    let sandbox = ScriptedSandbox::start(script).await.unwrap();
    let (data, url) = (tempfile::tempdir().unwrap(), sandbox.url());
    let env = [
        ("THREADKEEP_JWT_SECRET", JWT_SECRET),
        ("THREADKEEP_SECRET", "the server's own secret, also longer than 32 bytes"),
        ("SANDBOX_URL", &url),
        ("THREADKEEP_MAX_STREAMS_PER_USER", "2000"),
        ("THREADKEEP_REQUESTS_PER_SECOND", "0"),
    ];
    let binary = Path::new(env!("CARGO_BIN_EXE_threadkeep"));
    let server = ServerProcess::start(binary, &env, data.path()).await.unwrap();
    let (bearer, address) = (token("ann", "acme"), server.url().trim_start_matches("http://").to_owned());
    let post = |path: &str, body: Value| {
        let request =
            reqwest::Client::builder().no_proxy().build().unwrap().post(format!("{}{path}", server.url()));
        request.bearer_auth(&bearer).header("content-type", "application/json").body(body.to_string())
    };
    post("/v1/workspaces", json!({ "name": "Ann's" })).send().await.unwrap().error_for_status().unwrap();
    let started =
        post("/v1/turns", json!({ "message": "hi" })).header("prefer", "respond-async").send().await.unwrap();
    let started: Value = started.error_for_status().unwrap().json().await.unwrap();
    let run = started["run"].as_str().unwrap().to_owned();
    sandbox.request(0).await.unwrap();

    let mut stalled = Vec::new();
    for _ in 0..STALLED {
        stalled.push(asking(&address, &bearer, &run, true).await);
    }
    let mut reading = Vec::new();
    for _ in 0..READING {
        reading.push(asking(&address, &bearer, &run, false).await);
    }
    // All of them are being served.
    for stream in stalled.iter_mut().chain(&mut reading) {
        stream.readable().await.unwrap();
    }
    let pid = server.pid().unwrap();
    let before = rss_kib(pid);
    gate.open();
    let told = tokio::time::timeout(Duration::from_secs(180), join_all(reading.into_iter().map(read))).await;
    let told = told.expect("the reading ones wait for the stalled ones");
    let growth = rss_kib(pid).saturating_sub(before);
    let first = Told::new(told[0].clone());
    assert_eq!((first.frames.len() as u64, first.status()), (EVENTS + 4, "succeeded"));
    for (number, other) in told.iter().enumerate() {
        let (frames, whole) = frames(other);
        assert_eq!((frames.len(), whole), (first.frames.len(), other.len()), "reader {number}");
        assert!(frames == first.frames, "reader {number} got something else");
    }
    assert!(growth < GROWTH_KIB, "the server grew by {growth} KiB");
    // One that wakes up at last has missed nothing.
    let late = tokio::time::timeout(Duration::from_secs(60), read(stalled.remove(0))).await.expect("served");
    assert!(frames(&late).0 == first.frames);
    drop(server);
}
