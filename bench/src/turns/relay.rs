//! The bare relay: what a turn costs when next to nothing is promised. It forwards the request to its upstream, a
//! sandbox or a model, reads the lines, sends the deltas on, and at the end, before the last event, commits two rows:
//! what was said and what was answered, found again by their thread, in SQLite (`synchronous = FULL`) or PostgreSQL. One
//! writer, group commit. No sign-in, no log, no resume. Without a database it only hands the bytes on. One that accepts
//! commits what was said by itself, before it asks its upstream or answers: what a first byte costs that promises something.

use std::io::Write as _;
use std::path::Path;
use std::sync::Arc;

use anyhow::Context as _;
use bytes::Bytes;
use futures_util::stream;
use http_body_util::{BodyExt as _, Full, StreamBody};
use hyper::body::{Frame, Incoming};
use hyper::service::service_fn;
use hyper::{Request, Response, Uri};
use hyper_util::client::legacy::Client;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::{TokioExecutor, TokioIo};
use rusqlite::{Connection, OpenFlags};
use serde::Deserialize;
use tokio::net::TcpListener;
use tokio::sync::{mpsc, oneshot};
use tokio::task::JoinSet;
use tokio_postgres::NoTls;
use uuid::Uuid;

#[derive(Deserialize)]
#[serde(tag = "type", rename_all = "lowercase")]
enum Line {
    Delta { text: String },
    Result { message: String },
}

/// What a model's line holds; of everything else in it nothing is read.
#[derive(Deserialize)]
struct Chunk {
    choices: Vec<Choice>,
}

#[derive(Deserialize)]
struct Choice {
    delta: Delta,
}

#[derive(Deserialize)]
struct Delta {
    content: Option<String>,
}

struct Relay {
    client: Client<HttpConnector, Full<Bytes>>,
    upstream: Uri,
    /// None: nothing is read and nothing is kept.
    saves: Option<mpsc::UnboundedSender<Save>>,
    /// What was said is kept before anything is answered.
    accepts: bool,
}

/// Rows of one thread, each with its role, to be kept together.
struct Save {
    rows: Vec<(&'static str, String)>,
    saved: oneshot::Sender<()>,
}

/// Serves until it is killed; says its address first.
pub async fn run(upstream: &str, database: Option<&str>, accepts: bool) -> anyhow::Result<()> {
    let saves = match database {
        Some(url) if url.starts_with("postgres://") => Some(start_postgres(url).await?),
        Some(file) => Some(start_sqlite(Path::new(file))?),
        None => None,
    };
    let mut connector = HttpConnector::new();
    connector.set_nodelay(true);
    let client = Client::builder(TokioExecutor::new()).build(connector);
    let relay = Arc::new(Relay { client, upstream: upstream.parse()?, saves, accepts });
    let listener = TcpListener::bind("127.0.0.1:0").await?;
    writeln!(std::io::stdout(), "http://{}", listener.local_addr()?)?;
    let mut connections = JoinSet::new();
    loop {
        let (stream, _) = listener.accept().await?;
        stream.set_nodelay(true)?;
        let relay = Arc::clone(&relay);
        let service = service_fn(move |request| turn(Arc::clone(&relay), request));
        let serving =
            hyper::server::conn::http1::Builder::new().serve_connection(TokioIo::new(stream), service);
        connections.spawn(async move { serving.await.is_ok() });
        while connections.try_join_next().is_some() {}
    }
}

/// A writer that fails ends, and with it every turn.
fn start_sqlite(file: &Path) -> anyhow::Result<mpsc::UnboundedSender<Save>> {
    let (saves, queue) = mpsc::unbounded_channel();
    let db = open(file)?;
    std::thread::spawn(move || write(&db, queue));
    Ok(saves)
}

fn open(file: &Path) -> anyhow::Result<Connection> {
    let flags = OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_CREATE;
    let db = Connection::open_with_flags(file, flags)?;
    db.execute_batch(
        "PRAGMA journal_mode = WAL; PRAGMA synchronous = FULL; \
         CREATE TABLE said (id INTEGER PRIMARY KEY, thread TEXT NOT NULL, role TEXT NOT NULL, text TEXT NOT NULL); \
         CREATE INDEX said_in ON said (thread, id)",
    )?;
    Ok(db)
}

/// What has gathered while the last commit was under way shares the next one.
fn write(db: &Connection, mut queue: mpsc::UnboundedReceiver<Save>) -> rusqlite::Result<()> {
    let (mut saves, mut threads) = (Vec::new(), threads());
    while queue.blocking_recv_many(&mut saves, 256) > 0 {
        let transaction = db.unchecked_transaction()?;
        let mut insert = db.prepare_cached("INSERT INTO said (thread, role, text) VALUES (?1, ?2, ?3)")?;
        for save in &saves {
            let thread = threads.next();
            for (role, text) in &save.rows {
                insert.execute((&thread, role, text))?;
            }
        }
        transaction.commit()?;
        for save in saves.drain(..) {
            let _ = save.saved.send(());
        }
    }
    Ok(())
}

/// As on SQLite: one writer, and one statement, which is a commit, for what has gathered.
async fn start_postgres(url: &str) -> anyhow::Result<mpsc::UnboundedSender<Save>> {
    let (saves, mut queue) = mpsc::unbounded_channel();
    let (db, connection) = tokio_postgres::connect(url, NoTls).await?;
    let mut tasks = JoinSet::new();
    tasks.spawn(async move { connection.await.map_err(anyhow::Error::from) });
    db.batch_execute(
        "CREATE TABLE said (id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY, thread text NOT NULL, \
         role text NOT NULL, text text NOT NULL); \
         CREATE INDEX said_in ON said (thread, id)",
    )
    .await?;
    let insert = db
        .prepare(
            "INSERT INTO said (thread, role, text) SELECT * FROM unnest($1::text[], $2::text[], $3::text[])",
        )
        .await?;
    tasks.spawn(async move {
        let (mut saves, mut threads) = (Vec::<Save>::new(), threads());
        while queue.recv_many(&mut saves, 256).await > 0 {
            let ids = saves.iter().flat_map(|save| std::iter::repeat_n(threads.next(), save.rows.len()));
            let ids: Vec<String> = ids.flatten().collect();
            let roles: Vec<&str> = saves.iter().flat_map(|save| &save.rows).map(|(role, _)| *role).collect();
            let texts: Vec<&str> =
                saves.iter().flat_map(|save| &save.rows).map(|(_, text)| &**text).collect();
            db.execute(&insert, &[&ids, &roles, &texts]).await?;
            for save in saves.drain(..) {
                let _ = save.saved.send(());
            }
        }
        Ok(())
    });
    tasks.detach_all();
    Ok(saves)
}

/// Ids of threads, spread as random ones are, so that the index is written to where theirs would be.
fn threads() -> impl Iterator<Item = String> {
    const STEP: u128 = 0x9e37_79b9_7f4a_7c15_f39c_c060_5ced_c835;
    std::iter::successors(Some(STEP), |last| Some(last.wrapping_add(STEP)))
        .map(|id| Uuid::from_u128(id).to_string())
}

/// The upstream's answer ended early.
#[derive(Debug)]
struct Broken;

impl std::fmt::Display for Broken {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("the upstream ended early")
    }
}

impl std::error::Error for Broken {}

type Answer = Response<http_body_util::combinators::UnsyncBoxBody<Bytes, Broken>>;

async fn turn(relay: Arc<Relay>, request: Request<Incoming>) -> anyhow::Result<Answer> {
    let said = request.into_body().collect().await?.to_bytes();
    if relay.accepts {
        relay.save(vec![("user", String::from_utf8(said.to_vec())?)]).await?;
    }
    let forwarded = Request::post(relay.upstream.clone())
        .header("content-type", "application/json")
        .body(Full::new(said.clone()))?;
    let upstream = relay.client.request(forwarded).await?.into_body();
    if relay.saves.is_none() {
        let body = upstream.map_err(|_| Broken).boxed_unsync();
        return Ok(Response::builder().header("content-type", "text/event-stream").body(body)?);
    }
    let said = String::from_utf8(said.into())?;
    let under_way =
        UnderWay { relay, upstream, held: Vec::new(), said, answered: String::new(), over: false };
    let frames = stream::unfold(under_way, |mut under_way| async move {
        // An upstream that fails ends the stream early, which the load client notices.
        let bytes = under_way.next().await.ok()??;
        Some((Ok::<_, Broken>(Frame::data(bytes)), under_way))
    });
    let body = StreamBody::new(frames).boxed_unsync();
    Ok(Response::builder().header("content-type", "text/event-stream").body(body)?)
}

/// A sandbox's line or a model's; none for one that says nothing.
fn read(line: &[u8]) -> anyhow::Result<Option<Line>> {
    if let Some(data) = line.strip_prefix(b"data: ") {
        if data == b"[DONE]" {
            return Ok(Some(Line::Result { message: String::new() }));
        }
        let chunk: Chunk = serde_json::from_slice(data)?;
        let said = chunk.choices.into_iter().next().and_then(|choice| choice.delta.content);
        return Ok(said.map(|text| Line::Delta { text }));
    }
    if line.is_empty() { Ok(None) } else { Ok(Some(serde_json::from_slice(line)?)) }
}

struct UnderWay {
    relay: Arc<Relay>,
    upstream: Incoming,
    held: Vec<u8>,
    said: String,
    answered: String,
    over: bool,
}

impl UnderWay {
    async fn next(&mut self) -> anyhow::Result<Option<Bytes>> {
        let mut out = Vec::new();
        while !self.over && out.is_empty() {
            let frame = self.upstream.frame().await.context("the upstream ended early")??;
            if let Some(data) = frame.data_ref() {
                self.held.extend_from_slice(data);
                self.lines(&mut out)?;
            }
            if self.over {
                self.save().await?;
                out.extend_from_slice(b"event: done\ndata: {}\n\n");
            }
        }
        Ok((!out.is_empty()).then(|| out.into()))
    }

    fn lines(&mut self, out: &mut Vec<u8>) -> anyhow::Result<()> {
        let mut start = 0;
        while let Some(length) = self.held[start..].iter().position(|byte| *byte == b'\n') {
            if let Some(line) = read(&self.held[start..start + length])? {
                match line {
                    Line::Delta { text } => {
                        self.answered.push_str(&text);
                        out.extend_from_slice(b"event: delta\ndata: {\"text\":");
                        serde_json::to_writer(&mut *out, &text)?;
                        out.extend_from_slice(b"}\n\n");
                    }
                    Line::Result { message } => {
                        self.answered.push_str(&message);
                        self.over = true;
                    }
                }
            }
            start += length + 1;
        }
        self.held.drain(..start);
        Ok(())
    }

    async fn save(&mut self) -> anyhow::Result<()> {
        let said = ("user", std::mem::take(&mut self.said));
        let answered = ("assistant", std::mem::take(&mut self.answered));
        self.relay.save(if self.relay.accepts { vec![answered] } else { vec![said, answered] }).await
    }
}

impl Relay {
    async fn save(&self, rows: Vec<(&'static str, String)>) -> anyhow::Result<()> {
        let (saved, waiting) = oneshot::channel();
        let saves = self.saves.as_ref().context("there is no writer")?;
        saves.send(Save { rows, saved }).ok().context("the writer has ended")?;
        Ok(waiting.await?)
    }
}
