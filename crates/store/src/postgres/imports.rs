//! Conversations of an import, many in one transaction and a few statements. Whoever finds a way free writes for all who
//! gathered meanwhile, as in `turns::append`.

use std::collections::HashSet;
use std::sync::{Arc, Mutex, PoisonError};

use domain::conversation::{Conversation, Mode, Source};
use domain::scope::Scope;
use domain::transfer::{Archive, Trace};
use tokio::sync::{Semaphore, oneshot};
use uuid::Uuid;

use super::archive::{insert_branches, insert_files, insert_messages};
use super::transaction::{Database, Settings, Transaction, transaction};
use super::{archive_runs, conversations, search, workspaces};
use crate::error::{Result, StoreError};
use crate::transfer::Pieces;

/// Transactions at once: the database has more than one processor.
const WAYS: usize = 4;
/// Conversations in one transaction.
const BATCH: usize = 128;

struct Waiting {
    scope: Scope,
    archive: Arc<Archive>,
    traces: Arc<dyn Pieces<Trace>>,
    answer: oneshot::Sender<Result<bool>>,
}

pub(super) struct Imports {
    queue: Mutex<Vec<Waiting>>,
    ways: Semaphore,
}

impl Default for Imports {
    fn default() -> Self {
        Self { queue: Mutex::default(), ways: Semaphore::new(WAYS) }
    }
}

impl Imports {
    /// False when the workspace has a conversation with its id.
    pub(super) async fn import(
        &self,
        db: &Database,
        scope: &Scope,
        archive: Arc<Archive>,
        traces: Arc<dyn Pieces<Trace>>,
    ) -> Result<bool> {
        let (answer, mut answered) = oneshot::channel();
        self.lock().push(Waiting { scope: scope.clone(), archive, traces, answer });
        loop {
            let _way = tokio::select! {
                biased;
                done = &mut answered => return done.unwrap_or_else(|_| Err(abandoned())),
                way = self.ways.acquire() => way.map_err(|_| abandoned())?,
            };
            let taken = self.take();
            // Somebody has taken this one and writes it.
            if taken.is_empty() {
                return answered.await.unwrap_or_else(|_| Err(abandoned()));
            }
            write_all(db, taken).await;
        }
    }

    /// The first ones that waited, as far as they are of one caller.
    fn take(&self) -> Vec<Waiting> {
        let mut queue = self.lock();
        let Some(scope) = queue.first().map(|first| first.scope.clone()) else { return Vec::new() };
        let others = queue.iter().take(BATCH).take_while(|waiting| waiting.scope == scope).count();
        queue.drain(..others).collect()
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Vec<Waiting>> {
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Whoever wrote for this one went away; it may have been written or not, which the next try finds out.
fn abandoned() -> StoreError {
    StoreError::Unavailable("the import was given up half-way".into())
}

async fn write_all(db: &Database, waiting: Vec<Waiting>) {
    let together = write(db, &waiting).await;
    for (at, one) in waiting.into_iter().enumerate() {
        let answer = match &together {
            Ok(written) => Ok(written.get(at) == Some(&true)),
            Err(StoreError::Unavailable(reason)) => Err(StoreError::Unavailable(reason.clone())),
            // One that cannot be written is nobody else's trouble.
            Err(_) => match write(db, std::slice::from_ref(&one)).await {
                // Another import was faster.
                Err(StoreError::Taken("id")) => Ok(false),
                alone => alone.map(|written| written == [true]),
            },
        };
        let _ = one.answer.send(answer);
    }
}

/// Which of them were written, in their order.
async fn write(db: &Database, waiting: &[Waiting]) -> Result<Vec<bool>> {
    let Some(Waiting { scope, .. }) = waiting.first() else { return Ok(Vec::new()) };
    transaction!(db, begin_write, Settings::of(scope), |tx| write_in(tx, scope, waiting))
}

async fn write_in(tx: &Transaction, scope: &Scope, waiting: &[Waiting]) -> Result<Vec<bool>> {
    workspaces::get(tx, scope, "FOR KEY SHARE").await?;
    let ids: Vec<Uuid> = waiting.iter().map(|one| one.archive.conversation.id).collect();
    let text =
        format!("SELECT id FROM chat_conversations WHERE {} AND id = ANY($2)", tx.inside("workspace_id"));
    let rows = tx.rows(&text, &[&scope.workspace, &ids]).await?;
    let mut known = rows.iter().map(|row| Ok(row.try_get(0)?)).collect::<Result<HashSet<Uuid>>>()?;
    let new: Vec<bool> = ids.iter().map(|id| known.insert(*id)).collect();
    let all: Vec<&Waiting> = waiting.iter().zip(&new).filter(|(_, new)| **new).map(|(one, _)| one).collect();
    let archives: Vec<&Archive> = all.iter().map(|one| &*one.archive).collect();
    insert_conversations(tx, scope, &archives).await?;
    let titled: Vec<&Conversation> = archives.iter().map(|of| &of.conversation).collect();
    search::index_new_titles(tx, scope, &titled).await?;
    let branches = archives.iter().flat_map(|of| {
        (0..).zip(&of.branches).skip(1).map(|(number, branch)| (of.conversation.id, number, branch))
    });
    insert_branches(tx, scope, &branches.collect::<Vec<_>>()).await?;
    let messages = archives.iter().flat_map(|of| {
        (0..).zip(&of.branches).flat_map(move |(number, branch)| {
            branch.messages.iter().map(move |message| (of.conversation.id, number, message))
        })
    });
    insert_messages(tx, scope, &messages.collect::<Vec<_>>()).await?;
    for Waiting { archive, traces, .. } in all {
        for run in &archive.runs {
            archive_runs::insert(tx, scope, run, None).await?;
        }
        let ids = archive.runs.iter().map(|of| of.run.id).collect();
        archive_runs::insert_traces(tx, scope, ids, &**traces).await?;
        insert_files(tx, scope, &archive.files).await?;
    }
    Ok(new)
}

async fn insert_conversations(tx: &Transaction, scope: &Scope, all: &[&Archive]) -> Result<()> {
    if all.is_empty() {
        return Ok(());
    }
    let of = || all.iter().map(|archive| &archive.conversation);
    let text = |field: fn(&Conversation) -> Option<&str>| of().map(field).collect::<Vec<_>>();
    let number = |field: fn(&Conversation) -> i64| of().map(field).collect::<Vec<_>>();
    tx.insert(
        "id",
        "INSERT INTO chat_conversations (workspace_id, id, org_id, user_id, title, mode, source, page_path, \
         total_tokens, tabs, active_tab_key, kind, workflow_id, agent_id, model, preview, message_count, \
         first_message, visibility, deleted_at, created_at, updated_at, version, context, current_branch, metadata) \
         SELECT $1::uuid, n.* FROM unnest($2::uuid[], $3::text[], $4::text[], $5::text[], $6::text[], $7::text[], \
         $8::text[], $9::bigint[], $10::text[], $11::text[], $12::text[], $13::text[], $14::text[], $15::text[], \
         $16::text[], $17::bigint[], $18::uuid[], $19::text[], $20::timestamptz[], $21::timestamptz[], \
         $22::timestamptz[], $23::bigint[], $24::text[], $25::integer[], $26::text[]) AS n",
        &[
            &scope.workspace,
            &of().map(|of| of.id).collect::<Vec<_>>(),
            &text(|of| Some(&of.org)),
            &text(|of| Some(&of.owner)),
            &text(|of| of.title.as_deref()),
            &text(|of| of.mode.map(Mode::as_str)),
            &text(|of| of.source.map(Source::as_str)),
            &text(|of| of.page_path.as_deref()),
            &number(|of| of.total_tokens),
            &of().map(conversations::tabs_text).collect::<Result<Vec<_>>>()?,
            &text(|of| of.active_tab_key.as_deref()),
            &text(|of| Some(of.kind.as_str())),
            &text(|of| of.workflow_id.as_deref()),
            &text(|of| of.agent_id.as_deref()),
            &text(|of| of.model.as_deref()),
            &text(|of| of.preview.as_deref()),
            &number(|of| of.message_count),
            &of().map(|of| of.first_message).collect::<Vec<_>>(),
            &text(|of| Some(of.visibility.as_str())),
            &of().map(|of| of.deleted_at).collect::<Vec<_>>(),
            &of().map(|of| of.created_at).collect::<Vec<_>>(),
            &of().map(|of| of.updated_at).collect::<Vec<_>>(),
            &number(|of| of.version),
            &text(|of| of.context.as_deref()),
            &all.iter().map(|archive| archive.current as i32).collect::<Vec<_>>(),
            &all.iter().map(|archive| archive.metadata.as_deref()).collect::<Vec<_>>(),
        ],
    )
    .await
}
