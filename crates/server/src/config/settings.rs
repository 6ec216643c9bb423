//! The table of settings. A row gives a setting its TOML key, its environment variable, its kind and its
//! place in `Config`; flags, reading, printing and the example file all follow from the rows.

use std::net::SocketAddr;
use std::path::PathBuf;

use clap::{Arg, Command};
use domain::limits::Limits;
use domain::secret::Secret;

use super::numbers::NUMBERS;
use super::{Blobs, Config, Database, LogFormat};
use upstream::llm::takes::INPUTS;

#[derive(Debug)]
pub(super) struct Setting {
    /// The TOML key; with dashes, the flag.
    pub(super) key: &'static str,
    pub(super) env: &'static str,
    pub(super) kind: Kind,
    /// What holds when it is not set, where the default is not a plain value.
    pub(super) otherwise: &'static str,
    pub(super) help: &'static str,
    pub(super) group: &'static str,
}

/// Where a value of type `T` lives in the configuration.
pub(super) type Place<T> = fn(&mut Config) -> &mut T;

#[derive(Debug)]
pub(super) enum Kind {
    Text(Place<Option<String>>),
    /// As `provider/model`.
    Model(Place<Option<String>>),
    Path(Place<PathBuf>),
    Address(Place<SocketAddr>),
    /// An address that is used as it is.
    Url(Place<Option<String>>),
    /// An address that paths are put behind: no query, no trailing slash.
    BaseUrl(Place<Option<String>>),
    Database(Place<Database>),
    Blobs(Place<Blobs>),
    Secret(Place<Option<Secret>>),
    List {
        of: &'static [&'static str],
        place: Place<Vec<String>>,
    },
    LogFormat(Place<LogFormat>),
    /// `on` or `off`.
    Switch(Place<bool>),
    Number {
        unit: Unit,
        min: u64,
        place: fn(&mut Limits) -> &mut u64,
    },
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Unit {
    Count,
    Seconds,
    Bytes,
}

const UPLOAD_FAMILIES: &[&str] = &["image", "pdf", "text", "office", "audio", "video", "archive"];

const SANDBOX_LAYERS: &[&str] = &["namespaces", "landlock", "seccomp"];

const TOOL_NETWORKS: &[&str] = &["loopback", "private"];

const SERVER: &str = "Server";
const STORAGE: &str = "Storage";
const SIGN_IN: &str = "Sign-in";
const SANDBOX: &str = "Sandbox";
const MODELS: &str = "Models and tools";

static SETTINGS: &[Setting] = &[
    row(SERVER, "data", "THREADKEEP_DATA", Kind::Path(|c| &mut c.data))
        .help("Folder for everything the embedded default keeps"),
    row(SERVER, "listen", "THREADKEEP_LISTEN", Kind::Address(|c| &mut c.listen))
        .help("Address to listen on; loopback only in local mode"),
    row(SERVER, "public_url", "THREADKEEP_PUBLIC_URL", Kind::BaseUrl(|c| &mut c.public_url))
        .help("Base of every URL handed out")
        .otherwise("derived from the address"),
    row(SERVER, "secret", "THREADKEEP_SECRET", Kind::Secret(|c| &mut c.secret))
        .help("Key for signed URLs and cookies, better 32 bytes or more; must be set outside local mode")
        .otherwise("made once and kept in the data folder"),
    row(SERVER, "log_format", "LOG_FORMAT", Kind::LogFormat(|c| &mut c.log_format))
        .help("How logs are written: text or json"),
    row(STORAGE, "database_url", "DATABASE_URL", Kind::Database(|c| &mut c.database))
        .help("sqlite:PATH or postgres://USER:PASSWORD@HOST/NAME")
        .otherwise("SQLite in the data folder"),
    row(STORAGE, "blob_url", "THREADKEEP_BLOB_URL", Kind::Blobs(|c| &mut c.blobs))
        .help("file:///PATH or s3://BUCKET/PREFIX, the latter with the usual AWS_* variables")
        .otherwise("files in the data folder"),
    row(
        STORAGE,
        "upload_types",
        "THREADKEEP_UPLOAD_TYPES",
        Kind::List { of: UPLOAD_FAMILIES, place: |c| &mut c.upload_types },
    )
    .help("Families of files that may be uploaded: image, pdf, text, office, audio, video, archive")
    .otherwise("any type"),
    row(SIGN_IN, "jwt_secret", "THREADKEEP_JWT_SECRET", Kind::Secret(|c| &mut c.auth.jwt_secret))
        .help("Verifies user tokens signed with HS256, better 32 bytes or more")
        .otherwise("none: local mode, unless a key set is named"),
    row(SIGN_IN, "jwks_url", "THREADKEEP_JWKS_URL", Kind::Url(|c| &mut c.auth.jwks_url))
        .help("Key set that verifies user tokens signed with RS256, ES256 or EdDSA")
        .otherwise("none: local mode, unless a JWT secret is set"),
    row(SIGN_IN, "jwt_audience", "THREADKEEP_JWT_AUDIENCE", Kind::Text(|c| &mut c.auth.audience))
        .help("What a user token must name as its audience")
        .otherwise("not checked"),
    row(SIGN_IN, "jwt_issuer", "THREADKEEP_JWT_ISSUER", Kind::Text(|c| &mut c.auth.issuer))
        .help("What a user token must name as its issuer")
        .otherwise("not checked"),
    row(SIGN_IN, "default_org", "THREADKEEP_DEFAULT_ORG", Kind::Text(|c| &mut c.auth.default_org))
        .help("Org of a user token that names none")
        .otherwise("a token must name its org"),
    row(SANDBOX, "sandbox_url", "SANDBOX_URL", Kind::BaseUrl(|c| &mut c.sandbox.url))
        .help("A remote sandbox service")
        .otherwise("the built-in sandbox"),
    row(SANDBOX, "sandbox_token", "SANDBOX_TOKEN", Kind::Secret(|c| &mut c.sandbox.token))
        .help("Bearer token for the remote sandbox service")
        .otherwise("none"),
    row(
        SANDBOX,
        "sandbox_allow_missing",
        "SANDBOX_ALLOW_MISSING",
        Kind::List { of: SANDBOX_LAYERS, place: |c| &mut c.sandbox.allow_missing },
    )
    .help("Layers of the built-in sandbox that this machine may lack: namespaces, landlock, seccomp")
    .otherwise("none: agents are refused where one is missing"),
    row(MODELS, "openai_api_key", "OPENAI_API_KEY", Kind::Secret(|c| &mut c.openai.api_key))
        .help("Key for OpenAI or a server that speaks its protocol")
        .otherwise("none: the built-in demo model"),
    row(MODELS, "openai_base_url", "OPENAI_BASE_URL", Kind::BaseUrl(|c| &mut c.openai.base_url))
        .help("Where that server is, with /v1")
        .otherwise("OpenAI's own"),
    row(MODELS, "anthropic_api_key", "ANTHROPIC_API_KEY", Kind::Secret(|c| &mut c.anthropic.api_key))
        .help("Key for Anthropic")
        .otherwise("none: the built-in demo model"),
    row(MODELS, "anthropic_base_url", "ANTHROPIC_BASE_URL", Kind::BaseUrl(|c| &mut c.anthropic.base_url))
        .help("Where Anthropic's API is, without /v1")
        .otherwise("Anthropic's own"),
    row(MODELS, "anthropic_version", "ANTHROPIC_VERSION", Kind::Text(|c| &mut c.anthropic_version))
        .help("Version of Anthropic's API, as its anthropic-version header has it")
        .otherwise("2023-06-01"),
    row(MODELS, "openai_inputs", "OPENAI_INPUTS", Kind::List { of: INPUTS, place: |c| &mut c.openai.inputs })
        .help("What models of that server take beside text: image, pdf, or none")
        .otherwise("by the model's name"),
    row(
        MODELS,
        "anthropic_inputs",
        "ANTHROPIC_INPUTS",
        Kind::List { of: INPUTS, place: |c| &mut c.anthropic.inputs },
    )
    .help("What Anthropic's models take beside text: image, pdf, or none")
    .otherwise("by the model's name"),
    row(MODELS, "local_models", "THREADKEEP_LOCAL_MODELS", Kind::Switch(|c| &mut c.local_models))
        .help("Whether an Ollama or llama.cpp server on this machine is looked for and its models offered: on or off"),
    row(MODELS, "ollama_base_url", "OLLAMA_BASE_URL", Kind::BaseUrl(|c| &mut c.ollama_url))
        .help("Where Ollama is looked for, without /v1")
        .otherwise("http://127.0.0.1:11434"),
    row(MODELS, "llamacpp_base_url", "LLAMACPP_BASE_URL", Kind::BaseUrl(|c| &mut c.llamacpp_url))
        .help("Where llama.cpp's server is looked for, without /v1")
        .otherwise("http://127.0.0.1:8080, unless this server listens there"),
    row(MODELS, "context_summary", "THREADKEEP_CONTEXT_SUMMARY", Kind::Switch(|c| &mut c.context_summary))
        .help("Whether a model sums up what is left out of a long thread: on or off"),
    row(MODELS, "model", "THREADKEEP_MODEL", Kind::Model(|c| &mut c.model))
        .help("Model where neither conversation, agent nor workspace names one, as provider/model")
        .otherwise("the first of the provider that is set up, else demo/assistant"),
    row(MODELS, "composio_api_key", "COMPOSIO_API_KEY", Kind::Secret(|c| &mut c.composio.api_key))
        .help("Key for external tools through Composio")
        .otherwise("none: no such tools"),
    row(MODELS, "composio_base_url", "COMPOSIO_BASE_URL", Kind::BaseUrl(|c| &mut c.composio.base_url))
        .help("Where Composio's API is")
        .otherwise("Composio's own"),
    row(
        MODELS,
        "tool_networks",
        "THREADKEEP_TOOL_NETWORKS",
        Kind::List { of: TOOL_NETWORKS, place: |c| &mut c.tool_networks },
    )
    .help("Where tool servers that admins add may be beside the public network: loopback, private")
    .otherwise("loopback in local mode, else none"),
];

pub(super) fn all() -> impl Iterator<Item = &'static Setting> {
    SETTINGS.iter().chain(NUMBERS)
}

/// Adds `--config` and every setting to a command. The many numbers show in `--help`, not in `-h`.
pub fn flags(command: Command) -> Command {
    with_flags(command, |_| true)
}

/// As `flags`, for a command that opens the store: of the rest its help is silent.
pub fn store_flags(command: Command) -> Command {
    let told = ["data", "database_url", "blob_url"];
    all()
        .filter(|setting| !told.contains(&setting.key))
        .fold(flags(command), |command, setting| command.mut_arg(setting.key, |flag| flag.hide(true)))
}

/// As `flags`, with these settings alone.
pub fn flags_of(command: Command, keys: &[&str]) -> Command {
    with_flags(command, |setting| keys.contains(&setting.key))
}

fn with_flags(command: Command, wanted: impl Fn(&Setting) -> bool) -> Command {
    let file = Arg::new("config")
        .long("config")
        .value_name("FILE")
        .help("TOML file to read settings from [env: THREADKEEP_CONFIG]")
        .help_heading(SERVER);
    command.arg(file).args(all().filter(|setting| wanted(setting)).map(|setting| {
        Arg::new(setting.key)
            .long(setting.flag())
            .value_name(setting.kind.placeholder())
            .help(format!("{} [env: {}]", setting.help, setting.env))
            .help_heading(setting.group)
            .hide_short_help(matches!(setting.kind, Kind::Number { .. }))
    }))
}

pub(super) const fn row(group: &'static str, key: &'static str, env: &'static str, kind: Kind) -> Setting {
    Setting { key, env, kind, otherwise: "", help: "", group }
}

impl Setting {
    pub(super) const fn help(self, help: &'static str) -> Self {
        Self { help, ..self }
    }

    pub(super) const fn otherwise(self, otherwise: &'static str) -> Self {
        Self { otherwise, ..self }
    }

    /// The long flag, without its two dashes.
    pub(super) fn flag(&self) -> String {
        self.key.replace('_', "-")
    }

    /// The variable that names a file holding the value: secrets have one.
    pub(super) fn env_file(&self) -> Option<String> {
        self.is_secret().then(|| format!("{}_FILE", self.env))
    }

    /// Its text must not be repeated in an error.
    pub(super) fn is_secret(&self) -> bool {
        matches!(self.kind, Kind::Secret(_) | Kind::Database(_))
    }
}

impl Kind {
    fn placeholder(&self) -> &'static str {
        match self {
            Self::Text(_) => "TEXT",
            Self::Model(_) => "PROVIDER/MODEL",
            Self::Path(_) => "FOLDER",
            Self::Address(_) => "HOST:PORT",
            Self::Url(_) | Self::BaseUrl(_) | Self::Database(_) | Self::Blobs(_) => "URL",
            Self::Secret(_) => "SECRET",
            Self::List { .. } => "LIST",
            Self::LogFormat(_) => "FORMAT",
            Self::Switch(_) => "ON|OFF",
            Self::Number { unit: Unit::Count, .. } => "NUMBER",
            Self::Number { unit: Unit::Seconds, .. } => "SECONDS",
            Self::Number { unit: Unit::Bytes, .. } => "BYTES",
        }
    }
}
