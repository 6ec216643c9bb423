//! What was found goes into the store: each conversation in one transaction, after the bytes of its files are durable.
//! Killed anywhere, it is done again from the start and finds what is there already.

use std::collections::HashSet;
use std::future::Future;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use anyhow::{Context as _, Result, bail};
use domain::agent::Agent;
use domain::file::{Bag, Digest};
use domain::page::Page;
use domain::scope::Scope;
use domain::table::{Row, Table};
use domain::time::Clock;
use domain::transfer::format::Format;
use domain::transfer::growth::{Growth, grown};
use domain::transfer::{Archive, ArchivedExecution, ArchivedFile, Settings, Trace};
use domain::workspace::WorkspacePatch;
use futures_util::StreamExt as _;
use futures_util::stream::FuturesOrdered;
use store::blobs::Blobs;
use store::files::{NewFile, Reserved, Stored};
use store::transfer::Pieces;
use store::{Store, StoreError};
use tokio::io::AsyncReadExt as _;
use tokio::sync::mpsc;
use uuid::Uuid;

use super::input::{self, Input};
use super::report::{Entry, Outcome, Report};
use super::walk::{Item, Target, Thing, Walk};
use crate::progress::Progress;

/// Conversations under way at once: what gathers shares a transaction's sync.
const AT_ONCE: usize = 64;
const CHUNK: usize = 256 * 1024;
/// How often a conversation is looked at again that others write to.
const GROW_TRIES: usize = 5;

/// Where things go, and how.
pub struct Importer {
    pub store: Arc<dyn Store>,
    pub blobs: Blobs,
    pub scope: Scope,
    pub clock: Arc<dyn Clock>,
    pub max_tabs: usize,
    /// The format that was asked for.
    pub format: Option<Format>,
    /// Whose all of it becomes; otherwise everything keeps the owner that it names.
    pub owner: Option<String>,
    /// Everything is looked at, nothing is written.
    pub dry: bool,
}

impl Importer {
    /// Imports all of it. `stop` ends it early, after what is under way.
    pub async fn run(
        self,
        paths: Vec<PathBuf>,
        report: &mut Report,
        stop: impl Future<Output = Result<()>>,
    ) -> Result<bool> {
        let (out, mut items) = mpsc::channel(AT_ONCE);
        let read = Arc::new(AtomicU64::new(0));
        let total = paths.iter().map(|path| size(path)).sum();
        let walk = Walk::new(self.target().await?, out, Arc::clone(&read), tokio::runtime::Handle::current());
        let walking = tokio::task::spawn_blocking(move || walk.run(&paths));
        let importer = Arc::new(self);
        let mut progress = Progress::new("imported");
        let (mut under_way, mut ids) = (FuturesOrdered::new(), HashSet::new());
        let (mut more, mut stopped) = (true, false);
        tokio::pin!(stop);
        while more || !under_way.is_empty() {
            tokio::select! {
                // Two of one id must not write the same bytes at once.
                item = items.recv(), if more && under_way.len() < AT_ONCE => match item {
                    None => more = false,
                    Some(item) => {
                        // Settings are taken where nothing is yet: before anything else is under way.
                        let alone = matches!(item.thing, Thing::Workspace(_));
                        if alone || item.entry.id.is_some_and(|id| !ids.insert(id)) {
                            drain(&mut under_way, report).await?;
                        }
                        under_way.push_back(Arc::clone(&importer).take(item));
                        if alone {
                            drain(&mut under_way, report).await?;
                        }
                    }
                },
                Some(done) = under_way.next() => {
                    let (entry, outcome) = done?;
                    report.note(&entry, &outcome)?;
                    let done = report.imported.conversations + report.already_there.conversations;
                    progress.bytes(read.load(Ordering::Relaxed), total, done);
                }
                told = &mut stop, if !stopped => {
                    told?;
                    (more, stopped) = (false, true);
                    items.close();
                }
            }
        }
        progress.end();
        drop(items);
        walking.await.context("reading ended early")??;
        report.end()?;
        Ok(!stopped)
    }

    async fn target(&self) -> Result<Target> {
        let workspace =
            self.store.find_workspace(&self.scope).await?.context("the workspace is not there")?;
        Ok(Target {
            format: self.format,
            workspace: workspace.id,
            owner: self.owner.clone().unwrap_or_else(|| self.scope.user.clone()),
            visibility: workspace.default_visibility,
            now: self.clock.now(),
        })
    }

    async fn take(self: Arc<Self>, item: Item) -> Result<(Entry, Outcome)> {
        let Item { entry, thing, .. } = &item;
        let outcome = match thing {
            Thing::Refused(reason) => Outcome::Refused(reason.clone()),
            Thing::Workspace(settings) => self.settings(settings).await?,
            Thing::Conversation(archive, bytes, traces) => {
                self.conversation(archive, bytes, traces.as_ref()).await?
            }
            Thing::Execution(execution, bytes, traces) => self.execution(execution, bytes, traces).await?,
            Thing::Agent(agent) => self.agent(agent).await?,
            Thing::Page(page) => self.page(page).await?,
            Thing::Table(table, rows) => self.table(table, rows).await?,
            Thing::File(file, bytes) => self.file(file, bytes).await?,
        };
        Ok((entry.clone(), outcome))
    }

    async fn conversation(
        &self,
        archive: &Archive,
        bytes: &[input::Bytes],
        traces: Option<&Arc<dyn Pieces<Trace>>>,
    ) -> Result<Outcome> {
        let mut archive = archive.clone();
        archive.put_into(self.scope.workspace, &self.scope.org);
        if let Some(owner) = &self.owner {
            archive.conversation.owner.clone_from(owner);
        }
        if let Err(refusal) = archive.check(self.max_tabs) {
            return Ok(Outcome::Refused(refusal.0));
        }
        let id = archive.conversation.id;
        if self.store.known_conversations(&self.scope, &[id]).await? == [true] {
            return match traces {
                Some(_) => Ok(Outcome::AlreadyThere),
                None => self.grow(&archive, bytes).await,
            };
        }
        if self.dry {
            return Ok(Outcome::Imported);
        }
        let keys = self.store_all(&mut archive.files, bytes).await?;
        let imported = {
            let none = || Arc::new(Vec::<Trace>::new()) as Arc<dyn Pieces<Trace>>;
            let traces = traces.map_or_else(none, Arc::clone);
            self.store.import_archive(&self.scope, Arc::new(archive), traces).await
        };
        self.settled(imported, keys).await
    }

    /// Somebody else's conversation again, which may have gone on there.
    async fn grow(&self, archive: &Archive, bytes: &[input::Bytes]) -> Result<Outcome> {
        let id = archive.conversation.id;
        let known: HashSet<Uuid> = match self.store.list_message_ids(&self.scope, id).await {
            Ok(ids) => ids.into_iter().collect(),
            // Deleted here, and not to come back.
            Err(StoreError::NotFound) => return Ok(Outcome::AlreadyThere),
            Err(error) => return Err(error.into()),
        };
        let mut messages = archive.branches.iter().flat_map(|branch| &branch.messages);
        if messages.all(|message| known.contains(&message.id)) {
            return Ok(Outcome::AlreadyThere);
        }
        for _ in 0..GROW_TRIES {
            let old = self.store.get_archive(&self.scope, id).await?;
            let Some(mut growth) = grown(&old, archive) else { return Ok(Outcome::AlreadyThere) };
            let outcome =
                Outcome::Grown { messages: growth.messages.len() as u64, files: growth.files.len() as u64 };
            if self.dry {
                return Ok(outcome);
            }
            let stored = self.store_grown(&mut growth, archive, bytes).await?;
            match self.store.extend_archive(&self.scope, Arc::new(growth), &stored).await {
                Ok(true) => return Ok(outcome),
                Ok(false) => {}
                Err(StoreError::Conflict { detail, .. }) => return Ok(Outcome::Refused(detail.to_owned())),
                Err(error) => return Err(error.into()),
            }
        }
        Ok(Outcome::Refused("it is being written to all the time: import it again later".to_owned()))
    }

    /// Makes the bytes of new files durable, under names that are free in the bag.
    async fn store_grown(
        &self,
        growth: &mut Growth,
        archive: &Archive,
        bytes: &[input::Bytes],
    ) -> Result<Vec<Stored>> {
        let bag = Bag::Conversation(archive.conversation.id);
        let mut stored = Vec::new();
        for (of, bytes) in archive.files.iter().zip(bytes) {
            if growth.files.iter().all(|new| new.file.id != of.file.id) {
                continue;
            }
            let Some(reserved) = self.reserve(of, bag).await? else {
                growth.files.retain(|new| new.file.id != of.file.id);
                continue;
            };
            if reserved.name != of.file.name {
                growth.rename(of.file.id, &reserved.name)?;
            }
            let digest = self.store_bytes(&reserved.storage_key, bytes).await?;
            stored.push(Stored { id: of.file.id, digest, mime_type: of.file.mime_type.clone() });
        }
        Ok(stored)
    }

    /// A name for a file in a bag, with a number where its own is taken; none for one that was there and is deleted.
    async fn reserve(&self, of: &ArchivedFile, bag: Bag) -> Result<Option<Reserved>> {
        let (file, scope) = (&of.file, Scope { user: of.user.clone(), ..self.scope.clone() });
        match self.store.get_reserved(&scope, bag, file.id).await {
            // Left by an import that was killed: it goes on.
            Ok(reserved) => return Ok(Some(reserved)),
            Err(StoreError::NotFound) => {}
            Err(error) => return Err(error.into()),
        }
        let (name, source) = (file.name.clone(), file.source);
        let new = NewFile { id: file.id, name, source, promised: None };
        match self.store.reserve_files(&scope, bag, &[new], u64::MAX, self.clock.now()).await {
            Ok(mut reserved) => Ok(reserved.pop()),
            Err(StoreError::Taken(_)) => Ok(None),
            Err(error) => Err(error.into()),
        }
    }

    async fn execution(
        &self,
        execution: &ArchivedExecution,
        bytes: &[input::Bytes],
        traces: &Arc<dyn Pieces<Trace>>,
    ) -> Result<Outcome> {
        let mut execution = execution.clone();
        execution.put_into(self.scope.workspace);
        if let Some(owner) = &self.owner {
            execution.run.user.clone_from(owner);
        }
        if let Err(refusal) = execution.check() {
            return Ok(Outcome::Refused(refusal.0));
        }
        match self.store.get_execution(&self.scope, execution.id).await {
            Ok(_) => return Ok(Outcome::AlreadyThere),
            Err(StoreError::NotFound) if self.dry => return Ok(Outcome::Imported),
            Err(StoreError::NotFound) => {}
            Err(error) => return Err(error.into()),
        }
        let keys = self.store_all(&mut execution.files, bytes).await?;
        let imported =
            self.store.import_execution(&self.scope, Arc::new(execution), Arc::clone(traces)).await;
        self.settled(imported, keys).await
    }

    /// Makes the bytes of files durable; the keys that they lie under.
    async fn store_all(&self, files: &mut [ArchivedFile], bytes: &[input::Bytes]) -> Result<Vec<String>> {
        for (ArchivedFile { file, .. }, bytes) in files.iter_mut().zip(bytes) {
            file.digest = self.store_bytes(&file.storage_key, bytes).await?;
        }
        Ok(files.iter().map(|of| of.file.storage_key.clone()).collect())
    }

    /// What became of it. Bytes of what is refused go again.
    async fn settled(&self, imported: store::Result<bool>, keys: Vec<String>) -> Result<Outcome> {
        match imported {
            Ok(true) => Ok(Outcome::Imported),
            Ok(false) => Ok(Outcome::AlreadyThere),
            Err(StoreError::Taken(what)) => {
                for key in keys {
                    self.blobs.remove(&key).await?;
                }
                Ok(Outcome::Refused(format!("{what} is taken by something else of the workspace")))
            }
            Err(error) => Err(error.into()),
        }
    }

    /// Puts the bytes under their key, durably.
    async fn store_bytes(&self, key: &str, bytes: &input::Bytes) -> Result<Digest> {
        let named = || format!("{} cannot be read", bytes.path.display());
        let mut from = tokio::fs::File::open(&bytes.path).await.with_context(named)?;
        let mut writer = self.blobs.writer(key).await?;
        let mut chunk = vec![0; CHUNK];
        loop {
            match from.read(&mut chunk).await.with_context(named)? {
                0 => break,
                read => writer.write(bytes::Bytes::copy_from_slice(&chunk[..read])).await?,
            }
        }
        let digest = writer.finish().await?;
        if digest.sha256 != bytes.sha256 {
            self.blobs.remove(key).await?;
            bail!("{} was changed while it was read", bytes.path.display());
        }
        Ok(digest)
    }

    /// A workspace that holds nothing yet takes the settings over; any other keeps its own.
    async fn settings(&self, settings: &Settings) -> Result<Outcome> {
        let Settings { default_visibility, model } = settings;
        let own = Settings {
            default_visibility: self.target().await?.visibility,
            model: self.store.get_workspace_model(&self.scope).await?,
        };
        if own == *settings || !self.store.is_empty(&self.scope).await? {
            return Ok(Outcome::AlreadyThere);
        }
        if !self.dry {
            self.store.set_workspace_model(&self.scope, model.as_deref()).await?;
            let patch = WorkspacePatch { default_visibility: Some(*default_visibility), name: None };
            self.store.update_workspace(&self.scope, &patch, self.clock.now()).await?;
        }
        Ok(Outcome::Imported)
    }

    async fn page(&self, page: &Page) -> Result<Outcome> {
        if self.store.find_page(&self.scope, page.id).await?.is_some() {
            return Ok(Outcome::AlreadyThere);
        }
        if !self.dry {
            self.store.create_page(&self.scope, page).await?;
        }
        Ok(Outcome::Imported)
    }

    async fn table(&self, table: &Table, rows: &Arc<dyn Pieces<Vec<Row>>>) -> Result<Outcome> {
        if self.store.find_table(&self.scope, table.id).await?.is_some() {
            return Ok(Outcome::AlreadyThere);
        }
        let imported = self.dry || self.store.import_table(&self.scope, table, Arc::clone(rows)).await?;
        Ok(if imported { Outcome::Imported } else { Outcome::AlreadyThere })
    }

    async fn agent(&self, agent: &Agent) -> Result<Outcome> {
        if self.store.find_agent(&self.scope, agent.id).await?.is_some() {
            return Ok(Outcome::AlreadyThere);
        }
        if !self.dry {
            self.store.put_agent(&self.scope, agent).await?;
        }
        Ok(Outcome::Imported)
    }

    /// A file that the workspace keeps: under its name, or with a number where that is taken.
    async fn file(&self, of: &ArchivedFile, bytes: &input::Bytes) -> Result<Outcome> {
        let (file, bag) = (&of.file, Bag::Workspace);
        match self.store.get_file(&self.scope, file.id).await {
            Ok(_) => return Ok(Outcome::AlreadyThere),
            Err(StoreError::NotFound) if self.dry => return Ok(Outcome::Imported),
            Err(StoreError::NotFound) => {}
            Err(error) => return Err(error.into()),
        }
        let scope = Scope { user: of.user.clone(), ..self.scope.clone() };
        let Some(reserved) = self.reserve(of, bag).await? else { return Ok(Outcome::AlreadyThere) };
        let digest = self.store_bytes(&reserved.storage_key, bytes).await?;
        let stored = Stored { id: file.id, digest, mime_type: file.mime_type.clone() };
        self.store.keep_files(&scope, bag, &[stored], u64::MAX, file.created_at).await?;
        Ok(Outcome::Imported)
    }
}

async fn drain<F>(under_way: &mut FuturesOrdered<F>, report: &mut Report) -> Result<()>
where
    F: Future<Output = Result<(Entry, Outcome)>>,
{
    while let Some(done) = under_way.next().await {
        let (entry, outcome) = done?;
        report.note(&entry, &outcome)?;
    }
    Ok(())
}

/// How many bytes of text there are to read, as far as can be told.
fn size(path: &std::path::Path) -> u64 {
    let texts = Input::open(path).and_then(|input| input.texts()).unwrap_or_default();
    texts.iter().map(|text| text.size).sum()
}
