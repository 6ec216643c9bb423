//! What is said between the service and the first process of a room: a JSON line, and as many bytes after it as it
//! says. One question, one answer (of `Collect`, one per file and a last one).

use std::io::{self, BufRead, Read, Write};

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

/// No line is longer; the bytes after it may be.
const MAX_LINE: u64 = 1024 * 1024;
/// No payload is longer.
pub const MAX_PAYLOAD: usize = 8 * 1024 * 1024;

/// Everything the first process of a room is told at its start.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Setup {
    pub step: Step,
    pub kind: Kind,
    pub limits: RoomLimits,
    /// Folders of this machine that must not be seen, though they lie within one that is.
    pub hide: Vec<String>,
    /// Layers that are left out.
    pub without: Vec<crate::Layer>,
}

/// How far into the room a process is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Step {
    /// Outside: leaves root and makes the namespaces.
    Enter,
    /// The first process of the namespaces: lays out the root.
    Furnish,
    /// The root is laid out: shuts the rest and serves.
    Settle,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Kind {
    /// bubblewrap makes the namespaces and the root.
    Bubblewrap,
    /// We do.
    Own,
    /// Nobody does: the room is this folder.
    Bare(String),
}

#[derive(Debug, Clone, Copy, Serialize, Deserialize)]
pub struct RoomLimits {
    pub cpu_seconds: u64,
    pub memory_bytes: u64,
    pub disk_bytes: u64,
    pub processes: u64,
}

#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(tag = "ask", rename_all = "snake_case")]
pub enum Ask {
    /// The payload becomes a file, or its end.
    Put { path: String, append: bool, executable: bool },
    /// Runs a program with the payload as its standard input.
    Run { argv: Vec<String>, timeout_ms: u64 },
    /// The beginning of a file.
    Read { path: String, limit: u64 },
    /// What is in a folder and below, as text.
    List { path: String },
    /// Ends every process but the first, then sends the files of `assets/`: so many, of so many bytes each and together.
    Collect { max_files: usize, max_file_bytes: u64, max_bytes: u64 },
}

#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(tag = "answer", rename_all = "snake_case")]
pub enum Answer {
    /// The room is shut; these layers hold.
    Ready {
        layers: Vec<crate::Layer>,
    },
    Done,
    Failed {
        message: String,
    },
    /// A program's end, with its output.
    Ended {
        code: Option<i32>,
        signal: Option<i32>,
        limit: Option<String>,
    },
    /// Part of a file of `assets/`; `whole` is its size.
    Part {
        path: String,
        whole: u64,
    },
    /// What was not collected, and why.
    Left {
        path: String,
        why: String,
    },
}

/// The list of a folder in which there is none.
pub const NO_FILES: &str = "There are no files.";

#[derive(Serialize, Deserialize)]
struct Head<T> {
    #[serde(flatten)]
    what: T,
    len: usize,
}

pub fn head<T: Serialize>(what: &T, len: usize) -> io::Result<Vec<u8>> {
    let mut line = serde_json::to_vec(&Head { what, len })?;
    line.push(b'\n');
    Ok(line)
}

pub fn parse_head<T: DeserializeOwned>(line: &[u8]) -> io::Result<(T, usize)> {
    let head: Head<T> = serde_json::from_slice(line)?;
    if head.len > MAX_PAYLOAD {
        return Err(io::Error::other("a payload is too long"));
    }
    Ok((head.what, head.len))
}

pub fn write<T: Serialize>(to: &mut impl Write, what: &T, payload: &[u8]) -> io::Result<()> {
    to.write_all(&head(what, payload.len())?)?;
    to.write_all(payload)?;
    to.flush()
}

/// `None` at the end.
pub fn read<T: DeserializeOwned>(from: &mut impl BufRead) -> io::Result<Option<(T, Vec<u8>)>> {
    let mut line = Vec::new();
    if from.by_ref().take(MAX_LINE).read_until(b'\n', &mut line)? == 0 {
        return Ok(None);
    }
    let (what, len) = parse_head(&line)?;
    let mut payload = vec![0; len];
    from.read_exact(&mut payload)?;
    Ok(Some((what, payload)))
}
