//! Names taken in a bag before their bytes are there, and the promises some of them carry.

use std::collections::HashSet;

use domain::file::{Bag, FileSource, name_key, numbered};
use domain::scope::Scope;
use jiff::Timestamp;
use tokio_postgres::Row;
use uuid::Uuid;

use super::bag::{check_room, in_bag, lock_bag, owner, seen};
use super::size;
use crate::error::{Result, StoreError};
use crate::files::{NewFile, Promised, Reserved};
use crate::list::Dialect;
use crate::postgres::conversations::bad_column;
use crate::postgres::transaction::{Transaction, inside, params};

/// A name for each file that no file of the bag has, asked for many numbers at a time.
async fn free_names(tx: &Transaction, scope: &Scope, bag: Bag, new: &[NewFile]) -> Result<Vec<String>> {
    let text = format!(
        "SELECT f.name_key FROM files f WHERE {} AND {} AND f.name_key = ANY($3)",
        tx.inside("f.workspace_id"),
        in_bag(bag)
    );
    let numbered = |file: &NewFile, n| if n == 0 { file.name.clone() } else { numbered(&file.name, n) };
    let (mut names, mut chosen) = (vec![None; new.len()], HashSet::new());
    let mut numbers = 0..8_u32;
    loop {
        let open = names.iter().zip(new).filter(|(name, _)| name.is_none());
        let keys: Vec<String> =
            open.flat_map(|(_, file)| numbers.clone().map(move |n| name_key(&numbered(file, n)))).collect();
        if keys.is_empty() {
            return Ok(names.into_iter().flatten().collect());
        }
        let rows = tx.rows(&text, &[&scope.workspace, &owner(bag), &keys]).await?;
        let taken = rows.iter().map(|row| Ok(row.try_get(0)?)).collect::<Result<HashSet<String>>>()?;
        for (name, file) in names.iter_mut().zip(new).filter(|(name, _)| name.is_none()) {
            *name = numbers.clone().map(|n| numbered(file, n)).find(|name| {
                let key = name_key(name);
                !taken.contains(&key) && chosen.insert(key)
            });
        }
        let end = numbers.end.checked_mul(2).ok_or(StoreError::Taken("name"))?;
        numbers = numbers.end..end;
    }
}

pub(super) async fn reserve(
    tx: &Transaction,
    scope: &Scope,
    bag: Bag,
    new: &[NewFile],
    max_bag_bytes: u64,
    now: Timestamp,
) -> Result<Vec<Reserved>> {
    let user = lock_bag(tx, scope, bag).await?.unwrap_or_else(|| scope.user.clone());
    let names = free_names(tx, scope, bag, new).await?;
    let reserved: Vec<Reserved> = new
        .iter()
        .zip(names)
        .map(|(file, name)| Reserved {
            id: file.id,
            storage_key: bag.storage_key(scope.workspace, &name),
            name,
            source: file.source,
            promised: file.promised.clone(),
        })
        .collect();
    insert_reserved(tx, scope, bag, &reserved, (&user, now)).await?;
    check_room(tx, scope, bag, max_bag_bytes).await?;
    Ok(reserved)
}

async fn insert_reserved(
    tx: &Transaction,
    scope: &Scope,
    bag: Bag,
    reserved: &[Reserved],
    (user, now): (&str, Timestamp),
) -> Result<()> {
    let (conversation, execution) = match bag {
        Bag::Conversation(id) => (Some(id), None),
        Bag::Execution(id) => (None, Some(id)),
        Bag::Workspace => (None, None),
    };
    let promised = || reserved.iter().map(|file| file.promised.as_ref());
    let sizes = promised().map(|promised| size(promised.map_or(0, |promised| promised.size)));
    tx.insert(
        "file",
        "INSERT INTO files (workspace_id, conversation_id, execution_id, user_id, created_at, reserved_at, kept, \
         mime_type, id, name, name_key, storage_key, source, size, sha256, expires_at) \
         SELECT $1::uuid, $2::uuid, $3::uuid, $4::text, $5::timestamptz, $5, false, '', n.* \
         FROM unnest($6::uuid[], $7::text[], $8::text[], $9::text[], $10::text[], $11::bigint[], $12::bytea[], \
         $13::timestamptz[]) AS n",
        &[
            &scope.workspace,
            &conversation,
            &execution,
            &user,
            &now,
            &reserved.iter().map(|file| file.id).collect::<Vec<_>>(),
            &reserved.iter().map(|file| &*file.name).collect::<Vec<_>>(),
            &reserved.iter().map(|file| name_key(&file.name)).collect::<Vec<_>>(),
            &reserved.iter().map(|file| &*file.storage_key).collect::<Vec<_>>(),
            &reserved.iter().map(|file| file.source.as_str()).collect::<Vec<_>>(),
            &sizes.collect::<Result<Vec<_>>>()?,
            &promised().map(|promised| promised.map_or(&[][..], |of| &of.sha256)).collect::<Vec<_>>(),
            &promised().map(|promised| promised.map(|of| of.expires_at)).collect::<Vec<_>>(),
        ],
    )
    .await
}

/// The reservation `$3` of a bag.
pub(super) fn reservation(dialect: Dialect, bag: Bag) -> String {
    format!(
        "SELECT f.id, f.name, f.storage_key, f.source, f.size, f.sha256, f.expires_at FROM files f \
         WHERE {} AND {} AND f.id = $3 AND NOT f.kept AND f.deleted_at IS NULL",
        inside(dialect, "f.workspace_id"),
        in_bag(bag)
    )
}

/// Takes the promise away, under the row's lock, so that one caller alone is given it.
pub(super) async fn claim_promised(
    tx: &Transaction,
    scope: &Scope,
    bag: Bag,
    id: Uuid,
    now: Timestamp,
) -> Result<Reserved> {
    let seen = seen(tx.dialect, scope, bag);
    tx.row(&seen.text, &params(&seen)).await?.ok_or(StoreError::NotFound)?;
    let text = format!("{} AND f.expires_at > $4 FOR UPDATE OF f", reservation(tx.dialect, bag));
    let row = tx.row(&text, &[&scope.workspace, &owner(bag), &id, &now]).await?;
    let claimed = read_reserved(&row.ok_or(StoreError::NotFound)?)?;
    // From now on it is as old as its completion, to the sweep.
    let text = format!(
        "UPDATE files SET expires_at = NULL, reserved_at = $3 WHERE {} AND id = $2",
        tx.inside("workspace_id")
    );
    tx.execute(&text, &[&scope.workspace, &id, &now]).await?;
    Ok(claimed)
}

pub(super) fn read_reserved(row: &Row) -> Result<Reserved> {
    let (size, sha256): (i64, &[u8]) = (row.try_get(4)?, row.try_get(5)?);
    let promised = match row.try_get(6)? {
        None => None,
        Some(expires_at) => Some(Promised {
            size: size.unsigned_abs(),
            sha256: sha256.try_into().map_err(|_| bad_column(5))?,
            expires_at,
        }),
    };
    Ok(Reserved {
        id: row.try_get(0)?,
        name: row.try_get(1)?,
        storage_key: row.try_get(2)?,
        source: FileSource::parse(row.try_get(3)?).ok_or_else(|| bad_column(3))?,
        promised,
    })
}
