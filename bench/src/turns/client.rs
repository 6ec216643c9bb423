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

const PATIENCE: Duration = Duration::from_secs(20);
/// How much of an answer is kept for an error message.
const SHOWN: usize = 2000;

/// Where turns go and what they look like.
#[derive(Debug, Clone)]
pub struct Target {
    pub address: SocketAddr,
    pub path: &'static str,
    /// Whole header lines, each with its end, of every caller; the calls go round.
    pub callers: Vec<String>,
    /// The body's text; `{ask}` becomes what is asked for, `{n}` another number each time.
    pub body: String,
}

impl Target {
    fn request(&self, ask: &str, n: usize) -> Vec<u8> {
        let body = self.body.replace("{ask}", ask).replace("{n}", &n.to_string());
        let Self { address, path, .. } = self;
        let headers = self.caller(n);
        format!(
            "POST {path} HTTP/1.1\r\nhost: {address}\r\ncontent-type: application/json\r\n{headers}\
             content-length: {}\r\n\r\n{body}",
            body.len()
        )
        .into_bytes()
    }

    fn caller(&self, n: usize) -> &str {
        self.callers.get(n % self.callers.len().max(1)).map_or("", String::as_str)
    }

    async fn connect(&self) -> anyhow::Result<TcpStream> {
        let connection = TcpStream::connect(self.address).await?;
        connection.set_nodelay(true)?;
        Ok(connection)
    }
}

/// One turn as its reader saw it.
#[derive(Debug)]
pub struct Turn {
    /// From the request to the body's first byte.
    pub first_byte: Duration,
    /// From the request to the first delta.
    pub first_delta: Duration,
    /// The run's id, where the answer's head says one.
    run: Option<String>,
    /// Microseconds from the upstream's write of each delta to here, where it says when that was.
    pub added: Vec<Option<u32>>,
}

/// How far an answer is read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Until {
    End,
    FirstDelta,
}

/// Turn after turn, none begun after `longest`.
pub struct Load<'a> {
    pub target: &'a Target,
    pub ask: &'a str,
    pub deltas: usize,
    pub longest: Duration,
    /// The connections begin their first turns spread over this time.
    pub spread: Duration,
}

impl Load<'_> {
    /// Runs `at_once` connections side by side.
    pub async fn run(&self, at_once: usize) -> anyhow::Result<(Vec<Turn>, Duration)> {
        let (begun, started) = (AtomicUsize::new(0), Instant::now());
        let place = |index: usize| self.spread.mul_f64(index as f64 / at_once as f64);
        let workers = (0..at_once).map(|index| self.work(&begun, started, place(index)));
        let done = futures_util::future::try_join_all(workers).await?;
        Ok((done.into_iter().flatten().collect(), started.elapsed()))
    }

    async fn work(
        &self,
        begun: &AtomicUsize,
        started: Instant,
        after: Duration,
    ) -> anyhow::Result<Vec<Turn>> {
        tokio::time::sleep(after).await;
        let mut connection = self.target.connect().await?;
        let mut turns = Vec::new();
        while started.elapsed() < self.longest {
            let n = begun.fetch_add(1, Ordering::Relaxed);
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
    exchange(&mut target.connect().await?, &target.request(ask, 0), Until::End).await
}

/// A stream that has had its first delta and stays open.
pub struct Held {
    connection: TcpStream,
    pub run: Option<String>,
}

impl Held {
    /// Nothing but a heartbeat can be there to read.
    pub fn is_open(&self) -> bool {
        !matches!(self.connection.try_read(&mut [0; 64]), Ok(0))
    }
}

/// Opens a stream by a turn of its own.
pub async fn hold(target: &Target, ask: &str, n: usize) -> anyhow::Result<Held> {
    let mut connection = target.connect().await?;
    let turn = exchange(&mut connection, &target.request(ask, n), Until::FirstDelta).await?;
    Ok(Held { connection, run: turn.run })
}

/// Opens one more stream of caller `n`'s run.
pub async fn hold_too(target: &Target, run: &str, n: usize) -> anyhow::Result<Held> {
    let mut connection = target.connect().await?;
    let (address, headers) = (target.address, target.caller(n));
    let request =
        format!("GET /v1/runs/{run}/events?wire=envelope HTTP/1.1\r\nhost: {address}\r\n{headers}\r\n");
    exchange(&mut connection, request.as_bytes(), Until::FirstDelta).await?;
    Ok(Held { connection, run: None })
}

async fn exchange(connection: &mut TcpStream, request: &[u8], until: Until) -> anyhow::Result<Turn> {
    let turn = tokio::time::timeout(PATIENCE, unhurried(connection, request, until));
    turn.await.context("a turn took longer than 20 s")?
}

async fn unhurried(connection: &mut TcpStream, request: &[u8], until: Until) -> anyhow::Result<Turn> {
    let started = Instant::now();
    connection.write_all(request).await?;
    let mut bytes = Vec::with_capacity(16 * 1024);
    let head = read_head(connection, &mut bytes).await?;
    ensure!(head.contains("transfer-encoding: chunked"), "not a stream: {head}");
    let run = head.lines().find_map(|line| line.strip_prefix("threadkeep-run: ")).map(str::to_owned);
    let (mut chunks, mut finder) = (Chunked::default(), Finder::default());
    let (mut first_byte, mut first_delta, mut said) = (None, None, Vec::new());
    loop {
        let over = chunks.take(&bytes, |body| {
            first_byte.get_or_insert_with(|| started.elapsed());
            said.extend_from_slice(&body[..body.len().min(SHOWN.saturating_sub(said.len()))]);
            finder.feed(body);
        })?;
        if !finder.added.is_empty() {
            first_delta.get_or_insert_with(|| started.elapsed());
        }
        if over || (until == Until::FirstDelta && first_delta.is_some()) {
            let (Some(first_byte), Some(first_delta)) = (first_byte, first_delta) else {
                bail!("an answer without a delta: {}", String::from_utf8_lossy(&said));
            };
            return Ok(Turn { first_byte, first_delta, run, added: finder.added });
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
