//! How a run comes under way: the user's message is put into the thread, the log is begun.

use std::sync::{Mutex, PoisonError};

use domain::conversation::Conversation;
use domain::run::{Lease, Run, StartTurn};
use domain::scope::Scope;
use rusqlite::{Connection, OptionalExtension, params};
use uuid::Uuid;

use super::append;
use crate::error::{Result, StoreError};
use crate::sqlite::leases::NOW_MS;
use crate::sqlite::search::{self, Indexed};
use crate::sqlite::{agents, branches, conversations, messages, run_files, runs};
use crate::turns::{
    Batch, Held, QueueStart, Waiting, note_turn, own_scope, parse_json, thread_opening, user_message,
};

/// The thread of a turn. One that the turn makes has no row yet.
pub(super) struct Thread {
    pub(super) conversation: Conversation,
    pub(super) row: Option<i64>,
}

pub(super) fn start_queued(
    db: &Connection,
    waiting: &Waiting,
    start: &QueueStart,
    tried: &Mutex<Option<Uuid>>,
) -> Result<Option<(Run, Lease, Batch)>> {
    let Waiting { workspace, conversation } = *waiting;
    let next: Option<(Uuid, Option<Uuid>, String)> = db
        .prepare_cached(
            "SELECT id, message_id, request FROM runs \
             WHERE workspace_id = ?1 AND conversation_id = ?2 AND status = 'queued' AND NOT EXISTS ( \
                 SELECT 1 FROM runs o WHERE o.workspace_id = ?1 AND o.conversation_id = ?2 AND o.status = 'running') \
             ORDER BY queue_position LIMIT 1",
        )?
        .query_row(params![workspace, conversation], |row| Ok((row.get(0)?, row.get(1)?, row.get(2)?)))
        .optional()?;
    let Some((run, message, request)) = next else { return Ok(None) };
    *tried.lock().unwrap_or_else(PoisonError::into_inner) = Some(run);
    let scope = own_scope(workspace);
    let Some((conversation, pk)) = conversations::find(db, &scope, conversation, false, false)? else {
        // What was deleted starts nothing any more.
        runs::cancel_all(db, &scope, Some(conversation), start.now)?;
        return Ok(None);
    };
    let start = &start.in_order(&conversation);
    let mut thread = Thread { conversation, row: Some(pk) };
    let turn: StartTurn = parse_json(&request)?;
    let branch = place_message(db, &scope, &mut thread, message, &turn, start)?;
    let thread = thread.conversation;
    let text = format!(
        "UPDATE runs SET status = 'running', fence = fence + 1, node = ?3, lease_until = {NOW_MS} + ?4, \
         started_at = ?5, queue_position = NULL, branch = ?6, last_entry = 1, last_event = 1, assets = {} \
         WHERE workspace_id = ?1 AND id = ?2 AND status = 'queued' RETURNING {}, fence",
        run_files::visible_ids("idx_files_bag", "files.conversation_id = ?7"),
        runs::WRITTEN,
    );
    let (run, fence) = db.prepare_cached(&text)?.query_row(
        params![
            workspace,
            run,
            start.node.to_string(),
            start.lease_seconds as i64 * 1000,
            start.now.as_millisecond(),
            branch,
            thread.id
        ],
        |row| Ok((runs::read(row)?, row.get(runs::MORE)?)),
    )?;
    let lease = Lease { run: run.id, fence };
    let opening = thread_opening(&thread, run.id, message, start.now)?;
    append::insert_row(db, &Held { workspace, lease }, &opening)?;
    Ok(Some((run, lease, opening)))
}

/// Puts the user's message at the end of the thread, where the turn has one. Answers the branch that it stands on.
pub(super) fn place_message(
    db: &Connection,
    scope: &Scope,
    Thread { conversation: thread, row }: &mut Thread,
    message: Option<Uuid>,
    turn: &StartTurn,
    start: &QueueStart,
) -> Result<i64> {
    let id = thread.id;
    let (branch, head) = match row {
        None => (0, 0),
        Some(_) => {
            let branch = branch_for(db, scope, id, turn, start)?;
            (branch, branches::head_seq(db, scope, id, branch)?)
        }
    };
    let titled = thread.title.is_some();
    note_turn(thread, turn);
    agents::decide_kind(db, scope, thread)?;
    thread.message_count = head;
    let new = match (&turn.message, message) {
        (Some(said), Some(message)) => {
            let mut new = user_message(message, said, &turn.brought, start.now)?;
            let attachments = match (&turn.attachments, turn.replace) {
                (Some(attachments), _) => attachments.clone(),
                (None, Some(edited)) => run_files::attached_to(db, scope.workspace, id, edited)?,
                (None, None) => Vec::new(),
            };
            if !attachments.is_empty() {
                new.file_attachments = run_files::attach(db, scope.workspace, id, message, &attachments)?;
            }
            thread.note_message(message, true, &said.text, 0, start.now);
            Some(new)
        }
        _ => {
            thread.touch(start.now);
            None
        }
    };
    match *row {
        None => *row = Some(conversations::insert(db, thread)?),
        Some(pk) => {
            conversations::save_turn(db, pk, thread)?;
            if let Some(title) = thread.title.as_ref().filter(|_| !titled) {
                search::index(Indexed::Title, pk, title);
            }
        }
    }
    if let Some(new) = new {
        messages::insert(db, scope, id, (branch, head + 1), &new)?;
    }
    Ok(branch)
}

/// The branch that the turn's messages stand on: the current one, or a new one where it replaces a message.
fn branch_for(
    db: &Connection,
    scope: &Scope,
    conversation: Uuid,
    turn: &StartTurn,
    start: &QueueStart,
) -> Result<i64> {
    let Some(replaced) = turn.replace else { return branches::current(db, scope, conversation) };
    let (parent, seq, _) = branches::place(db, scope, conversation, replaced)?.ok_or(StoreError::NotFound)?;
    // An edit stands in the place of the message; a new answer stands after it.
    let fork_seq = if turn.message.is_some() { seq - 1 } else { seq };
    branches::create(db, scope, conversation, start.branch, (parent, fork_seq), start.now)
}
