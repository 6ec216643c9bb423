//! What is measured: Threadkeep on a database, the bare relays, the typical app. Each is a process of its own,
//! started from nothing on the same upstream.

use std::ffi::OsString;
use std::path::Path;
use std::time::Duration;

use anyhow::Context as _;
use domain::scope::Role as MemberRole;
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

/// Where a peer keeps its rows.
#[derive(Clone, Copy)]
pub enum Rows<'a> {
    /// A file of its own.
    Sqlite,
    /// The address of a database that no other peer of its kind uses.
    Postgres(&'a str),
}

impl Rows<'_> {
    fn name(self) -> &'static str {
        match self {
            Self::Sqlite => "SQLite",
            Self::Postgres(_) => "PostgreSQL",
        }
    }

    fn address(self, file: &Path) -> OsString {
        match self {
            Self::Sqlite => file.into(),
            Self::Postgres(url) => url.into(),
        }
    }
}

#[derive(Clone, Copy)]
pub enum Kind<'a> {
    Threadkeep(&'a Database),
    /// Bytes in, bytes out.
    Relay,
    /// Reads the sandbox's lines and keeps two rows.
    KeepingRelay(Rows<'a>),
    /// The same with the model's.
    ModelRelay,
    /// As the keeping one, with what was said kept before the first byte.
    AcceptingRelay,
    /// The folder with its installed packages.
    Node(&'a Path, Rows<'a>),
}

impl Kind<'_> {
    pub fn name(&self) -> String {
        match self {
            Self::Threadkeep(database) => format!("Threadkeep, {}", database.name),
            Self::Relay => "bare relay".into(),
            Self::KeepingRelay(rows) => format!("relay that keeps two rows, {}", rows.name()),
            Self::ModelRelay => "relay of a model that keeps two rows, SQLite".into(),
            Self::AcceptingRelay => "relay that keeps the first row first, SQLite".into(),
            Self::Node(_, rows) => format!("{NODE}, {}", rows.name()),
        }
    }

    /// What goals say of it.
    fn role(&self) -> Role {
        match self {
            Self::Threadkeep(_) => Role::Ours,
            Self::Relay => Role::Beside,
            Self::KeepingRelay(_) | Self::ModelRelay => Role::Relay,
            Self::AcceptingRelay => Role::Accepting,
            Self::Node(..) => Role::Node,
        }
    }

    fn database(&self) -> &'static str {
        match self {
            Self::Threadkeep(database) => database.name,
            Self::KeepingRelay(rows) | Self::Node(_, rows) => rows.name(),
            Self::Relay | Self::ModelRelay | Self::AcceptingRelay => Rows::Sqlite.name(),
        }
    }
}

/// Goals are ours, by the relay's or by the Node app's.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Role {
    Ours,
    Relay,
    /// Promises what Threadkeep does before its first byte: what that is held against, too.
    Accepting,
    Node,
    Beside,
}

enum Process {
    Threadkeep(Box<ServerProcess>),
    Peer(Box<Peer>),
}

pub struct Subject {
    pub name: String,
    pub role: Role,
    /// By name.
    pub database: &'static str,
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
            Kind::Relay | Kind::KeepingRelay(_) | Kind::ModelRelay | Kind::AcceptingRelay => {
                let path = if matches!(kind, Kind::ModelRelay) { "/v1/chat/completions" } else { "/stream" };
                let mut command = Command::new(std::env::current_exe()?);
                command.args(["relay", "--upstream", &format!("{sandbox}{path}")]);
                let rows = match kind {
                    Kind::KeepingRelay(rows) => Some(*rows),
                    Kind::ModelRelay | Kind::AcceptingRelay => Some(Rows::Sqlite),
                    _ => None,
                };
                if let Some(rows) = rows {
                    command.arg("--database").arg(rows.address(&data.path().join("relay.db")));
                }
                if matches!(kind, Kind::AcceptingRelay) {
                    command.arg("--accepts");
                }
                let (peer, started) = timed(Peer::start(&mut command)).await?;
                (Process::Peer(Box::new(peer)), started)
            }
            Kind::Node(folder, rows) => {
                let mut command = Command::new("node");
                command.arg(folder.join("server.mjs")).env("MODEL_URL", format!("{sandbox}/v1"));
                command.env("DB", rows.address(&data.path().join("chat.db"))).env("NODE_ENV", "production");
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
            Kind::Relay | Kind::KeepingRelay(_) | Kind::ModelRelay | Kind::AcceptingRelay => {
                ("/", Vec::new(), r#"{"message":"{ask}"}"#)
            }
            Kind::Node(..) => ("/turn", Vec::new(), r#"{"id":"{n}-{ask}","text":"{ask}"}"#),
        };
        let target = Target { address, path, callers, body: body.to_owned() };
        let pid = pid.context("a peer ended at once")?;
        let (name, role, database) = (kind.name(), kind.role(), kind.database());
        Ok(Self { name, role, database, process, _data: data, pid, started, target })
    }

    pub fn is_ours(&self) -> bool {
        self.role == Role::Ours
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
        place
            .store
            .put_member(&corpus::scope(ADMIN, MemberRole::Admin), &user, MemberRole::Member, from_ms(0))
            .await?;
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
