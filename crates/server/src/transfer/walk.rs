//! From files to things to import: every text is scanned, every record read by its format, and the bytes that it
//! names are found. Runs on a thread of its own; what it holds is bounded by a budget that each thing gives back when
//! it has been dealt with.

use std::collections::HashMap;
use std::fs::File;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::AtomicU64;

use anyhow::{Context as _, Result};
use domain::agent::Agent;
use domain::transfer::file_line::read_sha256;
use domain::transfer::own::{self, Line};
use domain::transfer::{Archive, ArchivedFile, Refusal};
use tokio::runtime::Handle;
use tokio::sync::{OwnedSemaphorePermit, Semaphore, mpsc};

use super::input::{Bytes, Input, Spool, Text};
use super::report::Entry;
use super::scan::{Found, Scan};

/// How many bytes of source may be under way at once.
pub const BUDGET: usize = 16 * 1024 * 1024;

pub enum Thing {
    /// A conversation, and the bytes of its files in their order.
    Conversation(Box<Archive>, Vec<Bytes>),
    Agent(Agent),
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

pub struct Walk {
    out: mpsc::Sender<Item>,
    budget: Arc<Semaphore>,
    /// Bytes of the texts that were read so far.
    read: Arc<AtomicU64>,
    runtime: Handle,
}

/// Nobody takes things any more: the walk ends.
struct Gone;

impl Walk {
    pub fn new(out: mpsc::Sender<Item>, read: Arc<AtomicU64>, runtime: Handle) -> Self {
        Self { out, budget: Arc::new(Semaphore::new(BUDGET)), read, runtime }
    }

    /// Goes through all of them. A text that cannot be read is a refusal, and the next one is read.
    pub fn run(&self, paths: &[PathBuf]) -> Result<()> {
        for path in paths {
            let texts = match Input::open(path).and_then(|input| input.texts()) {
                Ok(texts) => texts,
                Err(error) => {
                    let file = path.display().to_string();
                    if self.refuse(Entry { file, ..Entry::default() }, format!("{error:#}")).is_err() {
                        return Ok(());
                    }
                    continue;
                }
            };
            for text in texts {
                if self.text(path, &text)?.is_err() {
                    return Ok(());
                }
            }
        }
        Ok(())
    }

    fn refuse(&self, entry: Entry, reason: String) -> Result<(), Gone> {
        self.send(entry, Thing::Refused(reason), 0)
    }

    /// Waits until there is room for `weight` bytes of source.
    fn send(&self, entry: Entry, thing: Thing, weight: usize) -> Result<(), Gone> {
        let permits = u32::try_from(weight.min(BUDGET)).unwrap_or(u32::MAX);
        let held = self.runtime.block_on(Arc::clone(&self.budget).acquire_many_owned(permits)).ok();
        self.out.blocking_send(Item { entry, thing, _held: held }).map_err(|_| Gone)
    }

    fn text(&self, path: &Path, text: &Text) -> Result<Result<(), Gone>> {
        let (mut input, mut beside) = (Input::open(path)?, Input::open(path)?);
        let mut records = Records { beside: &mut beside, spool: Spool::new()?, blobs: HashMap::new() };
        let entry = || Entry { file: text.name.clone(), kind: "conversation", ..Entry::default() };
        let reader = match input.read(text, &self.read) {
            Ok(reader) => reader,
            Err(error) => return Ok(self.refuse(entry(), format!("{error:#}"))),
        };
        let mut scan = Scan::new(reader);
        loop {
            let (place, found) = match scan.next() {
                Ok(Some(found)) => found,
                Ok(None) => return Ok(Ok(())),
                Err(error) => return Ok(self.refuse(entry(), format!("it cannot be read on: {error}"))),
            };
            let mut entry = Entry { place, ..entry() };
            let sent = match found {
                Found::Bad(reason) | Found::Broken(reason) => self.refuse(entry, reason),
                Found::Text(record) => match records.read(&record, &mut entry)? {
                    Some(thing) => self.send(entry, thing, record.len()),
                    None => Ok(()),
                },
            };
            if sent.is_err() {
                return Ok(Err(Gone));
            }
        }
    }
}

/// The records of one text.
struct Records<'a> {
    /// The same input again, for the bytes that records name.
    beside: &'a mut Input,
    spool: Spool,
    /// Bytes that came in lines, until the record that names them.
    blobs: HashMap<String, Inline>,
}

struct Inline {
    file: File,
    path: PathBuf,
    written: u64,
}

impl Records<'_> {
    /// What a record is; nothing for a part of another one.
    fn read(&mut self, record: &str, entry: &mut Entry) -> Result<Option<Thing>> {
        match self.own(record, entry) {
            Ok(thing) => Ok(thing),
            Err(error) => match error.downcast::<Refusal>() {
                Ok(refusal) => Ok(Some(Thing::Refused(refusal.0))),
                Err(error) => Err(error),
            },
        }
    }

    fn own(&mut self, record: &str, entry: &mut Entry) -> Result<Option<Thing>> {
        match own::read_line(record)? {
            Line::Header => Ok(None),
            Line::Blob { sha256, offset, bytes } => self.keep(sha256, offset, &bytes).map(|()| None),
            Line::Agent(agent) => {
                (entry.kind, entry.id) = ("agent", Some(agent.id));
                Ok(Some(Thing::Agent(agent)))
            }
            Line::File(file) => {
                (entry.kind, entry.id) = ("file", Some(file.file.id));
                let bytes = self.find(&file)?;
                self.blobs.clear();
                Ok(Some(Thing::File(Box::new(file), bytes)))
            }
            Line::Conversation(archive) => {
                (entry.id, entry.messages) = (Some(archive.conversation.id), archive.message_count() as u64);
                entry.files = archive.files.len() as u64;
                let bytes = archive.files.iter().map(|file| self.find(file)).collect::<Result<_>>();
                self.blobs.clear();
                Ok(Some(Thing::Conversation(archive, bytes?)))
            }
        }
    }

    fn keep(&mut self, sha256: String, offset: u64, bytes: &[u8]) -> Result<()> {
        if read_sha256(&sha256).is_none() {
            return Err(Refusal::new("the sha256 of a blob is not 64 hexadecimal digits").into());
        }
        if offset == 0 {
            let (file, path) = self.spool.file()?;
            self.blobs.insert(sha256.clone(), Inline { file, path, written: 0 });
        }
        let Some(blob) = self.blobs.get_mut(&sha256).filter(|blob| blob.written == offset) else {
            return Err(Refusal(format!("the blob {sha256} goes on where it was not")).into());
        };
        blob.file.write_all(bytes).context("no temporary file can be written")?;
        blob.written += bytes.len() as u64;
        Ok(())
    }

    /// The bytes of a file, which must be what the record says.
    fn find(&mut self, of: &ArchivedFile) -> Result<Bytes> {
        let (sha256, size) = (of.file.sha256_hex(), of.file.digest.size);
        let found = match self.blobs.get(&sha256) {
            Some(blob) => Some(self.spool.take(&blob.path)?),
            None => self.beside.blob(&sha256, size, &self.spool)?,
        };
        let refuse = |what: &str| Refusal(format!("the bytes of the file {:?} {what}", of.file.name));
        let found = found.ok_or_else(|| refuse("are not in the export"))?;
        if found.size != size || found.sha256 != of.file.digest.sha256 {
            return Err(refuse("are not those that the export tells of").into());
        }
        Ok(found)
    }
}
