//! A data folder, perhaps a database, and the binary to run on them; a caller to talk to the server.

use std::path::{Path, PathBuf};
use std::time::Duration;

use reqwest::{Client, Method};
use serde_json::{Value, json};
use tempfile::TempDir;
use testkit::form::Form;
use testkit::postgres::{TestDatabase, database};
use testkit::process::{ServerProcess, command};
use testkit::server::Answer;

pub const BINARY: &str = env!("CARGO_BIN_EXE_threadkeep");
pub const CONVERSATIONS: &str = "/v1/chat-conversations";

/// Where a story happens. All of it is removed with the value.
pub struct House {
    data: TempDir,
    files: TempDir,
    database: Option<TestDatabase>,
}

/// What a command that has ended said.
#[derive(Debug)]
pub struct Ran {
    pub code: Option<i32>,
    pub stdout: String,
    pub stderr: String,
}

impl Ran {
    /// The JSON of the one line on standard output.
    #[track_caller]
    pub fn json(&self) -> Value {
        serde_json::from_str(&self.stdout).unwrap_or_else(|error| panic!("{error}: {self:?}"))
    }
}

impl House {
    pub fn sqlite() -> Self {
        let folder = || tempfile::tempdir().expect("a temporary folder");
        Self { data: folder(), files: folder(), database: None }
    }

    /// `None`, said aloud, where there is no PostgreSQL.
    pub async fn postgres() -> Option<Self> {
        let database = Some(database().await?);
        Some(Self { database, ..Self::sqlite() })
    }

    /// One on each database.
    pub async fn both() -> Vec<Self> {
        [Some(Self::sqlite()), Self::postgres().await].into_iter().flatten().collect()
    }

    /// A path for a file of the story.
    pub fn path(&self, name: &str) -> PathBuf {
        self.files.path().join(name)
    }

    /// A file of the story.
    pub fn write(&self, name: &str, bytes: impl AsRef<[u8]>) -> String {
        let path = self.path(name);
        if let Some(folder) = path.parent() {
            std::fs::create_dir_all(folder).expect("a folder");
        }
        std::fs::write(&path, bytes).expect("written");
        path.to_str().expect("UTF-8").to_owned()
    }

    pub fn command(&self, args: &[&str]) -> tokio::process::Command {
        let env: Vec<(&str, &str)> =
            self.database.iter().map(|database| ("DATABASE_URL", database.url())).collect();
        let mut command = command(Path::new(BINARY), &env, self.data.path());
        command.args(args);
        command
    }

    /// Runs one command line to its end, which must come soon.
    pub async fn run(&self, args: &[&str]) -> Ran {
        let ended = tokio::time::timeout(Duration::from_secs(120), self.command(args).output()).await;
        let output = ended.unwrap_or_else(|_| panic!("{args:?} does not end")).expect("the binary runs");
        let text = |bytes| String::from_utf8(bytes).expect("UTF-8");
        Ran { code: output.status.code(), stdout: text(output.stdout), stderr: text(output.stderr) }
    }

    /// Imports files; the counts that it tells.
    pub async fn import(&self, args: &[&str]) -> Value {
        let ran = self.run(&[&["import", "--json"], args].concat()).await;
        assert_eq!((ran.code, &*ran.stderr), (Some(0), ""), "{args:?}: {ran:?}");
        ran.json()
    }

    /// Everything of the workspace, as lines.
    pub async fn export(&self) -> String {
        let ran = self.run(&["export"]).await;
        assert_eq!(ran.code, Some(0), "{ran:?}");
        ran.stdout
    }

    /// Makes the log of a run in SQLite unreadable.
    #[expect(clippy::disallowed_methods, reason = "past the store, which does no such thing")]
    pub fn damage_log(&self, run: &Value) {
        let run: uuid::Uuid = run.as_str().expect("an id").parse().expect("an id");
        let db = rusqlite::Connection::open(self.data.path().join("threadkeep.db")).expect("the database");
        let text = "UPDATE run_events SET entries = CAST(x'7bff' AS TEXT) WHERE run_id = ?1";
        assert!(db.execute(text, [run]).expect("a change") > 0);
    }

    pub async fn serve(&self, env: &[(&str, &str)]) -> ServerProcess {
        let url = self.database.iter().map(|database| ("DATABASE_URL", database.url()));
        let env: Vec<_> = url.chain(env.iter().copied()).collect();
        let started = ServerProcess::start(Path::new(BINARY), &env, self.data.path()).await;
        started.unwrap_or_else(|error| panic!("the server did not start: {error:#}"))
    }

    /// Whoever holds this folder's `local.key`.
    pub fn caller(&self, server: &ServerProcess) -> Caller {
        let key = std::fs::read_to_string(self.data.path().join("local.key")).expect("local.key");
        Caller { client: client(), url: server.url().to_owned(), key: key.trim().to_owned() }
    }
}

pub fn random(below: u64) -> u64 {
    let mut bytes = [0; 8];
    getrandom::fill(&mut bytes).expect("randomness");
    u64::from_le_bytes(bytes) % below
}

fn client() -> Client {
    Client::builder().no_proxy().build().expect("a client")
}

pub struct Caller {
    client: Client,
    url: String,
    key: String,
}

impl Caller {
    pub fn request(&self, method: Method, path: &str) -> reqwest::RequestBuilder {
        self.client.request(method, format!("{}{path}", self.url)).bearer_auth(&self.key)
    }

    pub async fn get(&self, path: &str) -> Answer {
        Answer::read(self.request(Method::GET, path).send().await.expect("sent")).await.expect("an answer")
    }

    /// Sends JSON; what comes back must be a success.
    pub async fn send(&self, method: Method, path: &str, body: &Value) -> Value {
        let jsonapi = path.starts_with(CONVERSATIONS) && !path.contains("/branches");
        let kind = if jsonapi { "application/vnd.api+json" } else { "application/json" };
        let request = self.request(method, path).header("content-type", kind).body(body.to_string());
        let answer = Answer::read(request.send().await.expect("sent")).await.expect("an answer");
        assert!((200..300).contains(&answer.status), "{path}: {}", answer.text);
        answer.body
    }

    /// A conversation with these attributes; its id.
    pub async fn create(&self, attributes: &Value) -> String {
        let document = json!({ "data": { "type": "chat_conversation", "attributes": attributes } });
        let made = self.send(Method::POST, CONVERSATIONS, &document).await;
        made["data"]["id"].as_str().expect("an id").to_owned()
    }

    /// Uploads a file; its id.
    pub async fn upload(&self, path: &str, name: &str, bytes: &[u8]) -> String {
        let form = Form::of(name, bytes).end();
        let request = self.request(Method::POST, path).header("content-type", Form::kind()).body(form);
        let answer = Answer::read(request.send().await.expect("sent")).await.expect("an answer");
        assert_eq!(answer.status, 201, "{}", answer.text);
        answer.body["files"][0]["id"].as_str().expect("an id").to_owned()
    }

    /// A turn that has ended: its 202 answer.
    pub async fn turn(&self, body: &Value) -> Value {
        let begun = self.begin(body).await;
        self.ended(begun["run"].as_str().expect("a run")).await;
        begun
    }

    /// Waits for the end of a run.
    pub async fn ended(&self, run: &str) {
        self.until(&format!("/v1/runs/{run}"), |run| {
            !matches!(run["status"].as_str(), Some("queued" | "running"))
        })
        .await;
    }

    /// Asks until the answer is one that is waited for.
    pub async fn until(&self, path: &str, is_there: impl Fn(&Value) -> bool) -> Value {
        for _ in 0..600 {
            let body = self.get(path).await.body;
            if is_there(&body) {
                return body;
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        panic!("{path} does not become what it should");
    }

    /// A turn that was accepted.
    pub async fn begin(&self, body: &Value) -> Value {
        let request = self
            .request(Method::POST, "/v1/turns")
            .header("content-type", "application/json")
            .header("prefer", "respond-async")
            .body(body.to_string());
        let answer = Answer::read(request.send().await.expect("sent")).await.expect("an answer");
        assert_eq!(answer.status, 202, "{}", answer.text);
        answer.body
    }
}
