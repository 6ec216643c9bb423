//! The second of the three writes: events, in batches, under the fence.
//!
//! Batches of many runs go in one transaction. Whoever finds the way free writes for all who gathered meanwhile, so
//! there is no waiting window, and no task that would have to be kept alive.

use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};

use tokio::sync::oneshot;
use uuid::Uuid;

use crate::error::{Result, StoreError};
use crate::postgres::runs::RUNNING;
use crate::postgres::transaction::{Database, Params, Query, Settings, Transaction, inside};
use crate::turns::{Batch, Held};

pub(super) async fn append(db: &Database, appends: &Appends, held: &Held, batch: &Batch) -> Result<()> {
    match appends.append(db, held, batch).await? {
        true => Ok(()),
        false => is_stored(db, held, batch).await?.then_some(()).ok_or(StoreError::Lost),
    }
}

struct Waiting {
    held: Held,
    batch: Batch,
    answer: oneshot::Sender<Result<bool>>,
}

#[derive(Default)]
pub(in crate::postgres) struct Appends {
    queue: Mutex<Vec<Waiting>>,
    way: tokio::sync::Mutex<()>,
}

impl Appends {
    /// False when the run was not the writer's, or the batch not the next one.
    pub(super) async fn append(&self, db: &Database, held: &Held, batch: &Batch) -> Result<bool> {
        let (answer, mut answered) = oneshot::channel();
        self.lock().push(Waiting { held: *held, batch: batch.clone(), answer });
        let _way = tokio::select! {
            biased;
            done = &mut answered => return done.unwrap_or_else(|_| Err(abandoned())),
            way = self.way.lock() => way,
        };
        let mut by_workspace: HashMap<Uuid, Vec<Waiting>> = HashMap::new();
        for waiting in std::mem::take(&mut *self.lock()) {
            by_workspace.entry(waiting.held.workspace).or_default().push(waiting);
        }
        for (workspace, waiting) in by_workspace {
            write_all(db, workspace, waiting).await;
        }
        answered.await.unwrap_or_else(|_| Err(abandoned()))
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Vec<Waiting>> {
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Whoever wrote for this one went away; it may have been written or not, which the next try finds out.
fn abandoned() -> StoreError {
    StoreError::Unavailable("the write was given up half-way".into())
}

async fn write_all(db: &Database, workspace: Uuid, waiting: Vec<Waiting>) {
    let together = write(db, workspace, &waiting).await;
    for one in waiting {
        let answer = match &together {
            Ok(moved) => Ok(moved.contains(&one.held.lease.run)),
            Err(StoreError::Unavailable(reason)) => Err(StoreError::Unavailable(reason.clone())),
            // One that cannot be written is nobody else's trouble.
            Err(_) => write(db, workspace, std::slice::from_ref(&one)).await.map(|moved| !moved.is_empty()),
        };
        let _ = one.answer.send(answer);
    }
}

/// The update takes the rows' locks, so a writer that lost its run finds out here, whatever it saw before. The
/// insert sees what the update let through. Answers the runs whose batch was written.
async fn write(db: &Database, workspace: Uuid, waiting: &[Waiting]) -> Result<Vec<Uuid>> {
    let text = format!(
        "WITH moved AS (UPDATE runs r SET last_entry = g.last_entry, last_event = g.last_seq \
             FROM unnest($2::uuid[], $3::bigint[], $4::bigint[], $5::bigint[], $6::bigint[], $7::bigint[], $8::text[]) \
                 AS g (run, fence, first_entry, last_entry, first_seq, last_seq, entries) \
             WHERE {} AND r.id = ANY($2) AND r.id = g.run AND r.fence = g.fence AND r.{RUNNING} \
               AND r.last_entry = g.first_entry - 1 AND r.last_event = g.first_seq - 1 \
             RETURNING r.workspace_id, g.run, g.first_entry, g.last_entry, g.last_seq, g.entries) \
         INSERT INTO run_events (workspace_id, run_id, first_entry, last_entry, last_seq, entries) \
         SELECT workspace_id, run, first_entry, last_entry, last_seq, entries FROM moved RETURNING run_id",
        inside(db.dialect, "r.workspace_id")
    );
    let number = |of: fn(&Waiting) -> i64| waiting.iter().map(of).collect::<Vec<i64>>();
    let runs: Vec<Uuid> = waiting.iter().map(|one| one.held.lease.run).collect();
    let fences = number(|one| one.held.lease.fence);
    let (first_entries, last_entries) =
        (number(|one| one.batch.first_entry), number(|one| one.batch.last_entry));
    let (first_seqs, last_seqs) = (number(|one| one.batch.first_seq), number(|one| one.batch.last_seq));
    let entries: Vec<&str> = waiting.iter().map(|one| &*one.batch.entries).collect();
    let params: Params<'_> =
        vec![&workspace, &runs, &fences, &first_entries, &last_entries, &first_seqs, &last_seqs, &entries];
    let settings = Settings::workspace(workspace).seeing_all();
    let rows = db.rows_unsynced(&settings, &Query { text: &text, params }).await?;
    rows.iter().map(|row| Ok(row.try_get(0)?)).collect()
}

/// Whether this very batch is the newest one: its writer asks again after a connection that broke before the answer.
async fn is_stored(db: &Database, held: &Held, batch: &Batch) -> Result<bool> {
    let text = format!(
        "SELECT 1 FROM runs r JOIN run_events e \
         ON e.workspace_id = r.workspace_id AND e.run_id = r.id AND e.last_entry = r.last_entry \
         WHERE {} AND r.id = $2 AND r.fence = $3 AND r.{RUNNING} AND r.last_event = $4 \
         AND e.first_entry = $5 AND e.last_entry = $6 AND e.entries = $7",
        inside(db.dialect, "r.workspace_id")
    );
    let entries = &*batch.entries;
    let params: Params<'_> = vec![
        &held.workspace,
        &held.lease.run,
        &held.lease.fence,
        &batch.last_seq,
        &batch.first_entry,
        &batch.last_entry,
        &entries,
    ];
    let settings = Settings::workspace(held.workspace).seeing_all();
    let [rows] = db.read(&settings, [Query { text: &text, params }]).await?;
    Ok(!rows.is_empty())
}

/// Writes what a log begins with, of a run that the same transaction has started.
pub(in crate::postgres) async fn open_log(tx: &Transaction, held: &Held, opening: &Batch) -> Result<()> {
    let text = "INSERT INTO run_events (workspace_id, run_id, first_entry, last_entry, last_seq, entries) \
                VALUES ($1, $2, $3, $4, $5, $6)";
    let Batch { first_entry, last_entry, last_seq, .. } = opening;
    let entries = &*opening.entries;
    let params: Params<'_> =
        vec![&held.workspace, &held.lease.run, first_entry, last_entry, last_seq, &entries];
    tx.execute(text, &params).await.map(|_| ())
}
