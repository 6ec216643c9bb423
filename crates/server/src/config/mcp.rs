//! The `[mcp.NAME]` tables of the configuration file: tool servers that the operator vouches for.
//! They exist only in the file, since a command line to run does not belong in a flag.

use std::collections::BTreeMap;

use domain::secret::Secret;

use super::McpServer;
use super::value::url;

/// Reads the value of the key `mcp`. A problem is told without any value, as each may hold a key.
pub(super) fn read(servers: &toml::Value) -> Result<BTreeMap<String, McpServer>, String> {
    let servers = servers.as_table().ok_or("mcp must be written as tables: [mcp.NAME]")?;
    servers.iter().map(|(name, value)| Ok((checked_name(name)?, server(name, value)?))).collect()
}

fn checked_name(name: &str) -> Result<String, String> {
    let good = (1..=64).contains(&name.len())
        && name.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'-' || b == b'_');
    if good {
        Ok(name.to_owned())
    } else {
        Err(format!("[mcp.{name:?}] must be named with up to 64 letters, digits, - and _"))
    }
}

fn server(name: &str, value: &toml::Value) -> Result<McpServer, String> {
    http(value).or_else(|| stdio(value)).ok_or_else(|| {
        format!(
            "[mcp.{name}] must have either url (an http or https address) \
             or command (a string) with args (a list of strings), and nothing else"
        )
    })
}

fn http(value: &toml::Value) -> Option<McpServer> {
    let table = value.as_table().filter(|table| table.len() == 1)?;
    let url = url(table.get("url")?.as_str()?).ok()?;
    Some(McpServer::Http { url: Secret::new(url) })
}

fn stdio(value: &toml::Value) -> Option<McpServer> {
    let table = value.as_table().filter(|table| table.keys().all(|key| key == "command" || key == "args"))?;
    let command = table.get("command")?.as_str().filter(|command| !command.trim().is_empty())?;
    let args = match table.get("args") {
        Some(args) => {
            args.as_array()?.iter().map(|arg| arg.as_str().map(Secret::new)).collect::<Option<_>>()?
        }
        None => Vec::new(),
    };
    Some(McpServer::Stdio { command: command.to_owned(), args })
}
