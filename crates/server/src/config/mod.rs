//! The configuration: what the operator asked for, typed and checked before anything starts.
//! In come flags, environment variables and a TOML file; out goes one `Config`, passed down from here.
//! `settings.rs` and `numbers.rs` are the table of all settings; the rest of this folder reads it.

mod example;
mod load;
mod mcp;
mod numbers;
mod settings;
mod show;
mod sources;
mod value;

use std::collections::BTreeMap;
use std::net::{Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};

use domain::limits::Limits;
use domain::secret::Secret;

pub use example::example;
pub use load::load;
pub use numbers::as_env;
pub use settings::{flags, flags_of, store_flags};
pub use sources::CLIENT_VARIABLES;
pub use value::base_url as http_url;

/// What a secret that signs should have at least (RFC 7518, 3.2); a shorter one is taken, and warned of.
pub const GOOD_SECRET_BYTES: usize = 32;

#[derive(Debug, Clone)]
pub struct Config {
    pub data: PathBuf,
    pub listen: SocketAddr,
    /// Without a trailing slash. `None`: derived from the address that was bound.
    pub public_url: Option<String>,
    pub log_format: LogFormat,
    pub database: Database,
    pub blobs: Blobs,
    pub secret: Option<Secret>,
    pub auth: Auth,
    pub sandbox: Sandbox,
    pub openai: Provider,
    pub anthropic: Provider,
    pub composio: Provider,
    /// The version of Anthropic's API; `None` is the oldest one in use.
    pub anthropic_version: Option<String>,
    /// The model where nobody chose one.
    pub model: Option<String>,
    /// Whether servers on this machine are offered, and where they are.
    pub local_models: bool,
    pub ollama_url: Option<String>,
    pub llamacpp_url: Option<String>,
    /// Whether what is left out of a prompt is summed up in it.
    pub context_summary: bool,
    /// Families of files that may be uploaded; empty is any.
    pub upload_types: Vec<String>,
    /// Where tool servers of admins may be beside the public network; none is this machine in local mode.
    pub tool_networks: Vec<String>,
    pub limits: Limits,
    pub mcp: BTreeMap<String, McpServer>,
    /// Where each setting came from; one that is missing here has its default.
    pub sources: BTreeMap<&'static str, Source>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LogFormat {
    Text,
    Json,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Database {
    Sqlite(PathBuf),
    /// The whole URL, which usually holds a password.
    Postgres(Secret),
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Blobs {
    Folder(PathBuf),
    /// `prefix` has no slash at either end and may be empty.
    S3 {
        bucket: String,
        prefix: String,
    },
}

/// How user tokens are verified. With neither a secret nor a key set, the server is in local mode.
#[derive(Debug, Clone, Default)]
pub struct Auth {
    pub jwt_secret: Option<Secret>,
    pub jwks_url: Option<String>,
    pub audience: Option<String>,
    pub issuer: Option<String>,
    pub default_org: Option<String>,
}

#[derive(Debug, Clone, Default)]
pub struct Sandbox {
    /// `None`: the built-in sandbox.
    pub url: Option<String>,
    pub token: Option<Secret>,
    /// Layers of the built-in sandbox's isolation that may be missing.
    pub allow_missing: Vec<String>,
}

#[derive(Debug, Clone, Default)]
pub struct Provider {
    pub api_key: Option<Secret>,
    pub base_url: Option<String>,
    /// What its models take beside text; empty goes by their names.
    pub inputs: Vec<String>,
}

/// A tool server of the operator. Its URL and arguments often carry a key, so they are kept as secrets.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum McpServer {
    /// `token` is sent as a bearer token.
    Http { url: Secret, token: Option<Secret> },
    /// `env` are names of variables that it may have of the server's own environment.
    Stdio { command: String, args: Vec<Secret>, env: Vec<String> },
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Source {
    Flag,
    Environment,
    File,
    Default,
}

/// One sentence that names the setting and says what to do; never holds a secret.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct ConfigError(String);

impl Config {
    /// No user tokens can be verified, so whoever reaches the loopback address is the local user.
    pub fn is_local(&self) -> bool {
        self.auth.jwt_secret.is_none() && self.auth.jwks_url.is_none()
    }

    /// The variables of secrets that sign and are short enough to be guessed.
    pub fn short_secrets(&self) -> impl Iterator<Item = &'static str> {
        let secrets = [("THREADKEEP_SECRET", &self.secret), ("THREADKEEP_JWT_SECRET", &self.auth.jwt_secret)];
        let short = |secret: &Secret| secret.expose().len() < GOOD_SECRET_BYTES;
        secrets
            .into_iter()
            .filter(move |(_, secret)| secret.as_ref().is_some_and(short))
            .map(|(name, _)| name)
    }

    pub fn source(&self, key: &str) -> Source {
        self.sources.get(key).copied().unwrap_or(Source::Default)
    }
}

impl Default for Config {
    fn default() -> Self {
        let data = PathBuf::from("./threadkeep-data");
        Self {
            listen: SocketAddr::from((Ipv4Addr::LOCALHOST, 8080)),
            public_url: None,
            log_format: LogFormat::Text,
            database: Database::within(&data),
            blobs: Blobs::within(&data),
            data,
            secret: None,
            auth: Auth::default(),
            sandbox: Sandbox::default(),
            openai: Provider::default(),
            anthropic: Provider::default(),
            composio: Provider::default(),
            anthropic_version: None,
            model: None,
            local_models: true,
            ollama_url: None,
            llamacpp_url: None,
            context_summary: false,
            upload_types: Vec::new(),
            tool_networks: Vec::new(),
            limits: Limits::default(),
            mcp: BTreeMap::new(),
            sources: BTreeMap::new(),
        }
    }
}

impl Database {
    pub fn within(data: &Path) -> Self {
        Self::Sqlite(data.join("threadkeep.db"))
    }
}

impl Blobs {
    pub fn within(data: &Path) -> Self {
        Self::Folder(data.join("blobs"))
    }
}

impl Source {
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Flag => "flag",
            Self::Environment => "env",
            Self::File => "file",
            Self::Default => "default",
        }
    }
}
