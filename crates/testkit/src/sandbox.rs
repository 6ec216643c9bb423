//! A sandbox that follows a script, over a real socket: every byte it sends is the test's choice, and it
//! remembers what was asked of it and when its caller went away.

use std::collections::{HashMap, VecDeque};
use std::io;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use anyhow::{Context as _, bail};
use serde_json::Value;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::tcp::{ReadHalf, WriteHalf};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio::task::JoinSet;

/// Bytes of one write when a script repeats or floods; what it holds in memory at most.
const WRITE_BYTES: usize = 64 * 1024;
const MAX_REQUEST_BYTES: usize = 64 * 1024 * 1024;

/// One thing a script does. The request has been read before the first of them.
#[derive(Clone)]
pub enum Action {
    /// A status line (`200 OK`) and headers; the body then ends with the connection unless a header
    /// says otherwise.
    Headers(&'static str, Vec<(&'static str, String)>),
    /// As `Headers`, and every later `Bytes`, `Line`, `Lines` and `Trickle` is sent in HTTP chunks.
    Chunked(&'static str, Vec<(&'static str, String)>),
    /// Body bytes.
    Bytes(Vec<u8>),
    /// Bytes as they are, whatever the framing.
    Raw(Vec<u8>),
    /// A JSON value and a newline.
    Line(Value),
    /// This many lines, made from their number (from 0).
    Lines(u64, fn(u64) -> String),
    /// This byte, this many times.
    Flood(u8, u64),
    /// These bytes, one at a time, with this pause after each.
    Trickle(Vec<u8>, Duration),
    Wait(Duration),
    /// Until the test says so.
    WaitFor(Release),
    /// Does what the test wants with the envelope; the lines that it answers are sent.
    Call(Arc<dyn Fn(Value) -> Called + Send + Sync>),
    /// The last, empty chunk.
    EndChunks,
    /// No more is sent, but the connection stays open for the other side.
    CloseWrite,
    /// The connection is torn down (RST), not closed.
    Reset,
    Hang,
}

/// What a sandbox does of its own, and the lines that it says then.
pub type Called = Pin<Box<dyn Future<Output = Vec<Value>> + Send>>;

/// A gate a script waits at. Once opened it stays open.
#[derive(Clone)]
pub struct Release(Arc<watch::Sender<bool>>);

impl Default for Release {
    fn default() -> Self {
        Self(Arc::new(watch::Sender::new(false)))
    }
}

impl Release {
    pub fn open(&self) {
        self.0.send_replace(true);
    }

    async fn wait(&self) {
        // The sender is held by `self`, so this ends only with the value.
        let _ = self.0.subscribe().wait_for(|open| *open).await;
    }
}

#[derive(Debug, Clone, Default)]
pub struct Recorded {
    pub method: String,
    pub path: String,
    /// Names in lower case, in the order they came.
    pub headers: Vec<(String, String)>,
    pub body: Value,
    /// When it had come.
    pub arrived: Option<Instant>,
    /// When the caller closed the connection, or the script reset it; none while it is there.
    pub disconnected: Option<Instant>,
}

impl Recorded {
    pub fn header(&self, name: &str) -> Option<&str> {
        self.headers.iter().find(|(key, _)| key == name).map(|(_, value)| value.as_str())
    }
}

/// Its tasks end when it is dropped.
pub struct ScriptedSandbox {
    address: SocketAddr,
    shared: Arc<Shared>,
    _tasks: JoinSet<()>,
}

struct Shared {
    scripts: Mutex<VecDeque<Vec<Action>>>,
    /// By the text of the message.
    told: Mutex<HashMap<String, Vec<Action>>>,
    requests: watch::Sender<Vec<Recorded>>,
}

impl ScriptedSandbox {
    /// Every connection is answered with `script` until `then` adds others.
    pub async fn start(script: Vec<Action>) -> anyhow::Result<Self> {
        let listener =
            TcpListener::bind(("127.0.0.1", 0)).await.context("a port for the scripted sandbox")?;
        let address = listener.local_addr().context("the scripted sandbox's own address")?;
        let shared = Arc::new(Shared {
            scripts: Mutex::new(VecDeque::from([script])),
            told: Mutex::default(),
            requests: watch::Sender::new(Vec::new()),
        });
        let mut tasks = JoinSet::new();
        tasks.spawn(accept(listener, Arc::clone(&shared)));
        Ok(Self { address, shared, _tasks: tasks })
    }

    /// The script of the connection after the ones already scripted; the last one repeats.
    pub fn then(&self, script: Vec<Action>) {
        self.shared.scripts().push_back(script);
    }

    /// The script of the next connection that has none of its own yet; the last one goes on repeating after it.
    pub fn play(&self, script: Vec<Action>) {
        let mut scripts = self.shared.scripts();
        let before_last = scripts.len().saturating_sub(1);
        scripts.insert(before_last, script);
    }

    /// The script of every connection with this message, whatever the others get: runs that come in any order.
    pub fn when_told(&self, message: &str, script: Vec<Action>) {
        self.shared.told().insert(message.to_owned(), script);
    }

    /// What `SANDBOX_URL` is set to.
    pub fn url(&self) -> String {
        format!("http://{}", self.address)
    }

    pub fn requests(&self) -> Vec<Recorded> {
        self.shared.requests.borrow().clone()
    }

    /// The request with this number (from 0), once it is there.
    pub async fn request(&self, number: usize) -> anyhow::Result<Recorded> {
        self.when(number, |_| true).await
    }

    /// The request with this number, once its connection is gone.
    pub async fn disconnected(&self, number: usize) -> anyhow::Result<Recorded> {
        self.when(number, |request| request.disconnected.is_some()).await
    }

    async fn when(&self, number: usize, ready: impl Fn(&Recorded) -> bool) -> anyhow::Result<Recorded> {
        let mut seen = self.shared.requests.subscribe();
        let all = seen.wait_for(|all| all.get(number).is_some_and(&ready)).await?;
        all.get(number).cloned().context("a request that was there is gone")
    }
}

impl Shared {
    fn scripts(&self) -> MutexGuard<'_, VecDeque<Vec<Action>>> {
        self.scripts.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn told(&self) -> MutexGuard<'_, HashMap<String, Vec<Action>>> {
        self.told.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn next_script(&self, envelope: &Value) -> Vec<Action> {
        let told = envelope["message"]["content"].as_str().unwrap_or_default();
        if let Some(script) = self.told().get(told) {
            return script.clone();
        }
        let mut scripts = self.scripts();
        if scripts.len() > 1 { scripts.pop_front() } else { scripts.front().cloned() }.unwrap_or_default()
    }
}

async fn accept(listener: TcpListener, shared: Arc<Shared>) {
    let mut connections = JoinSet::new();
    while let Ok((socket, _)) = listener.accept().await {
        while connections.try_join_next().is_some() {}
        connections.spawn(serve(socket, Arc::clone(&shared)));
    }
}

async fn serve(mut socket: TcpStream, shared: Arc<Shared>) {
    let Ok(request) = read_request(&mut socket).await else { return };
    let request = Recorded { arrived: Some(Instant::now()), ..request };
    let (script, envelope) = (shared.next_script(&request.body), request.body.clone());
    let mut number = 0;
    shared.requests.send_modify(|all| {
        number = all.len();
        all.push(request);
    });
    let (mut reader, writer) = socket.split();
    let reset = tokio::select! {
        reset = play(script, envelope, writer) => reset,
        () = gone(&mut reader) => false,
    };
    if reset {
        let _ = socket.set_zero_linger();
    }
    drop(socket);
    shared.requests.send_modify(|all| {
        if let Some(request) = all.get_mut(number) {
            request.disconnected = Some(Instant::now());
        }
    });
}

/// Returns when the other side has closed or broken the connection.
async fn gone(reader: &mut ReadHalf<'_>) {
    let mut scrap = [0; 1024];
    while matches!(reader.read(&mut scrap).await, Ok(read) if read > 0) {}
}

/// True when the connection is to be reset. A script that is through closes its side and waits.
async fn play(script: Vec<Action>, envelope: Value, mut writer: WriteHalf<'_>) -> bool {
    let mut out = Out { writer: &mut writer, envelope, chunked: false };
    for action in script {
        if matches!(action, Action::Reset) {
            return true;
        }
        if out.act(action).await.is_err() {
            break;
        }
    }
    let _ = writer.shutdown().await;
    std::future::pending().await
}

struct Out<'w, 's> {
    writer: &'w mut WriteHalf<'s>,
    envelope: Value,
    chunked: bool,
}

impl Out<'_, '_> {
    async fn act(&mut self, action: Action) -> io::Result<()> {
        match action {
            Action::Headers(status, headers) => self.head(status, headers).await,
            Action::Chunked(status, mut headers) => {
                headers.push(("transfer-encoding", "chunked".to_owned()));
                self.head(status, headers).await?;
                self.chunked = true;
                Ok(())
            }
            Action::Bytes(bytes) => self.body(&bytes).await,
            Action::Raw(bytes) => self.writer.write_all(&bytes).await,
            Action::Line(value) => self.body(format!("{value}\n").as_bytes()).await,
            Action::Lines(count, line) => self.lines(count, line).await,
            Action::Flood(byte, count) => self.flood(byte, count).await,
            Action::Trickle(bytes, pause) => {
                for byte in bytes {
                    self.body(&[byte]).await?;
                    tokio::time::sleep(pause).await;
                }
                Ok(())
            }
            Action::Wait(pause) => {
                tokio::time::sleep(pause).await;
                Ok(())
            }
            Action::WaitFor(release) => {
                release.wait().await;
                Ok(())
            }
            Action::Call(call) => {
                for line in call(self.envelope.clone()).await {
                    self.body(format!("{line}\n").as_bytes()).await?;
                }
                Ok(())
            }
            Action::EndChunks => self.writer.write_all(b"0\r\n\r\n").await,
            Action::CloseWrite => self.writer.shutdown().await,
            Action::Hang | Action::Reset => std::future::pending().await,
        }
    }

    async fn head(&mut self, status: &str, headers: Vec<(&str, String)>) -> io::Result<()> {
        let mut head = format!("HTTP/1.1 {status}\r\n");
        for (name, value) in headers {
            head.push_str(&format!("{name}: {value}\r\n"));
        }
        head.push_str("\r\n");
        self.writer.write_all(head.as_bytes()).await
    }

    async fn body(&mut self, bytes: &[u8]) -> io::Result<()> {
        if !self.chunked {
            return self.writer.write_all(bytes).await;
        }
        let framed = [format!("{:x}\r\n", bytes.len()).as_bytes(), bytes, b"\r\n"].concat();
        self.writer.write_all(&framed).await
    }

    /// Each line is its own chunk when chunked; writes are gathered either way.
    async fn lines(&mut self, count: u64, line: fn(u64) -> String) -> io::Result<()> {
        let mut gathered = Vec::with_capacity(WRITE_BYTES);
        for number in 0..count {
            let line = line(number);
            if self.chunked {
                gathered.extend_from_slice(format!("{:x}\r\n{line}\n\r\n", line.len() + 1).as_bytes());
            } else {
                gathered.extend_from_slice(line.as_bytes());
                gathered.push(b'\n');
            }
            if gathered.len() >= WRITE_BYTES {
                self.writer.write_all(&gathered).await?;
                gathered.clear();
            }
        }
        self.writer.write_all(&gathered).await
    }

    async fn flood(&mut self, byte: u8, count: u64) -> io::Result<()> {
        let block = vec![byte; WRITE_BYTES];
        let mut left = count;
        while left > 0 {
            let now = usize::try_from(left).unwrap_or(WRITE_BYTES).min(WRITE_BYTES);
            self.body(&block[..now]).await?;
            left -= now as u64;
        }
        Ok(())
    }
}

async fn read_request(socket: &mut TcpStream) -> anyhow::Result<Recorded> {
    let mut bytes = Vec::new();
    loop {
        if let Some(request) = request(&bytes)? {
            return Ok(request);
        }
        if bytes.len() > MAX_REQUEST_BYTES || socket.read_buf(&mut bytes).await? == 0 {
            bail!("the request did not come whole");
        }
    }
}

/// The request, when all of it is there. Bodies have a `content-length`.
fn request(bytes: &[u8]) -> anyhow::Result<Option<Recorded>> {
    let Some(end) = bytes.windows(4).position(|window| window == b"\r\n\r\n") else { return Ok(None) };
    let head = std::str::from_utf8(&bytes[..end])?;
    let mut lines = head.split("\r\n");
    let mut words = lines.next().unwrap_or_default().split(' ');
    let mut request = Recorded {
        method: words.next().unwrap_or_default().to_owned(),
        path: words.next().unwrap_or_default().to_owned(),
        ..Recorded::default()
    };
    for (name, value) in lines.filter_map(|line| line.split_once(':')) {
        request.headers.push((name.to_ascii_lowercase(), value.trim().to_owned()));
    }
    let length: usize = request.header("content-length").unwrap_or("0").parse()?;
    let Some(body) = bytes.get(end + 4..end + 4 + length) else { return Ok(None) };
    if length > 0 {
        request.body = serde_json::from_slice(body)?;
    }
    Ok(Some(request))
}
