//! What became of everything that an import found: counts for a person or a script, and a line for each in a file.

use std::fs::File;
use std::io::{BufWriter, Write as _};
use std::path::Path;

use anyhow::{Context as _, Result};
use serde::Serialize;
use serde_json::json;
use uuid::Uuid;

use super::scan::Place;
use crate::progress::counted;

/// How many refusals are told on the terminal.
const TOLD: u64 = 20;

/// What was found where.
#[derive(Debug, Clone, Default)]
pub struct Entry {
    /// The file, and within a zip the name there.
    pub file: String,
    pub place: Place,
    /// What the source calls it.
    pub source_id: Option<String>,
    /// What it is: a conversation unless said otherwise.
    pub kind: &'static str,
    pub id: Option<Uuid>,
    pub messages: u64,
    pub files: u64,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Outcome {
    Imported,
    /// It was there, and has more messages and files now.
    Grown {
        messages: u64,
        files: u64,
    },
    /// Nothing was changed.
    AlreadyThere,
    Refused(String),
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
pub struct Counts {
    pub conversations: u64,
    pub messages: u64,
    pub files: u64,
    pub agents: u64,
    pub pages: u64,
    pub tables: u64,
    pub executions: u64,
}

impl Counts {
    fn add(&mut self, entry: &Entry) {
        match entry.kind {
            "agent" => self.agents += 1,
            "file" => self.files += 1,
            "page" => self.pages += 1,
            "table" => self.tables += 1,
            "execution" => {
                self.executions += 1;
                self.files += entry.files;
            }
            "workspace" => {}
            _ => {
                self.conversations += 1;
                self.messages += entry.messages;
                self.files += entry.files;
            }
        }
    }
}

/// A line of the report's file.
#[derive(Serialize)]
struct Line<'a> {
    file: &'a str,
    line: u64,
    byte: u64,
    number: u64,
    kind: &'a str,
    source_id: Option<&'a str>,
    id: Option<Uuid>,
    outcome: &'a str,
    messages: u64,
    files: u64,
    reason: Option<&'a str>,
}

pub struct Report {
    pub imported: Counts,
    pub already_there: Counts,
    /// Conversations that were there, with what they have more.
    pub grown: Counts,
    pub refused: u64,
    out: Option<BufWriter<File>>,
    dry: bool,
}

impl Report {
    pub fn new(path: Option<&Path>, dry: bool) -> Result<Self> {
        let make = |path: &Path| {
            let file = File::create(path).with_context(|| format!("--report {}", path.display()))?;
            anyhow::Ok(BufWriter::new(file))
        };
        let out = path.map(make).transpose()?;
        Ok(Self {
            imported: Counts::default(),
            already_there: Counts::default(),
            grown: Counts::default(),
            refused: 0,
            out,
            dry,
        })
    }

    pub fn note(&mut self, entry: &Entry, outcome: &Outcome) -> Result<()> {
        let (word, reason) = match outcome {
            Outcome::Imported => {
                self.imported.add(entry);
                (if self.dry { "would_import" } else { "imported" }, None)
            }
            Outcome::Grown { messages, files } => {
                self.grown.conversations += 1;
                self.grown.messages += messages;
                self.grown.files += files;
                (if self.dry { "would_grow" } else { "grown" }, None)
            }
            Outcome::AlreadyThere => {
                self.already_there.add(entry);
                ("already_there", None)
            }
            Outcome::Refused(reason) => {
                self.refused += 1;
                self.tell(entry, reason);
                ("refused", Some(&**reason))
            }
        };
        let Some(out) = &mut self.out else { return Ok(()) };
        let line = Line {
            file: &entry.file,
            line: entry.place.line,
            byte: entry.place.byte,
            number: entry.place.number,
            kind: entry.kind,
            source_id: entry.source_id.as_deref(),
            id: entry.id,
            outcome: word,
            messages: entry.messages,
            files: entry.files,
            reason,
        };
        serde_json::to_writer(&mut *out, &line).context("--report")?;
        out.write_all(b"\n").context("--report")
    }

    fn tell(&self, entry: &Entry, reason: &str) {
        if self.refused > TOLD {
            return;
        }
        let mut line = format!("refused: {}", entry.file);
        if entry.place.number > 0 {
            line += &format!(", number {} in line {}", entry.place.number, entry.place.line);
        }
        if let Some(id) = &entry.source_id {
            line += &format!(" ({})", id.chars().take(80).collect::<String>());
        }
        let _ = writeln!(std::io::stderr(), "{line}: {reason}");
        if self.refused == TOLD {
            let _ = writeln!(std::io::stderr(), "refused: more follow; --report FILE names them all");
        }
    }

    pub fn end(&mut self) -> Result<()> {
        self.out.as_mut().map_or(Ok(()), |out| out.flush()).context("--report")
    }

    /// The last word about it.
    pub fn told(&self, json: bool) -> String {
        let Self { imported, already_there, grown, refused, .. } = self;
        let word = if self.dry { "would_import" } else { "imported" };
        if json {
            return json!({ word: imported, "grown": grown, "already_there": already_there, "refused": refused }).to_string();
        }
        let more = [
            (imported.files, "file"),
            (imported.agents, "agent"),
            (imported.pages, "page"),
            (imported.tables, "table"),
            (imported.executions, "execution"),
        ]
        .map(|(count, one)| if count > 0 { format!(", {}", counted(count, one)) } else { String::new() })
        .concat();
        let went_on = match grown.conversations {
            0 => String::new(),
            count => format!("; {count} more went on with {}", counted(grown.messages, "message")),
        };
        format!(
            "{} {} with {}{more}{went_on}; {} {} there already; {refused} refused.",
            if self.dry { "Would import" } else { "Imported" },
            counted(imported.conversations, "conversation"),
            counted(imported.messages, "message"),
            counted(already_there.conversations, "conversation"),
            if already_there.conversations == 1 { "was" } else { "were" },
        )
    }
}
