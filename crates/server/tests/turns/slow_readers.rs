//! Readers who do not read, beside readers who do: the one kind does not notice the other, and costs little.
//! The server is a process of its own here, so that its memory is its own.

use std::collections::HashMap;
use std::hash::{DefaultHasher, Hasher as _};
use std::time::Duration;

use futures_util::future::join_all;
use nix::sys::socket::{setsockopt, sockopt};
use serde_json::json;
use testkit::sandbox::{Action, Release};
use testkit::server::Backend;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpSocket, TcpStream};

use crate::process::OwnProcess;
use crate::scripts::{delta, open, result};
use crate::sse::{Told, frames};
use crate::world::stories;

stories!(stalled_readers_cost_nobody_anything);

/// Of 16 KiB each: 4 MiB, which is far more than the sockets of a reader who does not read will hold.
const EVENTS: u64 = 256;
/// What those hold at most: the test proves nothing where they take all of it.
const HELD_BYTES: u64 = 512 * 1024;
/// What the process may grow by for a reader, stalled or not: its connection, and a piece of the log (256 KiB), read and
/// rendered.
const READER_KIB: u64 = 512;

fn line(n: u64) -> String {
    delta(&format!("{n:0>16000}")).to_string()
}

/// A connection that has asked for a run's events; a stalled one with a window that is soon full, and with segments so
/// small that the server's kernel gathers little for it.
async fn asking(own: &OwnProcess, run: &str, stalled: bool) -> TcpStream {
    let socket = TcpSocket::new_v4().unwrap();
    if stalled {
        socket.set_recv_buffer_size(8 * 1024).unwrap();
        setsockopt(&socket, sockopt::TcpMaxSeg, &536).unwrap();
    }
    let address = own.server.url().trim_start_matches("http://");
    let mut stream = socket.connect(address.parse().unwrap()).await.unwrap();
    let request = format!(
        "GET /v1/runs/{run}/events HTTP/1.0\r\nHost: x\r\nAuthorization: Bearer {}\r\nConnection: close\r\n\r\n",
        own.bearer
    );
    stream.write_all(request.as_bytes()).await.unwrap();
    stream
}

/// Everything that a connection gives, without the head.
async fn read(mut stream: TcpStream) -> Vec<u8> {
    let mut bytes = Vec::new();
    stream.read_to_end(&mut bytes).await.unwrap();
    bytes.split_off(head(&bytes))
}

/// Where the body begins.
fn head(bytes: &[u8]) -> usize {
    let end = memchr::memmem::find(bytes, b"\r\n\r\n").expect("a head");
    assert!(bytes.starts_with(b"HTTP/1.0 200 "), "{}", String::from_utf8_lossy(&bytes[..end]));
    end + 4
}

/// How many frames a connection gives, and what they add up to; nothing of them is kept. Heartbeats do not count.
async fn counted(mut stream: TcpStream) -> (u64, u64) {
    let (mut bytes, mut count, mut sum) = (Vec::with_capacity(64 * 1024), 0, DefaultHasher::new());
    while memchr::memmem::find(&bytes, b"\r\n\r\n").is_none() {
        assert!(stream.read_buf(&mut bytes).await.unwrap() > 0, "no head");
    }
    bytes.drain(..head(&bytes));
    loop {
        while let Some(end) = memchr::memmem::find(&bytes, b"\n\n") {
            if bytes[0] != b':' {
                count += 1;
                sum.write(&bytes[..end]);
            }
            bytes.drain(..end + 2);
        }
        if stream.read_buf(&mut bytes).await.unwrap() == 0 {
            assert!(bytes.is_empty(), "half a frame");
            return (count, sum.finish());
        }
    }
}

/// The same of a whole stream.
fn sum(told: &Told) -> (u64, u64) {
    let (mut sum, text) = (DefaultHasher::new(), std::str::from_utf8(&told.bytes).unwrap());
    for frame in text.split("\n\n").filter(|frame| !frame.is_empty() && !frame.starts_with(':')) {
        sum.write(frame.as_bytes());
    }
    (told.frames.len() as u64, sum.finish())
}

/// Bytes on their way in the kernel: by the client's port, what the server has sent and nobody has taken.
fn on_their_way(server: u16) -> HashMap<u16, u64> {
    let (mut held, port) = (HashMap::new(), |place: &str| u16::from_str_radix(&place[9..], 16).unwrap());
    let table = std::fs::read_to_string("/proc/net/tcp").unwrap();
    for row in table.lines().skip(1) {
        let row: Vec<&str> = row.split_whitespace().collect();
        let (local, remote) = (port(row[1]), port(row[2]));
        let (sending, received) = row[4].split_once(':').unwrap();
        let (client, bytes) = if local == server {
            (remote, sending)
        } else if remote == server {
            (local, received)
        } else {
            continue;
        };
        *held.entry(client).or_default() += u64::from_str_radix(bytes, 16).unwrap();
    }
    held
}

async fn stalled_readers_cost_nobody_anything(backend: Backend) -> Option<()> {
    let readers = 500;
    let gate = Release::default();
    let script = vec![
        open(),
        Action::Line(delta("first")),
        Action::WaitFor(gate.clone()),
        Action::Lines(EVENTS, line),
        Action::Line(result("The end.")),
    ];
    let own = OwnProcess::start(backend, script, &[]).await?;
    let (run, _) = own.begin_async(&json!({ "message": "hi" })).await;
    own.sandbox.request(0).await.unwrap();

    let (mut stalled, mut reading) = (Vec::new(), Vec::new());
    for _ in 0..readers {
        stalled.push(asking(&own, &run, true).await);
        reading.push(asking(&own, &run, false).await);
    }
    // All of them are being served.
    for stream in stalled.iter_mut().chain(&mut reading) {
        stream.readable().await.unwrap();
    }
    own.forget_most();
    let (before, _) = own.memory_kib();
    gate.open();
    let told = join_all(reading.into_iter().map(|stream| tokio::spawn(counted(stream)))).await;
    let (_, most) = own.memory_kib();
    let whole = Told::new(own.get(&format!("/v1/runs/{run}/events")).await.text.into_bytes());
    assert_eq!((whole.frames.len() as u64, whole.status()), (EVENTS + 4, "succeeded"));
    let wanted = sum(&whole);
    for (number, told) in told.into_iter().enumerate() {
        assert_eq!(told.unwrap(), wanted, "reader {number}");
    }
    let growth = most.saturating_sub(before) / (2 * readers);
    assert!(growth < READER_KIB, "the server grew by {growth} KiB for each reader");

    // What the stalled ones have not taken waits in the log, not in sockets.
    let port = own.server.url().rsplit(':').next().unwrap().parse().unwrap();
    let held = on_their_way(port);
    for stream in &stalled {
        let held = held[&stream.local_addr().unwrap().port()];
        assert!(held < HELD_BYTES, "the sockets of a stalled reader hold {held} bytes");
    }
    // Some that wake up at last have missed nothing.
    for late in stalled.drain(..5) {
        let late = tokio::time::timeout(Duration::from_secs(60), read(late)).await.expect("served");
        assert!(frames(&late).0 == whole.frames);
    }
    Some(())
}
