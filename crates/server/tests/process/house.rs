//! A data folder, perhaps a database, and the binary to run on them; a caller to talk to the server.

use std::path::Path;

use domain::time::{Clock as _, SystemClock};
use nix::sys::signal::Signal;
use reqwest::{Client, Method};
use serde_json::{Value, json};
use tempfile::TempDir;
use testkit::postgres::{TestDatabase, database};
use testkit::process::{ServerProcess, command};
use testkit::server::Answer;

pub const BINARY: &str = env!("CARGO_BIN_EXE_threadkeep");
pub const CONVERSATIONS: &str = "/v1/chat-conversations";
pub const MEDIA: &str = "application/vnd.api+json";

/// Settings in the environment.
pub type Env<'a> = [(&'a str, &'a str)];

/// Where a story happens. Both are removed with the value.
pub struct House {
    data: TempDir,
    database: Option<TestDatabase>,
}

/// What a command that has ended said.
#[derive(Debug)]
pub struct Ran {
    pub code: Option<i32>,
    pub stdout: String,
    pub stderr: String,
}

impl House {
    pub fn sqlite() -> Self {
        Self { data: tempfile::tempdir().expect("a temporary folder"), database: None }
    }

    /// `None`, said aloud, where there is no PostgreSQL.
    pub async fn postgres() -> Option<Self> {
        let database = Some(database().await?);
        Some(Self { database, ..Self::sqlite() })
    }

    pub fn data(&self) -> &Path {
        self.data.path()
    }

    pub fn database(&self) -> Option<&TestDatabase> {
        self.database.as_ref()
    }

    /// A file of the data folder as text, without the space around it.
    pub fn file(&self, name: &str) -> String {
        std::fs::read_to_string(self.data().join(name)).expect(name).trim().to_owned()
    }

    fn env<'a>(&'a self, more: &[(&'a str, &'a str)]) -> Vec<(&'a str, &'a str)> {
        let url = self.database.as_ref().map(|database| ("DATABASE_URL", database.url()));
        url.into_iter().chain(more.iter().copied()).collect()
    }

    pub async fn serve(&self) -> ServerProcess {
        self.serve_with(&[]).await
    }

    pub async fn serve_with(&self, env: &[(&str, &str)]) -> ServerProcess {
        let started = ServerProcess::start(Path::new(BINARY), &self.env(env), self.data()).await;
        started.unwrap_or_else(|error| panic!("the server did not start: {error:#}"))
    }

    /// Runs one command line to its end, which must come soon.
    pub async fn run(&self, args: &[&str], env: &[(&str, &str)]) -> Ran {
        let mut command = command(Path::new(BINARY), &self.env(env), self.data());
        let soon = std::time::Duration::from_secs(30);
        let ended = tokio::time::timeout(soon, command.args(args).output()).await;
        let output = ended.unwrap_or_else(|_| panic!("{args:?} does not end")).expect("the binary runs");
        let text = |bytes| String::from_utf8(bytes).expect("UTF-8");
        Ran { code: output.status.code(), stdout: text(output.stdout), stderr: text(output.stderr) }
    }

    /// Whoever holds this folder's `local.key`.
    pub fn caller(&self, server: &ServerProcess) -> Caller {
        Caller::new(server.url(), &self.file("local.key"))
    }
}

impl Ran {
    /// The one JSON document that was printed, a list.
    pub fn json_list(&self) -> Vec<Value> {
        let parsed = serde_json::from_str(&self.stdout);
        parsed.unwrap_or_else(|error| panic!("{error}: {}", self.stdout))
    }

    /// The JSON of every line.
    pub fn json_lines(&self) -> Vec<Value> {
        let parse = |line| serde_json::from_str(line).unwrap_or_else(|error| panic!("{error}: {line}"));
        self.stdout.lines().map(parse).collect()
    }
}

pub fn client() -> Client {
    let builder = Client::builder().no_proxy().redirect(reqwest::redirect::Policy::none());
    builder.build().expect("a client")
}

#[derive(Clone)]
pub struct Caller {
    client: Client,
    url: String,
    bearer: String,
}

impl Caller {
    pub fn new(url: &str, bearer: &str) -> Self {
        Self { client: client(), url: url.to_owned(), bearer: bearer.to_owned() }
    }

    /// An error is a request that got no whole answer.
    pub async fn send(&self, method: Method, path: &str, body: Option<&Value>) -> anyhow::Result<Answer> {
        let mut request =
            self.client.request(method, format!("{}{path}", self.url)).bearer_auth(&self.bearer);
        if let Some(body) = body {
            let kind = if path.starts_with(CONVERSATIONS) { MEDIA } else { "application/json" };
            request = request.header("content-type", kind).body(body.to_string());
        }
        Answer::read(request.send().await?).await
    }

    pub async fn get(&self, path: &str) -> Answer {
        self.send(Method::GET, path, None).await.expect("an answer")
    }

    /// Sends a form with one file; what was answered.
    pub async fn upload(&self, path: &str, name: &str, text: &str) -> String {
        let body = format!(
            "--b\r\nContent-Disposition: form-data; name=\"file\"; filename=\"{name}\"\r\n\r\n{text}\r\n--b--\r\n"
        );
        let request = self.client.post(format!("{}{path}", self.url)).bearer_auth(&self.bearer);
        let request = request.header("content-type", "multipart/form-data; boundary=b").body(body);
        request.send().await.expect("an answer").text().await.expect("a body")
    }

    /// Starts a turn that nobody waits for; its ids and status.
    pub async fn start_turn(&self, body: &Value) -> Value {
        let request = self.client.post(format!("{}/v1/turns", self.url)).bearer_auth(&self.bearer);
        let request = request.header("prefer", "respond-async").json(body);
        let answer = Answer::read(request.send().await.expect("an answer")).await.expect("a body");
        assert_eq!(answer.status, 202, "{}", answer.text);
        answer.body
    }

    pub async fn create(&self, attributes: Value) -> Answer {
        let document = document(None, attributes);
        self.send(Method::POST, CONVERSATIONS, Some(&document)).await.expect("an answer")
    }
}

pub fn document(id: Option<&str>, attributes: Value) -> Value {
    let mut data = json!({ "type": "chat_conversation", "attributes": attributes });
    if let Some(id) = id {
        data["id"] = id.into();
    }
    json!({ "data": data })
}

pub fn new_id() -> String {
    SystemClock.new_id().to_string()
}

pub fn random(below: u64) -> u64 {
    let mut bytes = [0; 8];
    getrandom::fill(&mut bytes).expect("randomness");
    u64::from_le_bytes(bytes) % below
}

/// Sends a signal and checks that the server ends well.
pub async fn stop_well(server: &mut ServerProcess, signal: Signal) {
    server.signal(signal).expect("a signal");
    let status = server.ended().await.expect("an end");
    assert_eq!(status.code(), Some(0), "{}", server.output());
}
