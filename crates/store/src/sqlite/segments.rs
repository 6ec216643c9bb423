//! Segments: the stretches that a thread is made of, one of each branch that it has messages from. Read from the newest
//! on, so that no more of a thread is come upon than is asked for.

use domain::scope::Scope;
use rusqlite::{Connection, params};
use uuid::Uuid;

use crate::error::Result;

/// A stretch of a thread: messages of `branch` with `after < seq <= through`. Those before it are its parent's.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Segment {
    pub(super) branch: i64,
    pub(super) through: i64,
    pub(super) after: i64,
    parent: Option<i64>,
}

impl Segment {
    /// Whether a message is in it that stands on this branch under this number.
    pub(super) fn holds(self, branch: i64, seq: i64) -> bool {
        self.branch == branch && seq <= self.through
    }

    /// The one that the thread has before this one.
    pub(super) fn older(self, db: &Connection, scope: &Scope, conversation: Uuid) -> Result<Option<Self>> {
        let Some(parent) = self.parent else { return Ok(None) };
        ending(db, scope, conversation, (parent, self.through.min(self.after))).map(Some)
    }
}

/// The newest segment of a branch's thread, which is its own, though there may be nothing on it yet.
pub(super) fn newest(db: &Connection, scope: &Scope, conversation: Uuid, branch: i64) -> Result<Segment> {
    segment(db, scope, conversation, (branch, i64::MAX))
}

/// The newest segment of a branch's thread through a number.
pub(super) fn ending(db: &Connection, scope: &Scope, conversation: Uuid, end: (i64, i64)) -> Result<Segment> {
    let mut found = segment(db, scope, conversation, end)?;
    // Of an edit that was edited nothing may be left: its own messages begin after its fork.
    while let Some(parent) = found.parent.filter(|_| found.through <= found.after) {
        found = segment(db, scope, conversation, (parent, found.through))?;
    }
    Ok(found)
}

fn segment(
    db: &Connection,
    scope: &Scope,
    conversation: Uuid,
    (branch, through): (i64, i64),
) -> Result<Segment> {
    if branch == 0 {
        return Ok(Segment { branch, through, after: 0, parent: None });
    }
    Ok(db
        .prepare_cached(
            "SELECT parent, fork_seq FROM branches WHERE workspace_id = ?1 AND conversation_id = ?2 AND branch = ?3",
        )?
        .query_row(params![scope.workspace, conversation, branch], |row| {
            Ok(Segment { branch, through, parent: Some(row.get(0)?), after: row.get(1)? })
        })?)
}
