//! The writes of a turn: begin, start and settle, each one transaction guarded by a fence.
//!
//! Whoever needs both locks a conversation before its runs, so that no two transactions wait for each other.

use std::collections::HashSet;

use domain::conversation::{Conversation, Write};
use domain::event::Turn;
use domain::file::File;
use domain::message::{Message, NewMessage, Window, plain_text};
use domain::open_runs::{OpenRuns, RunLimits, TooManyRuns};
use domain::run::{Lease, OnBusy, Run, RunStatus, StartTurn};
use domain::scope::Scope;
use futures_util::future::{join, join3};
use jiff::Timestamp;
use uuid::Uuid;

use super::branches::{self, Head, Spot, Start};
use super::transaction::{Database, Query, Settings, Transaction, inside};
use super::{conversations, files, leases, log, messages, runs, search, usage};
use crate::error::{Result, StoreError};
use crate::files::{attachments_json, execution_message, named_files};
use crate::turns::{
    Batch, Begun, Dispatch, Held, Idempotency, KEY_LIFE, NewTurn, QueueStart, Settled, Settlement, Waiting,
    caller, first_of, note_turn, opening, own_scope, parse_json, to_json, user_message,
};

pub(super) async fn begin(tx: &Transaction, scope: &Scope, new: &NewTurn) -> Result<Begun> {
    if let Some(before) = repeated(tx, scope, new.idempotency.as_ref(), new.now).await? {
        return Ok(before);
    }
    let open = match open_runs(tx, scope, new.open_runs).await? {
        Ok(open) => open.and_one(),
        Err(full) => return Ok(Begun::TooManyRuns(full)),
    };
    if let Some(spent) = usage::spent(tx, scope, new.tokens, new.now).await? {
        return Ok(Begun::OutOfTokens(spent));
    }
    let (mut thread, replaced, busy, head, files) = match new.turn.conversation {
        Some(id) => {
            let (thread, replaced) = known_conversation(tx, scope, id, new).await?;
            // Asked for under the conversation's lock: what another begin committed is seen.
            let (busy, head, files) = join3(
                under_way(tx, scope, id),
                branches::head(tx, scope, id, None),
                attached(tx, scope, id, &new.turn, replaced.as_ref()),
            )
            .await;
            (thread, replaced, busy?, head?, files?)
        }
        None if new.turn.attachments.as_ref().is_some_and(|files| !files.is_empty()) => {
            return Err(StoreError::NoAttachment(0));
        }
        None => {
            let first = first_conversation(tx, scope, new).await?;
            (first, None, None, Head { branch: 0, seq: 0 }, Vec::new())
        }
    };
    let files = all_of(files, new.turn.attachments.is_some())?;
    let begun = match (busy, new.turn.on_busy) {
        (None, _) => {
            let start = QueueStart {
                node: new.node,
                lease_seconds: new.lease_seconds,
                branch: new.branch,
                now: new.now,
            };
            let head = branch_for(tx, scope, thread.id, &new.turn, &start, (head, replaced.as_ref())).await?;
            let message = message_of(new, &new.turn);
            // The run points to the conversation alone, so it need not wait for the message.
            let placed =
                place_message(tx, scope, &mut thread, (message, &files), &new.turn, (head, start.now));
            let run =
                insert_run(tx, scope, new, &new.turn, (thread_id(new), Place::Under(&start, head.branch)));
            let (placed, run) = join(placed, run).await;
            placed?;
            let lease = Lease { run: new.run, fence: 1 };
            let opening = open_log(tx, &thread, lease, message, start.now).await?;
            Begun::Started(run?, lease, opening, open)
        }
        (Some((run, _)), OnBusy::Reject) => return Ok(Begun::Busy(run)),
        (Some(busy), policy) => {
            // Tied to its message already, which is to come.
            files::attach(tx, scope, &files, new.message).await?;
            Begun::Queued(enqueue(tx, scope, new, policy, busy).await?, open)
        }
    };
    remember(tx, scope, new.idempotency.as_ref(), new.run, new.now).await?;
    Ok(begun)
}

/// The files to attach to the turn's message, each in its place: those it names, or those of the message that it
/// edits. Asks nothing when there are none.
async fn attached(
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
    files::pick(tx, scope, conversation, &ids).await
}

/// Those that are there, each once; with `named`, none may be missing.
fn all_of(files: Vec<Option<File>>, named: bool) -> Result<Vec<File>> {
    match files.iter().position(Option::is_none) {
        Some(index) if named => Err(StoreError::NoAttachment(index)),
        _ => {
            let mut known = HashSet::new();
            Ok(files.into_iter().flatten().filter(|file| known.insert(file.id)).collect())
        }
    }
}

fn thread_id(new: &NewTurn) -> Uuid {
    new.turn.conversation.unwrap_or(new.conversation)
}

fn message_of(new: &NewTurn, turn: &StartTurn) -> Option<Uuid> {
    if turn.message.is_some() { Some(new.message) } else { turn.replace }
}

pub(super) async fn repeated(
    tx: &Transaction,
    scope: &Scope,
    idempotency: Option<&Idempotency>,
    now: Timestamp,
) -> Result<Option<Begun>> {
    let Some(idempotency) = idempotency else { return Ok(None) };
    tx.wait_in_line(&format!("{} {} {}", scope.workspace, caller(scope), idempotency.key)).await?;
    let text = format!(
        "SELECT body_hash, run_id FROM idempotency_keys \
         WHERE {} AND caller = $2 AND key = $3 AND created_at > $4",
        tx.inside("workspace_id")
    );
    let since = now.saturating_sub(KEY_LIFE).map_err(|error| StoreError::Internal(error.to_string()))?;
    let found = tx.row(&text, &[&scope.workspace, &caller(scope), &idempotency.key, &since]).await?;
    let Some(found) = found else { return Ok(None) };
    if found.try_get::<_, &[u8]>(0)? != idempotency.body_hash {
        return Ok(Some(Begun::KeyReused));
    }
    Ok(Some(Begun::Repeated(runs::by_id(tx, scope.workspace, found.try_get(1)?).await?)))
}

pub(super) async fn remember(
    tx: &Transaction,
    scope: &Scope,
    idempotency: Option<&Idempotency>,
    run: Uuid,
    now: Timestamp,
) -> Result<()> {
    let Some(idempotency) = idempotency else { return Ok(()) };
    tx.execute(
        "INSERT INTO idempotency_keys (workspace_id, caller, key, body_hash, run_id, created_at) \
         VALUES ($1, $2, $3, $4, $5, $6) ON CONFLICT (workspace_id, caller, key) DO UPDATE \
         SET body_hash = excluded.body_hash, run_id = excluded.run_id, created_at = excluded.created_at",
        &[&scope.workspace, &caller(scope), &idempotency.key, &idempotency.body_hash.as_slice(), &run, &now],
    )
    .await
    .map(|_| ())
}

/// So many begins of one user may be between their count and their commit at once: as many as there are connections
/// to work on, on a few nodes.
const AT_ONCE: u64 = 64;

/// What is open, or the limit that is reached. Far from the limits begins go on side by side; near one, one after the
/// other, so that none passes it.
pub(super) async fn open_runs(
    tx: &Transaction,
    scope: &Scope,
    limits: RunLimits,
) -> Result<std::result::Result<OpenRuns, TooManyRuns>> {
    let (mut user, mut workspace) = (false, false);
    loop {
        let open = count_open(tx, scope, limits).await?;
        if let Err(full) = limits.check(open) {
            return Ok(Err(full));
        }
        let near = |open: u64, limit: u64| limit > 0 && open + AT_ONCE >= limit;
        let near_workspace = near(open.workspace, limits.workspace);
        // Always the user's line first, so that no two transactions wait for each other.
        if !user && (near_workspace || near(open.user, limits.user)) {
            tx.wait_in_line(&format!("open runs {} {}", scope.workspace, scope.user)).await?;
            user = true;
        } else if !workspace && near_workspace {
            tx.wait_in_line(&format!("open runs {}", scope.workspace)).await?;
            workspace = true;
        } else {
            return Ok(Ok(open));
        }
    }
}

async fn count_open(tx: &Transaction, scope: &Scope, limits: RunLimits) -> Result<OpenRuns> {
    let text = count_text(&tx.inside("workspace_id"), limits);
    // Others' runs count though the caller may not see them.
    let others = limits.workspace > 0;
    if others {
        tx.see_all(true).await?;
    }
    let row = tx.row(&text, &[&scope.workspace, &scope.user]).await?;
    if others {
        tx.see_all(scope.sees_all()).await?;
    }
    row.map_or(Ok(OpenRuns::default()), |row| read_open(&row))
}

/// Counts the user's runs, and the workspace's where there is a limit of them.
fn count_text(inside: &str, limits: RunLimits) -> String {
    let (workspace, of_user) =
        if limits.workspace > 0 { ("count(*)", "") } else { ("0::bigint", "AND user_id = $2") };
    format!(
        "SELECT count(*) FILTER (WHERE user_id = $2), {workspace} FROM runs \
         WHERE {inside} {of_user} AND status IN ('queued', 'running')"
    )
}

fn read_open(row: &tokio_postgres::Row) -> Result<OpenRuns> {
    let count = |at| row.try_get::<_, i64>(at).map(i64::unsigned_abs);
    Ok(OpenRuns { user: count(0)?, workspace: count(1)? })
}

pub(super) async fn get_open(db: &Database, scope: &Scope, limits: RunLimits) -> Result<OpenRuns> {
    let text = count_text(&inside(db.dialect, "workspace_id"), limits);
    let query = Query { text: &text, params: vec![&scope.workspace, &scope.user] };
    let [rows] = db.read(&Settings::of(scope).seeing_all(), [query]).await?;
    rows.first().map_or(Ok(OpenRuns::default()), read_open)
}

async fn first_conversation(tx: &Transaction, scope: &Scope, new: &NewTurn) -> Result<Conversation> {
    let made = first_of(new)?;
    let write = Write { now: new.now, max_tabs: 0 };
    conversations::create(tx, scope, &made, new.conversation, &write).await
}

/// The conversation of a later turn, locked, and the message to replace, which must be a user's and in it.
async fn known_conversation(
    tx: &Transaction,
    scope: &Scope,
    id: Uuid,
    new: &NewTurn,
) -> Result<(Conversation, Option<Spot>)> {
    let thread = conversations::get_locked(tx, scope, id).await?;
    if let Some(message) = new.turn.brought.message {
        check_free(tx, scope, id, message).await?;
    }
    let Some(replace) = new.turn.replace else { return Ok((thread, None)) };
    match branches::place(tx, scope, id, replace).await? {
        Some(spot) if spot.from_user => Ok((thread, Some(spot))),
        _ => {
            let detail = "replace must name a user message of this conversation";
            Err(StoreError::Invalid { input: "/replace", detail })
        }
    }
}

/// A message id that a client brought is new to the conversation, its queue included.
async fn check_free(tx: &Transaction, scope: &Scope, conversation: Uuid, message: Uuid) -> Result<()> {
    let own = tx.inside("workspace_id");
    let text = format!(
        "SELECT 1 FROM messages WHERE {own} AND conversation_id = $2 AND id = $3 \
         UNION ALL SELECT 1 FROM runs WHERE {own} AND conversation_id = $2 AND status = 'queued' AND message_id = $3"
    );
    match tx.row(&text, &[&scope.workspace, &conversation, &message]).await? {
        Some(_) => Err(StoreError::Taken("message id")),
        None => Ok(()),
    }
}

/// The run that stands in the way, with its user message: the one under way, or else the first queued.
async fn under_way(
    tx: &Transaction,
    scope: &Scope,
    conversation: Uuid,
) -> Result<Option<(Uuid, Option<Uuid>)>> {
    let text = format!(
        "SELECT id, CASE status WHEN 'running' THEN message_id END FROM runs \
         WHERE {} AND conversation_id = $2 AND status IN ('running', 'queued') \
         ORDER BY status = 'running' DESC, queue_position LIMIT 1",
        tx.inside("workspace_id")
    );
    let row = tx.row(&text, &[&scope.workspace, &conversation]).await?;
    row.map(|row| Ok((row.try_get(0)?, row.try_get(1)?))).transpose()
}

/// Puts the turn into the queue of its conversation, where `busy` is under way.
async fn enqueue(
    tx: &Transaction,
    scope: &Scope,
    new: &NewTurn,
    policy: OnBusy,
    (busy, message): (Uuid, Option<Uuid>),
) -> Result<Run> {
    let mut turn = new.turn.clone();
    let conversation = thread_id(new);
    let own = tx.inside("workspace_id");
    let front = policy != OnBusy::Enqueue;
    if front {
        let text =
            format!("UPDATE runs SET cancel_requested = true WHERE {own} AND id = $2 AND status = 'running'");
        tx.execute(&text, &[&scope.workspace, &busy]).await?;
    }
    if policy == OnBusy::Rollback && turn.replace.is_none() {
        // It takes the other's place and nothing of it.
        turn.replace = message;
        turn.attachments.get_or_insert_default();
    }
    let text = format!(
        "SELECT CASE WHEN $3::boolean THEN coalesce(min(queue_position), 1) - 1 ELSE coalesce(max(queue_position), 0) + 1 END \
         FROM runs WHERE {own} AND conversation_id = $2 AND status = 'queued'"
    );
    let row = tx.row(&text, &[&scope.workspace, &conversation, &front]).await?.ok_or(StoreError::NotFound)?;
    insert_run(tx, scope, new, &turn, (conversation, Place::Queued(row.try_get(0)?))).await
}

/// Where a new run begins its life.
#[derive(Clone, Copy)]
enum Place<'a> {
    Queued(i64),
    /// Under way on a branch.
    Under(&'a QueueStart, i32),
}

async fn insert_run(
    tx: &Transaction,
    scope: &Scope,
    new: &NewTurn,
    turn: &StartTurn,
    (conversation, place): (Uuid, Place<'_>),
) -> Result<Run> {
    let (status, position, fence, node, started, branch) = match place {
        Place::Queued(position) => (RunStatus::Queued, Some(position), 0_i64, None, None, 0),
        Place::Under(start, branch) => {
            (RunStatus::Running, None, 1, Some(start.node.to_string()), Some(start.now), branch)
        }
    };
    let text = format!(
        "INSERT INTO runs AS r (workspace_id, id, conversation_id, status, message_id, user_id, on_disconnect, \
         request, queue_position, created_at, fence, node, lease_until, started_at, branch, last_entry, last_event, \
         assets) VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12::text, \
         CASE WHEN $12::text IS NOT NULL THEN {} END, $14, $15, $11, $11, CASE WHEN $12::text IS NOT NULL THEN {} END) \
         RETURNING {}",
        leases::until("$13"),
        files::assets(tx.dialect, ("conversation_id", "$3")),
        runs::COLUMNS
    );
    let row = tx
        .row(
            &text,
            &[
                &scope.workspace,
                &new.run,
                &conversation,
                &status.as_str(),
                &message_of(new, turn),
                &scope.user,
                &to_json(&turn.on_disconnect)?.trim_matches('"'),
                &to_json(turn)?,
                &position,
                &new.now,
                &fence,
                &node,
                &(new.lease_seconds as f64),
                &started,
                &branch,
            ],
        )
        .await?;
    runs::read(&row.ok_or(StoreError::NotFound)?)
}

pub(super) async fn start_queued(
    tx: &Transaction,
    waiting: &Waiting,
    start: &QueueStart,
) -> Result<Option<(Run, Lease, Batch)>> {
    let scope = own_scope(waiting.workspace);
    let Some(mut thread) = conversations::find_locked_any(tx, &scope, waiting.conversation).await? else {
        return Ok(None);
    };
    if thread.deleted_at.is_some() {
        // What was deleted starts nothing any more.
        cancel_all(tx, &scope, Some(thread.id), start.now).await?;
        return Ok(None);
    }
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
    let (run, message, turn): (Uuid, _, StartTurn) =
        (next.try_get(0)?, next.try_get(1)?, parse_json(next.try_get(2)?)?);
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
    place_message(tx, &scope, &mut thread, (message, &files), &turn, (head, start.now)).await?;
    let text = format!(
        "UPDATE runs r SET status = 'running', fence = r.fence + 1, node = $3, lease_until = {}, started_at = $5, \
         queue_position = NULL, branch = $6, last_entry = 1, last_event = 1, assets = {} WHERE {own} AND r.id = $2 RETURNING {}, r.fence",
        leases::until("$4"),
        files::assets(tx.dialect, ("conversation_id", "r.conversation_id")),
        runs::COLUMNS
    );
    let (node, seconds) = (start.node.to_string(), start.lease_seconds as f64);
    let row = tx.row(&text, &[&waiting.workspace, &run, &node, &seconds, &start.now, &head.branch]).await?;
    let row = row.ok_or(StoreError::NotFound)?;
    let lease = Lease { run, fence: row.try_get(runs::MORE)? };
    let opening = open_log(tx, &thread, lease, message, start.now).await?;
    Ok(Some((runs::read(&row)?, lease, opening)))
}

/// Begins the log of a run that was started just now, its message placed.
async fn open_log(
    tx: &Transaction,
    thread: &Conversation,
    lease: Lease,
    message: Option<Uuid>,
    now: Timestamp,
) -> Result<Batch> {
    let (conversation, conversation_id) = (Some(thread.id), thread.first_message);
    let opening = opening(Turn { conversation, run: lease.run, message, conversation_id }, now)?;
    log::open(tx, &Held { workspace: thread.workspace, lease }, &opening).await?;
    Ok(opening)
}

/// The branch that the turn's messages stand on: the current one, or a new one where it replaces a message.
async fn branch_for(
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

/// Puts the user's message with its files at the end of the branch, and what the turn says into the conversation.
async fn place_message(
    tx: &Transaction,
    scope: &Scope,
    thread: &mut Conversation,
    (message, files): (Option<Uuid>, &[File]),
    turn: &StartTurn,
    (head, now): (Head, Timestamp),
) -> Result<()> {
    let titled = thread.title.is_some();
    note_turn(thread, turn);
    thread.message_count = head.seq;
    let new = match (&turn.message, message) {
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
    let insert = async {
        match &new {
            Some(new) => {
                let place = Head { seq: head.seq + 1, ..head };
                let inserted = messages::insert(tx, scope, thread.id, place, new);
                let (inserted, attached) = join(inserted, files::attach(tx, scope, files, new.id)).await;
                inserted.and(attached)
            }
            None => Ok(()),
        }
    };
    let (inserted, saved) = join(insert, conversations::save(tx, thread)).await;
    inserted.and(saved)?;
    if !titled && thread.title.is_some() {
        search::index_title(tx, scope, thread).await?;
    }
    Ok(())
}

pub(super) async fn get_dispatch(tx: &Transaction, held: &Held, replay: usize) -> Result<Dispatch> {
    let scope = own_scope(held.workspace);
    let text = format!(
        "SELECT {}, r.request, r.branch, r.assets IS NOT NULL, r.user_id FROM runs r \
         WHERE {} AND r.id = $2 AND r.fence = $3 AND r.status = 'running'",
        runs::COLUMNS,
        tx.inside("r.workspace_id")
    );
    let row = tx.row(&text, &[&held.workspace, &held.lease.run, &held.lease.fence]).await?;
    let row = row.ok_or(StoreError::Lost)?;
    let (run, turn) = (runs::read(&row)?, parse_json(row.try_get(runs::MORE)?)?);
    let (branch, has_files): (Option<i32>, bool) =
        (row.try_get(runs::MORE + 1)?, row.try_get(runs::MORE + 2)?);
    let files = if has_files { files::given_to(tx, held.workspace, run.id).await? } else { Vec::new() };
    let (conversation, message, before) = match (run.conversation, run.execution) {
        (Some(id), _) => {
            let conversation = conversations::get(tx, &scope, id).await?;
            let message = run.message.ok_or(StoreError::NotFound)?;
            let (message, before) = said(tx, &scope, id, message, (branch, replay)).await?;
            (Some(conversation), message, before)
        }
        (None, Some(id)) => (None, execution_message(id, &run, &turn), Vec::new()),
        (None, None) => return Err(StoreError::NotFound),
    };
    let user = row.try_get(runs::MORE + 3)?;
    Ok(Dispatch { run, user, conversation, message, before, turn, files })
}

/// A message and so many before it.
async fn said(
    tx: &Transaction,
    scope: &Scope,
    conversation: Uuid,
    message: Uuid,
    (branch, replay): (Option<i32>, usize),
) -> Result<(Message, Vec<Message>)> {
    let message = messages::get(tx, scope, conversation, message).await?;
    let window = Window::Before { message: message.id, limit: replay };
    let (texts, limits) = messages::window_queries(tx.dialect, Start::Number, window);
    let [anchor, newest] = messages::queries(&texts, scope, &conversation, &branch, &limits);
    let anchor = tx.rows(anchor.text, &anchor.params).await?;
    let newest = tx.rows(newest.text, &newest.params).await?;
    let (before, _) = messages::read_window(window, &anchor, &newest)?;
    Ok((message, before))
}

pub(super) async fn settle(tx: &Transaction, held: &Held, settlement: &Settlement) -> Result<Settled> {
    debug_assert!(RunStatus::Running.may_become(settlement.status));
    let scope = own_scope(held.workspace);
    let conversation = conversation_of(tx, held).await?;
    let thread = match conversation {
        // The conversation may have been deleted meanwhile: what the user saw is kept all the same.
        Some(id) => conversations::find_locked_any(tx, &scope, id).await?,
        None => None,
    };
    let (run, branch, queue) = end(tx, held, settlement).await?;
    let counted = usage::add_of_run(tx, held, (settlement.usage, 1), settlement.now);
    if let (Some(mut thread), Some(assistant)) = (thread, &settlement.assistant) {
        let (current, head) = join(
            branches::head(tx, &scope, thread.id, None),
            branches::head(tx, &scope, thread.id, Some(branch)),
        )
        .await;
        let (current, head) = (current?, head?);
        let shown = thread.message_count;
        let place = Head { branch, seq: head.seq + 1 };
        // With what was counted while it went on.
        let tokens = run.usage.input_tokens + run.usage.output_tokens;
        thread.note_message(assistant.id, false, &plain_text(&assistant.content), tokens, settlement.now);
        thread.message_count = if current.branch == branch { place.seq } else { shown };
        let inserted = messages::insert(tx, &scope, thread.id, place, assistant);
        let (inserted, saved, counted) = join3(inserted, conversations::save(tx, &thread), counted).await;
        inserted.and(saved).and(counted)?;
    } else {
        counted.await?;
    }
    Ok(Settled { run, queue })
}

/// The conversation of a run, which never changes.
async fn conversation_of(tx: &Transaction, held: &Held) -> Result<Option<Uuid>> {
    let text = format!("SELECT conversation_id FROM runs WHERE {} AND id = $2", tx.inside("workspace_id"));
    let row = tx.row(&text, &[&held.workspace, &held.lease.run]).await?.ok_or(StoreError::Lost)?;
    Ok(row.try_get(0)?)
}

/// Ends the run with its last batch, under its row's lock, or not at all. Answers its branch too, and whether
/// another run waits: a begin that put one there held the conversation's lock, which is this settlement's by now.
async fn end(tx: &Transaction, held: &Held, settlement: &Settlement) -> Result<(Run, i32, bool)> {
    let text = format!(
        "WITH ended AS (UPDATE runs r SET status = $4, ended_at = $5, lease_until = NULL, error_code = $6, \
             error_message = $7, assistant_message_id = $8, \
             input_tokens = r.input_tokens + $9, output_tokens = r.output_tokens + $10, \
             last_entry = $11::bigint, last_event = $12::bigint, response = $16 \
             WHERE {} AND r.id = $2 AND r.fence = $3 AND r.status = 'running' \
               AND r.last_entry = $13::bigint - 1 AND r.last_event = $14::bigint - 1 \
               AND ($17::boolean OR r.upload_used_at IS NULL) \
             RETURNING {columns}, r.branch), \
         logged AS (INSERT INTO run_events (workspace_id, run_id, first_entry, last_entry, last_seq, entries) \
             SELECT r.workspace_id, r.id, $13, $11, $12, $15 FROM ended r WHERE $15::text <> '') \
         SELECT {columns}, r.branch, EXISTS (SELECT 1 FROM runs q WHERE q.workspace_id = r.workspace_id \
             AND q.conversation_id = r.conversation_id AND q.status = 'queued') FROM ended r",
        tx.inside("r.workspace_id"),
        columns = runs::COLUMNS
    );
    let (error, batch) = (settlement.error.as_ref(), &settlement.batch);
    let row = tx
        .row(
            &text,
            &[
                &held.workspace,
                &held.lease.run,
                &held.lease.fence,
                &settlement.status.as_str(),
                &settlement.now,
                &error.map(|error| &error.code),
                &error.map(|error| error.message.replace('\0', "\u{fffd}")),
                &settlement.assistant.as_ref().map(|message| message.id),
                &settlement.usage.input_tokens,
                &settlement.usage.output_tokens,
                &batch.last_entry,
                &batch.last_seq,
                &batch.first_entry,
                &batch.first_seq,
                &&*batch.entries,
                &settlement.response.as_ref().map(|text| text.replace('\0', "\u{fffd}")),
                &settlement.files_logged,
            ],
        )
        .await?;
    match row {
        Some(row) => Ok((runs::read(&row)?, row.try_get(runs::MORE)?, row.try_get(runs::MORE + 1)?)),
        None if settlement.files_logged => Err(StoreError::Lost),
        None => Err(why_not_ended(tx, held).await?),
    }
}

/// A run that was not ended waits for its files, or is another's.
async fn why_not_ended(tx: &Transaction, held: &Held) -> Result<StoreError> {
    let text = format!(
        "SELECT upload_used_at IS NOT NULL FROM runs \
         WHERE {} AND id = $2 AND fence = $3 AND status = 'running'",
        tx.inside("workspace_id")
    );
    let row = tx.row(&text, &[&held.workspace, &held.lease.run, &held.lease.fence]).await?;
    let waiting = row.map_or(Ok(false), |row| row.try_get(0))?;
    Ok(if waiting { StoreError::FilesWaiting } else { StoreError::Lost })
}

/// Marks the runs of a conversation, or of the whole workspace, for their end, as a delete does: queued ones at once.
pub(super) async fn cancel_all(
    tx: &Transaction,
    scope: &Scope,
    conversation: Option<Uuid>,
    now: Timestamp,
) -> Result<()> {
    let own = tx.inside("workspace_id");
    let which = format!("{own} AND ($2::uuid IS NULL OR conversation_id = $2)");
    let text = format!("UPDATE runs SET cancel_requested = true WHERE {which} AND status = 'running'");
    tx.execute(&text, &[&scope.workspace, &conversation]).await?;
    let text = format!(
        "UPDATE runs SET status = 'cancelled', ended_at = $3, queue_position = NULL, error_code = 'cancelled', \
         error_message = 'the conversation was deleted' WHERE {which} AND status = 'queued'"
    );
    tx.execute(&text, &[&scope.workspace, &conversation, &now]).await.map(|_| ())
}
