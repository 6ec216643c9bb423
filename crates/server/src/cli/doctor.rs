//! `threadkeep doctor`: is everything that a start needs in place, and what to do where it is not.

use std::borrow::Cow;
use std::process::ExitCode;
use std::time::Duration;

use anyhow::Result;
use clap::{Arg, ArgAction, ArgMatches, Command};
use domain::audit::first_broken;
use domain::scope::{Role, Scope};
use futures_util::future::join_all;
use serde_json::json;
use store::Store;
use store::postgres::PostgresStore;
use store::sqlite::SqliteStore;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use upstream::mcp::McpClient;

use super::{open_beside, say};
use crate::boot::{self, LOCAL_USER};
use crate::config::{Config, Database, flags};
use crate::sandbox_child;

pub(super) fn command() -> Command {
    let json = Arg::new("json").long("json").action(ArgAction::SetTrue).help("Print JSON lines");
    flags(Command::new("doctor").about("Check what a start needs, and say what to do").arg(json))
}

struct Finding {
    check: Cow<'static, str>,
    /// What was found, or what is wrong and what to do.
    result: Result<String, String>,
}

/// The schema version of the configured database, which is not changed; `None` where there is none yet.
pub(super) async fn schema_version(config: &Config) -> Result<Option<i32>> {
    match &config.database {
        Database::Sqlite(path) => {
            let path = path.clone();
            Ok(tokio::task::spawn_blocking(move || SqliteStore::schema_version(&path)).await??)
        }
        Database::Postgres(url) => Ok(PostgresStore::schema_version(url).await?),
    }
}

pub(super) async fn run(config: Config, matches: ArgMatches) -> Result<ExitCode> {
    let mut findings = vec![
        data_folder(&config),
        mode(&config),
        database(&config).await,
        sandbox(&config).await,
        server(&config).await,
    ];
    findings.extend(tool_servers(&config).await);
    let healthy = findings.iter().all(|finding| finding.result.is_ok());
    for Finding { check, result } in findings {
        let ok = result.is_ok();
        let text = result.unwrap_or_else(|problem| problem);
        say(&if matches.get_flag("json") {
            json!({ "check": check, "ok": ok, "detail": text }).to_string()
        } else {
            format!("{} {check}: {text}", if ok { "ok  " } else { "FAIL" })
        });
    }
    Ok(if healthy { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

fn data_folder(config: &Config) -> Finding {
    let folder = &config.data;
    let result = match folder.metadata() {
        Ok(found) if !found.is_dir() => {
            Err(format!("{} is not a folder; set THREADKEEP_DATA to one", folder.display()))
        }
        Ok(_) => Ok(folder.display().to_string()),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
            Ok(format!("{} will be made at the first start", folder.display()))
        }
        Err(error) => Err(format!("{}: {error}; check its owner and mode", folder.display())),
    };
    Finding { check: "data folder".into(), result }
}

fn mode(config: &Config) -> Finding {
    let text = if config.is_local() {
        "local mode: this machine only; set THREADKEEP_JWT_SECRET or THREADKEEP_JWKS_URL to serve others"
    } else {
        "user tokens are verified"
    };
    Finding { check: "who may call".into(), result: Ok(text.into()) }
}

async fn database(config: &Config) -> Finding {
    let kind = match &config.database {
        Database::Sqlite(path) => format!("SQLite at {}", path.display()),
        Database::Postgres(_) => "PostgreSQL".into(),
    };
    let result = match schema_version(config).await {
        Ok(None) => Ok(format!("{kind}; its schema will be made at the first start")),
        // The logs of other users' workspaces are theirs to follow, by the API.
        // Opening the store would bring it up to date, which is not a check's business.
        Ok(Some(version)) if version < SqliteStore::known_version() => Ok(format!(
            "{kind}, schema version {version}; the next start brings it to {}",
            SqliteStore::known_version()
        )),
        Ok(Some(version)) if !config.is_local() => Ok(format!("{kind}, schema version {version}")),
        Ok(Some(version)) => match audit_log(config).await {
            Ok(entries) => {
                Ok(format!("{kind}, schema version {version}; audit log whole ({entries} entries)"))
            }
            Err(error) => Err(format!("{kind}: {error:#}")),
        },
        Err(error) => Err(format!("{kind}: {error:#}; check DATABASE_URL and that the database runs")),
    };
    Finding { check: "database".into(), result }
}

/// Follows the hash chain of the local workspace's audit log.
async fn audit_log(config: &Config) -> Result<usize> {
    let store = open_beside(config).await?;
    let mut entries = Vec::new();
    for membership in store.list_memberships(LOCAL_USER, None, None, 100).await? {
        let scope = Scope {
            workspace: membership.workspace.id,
            org: membership.workspace.org,
            user: LOCAL_USER.into(),
            role: Role::Admin,
            key: None,
            administers: true,
        };
        let log = whole_log(&*store, &scope).await?;
        if let Some(seq) = first_broken(&log) {
            anyhow::bail!("the audit log of workspace {} was changed at entry {seq}", scope.workspace);
        }
        entries.extend(log);
    }
    store.close().await;
    Ok(entries.len())
}

async fn whole_log(store: &dyn Store, scope: &Scope) -> Result<Vec<domain::audit::AuditEntry>> {
    let mut log = Vec::new();
    loop {
        let page = store.list_audit(scope, log.len() as i64, 1000).await?;
        if page.is_empty() {
            return Ok(log);
        }
        log.extend(page);
    }
}

/// Whether agents can be kept in here; makes a room and looks.
async fn sandbox(config: &Config) -> Finding {
    let result = match &config.sandbox.url {
        Some(url) => Ok(format!("a remote one at {}", url.split('@').next_back().unwrap_or_default())),
        None => match sandbox::Sandbox::prepare(sandbox_child::options(config)).await {
            Ok(built_in) => built_in.isolation().map(|found| found.describe()).map_err(|why| why.to_string()),
            Err(error) => Err(error.to_string()),
        },
    };
    Finding { check: "sandbox".into(), result }
}

async fn server(config: &Config) -> Finding {
    let url = config.public_url.clone().unwrap_or_else(|| format!("http://{}", config.listen));
    let result = match ready(&url).await {
        Ok(200) => Ok(format!("{url} is ready")),
        Ok(status) => Err(format!("{url} answers {status}; look at the server's log")),
        Err(_) => Ok(format!("nothing runs at {url}")),
    };
    Finding { check: "server".into(), result }
}

/// Asks each of the operator's tool servers for its tools; starts those that are programs, and ends them again.
async fn tool_servers(config: &Config) -> Vec<Finding> {
    let endpoints = match boot::operators(config) {
        Ok(endpoints) => endpoints,
        Err(error) => {
            return vec![Finding { check: "tool servers".into(), result: Err(format!("{error:#}")) }];
        }
    };
    let (tasks, stop) = (TaskTracker::new(), CancellationToken::new());
    let asked = endpoints.into_iter().map(|(name, endpoint)| {
        let client = McpClient::new(&name, endpoint, tasks.clone(), stop.clone());
        async move {
            let result = match client.tools().await {
                Ok(tools) => Ok(format!("{} tools", tools.len())),
                Err(fault) => Err(format!("{fault}; agents go on without its tools")),
            };
            client.close().await;
            Finding { check: format!("tool server {name}").into(), result }
        }
    });
    let findings = join_all(asked).await;
    stop.cancel();
    tasks.close();
    tasks.wait().await;
    findings
}

async fn ready(url: &str) -> Result<u16> {
    let client = upstream::http::client()?;
    let asked = client.get(format!("{url}/readyz")).timeout(Duration::from_secs(3)).send();
    Ok(asked.await?.status().as_u16())
}
