//! The writes of a turn: begin, start and settle, each one transaction guarded by a fence.

use domain::conversation::Write;
use domain::event::Turn;
use domain::message::{NewMessage, Window, plain_text};
use domain::open_runs::{OpenRuns, RunLimits};
use domain::run::{Lease, OnBusy, Run, RunStatus, StartTurn};
use domain::scope::Scope;
use jiff::Timestamp;
use rusqlite::{Connection, OptionalExtension, params};
use uuid::Uuid;

use super::{branches, conversations, log, messages, run_files, runs, search, usage};
use crate::error::{Result, StoreError};
use crate::files::execution_message;
use crate::turns::{
    Batch, Begun, Dispatch, Held, Idempotency, KEY_LIFE, NewTurn, QueueStart, Settled, Settlement, Waiting,
    caller, first_of, note_turn, opening, own_scope, parse_json, to_json, user_message,
};

// Where a statement names its index: without statistics SQLite takes a table's own key before an index that leads
// with the same workspace, and would walk over all of the workspace's rows.

/// The database's own clock: leases rest on no other.
pub(super) const NOW_MS: &str = "CAST(unixepoch('subsec') * 1000 AS INTEGER)";

pub(super) fn begin(db: &Connection, scope: &Scope, new: &NewTurn) -> Result<Begun> {
    if let Some(before) = repeated(db, scope, new.idempotency.as_ref(), new.now)? {
        return Ok(before);
    }
    let open = open_runs(db, scope, new.open_runs)?;
    if let Err(full) = new.open_runs.check(open) {
        return Ok(Begun::TooManyRuns(full));
    }
    if let Some(spent) = usage::spent(db, scope, new.tokens, new.now)? {
        return Ok(Begun::OutOfTokens(spent));
    }
    let conversation = match new.turn.conversation {
        Some(id) => known_conversation(db, scope, id, new)?,
        None => first_conversation(db, scope, new)?,
    };
    if let Some(attachments) = &new.turn.attachments {
        run_files::check_attachments(db, scope.workspace, new.turn.conversation, attachments)?;
    }
    let busy = under_way(db, scope, conversation)?;
    let begun = match (busy, new.turn.on_busy) {
        (None, _) => {
            insert_run(db, scope, conversation, new, None, &new.turn)?;
            let start = QueueStart {
                node: new.node,
                lease_seconds: new.lease_seconds,
                branch: new.branch,
                now: new.now,
            };
            let (run, lease, opening) = start_run(db, scope.workspace, conversation, new.run, &start)?;
            Begun::Started(run, lease, opening, open.and_one())
        }
        (Some((run, _)), OnBusy::Reject) => return Ok(Begun::Busy(run)),
        (Some((run, message)), policy) => {
            let mut turn = new.turn.clone();
            let front = policy != OnBusy::Enqueue;
            if front {
                db.execute(
                    "UPDATE runs SET cancel_requested = 1 \
                     WHERE workspace_id = ?1 AND id = ?2 AND status = 'running'",
                    params![scope.workspace, run],
                )?;
            }
            if policy == OnBusy::Rollback && turn.replace.is_none() {
                turn.replace = message;
                // It takes the place of the message and is no edit of it: what was attached there stays there.
                turn.attachments.get_or_insert_default();
            }
            let place = queue_place(db, scope, conversation, front)?;
            insert_run(db, scope, conversation, new, Some(place), &turn)?;
            if let (Some(_), Some(attachments)) = (&turn.message, &turn.attachments) {
                run_files::attach(db, scope.workspace, conversation, new.message, attachments)?;
            }
            Begun::Queued(runs::by_id(db, scope.workspace, new.run)?, open.and_one())
        }
    };
    remember(db, scope, new.idempotency.as_ref(), new.run, new.now)?;
    Ok(begun)
}

/// What the same request made before.
pub(super) fn repeated(
    db: &Connection,
    scope: &Scope,
    idempotency: Option<&Idempotency>,
    now: Timestamp,
) -> Result<Option<Begun>> {
    let Some(idempotency) = idempotency else { return Ok(None) };
    let found: Option<(Vec<u8>, Uuid)> = db
        .prepare_cached(
            "SELECT body_hash, run_id FROM idempotency_keys \
             WHERE workspace_id = ?1 AND caller = ?2 AND key = ?3 AND created_at > ?4",
        )?
        .query_row(
            params![
                scope.workspace,
                caller(scope),
                idempotency.key,
                now.as_millisecond() - KEY_LIFE.as_millis() as i64
            ],
            |row| Ok((row.get(0)?, row.get(1)?)),
        )
        .optional()?;
    Ok(match found {
        None => None,
        Some((hash, _)) if hash != idempotency.body_hash => Some(Begun::KeyReused),
        Some((_, run)) => Some(Begun::Repeated(runs::by_id(db, scope.workspace, run)?)),
    })
}

pub(super) fn remember(
    db: &Connection,
    scope: &Scope,
    idempotency: Option<&Idempotency>,
    run: Uuid,
    now: Timestamp,
) -> Result<()> {
    let Some(idempotency) = idempotency else { return Ok(()) };
    db.prepare_cached(
        "INSERT OR REPLACE INTO idempotency_keys (workspace_id, caller, key, body_hash, run_id, created_at) \
         VALUES (?1, ?2, ?3, ?4, ?5, ?6)",
    )?
    .execute(params![
        scope.workspace,
        caller(scope),
        idempotency.key,
        idempotency.body_hash,
        run,
        now.as_millisecond()
    ])?;
    Ok(())
}

/// What is open; the workspace's runs are counted where there is a limit of them.
pub(super) fn open_runs(db: &Connection, scope: &Scope, limits: RunLimits) -> Result<OpenRuns> {
    let count = |of_user: &str| -> Result<u64> {
        let text = format!(
            "SELECT count(*) FROM runs INDEXED BY idx_runs_open \
             WHERE workspace_id = ?1 AND {of_user} AND status IN ('queued', 'running')"
        );
        let mut statement = db.prepare_cached(&text)?;
        let count = statement.query_row(params![scope.workspace, scope.user], |row| row.get::<_, i64>(0))?;
        Ok(count.unsigned_abs())
    };
    let workspace = if limits.workspace > 0 { count("?2 IS NOT NULL")? } else { 0 };
    Ok(OpenRuns { user: count("user_id = ?2")?, workspace })
}

fn first_conversation(db: &Connection, scope: &Scope, new: &NewTurn) -> Result<Uuid> {
    let made = first_of(new)?;
    let write = Write { now: new.now, max_tabs: 0 };
    Ok(conversations::create(db, scope, &made, new.conversation, &write)?.id)
}

/// The conversation of a later turn; the message to replace must be a user's and in it.
fn known_conversation(db: &Connection, scope: &Scope, id: Uuid, new: &NewTurn) -> Result<Uuid> {
    conversations::find(db, scope, id, false, false)?.ok_or(StoreError::NotFound)?;
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
    Ok(id)
}

/// A message id that a client brought is new to the conversation, its queue included.
fn check_free(db: &Connection, scope: &Scope, conversation: Uuid, message: Uuid) -> Result<()> {
    let text = "SELECT 1 FROM messages WHERE workspace_id = ?1 AND conversation_id = ?2 AND id = ?3 \
                UNION ALL SELECT 1 FROM runs INDEXED BY idx_runs_queue \
                WHERE workspace_id = ?1 AND conversation_id = ?2 AND status = 'queued' AND message_id = ?3";
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

fn queue_place(db: &Connection, scope: &Scope, conversation: Uuid, front: bool) -> Result<i64> {
    let (first, last): (Option<i64>, Option<i64>) = db
        .prepare_cached(
            "SELECT min(queue_position), max(queue_position) FROM runs INDEXED BY idx_runs_queue \
             WHERE workspace_id = ?1 AND conversation_id = ?2 AND status = 'queued'",
        )?
        .query_row(params![scope.workspace, conversation], |row| Ok((row.get(0)?, row.get(1)?)))?;
    Ok(if front { first.unwrap_or(1) - 1 } else { last.unwrap_or(0) + 1 })
}

fn insert_run(
    db: &Connection,
    scope: &Scope,
    conversation: Uuid,
    new: &NewTurn,
    place: Option<i64>,
    turn: &StartTurn,
) -> Result<()> {
    let message = if turn.message.is_some() { Some(new.message) } else { turn.replace };
    db.prepare_cached(
        "INSERT INTO runs (workspace_id, id, conversation_id, status, message_id, user_id, on_disconnect, request, \
         queue_position, created_at) VALUES (?1, ?2, ?3, 'queued', ?4, ?5, ?6, ?7, ?8, ?9)",
    )?
    .execute(params![
        scope.workspace,
        new.run,
        conversation,
        message,
        scope.user,
        to_json(&turn.on_disconnect)?.trim_matches('"'),
        to_json(turn)?,
        place,
        new.now.as_millisecond(),
    ])?;
    Ok(())
}

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
            cancel_all(db, &own_scope(workspace), Some(conversation), start.now)?;
            Ok(None)
        }
    }
}

/// Puts the user's message into the thread and the run under way, with a fresh fence and a lease.
fn start_run(
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
    log::insert_row(db, &Held { workspace, lease }, &opening)?;
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

pub(super) fn get_dispatch(db: &Connection, held: &Held, replay: usize) -> Result<Dispatch> {
    let scope = own_scope(held.workspace);
    let (request, branch, assets, user): (String, i64, Option<String>, String) = db
        .prepare_cached(
            "SELECT request, branch, assets, user_id FROM runs \
             WHERE workspace_id = ?1 AND id = ?2 AND fence = ?3 AND status = 'running'",
        )?
        .query_row(params![held.workspace, held.lease.run, held.lease.fence], |row| {
            Ok((row.get(0)?, row.get(1)?, row.get(2)?, row.get(3)?))
        })
        .optional()?
        .ok_or(StoreError::Lost)?;
    let run = runs::by_id(db, held.workspace, held.lease.run)?;
    let turn: StartTurn = parse_json(&request)?;
    let files = run_files::frozen(db, held.workspace, assets.as_deref())?;
    if let Some(execution) = run.execution {
        let message = execution_message(execution, &run, &turn);
        return Ok(Dispatch { run, user, conversation: None, message, before: Vec::new(), turn, files });
    }
    let id = run.conversation.ok_or(StoreError::NotFound)?;
    let (conversation, _) = conversations::get(db, &scope, id)?;
    let message = messages::get(db, &scope, id, run.message.ok_or(StoreError::NotFound)?)?;
    let lineage = branches::lineage(db, &scope, id, branch)?;
    let window = Window::Before { message: message.id, limit: replay };
    let (before, _) = messages::read_window(db, &scope, id, &lineage, window)?;
    Ok(Dispatch { run, user, conversation: Some(conversation), message, before, turn, files })
}

pub(super) fn settle(db: &Connection, held: &Held, settlement: &Settlement) -> Result<Settled> {
    let error = settlement.error.as_ref();
    let settled: Option<(Option<Uuid>, i64, i64)> = db
        .prepare_cached(
            "UPDATE runs SET status = ?4, ended_at = ?5, lease_until = NULL, error_code = ?6, error_message = ?7, \
             assistant_message_id = ?8, input_tokens = input_tokens + ?9, output_tokens = output_tokens + ?10, \
             response = ?11 \
             WHERE workspace_id = ?1 AND id = ?2 AND fence = ?3 AND status = 'running' \
             AND (upload_used_at IS NULL OR ?12) \
             RETURNING conversation_id, branch, input_tokens + output_tokens",
        )?
        .query_row(
            params![
                held.workspace,
                held.lease.run,
                held.lease.fence,
                settlement.status.as_str(),
                settlement.now.as_millisecond(),
                error.map(|error| &error.code),
                error.map(|error| &error.message),
                settlement.assistant.as_ref().map(|message| message.id),
                settlement.usage.input_tokens,
                settlement.usage.output_tokens,
                settlement.response,
                settlement.files_logged,
            ],
            |row| Ok((row.get(0)?, row.get(1)?, row.get(2)?)),
        )
        .optional()?;
    debug_assert!(settlement.status.is_settled() && RunStatus::Running.may_become(settlement.status));
    let Some((conversation, branch, tokens)) = settled else { return Err(unsettled(db, held)?) };
    log::insert(db, held, &settlement.batch)?;
    usage::add_of_run(db, held.workspace, held.lease.run, (settlement.usage, 1), settlement.now)?;
    if let (Some(conversation), Some(assistant)) = (conversation, &settlement.assistant) {
        add_answer(db, held, (conversation, branch), assistant, tokens, settlement.now)?;
    }
    let queue = conversation.map_or(Ok(false), |conversation| has_queue(db, held.workspace, conversation))?;
    Ok(Settled { run: runs::by_id(db, held.workspace, held.lease.run)?, queue })
}

fn has_queue(db: &Connection, workspace: Uuid, conversation: Uuid) -> Result<bool> {
    let text = "SELECT 1 FROM runs INDEXED BY idx_runs_queue \
                WHERE workspace_id = ?1 AND conversation_id = ?2 AND status = 'queued'";
    Ok(db.prepare_cached(text)?.exists(params![workspace, conversation])?)
}

/// Why a run could not be settled: its files are not in its log yet, or it is another's.
fn unsettled(db: &Connection, held: &Held) -> Result<StoreError> {
    let ours = "SELECT 1 FROM runs WHERE workspace_id = ?1 AND id = ?2 AND fence = ?3 AND status = 'running'";
    let ours = db.prepare_cached(ours)?.exists(params![held.workspace, held.lease.run, held.lease.fence])?;
    Ok(if ours { StoreError::FilesWaiting } else { StoreError::Lost })
}

/// The assistant's message at the end of the run's branch, and the conversation's counters.
fn add_answer(
    db: &Connection,
    held: &Held,
    (conversation, branch): (Uuid, i64),
    assistant: &NewMessage,
    tokens: i64,
    now: Timestamp,
) -> Result<()> {
    let scope = own_scope(held.workspace);
    let lineage = branches::lineage(db, &scope, conversation, branch)?;
    let seq = branches::head_seq(db, &scope, conversation, &lineage)? + 1;
    messages::insert(db, &scope, conversation, (branch, seq), assistant)?;
    // The conversation may have been deleted meanwhile: what the user saw is kept all the same.
    let found = match conversations::find(db, &scope, conversation, false, true)? {
        Some(found) => Some(found),
        None => conversations::find(db, &scope, conversation, true, true)?,
    };
    let (mut thread, pk) = found.ok_or(StoreError::NotFound)?;
    let shown = thread.message_count;
    thread.note_message(assistant.id, false, &plain_text(&assistant.content), tokens, now);
    thread.message_count = if branches::current(db, &scope, conversation)? == branch { seq } else { shown };
    conversations::save(db, pk, &thread)
}

/// Marks the runs of a conversation, or of the whole workspace, for their end, as a delete does: queued ones at once.
pub(super) fn cancel_all(
    db: &Connection,
    scope: &Scope,
    conversation: Option<Uuid>,
    now: Timestamp,
) -> Result<()> {
    let (running, queued, whose) = match conversation {
        Some(_) => ("INDEXED BY idx_runs_one_running", "INDEXED BY idx_runs_queue", "conversation_id = ?2"),
        None => ("", "", "?2 IS NULL"),
    };
    let text = format!(
        "UPDATE runs {running} SET cancel_requested = 1 WHERE workspace_id = ?1 AND {whose} AND status = 'running'"
    );
    db.execute(&text, params![scope.workspace, conversation])?;
    let text = format!(
        "UPDATE runs {queued} SET status = 'cancelled', ended_at = ?3, queue_position = NULL, \
         error_code = 'cancelled', error_message = 'the conversation was deleted' \
         WHERE workspace_id = ?1 AND {whose} AND status = 'queued'"
    );
    db.execute(&text, params![scope.workspace, conversation, now.as_millisecond()])?;
    Ok(())
}
