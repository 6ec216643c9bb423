//! The first of the three writes: a turn is accepted, and put under way or into the queue.

use domain::conversation::{Conversation, Write};
use domain::file::File;
use domain::run::{Lease, OnBusy, Run, RunStatus, StartTurn};
use domain::scope::Scope;
use futures_util::future::{join3, try_join5};
use uuid::Uuid;

use super::append;
use super::idempotency::{self, go_on, repeated};
use super::open_runs::open_runs;
use super::start::{all_of, attached, branch_for, place, say};
use crate::error::{Result, StoreError};
use crate::postgres::branches::{self, Head, Spot};
use crate::postgres::runs::RUNNING;
use crate::postgres::transaction::Transaction;
use crate::postgres::{agents, conversations, leases, run_files, runs, usage};
use crate::turns::{Begun, Held, NewTurn, QueueStart, first_dispatch, first_of, thread_opening, to_json};

pub(super) async fn begin(tx: &Transaction, scope: &Scope, new: &NewTurn) -> Result<Begun> {
    if let Some(before) = repeated(tx, scope, new.idempotency.as_ref(), new.now).await? {
        return go_on(tx, before, new.turn.on_disconnect).await;
    }
    let (open, spent, first) = join3(
        open_runs(tx, scope, new.open_runs),
        usage::spent(tx, scope, new.tokens, new.now),
        first_conversation(tx, scope, new),
    )
    .await;
    let open = match open? {
        Ok(open) => open.and_one(),
        Err(full) => return Ok(Begun::TooManyRuns(full)),
    };
    if let Some(spent) = spent? {
        return Ok(Begun::OutOfTokens(spent));
    }
    let (mut thread, replaced, busy, head, files) = match (new.turn.conversation, first?) {
        (Some(id), _) => {
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
        (None, Some(first)) if new.turn.attachments.as_ref().is_none_or(Vec::is_empty) => {
            (first, None, None, Head { branch: 0, seq: 0 }, Vec::new())
        }
        (None, _) => return Err(StoreError::NoAttachment(0)),
    };
    let files = all_of(files, new.turn.attachments.is_some())?;
    let begun = match (busy, new.turn.on_busy) {
        (None, _) => {
            let start = QueueStart {
                node: new.node,
                lease_seconds: new.lease_seconds,
                branch: new.branch,
                now: new.now,
            }
            .in_order(&thread);
            let head = branch_for(tx, scope, thread.id, &new.turn, &start, (head, replaced.as_ref())).await?;
            let message = message_of(new, &new.turn);
            let said = say(&mut thread, (message, &files), &new.turn, (head, start.now))?;
            agents::decide_kind(tx, scope, &mut thread).await?;
            let opening = thread_opening(&thread, new.run, message, start.now)?;
            let lease = Lease { run: new.run, fence: 1 };
            let held = Held { workspace: scope.workspace, lease };
            // All of it goes out at once, its end too, in this order: the rest points to the conversation, the log to
            // the run.
            // Those that may be refused are prepared before, so that the refusal is the first that is heard.
            match new.turn.conversation {
                None => tx.prepare(conversations::INSERT).await?,
                Some(_) => tx.prepare(&conversations::save_text(tx)).await?,
            }
            tx.prepare(&insert_run_text(tx)).await?;
            let last = try_join5(
                write_row(tx, &thread, new),
                insert_run(tx, scope, new, &new.turn, (thread.id, Place::Under(&start, head.branch))),
                append::open_log(tx, &held, &opening),
                place(tx, scope, &thread, (&said, &files), head),
                remember(tx, scope, new),
            );
            let (_, run, ..) = tx.ending(last).await?;
            let dispatch = match new.turn.conversation {
                None => first_dispatch(scope, &run, &thread, new)?,
                Some(_) => None,
            };
            Begun::Started { run, lease, opening, open, dispatch }
        }
        (Some((run, _)), OnBusy::Reject) => return Ok(Begun::Busy(run)),
        (Some(busy), policy) => {
            // Those it names are tied to its message already, which is to come. Those of another message stay there until
            // it starts: it may never.
            if new.turn.message.is_some() && new.turn.attachments.is_some() {
                let free: Vec<File> = files.into_iter().filter(|file| file.message.is_none()).collect();
                run_files::attach(tx, scope, &free, new.message).await?;
            }
            let run = enqueue(tx, scope, new, policy, busy).await?;
            remember(tx, scope, new).await?;
            Begun::Queued(run, open)
        }
    };
    Ok(begun)
}

async fn remember(tx: &Transaction, scope: &Scope, new: &NewTurn) -> Result<()> {
    idempotency::remember(tx, scope, new.idempotency.as_ref(), new.run, new.now).await
}

fn thread_id(new: &NewTurn) -> Uuid {
    new.turn.conversation.unwrap_or(new.conversation)
}

fn message_of(new: &NewTurn, turn: &StartTurn) -> Option<Uuid> {
    if turn.message.is_some() { Some(new.message) } else { turn.replace }
}

/// The conversation that a first turn makes; its row is written with the turn's message.
async fn first_conversation(tx: &Transaction, scope: &Scope, new: &NewTurn) -> Result<Option<Conversation>> {
    if new.turn.conversation.is_some() {
        return Ok(None);
    }
    let write = Write { now: new.now, max_tabs: 0 };
    conversations::make(tx, scope, &first_of(new)?, new.conversation, &write).await.map(Some)
}

async fn write_row(tx: &Transaction, thread: &Conversation, new: &NewTurn) -> Result<()> {
    match new.turn.conversation {
        None => conversations::insert(tx, thread).await,
        Some(_) => conversations::save(tx, thread).await,
    }
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

/// A message id that a client brought is new to the conversation, its queue included. A run's id is its answer's.
async fn check_free(tx: &Transaction, scope: &Scope, conversation: Uuid, message: Uuid) -> Result<()> {
    let own = tx.inside("workspace_id");
    let text = format!(
        "SELECT 1 FROM messages WHERE {own} AND conversation_id = $2 AND id = $3 \
         UNION ALL SELECT 1 FROM runs WHERE {own} AND conversation_id = $2 AND status = 'queued' AND message_id = $3 \
         UNION ALL SELECT 1 FROM runs WHERE {own} AND id = $3 AND conversation_id = $2"
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
    let front = policy.interrupts();
    let mut displaced = message;
    if front {
        let text = format!("UPDATE runs SET cancel_requested = true WHERE {own} AND id = $2 AND {RUNNING}");
        tx.execute(&text, &[&scope.workspace, &busy]).await?;
        displaced = displaced.or(cancel_interrupting(tx, scope, conversation, new).await?);
    }
    if policy == OnBusy::Rollback && turn.replace.is_none() {
        // It takes the other's place and nothing of it.
        turn.replace = displaced;
        turn.attachments.get_or_insert_default();
    }
    let text = format!(
        "SELECT CASE WHEN $3::boolean THEN coalesce(min(queue_position), 1) - 1 ELSE coalesce(max(queue_position), 0) + 1 END \
         FROM runs WHERE {own} AND conversation_id = $2 AND status = 'queued'"
    );
    let row = tx.row(&text, &[&scope.workspace, &conversation, &front]).await?.ok_or(StoreError::NotFound)?;
    insert_run(tx, scope, new, &turn, (conversation, Place::Queued(row.try_get(0)?))).await
}

/// Of those that wait, the ones that interrupt as well give way to the newest. Answers the message whose place one of
/// them was to take.
async fn cancel_interrupting(
    tx: &Transaction,
    scope: &Scope,
    conversation: Uuid,
    new: &NewTurn,
) -> Result<Option<Uuid>> {
    let text = runs::queue(tx.dialect);
    let rows = tx.rows(&text, &[&scope.workspace, &conversation]).await?;
    let mut displaced = None;
    for (run, turn) in runs::read_queue(&rows)? {
        if turn.on_busy.interrupts() {
            runs::cancel_queued(tx, scope, &run, new.now).await?;
            displaced = turn.replace.filter(|_| turn.on_busy == OnBusy::Rollback).or(displaced);
        }
    }
    Ok(displaced)
}

/// Where a new run begins its life.
#[derive(Clone, Copy)]
enum Place<'a> {
    Queued(i64),
    /// Under way on a branch.
    Under(&'a QueueStart, i32),
}

fn insert_run_text(tx: &Transaction) -> String {
    format!(
        "INSERT INTO runs AS r (workspace_id, id, conversation_id, status, message_id, user_id, on_disconnect, \
         request, queue_position, created_at, fence, node, lease_until, started_at, branch, last_entry, last_event, \
         assets) VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12::text, \
         CASE WHEN $12::text IS NOT NULL THEN {} END, $14, $15, $11, $11, CASE WHEN $12::text IS NOT NULL THEN {} END) \
         RETURNING {}",
        leases::until("$13"),
        run_files::assets(tx.dialect, ("conversation_id", "$3")),
        runs::COLUMNS
    )
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
    let row = tx
        .row(
            &insert_run_text(tx),
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
