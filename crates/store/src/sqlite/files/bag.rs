//! Bags: who may see one, what lies in it, how much it may hold.

use domain::file::Bag;
use domain::scope::Scope;
use rusqlite::{Connection, params};
use uuid::Uuid;

use super::read_size;
use crate::error::{Result, StoreError};
use crate::sqlite::{conversations, executions, workspaces};

/// The index of a bag's files by id.
pub(super) fn index(bag: Bag) -> &'static str {
    match bag {
        Bag::Conversation(_) => "idx_files_bag",
        Bag::Execution(_) => "idx_files_execution",
        Bag::Workspace => "idx_files_workspace",
    }
}

/// The condition that a file lies in a bag, whose id is `?2`.
pub(super) fn inside(bag: Bag) -> (&'static str, Option<Uuid>) {
    match bag {
        Bag::Conversation(id) => ("conversation_id = ?2", Some(id)),
        Bag::Execution(id) => ("execution_id = ?2", Some(id)),
        Bag::Workspace => ("conversation_id IS NULL AND execution_id IS NULL AND ?2 IS NULL", None),
    }
}

/// `NotFound` unless the bag is there for the scope.
pub(super) fn check_bag(db: &Connection, scope: &Scope, bag: Bag) -> Result<()> {
    match bag {
        Bag::Conversation(id) => {
            conversations::find(db, scope, id, false, false)?.map(drop).ok_or(StoreError::NotFound)
        }
        Bag::Execution(id) => executions::check(db, scope, id),
        Bag::Workspace => workspaces::find(db, scope)?.map(drop).ok_or(StoreError::NotFound),
    }
}

/// What is there, what is promised and what is under way must fit.
pub(super) fn check_fits(db: &Connection, workspace: Uuid, bag: Bag, limit: u64) -> Result<()> {
    let ((inside, id), index) = (inside(bag), index(bag));
    let text = format!(
        "SELECT coalesce(sum(size), 0) FROM files INDEXED BY {index} \
         WHERE workspace_id = ?1 AND {inside} AND deleted_at IS NULL"
    );
    let size = db.prepare_cached(&text)?.query_row(params![workspace, id], |row| read_size(row, 0))?;
    if size > limit { Err(StoreError::BagFull { limit }) } else { Ok(()) }
}
