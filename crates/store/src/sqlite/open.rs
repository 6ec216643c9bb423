//! Opening the file: folder, lock, pragmas, migrations. The only place that opens SQLite connections.

use std::fs::{self, File, TryLockError};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt, PermissionsExt};
use std::path::Path;
use std::time::{Duration, Instant};

use rusqlite::config::DbConfig;
use rusqlite::{Connection, ErrorCode, OpenFlags};

use crate::error::{Result, StoreError};

mod embedded {
    refinery::embed_migrations!("migrations/sqlite");
}

/// How many reads can be under way at once.
const READERS: usize = 8;

/// What the writer keeps of the file in memory. Readers start anew after every commit, so theirs stay small.
const WRITER_CACHE_KIB: i64 = 4 * 1024;
/// How long a write waits for that of another process, such as a command.
pub(super) const PATIENCE: Duration = Duration::from_secs(5);

/// What a process opens the file for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Use {
    /// To serve from it: one process at a time.
    Serve,
    /// For one command, beside a server that may be running.
    Command,
}

pub(super) struct Opened {
    pub(super) writer: Connection,
    pub(super) readers: Vec<Connection>,
    pub(super) lock: Option<File>,
}

pub(super) fn open(path: &Path, usage: Use) -> Result<Opened> {
    make_folder(path)?;
    let lock = (usage == Use::Serve).then(|| lock_for_serving(path)).transpose()?;
    let mut writer = connect(path, OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_CREATE)?;
    fs::set_permissions(path, fs::Permissions::from_mode(0o600)).map_err(|e| unusable(path, &e))?;
    // What is deleted is overwritten: a purge leaves nothing to be found in the file.
    writer.pragma_update(None, "secure_delete", true)?;
    migrate(path, &mut writer)?;
    writer.pragma_update(None, "cache_size", -WRITER_CACHE_KIB)?;
    let readers = (0..READERS)
        .map(|_| {
            let reader = connect(path, OpenFlags::SQLITE_OPEN_READ_WRITE)?;
            reader.pragma_update(None, "query_only", true)?;
            Ok(reader)
        })
        .collect::<Result<_>>()?;
    Ok(Opened { writer, readers, lock })
}

fn unusable(path: &Path, error: &dyn std::fmt::Display) -> StoreError {
    StoreError::Unavailable(format!("{}: {error}", path.display()))
}

fn make_folder(path: &Path) -> Result<()> {
    match path.parent() {
        Some(folder) if !folder.as_os_str().is_empty() => {
            fs::DirBuilder::new().recursive(true).mode(0o700).create(folder).map_err(|e| unusable(folder, &e))
        }
        _ => Ok(()),
    }
}

fn lock_file(path: &Path, suffix: &str) -> Result<File> {
    let mut name = path.as_os_str().to_owned();
    name.push(suffix);
    let mut options = File::options();
    options.create(true).truncate(false).write(true).mode(0o600).open(&name).map_err(|e| unusable(path, &e))
}

pub(super) fn lock_for_serving(path: &Path) -> Result<File> {
    let file = lock_file(path, ".lock")?;
    match file.try_lock() {
        Ok(()) => Ok(file),
        Err(TryLockError::WouldBlock) => Err(unusable(path, &"another Threadkeep is serving from this file")),
        Err(TryLockError::Error(error)) => Err(unusable(path, &error)),
    }
}

fn connect(path: &Path, flags: OpenFlags) -> Result<Connection> {
    let connection = Connection::open_with_flags(path, flags | OpenFlags::SQLITE_OPEN_NO_MUTEX)
        .map_err(|error| unusable(path, &error))?;
    connection.busy_timeout(PATIENCE)?;
    keep_a_log(&connection).map_err(|error| unusable(path, &error))?;
    connection.pragma_update(None, "foreign_keys", true)?;
    connection.pragma_update(None, "temp_store", "MEMORY")?;
    // A plan does not depend on what is bound, so a prepared statement is never prepared again for it.
    connection.set_db_config(DbConfig::SQLITE_DBCONFIG_ENABLE_QPSG, true)?;
    connection.set_prepared_statement_cache_capacity(128);
    Ok(connection)
}

/// WAL mode. SQLite itself waits for nobody who sets or ends it at this moment.
fn keep_a_log(connection: &Connection) -> rusqlite::Result<()> {
    let began = Instant::now();
    loop {
        match connection.pragma_update(None, "journal_mode", "WAL") {
            Err(error)
                if error.sqlite_error_code() == Some(ErrorCode::DatabaseBusy)
                    && began.elapsed() < PATIENCE =>
            {
                std::thread::sleep(Duration::from_millis(5));
            }
            done => return done,
        }
    }
}

/// The file as it is, beside whoever else has it.
pub(super) fn connect_existing(path: &Path) -> Result<Connection> {
    connect(path, OpenFlags::SQLITE_OPEN_READ_WRITE)
}

/// A copy that nobody writes to; nothing appears beside it.
pub(super) fn connect_read_only(path: &Path) -> Result<Connection> {
    let flags = OpenFlags::SQLITE_OPEN_READ_ONLY | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    Connection::open_with_flags(path, flags).map_err(|error| unusable(path, &error))
}

/// All pending migrations are one transaction: killed at any moment, the file has the old schema or
/// the new one. The lock file keeps two processes from starting at once.
fn migrate(path: &Path, writer: &mut Connection) -> Result<()> {
    let lock = lock_file(path, ".migrate")?;
    lock.lock().map_err(|e| unusable(path, &e))?;
    check_not_newer(writer)?;
    embedded::migrations::runner()
        .set_grouped(true)
        .run(writer)
        .map_err(|error| StoreError::Internal(format!("migrating {}: {error}", path.display())))?;
    Ok(())
}

pub(super) fn known_version() -> i32 {
    embedded::migrations::runner().get_migrations().iter().map(|m| m.version()).max().unwrap_or(0)
}

fn applied_version(db: &Connection) -> Result<Option<i32>> {
    let has_history: bool = db.query_row(
        "SELECT EXISTS (SELECT 1 FROM sqlite_schema WHERE name = 'refinery_schema_history')",
        [],
        |row| row.get(0),
    )?;
    if !has_history {
        return Ok(None);
    }
    Ok(db.query_row("SELECT max(version) FROM refinery_schema_history", [], |row| row.get(0))?)
}

fn check_not_newer(db: &Connection) -> Result<()> {
    match applied_version(db)? {
        Some(found) if found > known_version() => {
            Err(StoreError::NewerSchema { found, known: known_version() })
        }
        _ => Ok(()),
    }
}

/// A newer schema is fine for a process that runs already: migrations only add, and it is on its way out.
pub(super) fn check_schema(db: &Connection) -> Result<()> {
    match applied_version(db)? {
        Some(found) if found >= known_version() => Ok(()),
        found => Err(StoreError::Unavailable(format!("the schema is at version {found:?}"))),
    }
}

/// The version of a copy, which is not touched.
pub(super) fn copy_version(path: &Path) -> Result<Option<i32>> {
    applied_version(&connect_read_only(path)?)
}

pub(super) fn schema_version(path: &Path) -> Result<Option<i32>> {
    if !path.exists() {
        return Ok(None);
    }
    applied_version(&connect(path, OpenFlags::SQLITE_OPEN_READ_WRITE)?)
}

/// How SQLite goes about a statement, step by step.
#[cfg(test)]
pub(super) fn plan(text: &str, bound: impl rusqlite::Params) -> String {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("threadkeep.db");
    drop(super::SqliteStore::open(&path, super::Use::Command).unwrap());
    let db = connect_existing(&path).unwrap();
    let mut statement = db.prepare(&format!("EXPLAIN QUERY PLAN {text}")).unwrap();
    let steps = statement.query_map(bound, |row| row.get::<_, String>(3)).unwrap();
    steps.collect::<rusqlite::Result<Vec<_>>>().unwrap().join("\n")
}
