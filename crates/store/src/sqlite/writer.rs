//! The one writer. Jobs that gathered while it was busy share one transaction and one sync, and are answered after
//! the commit. There is no waiting window: an idle writer takes the first job at once. Jobs run bare; should one
//! fail after it has written something, the batch is run again with each in a savepoint of its own.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Mutex;
use std::thread::JoinHandle;

use rusqlite::Connection;
use tokio::sync::{mpsc, oneshot};

use super::search;
use crate::error::{Result, StoreError};

/// How much a commit must survive. A batch takes the strongest of its jobs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Durability {
    /// The death of this process: run events, of which the next full commit syncs the same file.
    Normal,
    /// Power loss: what was accepted, settled or deleted.
    Full,
}

/// May be run more than once: what it did before has been rolled back then.
trait Job: Send {
    fn durability(&self) -> Durability;

    /// Does the work; false asks for it to be undone.
    fn run(&mut self, db: &Connection) -> bool;

    /// Called after the commit, with the reason when there was none.
    fn answer(self: Box<Self>, failure: Option<&str>);
}

struct Call<T, F> {
    durability: Durability,
    work: F,
    /// Of the last run; none if it panicked.
    result: Option<Result<T>>,
    answer: oneshot::Sender<Result<T>>,
}

impl<T: Send, F: Fn(&Connection) -> Result<T> + Send> Job for Call<T, F> {
    fn durability(&self) -> Durability {
        self.durability
    }

    fn run(&mut self, db: &Connection) -> bool {
        self.result = None;
        self.result = catch_unwind(AssertUnwindSafe(|| (self.work)(db))).ok();
        self.result.as_ref().is_some_and(Result::is_ok)
    }

    fn answer(self: Box<Self>, failure: Option<&str>) {
        let result = match failure {
            Some(reason) => Some(Err(StoreError::Unavailable(reason.to_owned()))),
            None => self.result,
        };
        // Without a result the sender is dropped, which tells the caller. One that went away undoes nothing.
        if let Some(result) = result {
            let _ = self.answer.send(result);
        }
    }
}

type Jobs = Vec<Box<dyn Job>>;

enum Order {
    Job(Box<dyn Job>),
    /// Work that no transaction may surround, such as rewriting the file.
    Alone(Box<dyn FnOnce(&Connection) + Send>),
}

/// Jobs waiting beyond this make their callers wait.
const QUEUE: usize = 1024;
const BATCH: usize = 256;

pub(super) struct Writer {
    jobs: Mutex<Option<mpsc::Sender<Order>>>,
    thread: Mutex<Option<JoinHandle<()>>>,
}

impl Writer {
    pub(super) fn start(connection: Connection) -> Result<Self> {
        let (jobs, queue) = mpsc::channel(QUEUE);
        let thread = std::thread::Builder::new()
            .name("sqlite-writer".into())
            .spawn(move || work(&connection, queue))
            .map_err(|error| StoreError::Unavailable(error.to_string()))?;
        Ok(Self { jobs: Mutex::new(Some(jobs)), thread: Mutex::new(Some(thread)) })
    }

    pub(super) async fn write<T: Send + 'static>(
        &self,
        durability: Durability,
        work: impl Fn(&Connection) -> Result<T> + Send + 'static,
    ) -> Result<T> {
        let (answer, answered) = oneshot::channel();
        let job = Call { durability, work, result: None, answer };
        self.send(Order::Job(Box::new(job))).await?;
        answered.await.map_err(|_| StoreError::Unavailable("the write was not committed".into()))?
    }

    /// Does work by itself, outside any transaction. The writes that come meanwhile wait.
    pub(super) async fn alone<T: Send + 'static>(
        &self,
        work: impl FnOnce(&Connection) -> Result<T> + Send + 'static,
    ) -> Result<T> {
        let (answer, answered) = oneshot::channel();
        let run = Box::new(move |db: &Connection| {
            let _ = answer.send(work(db));
        });
        self.send(Order::Alone(run)).await?;
        answered.await.map_err(|_| StoreError::Unavailable("the work was not done".into()))?
    }

    async fn send(&self, order: Order) -> Result<()> {
        let jobs = self.jobs.lock().ok().and_then(|jobs| jobs.clone()).ok_or_else(closed)?;
        jobs.send(order).await.map_err(|_| closed())
    }

    /// Lets the queued jobs finish, then ends the thread.
    pub(super) async fn close(&self) {
        if let Ok(mut jobs) = self.jobs.lock() {
            jobs.take();
        }
        let thread = self.thread.lock().ok().and_then(|mut thread| thread.take());
        if let Some(thread) = thread {
            let _ = tokio::task::spawn_blocking(move || thread.join()).await;
        }
    }
}

fn closed() -> StoreError {
    StoreError::Unavailable("the store is closing".into())
}

fn work(db: &Connection, mut queue: mpsc::Receiver<Order>) {
    let (mut mode, mut orders, mut batch) = (None, Vec::new(), Vec::new());
    while queue.blocking_recv_many(&mut orders, BATCH) > 0 {
        for order in orders.drain(..) {
            match order {
                Order::Job(job) => batch.push(job),
                Order::Alone(work) => {
                    commit(db, &mut batch, &mut mode);
                    // As with a job, a panic tells the caller alone.
                    let _ = catch_unwind(AssertUnwindSafe(|| work(db)));
                }
            }
        }
        commit(db, &mut batch, &mut mode);
    }
}

/// Runs what has gathered as one transaction, and tells each caller.
fn commit(db: &Connection, batch: &mut Jobs, mode: &mut Option<Durability>) {
    if !batch.is_empty() {
        let outcome = run_batch(db, batch, mode);
        let failure = outcome.err().map(|error| {
            if !db.is_autocommit() {
                let _ = db.execute_batch("ROLLBACK");
            }
            tracing::error!(%error, "a batch of writes was rolled back");
            format!("the write could not be committed: {error}")
        });
        for job in batch.drain(..) {
            job.answer(failure.as_deref());
        }
    }
}

fn run_batch(db: &Connection, batch: &mut Jobs, mode: &mut Option<Durability>) -> rusqlite::Result<()> {
    let strongest = batch.iter().map(|job| job.durability()).max();
    search::forget_pending(0);
    begin(db, strongest, mode)?;
    if !run_bare(db, batch)? {
        execute(db, "ROLLBACK")?;
        search::forget_pending(0);
        begin(db, strongest, mode)?;
        run_apart(db, batch)?;
    }
    search::index_pending(db)?;
    execute(db, "COMMIT")
}

/// False when a job left something behind that must be undone. Most that fail have written nothing.
fn run_bare(db: &Connection, batch: &mut Jobs) -> rusqlite::Result<bool> {
    for job in batch {
        let before = db.total_changes();
        let done = job.run(db);
        still_open(db)?;
        if !done && db.total_changes() != before {
            return Ok(false);
        }
    }
    Ok(true)
}

fn run_apart(db: &Connection, batch: &mut Jobs) -> rusqlite::Result<()> {
    for job in batch {
        let pending = search::pending();
        execute(db, "SAVEPOINT job")?;
        let done = job.run(db);
        still_open(db)?;
        if !done {
            execute(db, "ROLLBACK TO job")?;
            search::forget_pending(pending);
        }
        execute(db, "RELEASE job")?;
    }
    Ok(())
}

/// After a full disk SQLite may have rolled everything back by itself.
fn still_open(db: &Connection) -> rusqlite::Result<()> {
    if db.is_autocommit() { Err(rusqlite::Error::ExecuteReturnedResults) } else { Ok(()) }
}

fn execute(db: &Connection, text: &str) -> rusqlite::Result<()> {
    db.prepare_cached(text)?.execute([]).map(|_| ())
}

fn begin(db: &Connection, wanted: Option<Durability>, mode: &mut Option<Durability>) -> rusqlite::Result<()> {
    if *mode != wanted {
        // The pragma can only change between transactions.
        match wanted {
            Some(Durability::Normal) => db.execute_batch("PRAGMA synchronous = NORMAL")?,
            Some(Durability::Full) | None => db.execute_batch("PRAGMA synchronous = FULL")?,
        }
        *mode = wanted;
    }
    execute(db, "BEGIN IMMEDIATE")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn writer() -> Writer {
        let db = Connection::open_in_memory().unwrap();
        db.execute_batch("CREATE TABLE t (x INTEGER PRIMARY KEY); CREATE TABLE message_search (words); CREATE TABLE title_search (words)")
            .unwrap();
        Writer::start(db).unwrap()
    }

    fn insert(x: i64) -> impl Fn(&Connection) -> Result<()> + Send + 'static {
        move |db| {
            db.execute("INSERT INTO t VALUES (?1)", [x])?;
            Ok(())
        }
    }

    async fn count(writer: &Writer) -> i64 {
        let count = |db: &Connection| Ok(db.query_row("SELECT count(*) FROM t", [], |row| row.get(0))?);
        writer.write(Durability::Normal, count).await.unwrap()
    }

    #[tokio::test]
    async fn one_failing_job_leaves_its_neighbours_in_the_batch_alone() {
        let writer = writer();
        let answers = tokio::join!(
            writer.write(Durability::Full, insert(1)),
            writer.write(Durability::Full, |db: &Connection| {
                db.execute("INSERT INTO t VALUES (2)", [])?;
                Err::<(), _>(StoreError::NotFound)
            }),
            writer.write(Durability::Full, |db: &Connection| {
                db.execute("INSERT INTO t VALUES (3)", [])?;
                panic!("a job that dies")
            }),
            writer.write(Durability::Full, insert(4)),
        );
        let (first, second, third, fourth): (Result<()>, Result<()>, Result<()>, Result<()>) = answers;
        assert!(first.is_ok() && fourth.is_ok());
        assert!(matches!(second, Err(StoreError::NotFound)));
        assert!(matches!(third, Err(StoreError::Unavailable(_))));
        assert_eq!(count(&writer).await, 2);
    }

    #[tokio::test]
    async fn each_durability_class_has_its_own_sync_mode() {
        let writer = writer();
        let mode = |db: &Connection| Ok(db.query_row("PRAGMA synchronous", [], |row| row.get::<_, i64>(0))?);
        for (durability, pragma) in
            [(Durability::Normal, 1), (Durability::Full, 2), (Durability::Normal, 1), (Durability::Full, 2)]
        {
            assert_eq!(writer.write(durability, mode).await.unwrap(), pragma);
        }
    }

    #[tokio::test]
    async fn work_alone_is_done_between_transactions() {
        let writer = writer();
        let (before, alone, after) = tokio::join!(
            writer.write(Durability::Full, insert(1)),
            writer.alone(|db| {
                db.execute_batch("VACUUM")?;
                Ok(db.query_row("SELECT count(*) FROM t", [], |row| row.get::<_, i64>(0))?)
            }),
            writer.write(Durability::Full, insert(2)),
        );
        assert!(before.is_ok() && after.is_ok());
        assert_eq!(alone.unwrap(), 1);
        let died: Result<()> = writer.alone(|_| panic!("work that dies")).await;
        assert!(matches!(died, Err(StoreError::Unavailable(_))));
        assert_eq!(count(&writer).await, 2);
    }

    #[tokio::test]
    async fn a_closed_writer_finishes_its_queue_and_takes_no_more() {
        let writer = writer();
        writer.write(Durability::Full, insert(1)).await.unwrap();
        writer.close().await;
        assert!(matches!(writer.write(Durability::Full, insert(2)).await, Err(StoreError::Unavailable(_))));
    }
}
