//! What is measured: Threadkeep on a database, the bare relay, the typical app. Each is a process of its own,
//! started from nothing on the same upstream.

use std::path::Path;
use std::time::Duration;

use anyhow::Context as _;
use tempfile::TempDir;
use testkit::process::ServerProcess;
use testkit::server::{JWT_SECRET, token};
use tokio::process::Command;

use super::client::Target;
use super::process::{Peer, timed};
use crate::corpus::{ADMIN, ORG, WORKSPACE};
use crate::place::Database;

#[derive(Clone, Copy)]
pub enum Kind<'a> {
    Threadkeep(&'a Database),
    Relay,
    /// The folder with its installed packages.
    Node(&'a Path),
}

impl Kind<'_> {
    pub fn name(&self) -> String {
        match self {
            Self::Threadkeep(database) => format!("Threadkeep, {}", database.name),
            Self::Relay => "bare relay, fold + two durable rows".into(),
            Self::Node(_) => "Node, AI SDK + JSON column in SQLite (FULL)".into(),
        }
    }
}

enum Process {
    Threadkeep(Box<ServerProcess>),
    Peer(Box<Peer>),
}

pub struct Subject {
    name: String,
    process: Process,
    _data: TempDir,
    pub pid: u32,
    /// From its start until it said its address.
    pub started: Duration,
    pub target: Target,
    /// How many turns make a measurement.
    pub turns: usize,
}

impl Subject {
    pub async fn start(kind: &Kind<'_>, sandbox: &str, server: &Path) -> anyhow::Result<Self> {
        let data = tempfile::tempdir()?;
        let (process, started) = match kind {
            Kind::Threadkeep(database) => {
                let (process, started) = timed(threadkeep(database, sandbox, server, data.path())).await?;
                (Process::Threadkeep(Box::new(process)), started)
            }
            Kind::Relay => {
                let mut command = Command::new(std::env::current_exe()?);
                command.args(["relay", "--sandbox", sandbox, "--file"]).arg(data.path().join("relay.db"));
                let (peer, started) = timed(Peer::start(&mut command)).await?;
                (Process::Peer(Box::new(peer)), started)
            }
            Kind::Node(folder) => {
                let mut command = Command::new("node");
                command.arg(folder.join("server.mjs")).env("MODEL_URL", format!("{sandbox}/v1"));
                command.env("DB", data.path().join("chat.db")).env("NODE_ENV", "production");
                let (peer, started) = timed(Peer::start(&mut command)).await?;
                (Process::Peer(Box::new(peer)), started)
            }
        };
        let (address, pid) = match &process {
            Process::Threadkeep(server) => (server.url().to_owned(), server.pid()),
            Process::Peer(peer) => (peer.address.clone(), peer.pid()),
        };
        let address = address.trim_start_matches("http://").parse().context("not an address")?;
        let (path, headers, body) = match kind {
            Kind::Threadkeep(_) => {
                let token = token(ADMIN, ORG);
                let headers =
                    format!("authorization: Bearer {token}\r\nthreadkeep-workspace: {WORKSPACE}\r\n");
                ("/v1/turns?wire=envelope", headers, r#"{"message":"{ask}"}"#)
            }
            Kind::Relay => ("/", String::new(), r#"{"message":"{ask}"}"#),
            Kind::Node(_) => ("/turn", String::new(), r#"{"id":"{n}-{ask}","text":"{ask}"}"#),
        };
        let turns = if matches!(kind, Kind::Node(_)) { 240 } else { 2_000 };
        let target = Target { address, path, headers, body: body.to_owned() };
        let pid = pid.context("a peer ended at once")?;
        Ok(Self { name: kind.name(), process, _data: data, pid, started, target, turns })
    }

    pub fn name(&self) -> String {
        self.name.clone()
    }

    pub fn is_ours(&self) -> bool {
        matches!(self.process, Process::Threadkeep(_))
    }

    pub async fn stop(self) -> anyhow::Result<()> {
        if let Process::Threadkeep(mut server) = self.process {
            server.terminate().await?;
        }
        Ok(())
    }
}

async fn threadkeep(
    database: &Database,
    sandbox: &str,
    server: &Path,
    data: &Path,
) -> anyhow::Result<ServerProcess> {
    let address = database.places.first().context("there is no store")?.address();
    let env = [
        ("DATABASE_URL", address.as_str()),
        ("SANDBOX_URL", sandbox),
        ("THREADKEEP_JWT_SECRET", JWT_SECRET),
        ("THREADKEEP_SECRET", "a secret for measuring, longer than thirty-two bytes"),
        // One user stands for many here.
        ("THREADKEEP_REQUESTS_PER_SECOND", "0"),
        ("THREADKEEP_MAX_OPEN_RUNS_PER_USER", "100000"),
        ("THREADKEEP_MAX_STREAMS_PER_USER", "100000"),
    ];
    ServerProcess::start(server, &env, data).await
}
