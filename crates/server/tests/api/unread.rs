//! Refused before the body was read: the sender reads the answer all the same, and reads it at once.

use testkit::server::{Backend, TestServer, token};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;

const REFUSED: [(&str, &str, &str); 4] = [
    ("POST /v1/turns", "", "401"),
    ("POST /v1/nothing", "", "404"),
    ("POST /v1/agent/w/r/results", "Authorization: used\r\n", "401"),
    ("PUT /v1/uploads/forged", "", "401"),
];

async fn ask(server: &TestServer, line: &str, headers: &str, length: usize) -> TcpStream {
    let mut asking = TcpStream::connect(server.url().trim_start_matches("http://")).await.unwrap();
    let head = format!("{line} HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: {length}\r\n{headers}\r\n");
    asking.write_all(head.as_bytes()).await.unwrap();
    asking
}

async fn status(asking: &mut TcpStream) -> String {
    let mut head = [0; 12];
    asking.read_exact(&mut head).await.unwrap();
    String::from_utf8_lossy(&head[9..]).into_owned()
}

#[tokio::test]
async fn who_sends_it_all_before_reading_reads_the_refusal() {
    let server = TestServer::start(Backend::Sqlite).await.unwrap();
    let chunk = vec![b'x'; 1 << 20];
    for (line, headers, expected) in REFUSED {
        let mut asking = ask(&server, line, headers, 20 * chunk.len()).await;
        for _ in 0..20 {
            asking.write_all(&chunk).await.unwrap();
        }
        assert_eq!(status(&mut asking).await, expected, "{line}");
    }
    // Too large, and the connection can be used again.
    let bearer =
        format!("Authorization: Bearer {}\r\nContent-Type: application/json\r\n", token("ann", "acme"));
    let mut asking = ask(&server, "POST /v1/turns", &bearer, 20 * chunk.len()).await;
    for _ in 0..20 {
        asking.write_all(&chunk).await.unwrap();
    }
    asking.write_all(b"GET /healthz HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n").await.unwrap();
    let mut both = String::new();
    asking.read_to_string(&mut both).await.unwrap();
    assert!(both.starts_with("HTTP/1.1 413 ") && both.contains("HTTP/1.1 200 "), "{both}");
}

#[tokio::test]
async fn who_waits_for_the_answer_need_not_send() {
    let server = TestServer::start(Backend::Sqlite).await.unwrap();
    for expects in ["", "Expect: 100-continue\r\n"] {
        for (line, headers, expected) in REFUSED {
            let mut asking = ask(&server, line, &format!("{headers}{expects}"), 1000).await;
            assert_eq!(status(&mut asking).await, expected, "{line} {expects}");
        }
    }
}
