//! Names taken in a bag before their bytes are there, and the promises some of them carry.

use domain::file::{Bag, name_key, numbered};
use domain::scope::Scope;
use domain::time::from_ms;
use jiff::Timestamp;
use rusqlite::{Connection, OptionalExtension, params};
use uuid::Uuid;

use super::bag::{check_bag, check_fits, inside};
use super::{read_size, read_source};
use crate::error::{Result, StoreError};
use crate::files::{NewFile, Promised, Reserved};
use crate::sqlite::{executions, is_taken, workspaces};

pub(super) fn reserve(
    db: &Connection,
    scope: &Scope,
    bag: Bag,
    new: &[NewFile],
    max_bag_bytes: u64,
    now: Timestamp,
) -> Result<Vec<Reserved>> {
    match bag {
        // Its files are there before it is.
        Bag::Execution(id) if !executions::exists(db, scope, id)? => {
            workspaces::find(db, scope)?.ok_or(StoreError::NotFound)?;
        }
        _ => check_bag(db, scope, bag)?,
    }
    let reserved = new.iter().map(|file| reserve_one(db, scope, bag, file, now)).collect::<Result<_>>()?;
    check_fits(db, scope.workspace, bag, max_bag_bytes)?;
    Ok(reserved)
}

fn reserve_one(db: &Connection, scope: &Scope, bag: Bag, file: &NewFile, now: Timestamp) -> Result<Reserved> {
    let name = free_name(db, scope.workspace, bag, &file.name)?;
    let storage_key = bag.storage_key(scope.workspace, &name);
    let (conversation, execution) = match bag {
        Bag::Conversation(id) => (Some(id), None),
        Bag::Execution(id) => (None, Some(id)),
        Bag::Workspace => (None, None),
    };
    let promised = file.promised.as_ref();
    db.prepare_cached(
        "INSERT INTO files (workspace_id, id, conversation_id, execution_id, name, name_key, mime_type, size, sha256, \
         storage_key, source, created_at, kept, reserved_at, expires_at, user_id) \
         VALUES (?1, ?2, ?3, ?4, ?5, ?6, '', ?7, ?8, ?9, ?10, ?11, 0, ?11, ?12, ?13)",
    )?
    .execute(params![
        scope.workspace,
        file.id,
        conversation,
        execution,
        name,
        name_key(&name),
        promised.map_or(0, |promised| promised.size.cast_signed()),
        promised.map_or(&[][..], |promised| &promised.sha256),
        storage_key,
        file.source.as_str(),
        now.as_millisecond(),
        promised.map(|promised| promised.expires_at.as_millisecond()),
        scope.user,
    ])
    .map_err(|error| if is_taken(&error) { StoreError::Taken("file") } else { error.into() })?;
    let promised = file.promised.clone();
    Ok(Reserved { id: file.id, name, storage_key, source: file.source, promised })
}

/// The name, or with the first free number: found by doubling and halving, so that a bag full of one name stays cheap.
fn free_name(db: &Connection, workspace: Uuid, bag: Bag, name: &str) -> Result<String> {
    let (inside, id) = inside(bag);
    let text = format!("SELECT 1 FROM files WHERE workspace_id = ?1 AND {inside} AND name_key = ?3");
    let mut statement = db.prepare_cached(&text)?;
    let mut taken = |name: &str| statement.exists(params![workspace, id, name_key(name)]);
    if !taken(name)? {
        return Ok(name.to_owned());
    }
    let (mut low, mut high) = (0, 1);
    while taken(&numbered(name, high))? {
        (low, high) = (high, high * 2);
    }
    while high - low > 1 {
        let middle = low + (high - low) / 2;
        if taken(&numbered(name, middle))? {
            low = middle;
        } else {
            high = middle;
        }
    }
    Ok(numbered(name, high))
}

pub(super) fn get_reserved(db: &Connection, scope: &Scope, bag: Bag, id: Uuid) -> Result<Reserved> {
    check_bag(db, scope, bag)?;
    let (inside, bag_id) = inside(bag);
    let text = format!(
        "SELECT name, storage_key, source, size, sha256, expires_at FROM files \
         WHERE workspace_id = ?1 AND {inside} AND id = ?3 AND kept = 0 AND deleted_at IS NULL"
    );
    db.prepare_cached(&text)?
        .query_row(params![scope.workspace, bag_id, id], |row| {
            let promised = match row.get::<_, Option<i64>>(5)? {
                None => None,
                Some(expires_at) => Some(Promised {
                    size: read_size(row, 3)?,
                    sha256: row.get(4)?,
                    expires_at: from_ms(expires_at),
                }),
            };
            let (name, storage_key) = (row.get(0)?, row.get(1)?);
            Ok(Reserved { id, name, storage_key, source: read_source(row, 2)?, promised })
        })
        .optional()?
        .ok_or(StoreError::NotFound)
}

pub(super) fn is_promised(db: &Connection, workspace: Uuid, id: Uuid) -> Result<bool> {
    let mut statement = db.prepare_cached(
        "SELECT 1 FROM files f JOIN chat_conversations c \
         ON c.workspace_id = f.workspace_id AND c.id = f.conversation_id \
         WHERE f.workspace_id = ?1 AND f.id = ?2 AND f.kept = 0 AND f.deleted_at IS NULL \
         AND f.expires_at IS NOT NULL AND c.deleted_at IS NULL",
    )?;
    Ok(statement.exists(params![workspace, id])?)
}

pub(super) fn claim_promised(
    db: &Connection,
    scope: &Scope,
    bag: Bag,
    id: Uuid,
    now: Timestamp,
) -> Result<Reserved> {
    let reserved = get_reserved(db, scope, bag, id)?;
    if reserved.promised.as_ref().is_none_or(|promised| promised.expires_at <= now) {
        return Err(StoreError::NotFound);
    }
    db.prepare_cached(
        "UPDATE files SET expires_at = NULL, reserved_at = ?3 WHERE workspace_id = ?1 AND id = ?2",
    )?
    .execute(params![scope.workspace, id, now.as_millisecond()])?;
    Ok(reserved)
}
