//! Tool servers, other people's collections of tools: how they may be called, and how models know their tools.

use jiff::Timestamp;
use sha2::{Digest, Sha256};
use uuid::Uuid;

/// Characters of the longest name: models' providers take no longer ones for tools.
pub const MAX_NAME: usize = 64;

/// One that an admin has added to a workspace.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ToolServer {
    /// Made anew with each server, so that one that replaces another is not taken for it.
    pub id: Uuid,
    pub name: String,
    /// Its address without what may be a secret in it.
    pub url: String,
    /// Its whole address and its token, sealed.
    pub sealed: Vec<u8>,
    pub created_by: String,
    pub created_at: Timestamp,
}

impl ToolServer {
    /// What its secrets are bound to.
    pub fn owner(workspace: Uuid, id: Uuid) -> String {
        format!("tool server {workspace} {id}")
    }
}

/// How a tool describes itself, as a hash.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Pin {
    /// As its server knows it.
    pub tool: String,
    pub hash: String,
}

impl Pin {
    pub fn of(tool: &str, description: &str, schema: &str, read_only: bool) -> Self {
        let mut hash = Sha256::new();
        for part in [tool, description, schema, if read_only { "reads" } else { "writes" }] {
            hash.update((part.len() as u64).to_be_bytes());
            hash.update(part);
        }
        let hash = hash.finalize().iter().map(|byte| format!("{byte:02x}")).collect();
        Self { tool: tool.to_owned(), hash }
    }
}

/// Whether a server may be named so: letters, digits, `-` and `_`.
pub fn is_name(name: &str) -> bool {
    (1..=MAX_NAME).contains(&name.len()) && name.bytes().all(is_plain)
}

/// Whether this can be sent as a bearer token: visible ASCII, of a length that a header takes.
pub fn is_token(token: &str) -> bool {
    (1..=4096).contains(&token.len()) && token.bytes().all(|byte| (0x21..0x7f).contains(&byte))
}

fn is_plain(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || byte == b'-' || byte == b'_'
}

/// What a model calls a tool of a server: `server__tool`, where that is a name that every provider takes; else as
/// much of it as fits, with a hash of the whole.
pub fn offered_name(server: &str, tool: &str) -> String {
    safe_name(&format!("{server}__{tool}"))
}

/// A name that every provider takes, and the same one for the same text.
pub fn safe_name(wanted: &str) -> String {
    if is_name(wanted) {
        return wanted.to_owned();
    }
    let plain = |c: char| if c.is_ascii() && is_plain(c as u8) { c } else { '_' };
    let hash = Sha256::digest(wanted.as_bytes());
    let suffix: String = hash.iter().take(4).map(|byte| format!("{byte:02x}")).collect();
    let kept: String = wanted.chars().map(plain).take(MAX_NAME - 9).collect();
    format!("{kept}_{suffix}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_tool_has_a_name_that_providers_take_and_is_its_own() {
        assert_eq!(offered_name("files", "read_text-file"), "files__read_text-file");
        let long = "x".repeat(80);
        let odd = ["a.b", "a/b", "a b", "é", "", long.as_str(), &long[..79], "🦀", "a\u{0}b"];
        let mut names: Vec<String> = odd.iter().map(|tool| offered_name("s", tool)).collect();
        for name in &names {
            assert!(is_name(name), "{name}");
        }
        names.sort();
        names.dedup();
        assert_eq!(names.len(), odd.len());
        assert_eq!(offered_name(&"s".repeat(64), "t").len(), 64);
        for bad in ["", "a b", "a/b", "é", &"a".repeat(65)] {
            assert!(!is_name(bad), "{bad}");
        }
    }
}
