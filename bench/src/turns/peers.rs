//! What is measured: Threadkeep on a database, the bare relays, the typical app. Each is a process of its own,
//! started from nothing on the same upstream.

use std::path::Path;
use std::time::Duration;

use anyhow::Context as _;
use domain::scope::Role;
use domain::time::from_ms;
use tempfile::TempDir;
use testkit::process::ServerProcess;
use testkit::server::{JWT_SECRET, token};
use tokio::process::Command;

use super::client::Target;
use super::process::{Peer, timed};
use crate::corpus::{self, ADMIN, ORG, WORKSPACE};
use crate::place::{Database, Place};

pub const NODE: &str = "Node app";
/// So many that ten thousand streams are within the default limits of each.
const USERS: usize = 125;

#[derive(Clone, Copy)]
pub enum Kind<'a> {
    Threadkeep(&'a Database),
    /// Bytes in, bytes out.
    Relay,
    /// Reads the sandbox's lines and keeps two rows.
    KeepingRelay,
    /// The same with the model's.
    ModelRelay,
    /// The folder with its installed packages.
    Node(&'a Path),
}

impl Kind<'_> {
    pub fn name(&self) -> String {
        match self {
            Self::Threadkeep(database) => format!("Threadkeep, {}", database.name),
            Self::Relay => "bare relay".into(),
            Self::KeepingRelay => "relay that keeps two rows".into(),
            Self::ModelRelay => "relay of a model that keeps two rows".into(),
            Self::Node(_) => NODE.into(),
        }
    }
}

enum Process {
    Threadkeep(Box<ServerProcess>),
    Peer(Box<Peer>),
}

pub struct Subject {
    pub name: String,
    process: Process,
    _data: TempDir,
    pub pid: u32,
    /// From its start until it said its address.
    pub started: Duration,
    pub target: Target,
}

impl Subject {
    pub async fn start(kind: &Kind<'_>, sandbox: &str, server: &Path) -> anyhow::Result<Self> {
        let data = tempfile::tempdir()?;
        let (process, started) = match kind {
            Kind::Threadkeep(database) => {
                let (process, started) = timed(threadkeep(database, sandbox, server, data.path())).await?;
                (Process::Threadkeep(Box::new(process)), started)
            }
            Kind::Relay | Kind::KeepingRelay | Kind::ModelRelay => {
                let path = if matches!(kind, Kind::ModelRelay) { "/v1/chat/completions" } else { "/stream" };
                let mut command = Command::new(std::env::current_exe()?);
                command.args(["relay", "--upstream", &format!("{sandbox}{path}")]);
                if !matches!(kind, Kind::Relay) {
                    command.arg("--file").arg(data.path().join("relay.db"));
                }
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
        let (path, callers, body) = match kind {
            Kind::Threadkeep(_) => {
                let headers = |user: String| {
                    let token = token(&user, ORG);
                    format!("authorization: Bearer {token}\r\nthreadkeep-workspace: {WORKSPACE}\r\n")
                };
                ("/v1/turns?wire=envelope", users().map(headers).collect(), r#"{"message":"{ask}"}"#)
            }
            Kind::Relay | Kind::KeepingRelay | Kind::ModelRelay => {
                ("/", Vec::new(), r#"{"message":"{ask}"}"#)
            }
            Kind::Node(_) => ("/turn", Vec::new(), r#"{"id":"{n}-{ask}","text":"{ask}"}"#),
        };
        let target = Target { address, path, callers, body: body.to_owned() };
        let pid = pid.context("a peer ended at once")?;
        Ok(Self { name: kind.name(), process, _data: data, pid, started, target })
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

/// Those who take turns: an administrator first, whose threads the long ones are.
fn users() -> impl Iterator<Item = String> {
    std::iter::once(ADMIN.to_owned()).chain((1..USERS).map(|n| format!("reader-{n}")))
}

/// Makes the users members.
pub async fn invite(place: &Place) -> anyhow::Result<()> {
    for user in users().skip(1) {
        place.store.put_member(&corpus::scope(ADMIN, Role::Admin), &user, Role::Member, from_ms(0)).await?;
    }
    Ok(())
}

async fn threadkeep(
    database: &Database,
    sandbox: &str,
    server: &Path,
    data: &Path,
) -> anyhow::Result<ServerProcess> {
    let address = database.places.first().context("there is no store")?.address();
    let model = format!("{sandbox}/v1");
    let env = [
        ("OPENAI_BASE_URL", model.as_str()),
        ("DATABASE_URL", address.as_str()),
        ("SANDBOX_URL", sandbox),
        ("THREADKEEP_JWT_SECRET", JWT_SECRET),
        ("THREADKEEP_SECRET", "a secret for measuring, longer than thirty-two bytes"),
        // All other limits stand: it is the load of many users. Only their rate is beyond what anybody types.
        ("THREADKEEP_REQUESTS_PER_SECOND", "0"),
    ];
    ServerProcess::start(server, &env, data).await
}
