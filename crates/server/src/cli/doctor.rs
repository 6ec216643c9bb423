//! `threadkeep doctor`: is everything that a start needs in place, and what to do where it is not.

use std::borrow::Cow;
use std::path::Path;
use std::process::ExitCode;
use std::time::Duration;

use anyhow::Result;
use clap::{Arg, ArgAction, ArgMatches, Command};
use domain::audit::first_broken;
use domain::scope::{Role, Scope};
use futures_util::future::join_all;
use nix::sys::statvfs::statvfs;
use nix::unistd::{AccessFlags, access};
use serde_json::json;
use store::Store;
use store::backup::RESTORING;
use store::postgres::PostgresStore;
use store::sqlite::SqliteStore;
use tokio::net::TcpListener;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use upstream::mcp::McpClient;

use super::{open_beside, say, say_list};
use crate::boot::{self, LOCAL_USER, open_blobs};
use crate::config::{Blobs, Config, Database, Provider, Source, flags};
use crate::kit::Kit;
use crate::sandbox_child;

/// With less than this left, a write may fail any time.
const LITTLE_MIB: u64 = 100;

pub(super) fn command() -> Command {
    let json = Arg::new("json").long("json").action(ArgAction::SetTrue).help("Print JSON");
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
        blobs(&config).await,
        sandbox(&config).await,
        kit(&config),
        models(&config).await,
        server(&config).await,
    ];
    findings.extend(tool_servers(&config).await);
    let healthy = findings.iter().all(|finding| finding.result.is_ok());
    let told = findings.into_iter().map(|Finding { check, result }| {
        let ok = result.is_ok();
        (check, ok, result.unwrap_or_else(|problem| problem))
    });
    if matches.get_flag("json") {
        say_list(
            told.map(|(check, ok, detail)| json!({ "check": check, "ok": ok, "detail": detail })).collect(),
        );
    } else {
        told.for_each(|(check, ok, text)| {
            say(&format!("{} {check}: {text}", if ok { "ok  " } else { "FAIL" }))
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
        Ok(_) if folder.join(RESTORING).exists() => {
            Err(format!("{} is half restored; run `threadkeep restore` again, or empty it", folder.display()))
        }
        Ok(_) if access(folder, AccessFlags::W_OK).is_err() => {
            Err(format!("{} cannot be written; check its owner and mode", folder.display()))
        }
        Ok(_) => free_space(folder),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
            Ok(format!("{} will be made at the first start", folder.display()))
        }
        Err(error) => Err(format!("{}: {error}; check its owner and mode", folder.display())),
    };
    Finding { check: "data folder".into(), result }
}

fn free_space(folder: &Path) -> Result<String, String> {
    let Ok(found) = statvfs(folder) else { return Ok(folder.display().to_string()) };
    let mib = found.blocks_available() * found.fragment_size() / 1_048_576;
    if mib < LITTLE_MIB {
        return Err(format!("{}: only {mib} MiB are free; make room", folder.display()));
    }
    Ok(folder.display().to_string())
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
        Err(error) => Err(format!("{kind}: {error:#}; {}", advice(config))),
    };
    Finding { check: "database".into(), result }
}

fn advice(config: &Config) -> &'static str {
    match config.database {
        Database::Sqlite(_) => {
            "check DATABASE_URL, the file's owner and mode, and that it is Threadkeep's; if it is damaged, move it away and bring \
             back a backup with `threadkeep restore`"
        }
        Database::Postgres(_) => "check DATABASE_URL and that the database runs",
    }
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

fn kit(config: &Config) -> Finding {
    let Kit { recipes, skills, refused } = Kit::read(&config.data);
    let result = match refused.is_empty() {
        true => Ok(format!("{} and {}", recipes.len(), skills.len())),
        false => Err(format!("left out: {}", refused.join("; "))),
    };
    Finding { check: "recipes and skills".into(), result }
}

async fn blobs(config: &Config) -> Finding {
    let result = match &config.blobs {
        Blobs::Folder(folder) => match folder.metadata() {
            Ok(found) if !found.is_dir() => {
                Err(format!("{} is not a folder; set THREADKEEP_BLOB_URL to one", folder.display()))
            }
            Ok(_) if access(folder.as_path(), AccessFlags::W_OK).is_err() => {
                Err(format!("{} cannot be written; check its owner and mode", folder.display()))
            }
            Ok(_) => Ok(format!("files in {}", folder.display())),
            // What is wrong with the data folder is said above.
            Err(_) if config.source("blob_url") == Source::Default && !config.data.is_dir() => {
                Ok(format!("{} will be made within the data folder", folder.display()))
            }
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
                Ok(format!("{} will be made at the first start", folder.display()))
            }
            Err(error) => Err(format!("{}: {error}; check its owner and mode", folder.display())),
        },
        Blobs::S3 { bucket, .. } => match open_blobs(config, &TaskTracker::new()).await {
            Ok(_) => Ok(format!("the bucket {bucket} can be written and read")),
            Err(error) => Err(format!("{error:#}; check THREADKEEP_BLOB_URL and the AWS_* variables")),
        },
    };
    Finding { check: "files".into(), result }
}

/// Which providers are set up, and whether they take their keys.
async fn models(config: &Config) -> Finding {
    let mut found = Vec::new();
    for (name, provider, base, path) in [
        ("OpenAI", &config.openai, "https://api.openai.com/v1", "/models"),
        ("Anthropic", &config.anthropic, "https://api.anthropic.com", "/v1/models"),
    ] {
        if provider.api_key.is_none() && provider.base_url.is_none() {
            continue;
        }
        let variable = format!("{}_API_KEY", name.to_ascii_uppercase());
        let base = provider.base_url.as_deref().unwrap_or(base);
        match asked(&format!("{base}{path}"), provider).await {
            Ok(200) => found.push(format!("{name} at {base} takes the key")),
            Ok(status @ (401 | 403)) => {
                let result = Err(format!(
                    "{name} at {base} answers {status}: it does not take the key; check {variable}"
                ));
                return Finding { check: "models".into(), result };
            }
            Ok(status) => found.push(format!("{name} at {base} answers {status} when asked for its models")),
            // It may come and go; turns say so when they need it.
            Err(_) => found.push(format!("{name} at {base} cannot be reached now")),
        }
    }
    let none = "the built-in demo model alone; set OPENAI_API_KEY or ANTHROPIC_API_KEY for a real one";
    let result = Ok(if found.is_empty() { none.into() } else { found.join("; ") });
    Finding { check: "models".into(), result }
}

async fn asked(url: &str, provider: &Provider) -> Result<u16> {
    let mut request = upstream::http::client()?.get(url).timeout(Duration::from_secs(5));
    if let Some(key) = &provider.api_key {
        // Each reads its own and passes over the other's.
        request = request.bearer_auth(key.expose()).header("x-api-key", key.expose());
    }
    Ok(request.header("anthropic-version", "2023-06-01").send().await?.status().as_u16())
}

async fn server(config: &Config) -> Finding {
    let url = config.public_url.clone().unwrap_or_else(|| format!("http://{}", config.listen));
    let result = match ready(&url).await {
        Ok(200) => Ok(format!("{url} is ready")),
        Ok(status) => Err(format!("{url} answers {status}; look at the server's log")),
        Err(_) => match TcpListener::bind(config.listen).await {
            Ok(_) => Ok(format!("nothing runs at {url}, and {} is free", config.listen)),
            Err(error) if error.kind() == std::io::ErrorKind::AddrInUse => Err(format!(
                "{} is in use by something that is no Threadkeep; set THREADKEEP_LISTEN to another port",
                config.listen
            )),
            Err(error) => Err(format!("{}: {error}; check THREADKEEP_LISTEN", config.listen)),
        },
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
