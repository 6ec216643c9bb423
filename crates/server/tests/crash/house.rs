//! Where a story happens: a database, a sandbox that follows a script, and the server as processes.

use std::path::Path;
use std::time::Duration;

use serde_json::{Value, json};
use tempfile::TempDir;
use testkit::cluster::{Cluster, cluster};
use testkit::gate::Gate;
use testkit::postgres::{TestDatabase, database};
use testkit::process::ServerProcess;
use testkit::sandbox::{Action, ScriptedSandbox};
use testkit::server::{JWT_SECRET, token};

use crate::client::Caller;

const BINARY: &str = env!("CARGO_BIN_EXE_threadkeep");
const SERVER_SECRET: &str = "the secret that all nodes share, longer than 32 bytes";
pub const LEASE: Duration = Duration::from_secs(3);
/// By when a dead node's runs are settled while another is there: the lease and 5 seconds (G4), and as much again for a
/// machine that has others to serve.
pub const SETTLED: Duration = Duration::from_secs(8 + 7);

pub struct House {
    data: TempDir,
    database: Option<TestDatabase>,
    /// In place of `database`.
    pub cluster: Option<Cluster>,
    pub sandbox: ScriptedSandbox,
}

impl House {
    pub async fn sqlite(script: Vec<Action>) -> Self {
        let sandbox = ScriptedSandbox::start(script).await.expect("a sandbox");
        Self {
            data: tempfile::tempdir().expect("a temporary folder"),
            database: None,
            cluster: None,
            sandbox,
        }
    }

    /// `None`, said aloud, where there is no PostgreSQL.
    pub async fn postgres(script: Vec<Action>) -> Option<Self> {
        let database = Some(database().await?);
        Some(Self { database, ..Self::sqlite(script).await })
    }

    /// On a PostgreSQL that the test may crash.
    pub async fn crashing(script: Vec<Action>) -> Option<Self> {
        let cluster = Some(cluster().await?);
        Some(Self { cluster, ..Self::sqlite(script).await })
    }

    pub async fn on(postgres: bool, script: Vec<Action>) -> Option<Self> {
        if postgres { Self::postgres(script).await } else { Some(Self::sqlite(script).await) }
    }

    pub fn is_postgres(&self) -> bool {
        self.url().is_some()
    }

    pub async fn try_serve(&self, failpoint: &str) -> anyhow::Result<ServerProcess> {
        self.try_serve_with(failpoint, &[]).await
    }

    /// As `try_serve`, with more settings.
    pub async fn try_serve_with(
        &self,
        failpoint: &str,
        more: &[(&str, &str)],
    ) -> anyhow::Result<ServerProcess> {
        self.start(self.url(), failpoint, more).await
    }

    /// A node that reaches its database through a gate.
    pub async fn serve_behind(&self, gate: &Gate) -> ServerProcess {
        let mut url = reqwest::Url::parse(self.database_url()).expect("an address");
        url.set_port(Some(gate.port())).expect("a port");
        self.start(Some(url.as_str()), "", &[]).await.expect("a server")
    }

    /// An open gate in front of the database.
    pub async fn gate(&self) -> Gate {
        let url = reqwest::Url::parse(self.database_url()).expect("an address");
        let server = format!("{}:{}", url.host_str().expect("a host"), url.port().expect("a port"));
        Gate::to(server).await.expect("a gate")
    }

    /// A session of the database's superuser.
    pub async fn superuser(&self) -> tokio_postgres::Client {
        let url = self.database.as_ref().and_then(TestDatabase::superuser_url).expect("a superuser");
        let (client, connection) =
            tokio_postgres::connect(&url, tokio_postgres::NoTls).await.expect("a connection");
        tokio::spawn(connection);
        client
    }

    fn url(&self) -> Option<&str> {
        self.cluster.as_ref().map(Cluster::url).or(self.database.as_ref().map(TestDatabase::url))
    }

    fn database_url(&self) -> &str {
        self.url().expect("PostgreSQL")
    }

    async fn start(
        &self,
        database: Option<&str>,
        failpoint: &str,
        more: &[(&str, &str)],
    ) -> anyhow::Result<ServerProcess> {
        let sandbox = self.sandbox.url();
        let mut env = vec![
            ("SANDBOX_URL", sandbox.as_str()),
            ("THREADKEEP_LEASE_SECONDS", "3"),
            ("THREADKEEP_JWT_SECRET", JWT_SECRET),
            ("THREADKEEP_SECRET", SERVER_SECRET),
            ("THREADKEEP_REQUESTS_PER_SECOND", "0"),
            ("THREADKEEP_MAX_OPEN_RUNS_PER_USER", "1000"),
            ("THREADKEEP_MAX_STREAMS_PER_USER", "10000"),
            ("FAILPOINT", failpoint),
        ];
        env.extend(more);
        env.extend(database.map(|database| ("DATABASE_URL", database)));
        ServerProcess::start(Path::new(BINARY), &env, self.data.path()).await
    }

    /// A node; on PostgreSQL there may be several.
    pub async fn serve(&self) -> ServerProcess {
        self.try_serve("").await.unwrap_or_else(|error| panic!("the server did not start: {error:#}"))
    }

    pub fn caller(&self, server: &ServerProcess) -> Caller {
        Caller::new(server.url(), &token("ann", "org-1"))
    }

    /// As `caller`, with a workspace to be in.
    pub async fn first_caller(&self, server: &ServerProcess) -> Caller {
        let caller = self.caller(server);
        let made = caller.post("/v1/workspaces", &json!({ "name": "Ours" })).await;
        assert_eq!(made.status, 201, "{}", made.text);
        caller
    }
}

/// What a sandbox's answer begins with.
pub fn accepted() -> Action {
    Action::Chunked("200 OK", vec![("content-type", "application/x-ndjson".to_owned())])
}

pub fn delta(text: &str) -> Action {
    Action::Line(json!({ "type": "delta", "text": text }))
}

pub const ANSWER: &str = "Once upon a time.";

fn lines() -> Vec<Value> {
    vec![
        json!({ "type": "step", "id": "s1", "name": "look", "status": "running", "args": { "where": "éverywhere" } }),
        json!({ "type": "delta", "text": "Let me " }),
        json!({ "type": "log", "level": "info", "message": "looking" }),
        json!({ "type": "delta", "text": "see." }),
        json!({ "type": "step", "id": "s1", "name": "look", "status": "succeeded", "result": [1, 2], "durationMs": 3 }),
        json!({ "type": "step", "id": "s2", "name": "write", "status": "running" }),
        json!({ "type": "delta", "text": "Once upon " }),
    ]
}

/// Deltas, steps and a log, each on its own; some milliseconds in all.
pub fn story(pause: Duration) -> Vec<Action> {
    let mut script = vec![accepted()];
    for line in lines() {
        script.extend([Action::Line(line), Action::Wait(pause)]);
    }
    script.extend([Action::Line(json!({ "type": "result", "message": ANSWER })), Action::EndChunks]);
    script
}

/// As `story`, but it never ends.
pub fn endless() -> Vec<Action> {
    let lines = lines().into_iter().map(Action::Line);
    [accepted()].into_iter().chain(lines).chain([Action::Hang]).collect()
}

/// A number below `below`.
pub fn random(below: u64) -> u64 {
    let mut bytes = [0; 8];
    getrandom::fill(&mut bytes).expect("randomness");
    u64::from_le_bytes(bytes) % below
}
