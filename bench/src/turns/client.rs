//! The load: turns over keep-alive connections, many at once, each read to its end and its deltas counted.
//! Plain sockets, so that measuring costs little beside what is measured.

use std::net::SocketAddr;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context as _, bail, ensure};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;

use super::chunked::Chunked;
use super::stamp::Finder;

const PATIENCE: Duration = Duration::from_secs(60);

/// Where turns go and what they look like.
#[derive(Debug, Clone)]
pub struct Target {
    pub address: SocketAddr,
    pub path: &'static str,
    /// Whole header lines, each with its end.
    pub headers: String,
    /// The body's text; `{ask}` becomes what is asked for, `{n}` another number each time.
    pub body: String,
}

impl Target {
    fn request(&self, ask: &str, n: usize) -> Vec<u8> {
        let body = self.body.replace("{ask}", ask).replace("{n}", &n.to_string());
        let Self { address, path, headers, .. } = self;
        format!(
            "POST {path} HTTP/1.1\r\nhost: {address}\r\ncontent-type: application/json\r\n{headers}\
             content-length: {}\r\n\r\n{body}",
            body.len()
        )
        .into_bytes()
    }
}

/// One turn as its reader saw it.
#[derive(Debug)]
pub struct Turn {
    /// From the request to the first delta.
    pub first: Duration,
    /// Microseconds from the upstream's write of a delta to here.
    pub added: Vec<u32>,
}

/// How far an answer is read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Until {
    End,
    FirstDelta,
}

/// Turn after turn until `count` have been begun by all, or the time is over.
pub struct Load<'a> {
    pub target: &'a Target,
    pub ask: &'a str,
    pub deltas: usize,
    pub count: usize,
    pub longest: Duration,
}

impl Load<'_> {
    /// Runs `at_once` connections side by side.
    pub async fn run(&self, at_once: usize) -> anyhow::Result<(Vec<Turn>, Duration)> {
        let (begun, started) = (AtomicUsize::new(0), Instant::now());
        let workers = (0..at_once).map(|_| self.work(&begun, started));
        let done = futures_util::future::try_join_all(workers).await?;
        Ok((done.into_iter().flatten().collect(), started.elapsed()))
    }

    async fn work(&self, begun: &AtomicUsize, started: Instant) -> anyhow::Result<Vec<Turn>> {
        let mut connection = TcpStream::connect(self.target.address).await?;
        connection.set_nodelay(true)?;
        let mut turns = Vec::new();
        while started.elapsed() < self.longest {
            let n = begun.fetch_add(1, Ordering::Relaxed);
            if n >= self.count {
                break;
            }
            let request = self.target.request(self.ask, n);
            let turn = exchange(&mut connection, &request, Until::End).await?;
            ensure!(turn.added.len() >= self.deltas, "{} deltas of {}", turn.added.len(), self.deltas);
            turns.push(Turn { added: turn.added.into_iter().take(self.deltas).collect(), ..turn });
        }
        Ok(turns)
    }
}

/// One turn on a connection of its own.
pub async fn one(target: &Target, ask: &str) -> anyhow::Result<Turn> {
    let mut connection = TcpStream::connect(target.address).await?;
    connection.set_nodelay(true)?;
    exchange(&mut connection, &target.request(ask, 0), Until::End).await
}

/// Opens a stream, waits for its first delta and leaves it open.
pub async fn hold(target: &Target, ask: &str, n: usize) -> anyhow::Result<TcpStream> {
    let mut connection = TcpStream::connect(target.address).await?;
    connection.set_nodelay(true)?;
    exchange(&mut connection, &target.request(ask, n), Until::FirstDelta).await?;
    Ok(connection)
}

async fn exchange(connection: &mut TcpStream, request: &[u8], until: Until) -> anyhow::Result<Turn> {
    let turn = tokio::time::timeout(PATIENCE, unhurried(connection, request, until));
    turn.await.context("a turn took longer than a minute")?
}

async fn unhurried(connection: &mut TcpStream, request: &[u8], until: Until) -> anyhow::Result<Turn> {
    let started = Instant::now();
    connection.write_all(request).await?;
    let mut bytes = Vec::with_capacity(16 * 1024);
    let head = read_head(connection, &mut bytes).await?;
    ensure!(head.contains("transfer-encoding: chunked"), "not a stream: {head}");
    let (mut chunks, mut finder, mut first) = (Chunked::default(), Finder::default(), None);
    loop {
        let over = chunks.take(&bytes, |body| finder.feed(body))?;
        if first.is_none() && !finder.added.is_empty() {
            first = Some(started.elapsed());
        }
        if over || (until == Until::FirstDelta && first.is_some()) {
            let first = first.context("an answer without a delta")?;
            return Ok(Turn { first, added: finder.added });
        }
        bytes.clear();
        ensure!(connection.read_buf(&mut bytes).await? > 0, "the connection ended within an answer");
    }
}

/// The head in lower case; what came after it is left in `bytes`.
async fn read_head(connection: &mut TcpStream, bytes: &mut Vec<u8>) -> anyhow::Result<String> {
    let end = loop {
        if let Some(at) = bytes.windows(4).position(|four| four == b"\r\n\r\n") {
            break at + 4;
        }
        ensure!(connection.read_buf(bytes).await? > 0, "the connection ended before an answer");
    };
    let head = String::from_utf8_lossy(&bytes[..end]).to_ascii_lowercase();
    if !head.starts_with("http/1.1 200") {
        bail!("refused: {}", String::from_utf8_lossy(bytes));
    }
    bytes.drain(..end);
    Ok(head)
}
