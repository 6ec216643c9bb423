//! The one writer. Jobs that gathered while it was busy share one transaction and one sync; each runs
//! in a savepoint of its own and is answered after the commit. There is no waiting window: an idle
//! writer takes the first job at once.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Mutex;
use std::thread::JoinHandle;

use rusqlite::Connection;
use tokio::sync::{mpsc, oneshot};

use crate::error::{Result, StoreError};

/// How much a commit must survive. A batch takes the strongest of its jobs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Durability {
    /// The death of this process: run events, of which the next full commit syncs the same file.
    Normal,
    /// Power loss: what was accepted, settled or deleted.
    Full,
}

/// Told after the commit, with the reason when there was none.
type Answer = Box<dyn FnOnce(Option<String>) + Send>;

/// Does the work; false asks for the savepoint to be rolled back.
type Run = Box<dyn FnOnce(&Connection) -> (bool, Answer) + Send>;

struct Job {
    durability: Durability,
    run: Run,
}

enum Order {
    Job(Job),
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
        work: impl FnOnce(&Connection) -> Result<T> + Send + 'static,
    ) -> Result<T> {
        let (answer, answered) = oneshot::channel();
        let run = Box::new(move |db: &Connection| {
            let result = work(db);
            let ok = result.is_ok();
            let finish: Answer = Box::new(move |failure| {
                let result = match failure {
                    Some(reason) => Err(StoreError::Unavailable(reason)),
                    None => result,
                };
                // A caller that went away does not undo the write.
                let _ = answer.send(result);
            });
            (ok, finish)
        });
        self.send(Order::Job(Job { durability, run })).await?;
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
    let mut mode = None;
    while let Some(first) = queue.blocking_recv() {
        let (mut batch, mut next, mut alone) = (Vec::new(), Some(first), None);
        while let Some(order) = next.take() {
            match order {
                Order::Job(job) => batch.push(job),
                Order::Alone(work) => alone = Some(work),
            }
            if batch.len() < BATCH && alone.is_none() {
                next = queue.try_recv().ok();
            }
        }
        if !batch.is_empty() {
            run_batch(db, batch, &mut mode);
        }
        if let Some(work) = alone {
            // As with a job, a panic tells the caller alone.
            let _ = catch_unwind(AssertUnwindSafe(|| work(db)));
        }
    }
}

fn run_batch(db: &Connection, batch: Vec<Job>, mode: &mut Option<Durability>) {
    let strongest = batch.iter().map(|job| job.durability).max();
    let mut answers = Vec::with_capacity(batch.len());
    let outcome = begin(db, strongest, mode).and_then(|()| {
        for job in batch {
            // A panic drops the job's answer, which tells its caller; the others go on.
            db.execute_batch("SAVEPOINT job")?;
            let done = catch_unwind(AssertUnwindSafe(|| (job.run)(db))).ok();
            let keep = done.as_ref().is_some_and(|(ok, _)| *ok);
            answers.extend(done.map(|(_, answer)| answer));
            // After a full disk SQLite may have rolled everything back by itself.
            if db.is_autocommit() {
                return Err(rusqlite::Error::ExecuteReturnedResults);
            }
            db.execute_batch(if keep { "RELEASE job" } else { "ROLLBACK TO job; RELEASE job" })?;
        }
        db.execute_batch("COMMIT")
    });
    let failure = outcome.err().map(|error| {
        if !db.is_autocommit() {
            let _ = db.execute_batch("ROLLBACK");
        }
        tracing::error!(%error, "a batch of writes was rolled back");
        format!("the write could not be committed: {error}")
    });
    for answer in answers {
        answer(failure.clone());
    }
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
    db.execute_batch("BEGIN IMMEDIATE")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn writer() -> Writer {
        let db = Connection::open_in_memory().unwrap();
        db.execute_batch("CREATE TABLE t (x INTEGER PRIMARY KEY)").unwrap();
        Writer::start(db).unwrap()
    }

    fn insert(x: i64) -> impl FnOnce(&Connection) -> Result<()> + Send + 'static {
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
