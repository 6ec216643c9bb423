//! The one writer. Jobs that gathered while it was busy share one transaction and one sync, and are answered after
//! the commit. There is no waiting window: an idle writer takes the first job at once. Jobs run bare; should one
//! fail after it has written something, the batch is run again with each in a savepoint of its own. A small job that
//! needs no sync and finds the writer idle is done where it is asked for, which saves two changes of thread.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicI32, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

use rusqlite::Connection;
use rusqlite::hooks::Wal;
use tokio::sync::{mpsc, oneshot};

use super::open::PATIENCE;
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
/// The log grows to 16 MiB before it goes into the file: hot pages are then written there once for many commits.
const CHECKPOINT_PAGES: i32 = 4096;

pub(super) struct Writer {
    jobs: Mutex<Option<mpsc::Sender<Order>>>,
    thread: Mutex<Option<JoinHandle<()>>>,
    desk: Arc<Mutex<Desk>>,
}

impl Writer {
    pub(super) fn start(connection: Connection) -> Result<Self> {
        let (jobs, queue) = mpsc::channel(QUEUE);
        let desk = Arc::new(Mutex::new(Desk::new(connection)?));
        let shared = Arc::clone(&desk);
        let thread = std::thread::Builder::new()
            .name("sqlite-writer".into())
            .spawn(move || work(&shared, queue))
            .map_err(|error| StoreError::Unavailable(error.to_string()))?;
        Ok(Self { jobs: Mutex::new(Some(jobs)), thread: Mutex::new(Some(thread)), desk })
    }

    /// For work of a few rows that may be lost with the machine and adds no words to the index.
    pub(super) async fn write_small<T: Send + 'static>(
        &self,
        work: impl Fn(&Connection) -> Result<T> + Send + 'static,
    ) -> Result<T> {
        match self.at_once(&work) {
            Some(done) => Ok(done),
            None => self.write(Durability::Normal, work).await,
        }
    }

    /// None if somebody is writing or waits in the queue, when the log is to be moved into the file, whose next commit
    /// then syncs, and when the work fails: the queue says why.
    fn at_once<T>(&self, work: impl Fn(&Connection) -> Result<T>) -> Option<T> {
        let nobody_waits = |jobs: &mpsc::Sender<Order>| jobs.capacity() == jobs.max_capacity();
        self.jobs.lock().ok()?.as_ref().filter(|jobs| nobody_waits(jobs))?;
        let mut desk = self.desk.try_lock().ok().filter(|desk| !desk.is_log_full())?;
        let db = desk.set(Durability::Normal).ok()?;
        // A thread that serves others waits for nobody.
        db.busy_timeout(Duration::ZERO).ok()?;
        let done = execute(db, "BEGIN IMMEDIATE").ok().and_then(|()| {
            let done = catch_unwind(AssertUnwindSafe(|| work(db))).ok().and_then(Result::ok);
            done.filter(|_| execute(db, "COMMIT").is_ok())
        });
        if done.is_none() {
            roll_back(db);
        }
        let _ = db.busy_timeout(PATIENCE);
        done
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

/// The connection that writes, and how it is set.
struct Desk {
    /// None once closed.
    db: Option<Connection>,
    mode: Option<Durability>,
    /// The pages in the log after the newest commit.
    logged: Arc<AtomicI32>,
}

impl Desk {
    fn new(mut db: Connection) -> Result<Self> {
        let logged = Arc::new(AtomicI32::new(0));
        let newest = Arc::clone(&logged);
        // In the place of SQLite's own checkpoints: those come within a commit, on whichever thread.
        db.wal_hook(Some(move |_: &mut Wal, pages| {
            newest.store(pages, Ordering::Relaxed);
            Ok(())
        }))?;
        Ok(Self { db: Some(db), mode: None, logged })
    }

    /// The connection with the sync mode, which can only change between transactions.
    fn set(&mut self, durability: Durability) -> rusqlite::Result<&Connection> {
        let db = self.db.as_ref().ok_or(rusqlite::Error::InvalidQuery)?;
        if self.mode != Some(durability) {
            match durability {
                Durability::Normal => db.execute_batch("PRAGMA synchronous = NORMAL")?,
                Durability::Full => db.execute_batch("PRAGMA synchronous = FULL")?,
            }
            self.mode = Some(durability);
        }
        Ok(db)
    }

    fn is_log_full(&self) -> bool {
        self.logged.load(Ordering::Relaxed) >= CHECKPOINT_PAGES
    }

    /// Moves the log into the file when it has grown. What readers still need of it, or what fails, stays for the next
    /// time.
    fn checkpoint(&self) {
        if let Some(db) = self.db.as_ref().filter(|_| self.is_log_full())
            && let Err(error) = db.query_row("PRAGMA wal_checkpoint(PASSIVE)", [], |_| Ok(()))
        {
            tracing::debug!(%error, "the log could not be moved into the file");
        }
    }
}

fn work(desk: &Mutex<Desk>, mut queue: mpsc::Receiver<Order>) {
    // Panics are caught before they could leave it half-done.
    let lock = || desk.lock().unwrap_or_else(PoisonError::into_inner);
    let (mut orders, mut batch) = (Vec::new(), Vec::new());
    while queue.blocking_recv_many(&mut orders, BATCH) > 0 {
        let desk = &mut *lock();
        for order in orders.drain(..) {
            match order {
                Order::Job(job) => batch.push(job),
                Order::Alone(work) => {
                    commit(desk, &mut batch);
                    if let Ok(db) = desk.set(Durability::Full) {
                        // As with a job, a panic tells the caller alone.
                        let _ = catch_unwind(AssertUnwindSafe(|| work(db)));
                    }
                }
            }
        }
        commit(desk, &mut batch);
        desk.checkpoint();
    }
    lock().db = None;
}

/// Runs what has gathered as one transaction, and tells each caller.
fn commit(desk: &mut Desk, batch: &mut Jobs) {
    if !batch.is_empty() {
        let failure = run_batch(desk, batch).err().map(|error| {
            desk.db.as_ref().inspect(|db| roll_back(db));
            tracing::error!(%error, "a batch of writes was rolled back");
            format!("the write could not be committed: {error}")
        });
        for job in batch.drain(..) {
            job.answer(failure.as_deref());
        }
    }
}

fn run_batch(desk: &mut Desk, batch: &mut Jobs) -> rusqlite::Result<()> {
    let strongest = batch.iter().map(|job| job.durability()).max().unwrap_or(Durability::Full);
    let db = desk.set(strongest)?;
    search::forget_pending(0);
    execute(db, "BEGIN IMMEDIATE")?;
    if !run_bare(db, batch)? {
        execute(db, "ROLLBACK")?;
        search::forget_pending(0);
        execute(db, "BEGIN IMMEDIATE")?;
        run_apart(db, batch)?;
    }
    search::index_pending(db)?;
    execute(db, "COMMIT")
}

fn roll_back(db: &Connection) {
    if !db.is_autocommit() {
        let _ = db.execute_batch("ROLLBACK");
    }
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
    async fn small_work_is_done_by_its_caller_unless_the_writer_is_busy() {
        let writer = writer();
        let place = |_: &Connection| Ok(std::thread::current().id());
        assert_eq!(writer.write_small(place).await.unwrap(), std::thread::current().id());
        let (release, held) = std::sync::mpsc::channel::<()>();
        let busy = writer.alone(move |_| Ok(held.recv().ok()));
        let waiting = async {
            // By now the writer has the other work.
            while writer.desk.try_lock().is_ok() {
                tokio::task::yield_now().await;
            }
            let small = writer.write_small(place);
            let (small, _) = tokio::join!(small, async { release.send(()).unwrap() });
            small.unwrap()
        };
        let (busy, by) = tokio::join!(busy, waiting);
        assert!(busy.is_ok() && by != std::thread::current().id());
    }

    #[tokio::test]
    async fn small_work_that_fails_leaves_nothing_and_says_why() {
        let writer = writer();
        let failing = |db: &Connection| {
            db.execute("INSERT INTO t VALUES (1)", [])?;
            Err::<(), _>(StoreError::NotFound)
        };
        assert!(matches!(writer.write_small(failing).await, Err(StoreError::NotFound)));
        let dying = |db: &Connection| -> Result<()> {
            db.execute("INSERT INTO t VALUES (1)", [])?;
            panic!("work that dies")
        };
        assert!(matches!(writer.write_small(dying).await, Err(StoreError::Unavailable(_))));
        writer.write_small(insert(1)).await.unwrap();
        assert_eq!(count(&writer).await, 1);
        writer.close().await;
        assert!(matches!(writer.write_small(insert(2)).await, Err(StoreError::Unavailable(_))));
    }

    #[tokio::test]
    async fn a_full_log_is_moved_into_the_file_by_the_writers_thread() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("log.db");
        let db = super::super::open::open(&path, super::super::Use::Command).unwrap().writer;
        db.execute_batch("CREATE TABLE t (x INTEGER PRIMARY KEY, y BLOB)").unwrap();
        let writer = Writer::start(db).unwrap();
        // Two of these fill the log.
        let fill = |db: &Connection| {
            for _ in 0..CHECKPOINT_PAGES / 2 {
                db.execute("INSERT INTO t (y) VALUES (zeroblob(4000))", [])?;
            }
            Ok(std::thread::current().id())
        };
        let size = |suffix: &str| std::fs::metadata(format!("{}{suffix}", path.display())).unwrap().len();
        let own = std::thread::current().id();
        let mut by = Vec::new();
        for _ in 0..6 {
            by.push(writer.write_small(fill).await.unwrap() == own);
            // The writer's thread moves the log after its answer, before it lets go of the desk.
            writer.alone(|_| Ok(())).await.unwrap();
            while writer.desk.try_lock().is_err() {
                tokio::task::yield_now().await;
            }
        }
        // What comes upon a full log is the thread's, and so is the commit after it was moved.
        assert_eq!(by, [true, true, false, true, false, true]);
        let log = 4096 * CHECKPOINT_PAGES as u64;
        assert!(size("") > 5 * log / 2 && size("-wal") < 5 * log / 4, "{} {}", size(""), size("-wal"));
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
