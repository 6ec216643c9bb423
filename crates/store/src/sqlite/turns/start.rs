//! How a run comes under way: the user's message is put into the thread, the log is begun.

use domain::event::Turn;
use domain::run::{Lease, Run, StartTurn};
use domain::scope::Scope;
use rusqlite::{Connection, OptionalExtension, params};
use uuid::Uuid;

use super::append;
use crate::error::{Result, StoreError};
use crate::sqlite::leases::NOW_MS;
use crate::sqlite::{branches, conversations, messages, run_files, runs, search};
use crate::turns::{
    Batch, Held, QueueStart, Waiting, note_turn, opening, own_scope, parse_json, user_message,
};

pub(super) fn start_queued(
    db: &Connection,
    waiting: &Waiting,
    start: &QueueStart,
) -> Result<Option<(Run, Lease, Batch)>> {
    let Waiting { workspace, conversation } = *waiting;
    let next: Option<(Uuid, bool)> = db
        .prepare_cached(
            "SELECT r.id, c.deleted_at IS NULL FROM runs r \
             JOIN chat_conversations c ON c.workspace_id = r.workspace_id AND c.id = r.conversation_id \
             WHERE r.workspace_id = ?1 AND r.conversation_id = ?2 AND r.status = 'queued' AND NOT EXISTS ( \
                 SELECT 1 FROM runs o WHERE o.workspace_id = ?1 AND o.conversation_id = ?2 AND o.status = 'running') \
             ORDER BY r.queue_position LIMIT 1",
        )?
        .query_row(params![workspace, conversation], |row| Ok((row.get(0)?, row.get(1)?)))
        .optional()?;
    match next {
        None => Ok(None),
        Some((run, true)) => start_run(db, workspace, conversation, run, start).map(Some),
        Some((_, false)) => {
            // What was deleted starts nothing any more.
            runs::cancel_all(db, &own_scope(workspace), Some(conversation), start.now)?;
            Ok(None)
        }
    }
}

/// Puts the user's message into the thread and the run under way, with a fresh fence and a lease.
pub(super) fn start_run(
    db: &Connection,
    workspace: Uuid,
    conversation: Uuid,
    run: Uuid,
    start: &QueueStart,
) -> Result<(Run, Lease, Batch)> {
    let scope = own_scope(workspace);
    let (message, request): (Uuid, String) = db
        .prepare_cached("SELECT message_id, request FROM runs WHERE workspace_id = ?1 AND id = ?2")?
        .query_row(params![workspace, run], |row| Ok((row.get(0)?, row.get(1)?)))?;
    let turn: StartTurn = parse_json(&request)?;
    let (branch, first) = place_message(db, &scope, conversation, message, &turn, start)?;
    let assets = run_files::visible_ids("idx_files_bag", "files.conversation_id = ?7");
    let text = format!(
        "UPDATE runs SET status = 'running', fence = fence + 1, node = ?3, lease_until = {NOW_MS} + ?4, \
         started_at = ?5, queue_position = NULL, branch = ?6, last_entry = 1, last_event = 1, \
         assets = {assets} \
         WHERE workspace_id = ?1 AND id = ?2 AND status = 'queued' RETURNING fence"
    );
    let fence = db.prepare_cached(&text)?.query_row(
        params![
            workspace,
            run,
            start.node.to_string(),
            start.lease_seconds as i64 * 1000,
            start.now.as_millisecond(),
            branch,
            conversation
        ],
        |row| row.get(0),
    )?;
    let lease = Lease { run, fence };
    let event =
        Turn { conversation: Some(conversation), run, message: Some(message), conversation_id: first };
    let opening = opening(event, start.now)?;
    append::insert_row(db, &Held { workspace, lease }, &opening)?;
    Ok((runs::by_id(db, workspace, run)?, lease, opening))
}

/// The branch that the turn's messages stand on, with the user's message at its end; and the thread's first message.
fn place_message(
    db: &Connection,
    scope: &Scope,
    conversation: Uuid,
    message: Uuid,
    turn: &StartTurn,
    start: &QueueStart,
) -> Result<(i64, Option<Uuid>)> {
    let branch = match turn.replace {
        None => branches::current(db, scope, conversation)?,
        Some(replaced) => {
            let (parent, seq, _) =
                branches::place(db, scope, conversation, replaced)?.ok_or(StoreError::NotFound)?;
            // An edit stands in the place of the message; a new answer stands after it.
            let fork_seq = if turn.message.is_some() { seq - 1 } else { seq };
            branches::create(db, scope, conversation, start.branch, (parent, fork_seq), start.now)?
        }
    };
    let (mut thread, pk) = conversations::get(db, scope, conversation)?;
    let titled = thread.title.is_some();
    note_turn(&mut thread, turn);
    let lineage = branches::lineage(db, scope, conversation, branch)?;
    let head = branches::head_seq(db, scope, conversation, &lineage)?;
    thread.message_count = head;
    match &turn.message {
        None => thread.touch(start.now),
        Some(said) => {
            let mut new = user_message(message, said, &turn.brought, start.now)?;
            let attachments = match (&turn.attachments, turn.replace) {
                (Some(attachments), _) => attachments.clone(),
                (None, Some(edited)) => run_files::attached_to(db, scope.workspace, conversation, edited)?,
                (None, None) => Vec::new(),
            };
            if !attachments.is_empty() {
                new.file_attachments =
                    run_files::attach(db, scope.workspace, conversation, message, &attachments)?;
            }
            messages::insert(db, scope, conversation, (branch, head + 1), &new)?;
            thread.note_message(message, true, &said.text, 0, start.now);
        }
    }
    conversations::save(db, pk, &thread)?;
    if !titled && thread.title.is_some() {
        search::index_title(db, pk, thread.title.as_deref())?;
    }
    Ok((branch, thread.first_message))
}
