//! The `[mcp.NAME]` tables of the configuration file: tool servers that the operator vouches for.
//! They exist only in the file, since a command line to run does not belong in a flag.

use std::collections::BTreeMap;

use domain::secret::Secret;
use domain::tool_server::{is_name, is_token};

use super::McpServer;
use super::settings::all;
use super::value::url;

/// Reads the value of the key `mcp`. A problem is told without any value, as each may hold a key.
pub(super) fn read(servers: &toml::Value) -> Result<BTreeMap<String, McpServer>, String> {
    let servers = servers.as_table().ok_or("mcp must be written as tables: [mcp.NAME]")?;
    servers.iter().map(|(name, value)| Ok((checked_name(name)?, server(name, value)?))).collect()
}

fn checked_name(name: &str) -> Result<String, String> {
    if is_name(name) {
        Ok(name.to_owned())
    } else {
        Err(format!("[mcp.{name:?}] must be named with up to 64 letters, digits, - and _"))
    }
}

fn server(name: &str, value: &toml::Value) -> Result<McpServer, String> {
    let table = value.as_table().ok_or_else(|| wrong(name))?;
    if let Some(own) = names(table.get("env")).into_iter().flatten().find(|env| is_our_secret(env)) {
        return Err(format!(
            "[mcp.{name}] must not have {own} in env: that is a secret of this server's own"
        ));
    }
    http(table).or_else(|| stdio(table)).ok_or_else(|| wrong(name))
}

fn wrong(name: &str) -> String {
    format!(
        "[mcp.{name}] must have either url (an http or https address), and token if it wants one, \
         or command (a string), args (a list of strings) and env (a list of names), and nothing else"
    )
}

fn is_our_secret(env: &str) -> bool {
    all().any(|setting| {
        setting.is_secret() && (setting.env == env || setting.env_file().as_deref() == Some(env))
    })
}

fn only(table: &toml::Table, keys: &[&str]) -> Option<()> {
    table.keys().all(|key| keys.contains(&key.as_str())).then_some(())
}

fn http(table: &toml::Table) -> Option<McpServer> {
    only(table, &["url", "token"])?;
    let url = url(table.get("url")?.as_str()?).ok()?;
    let token = match table.get("token") {
        Some(token) => Some(token.as_str().filter(|token| is_token(token))?),
        None => None,
    };
    Some(McpServer::Http { url: Secret::new(url), token: token.map(Secret::new) })
}

fn stdio(table: &toml::Table) -> Option<McpServer> {
    only(table, &["command", "args", "env"])?;
    let command = table.get("command")?.as_str().filter(|command| !command.trim().is_empty())?;
    let args = names(table.get("args"))?.into_iter().map(Secret::new).collect();
    let env = names(table.get("env"))?.into_iter().map(str::to_owned).collect();
    Some(McpServer::Stdio { command: command.to_owned(), args, env })
}

/// A list of strings; an absent one is empty.
fn names(list: Option<&toml::Value>) -> Option<Vec<&str>> {
    match list {
        Some(list) => list.as_array()?.iter().map(toml::Value::as_str).collect(),
        None => Some(Vec::new()),
    }
}
