//! The second of the three writes: events, in batches, under the fence.
//!
//! Batches of many runs go in one transaction. Whoever finds the way free writes for all who gathered meanwhile, so
//! there is no waiting window, and no task that would have to be kept alive. The way is a connection of its own, which
//! is set for appends once: each is one message there and one back, not a transaction with its begin, settings and end.

use std::collections::HashMap;
use std::pin::pin;
use std::sync::{Mutex, PoisonError};
use std::time::Instant;

use deadpool_postgres::{Object, Pool};
use futures_util::future::join;
use tokio::sync::oneshot;
use tokio_postgres::Row;
use uuid::Uuid;

use crate::error::{Result, StoreError};
use crate::postgres::error::is_contention;
use crate::postgres::runs::RUNNING;
use crate::postgres::transaction::{Database, Params, Query, Settings, TRIES, Transaction, discard, inside};
use crate::turns::{Batch, Held};

pub(super) async fn append(db: &Database, appends: &Appends, held: &Held, batch: &Batch) -> Result<()> {
    match appends.append(db, held, batch).await? {
        true => Ok(()),
        false => why_not_written(db, held, batch).await,
    }
}

struct Waiting {
    held: Held,
    batch: Batch,
    answer: oneshot::Sender<Result<bool>>,
}

/// The workspace that a connection, known by when it was made, has been told for row level security.
type Told = Option<(Instant, Uuid)>;

pub(in crate::postgres) struct Appends {
    queue: Mutex<Vec<Waiting>>,
    pool: Pool,
    way: tokio::sync::Mutex<Told>,
}

impl Appends {
    pub(in crate::postgres) fn new(pool: Pool) -> Self {
        Self { queue: Mutex::default(), pool, way: tokio::sync::Mutex::default() }
    }

    pub(in crate::postgres) fn close(&self) {
        self.pool.close();
    }

    /// False when the run was not the writer's, or the batch not the next one.
    pub(super) async fn append(&self, db: &Database, held: &Held, batch: &Batch) -> Result<bool> {
        let (answer, mut answered) = oneshot::channel();
        self.lock().push(Waiting { held: *held, batch: batch.clone(), answer });
        let mut told = tokio::select! {
            biased;
            done = &mut answered => return done.unwrap_or_else(|_| Err(abandoned())),
            told = self.way.lock() => told,
        };
        let mut by_workspace: HashMap<Uuid, Vec<Waiting>> = HashMap::new();
        for waiting in std::mem::take(&mut *self.lock()) {
            by_workspace.entry(waiting.held.workspace).or_default().push(waiting);
        }
        for (workspace, waiting) in by_workspace {
            self.write_all(db, &mut told, workspace, waiting).await;
        }
        answered.await.unwrap_or_else(|_| Err(abandoned()))
    }

    async fn write_all(&self, db: &Database, told: &mut Told, workspace: Uuid, waiting: Vec<Waiting>) {
        let together = self.write(db, told, workspace, &waiting).await;
        for one in waiting {
            let answer = match &together {
                Ok(moved) => Ok(moved.contains(&one.held.lease.run)),
                Err(StoreError::Unavailable(reason)) => Err(StoreError::Unavailable(reason.clone())),
                // One that cannot be written is nobody else's trouble.
                Err(_) => {
                    let alone = self.write(db, told, workspace, std::slice::from_ref(&one)).await;
                    alone.map(|moved| !moved.is_empty())
                }
            };
            let _ = one.answer.send(answer);
        }
    }

    /// The update takes the rows' locks, so a writer that lost its run finds out here, whatever it saw before. The
    /// insert sees what the update let through. Many are locked in the order of their ids first, as heartbeats do.
    /// Answers the runs whose batch was written.
    async fn write(
        &self,
        db: &Database,
        told: &mut Told,
        workspace: Uuid,
        waiting: &[Waiting],
    ) -> Result<Vec<Uuid>> {
        let own = inside(db.dialect, "r.workspace_id");
        let (locked, and_locked) = match waiting.len() {
            1 => (String::new(), ""),
            _ => {
                let text = "SELECT r.id FROM runs r WHERE";
                let order = "AND r.id = ANY($2) ORDER BY r.id FOR NO KEY UPDATE";
                (
                    format!("locked AS MATERIALIZED ({text} {own} {order}), "),
                    "AND r.id IN (SELECT id FROM locked)",
                )
            }
        };
        let text = format!(
            "WITH {locked}moved AS (UPDATE runs r SET last_entry = g.last_entry, last_event = g.last_seq \
                 FROM unnest($2::uuid[], $3::bigint[], $4::bigint[], $5::bigint[], $6::bigint[], $7::bigint[], $8::text[]) \
                     AS g (run, fence, first_entry, last_entry, first_seq, last_seq, entries) \
                 WHERE {own} AND r.id = ANY($2) AND r.id = g.run AND r.fence = g.fence AND r.{RUNNING} \
                   AND r.last_entry = g.first_entry - 1 AND r.last_event = g.first_seq - 1 {and_locked} \
                 RETURNING r.workspace_id, g.run, g.first_entry, g.last_entry, g.last_seq, g.entries) \
             INSERT INTO run_events (workspace_id, run_id, first_entry, last_entry, last_seq, entries) \
             SELECT workspace_id, run, first_entry, last_entry, last_seq, entries FROM moved RETURNING run_id"
        );
        let number = |of: fn(&Waiting) -> i64| waiting.iter().map(of).collect::<Vec<i64>>();
        let runs: Vec<Uuid> = waiting.iter().map(|one| one.held.lease.run).collect();
        let fences = number(|one| one.held.lease.fence);
        let (first_entries, last_entries) =
            (number(|one| one.batch.first_entry), number(|one| one.batch.last_entry));
        let (first_seqs, last_seqs) = (number(|one| one.batch.first_seq), number(|one| one.batch.last_seq));
        let entries: Vec<&str> = waiting.iter().map(|one| &*one.batch.entries).collect();
        let params: Params<'_> = vec![
            &workspace,
            &runs,
            &fences,
            &first_entries,
            &last_entries,
            &first_seqs,
            &last_seqs,
            &entries,
        ];
        let query = Query { text: &text, params };
        let mut tries = 0;
        loop {
            tries += 1;
            match self.send(db, told, workspace, &query).await? {
                Err(error) if is_contention(&error) && tries < TRIES => {}
                rows => return rows?.iter().map(|row| Ok(row.try_get(0)?)).collect(),
            }
        }
    }

    async fn send(
        &self,
        db: &Database,
        told: &mut Told,
        workspace: Uuid,
        query: &Query<'_>,
    ) -> Result<std::result::Result<Vec<Row>, tokio_postgres::Error>> {
        let client = db.client_of(&self.pool).await?;
        let now = (Object::metrics(&client).created, workspace);
        // What is given up half-way leaves nothing that the next one would rely on.
        let before = told.take();
        let tell = async {
            match before == Some(now) {
                true => Ok(()),
                false => {
                    let text = format!("SELECT set_config('threadkeep.workspace', '{workspace}', false)");
                    client.batch_execute(&text).await
                }
            }
        };
        let work = async {
            let statement = client.prepare_cached(query.text).await?;
            // The first poll sends both.
            let (telling, rows) = join(tell, client.query(&statement, &query.params)).await;
            telling.and(rows)
        };
        let answered = db.presence.answer(pin!(work)).await;
        match answered {
            Ok(rows) => {
                *told = rows.is_ok().then_some(now);
                Ok(rows)
            }
            Err(silent) => Err(discard(client, silent)),
        }
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Vec<Waiting>> {
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Whoever wrote for this one went away; it may have been written or not, which the next try finds out.
fn abandoned() -> StoreError {
    StoreError::Unavailable("the write was given up half-way".into())
}

/// Of this very batch as the newest one nothing: its writer asks again after a connection that broke before the answer.
async fn why_not_written(db: &Database, held: &Held, batch: &Batch) -> Result<()> {
    let text = format!(
        "SELECT r.last_entry, r.last_event, e.run_id IS NOT NULL FROM runs r LEFT JOIN run_events e \
         ON e.workspace_id = r.workspace_id AND e.run_id = r.id AND e.last_entry = r.last_entry AND r.last_event = $4 \
         AND e.first_entry = $5 AND e.last_entry = $6 AND e.entries = $7 \
         WHERE {} AND r.id = $2 AND r.fence = $3 AND r.{RUNNING}",
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
    let row = rows.first().ok_or(StoreError::Lost)?;
    match row.try_get(2)? {
        true => Ok(()),
        false => Err(batch.misplaced((row.try_get(0)?, row.try_get(1)?))),
    }
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
