//! The server as a process of its own, beside the scripted sandbox: its memory is its own, and its limits are those of
//! the binary. In: turns. Out: streams, answers, what the process takes.

use std::path::Path;

use reqwest::{Client, Method, RequestBuilder};
use serde_json::{Value, json};
use tempfile::TempDir;
use testkit::postgres::{TestDatabase, database};
use testkit::process::ServerProcess;
use testkit::sandbox::{Action, ScriptedSandbox};
use testkit::server::{Answer, Backend, JWT_SECRET, token};

use crate::sse::{Stream, Told};
use crate::world::ask;

pub struct OwnProcess {
    pub server: ServerProcess,
    pub sandbox: ScriptedSandbox,
    pub bearer: String,
    client: Client,
    _data: TempDir,
    _database: Option<TestDatabase>,
}

impl OwnProcess {
    /// With Ann and her workspace; `None` where there is no such database.
    pub async fn start(backend: Backend, script: Vec<Action>, more: &[(&str, &str)]) -> Option<Self> {
        let database = match backend {
            Backend::Sqlite => None,
            _ => Some(database().await?),
        };
        let sandbox = ScriptedSandbox::start(script).await.unwrap();
        let (data, url) = (tempfile::tempdir().unwrap(), sandbox.url());
        let mut env = vec![
            ("THREADKEEP_JWT_SECRET", JWT_SECRET),
            ("THREADKEEP_SECRET", "the server's own secret, also longer than 32 bytes"),
            ("SANDBOX_URL", &url),
            ("THREADKEEP_MAX_OPEN_RUNS_PER_USER", "1000"),
            ("THREADKEEP_MAX_STREAMS_PER_USER", "2000"),
            ("THREADKEEP_REQUESTS_PER_SECOND", "0"),
        ];
        env.extend(more);
        env.extend(database.as_ref().map(|database| ("DATABASE_URL", database.url())));
        let binary = Path::new(env!("CARGO_BIN_EXE_threadkeep"));
        let server = ServerProcess::start(binary, &env, data.path()).await.unwrap();
        let client = Client::builder().no_proxy().build().unwrap();
        let own =
            Self { server, sandbox, bearer: token("ann", "acme"), client, _data: data, _database: database };
        let made = ask(own.post("/v1/workspaces", &json!({ "name": "Ann's" }))).await;
        assert_eq!(made.status, 201, "{}", made.text);
        Some(own)
    }

    fn request(&self, method: Method, path: &str) -> RequestBuilder {
        self.client.request(method, format!("{}{path}", self.server.url())).bearer_auth(&self.bearer)
    }

    pub fn post(&self, path: &str, body: &Value) -> RequestBuilder {
        self.request(Method::POST, path).header("content-type", "application/json").body(body.to_string())
    }

    pub async fn get(&self, path: &str) -> Answer {
        ask(self.request(Method::GET, path)).await
    }

    /// A turn's stream.
    pub async fn begin(&self, body: &Value) -> Stream {
        Stream::new(self.post("/v1/turns", body).send().await.expect("an answer"))
    }

    /// A whole turn.
    pub async fn tell(&self, body: &Value) -> Told {
        self.begin(body).await.rest().await
    }

    /// A turn that needs no reader: its run and its conversation.
    pub async fn begin_async(&self, body: &Value) -> (String, String) {
        let answer = ask(self.post("/v1/turns", body).header("prefer", "respond-async")).await;
        assert_eq!(answer.status, 202, "{}", answer.text);
        let id = |name: &str| answer.body[name].as_str().unwrap().to_owned();
        (id("run"), id("conversation"))
    }

    /// Resident memory now, and at most since the last `forget_most`, in KiB.
    pub fn memory_kib(&self) -> (u64, u64) {
        let pid = self.server.pid().expect("a process");
        let status = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
        let value = |name: &str| {
            let line = status.lines().find(|line| line.starts_with(name)).unwrap();
            line.split_whitespace().nth(1).unwrap().parse().unwrap()
        };
        (value("VmRSS:"), value("VmHWM:"))
    }

    /// The most is counted from now on.
    pub fn forget_most(&self) {
        let pid = self.server.pid().expect("a process");
        std::fs::write(format!("/proc/{pid}/clear_refs"), "5").unwrap();
    }
}
