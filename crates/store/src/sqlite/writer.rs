//! Who writes. Each durability class has a queue and a thread of its own: jobs that gathered while theirs was busy share
//! one transaction, and are answered after its commit. There is no waiting window: an idle thread takes the first job at
//! once. What must survive power loss is synced after the commit, by its own thread, while the others write on. Jobs
//! run bare; should one fail after it has written something, the batch is run again with each in a savepoint of its own.
//! A small job that needs no sync and finds the connection free is done where it is asked for, which saves two changes
//! of thread.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::Duration;

use rusqlite::Connection;
use tokio::sync::{mpsc, oneshot};

use super::desk::Desk;
use super::open::PATIENCE;
use super::search;
use crate::error::{Result, StoreError};

/// What a write must survive before it is answered.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Durability {
    /// The death of this process: run events. The next sync is of the same file.
    Normal,
    /// Power loss: what was accepted, settled or deleted.
    Full,
}

/// May be run more than once: what it did before has been rolled back then.
trait Job: Send {
    /// Does the work; false asks for it to be undone.
    fn run(&mut self, db: &Connection) -> bool;

    /// Called after the commit, with the reason when there was none.
    fn answer(self: Box<Self>, failure: Option<&str>);
}

struct Call<T, F> {
    work: F,
    /// Of the last run; none if it panicked.
    result: Option<Result<T>>,
    answer: oneshot::Sender<Result<T>>,
}

impl<T: Send, F: Fn(&Connection) -> Result<T> + Send> Job for Call<T, F> {
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
    normal: Line,
    full: Line,
    desk: Arc<Desk>,
}

impl Writer {
    pub(super) fn start(connection: Connection, path: &Path) -> Result<Self> {
        Self::at(Desk::new(connection, path)?)
    }

    pub(super) fn at(desk: Desk) -> Result<Self> {
        let desk = Arc::new(desk);
        let normal = Line::start("sqlite-writer", Arc::clone(&desk), Durability::Normal)?;
        let full = Line::start("sqlite-syncer", Arc::clone(&desk), Durability::Full)?;
        Ok(Self { normal, full, desk })
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

    /// None if somebody is writing or waits to, when the log is to be moved into the file, whose next commit then syncs,
    /// and when the work fails: the queue says why.
    fn at_once<T>(&self, work: impl Fn(&Connection) -> Result<T>) -> Option<T> {
        let seat = if self.normal.is_empty() { self.desk.sit_if_free()? } else { return None };
        let db = seat.as_ref()?;
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
        let line = match durability {
            Durability::Normal => &self.normal,
            Durability::Full => &self.full,
        };
        line.send(Order::Job(Box::new(Call { work, result: None, answer }))).await?;
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
        self.full.send(Order::Alone(run)).await?;
        answered.await.map_err(|_| StoreError::Unavailable("the work was not done".into()))?
    }

    /// Lets the queued jobs finish, then ends the threads and closes the connection.
    pub(super) async fn close(&self) {
        let (Some(normal), Some(full)) = (self.normal.close(), self.full.close()) else { return };
        let desk = Arc::clone(&self.desk);
        let ending = tokio::task::spawn_blocking(move || {
            let _ = (normal.join(), full.join());
            desk.sit().take();
        });
        let _ = ending.await;
    }
}

fn closed() -> StoreError {
    StoreError::Unavailable("the store is closing".into())
}

/// The jobs of one class, and the thread that does them.
struct Line {
    orders: Mutex<Option<mpsc::Sender<Order>>>,
    thread: Mutex<Option<JoinHandle<()>>>,
}

impl Line {
    fn start(name: &str, desk: Arc<Desk>, durability: Durability) -> Result<Self> {
        let (orders, queue) = mpsc::channel(QUEUE);
        let thread = std::thread::Builder::new()
            .name(name.into())
            .spawn(move || work(&desk, queue, durability))
            .map_err(|error| StoreError::Unavailable(error.to_string()))?;
        Ok(Self { orders: Mutex::new(Some(orders)), thread: Mutex::new(Some(thread)) })
    }

    async fn send(&self, order: Order) -> Result<()> {
        let orders = self.orders.lock().ok().and_then(|orders| orders.clone()).ok_or_else(closed)?;
        orders.send(order).await.map_err(|_| closed())
    }

    /// Nobody waits in it, and it is not closed.
    fn is_empty(&self) -> bool {
        let is_empty = |orders: &mpsc::Sender<Order>| orders.capacity() == orders.max_capacity();
        self.orders.lock().is_ok_and(|orders| orders.as_ref().is_some_and(is_empty))
    }

    fn close(&self) -> Option<JoinHandle<()>> {
        if let Ok(mut orders) = self.orders.lock() {
            orders.take();
        }
        self.thread.lock().ok().and_then(|mut thread| thread.take())
    }
}

fn work(desk: &Desk, mut queue: mpsc::Receiver<Order>, durability: Durability) {
    let (mut orders, mut batch) = (Vec::new(), Vec::new());
    while queue.blocking_recv_many(&mut orders, BATCH) > 0 {
        for order in orders.drain(..) {
            match order {
                Order::Job(job) => batch.push(job),
                Order::Alone(work) => {
                    commit(desk, &mut batch, durability);
                    if let Some(db) = desk.sit().as_ref() {
                        // As with a job, a panic tells the caller alone.
                        let _ = catch_unwind(AssertUnwindSafe(|| work(db)));
                        desk.checkpoint(db);
                    }
                }
            }
        }
        commit(desk, &mut batch, durability);
        if desk.is_checkpoint_due()
            && let Some(db) = desk.sit().as_ref()
        {
            desk.checkpoint(db);
        }
    }
}

/// Runs what has gathered as one transaction, and tells each caller.
fn commit(desk: &Desk, batch: &mut Jobs, durability: Durability) {
    if batch.is_empty() {
        return;
    }
    let done = match durability {
        Durability::Normal => write_batch(desk, batch).map(|_| ()),
        // What finds that all was done before it promises the same: nothing that came before is in doubt then.
        Durability::Full => desk.settle_doubt().and_then(|()| match write_batch(desk, batch)? {
            true => desk.sync(),
            false => Ok(()),
        }),
    };
    for job in batch.drain(..) {
        job.answer(done.as_ref().err().map(String::as_str));
    }
}

/// Whether anything was written.
fn write_batch(desk: &Desk, batch: &mut Jobs) -> std::result::Result<bool, String> {
    let seat = desk.sit();
    let db = seat.as_ref().ok_or("the store is closed")?;
    let before = db.total_changes();
    if let Err(error) = run_batch(db, batch) {
        roll_back(db);
        tracing::error!(%error, "a batch of writes was rolled back");
        return Err(format!("the write could not be committed: {error}"));
    }
    Ok(db.total_changes() != before)
}

fn run_batch(db: &Connection, batch: &mut Jobs) -> rusqlite::Result<()> {
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
    use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

    use super::super::desk::CHECKPOINT_PAGES;
    use super::*;

    fn writer() -> Writer {
        let db = Connection::open_in_memory().unwrap();
        db.execute_batch("CREATE TABLE t (x INTEGER PRIMARY KEY); CREATE TABLE message_search (words); CREATE TABLE title_search (words)")
            .unwrap();
        Writer::at(Desk::unsynced(db).unwrap()).unwrap()
    }

    fn insert(x: i64) -> impl Fn(&Connection) -> Result<()> + Send + 'static {
        move |db| {
            db.execute("INSERT INTO t (x) VALUES (?1)", [x])?;
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

    fn on_file(folder: &tempfile::TempDir) -> Desk {
        let path = folder.path().join("log.db");
        let db = super::super::open::open(&path, super::super::Use::Command).unwrap().writer;
        db.execute_batch("CREATE TABLE t (x INTEGER PRIMARY KEY, y BLOB)").unwrap();
        Desk::new(db, &path).unwrap()
    }

    #[tokio::test]
    async fn what_must_survive_power_loss_is_answered_once_the_log_is_synced() {
        let folder = tempfile::tempdir().unwrap();
        let log = folder.path().join("log.db-wal");
        let (fails, syncs) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicUsize::new(0)));
        let (failing, counted) = (Arc::clone(&fails), Arc::clone(&syncs));
        let writer = Writer::at(on_file(&folder).with_sync(move |synced| {
            counted.fetch_add(1, Ordering::Relaxed);
            if failing.load(Ordering::Relaxed) { Err(std::io::Error::other("no")) } else { synced() }
        }));
        let writer = writer.unwrap();
        writer.write(Durability::Normal, insert(1)).await.unwrap();
        writer.write_small(insert(2)).await.unwrap();
        assert_eq!(syncs.load(Ordering::Relaxed), 0);
        writer.write(Durability::Full, insert(3)).await.unwrap();
        // Nothing was written, so there is nothing to sync.
        assert_eq!(writer.write(Durability::Full, |_| Ok(7)).await.unwrap(), 7);
        assert_eq!(syncs.load(Ordering::Relaxed), 1);
        fails.store(true, Ordering::Relaxed);
        let Err(StoreError::Unavailable(reason)) = writer.write(Durability::Full, insert(4)).await else {
            panic!("answered without a sync");
        };
        assert!(reason.contains("could not be synced: no"), "{reason}");
        // It is there all the same; who finds it is answered once it lasts, which the log is no witness for.
        assert!(log.metadata().unwrap().len() > 0);
        assert_eq!(writer.write(Durability::Full, |_| Ok(7)).await.unwrap(), 7);
        assert_eq!(log.metadata().unwrap().len(), 0);
        fails.store(false, Ordering::Relaxed);
        writer.write(Durability::Full, insert(5)).await.unwrap();
        assert!(log.metadata().unwrap().len() > 0);
        assert_eq!((count(&writer).await, syncs.load(Ordering::Relaxed)), (5, 3));
    }

    #[tokio::test]
    async fn what_is_in_doubt_keeps_the_next_write_from_beginning() {
        let folder = tempfile::tempdir().unwrap();
        let failing = |_: &dyn Fn() -> std::io::Result<()>| Err(std::io::Error::other("no"));
        let writer = Writer::at(on_file(&folder).with_sync(failing)).unwrap();
        // A reader that still needs the log.
        let reader = super::super::open::connect_existing(&folder.path().join("log.db")).unwrap();
        reader.execute_batch("BEGIN; SELECT count(*) FROM t").unwrap();
        writer.alone(|db| Ok(db.busy_timeout(Duration::ZERO)?)).await.unwrap();
        assert!(writer.write(Durability::Full, insert(1)).await.is_err());
        let Err(StoreError::Unavailable(reason)) = writer.write(Durability::Full, insert(2)).await else {
            panic!("answered in doubt");
        };
        assert!(reason.contains("could not be moved into the file"), "{reason}");
        assert_eq!(count(&writer).await, 1);
        reader.execute_batch("COMMIT").unwrap();
        assert_eq!(writer.write(Durability::Full, |_| Ok(7)).await.unwrap(), 7);
    }

    #[tokio::test]
    async fn the_connection_is_free_during_a_sync() {
        let folder = tempfile::tempdir().unwrap();
        let (release, held) = std::sync::mpsc::channel::<()>();
        let held = Mutex::new(held);
        let writer = Writer::at(on_file(&folder).with_sync(move |synced| {
            // For as long as somebody holds the other end.
            let _ = held.lock().unwrap().recv();
            synced()
        }));
        let writer = writer.unwrap();
        let meanwhile = async {
            while count(&writer).await == 0 {
                tokio::task::yield_now().await;
            }
            writer.write(Durability::Normal, insert(2)).await.unwrap();
            let place = |_: &Connection| Ok(std::thread::current().id());
            assert_eq!(writer.write_small(place).await.unwrap(), std::thread::current().id());
        };
        let meanwhile = async {
            let done = tokio::time::timeout(Duration::from_secs(20), meanwhile).await;
            drop(release);
            done
        };
        let (full, meanwhile) = tokio::join!(writer.write(Durability::Full, insert(1)), meanwhile);
        assert!(meanwhile.is_ok() && full.is_ok());
        assert_eq!(count(&writer).await, 2);
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
            while writer.desk.sit_if_free().is_some() {
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
        let writer = Writer::at(on_file(&folder)).unwrap();
        // Two of these fill the log.
        let fill = |db: &Connection| {
            for _ in 0..CHECKPOINT_PAGES / 2 {
                db.execute("INSERT INTO t (y) VALUES (zeroblob(4000))", [])?;
            }
            Ok(std::thread::current().id())
        };
        let size = |name: &str| folder.path().join(name).metadata().unwrap().len();
        let own = std::thread::current().id();
        let mut by = Vec::new();
        for _ in 0..6 {
            by.push(writer.write_small(fill).await.unwrap() == own);
            // The thread moves the log after its answer, before it lets go of the seat.
            writer.alone(|_| Ok(())).await.unwrap();
            drop(writer.desk.sit());
        }
        // What comes upon a full log is the thread's, and so is the commit after it was moved.
        assert_eq!(by, [true, true, false, true, false, true]);
        let log = 4096 * CHECKPOINT_PAGES as u64;
        let (file, log_file) = (size("log.db"), size("log.db-wal"));
        assert!(file > 5 * log / 2 && log_file < 5 * log / 4, "{file} {log_file}");
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
