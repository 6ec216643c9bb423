//! From configuration to a running application: the store is opened, the secret found or made, and in local
//! mode the local workspace and its key are there before the first request.

use std::collections::BTreeMap;
use std::fs;
use std::io::{ErrorKind, Write as _};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt, PermissionsExt};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use anyhow::{Context, Result, bail};
use domain::conversation::Visibility;
use domain::grant::{Grant, GrantKind};
use domain::media::Family;
use domain::scope::{Role, Scope};
use domain::secret::Secret;
use domain::time::Clock;
use domain::workspace::{ApiKey, Workspace, read_key};
use store::Store;
use store::blobs::Blobs;
use store::postgres::{PostgresOptions, PostgresStore};
use store::sqlite::{SqliteStore, Use};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use turn::tools::Tool;
use turn::tools::files::{ListFiles, ReadFile};
use turn::tools::knowledge::{SaveToTable, SearchPages, SearchTables};
use turn::tools::servers::{self, ToolServers};
use turn::{Access, Agents, Parts, Turns};
use upstream::composio::Composio;
use upstream::guard::{Allowed, Guarded};
use upstream::jwks::Jwks;
use upstream::llm::models::{LocalServer, ModelSettings, Models, ProviderSettings};
use upstream::mcp::{Endpoint, HttpEndpoint, StdioEndpoint};
use upstream::sandbox::{SandboxClient, SandboxLimits};
use uuid::Uuid;

use crate::auth::token::TokenRules;
use crate::config::{self, Config, Database, McpServer, Provider, Source};
use crate::extract::taken_back::TakenBack;
use crate::limit::{Counted, RateLimit};
use crate::routes::api_keys::make_key;
use crate::state::{App, AppState, Local};
use crate::{observe, tidy};

pub const LOCAL_USER: &str = "local";
const LOCAL_ORG: &str = "local";

/// Opens the configured database and brings its schema up to date.
pub async fn open_store(config: &Config, usage: Use) -> Result<Arc<dyn Store>> {
    if config.data.exists() && !config.data.is_dir() {
        bail!("THREADKEEP_DATA: {} is not a folder", config.data.display());
    }
    match &config.database {
        Database::Sqlite(path) => {
            let path = path.clone();
            let opened = tokio::task::spawn_blocking(move || SqliteStore::open(&path, usage)).await?;
            Ok(Arc::new(
                opened.context(
                    "DATABASE_URL (the SQLite file, in THREADKEEP_DATA unless set) cannot be used",
                )?,
            ))
        }
        Database::Postgres(url) => {
            let opened = PostgresStore::open(url, &PostgresOptions::default()).await;
            Ok(Arc::new(opened.context("DATABASE_URL cannot be used")?))
        }
    }
}

/// Opens the configured place for the bytes of files.
pub async fn open_blobs(config: &Config, tasks: &TaskTracker) -> Result<Blobs> {
    let setting = match config.source("blob_url") {
        Source::Default => "THREADKEEP_DATA",
        _ => "THREADKEEP_BLOB_URL",
    };
    match &config.blobs {
        config::Blobs::Folder(folder) => Blobs::folder(folder)
            .await
            .with_context(|| format!("{setting}: the folder {} cannot be used", folder.display())),
        config::Blobs::S3 { bucket, prefix } => {
            Blobs::s3(bucket, prefix, |name| std::env::var(name).ok(), tasks)
                .await
                .with_context(|| format!("{setting}: the bucket {bucket} cannot be used"))
        }
    }
}

/// The application behind the routes. `public_url` is the base of every URL handed out.
pub async fn build(
    config: &Config,
    store: Arc<dyn Store>,
    clock: Arc<dyn Clock>,
    tasks: TaskTracker,
    public_url: String,
) -> Result<AppState> {
    let secret = match &config.secret {
        Some(secret) => secret.clone(),
        None => kept_secret(&config.data)?,
    };
    let blobs = open_blobs(config, &tasks).await?;
    let local = if config.is_local() {
        prepare_local(config, &*store, &*clock).await?;
        Some(Local { user: LOCAL_USER.into(), org: LOCAL_ORG.into(), boot_id: clock.new_id() })
    } else {
        None
    };
    let workspace_rate = RateLimit::new(Counted::Workspace, config.limits.requests_per_second_per_workspace);
    // The one person of local mode is limited only where somebody asked for it.
    let limited = local.is_none() || config.source("requests_per_second") != Source::Default;
    let rate = limited.then(|| RateLimit::new(Counted::Caller, config.limits.requests_per_second)).flatten();
    let models = Arc::new(models(config)?);
    let tool_servers = Arc::new(tool_servers(config, Arc::clone(&store), secret.clone())?);
    let turns = Turns::open(Parts {
        store: Arc::clone(&store),
        clock: Arc::clone(&clock),
        limits: config.limits.clone(),
        tasks: tasks.clone(),
        sandbox: sandbox(config)?,
        agents: Arc::new(RunAccess { public_url: public_url.clone(), secret: secret.clone() }),
        models: Arc::clone(&models),
        tools: tools(&store, &blobs, &clock),
        tool_servers: Arc::clone(&tool_servers),
        blobs: blobs.clone(),
        context_summary: config.context_summary,
    })
    .await
    .context("DATABASE_URL: what earlier runs left cannot be settled")?;
    let app = Arc::new(App {
        store,
        data: config.data.clone(),
        blobs,
        upload_types: config.upload_types.iter().filter_map(|name| Family::parse(name)).collect(),
        turns,
        models,
        tool_servers,
        tokens: token_rules(config, &clock, &tasks)?,
        clock,
        tasks,
        limits: config.limits.clone(),
        secret,
        public_url,
        local,
        rate,
        workspace_rate,
        metrics: observe::metrics_handle(),
        draining: AtomicBool::new(false),
        taken_back: TakenBack::default(),
        stopping: CancellationToken::new(),
    });
    tidy::keep_tidy(&app);
    let (metrics, stopping) = (app.metrics.clone(), app.stopping.clone());
    app.tasks.spawn(stopping.run_until_cancelled_owned(observe::count_samples(metrics)));
    look_around(&app);
    Ok(app)
}

/// The turns of the store for one command, beside the servers.
pub async fn turns_beside(config: &Config, store: Arc<dyn Store>, clock: Arc<dyn Clock>) -> Result<Turns> {
    let (public_url, secret, tasks) = (String::new(), Secret::new(""), TaskTracker::new());
    Ok(Turns::beside(Parts {
        tool_servers: Arc::new(tool_servers(config, Arc::clone(&store), secret.clone())?),
        blobs: open_blobs(config, &tasks).await?,
        store,
        clock,
        limits: config.limits.clone(),
        tasks,
        sandbox: None,
        agents: Arc::new(RunAccess { public_url, secret }),
        models: Arc::new(models(config)?),
        tools: Vec::new(),
        context_summary: false,
    }))
}

/// The sandbox that the operator named.
fn sandbox(config: &Config) -> Result<Option<SandboxClient>> {
    let Some(url) = &config.sandbox.url else { return Ok(None) };
    let limits = SandboxLimits::new(&config.limits);
    let client = SandboxClient::new(url, config.sandbox.token.clone(), upstream::http::client()?, limits)?;
    Ok(Some(client))
}

/// What models may call on the server.
fn tools(store: &Arc<dyn Store>, blobs: &Blobs, clock: &Arc<dyn Clock>) -> Vec<Arc<dyn Tool>> {
    vec![
        Arc::new(ListFiles { store: Arc::clone(store) }),
        Arc::new(ReadFile { store: Arc::clone(store), blobs: blobs.clone() }),
        Arc::new(SearchPages { store: Arc::clone(store) }),
        Arc::new(SearchTables { store: Arc::clone(store) }),
        Arc::new(SaveToTable { store: Arc::clone(store), clock: Arc::clone(clock) }),
    ]
}

/// The tool servers of the configuration file.
pub fn operators(config: &Config) -> Result<BTreeMap<String, Endpoint>> {
    let client = upstream::http::client()?;
    let endpoint = |(name, server): (&String, &McpServer)| {
        let endpoint = match server {
            McpServer::Http { url, token } => {
                let url =
                    url.expose().parse().ok().with_context(|| format!("[mcp.{name}] has no usable url"))?;
                Endpoint::Http(HttpEndpoint { client: client.clone(), url, token: token.clone() })
            }
            McpServer::Stdio { command, args, env } => {
                let (command, args, env) = (command.clone(), args.clone(), env.clone());
                Endpoint::Stdio(StdioEndpoint { command, args, env })
            }
        };
        Ok((name.clone(), endpoint))
    };
    config.mcp.iter().map(endpoint).collect()
}

/// Servers of other tools: the operator's, and the way to those of workspaces.
fn tool_servers(config: &Config, store: Arc<dyn Store>, secret: Secret) -> Result<ToolServers> {
    let composio = config
        .composio
        .api_key
        .clone()
        .map(|key| Composio::new(config.composio.base_url.as_deref(), key, upstream::http::client()?));
    let may = |network: &str| config.tool_networks.iter().any(|allowed| allowed == network);
    // In local mode whoever may add one is at this machine.
    let loopback =
        may("loopback") || (config.is_local() && config.source("tool_networks") == Source::Default);
    Ok(ToolServers::new(servers::Parts {
        store,
        operators: operators(config)?,
        composio: composio.transpose()?,
        guarded: Guarded::new(Allowed { loopback, private: may("private") })?,
        secret,
    }))
}

/// The providers that the operator has set up, and the demo model.
fn models(config: &Config) -> Result<Models> {
    let provider = |provider: &Provider| ProviderSettings {
        key: provider.api_key.clone(),
        base_url: provider.base_url.clone(),
        inputs: provider.inputs.clone(),
    };
    let settings = ModelSettings {
        openai: provider(&config.openai),
        anthropic: provider(&config.anthropic),
        anthropic_version: config.anthropic_version.clone(),
        default_model: config.model.clone(),
        local: local_servers(config),
    };
    Ok(Models::new(settings, &config.limits, upstream::http::client()?)?)
}

/// Where model servers of this machine are looked for.
fn local_servers(config: &Config) -> Vec<LocalServer> {
    if !config.local_models {
        return Vec::new();
    }
    let ollama = config.ollama_url.clone().unwrap_or_else(|| "http://127.0.0.1:11434".to_owned());
    let ollama = LocalServer { provider: "ollama", title: "Ollama", url: ollama, owner: None };
    // Its usual port is this server's, too.
    let usual = (config.listen.port() != 8080).then(|| "http://127.0.0.1:8080".to_owned());
    let llamacpp = config.llamacpp_url.clone().or(usual).map(|url| LocalServer {
        provider: "llamacpp",
        title: "llama.cpp",
        url,
        owner: Some("llamacpp"),
    });
    let named = [&config.openai.base_url, &config.anthropic.base_url];
    let taken = |url: &str| named.iter().any(|named| named.as_deref().is_some_and(|n| n.starts_with(url)));
    [Some(ollama), llamacpp].into_iter().flatten().filter(|server| !taken(&server.url)).collect()
}

/// Says in the log what was found on this machine; nothing waits for it.
fn look_around(app: &AppState) {
    let models = Arc::clone(&app.models);
    let stopping = app.stopping.clone();
    app.tasks.spawn(async move {
        let found = tokio::select! {
            found = models.list_local() => found,
            () = stopping.cancelled() => return,
        };
        if !found.is_empty() {
            tracing::info!(models = found.join(" "), "models on this machine are offered");
        }
    });
}

/// Where a run's sandbox calls back, and with what.
struct RunAccess {
    public_url: String,
    secret: Secret,
}

impl Agents for RunAccess {
    fn access(&self, workspace: Uuid, run: Uuid, fence: i64) -> Access {
        let token = |kind| Grant { kind, workspace, run, fence }.seal(&self.secret);
        Access {
            agent_url: format!("{}/v1/agent/{workspace}/{run}", self.public_url),
            config_token: token(GrantKind::Config),
            upload_otp: token(GrantKind::Upload),
        }
    }
}

fn token_rules(config: &Config, clock: &Arc<dyn Clock>, tasks: &TaskTracker) -> Result<TokenRules> {
    let jwks = match &config.auth.jwks_url {
        Some(url) => Some(Jwks::new(url, upstream::http::client()?, Arc::clone(clock), tasks.clone())?),
        None => None,
    };
    Ok(TokenRules {
        hs256: config.auth.jwt_secret.clone(),
        jwks,
        audience: config.auth.audience.clone(),
        issuer: config.auth.issuer.clone(),
        default_org: config.auth.default_org.clone(),
    })
}

/// Reads a file that only this user may read, or makes it; the second of two makers reads the first one's.
fn kept_file(path: &Path, make: impl FnOnce() -> Result<String>) -> Result<(String, bool)> {
    match fs::read_to_string(path) {
        Ok(text) => {
            // A copy that somebody made or put back may be open to others; where it cannot be shut it is read all the same.
            if let Err(error) = fs::set_permissions(path, fs::Permissions::from_mode(0o600)) {
                tracing::warn!(%error, path = %path.display(), "the key may be read by others");
            }
            return Ok((text.trim().to_owned(), false));
        }
        Err(error) if error.kind() == ErrorKind::NotFound => {}
        Err(error) => {
            let named = format!("THREADKEEP_DATA: {} cannot be read", path.display());
            return Err(error).context(named);
        }
    }
    let named = || format!("THREADKEEP_DATA: {} cannot be made", path.display());
    if let Some(folder) = path.parent() {
        fs::DirBuilder::new().recursive(true).mode(0o700).create(folder).with_context(named)?;
    }
    // Whole or not at all: a crash between the two leaves a file under another name.
    let text = make()?;
    let draft = path.with_extension(format!("{}.new", std::process::id()));
    let mut file = fs::File::options()
        .write(true)
        .create(true)
        .truncate(true)
        .mode(0o600)
        .open(&draft)
        .with_context(named)?;
    file.write_all(text.as_bytes()).and_then(|()| file.sync_all()).with_context(named)?;
    fs::rename(&draft, path).with_context(named)?;
    Ok((text, true))
}

fn kept_secret(data: &Path) -> Result<Secret> {
    let make = || {
        let mut random = [0; 32];
        getrandom::fill(&mut random).map_err(|error| anyhow::anyhow!("no randomness: {error}"))?;
        Ok(random.iter().map(|byte| format!("{byte:02x}")).collect())
    };
    let path = data.join("secret.key");
    let (text, _) = kept_file(&path, make)?;
    // It was made longer: what is short now is a file that was damaged, or not ours.
    anyhow::ensure!(
        text.len() >= 32,
        "THREADKEEP_DATA: {} does not hold a secret of 32 bytes; remove the file to get a new one",
        path.display()
    );
    Ok(Secret::new(text))
}

/// The local workspace, and `local.key`: an admin key of it that is known to the store.
pub(crate) async fn prepare_local(config: &Config, store: &dyn Store, clock: &dyn Clock) -> Result<()> {
    let known = store.list_memberships(LOCAL_USER, None, None, 1).await?;
    let workspace = match known.into_iter().next() {
        Some(membership) => membership.workspace,
        None => make_local_workspace(store, clock).await?,
    };
    let path = config.data.join("local.key");
    let make = || {
        make_key(workspace.id)
            .map(|(text, _)| text.expose().to_owned())
            .map_err(|p| anyhow::anyhow!(p.detail))
    };
    let (text, _) = kept_file(&path, make)?;
    let found = match read_key(&text) {
        Some((named, hash)) => store.find_key(named, hash).await?.is_some(),
        None => {
            anyhow::bail!(
                "THREADKEEP_DATA: {} does not hold an API key; remove the file to get a new one",
                path.display()
            )
        }
    };
    if found {
        return Ok(());
    }
    // Another database, or a start that ended between file and row: the file's key is made good, or replaced.
    let text = match read_key(&text) {
        Some((named, _)) if named == workspace.id => text,
        _ => {
            fs::remove_file(&path)?;
            kept_file(&path, make)?.0
        }
    };
    let (_, hash) = read_key(&text).context("a new key can be read")?;
    let key = ApiKey {
        id: clock.new_id(),
        name: "local.key".into(),
        role: Role::Admin,
        created_by: LOCAL_USER.into(),
        created_at: clock.now(),
    };
    Ok(store.create_key(&local_scope(&workspace), &key, hash).await?)
}

fn local_scope(workspace: &Workspace) -> Scope {
    Scope {
        workspace: workspace.id,
        org: workspace.org.clone(),
        user: LOCAL_USER.into(),
        role: Role::Admin,
        key: None,
        administers: true,
    }
}

async fn make_local_workspace(store: &dyn Store, clock: &dyn Clock) -> Result<Workspace> {
    let workspace = Workspace {
        id: clock.new_id(),
        org: LOCAL_ORG.into(),
        name: "Local".into(),
        default_visibility: Visibility::Private,
        created_at: clock.now(),
    };
    store.create_workspace(&local_scope(&workspace), &workspace).await?;
    Ok(workspace)
}
