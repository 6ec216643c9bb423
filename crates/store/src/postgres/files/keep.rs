//! What makes reserved files visible.

use std::collections::HashMap;

use domain::file::{Bag, File};
use domain::scope::Scope;
use jiff::Timestamp;
use uuid::Uuid;

use super::bag::{check_room, in_bag, lock_bag, owner};
use super::{COLUMNS, read_all, size};
use crate::error::{Result, StoreError};
use crate::files::Stored;
use crate::postgres::transaction::Transaction;

pub(super) async fn keep(
    tx: &Transaction,
    scope: &Scope,
    bag: Bag,
    stored: &[Stored],
    max_bag_bytes: u64,
    now: Timestamp,
) -> Result<Vec<File>> {
    lock_bag(tx, scope, bag).await?.ok_or(StoreError::NotFound)?;
    keep_in(tx, scope, bag, None, stored, (max_bag_bytes, now)).await
}

/// Makes reserved files of a bag that is locked visible; `run` is the one whose sandbox sent them.
pub(in crate::postgres) async fn keep_in(
    tx: &Transaction,
    scope: &Scope,
    bag: Bag,
    run: Option<Uuid>,
    stored: &[Stored],
    (max_bag_bytes, now): (u64, Timestamp),
) -> Result<Vec<File>> {
    let text = format!(
        "UPDATE files f SET kept = true, created_at = $3, run_id = $4, expires_at = NULL, size = s.size, \
         sha256 = s.sha256, crc32 = s.crc32, mime_type = s.mime_type \
         FROM unnest($5::uuid[], $6::bigint[], $7::bytea[], $8::bigint[], $9::text[]) \
             AS s (id, size, sha256, crc32, mime_type) \
         WHERE {} AND {} AND f.id = s.id AND NOT f.kept AND f.deleted_at IS NULL RETURNING {COLUMNS}",
        tx.inside("f.workspace_id"),
        in_bag(bag)
    );
    let rows = tx
        .rows(
            &text,
            &[
                &scope.workspace,
                &owner(bag),
                &now,
                &run,
                &stored.iter().map(|file| file.id).collect::<Vec<_>>(),
                &stored.iter().map(|file| size(file.digest.size)).collect::<Result<Vec<_>>>()?,
                &stored.iter().map(|file| &file.digest.sha256[..]).collect::<Vec<_>>(),
                &stored.iter().map(|file| i64::from(file.digest.crc32)).collect::<Vec<_>>(),
                &stored.iter().map(|file| &*file.mime_type).collect::<Vec<_>>(),
            ],
        )
        .await?;
    check_room(tx, scope, bag, max_bag_bytes).await?;
    let mut files: HashMap<Uuid, File> = read_all(&rows)?.into_iter().map(|file| (file.id, file)).collect();
    stored.iter().map(|asked| files.remove(&asked.id).ok_or(StoreError::NotFound)).collect()
}
