//! A copy of the file while others write to it, and what a copy says about the bytes that belong to it.

use std::path::Path;

use rusqlite::{Connection, params};
use uuid::Uuid;

use super::open;
use crate::backup::KeptFile;
use crate::error::Result;

/// Writes the file as it is at one moment to a path that is free. Writers are not held up.
pub(super) fn copy_to(path: &Path, to: &Path) -> Result<()> {
    let db = open::connect_existing(path)?;
    // The copy can be as large as the file: not in memory.
    db.execute_batch("PRAGMA temp_store = FILE")?;
    db.execute("VACUUM INTO ?1", [to.to_string_lossy()])?;
    Ok(())
}

/// The bytes that the rows of a copy name, by their place, after one of them.
pub(super) fn list_kept(copy: &Path, after: Option<(Uuid, Uuid)>, limit: usize) -> Result<Vec<KeptFile>> {
    let db = open::connect_read_only(copy)?;
    let (workspace, id) = after.unwrap_or((Uuid::nil(), Uuid::nil()));
    let mut statement = db.prepare(
        "SELECT workspace_id, id, storage_key, size, sha256, deleted_at IS NOT NULL FROM files \
         WHERE kept = 1 AND (workspace_id, id) > (?1, ?2) ORDER BY workspace_id, id LIMIT ?3",
    )?;
    let rows = statement.query_map(params![workspace, id, limit as i64], |row| {
        Ok(KeptFile {
            place: (row.get(0)?, row.get(1)?),
            key: row.get(2)?,
            size: row.get::<_, i64>(3)?.cast_unsigned(),
            sha256: row.get(4)?,
            deleted: row.get(5)?,
        })
    })?;
    Ok(rows.collect::<rusqlite::Result<_>>()?)
}

/// How many files there are in a copy, and their bytes.
pub(super) fn count_kept(copy: &Path) -> Result<(u64, u64)> {
    let db: Connection = open::connect_read_only(copy)?;
    let text = "SELECT count(*), coalesce(sum(size), 0) FROM files WHERE kept = 1";
    Ok(db.query_row(text, [], |row| {
        Ok((row.get::<_, i64>(0)?.cast_unsigned(), row.get::<_, i64>(1)?.cast_unsigned()))
    })?)
}
