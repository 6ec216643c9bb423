//! The three places a setting may be written in. Each is checked for names that mean nothing, and then
//! asked for one setting at a time.

use std::collections::BTreeMap;
use std::ffi::{OsStr, OsString};
use std::fs;
use std::net::IpAddr;
use std::path::PathBuf;

use clap::ArgMatches;

use super::mcp;
use super::settings::{Setting, all};
use super::value::toml_text;
use super::{ConfigError, McpServer, Source};

const PREFIX: &str = "THREADKEEP_";
const CONFIG_ENV: &str = "THREADKEEP_CONFIG";
/// What `threadkeep chat` reads: which server, with which key. No settings of a server, which may see them.
pub const CLIENT_VARIABLES: [&str; 2] = ["THREADKEEP_SERVER", "THREADKEEP_KEY"];

/// A text found for a setting, with its origin in words.
pub(super) struct Found {
    pub(super) raw: String,
    pub(super) source: Source,
    pub(super) origin: String,
}

pub(super) fn in_flags(flags: &ArgMatches, setting: &Setting) -> Option<Found> {
    let raw = flag(flags, setting.key)?;
    Some(Found { raw, source: Source::Flag, origin: format!("the flag --{}", setting.flag()) })
}

/// A command that was not given the flags has simply set none.
fn flag(flags: &ArgMatches, id: &str) -> Option<String> {
    flags.try_get_one::<String>(id).ok().flatten().cloned()
}

/// The variables that are ours and not empty.
pub(super) struct Environment(BTreeMap<String, String>);

impl Environment {
    pub(super) fn read(env: impl Iterator<Item = (OsString, OsString)>) -> Result<Self, ConfigError> {
        let known = known_variables();
        let mut ours = BTreeMap::new();
        for (name, value) in env {
            let name = name.to_string_lossy().into_owned();
            if known.contains(&name) || name.starts_with(PREFIX) {
                ours.insert(name, value);
            }
        }
        let mut found = BTreeMap::new();
        for (name, value) in ours {
            if is_of_a_service(&name, &value) {
                continue;
            }
            if !known.contains(&name) {
                let hint = suggestion(&name, known.iter().map(String::as_str));
                return Err(ConfigError(format!("{name} in the environment is not a setting{hint}")));
            }
            let value = value.into_string().map_err(|_| {
                ConfigError(format!("{name}, set by the environment, is not UTF-8: it must be plain text"))
            })?;
            if !value.is_empty() {
                found.insert(name, value);
            }
        }
        Ok(Self(found))
    }

    pub(super) fn find(&self, setting: &Setting) -> Result<Option<Found>, ConfigError> {
        let plain = self.0.get(setting.env).cloned();
        let named = setting.env_file().and_then(|name| self.0.get_key_value(&name));
        let (raw, origin) = match (plain, named) {
            (Some(_), Some((name, _))) => {
                let message = format!("{} and {name} are both set: keep one of them", setting.env);
                return Err(ConfigError(message));
            }
            (Some(raw), None) => (raw, "the environment".to_owned()),
            (None, Some((name, path))) => {
                let content = fs::read_to_string(path).map_err(|error| {
                    ConfigError(format!("{name} names {path:?}, which cannot be read: {error}"))
                })?;
                (content.trim().to_owned(), format!("the file that {name} names"))
            }
            (None, None) => return Ok(None),
        };
        Ok(Some(Found { raw, source: Source::Environment, origin }))
    }
}

/// Kubernetes tells every pod the addresses of the services around it, under their names: `THREADKEEP_PORT` and
/// `THREADKEEP_SERVICE_HOST` where the service is called threadkeep.
fn is_of_a_service(name: &str, value: &OsStr) -> bool {
    let value = value.to_str().unwrap_or("");
    let is_address = || value.parse::<IpAddr>().is_ok();
    let is_port = || value.parse::<u16>().is_ok();
    let is_link = || ["tcp://", "udp://", "sctp://"].iter().any(|scheme| value.starts_with(scheme));
    let is_protocol = || ["tcp", "udp", "sctp"].contains(&value);
    match name {
        _ if name.ends_with("_SERVICE_HOST") => is_address(),
        _ if name.contains("_SERVICE_PORT") => is_port(),
        _ if name.ends_with("_ADDR") => name.contains("_PORT_") && is_address(),
        _ if name.ends_with("_PROTO") => name.contains("_PORT_") && is_protocol(),
        _ if name.contains("_PORT_") && name.ends_with("_PORT") => is_port(),
        _ => (name.ends_with("_PORT") || name.contains("_PORT_")) && is_link(),
    }
}

/// The TOML file, if one was named.
pub(super) struct File {
    path: PathBuf,
    table: toml::Table,
}

impl File {
    pub(super) fn read(flags: &ArgMatches, env: &Environment) -> Result<Self, ConfigError> {
        let named = match (flag(flags, "config"), env.0.get(CONFIG_ENV)) {
            (Some(path), _) => Some((path, "--config")),
            (None, Some(path)) => Some((path.clone(), CONFIG_ENV)),
            (None, None) => None,
        };
        let Some((path, by)) = named else {
            return Ok(Self { path: PathBuf::new(), table: toml::Table::new() });
        };
        let text = fs::read_to_string(&path)
            .map_err(|error| ConfigError(format!("{by} names {path:?}, which cannot be read: {error}")))?;
        let table = text.parse().map_err(|error| not_toml(&path, &text, &error))?;
        let file = Self { path: path.into(), table };
        file.check_keys()?;
        Ok(file)
    }

    fn check_keys(&self) -> Result<(), ConfigError> {
        let known = || all().map(|setting| setting.key).chain(["mcp"]);
        match self.table.keys().find(|key| !known().any(|k| k == key.as_str())) {
            Some(key) => {
                let hint = suggestion(key, known());
                let path = self.path.display();
                Err(ConfigError(format!("{key:?} in the file {path} is not a setting{hint}")))
            }
            None => Ok(()),
        }
    }

    pub(super) fn find(&self, setting: &Setting) -> Result<Option<Found>, ConfigError> {
        let Some(value) = self.table.get(setting.key) else { return Ok(None) };
        let origin = format!("the file {} (key {})", self.path.display(), setting.key);
        let raw = toml_text(&setting.kind, value).map_err(|wanted| {
            let (env, got) = (setting.env, value.type_str());
            ConfigError(format!("{env}, set by {origin}, has the type {got}: it must be {wanted}"))
        })?;
        Ok(Some(Found { raw, source: Source::File, origin }))
    }

    pub(super) fn mcp(&self) -> Result<BTreeMap<String, McpServer>, ConfigError> {
        let Some(servers) = self.table.get("mcp") else { return Ok(BTreeMap::new()) };
        mcp::read(servers).map_err(|problem| ConfigError(format!("{problem} (file {})", self.path.display())))
    }
}

fn known_variables() -> Vec<String> {
    let plain = all().map(|setting| setting.env.to_owned());
    plain
        .chain(all().filter_map(Setting::env_file))
        .chain([CONFIG_ENV.to_owned()])
        .chain(CLIENT_VARIABLES.map(str::to_owned))
        .collect()
}

/// The parser's own rendering quotes the line, which may hold a secret; this names it by number.
fn not_toml(path: &str, text: &str, error: &toml::de::Error) -> ConfigError {
    let before = error.span().and_then(|span| text.get(..span.start)).unwrap_or("");
    let line = before.matches('\n').count() + 1;
    ConfigError(format!("the file {path} is not valid TOML at line {line}: {}", error.message()))
}

/// The nearest known name as the rest of a sentence.
fn suggestion<'a>(name: &str, known: impl Iterator<Item = &'a str>) -> String {
    let bare = bare(name);
    let near = known
        .map(|known| (strsim::damerau_levenshtein(&bare, &self::bare(known)), known))
        .filter(|(distance, _)| *distance <= 1 + bare.len() / 4)
        .min_by_key(|(distance, _)| *distance);
    match near {
        Some((_, known)) => format!("; did you mean {known}?"),
        None => "; `threadkeep serve --help` lists them all".to_owned(),
    }
}

/// What remains of a name when prefix, case and dashes are forgotten, as people do.
fn bare(name: &str) -> String {
    let name = name.to_ascii_lowercase().replace('-', "_");
    name.strip_prefix("threadkeep_").map_or(name.clone(), str::to_owned)
}
