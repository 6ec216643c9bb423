//! The effective configuration for people and for scripts, with every secret masked.

use std::fmt::Write;

use serde_json::json;

use super::settings::{Kind, Setting, Unit, all};
use super::value::{MASK, bytes_text};
use super::{Config, McpServer};

impl Config {
    /// `key = value  # from flag|env|file|default`, one line for each setting.
    pub fn to_toml(&self) -> String {
        let mut copy = self.clone();
        let mut out = String::new();
        for setting in all() {
            let from = self.source(setting.key).as_str();
            let _ = match setting.shown(&mut copy) {
                Some(value) => {
                    writeln!(out, "{} = {value}  # from {from}{}", setting.key, setting.in_units(&mut copy))
                }
                None => writeln!(out, "# {} is not set: {}", setting.key, setting.otherwise),
            };
        }
        for (name, server) in &self.mcp {
            let _ = write!(out, "\n[mcp.{name}]  # from file\n");
            for (key, value) in server.shown() {
                let _ = writeln!(out, "{key} = {value}");
            }
        }
        out
    }

    /// `{ key: { value, from } }`, with `null` for what is not set, and `mcp: { name: server }`.
    pub fn to_json(&self) -> serde_json::Value {
        let mut copy = self.clone();
        let mut out = serde_json::Map::new();
        for setting in all() {
            let entry =
                json!({ "value": setting.shown(&mut copy), "from": self.source(setting.key).as_str() });
            out.insert(setting.key.to_owned(), entry);
        }
        let servers = self.mcp.iter().map(|(name, server)| {
            let shown = server.shown().into_iter().map(|(key, value)| (key.to_owned(), json!(value)));
            (name.clone(), shown.collect::<serde_json::Value>())
        });
        out.insert("mcp".to_owned(), servers.collect());
        out.into()
    }
}

impl McpServer {
    /// Its table, with stars for what may be a secret.
    fn shown(&self) -> Vec<(&'static str, toml::Value)> {
        match self {
            Self::Http { token, .. } => {
                let token = token.iter().map(|_| ("token", MASK.into()));
                [("url", MASK.into())].into_iter().chain(token).collect()
            }
            Self::Stdio { command, args, env } => {
                let env = (!env.is_empty()).then(|| ("env", env.clone().into()));
                let args = ("args", vec![MASK; args.len()].into());
                [("command", command.as_str().into()), args].into_iter().chain(env).collect()
            }
        }
    }
}

impl Setting {
    /// `: 50 MiB` behind a number of bytes that says more so; scripts have the number itself.
    fn in_units(&self, config: &mut Config) -> String {
        let Kind::Number { unit: Unit::Bytes, place, .. } = &self.kind else { return String::new() };
        let bytes = *place(&mut config.limits);
        let text = bytes_text(bytes);
        if text == bytes.to_string() { String::new() } else { format!(": {text}") }
    }

    /// The value as the example has it in TOML; bytes as people read them.
    pub(super) fn toml(&self, config: &mut Config) -> Option<String> {
        if let Kind::Number { unit: Unit::Bytes, place, .. } = &self.kind {
            return Some(format!("\"{}\"", bytes_text(*place(&mut config.limits))));
        }
        self.shown(config).map(|value| value.to_string())
    }
}

#[cfg(test)]
#[path = "show_tests.rs"]
mod tests;
