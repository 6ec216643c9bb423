//! The writing connection, for one at a time, and its log. Commits sync nothing: whoever has promised that a write
//! survives power loss syncs the log after it, and needs no connection for that.

use std::fs::File;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicI32, AtomicUsize, Ordering};

// Hands the seat on to who waits for it: with the standard library's, whoever comes back first gets it.
use parking_lot::{Mutex, MutexGuard};
use rusqlite::Connection;
use rusqlite::hooks::Wal;

use crate::error::{Result, StoreError};

/// The log grows to 16 MiB before it goes into the file: hot pages are then written there once for many commits.
pub(super) const CHECKPOINT_PAGES: i32 = 4096;
/// In the place of the log's pages: all were moved, and the next commit begins it anew, which syncs.
const MOVED: i32 = i32::MAX;

/// Whatever was written to the log before lasts after.
type Sync = Box<dyn Fn() -> std::io::Result<()> + Send + std::marker::Sync>;

pub(super) struct Desk {
    /// None once closed.
    seat: Mutex<Option<Connection>>,
    /// Who waits for the seat: those that only look whether it is free let them go first.
    awaited: AtomicUsize,
    /// The pages in the log after the newest commit.
    logged: Arc<AtomicI32>,
    sync: Sync,
    /// A sync of the log has failed. The kernel may have given up the pages in question, and will not say so again: the
    /// log is to be trusted only after all of it has gone into the file.
    doubted: AtomicBool,
}

impl Desk {
    /// The connection to the file at a path.
    pub(super) fn new(db: Connection, path: &Path) -> Result<Self> {
        let unusable = |error| StoreError::Unavailable(format!("{}: {error}", path.display()));
        // Beside the file itself, wherever a link to it lies.
        let mut name = path.canonicalize().map_err(unusable)?.into_os_string();
        name.push("-wal");
        // Held for good: the log stays the same file while a connection is open, an error of the disk is told to those
        // who had it open, and there may be no file left to open one day.
        let log = File::open(name).map_err(unusable)?;
        Self::with(db, Box::new(move || log.sync_data()))
    }

    fn with(mut db: Connection, sync: Sync) -> Result<Self> {
        // Syncs the log before it is moved into the file, and the file after; not with every commit.
        db.execute_batch("PRAGMA synchronous = NORMAL")?;
        let logged = Arc::new(AtomicI32::new(0));
        let newest = Arc::clone(&logged);
        // In the place of SQLite's own checkpoints: those come within a commit, on whichever thread.
        db.wal_hook(Some(move |_: &mut Wal, pages| {
            newest.store(pages, Ordering::Relaxed);
            Ok(())
        }))?;
        let (awaited, doubted) = (AtomicUsize::new(0), AtomicBool::new(false));
        Ok(Self { seat: Mutex::new(Some(db)), awaited, logged, sync, doubted })
    }

    pub(super) fn sit(&self) -> MutexGuard<'_, Option<Connection>> {
        self.awaited.fetch_add(1, Ordering::Relaxed);
        let seat = self.seat.lock();
        self.awaited.fetch_sub(1, Ordering::Relaxed);
        seat
    }

    /// For who must not wait: not for another, and not for the disk.
    pub(super) fn sit_if_free(&self) -> Option<MutexGuard<'_, Option<Connection>>> {
        let waits = self.awaited.load(Ordering::Relaxed) > 0 || self.logged() >= CHECKPOINT_PAGES;
        if waits { None } else { self.seat.try_lock() }
    }

    fn logged(&self) -> i32 {
        self.logged.load(Ordering::Relaxed)
    }

    pub(super) fn is_checkpoint_due(&self) -> bool {
        (CHECKPOINT_PAGES..MOVED).contains(&self.logged())
    }

    /// Moves the log into the file when it has grown. What readers still need of it, or what fails, stays for the next
    /// time.
    pub(super) fn checkpoint(&self, db: &Connection) {
        if self.is_checkpoint_due() {
            match db.query_row("PRAGMA wal_checkpoint(PASSIVE)", [], |_| Ok(())) {
                Ok(()) => self.logged.store(MOVED, Ordering::Relaxed),
                Err(error) => tracing::debug!(%error, "the log could not be moved into the file"),
            }
        }
    }

    /// Whatever was committed before survives power loss after. Needs no seat: SQLite reuses the log only when all of
    /// it is in the file and synced there.
    pub(super) fn sync(&self) -> std::result::Result<(), String> {
        (self.sync)().map_err(|error| {
            self.doubted.store(true, Ordering::Relaxed);
            tracing::error!(%error, "the log could not be synced");
            format!("the write could not be synced: {error}")
        })
    }

    /// Where a sync has failed, moves all of the log into the file.
    pub(super) fn settle_doubt(&self) -> std::result::Result<(), String> {
        if !self.doubted.load(Ordering::Relaxed) {
            return Ok(());
        }
        let seat = self.sit();
        let move_all = |db: &Connection| {
            db.query_row("PRAGMA wal_checkpoint(TRUNCATE)", [], |row| row.get::<_, bool>(0))
        };
        match seat.as_ref().map(move_all) {
            Some(Ok(false)) => {
                self.doubted.store(false, Ordering::Relaxed);
                Ok(())
            }
            Some(Ok(true)) => Err("the log could not be moved into the file: a reader needs it".into()),
            Some(Err(error)) => Err(format!("the log could not be moved into the file: {error}")),
            None => Err("the store is closed".into()),
        }
    }
}

#[cfg(test)]
impl Desk {
    /// In memory there is nothing to sync.
    pub(super) fn unsynced(db: Connection) -> Result<Self> {
        Self::with(db, Box::new(|| Ok(())))
    }

    /// Syncs by what is given, which gets the way it was done before.
    pub(super) fn with_sync(
        mut self,
        sync: impl Fn(&dyn Fn() -> std::io::Result<()>) -> std::io::Result<()>
        + Send
        + std::marker::Sync
        + 'static,
    ) -> Self {
        let before = std::mem::replace(&mut self.sync, Box::new(|| Ok(())));
        self.sync = Box::new(move || sync(&*before));
        self
    }
}
