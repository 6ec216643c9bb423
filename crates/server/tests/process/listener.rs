//! What the listener bears: half-open connections, huge heads, HTTP/2, and bytes that are no HTTP at all (G19).

use std::time::{Duration, Instant};

use testkit::process::ServerProcess;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::task::JoinSet;

use crate::house::{CONVERSATIONS, Caller, House, client};
use crate::stop::{connect, read_until};

async fn assert_alive(server: &ServerProcess) {
    let answer = client().get(format!("{}/readyz", server.url())).send().await.expect("an answer");
    assert_eq!(answer.status(), 200, "{}", server.output());
    assert!(!server.output().contains("panicked"), "{}", server.output());
}

#[tokio::test]
async fn half_open_connections_stop_nobody() {
    let house = House::sqlite();
    let server = house.serve().await;
    let mut held = Vec::new();
    for n in 0..200 {
        let mut stream = connect(&server).await;
        // Nothing, half a head, a head without its body, the beginning of HTTP/2.
        let begun: &[u8] = match n % 4 {
            0 => b"",
            1 => b"GET /healthz HTTP/1.1\r\nhost: 127.0.0.1\r\nx-slow: ",
            2 => b"POST /v1/workspaces HTTP/1.1\r\nhost: 127.0.0.1\r\ncontent-length: 10\r\n\r\n{",
            _ => b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0",
        };
        stream.write_all(begun).await.expect("sent");
        held.push(stream);
    }
    let caller = house.caller(&server);
    let mut others = JoinSet::new();
    for _ in 0..20 {
        let caller: Caller = caller.clone();
        others.spawn(async move {
            let made = caller.create(serde_json::json!({ "title": "meanwhile" })).await;
            (made.status, caller.get(CONVERSATIONS).await.status)
        });
    }
    while let Some(answered) = others.join_next().await {
        assert_eq!(answered.expect("a client"), (201, 200));
    }
    drop(held);
    assert_alive(&server).await;
}

#[tokio::test]
async fn whoever_does_not_begin_or_go_on_is_let_go() {
    let house = House::sqlite();
    let server = house.serve().await;
    let begun = [
        "",
        "P",
        "PRI * HTTP/2.0\r\n\r\nSM",
        "GET /heal",
        "GET /healthz HTTP/1.1\r\nhost: 127.0.0.1\r\n\r\n",
    ];
    let closed = begun.map(|begun| {
        let connecting = connect(&server);
        async move {
            let mut stream = connecting.await;
            stream.write_all(begun.as_bytes()).await.expect("sent");
            let ended =
                tokio::time::timeout(Duration::from_secs(25), stream.read_to_end(&mut Vec::new())).await;
            assert!(ended.is_ok(), "still open after {begun:?}");
        }
    });
    futures_util::future::join_all(closed).await;
    assert_alive(&server).await;
}

/// HTTP/2's preface and a first frame, byte by byte: none of them is lost on the way to the one who speaks it.
#[tokio::test]
async fn a_preface_in_pieces_is_understood() {
    let house = House::sqlite();
    let server = house.serve().await;
    let mut stream = connect(&server).await;
    stream.set_nodelay(true).expect("a connection");
    for byte in b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\x04\0\0\0\0\0" {
        stream.write_all(&[*byte]).await.expect("sent");
        tokio::task::yield_now().await;
    }
    // Its own settings come first, then the acknowledgement of ours: type 4, flag 1.
    let mut answer = Vec::new();
    let acknowledged = async {
        while !answer.windows(5).any(|frame| frame == [0, 0, 0, 4, 1]) {
            assert_ne!(stream.read_buf(&mut answer).await.expect("an answer"), 0, "{answer:?}");
        }
    };
    tokio::time::timeout(Duration::from_secs(10), acknowledged).await.expect("settings are acknowledged");
}

#[tokio::test]
async fn half_a_preface_and_an_end_is_an_end() {
    let house = House::sqlite();
    let server = house.serve().await;
    let mut stream = connect(&server).await;
    stream.write_all(b"PRI * HT").await.expect("written");
    stream.shutdown().await.expect("ended");
    let reading = async { stream.read(&mut [0; 1]).await };
    // Well before the patience for a head is over.
    let read = tokio::time::timeout(Duration::from_secs(5), reading).await.expect("closed at once");
    assert!(matches!(read, Ok(0) | Err(_)), "{read:?}");
}

#[tokio::test]
async fn a_huge_head_is_refused() {
    let house = House::sqlite();
    let server = house.serve().await;
    let padding = "x".repeat(64 * 1024);
    let many: String = (0..500).map(|n| format!("x-{n}: y\r\n")).collect();
    for head in [
        format!("GET /healthz HTTP/1.1\r\nhost: 127.0.0.1\r\nx-huge: {padding}\r\n\r\n"),
        format!("GET /healthz HTTP/1.1\r\nhost: 127.0.0.1\r\n{many}\r\n"),
        format!("GET /{padding} HTTP/1.1\r\nhost: 127.0.0.1\r\n\r\n"),
    ] {
        let mut stream = connect(&server).await;
        // The server may close before it has read everything.
        let _ = stream.write_all(head.as_bytes()).await;
        let answer = read_until(&mut stream, "\r\n\r\n").await;
        assert!(["HTTP/1.1 431", "HTTP/1.1 414"].iter().any(|start| answer.starts_with(start)), "{answer:?}");
    }
    let http2 = reqwest::Client::builder().no_proxy().http2_prior_knowledge().build().expect("a client");
    let asked = http2.get(format!("{}/healthz", server.url())).header("x-huge", &padding[..40_000]);
    match asked.send().await {
        Ok(answer) => assert_eq!(answer.status(), 431),
        Err(error) => assert!(error.is_request(), "{error:?}"),
    }
    // One below the limit passes.
    let fits = client().get(format!("{}/healthz", server.url())).header("x-large", &padding[..16_000]);
    assert_eq!(fits.send().await.expect("an answer").status(), 200);
    assert_alive(&server).await;
}

#[tokio::test]
async fn http2_with_prior_knowledge_is_spoken() {
    let house = House::sqlite();
    let server = house.serve().await;
    let http2 = reqwest::Client::builder().no_proxy().http2_prior_knowledge().build().expect("a client");
    let mut asked = JoinSet::new();
    for _ in 0..50 {
        let request =
            http2.get(format!("{}{CONVERSATIONS}", server.url())).bearer_auth(house.file("local.key"));
        asked.spawn(request.send());
    }
    while let Some(answer) = asked.join_next().await {
        let answer = answer.expect("a task").expect("an answer");
        assert_eq!((answer.version(), answer.status().as_u16()), (reqwest::Version::HTTP_2, 200));
    }
}

/// Bytes that look more or less like the beginning of a request.
fn garbage() -> Vec<u8> {
    let mut bytes = [0; 256];
    getrandom::fill(&mut bytes).expect("randomness");
    let length = usize::from(bytes[0]);
    let begin: &[u8] = match bytes[1] % 8 {
        0 => b"GET / HTTP/1.1\r\n",
        1 => b"POST /v1/chat-conversations HTTP/1.1\r\nhost: 127.0.0.1\r\ntransfer-encoding: chunked\r\n\r\n",
        2 => b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
        3 => b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\x04\0\0\0\0\0\0\0\x40\x01\x05\0\0\0\x01",
        4 => b"GET /healthz HTTP/1.1\r\nhost: 127.0.0.1\r\ncontent-length: 99999999999999999999\r\n\r\n",
        5 => b"\x16\x03\x01\x02\0\x01\0\x01\xfc\x03\x03",
        _ => b"",
    };
    [begin, &bytes[..length]].concat()
}

async fn send_garbage(server: &ServerProcess, hang_up: bool) {
    let mut stream = connect(server).await;
    let _ = stream.write_all(&garbage()).await;
    if hang_up {
        return;
    }
    let _ = stream.shutdown().await;
    let mut answer = Vec::new();
    // An error is a connection that was reset, which is an end too.
    let reading = stream.read_to_end(&mut answer);
    let _ = tokio::time::timeout(Duration::from_secs(10), reading).await.expect("the connection is closed");
    let answer = String::from_utf8_lossy(&answer);
    assert!(!answer.contains(" 500 "), "{answer}");
}

/// How many files and connections the process has open.
fn open_files(server: &ServerProcess) -> usize {
    let folder = format!("/proc/{}/fd", server.pid().expect("a process"));
    std::fs::read_dir(folder).expect("a folder").count()
}

#[tokio::test]
async fn garbage_closes_its_connection_and_nothing_else() {
    const MOST: usize = 10_000;
    let house = House::sqlite();
    let server = house.serve().await;
    assert_alive(&server).await;
    let (before, began) = (open_files(&server), Instant::now());
    let mut sent = 0;
    while sent < MOST && began.elapsed() < Duration::from_secs(8) {
        let batch = (sent..sent + 50).map(|n| send_garbage(&server, n % 2 == 0));
        futures_util::future::join_all(batch).await;
        sent += 50;
    }
    assert!(sent >= 500, "only {sent} connections in {:?}", began.elapsed());
    assert_alive(&server).await;
    let closed = async {
        while open_files(&server) > before + 5 {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    tokio::time::timeout(Duration::from_secs(15), closed).await.expect("every connection was let go");
}
