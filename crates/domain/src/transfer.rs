//! In and out, the pure half: a conversation with all that belongs to it (`Archive`), the lines of our own export,
//! and other people's exports, one file for each format, as neutral `Thread`s. In: JSON text. Out: what a store
//! can keep, or the reason why not.

use sha2::{Digest as _, Sha256};
use uuid::Uuid;

pub use archive::{Archive, ArchivedBranch, ArchivedExecution, ArchivedFile, ArchivedRun, Settings, Trace};

pub mod archive;
mod assistants;
pub mod block;
mod chat_conversations;
mod chatgpt;
mod claude;
pub mod conversation_line;
mod conversations;
mod copilot_chats;
pub mod fields;
pub mod file_line;
pub mod format;
pub mod growth;
mod knowledge_line;
mod librechat;
mod open_webui;
pub mod own;
pub mod page;
mod part;
mod row;
pub mod rows;
mod run_line;
pub mod thread;
mod times;
mod tree;

/// Why something is not taken in. The text says what was wrong with which part of the input.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct Refusal(pub String);

impl Refusal {
    pub fn new(reason: impl Into<String>) -> Self {
        Self(reason.into())
    }
}

/// The id of something that has none of ours: the same parts give the same one, on every machine. A UUID of version
/// 8 over SHA-256, as in RFC 9562, B.2.
pub fn derived_id(parts: &[&str]) -> Uuid {
    let mut hash = Sha256::new();
    hash.update(b"threadkeep import\0");
    for part in parts {
        hash.update((part.len() as u64).to_be_bytes());
        hash.update(part.as_bytes());
    }
    let mut bytes = [0; 16];
    bytes.copy_from_slice(&hash.finalize()[..16]);
    uuid::Builder::from_custom_bytes(bytes).into_uuid()
}

/// A text cut to `max` characters, without control characters; none when nothing is left.
pub(crate) fn one_line(text: &str, max: usize) -> Option<String> {
    let line = text.split_whitespace().collect::<Vec<_>>().join(" ");
    let cut: String = line.chars().filter(|c| !c.is_control()).take(max).collect();
    (!cut.is_empty()).then_some(cut)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn derived_ids_depend_on_every_part_and_on_where_one_ends() {
        let id = derived_id(&["a", "b"]);
        assert_eq!(id, derived_id(&["a", "b"]));
        assert_eq!(id.get_version_num(), 8);
        for other in [&["ab", ""][..], &["a"], &["a", "b", ""], &["b", "a"]] {
            assert_ne!(id, derived_id(other));
        }
    }

    #[test]
    fn a_title_is_one_short_line() {
        assert_eq!(one_line(" a\n b\u{7}\tc ", 99).as_deref(), Some("a b c"));
        assert_eq!(one_line("äöü", 2).as_deref(), Some("äö"));
        assert_eq!(one_line(" \n\u{0} ", 9), None);
    }
}
