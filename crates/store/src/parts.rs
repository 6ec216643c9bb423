//! The log of a run whose time is over: rows of a bounded size, so that nobody who reads it holds it whole.

use serde::Deserialize;

use crate::error::Result;
use crate::turns::parse_json;

/// How large such a row becomes; only an entry that is larger by itself makes a larger one.
pub(crate) const PART_BYTES: usize = 256 * 1024;

#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Part {
    pub(crate) first_entry: i64,
    pub(crate) last_entry: i64,
    /// The newest event up to its end.
    pub(crate) last_seq: i64,
    pub(crate) entries: String,
}

/// Cuts entries that follow one another, from the number `first` on, after the event `last_seq`.
pub(crate) fn cut(first: i64, entries: &[String], mut last_seq: i64) -> Result<Vec<Part>> {
    #[derive(Deserialize)]
    struct Number {
        #[serde(default)]
        seq: Option<i64>,
    }
    let mut parts: Vec<Part> = Vec::new();
    for (entry, n) in entries.iter().zip(first..) {
        last_seq = parse_json::<Number>(entry)?.seq.unwrap_or(last_seq);
        match parts.last_mut() {
            Some(part) if part.entries.len() + 1 + entry.len() <= PART_BYTES => {
                (part.last_entry, part.last_seq) = (n, last_seq);
                part.entries.push('\n');
                part.entries.push_str(entry);
            }
            _ => parts.push(Part { first_entry: n, last_entry: n, last_seq, entries: entry.clone() }),
        }
    }
    Ok(parts)
}
