//! The records of one text: what each is, and the bytes that it names.

use std::collections::HashMap;
use std::fs::File;
use std::io::{Read as _, Write as _};
use std::path::PathBuf;

use anyhow::{Context as _, Result};
use domain::file::Digest;
use domain::json::mended;
use domain::transfer::fields::Fields;
use domain::transfer::file_line::read_sha256;
use domain::transfer::format::{Format, Record, is_own, look};
use domain::transfer::own::{self, Line};
use domain::transfer::thread::{Asset, Setting, Thread};
use domain::transfer::{ArchivedFile, Refusal, rows};
use serde_json::value::RawValue;

use super::before::Before;
use super::input::{Assets, Bytes, Input, Spool};
use super::report::Entry;
use super::tables::{Group, Tables};
use super::walk::{Target, Thing};

/// The largest file that is looked for beside a text.
const MAX_ASSET: u64 = 1024 * 1024 * 1024;
const HEAD_BYTES: u64 = 8 * 1024;

pub struct Records<'a> {
    target: &'a Target,
    /// The same input again, for the bytes that records name.
    beside: Input,
    assets: Assets,
    spool: Spool,
    /// Bytes that came in lines, until the record that names them.
    blobs: HashMap<String, Inline>,
    /// Lines that belong to one that is still to come.
    before: Before,
    /// Nothing more of the text is taken: it is an export of ours that cannot be read.
    pub over: bool,
}

struct Inline {
    file: File,
    path: PathBuf,
    written: u64,
}

type Things = Vec<(Entry, Thing)>;

impl<'a> Records<'a> {
    pub fn new(target: &'a Target, beside: Input) -> Result<Self> {
        let assets = beside.assets()?;
        Ok(Self {
            target,
            beside,
            assets,
            spool: Spool::new()?,
            blobs: HashMap::new(),
            before: Before::default(),
            over: false,
        })
    }

    /// Adds what a record is to `found`, or to the tables; false when it is nothing that is known.
    pub fn read(
        &mut self,
        record: &str,
        entry: &Entry,
        tables: &mut Tables,
        found: &mut Things,
    ) -> Result<bool> {
        let fields = Fields::read(record);
        let own = fields.as_ref().is_ok_and(|fields| is_own(fields, self.target.format));
        // A text with half a surrogate pair is none to those who read on. In ours there is none.
        if !own && let Some(mended) = mended(record) {
            return self.read(&mended, entry, tables, found);
        }
        if let Some(spread) = fields.as_ref().ok().and_then(Fields::spread) {
            return self.read(&spread, entry, tables, found);
        }
        let (known, read) = match fields {
            Err(refusal) => (false, Err(refusal.into())),
            Ok(fields) => match look(&fields, self.target.format, self.target.max_tabs) {
                Err(refusal) => {
                    let source_id =
                        fields.text(&["conversation_id", "id", "uuid", "conversationId", "thread_id"]);
                    found.push((Entry { source_id, ..entry.clone() }, refusal.into()));
                    return Ok(true);
                }
                Ok(Record::Unknown) => {
                    let reason = "it is of no format that is known: --format names one";
                    (false, Err(Refusal::new(reason).into()))
                }
                Ok(Record::Records(inner)) => return self.nested(&inner, entry, tables, found),
                Ok(Record::Own) => (true, self.own(record, entry, found)),
                Ok(Record::Thread(format, thread)) => (true, self.thread(format, *thread, entry, found)),
                Ok(Record::Conversation { format, id }) => {
                    (true, tables.add(format, &id, false, record, entry))
                }
                Ok(Record::Message { format, conversation }) => {
                    (true, tables.add(format, &conversation, true, record, entry))
                }
            },
        };
        match read.map_err(anyhow::Error::downcast::<Refusal>) {
            Ok(()) => {}
            Err(Ok(refusal)) => found.push((entry.clone(), refusal.into())),
            Err(Err(error)) => return Err(error),
        }
        Ok(known)
    }

    /// The records of a document, counted from 1.
    fn nested(
        &mut self,
        inner: &[&RawValue],
        entry: &Entry,
        tables: &mut Tables,
        found: &mut Things,
    ) -> Result<bool> {
        let mut known = inner.is_empty();
        for (number, record) in (1..).zip(inner) {
            let mut entry = entry.clone();
            entry.place.number = number;
            known |= self.read(record.get(), &entry, tables, found)?;
        }
        Ok(known)
    }

    fn own(&mut self, record: &str, entry: &Entry, found: &mut Things) -> Result<()> {
        let mut entry = entry.clone();
        let line = own::read_line(record);
        if let Err(refusal) = &line {
            self.over = own::is_header(record);
            self.before.refuse(Refusal(format!("a line before it was refused: {refusal}")));
        }
        let thing = match line? {
            Line::Header => return Ok(()),
            Line::Blob { sha256, offset, bytes } => return self.keep(sha256, offset, &bytes),
            Line::Rows(table, _) => return Ok(self.before.add_rows(table, record)?),
            Line::Trace(trace) => return Ok(self.before.add_trace(&trace, record)?),
            Line::Part(_) => return Ok(self.before.add_part(record)?),
            Line::Workspace(settings) => {
                entry.kind = "workspace";
                Thing::Workspace(settings)
            }
            Line::Page(page) => {
                (entry.kind, entry.id) = ("page", Some(page.id));
                Thing::Page(page)
            }
            Line::Table(table) => {
                (entry.kind, entry.id) = ("table", Some(table.id));
                let rows = self.before.take_rows(&table);
                rows.map_or_else(Thing::from, |rows| Thing::Table(table, rows))
            }
            Line::Agent(agent) => {
                (entry.kind, entry.id) = ("agent", Some(agent.id));
                Thing::Agent(agent)
            }
            Line::File(file) => {
                (entry.kind, entry.id) = ("file", Some(file.file.id));
                let bytes = self.find(&file);
                self.blobs.clear();
                Thing::File(Box::new(file), bytes?)
            }
            Line::Execution(mut execution) => {
                if !self.before.has_trace(execution.run.run.id) {
                    execution.run.without_log(None);
                }
                (entry.kind, entry.id) = ("execution", Some(execution.id));
                entry.files = execution.files.len() as u64;
                let traces = self.before.take_traces();
                let bytes = self.find_all(&execution.files)?;
                Thing::Execution(execution, bytes, traces?)
            }
            Line::Conversation(line) => {
                let taken = self.before.take_conversation(*line);
                let files = taken.as_ref().map_or(&[][..], |(archive, _)| &archive.files);
                let bytes = self.find_all(files)?;
                let (archive, traces) = taken?;
                Thing::Conversation(Box::new(archive), bytes, Some(traces))
            }
        };
        found.push((entry, thing));
        Ok(())
    }

    fn find_all(&mut self, files: &[ArchivedFile]) -> Result<Vec<Bytes>> {
        let found = files.iter().map(|file| self.find(file)).collect();
        self.blobs.clear();
        found
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

    fn thread(
        &mut self,
        format: Format,
        mut thread: Thread,
        entry: &Entry,
        found: &mut Things,
    ) -> Result<()> {
        let mut bytes = HashMap::new();
        for (at, node) in thread.nodes.iter_mut().enumerate() {
            for (number, asset) in node.assets.iter_mut().enumerate() {
                if let Some(own) = self.asset(asset)? {
                    bytes.insert((at, number), own);
                }
            }
        }
        let source_id = Some(thread.source_id.clone());
        let thing = made(self.target, format, thread, |place| bytes.remove(&place));
        found.push((Entry { source_id, ..entry.clone() }, thing));
        Ok(())
    }

    /// The bytes of an asset: those that it holds, or those that lie beside the text under one of its names.
    fn asset(&mut self, asset: &mut Asset) -> Result<Option<Bytes>> {
        let found = match asset.bytes.take() {
            Some(bytes) => Some(self.spool.copy(&bytes[..], MAX_ASSET)?),
            None => {
                let inner = asset.names.iter().find_map(|name| self.assets.find(name)).map(str::to_owned);
                match inner {
                    Some(inner) => {
                        asset.end_as(&inner);
                        self.beside.asset(&inner, MAX_ASSET, &self.spool)?
                    }
                    None => None,
                }
            }
        };
        if let Some(found) = &found {
            note_found(asset, found)?;
        }
        Ok(found)
    }

    /// The conversation of rows that were put together.
    pub fn join(target: &Target, group: &Group, spool: &Spool) -> Result<Thing> {
        let messages: Result<Vec<&RawValue>, _> =
            group.messages.iter().map(|message| serde_json::from_str(message)).collect();
        let Ok(messages) = messages else { return Ok(Refusal::new("a row is not JSON").into()) };
        let format = group.format.unwrap_or(Format::Conversations);
        match rows::read(format, &group.id, group.conversation.as_deref(), &messages) {
            Ok(mut thread) => {
                let mut bytes = HashMap::new();
                for (at, node) in thread.nodes.iter_mut().enumerate() {
                    for (number, asset) in node.assets.iter_mut().enumerate() {
                        if let Some(own) = asset.bytes.take() {
                            let own = spool.copy(&own[..], MAX_ASSET)?;
                            note_found(asset, &own)?;
                            bytes.insert((at, number), own);
                        }
                    }
                }
                Ok(made(target, format, thread, |place| bytes.remove(&place)))
            }
            Err(refusal) => Ok(refusal.into()),
        }
    }
}

/// Tells an asset what its bytes are.
fn note_found(asset: &mut Asset, found: &Bytes) -> Result<()> {
    File::open(&found.path)?.take(HEAD_BYTES).read_to_end(&mut asset.head)?;
    asset.found = Some(Digest { size: found.size, sha256: found.sha256, crc32: 0 });
    Ok(())
}

/// A thread as a conversation of the target.
fn made(
    target: &Target,
    format: Format,
    thread: Thread,
    bytes: impl FnMut((usize, usize)) -> Option<Bytes>,
) -> Thing {
    let setting = Setting {
        format: format.name(),
        workspace: target.workspace,
        owner: &target.owner,
        visibility: target.visibility,
        now: target.now,
    };
    match thread.archive(&setting) {
        Ok((archive, places)) => {
            let bytes = places.into_iter().filter_map(bytes).collect();
            Thing::Conversation(Box::new(archive), bytes, None)
        }
        Err(refusal) => refusal.into(),
    }
}
