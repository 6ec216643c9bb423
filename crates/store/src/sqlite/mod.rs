//! The embedded backend: one SQLite file, one writing connection, readers apart.

mod agents;
mod approvals;
mod archive;
mod archive_runs;
mod audit;
mod backup;
mod branches;
mod clients;
mod conversations;
mod desk;
mod executions;
mod files;
mod fork_files;
mod forks;
mod keys;
mod leases;
mod log;
mod members;
mod messages;
mod open;
mod pages;
mod purge;
mod purge_parts;
mod readers;
mod rows;
mod run_files;
mod runs;
mod search;
mod segments;
mod tables;
mod tool_servers;
mod turns;
mod usage;
mod workspaces;
mod writer;

use std::path::Path;

use async_trait::async_trait;
use uuid::Uuid;

pub use self::open::Use;
use self::readers::Readers;
use self::writer::Writer;
use crate::backup::KeptFile;
use crate::error::{Result, StoreError};
use crate::store::Store;

pub struct SqliteStore {
    writer: Writer,
    readers: Readers,
    /// Held for as long as this process serves from the file.
    _lock: Option<std::fs::File>,
}

impl SqliteStore {
    /// Opens the file, making it and its folder where missing, and brings its schema up to date.
    pub fn open(path: &Path, usage: Use) -> Result<Self> {
        let opened = open::open(path, usage)?;
        Ok(Self {
            writer: Writer::start(opened.writer, path)?,
            readers: Readers::new(opened.readers),
            _lock: opened.lock,
        })
    }

    /// The schema version that this binary knows; PostgreSQL's has the same number.
    pub fn known_version() -> i32 {
        open::known_version()
    }

    /// Writes the file as it is at one moment to a path that is free, while others write to it. Not synced.
    pub fn copy_to(path: &Path, to: &Path) -> Result<()> {
        backup::copy_to(path, to)
    }

    /// What a copy says about the bytes that belong to it, by place, after one of them.
    pub fn list_kept(copy: &Path, after: Option<(Uuid, Uuid)>, limit: usize) -> Result<Vec<KeptFile>> {
        backup::list_kept(copy, after, limit)
    }

    /// How many files a copy knows, and their bytes.
    pub fn count_kept(copy: &Path) -> Result<(u64, u64)> {
        backup::count_kept(copy)
    }

    /// The schema version of a copy, which is not touched.
    pub fn copy_version(copy: &Path) -> Result<Option<i32>> {
        open::copy_version(copy)
    }

    /// Keeps servers from the file, which need not be there, for as long as the value lives.
    pub fn keep_servers_out(path: &Path) -> Result<std::fs::File> {
        open::lock_for_serving(path)
    }

    /// The schema version of the file, without changing it; `None` for a file without a schema.
    pub fn schema_version(path: &Path) -> Result<Option<i32>> {
        open::schema_version(path)
    }
}

impl From<rusqlite::Error> for StoreError {
    fn from(error: rusqlite::Error) -> Self {
        use rusqlite::ErrorCode::{
            CannotOpen, DatabaseBusy, DatabaseLocked, DiskFull, ReadOnly, SystemIoFailure,
        };
        match error.sqlite_error_code() {
            Some(DiskFull | SystemIoFailure | DatabaseBusy | DatabaseLocked | CannotOpen | ReadOnly) => {
                Self::Unavailable(error.to_string())
            }
            _ => Self::Internal(error.to_string()),
        }
    }
}

/// Whether an insert met a row that is already there.
fn is_taken(error: &rusqlite::Error) -> bool {
    matches!(
        error.sqlite_error().map(|e| e.extended_code),
        Some(rusqlite::ffi::SQLITE_CONSTRAINT_UNIQUE | rusqlite::ffi::SQLITE_CONSTRAINT_PRIMARYKEY)
    )
}

#[async_trait]
impl Store for SqliteStore {
    async fn ping(&self) -> Result<()> {
        self.readers.read(open::check_schema).await
    }

    async fn close(&self) {
        self.writer.close().await;
    }
}
