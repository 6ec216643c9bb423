//! The writes of a turn: begin, start and settle, each one transaction guarded by a fence.
//!
//! Whoever needs both locks a conversation before its runs, so that no two transactions wait for each other.

use domain::conversation::{Conversation, ConversationPatch, NewConversation, Write};
use domain::message::{Window, plain_text};
use domain::run::{Lease, OnBusy, Run, RunStatus, StartTurn};
use domain::scope::Scope;
use futures_util::future::join;
use jiff::Timestamp;
use uuid::Uuid;

use super::branches::{self, Head, Start};
use super::transaction::Transaction;
use super::{conversations, leases, messages, runs, search};
use crate::error::{Result, StoreError};
use crate::turns::{
    Begun, Dispatch, Held, KEY_LIFE, NewTurn, QueueStart, Settled, Settlement, Waiting, caller, note_turn,
    own_scope, parse_json, to_json, user_message,
};

pub(super) async fn begin(tx: &Transaction, scope: &Scope, new: &NewTurn) -> Result<Begun> {
    if let Some(before) = repeated(tx, scope, new).await? {
        return Ok(before);
    }
    if open_runs(tx, scope).await? >= new.max_open_runs as i64 {
        return Ok(Begun::TooManyRuns);
    }
    let (mut thread, busy, head) = match new.turn.conversation {
        Some(id) => {
            let thread = known_conversation(tx, scope, id, new).await?;
            // Asked for under the conversation's lock: what another begin committed is seen.
            let (busy, head) = join(under_way(tx, scope, id), branches::head(tx, scope, id, None)).await;
            (thread, busy?, head?)
        }
        None => (first_conversation(tx, scope, new).await?, None, Head { branch: 0, seq: 0 }),
    };
    let begun = match (busy, new.turn.on_busy) {
        (None, _) => {
            let start = QueueStart {
                node: new.node,
                lease_seconds: new.lease_seconds,
                branch: new.branch,
                now: new.now,
            };
            let head = branch_for(tx, scope, thread.id, &new.turn, &start, head).await?;
            let message = message_of(new, &new.turn);
            // The run points to the conversation alone, so it need not wait for the message.
            let placed = place_message(tx, scope, &mut thread, message, &new.turn, (head, start.now));
            let run =
                insert_run(tx, scope, new, &new.turn, (thread_id(new), Place::Under(&start, head.branch)));
            let (placed, run) = join(placed, run).await;
            placed?;
            Begun::Started(run?, Lease { run: new.run, fence: 1 })
        }
        (Some((run, _)), OnBusy::Reject) => return Ok(Begun::Busy(run)),
        (Some(busy), policy) => Begun::Queued(enqueue(tx, scope, new, policy, busy).await?),
    };
    remember(tx, scope, new).await?;
    Ok(begun)
}

fn thread_id(new: &NewTurn) -> Uuid {
    new.turn.conversation.unwrap_or(new.conversation)
}

fn message_of(new: &NewTurn, turn: &StartTurn) -> Option<Uuid> {
    if turn.message.is_some() { Some(new.message) } else { turn.replace }
}

async fn repeated(tx: &Transaction, scope: &Scope, new: &NewTurn) -> Result<Option<Begun>> {
    let Some(idempotency) = &new.idempotency else { return Ok(None) };
    // Requests with one key go one after the other; the next one's question sees what this one committed.
    let name = format!("{} {} {}", scope.workspace, caller(scope), idempotency.key);
    tx.rows("SELECT pg_advisory_xact_lock(hashtextextended($1, 0))", &[&name]).await?;
    let text = format!(
        "SELECT body_hash, run_id FROM idempotency_keys \
         WHERE {} AND caller = $2 AND key = $3 AND created_at > $4",
        tx.inside("workspace_id")
    );
    let since = new.now.saturating_sub(KEY_LIFE).map_err(|error| StoreError::Internal(error.to_string()))?;
    let found = tx.row(&text, &[&scope.workspace, &caller(scope), &idempotency.key, &since]).await?;
    let Some(found) = found else { return Ok(None) };
    if found.try_get::<_, &[u8]>(0)? != idempotency.body_hash {
        return Ok(Some(Begun::KeyReused));
    }
    Ok(Some(Begun::Repeated(runs::by_id(tx, scope.workspace, found.try_get(1)?).await?)))
}

async fn remember(tx: &Transaction, scope: &Scope, new: &NewTurn) -> Result<()> {
    let Some(idempotency) = &new.idempotency else { return Ok(()) };
    tx.execute(
        "INSERT INTO idempotency_keys (workspace_id, caller, key, body_hash, run_id, created_at) \
         VALUES ($1, $2, $3, $4, $5, $6) ON CONFLICT (workspace_id, caller, key) DO UPDATE \
         SET body_hash = excluded.body_hash, run_id = excluded.run_id, created_at = excluded.created_at",
        &[
            &scope.workspace,
            &caller(scope),
            &idempotency.key,
            &idempotency.body_hash.as_slice(),
            &new.run,
            &new.now,
        ],
    )
    .await
    .map(|_| ())
}

async fn open_runs(tx: &Transaction, scope: &Scope) -> Result<i64> {
    let text = format!(
        "SELECT count(*) FROM runs WHERE {} AND user_id = $2 AND status IN ('queued', 'running')",
        tx.inside("workspace_id")
    );
    let row = tx.row(&text, &[&scope.workspace, &scope.user]).await?;
    row.map_or(Ok(0), |row| Ok(row.try_get(0)?))
}

async fn first_conversation(tx: &Transaction, scope: &Scope, new: &NewTurn) -> Result<Conversation> {
    let turn = &new.turn;
    if turn.replace.is_some() {
        return Err(StoreError::Invalid { input: "/replace", detail: "replace needs a conversation" });
    }
    let made = NewConversation {
        id: Some(new.conversation),
        source: turn.source,
        patch: ConversationPatch {
            mode: turn.mode.map(Some),
            page_path: turn.page_path.clone().map(Some),
            model: turn.model.clone().map(Some),
            agent_id: turn.agent.clone().map(Some),
            ..ConversationPatch::default()
        },
    };
    let write = Write { now: new.now, max_tabs: 0 };
    conversations::create(tx, scope, &made, new.conversation, &write).await
}

/// The conversation of a later turn, locked; the message to replace must be a user's and in it.
async fn known_conversation(
    tx: &Transaction,
    scope: &Scope,
    id: Uuid,
    new: &NewTurn,
) -> Result<Conversation> {
    let thread = conversations::get_locked(tx, scope, id).await?;
    if let Some(replace) = new.turn.replace {
        match branches::place(tx, scope, id, replace).await? {
            Some((_, _, true)) => {}
            _ => {
                let detail = "replace must name a user message of this conversation";
                return Err(StoreError::Invalid { input: "/replace", detail });
            }
        }
    }
    Ok(thread)
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
        turn.replace = message;
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
         request, queue_position, created_at, fence, node, lease_until, started_at, branch) \
         VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12::text, \
         CASE WHEN $12::text IS NOT NULL THEN {} END, $14, $15) RETURNING {}",
        leases::until("$13"),
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
) -> Result<Option<(Run, Lease)>> {
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
    let head = branch_for(tx, &scope, thread.id, &turn, start, head).await?;
    place_message(tx, &scope, &mut thread, message, &turn, (head, start.now)).await?;
    let text = format!(
        "UPDATE runs r SET status = 'running', fence = r.fence + 1, node = $3, lease_until = {}, started_at = $5, \
         queue_position = NULL, branch = $6 WHERE {own} AND r.id = $2 RETURNING {}, r.fence",
        leases::until("$4"),
        runs::COLUMNS
    );
    let (node, seconds) = (start.node.to_string(), start.lease_seconds as f64);
    let row = tx.row(&text, &[&waiting.workspace, &run, &node, &seconds, &start.now, &head.branch]).await?;
    let row = row.ok_or(StoreError::NotFound)?;
    Ok(Some((runs::read(&row)?, Lease { run, fence: row.try_get(runs::MORE)? })))
}

/// The branch that the turn's messages stand on: the current one, or a new one where it replaces a message.
async fn branch_for(
    tx: &Transaction,
    scope: &Scope,
    conversation: Uuid,
    turn: &StartTurn,
    start: &QueueStart,
    current: Head,
) -> Result<Head> {
    let Some(replaced) = turn.replace else { return Ok(current) };
    let place = branches::place(tx, scope, conversation, replaced).await?;
    let (parent, seq, _) = place.ok_or(StoreError::NotFound)?;
    // An edit stands in the place of the message; a new answer stands after it.
    let fork_seq = if turn.message.is_some() { seq - 1 } else { seq };
    let branch =
        branches::create(tx, scope, conversation, start.branch, (parent, fork_seq), start.now).await?;
    Ok(Head { branch, seq: fork_seq })
}

/// Puts the user's message at the end of the branch, and what the turn says into the conversation.
async fn place_message(
    tx: &Transaction,
    scope: &Scope,
    thread: &mut Conversation,
    message: Option<Uuid>,
    turn: &StartTurn,
    (head, now): (Head, Timestamp),
) -> Result<()> {
    let titled = thread.title.is_some();
    note_turn(thread, turn);
    thread.message_count = head.seq;
    let new = match (&turn.message, message) {
        (Some(said), Some(id)) => {
            thread.note_message(id, true, &said.text, 0, now);
            Some(user_message(id, said, now)?)
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
                messages::insert(tx, scope, thread.id, place, new).await
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
        "SELECT {}, r.request, r.branch FROM runs r \
         WHERE {} AND r.id = $2 AND r.fence = $3 AND r.status = 'running'",
        runs::COLUMNS,
        tx.inside("r.workspace_id")
    );
    let row = tx.row(&text, &[&held.workspace, &held.lease.run, &held.lease.fence]).await?;
    let row = row.ok_or(StoreError::Lost)?;
    let (run, turn) = (runs::read(&row)?, parse_json(row.try_get(runs::MORE)?)?);
    let branch: Option<i32> = row.try_get(runs::MORE + 1)?;
    let id = run.conversation.ok_or(StoreError::NotFound)?;
    let conversation = conversations::get(tx, &scope, id).await?;
    let message = messages::get(tx, &scope, id, run.message.ok_or(StoreError::NotFound)?).await?;
    let window = Window::Before { message: message.id, limit: replay };
    let (texts, limits) = messages::window_queries(tx.dialect, Start::Number, window);
    let [anchor, newest] = messages::queries(&texts, &scope, &id, &branch, &limits);
    let anchor = tx.rows(anchor.text, &anchor.params).await?;
    let newest = tx.rows(newest.text, &newest.params).await?;
    let (before, _) = messages::read_window(window, &anchor, &newest)?;
    Ok(Dispatch { run, conversation, message, before, turn })
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
    if let (Some(mut thread), Some(assistant)) = (thread, &settlement.assistant) {
        let (current, head) = join(
            branches::head(tx, &scope, thread.id, None),
            branches::head(tx, &scope, thread.id, Some(branch)),
        )
        .await;
        let (current, head) = (current?, head?);
        let shown = thread.message_count;
        let place = Head { branch, seq: head.seq + 1 };
        let tokens = settlement.usage.input_tokens + settlement.usage.output_tokens;
        thread.note_message(assistant.id, false, &plain_text(&assistant.content), tokens, settlement.now);
        thread.message_count = if current.branch == branch { place.seq } else { shown };
        let inserted = messages::insert(tx, &scope, thread.id, place, assistant);
        let (inserted, saved) = join(inserted, conversations::save(tx, &thread)).await;
        inserted.and(saved)?;
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
             error_message = $7, assistant_message_id = $8, input_tokens = $9, output_tokens = $10, \
             last_entry = $11::bigint, last_event = $12::bigint \
             WHERE {} AND r.id = $2 AND r.fence = $3 AND r.status = 'running' \
               AND r.last_entry = $13::bigint - 1 AND r.last_event = $14::bigint - 1 \
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
                &batch.entries,
            ],
        )
        .await?
        .ok_or(StoreError::Lost)?;
    Ok((runs::read(&row)?, row.try_get(runs::MORE)?, row.try_get(runs::MORE + 1)?))
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
