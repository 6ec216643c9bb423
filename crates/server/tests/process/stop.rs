//! Stopping: what is under way finishes, nothing new begins, and whoever only waits is not waited for.

use std::io::ErrorKind;
use std::time::Duration;

use nix::sys::signal::Signal;
use testkit::process::ServerProcess;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;

use crate::house::{CONVERSATIONS, House, MEDIA, document, stop_well};

const SOON: Duration = Duration::from_secs(10);

pub async fn connect(server: &ServerProcess) -> TcpStream {
    TcpStream::connect(address(server)).await.expect("a connection")
}

fn address(server: &ServerProcess) -> &str {
    server.url().trim_start_matches("http://")
}

/// Reads until the text has been seen, or the connection ends.
pub async fn read_until(stream: &mut TcpStream, end: &str) -> String {
    let mut seen = Vec::new();
    let reading = async {
        let mut buffer = [0; 4096];
        while !String::from_utf8_lossy(&seen).contains(end) {
            match stream.read(&mut buffer).await {
                Ok(0) | Err(_) => break,
                Ok(count) => seen.extend_from_slice(&buffer[..count]),
            }
        }
    };
    tokio::time::timeout(SOON, reading).await.expect("an answer or an end, soon");
    String::from_utf8_lossy(&seen).into_owned()
}

/// An upload that has begun: the server waits for the rest of the body.
struct Upload {
    stream: TcpStream,
    rest: Vec<u8>,
}

impl Upload {
    async fn begin(house: &House, server: &ServerProcess, title: &str) -> Self {
        let body = document(None, serde_json::json!({ "title": title })).to_string();
        let head = format!(
            "POST {CONVERSATIONS} HTTP/1.1\r\nhost: {}\r\nauthorization: Bearer {}\r\ncontent-type: {MEDIA}\r\n\
             content-length: {}\r\nexpect: 100-continue\r\n\r\n",
            address(server),
            house.file("local.key"),
            body.len()
        );
        let mut stream = connect(server).await;
        stream.write_all(head.as_bytes()).await.expect("sent");
        // The server says this when it begins to read the body: the request is under way for certain.
        let begun = read_until(&mut stream, "\r\n\r\n").await;
        assert!(begun.starts_with("HTTP/1.1 100"), "{begun}");
        let (now, rest) = body.as_bytes().split_at(body.len() / 2);
        stream.write_all(now).await.expect("sent");
        Self { stream, rest: rest.to_vec() }
    }

    /// Sends the rest byte by byte, and answers all that the server said.
    async fn trickle(mut self) -> String {
        for byte in self.rest {
            self.stream.write_all(&[byte]).await.expect("sent");
            tokio::task::yield_now().await;
        }
        read_until(&mut self.stream, "no such text").await
    }
}

/// Waits until nobody listens any more: the server has understood.
async fn refused(server: &ServerProcess) {
    let refusing = async {
        loop {
            match TcpStream::connect(address(server)).await {
                Err(error) if error.kind() == ErrorKind::ConnectionRefused => return,
                _ => tokio::time::sleep(Duration::from_millis(2)).await,
            }
        }
    };
    tokio::time::timeout(SOON, refusing).await.expect("new connections are refused");
}

async fn drain(house: &House, signal: Signal) {
    let mut server = house.serve().await;
    let kept_alive = format!("GET /readyz HTTP/1.1\r\nhost: {}\r\n\r\n", address(&server));
    let mut idle = connect(&server).await;
    idle.write_all(kept_alive.as_bytes()).await.expect("sent");
    assert!(read_until(&mut idle, "\"ready\"").await.starts_with("HTTP/1.1 200"));
    let silent = connect(&server).await;
    let upload = Upload::begin(house, &server, "finished while draining").await;

    server.signal(signal).expect("a signal");
    refused(&server).await;
    // The idle connection is closed; should it still take a request, the answer is no.
    let _ = idle.write_all(kept_alive.as_bytes()).await;
    let answer = read_until(&mut idle, "\r\n\r\n").await;
    assert!(answer.is_empty() || answer.starts_with("HTTP/1.1 503"), "{answer}");
    let answer = upload.trickle().await;
    assert!(answer.starts_with("HTTP/1.1 201") && answer.contains("finished while draining"), "{answer}");
    let ended =
        tokio::time::timeout(SOON, server.ended()).await.expect("nobody holds it up").expect("an end");
    assert_eq!(ended.code(), Some(0), "{}", server.output());
    drop((idle, silent));

    let server = house.serve().await;
    let listed = house.caller(&server).get(CONVERSATIONS).await;
    assert!(listed.text.contains("finished while draining"), "{}", listed.text);
}

#[tokio::test]
async fn a_request_under_way_finishes_on_sqlite() {
    let house = House::sqlite();
    drain(&house, Signal::SIGTERM).await;
    let house = House::sqlite();
    drain(&house, Signal::SIGINT).await;
}

#[tokio::test]
async fn a_request_under_way_finishes_on_postgresql() {
    let Some(house) = House::postgres().await else { return };
    drain(&house, Signal::SIGTERM).await;
}

#[tokio::test]
async fn idle_connections_do_not_hold_the_exit_up() {
    let house = House::sqlite();
    let mut server = house.serve().await;
    let mut held = Vec::new();
    for n in 0..20 {
        let mut stream = connect(&server).await;
        if n % 2 == 0 {
            let get = format!("GET /healthz HTTP/1.1\r\nhost: {}\r\n\r\n", address(&server));
            stream.write_all(get.as_bytes()).await.expect("sent");
            assert!(read_until(&mut stream, "\"ok\"").await.starts_with("HTTP/1.1 200"));
        }
        held.push(stream);
    }
    let http2 = reqwest::Client::builder().no_proxy().http2_prior_knowledge().build().expect("a client");
    let answer = http2.get(format!("{}/healthz", server.url())).send().await.expect("an answer");
    assert_eq!(answer.status(), 200);
    server.signal(Signal::SIGTERM).expect("a signal");
    let ended = tokio::time::timeout(Duration::from_secs(5), server.ended()).await;
    assert_eq!(ended.expect("at once").expect("an end").code(), Some(0));
    drop((held, http2));
}

#[tokio::test]
async fn a_second_signal_ends_it_at_once() {
    let house = House::sqlite();
    let mut server = house.serve().await;
    let upload = Upload::begin(&house, &server, "never finished").await;
    server.signal(Signal::SIGINT).expect("a signal");
    refused(&server).await;
    server.signal(Signal::SIGINT).expect("a signal");
    let ended = tokio::time::timeout(Duration::from_secs(5), server.ended()).await;
    assert_eq!(ended.expect("at once").expect("an end").code(), Some(1));
    drop(upload);
    let server = house.serve().await;
    assert!(!house.caller(&server).get(CONVERSATIONS).await.text.contains("never finished"));
}

#[tokio::test]
async fn a_stop_right_after_the_printed_line_is_a_clean_one() {
    let house = House::sqlite();
    for _ in 0..5 {
        let mut server = house.serve().await;
        stop_well(&mut server, Signal::SIGTERM).await;
    }
}
