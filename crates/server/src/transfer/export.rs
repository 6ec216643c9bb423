//! A workspace, or one conversation, as a stream of parts: text in a fixed order, and the bytes of files. One
//! conversation is held at a time, and a few are read ahead.

use std::collections::HashSet;
use std::sync::Arc;

use bytes::{Bytes, BytesMut};
use domain::scope::Scope;
use domain::transfer::{Archive, ArchivedFile, ArchivedRun, Refusal, Settings, Trace, own, page};
use futures_util::{StreamExt as _, stream};
use store::blobs::{BlobError, Blobs};
use store::{Store, StoreError};
use tokio::sync::mpsc;
use uuid::Uuid;

/// Ids asked for at once.
const PAGE: usize = 256;
/// Conversations read ahead.
const AHEAD: usize = 4;
/// Bytes of a run's log that go into one line, and rows of a table.
const TRACE_BYTES: usize = 1024 * 1024;
const ROWS: usize = 1000;

/// What an export is taken from.
#[derive(Clone)]
pub struct Origin {
    pub store: Arc<dyn Store>,
    pub blobs: Blobs,
    pub scope: Scope,
    /// One conversation alone; everything otherwise.
    pub conversation: Option<Uuid>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Format {
    /// JSON Lines, with the bytes of files in lines of their own.
    Lines,
    /// JSON Lines first, then the bytes of files, for a place that has a name for each.
    LinesThenBlobs,
    /// To read: the current branch of each conversation.
    Markdown,
    /// One page of its own, without a script.
    Html,
}

impl Format {
    fn is_lines(self) -> bool {
        matches!(self, Self::Lines | Self::LinesThenBlobs)
    }
}

#[derive(Debug, Clone)]
pub enum Part {
    Text(String),
    /// Bytes of a file from `offset` on; the last of them says so.
    Blob {
        sha256: String,
        offset: u64,
        bytes: Bytes,
        last: bool,
    },
    /// Nothing is missing: without it what was sent broke off.
    End,
}

/// How much went out.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Exported {
    pub conversations: u64,
    pub messages: u64,
    pub files: u64,
    pub executions: u64,
    pub pages: u64,
    pub tables: u64,
}

#[derive(Debug, thiserror::Error)]
pub enum ExportError {
    #[error(transparent)]
    Store(#[from] StoreError),
    #[error("the bytes of a file cannot be read: {0}")]
    Bytes(#[from] BlobError),
    #[error("a row cannot be written out: {0}")]
    Row(#[from] Refusal),
    /// Nobody reads any more.
    #[error("the reader went away")]
    Gone,
}

pub struct Export {
    origin: Origin,
    format: Format,
    out: mpsc::Sender<Part>,
    done: Exported,
    /// Files whose bytes come at the end: where they lie, and what they are.
    later: Vec<ArchivedFile>,
    written: HashSet<[u8; 32]>,
}

impl Export {
    pub fn new(origin: Origin, format: Format, out: mpsc::Sender<Part>) -> Self {
        Self { origin, format, out, done: Exported::default(), later: Vec::new(), written: HashSet::new() }
    }

    /// Sends all parts. `tell` hears after each conversation how much went out.
    pub async fn run(mut self, mut tell: impl FnMut(Exported) + Send) -> Result<Exported, ExportError> {
        match self.format {
            Format::Lines | Format::LinesThenBlobs => self.text(own::header_line()?).await?,
            Format::Html => self.send(Part::Text(page::HTML_HEAD.into())).await?,
            Format::Markdown => {}
        }
        match self.origin.conversation {
            Some(id) => {
                let archive = self.origin.store.get_archive(&self.origin.scope, id).await?;
                self.conversation(&archive).await?;
            }
            None => {
                if self.format.is_lines() {
                    self.settings().await?;
                    self.agents().await?;
                    self.pages().await?;
                    self.tables().await?;
                    self.workspace_files().await?;
                    self.executions().await?;
                }
                self.conversations(&mut tell).await?;
            }
        }
        for file in std::mem::take(&mut self.later) {
            self.bytes(&file).await?;
        }
        if self.format == Format::Html {
            self.send(Part::Text(page::HTML_END.into())).await?;
        }
        self.send(Part::End).await?;
        Ok(self.done)
    }

    async fn send(&self, part: Part) -> Result<(), ExportError> {
        self.out.send(part).await.map_err(|_| ExportError::Gone)
    }

    async fn text(&self, mut line: String) -> Result<(), ExportError> {
        line.push('\n');
        self.send(Part::Text(line)).await
    }

    async fn settings(&self) -> Result<(), ExportError> {
        let Origin { store, scope, .. } = &self.origin;
        let workspace = store.find_workspace(scope).await?.ok_or(StoreError::NotFound)?;
        let model = store.get_workspace_model(scope).await?;
        let settings = Settings { default_visibility: workspace.default_visibility, model };
        self.text(own::workspace_line(&settings)?).await
    }

    async fn pages(&mut self) -> Result<(), ExportError> {
        let mut after = None;
        loop {
            let page = self.origin.store.list_pages(&self.origin.scope, after, PAGE).await?.items;
            let Some(last) = page.last() else { return Ok(()) };
            after = Some(last.id);
            self.done.pages += page.len() as u64;
            for page in &page {
                self.text(own::page_line(page)?).await?;
            }
        }
    }

    async fn tables(&mut self) -> Result<(), ExportError> {
        let mut after = None;
        loop {
            let page = self.origin.store.list_tables(&self.origin.scope, after, PAGE).await?;
            let Some(last) = page.last() else { return Ok(()) };
            after = Some(last.id);
            for mut table in page {
                match self.rows(table.id).await {
                    Ok(rows) => table.row_count = rows,
                    // Removed meanwhile.
                    Err(ExportError::Store(StoreError::NotFound)) => continue,
                    Err(error) => return Err(error),
                }
                self.text(own::table_line(&table)?).await?;
                self.done.tables += 1;
            }
        }
    }

    /// The rows of a table; how many there are.
    async fn rows(&self, table: Uuid) -> Result<i64, ExportError> {
        let (mut after, mut count) = (None, 0);
        loop {
            let rows = self.origin.store.list_rows(&self.origin.scope, table, after, ROWS).await?.items;
            let Some(last) = rows.last() else { return Ok(count) };
            after = Some(last.id);
            count += rows.len() as i64;
            self.text(own::rows_line(table, &rows)?).await?;
        }
    }

    async fn executions(&mut self) -> Result<(), ExportError> {
        let mut after = None;
        loop {
            let ids = self.origin.store.list_executions(&self.origin.scope, after, PAGE).await?;
            let Some(last) = ids.last() else { return Ok(()) };
            after = Some(*last);
            for id in ids {
                let execution = self.origin.store.get_archived_execution(&self.origin.scope, id).await?;
                self.files(&execution.files).await?;
                self.trace(&execution.run).await?;
                self.text(own::execution_line(&execution)?).await?;
                self.done.executions += 1;
            }
        }
    }

    /// The log of a run, in lines of about the same size whatever the batches were that it came in.
    async fn trace(&self, of: &ArchivedRun) -> Result<(), ExportError> {
        #[derive(serde::Deserialize)]
        struct Number {
            n: i64,
        }
        let empty = |first| Trace { run: of.run.id, first, entries: Vec::new() };
        let (mut part, mut bytes, mut after) = (empty(1), 0, 0);
        while after < of.entries {
            let read = self.origin.store.read_trace(&self.origin.scope, of.run.id, after, TRACE_BYTES).await;
            let page = match read {
                Err(StoreError::NotFound) => return Ok(()),
                page => page?,
            };
            let before = after;
            for line in page.entries.iter().flat_map(|entries| entries.split('\n')) {
                let n = match serde_json::from_str(line) {
                    Ok(Number { n }) => n,
                    Err(_) => {
                        tracing::warn!(run = %of.run.id, "a damaged log is left out from here on");
                        return Ok(());
                    }
                };
                if n <= after {
                    continue;
                }
                (after, bytes) = (n, bytes + line.len());
                part.entries.push(line.to_owned());
                if bytes >= TRACE_BYTES {
                    self.text(own::trace_line(&part)?).await?;
                    (part, bytes) = (empty(n + 1), 0);
                }
            }
            if after == before {
                break;
            }
        }
        if part.entries.is_empty() { Ok(()) } else { self.text(own::trace_line(&part)?).await }
    }

    async fn agents(&mut self) -> Result<(), ExportError> {
        let mut after = None;
        loop {
            let page = self.origin.store.list_agents(&self.origin.scope, after, PAGE).await?;
            let Some(last) = page.last() else { return Ok(()) };
            after = Some(last.id);
            for agent in &page {
                self.text(own::agent_line(agent)?).await?;
            }
        }
    }

    async fn workspace_files(&mut self) -> Result<(), ExportError> {
        for file in self.origin.store.list_archived_files(&self.origin.scope).await? {
            self.file(&file).await?;
            self.text(own::file_line(&file)?).await?;
        }
        Ok(())
    }

    async fn conversations(&mut self, tell: &mut (impl FnMut(Exported) + Send)) -> Result<(), ExportError> {
        let (store, scope) = (Arc::clone(&self.origin.store), self.origin.scope.clone());
        let mut after = None;
        loop {
            let ids = store.list_archivable(&scope, after, PAGE).await?;
            let Some(last) = ids.last() else { return Ok(()) };
            after = Some(*last);
            let read = |id| {
                let (store, scope) = (Arc::clone(&store), scope.clone());
                async move { store.get_archive(&scope, id).await }
            };
            let mut archives = stream::iter(ids).map(read).buffered(AHEAD);
            while let Some(archive) = archives.next().await {
                match archive {
                    // Deleted meanwhile.
                    Err(StoreError::NotFound) => {}
                    archive => self.conversation(&archive?).await?,
                }
                tell(self.done);
            }
        }
    }

    async fn conversation(&mut self, archive: &Archive) -> Result<(), ExportError> {
        match self.format {
            Format::Lines | Format::LinesThenBlobs => {
                self.files(&archive.files).await?;
                for run in &archive.runs {
                    self.trace(run).await?;
                }
                for line in own::conversation_lines(archive)? {
                    self.text(line).await?;
                }
            }
            Format::Markdown => self.send(Part::Text(page::markdown(archive))).await?,
            Format::Html => self.send(Part::Text(page::html(archive))).await?,
        }
        self.done.conversations += 1;
        self.done.messages += archive.message_count() as u64;
        Ok(())
    }

    async fn files(&mut self, files: &[ArchivedFile]) -> Result<(), ExportError> {
        for file in files {
            self.file(file).await?;
        }
        Ok(())
    }

    /// The bytes of a file now, or at the end, once.
    async fn file(&mut self, file: &ArchivedFile) -> Result<(), ExportError> {
        self.done.files += 1;
        match self.format {
            Format::Lines => self.bytes(file).await,
            Format::LinesThenBlobs => {
                if self.written.insert(file.file.digest.sha256) {
                    self.later.push(file.clone());
                }
                Ok(())
            }
            Format::Markdown | Format::Html => Ok(()),
        }
    }

    async fn bytes(&self, of: &ArchivedFile) -> Result<(), ExportError> {
        let (sha256, size) = (of.file.sha256_hex(), of.file.digest.size);
        let part = |offset, bytes: Bytes, last| Part::Blob { sha256: sha256.clone(), offset, bytes, last };
        if size == 0 {
            return self.send(part(0, Bytes::new(), true)).await;
        }
        let mut stream = self.origin.blobs.read(&of.file.storage_key, Some(0..size)).await?;
        let (mut held, mut sent) = (BytesMut::new(), 0);
        while let Some(chunk) = stream.next().await {
            held.extend_from_slice(&chunk?);
            while held.len() >= own::BLOB_CHUNK {
                let bytes = held.split_to(own::BLOB_CHUNK).freeze();
                let at = sent;
                sent += bytes.len() as u64;
                self.send(part(at, bytes, sent == size)).await?;
            }
        }
        if !held.is_empty() {
            let at = sent;
            sent += held.len() as u64;
            self.send(part(at, held.freeze(), sent == size)).await?;
        }
        if sent == size {
            Ok(())
        } else {
            Err(BlobError::Internal(format!("{sent} of {size} bytes are there")).into())
        }
    }
}
