//! How a run comes under way: the user's message is put into the thread, the log is begun.

use std::collections::HashSet;
use std::sync::{Mutex, PoisonError};

use domain::conversation::Conversation;
use domain::file::File;
use domain::message::NewMessage;
use domain::run::{Lease, Run, StartTurn};
use domain::scope::Scope;
use futures_util::future::try_join;
use jiff::Timestamp;
use uuid::Uuid;

use super::append;
use crate::error::{Result, StoreError};
use crate::files::{attachments_json, named_files};
use crate::postgres::branches::{self, Head, Spot};
use crate::postgres::transaction::Transaction;
use crate::postgres::{agents, conversations, leases, messages, run_files, runs};
use crate::turns::{
    Batch, Held, QueueStart, Waiting, note_turn, own_scope, parse_json, thread_opening, user_message,
};

pub(super) async fn start_queued(
    tx: &Transaction,
    waiting: &Waiting,
    start: &QueueStart,
    tried: &Mutex<Option<Uuid>>,
) -> Result<Option<(Run, Lease, Batch)>> {
    let scope = own_scope(waiting.workspace);
    let Some(mut thread) = conversations::find_locked_any(tx, &scope, waiting.conversation).await? else {
        return Ok(None);
    };
    if thread.deleted_at.is_some() {
        // What was deleted starts nothing any more.
        runs::cancel_all(tx, &scope, Some(thread.id), start.now).await?;
        return Ok(None);
    }
    let start = &start.in_order(&thread);
    let own = tx.inside("r.workspace_id");
    let text = format!(
        "SELECT r.id, r.message_id, r.request FROM runs r \
         WHERE {own} AND r.conversation_id = $2 AND r.status = 'queued' AND NOT EXISTS ( \
             SELECT 1 FROM runs o WHERE o.workspace_id = r.workspace_id AND o.conversation_id = $2 \
             AND o.status = 'running') \
         ORDER BY r.queue_position LIMIT 1 FOR NO KEY UPDATE OF r"
    );
    let Some(next) = tx.row(&text, &[&waiting.workspace, &waiting.conversation]).await? else {
        return Ok(None);
    };
    let run: Uuid = next.try_get(0)?;
    *tried.lock().unwrap_or_else(PoisonError::into_inner) = Some(run);
    let (message, turn): (_, StartTurn) = (next.try_get(1)?, parse_json(next.try_get(2)?)?);
    let head = branches::head(tx, &scope, thread.id, None).await?;
    let replaced = match turn.replace {
        Some(replaced) => {
            Some(branches::place(tx, &scope, thread.id, replaced).await?.ok_or(StoreError::NotFound)?)
        }
        None => None,
    };
    // What was deleted while the turn waited is left out.
    let files = all_of(attached(tx, &scope, thread.id, &turn, replaced.as_ref()).await?, false)?;
    let head = branch_for(tx, &scope, thread.id, &turn, start, (head, replaced.as_ref())).await?;
    let said = say(&mut thread, (message, &files), &turn, (head, start.now))?;
    agents::decide_kind(tx, &scope, &mut thread).await?;
    try_join(conversations::save(tx, &thread), place(tx, &scope, &thread, (&said, &files), head)).await?;
    let text = format!(
        "UPDATE runs r SET status = 'running', fence = r.fence + 1, node = $3, lease_until = {}, started_at = $5, \
         queue_position = NULL, branch = $6, last_entry = 1, last_event = 1, assets = {} WHERE {own} AND r.id = $2 RETURNING {}, r.fence",
        leases::until("$4"),
        run_files::assets(tx.dialect, ("conversation_id", "r.conversation_id")),
        runs::COLUMNS
    );
    let (node, seconds) = (start.node.to_string(), start.lease_seconds as f64);
    let row = tx.row(&text, &[&waiting.workspace, &run, &node, &seconds, &start.now, &head.branch]).await?;
    let row = row.ok_or(StoreError::NotFound)?;
    let lease = Lease { run, fence: row.try_get(runs::MORE)? };
    let opening = thread_opening(&thread, run, message, start.now)?;
    append::open_log(tx, &Held { workspace: waiting.workspace, lease }, &opening).await?;
    Ok(Some((runs::read(&row)?, lease, opening)))
}

/// The files to attach to the turn's message, each in its place: those it names, or those of the message that it
/// edits. Asks nothing when there are none.
pub(super) async fn attached(
    tx: &Transaction,
    scope: &Scope,
    conversation: Uuid,
    turn: &StartTurn,
    replaced: Option<&Spot>,
) -> Result<Vec<Option<File>>> {
    let ids = match (&turn.attachments, &turn.message, replaced) {
        (Some(ids), ..) => ids.clone(),
        (None, Some(_), Some(replaced)) => named_files(&replaced.attachments)?,
        _ => Vec::new(),
    };
    run_files::pick(tx, scope, conversation, &ids).await
}

/// Those that are there, each once; with `named`, none may be missing.
pub(super) fn all_of(files: Vec<Option<File>>, named: bool) -> Result<Vec<File>> {
    match files.iter().position(Option::is_none) {
        Some(index) if named => Err(StoreError::NoAttachment(index)),
        _ => {
            let mut known = HashSet::new();
            Ok(files.into_iter().flatten().filter(|file| known.insert(file.id)).collect())
        }
    }
}

/// The branch that the turn's messages stand on: the current one, or a new one where it replaces a message.
pub(super) async fn branch_for(
    tx: &Transaction,
    scope: &Scope,
    conversation: Uuid,
    turn: &StartTurn,
    start: &QueueStart,
    (current, replaced): (Head, Option<&Spot>),
) -> Result<Head> {
    let Some(Spot { branch: parent, seq, .. }) = replaced else { return Ok(current) };
    // An edit stands in the place of the message; a new answer stands after it.
    let fork_seq = if turn.message.is_some() { seq - 1 } else { *seq };
    let branch =
        branches::create(tx, scope, conversation, start.branch, (*parent, fork_seq), start.now).await?;
    Ok(Head { branch, seq: fork_seq })
}

/// What a turn puts into its conversation beside its own row.
pub(super) struct Said {
    message: Option<NewMessage>,
    /// The message gave the conversation its title.
    titled: bool,
}

/// Notes in the conversation what the turn says: its message with its files, at the end of the branch.
pub(super) fn say(
    thread: &mut Conversation,
    (message, files): (Option<Uuid>, &[File]),
    turn: &StartTurn,
    (head, now): (Head, Timestamp),
) -> Result<Said> {
    let untitled = thread.title.is_none();
    note_turn(thread, turn);
    thread.message_count = head.seq;
    let message = match (&turn.message, message) {
        (Some(said), Some(id)) => {
            thread.note_message(id, true, &said.text, 0, now);
            let file_attachments = attachments_json(files)?;
            Some(NewMessage { file_attachments, ..user_message(id, said, &turn.brought, now)? })
        }
        _ => {
            thread.touch(now);
            None
        }
    };
    Ok(Said { message, titled: untitled && thread.title.is_some() })
}

/// Writes it, all at once; the conversation's row was sent before.
pub(super) async fn place(
    tx: &Transaction,
    scope: &Scope,
    thread: &Conversation,
    (said, files): (&Said, &[File]),
    head: Head,
) -> Result<()> {
    let Some(new) = &said.message else { return Ok(()) };
    let place = Head { seq: head.seq + 1, ..head };
    let title = thread.title.as_deref().filter(|_| said.titled);
    let inserted = messages::insert(tx, scope, (thread.id, title), place, new);
    try_join(inserted, run_files::attach(tx, scope, files, new.id)).await.map(|_| ())
}
