//! What makes reserved files visible.

use domain::file::{Bag, File};
use domain::scope::Scope;
use jiff::Timestamp;
use rusqlite::{Connection, OptionalExtension, params};
use uuid::Uuid;

use super::bag::{check_bag, check_fits, inside};
use super::{COLUMNS, read};
use crate::error::{Result, StoreError};
use crate::files::Stored;

pub(super) fn keep(
    db: &Connection,
    scope: &Scope,
    bag: Bag,
    stored: &[Stored],
    max_bag_bytes: u64,
    now: Timestamp,
) -> Result<Vec<File>> {
    check_bag(db, scope, bag)?;
    keep_in(db, scope.workspace, (bag, None), stored, max_bag_bytes, now)
}

/// Makes reserved files of a bag visible; `run` is the one whose sandbox sent them.
pub(in crate::sqlite) fn keep_in(
    db: &Connection,
    workspace: Uuid,
    (bag, run): (Bag, Option<Uuid>),
    stored: &[Stored],
    max_bag_bytes: u64,
    now: Timestamp,
) -> Result<Vec<File>> {
    let (inside, bag_id) = inside(bag);
    let text = format!(
        "UPDATE files SET kept = 1, expires_at = NULL, size = ?4, sha256 = ?5, crc32 = ?6, mime_type = ?7, \
         created_at = ?8, run_id = ?9 \
         WHERE workspace_id = ?1 AND {inside} AND id = ?3 AND kept = 0 AND deleted_at IS NULL RETURNING {COLUMNS}"
    );
    let mut statement = db.prepare_cached(&text)?;
    let mut keep_one = |Stored { id, digest, mime_type }: &Stored| {
        let (size, sha256, crc32, at) =
            (digest.size.cast_signed(), digest.sha256, digest.crc32, now.as_millisecond());
        let values = params![workspace, bag_id, id, size, sha256, crc32, mime_type, at, run];
        statement.query_row(values, read).optional()?.ok_or(StoreError::NotFound)
    };
    let files = stored.iter().map(&mut keep_one).collect::<Result<_>>()?;
    check_fits(db, workspace, bag, max_bag_bytes)?;
    Ok(files)
}
