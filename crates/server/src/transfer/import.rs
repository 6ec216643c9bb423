//! What was found goes into the store: each conversation in one transaction, after the bytes of its files are durable.
//! Killed anywhere, it is done again from the start and finds what is there already.

mod conversations;
mod workspace;

use std::collections::HashSet;
use std::future::Future;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use anyhow::{Context as _, Result};
use domain::scope::Scope;
use domain::time::Clock;
use domain::transfer::format::Format;
use futures_util::StreamExt as _;
use futures_util::stream::FuturesOrdered;
use store::Store;
use store::blobs::Blobs;
use tokio::sync::mpsc;

use super::input::Input;
use super::report::{Entry, Outcome, Report};
use super::walk::{Item, Target, Thing, Walk};
use crate::progress::Progress;

/// Conversations under way at once: what gathers shares a transaction and its sync.
const AT_ONCE: usize = 256;

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
                        if alone || item.entry.id.is_some_and(|id| ids.contains(&id)) {
                            drain(&mut under_way, report).await?;
                            ids.clear();
                        }
                        ids.extend(item.entry.id);
                        under_way.push_back(Arc::clone(&importer).take(item));
                        if alone {
                            drain(&mut under_way, report).await?;
                        }
                    }
                },
                Some(done) = under_way.next() => {
                    let (entry, outcome) = done?;
                    report.note(&entry, &outcome)?;
                    entry.id.map(|id| ids.remove(&id));
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
            max_tabs: self.max_tabs,
            now: self.clock.now(),
        })
    }

    /// Its room is given back when it has been dealt with.
    async fn take(self: Arc<Self>, item: Item) -> Result<(Entry, Outcome)> {
        let outcome = match item.thing {
            Thing::Refused(reason) => Outcome::Refused(reason),
            Thing::Workspace(settings) => self.settings(&settings).await?,
            Thing::Conversation(archive, bytes, traces) => {
                self.conversation(*archive, &bytes, traces).await?
            }
            Thing::Execution(execution, bytes, traces) => self.execution(*execution, &bytes, traces).await?,
            Thing::Agent(agent) => self.agent(&agent).await?,
            Thing::Page(page) => self.page(&page).await?,
            Thing::Table(table, rows) => self.table(&table, &rows).await?,
            Thing::File(file, bytes) => self.file(&file, &bytes).await?,
        };
        Ok((item.entry, outcome))
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
