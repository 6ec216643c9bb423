//! From files to things to import: every text is scanned, every record read by its format, and the bytes that it
//! names are found. Runs on a thread of its own; what it holds is bounded by a budget that each thing gives back when
//! it has been dealt with.

use std::io::BufRead;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::AtomicU64;

use anyhow::Result;
use domain::agent::Agent;
use domain::conversation::Visibility;
use domain::page::Page;
use domain::table::{Row, Table};
use domain::transfer::format::Format;
use domain::transfer::{Archive, ArchivedExecution, ArchivedFile, Refusal, Settings, Trace};
use jiff::Timestamp;
use store::transfer::Pieces;
use tokio::runtime::Handle;
use tokio::sync::{OwnedSemaphorePermit, Semaphore, mpsc};
use uuid::Uuid;

use super::csv::Csv;
use super::input::{Bytes, Input, Spool, Text};
use super::records::Records;
use super::report::Entry;
use super::scan::{Found, MAX_ELEMENT, Place, Scan};
use super::tables::Tables;

/// How many bytes of source may be under way at once.
pub const BUDGET: usize = 16 * 1024 * 1024;

pub enum Thing {
    /// What the workspace has set.
    Workspace(Settings),
    /// A conversation, the bytes of its files in their order, and the logs of its runs, which only ours have.
    Conversation(Box<Archive>, Vec<Bytes>, Option<Arc<dyn Pieces<Trace>>>),
    /// The same of an execution.
    Execution(Box<ArchivedExecution>, Vec<Bytes>, Arc<dyn Pieces<Trace>>),
    Agent(Agent),
    Page(Page),
    /// A table and its rows, which fit it.
    Table(Table, Arc<dyn Pieces<Vec<Row>>>),
    /// A file that the workspace keeps.
    File(Box<ArchivedFile>, Bytes),
    Refused(String),
}

/// One thing that was found.
pub struct Item {
    pub entry: Entry,
    pub thing: Thing,
    _held: Option<OwnedSemaphorePermit>,
}

/// What everything that is found becomes a part of.
#[derive(Debug, Clone)]
pub struct Target {
    /// The one that was asked for.
    pub format: Option<Format>,
    pub workspace: Uuid,
    pub owner: String,
    pub visibility: Visibility,
    /// The most that a conversation keeps.
    pub max_tabs: usize,
    pub now: Timestamp,
}

pub struct Walk {
    pub target: Target,
    out: mpsc::Sender<Item>,
    budget: Arc<Semaphore>,
    /// Bytes of the texts that were read so far.
    read: Arc<AtomicU64>,
    runtime: Handle,
}

/// Nobody takes things any more: the walk ends.
#[derive(Debug, thiserror::Error)]
#[error("nobody takes what is found")]
struct Gone;

/// Nothing of an archive's text is known: it is passed over.
enum Passed {
    Read,
    Over,
}

/// A text under way.
enum Reading<R> {
    Csv(Csv<R>),
    Json(Scan<R>),
}

impl<R: BufRead> Reading<R> {
    fn next(&mut self) -> std::io::Result<Option<(Place, Found)>> {
        match self {
            Self::Csv(csv) => csv.next(),
            Self::Json(scan) => scan.next(),
        }
    }
}

impl Walk {
    pub fn new(target: Target, out: mpsc::Sender<Item>, read: Arc<AtomicU64>, runtime: Handle) -> Self {
        Self { target, out, budget: Arc::new(Semaphore::new(BUDGET)), read, runtime }
    }

    /// Goes through all of them. A text that cannot be read is a refusal, and the next one is read.
    pub fn run(&self, paths: &[PathBuf]) -> Result<()> {
        let walked = self.walk(paths);
        match walked {
            Err(error) if error.is::<Gone>() => Ok(()),
            walked => walked,
        }
    }

    fn walk(&self, paths: &[PathBuf]) -> Result<()> {
        let mut tables = Tables::default();
        for path in paths {
            if let Err(error) = self.input(path, &mut tables) {
                if error.is::<Gone>() {
                    return Err(error);
                }
                let file = path.display().to_string();
                self.refuse(Entry { file, kind: "file", ..Entry::default() }, format!("{error:#}"))?;
            }
        }
        let spool = Spool::new()?;
        for groups in tables.groups() {
            for group in groups? {
                let (entry, bytes) = (group.entry.clone(), group.bytes);
                let thing = if bytes > MAX_ELEMENT {
                    Thing::Refused(format!("its rows have more than {} MiB", MAX_ELEMENT / (1024 * 1024)))
                } else {
                    Records::join(&self.target, &group, &spool)?
                };
                self.send(entry, thing, bytes)?;
            }
        }
        Ok(())
    }

    fn input(&self, path: &Path, tables: &mut Tables) -> Result<()> {
        let texts = Input::open(path)?.texts()?;
        let archive = texts.iter().any(|text| text.inner.is_some());
        let mut known = !archive;
        for text in texts {
            known |= matches!(self.text(path, &text, tables)?, Passed::Read);
        }
        anyhow::ensure!(known, "it holds no conversations of a format that is known");
        Ok(())
    }

    fn refuse(&self, entry: Entry, reason: String) -> Result<()> {
        self.send(entry, Thing::Refused(reason), 0)
    }

    /// Waits until there is room for `weight` bytes of source.
    fn send(&self, mut entry: Entry, thing: Thing, weight: usize) -> Result<()> {
        if let Thing::Conversation(archive, ..) = &thing {
            (entry.id, entry.messages) = (Some(archive.conversation.id), archive.message_count() as u64);
            entry.files = archive.files.len() as u64;
        }
        let permits = u32::try_from(weight.min(BUDGET)).unwrap_or(u32::MAX);
        let held = self.runtime.block_on(Arc::clone(&self.budget).acquire_many_owned(permits)).ok();
        self.out.blocking_send(Item { entry, thing, _held: held }).map_err(|_| Gone.into())
    }

    fn text(&self, path: &Path, text: &Text, tables: &mut Tables) -> Result<Passed> {
        let (mut input, beside) = (Input::open(path)?, Input::open(path)?);
        let mut records = Records::new(&self.target, beside)?;
        let entry = || Entry { file: text.name.clone(), kind: "conversation", ..Entry::default() };
        let reader = match input.read(text, &self.read) {
            Ok(reader) => reader,
            Err(error) => return self.refuse(entry(), format!("{error:#}")).map(|()| Passed::Read),
        };
        let mut reading = match text.name.rsplit_once('.') {
            Some((_, ending)) if ending.eq_ignore_ascii_case("csv") => Reading::Csv(Csv::new(reader)),
            _ => Reading::Json(Scan::new(reader)),
        };
        let mut known = text.inner.is_none();
        loop {
            let (place, found) = match reading.next() {
                Ok(Some(found)) => found,
                Ok(None) => return Ok(if known { Passed::Read } else { Passed::Over }),
                Err(error) => {
                    self.refuse(entry(), format!("it cannot be read on: {error}"))?;
                    return Ok(Passed::Read);
                }
            };
            let entry = Entry { place, ..entry() };
            match found {
                Found::Bad(_) | Found::Broken(_) if !known => return Ok(Passed::Over),
                Found::Bad(reason) | Found::Broken(reason) => self.refuse(entry, reason)?,
                Found::Text(record) => {
                    let mut found = Vec::new();
                    let understood = records.read(&record, &entry, tables, &mut found)?;
                    if !understood && !known {
                        return Ok(Passed::Over);
                    }
                    known = true;
                    let weight = record.len() / found.len().max(1);
                    for (entry, thing) in found {
                        self.send(entry, thing, weight)?;
                    }
                    if records.over {
                        return Ok(Passed::Read);
                    }
                }
            }
        }
    }
}

impl From<Refusal> for Thing {
    fn from(refusal: Refusal) -> Self {
        Self::Refused(refusal.0)
    }
}
