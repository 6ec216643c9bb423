//! The first of the three writes: a turn is accepted, and put under way or into the queue.

use domain::conversation::Write;
use domain::run::{Lease, OnBusy, Run, RunStatus, StartTurn};
use domain::scope::Scope;
use rusqlite::{Connection, OptionalExtension, params};
use uuid::Uuid;

use super::append;
use super::idempotency::{go_on, remember, repeated};
use super::open_runs::open_runs;
use super::start::{Thread, place_message};
use crate::error::{Result, StoreError};
use crate::sqlite::leases::NOW_MS;
use crate::sqlite::{branches, conversations, run_files, runs, usage};
use crate::turns::{Begun, Held, NewTurn, QueueStart, first_dispatch, first_of, thread_opening, to_json};

pub(super) fn begin(db: &Connection, scope: &Scope, new: &NewTurn) -> Result<Begun> {
    if let Some(before) = repeated(db, scope, new.idempotency.as_ref(), new.now)? {
        return go_on(db, before, new.turn.on_disconnect);
    }
    let open = open_runs(db, scope, new.open_runs)?;
    if let Err(full) = new.open_runs.check(open) {
        return Ok(Begun::TooManyRuns(full));
    }
    if let Some(spent) = usage::spent(db, scope, new.tokens, new.now)? {
        return Ok(Begun::OutOfTokens(spent));
    }
    let mut thread = match new.turn.conversation {
        Some(id) => known_conversation(db, scope, id, new)?,
        None => first_conversation(db, scope, new)?,
    };
    let conversation = thread.conversation.id;
    if let Some(attachments) = &new.turn.attachments {
        run_files::check_attachments(db, scope.workspace, new.turn.conversation, attachments)?;
    }
    let busy = thread.row.map_or(Ok(None), |_| under_way(db, scope, conversation))?;
    let begun = match (busy, new.turn.on_busy) {
        (None, _) => {
            let start = QueueStart {
                node: new.node,
                lease_seconds: new.lease_seconds,
                branch: new.branch,
                now: new.now,
            }
            .in_order(&thread.conversation);
            let message = message_of(new, &new.turn);
            let branch = place_message(db, scope, &mut thread, message, &new.turn, &start)?;
            let run = insert_run(db, scope, conversation, new, &new.turn, Place::Under(&start, branch))?;
            let lease = Lease { run: new.run, fence: 1 };
            let opening = thread_opening(&thread.conversation, new.run, message, start.now)?;
            append::insert_row(db, &Held { workspace: scope.workspace, lease }, &opening)?;
            let dispatch = match new.turn.conversation {
                None => first_dispatch(scope, &run, &thread.conversation, new)?,
                Some(_) => None,
            };
            Begun::Started { run, lease, opening, open: open.and_one(), dispatch }
        }
        (Some((run, _)), OnBusy::Reject) => return Ok(Begun::Busy(run)),
        (Some((run, message)), policy) => {
            let mut turn = new.turn.clone();
            let front = policy.interrupts();
            let mut displaced = message;
            if front {
                db.execute(
                    "UPDATE runs SET cancel_requested = 1 \
                     WHERE workspace_id = ?1 AND id = ?2 AND status = 'running'",
                    params![scope.workspace, run],
                )?;
                displaced = displaced.or(cancel_interrupting(db, scope, conversation, new)?);
            }
            if policy == OnBusy::Rollback && turn.replace.is_none() {
                turn.replace = displaced;
                // It takes the place of the message and is no edit of it: what was attached there stays there.
                turn.attachments.get_or_insert_default();
            }
            let place = queue_place(db, scope, conversation, front)?;
            let run = insert_run(db, scope, conversation, new, &turn, Place::Queued(place))?;
            if let (Some(_), Some(attachments)) = (&turn.message, &turn.attachments) {
                run_files::reserve(db, scope.workspace, new.message, attachments)?;
            }
            Begun::Queued(run, open.and_one())
        }
    };
    remember(db, scope, new.idempotency.as_ref(), new.run, new.now)?;
    Ok(begun)
}

/// The conversation that a first turn makes; its row is written with the turn's message.
fn first_conversation(db: &Connection, scope: &Scope, new: &NewTurn) -> Result<Thread> {
    let write = Write { now: new.now, max_tabs: 0 };
    let conversation = conversations::make(db, scope, &first_of(new)?, new.conversation, &write)?;
    Ok(Thread { conversation, row: None })
}

/// The conversation of a later turn; the message to replace must be a user's and in it.
fn known_conversation(db: &Connection, scope: &Scope, id: Uuid, new: &NewTurn) -> Result<Thread> {
    let found = conversations::find(db, scope, id, false, false)?;
    let (conversation, pk) = found.ok_or(StoreError::NotFound)?;
    if let Some(message) = new.turn.brought.message {
        check_free(db, scope, id, message)?;
    }
    if let Some(replace) = new.turn.replace {
        match branches::place(db, scope, id, replace)? {
            Some((_, _, true)) => {}
            _ => {
                let detail = "replace must name a user message of this conversation";
                return Err(StoreError::Invalid { input: "/replace", detail });
            }
        }
    }
    Ok(Thread { conversation, row: Some(pk) })
}

/// A message id that a client brought is new to the conversation, its queue included. A run's id is its answer's.
fn check_free(db: &Connection, scope: &Scope, conversation: Uuid, message: Uuid) -> Result<()> {
    let text = "SELECT 1 FROM messages WHERE workspace_id = ?1 AND conversation_id = ?2 AND id = ?3 \
                UNION ALL SELECT 1 FROM runs INDEXED BY idx_runs_queue \
                WHERE workspace_id = ?1 AND conversation_id = ?2 AND status = 'queued' AND message_id = ?3 \
                UNION ALL SELECT 1 FROM runs WHERE workspace_id = ?1 AND id = ?3 AND conversation_id = ?2";
    match db.prepare_cached(text)?.exists(params![scope.workspace, conversation, message])? {
        true => Err(StoreError::Taken("message id")),
        false => Ok(()),
    }
}

/// The run that stands in the way, with its user message: the one under way, or else the first queued.
fn under_way(db: &Connection, scope: &Scope, conversation: Uuid) -> Result<Option<(Uuid, Option<Uuid>)>> {
    Ok(db
        .prepare_cached(
            "SELECT * FROM (SELECT id, message_id, 0 AS place FROM runs INDEXED BY idx_runs_one_running \
             WHERE workspace_id = ?1 AND conversation_id = ?2 AND status = 'running') \
             UNION ALL SELECT * FROM (SELECT id, NULL, 1 FROM runs INDEXED BY idx_runs_queue \
             WHERE workspace_id = ?1 AND conversation_id = ?2 AND status = 'queued' ORDER BY queue_position LIMIT 1) \
             ORDER BY place LIMIT 1",
        )?
        .query_row(params![scope.workspace, conversation], |row| Ok((row.get(0)?, row.get(1)?)))
        .optional()?)
}

/// Of those that wait, the ones that interrupt as well give way to the newest. Answers the message whose place one of
/// them was to take.
fn cancel_interrupting(
    db: &Connection,
    scope: &Scope,
    conversation: Uuid,
    new: &NewTurn,
) -> Result<Option<Uuid>> {
    let mut displaced = None;
    for (run, turn) in runs::queue(db, scope, conversation)? {
        if turn.on_busy.interrupts() {
            runs::cancel_queued(db, scope, &run, new.now)?;
            displaced = turn.replace.filter(|_| turn.on_busy == OnBusy::Rollback).or(displaced);
        }
    }
    Ok(displaced)
}

fn queue_place(db: &Connection, scope: &Scope, conversation: Uuid, front: bool) -> Result<i64> {
    let (first, last): (Option<i64>, Option<i64>) = db
        .prepare_cached(
            "SELECT min(queue_position), max(queue_position) FROM runs INDEXED BY idx_runs_queue \
             WHERE workspace_id = ?1 AND conversation_id = ?2 AND status = 'queued'",
        )?
        .query_row(params![scope.workspace, conversation], |row| Ok((row.get(0)?, row.get(1)?)))?;
    Ok(if front { first.unwrap_or(1) - 1 } else { last.unwrap_or(0) + 1 })
}

fn message_of(new: &NewTurn, turn: &StartTurn) -> Option<Uuid> {
    if turn.message.is_some() { Some(new.message) } else { turn.replace }
}

/// Where a new run begins its life.
#[derive(Clone, Copy)]
enum Place<'a> {
    Queued(i64),
    /// Under way on a branch.
    Under(&'a QueueStart, i64),
}

fn insert_run(
    db: &Connection,
    scope: &Scope,
    conversation: Uuid,
    new: &NewTurn,
    turn: &StartTurn,
    place: Place<'_>,
) -> Result<Run> {
    let (status, position, node, started, branch) = match place {
        Place::Queued(position) => (RunStatus::Queued, Some(position), None, None, 0),
        Place::Under(start, branch) => {
            (RunStatus::Running, None, Some(start.node.to_string()), Some(start.now), branch)
        }
    };
    // A run under way has its first fence, its first entry and its first event.
    let one = i64::from(node.is_some());
    let text = format!(
        "INSERT INTO runs (workspace_id, id, conversation_id, status, message_id, user_id, on_disconnect, request, \
         queue_position, created_at, node, started_at, branch, fence, last_entry, last_event, lease_until, assets) \
         VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13, ?14, ?14, ?14, \
         CASE WHEN ?14 THEN {NOW_MS} + ?15 END, CASE WHEN ?14 THEN {} END) RETURNING {}",
        run_files::visible_ids("idx_files_bag", "files.conversation_id = ?3"),
        runs::WRITTEN,
    );
    Ok(db.prepare_cached(&text)?.query_row(
        params![
            scope.workspace,
            new.run,
            conversation,
            status.as_str(),
            message_of(new, turn),
            scope.user,
            to_json(&turn.on_disconnect)?.trim_matches('"'),
            to_json(turn)?,
            position,
            new.now.as_millisecond(),
            node,
            started.map(jiff::Timestamp::as_millisecond),
            branch,
            one,
            new.lease_seconds as i64 * 1000,
        ],
        runs::read,
    )?)
}
