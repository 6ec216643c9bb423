//! The upstream of every subject: a sandbox (`POST /stream`) and an OpenAI-like model
//! (`POST /v1/chat/completions`), which say the same. The request's text asks for the reply: `reply 200 5` is 200
//! deltas of 20 characters, 5 ms apart, one write each. With a pause a delta holds the microsecond at which it was sent.
//! A process of its own, so that its files and its time are nobody else's.

use std::io::Write as _;
use std::time::{Duration, Instant};

use anyhow::Context as _;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinSet;

use super::stamp;

/// What is asked for, as the text of a message.
pub fn ask(deltas: usize, pause_ms: u64) -> String {
    format!("reply {deltas} {pause_ms}")
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Asked {
    deltas: usize,
    pause: Duration,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Dialect {
    Sandbox,
    Model,
}

/// Serves until it is killed; says its address first.
pub async fn run() -> anyhow::Result<()> {
    let listener = TcpListener::bind("127.0.0.1:0").await?;
    writeln!(std::io::stdout(), "http://{}", listener.local_addr()?)?;
    let mut connections = JoinSet::new();
    loop {
        tokio::select! {
            accepted = listener.accept() => match accepted {
                Ok((stream, _)) => {
                    // A connection that ends badly is seen by whoever it was for.
                    connections.spawn(async move { connection(stream).await.is_ok() });
                }
                Err(_) => tokio::time::sleep(Duration::from_millis(10)).await,
            },
            Some(_) = connections.join_next() => {}
        }
    }
}

async fn connection(mut stream: TcpStream) -> anyhow::Result<()> {
    stream.set_nodelay(true)?;
    let mut held = Vec::with_capacity(8 * 1024);
    while let Some((head, body)) = request(&mut stream, &mut held).await? {
        let dialect = if head.starts_with("POST /stream ") { Dialect::Sandbox } else { Dialect::Model };
        let close = head.to_ascii_lowercase().contains("connection: close");
        let whole =
            answer(&mut stream, dialect, asked(&body).context("the request asks for no reply")?, close);
        if !whole.await? {
            break;
        }
        if close {
            stream.shutdown().await?;
            break;
        }
    }
    Ok(())
}

/// One request's head and body; none when the peer has gone.
async fn request(stream: &mut TcpStream, held: &mut Vec<u8>) -> anyhow::Result<Option<(String, Vec<u8>)>> {
    let head_end = loop {
        if let Some(at) = held.windows(4).position(|four| four == b"\r\n\r\n") {
            break at + 4;
        }
        if stream.read_buf(held).await? == 0 {
            return Ok(None);
        }
    };
    let head = String::from_utf8_lossy(&held[..head_end]).into_owned();
    let length = |line: &str| line.to_ascii_lowercase().strip_prefix("content-length:")?.trim().parse().ok();
    let length: usize = head.lines().find_map(length).context("the request has no length")?;
    while held.len() < head_end + length {
        if stream.read_buf(held).await? == 0 {
            return Ok(None);
        }
    }
    let body = held[head_end..head_end + length].to_vec();
    held.drain(..head_end + length);
    Ok(Some((head, body)))
}

fn asked(body: &[u8]) -> Option<Asked> {
    let body = std::str::from_utf8(body).ok()?;
    let mut words = body[body.rfind("reply ")? + 6..].split(|c: char| !c.is_ascii_digit());
    let deltas = words.next()?.parse().ok()?;
    Some(Asked { deltas, pause: Duration::from_millis(words.next()?.parse().ok()?) })
}

/// False when the peer went away before the end.
async fn answer(stream: &mut TcpStream, dialect: Dialect, asked: Asked, close: bool) -> anyhow::Result<bool> {
    let media = if dialect == Dialect::Sandbox { "application/x-ndjson" } else { "text/event-stream" };
    let closing = if close { "connection: close\r\n" } else { "" };
    let head =
        format!("HTTP/1.1 200 OK\r\ncontent-type: {media}\r\ntransfer-encoding: chunked\r\n{closing}\r\n");
    stream.write_all(head.as_bytes()).await?;
    let mut due = Instant::now();
    for sent in 0..asked.deltas {
        if sent > 0 && !asked.pause.is_zero() {
            due += asked.pause;
            // Whoever has gone is let go at once: a held stream would keep its file open for minutes.
            if tokio::time::timeout_at(due.into(), gone(stream)).await.is_ok() {
                return Ok(false);
            }
        }
        let text = if asked.pause.is_zero() { stamp::numbered(sent) } else { stamp::now() };
        stream.write_all(&chunk(&delta(dialect, &text))).await?;
    }
    let mut last = chunk(end(dialect));
    last.extend_from_slice(b"0\r\n\r\n");
    stream.write_all(&last).await?;
    Ok(true)
}

/// Resolves when the peer has closed; nobody sends anything within an answer.
async fn gone(stream: &TcpStream) {
    let mut byte = [0; 1];
    if !matches!(stream.peek(&mut byte).await, Ok(1..)) {
        return;
    }
    std::future::pending::<()>().await;
}

fn chunk(text: &str) -> Vec<u8> {
    format!("{:x}\r\n{text}\r\n", text.len()).into_bytes()
}

fn delta(dialect: Dialect, text: &str) -> String {
    match dialect {
        Dialect::Sandbox => format!("{{\"type\":\"delta\",\"text\":\"{text}\"}}\n"),
        Dialect::Model => {
            format!("{}{{\"content\":\"{text}\"}},\"finish_reason\":null}}]}}\n\n", MODEL_CHUNK)
        }
    }
}

const MODEL_CHUNK: &str = "data: {\"id\":\"chatcmpl-1\",\"object\":\"chat.completion.chunk\",\
    \"created\":1700000000,\"model\":\"bench\",\"choices\":[{\"index\":0,\"delta\":";

/// The sandbox's result is empty: the text is what the deltas made.
fn end(dialect: Dialect) -> &'static str {
    match dialect {
        Dialect::Sandbox => "{\"type\":\"result\",\"message\":\"\"}\n",
        Dialect::Model => {
            "data: {\"id\":\"chatcmpl-1\",\"object\":\"chat.completion.chunk\",\"created\":1700000000,\
             \"model\":\"bench\",\"choices\":[{\"index\":0,\"delta\":{},\"finish_reason\":\"stop\"}]}\n\n\
             data: [DONE]\n\n"
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_ask_of_a_body_counts() {
        let body = format!("{{\"a\":\"{}\",\"b\":\"{}\"}}", ask(1, 2), ask(200, 5));
        let wanted = Asked { deltas: 200, pause: Duration::from_millis(5) };
        assert_eq!(asked(body.as_bytes()), Some(wanted));
        assert_eq!(asked(b"reply me"), None);
    }
}
