//! The third of the three writes: a run ends, with its answer, if it is still whose it was.

use domain::message::NewMessage;
use domain::run::{Lease, Run, RunStatus, Usage};
use jiff::Timestamp;
use rusqlite::{Connection, OptionalExtension, params};
use uuid::Uuid;

use super::append;
use crate::error::{Result, StoreError};
use crate::sqlite::{branches, conversations, messages, runs, usage};
use crate::turns::{Held, Settled, Settlement, own_scope};

pub(super) fn settle(db: &Connection, held: &Held, settlement: &Settlement) -> Result<Settled> {
    debug_assert!(settlement.status.is_settled() && RunStatus::Running.may_become(settlement.status));
    let (error, batch, most) = (settlement.error.as_ref(), &settlement.batch, settlement.most_counted());
    let text = format!(
        "UPDATE runs SET status = ?4, ended_at = max(?5, coalesce(started_at, 0)), lease_until = NULL, \
         error_code = ?6, error_message = ?7, assistant_message_id = ?8, \
         input_tokens = input_tokens + ?9, output_tokens = output_tokens + ?10, \
         response = ?11, last_entry = ?13, last_event = ?14 \
         WHERE workspace_id = ?1 AND id = ?2 AND fence = ?3 AND status = 'running' \
         AND (upload_used_at IS NULL OR ?12) AND input_tokens <= ?17 AND output_tokens <= ?18 \
         AND (?15, ?16) = (SELECT e.last_entry, e.last_seq FROM run_events e \
             WHERE e.workspace_id = ?1 AND e.run_id = ?2 ORDER BY e.last_entry DESC LIMIT 1) \
         RETURNING {}, user_id, branch",
        runs::WRITTEN
    );
    let settled: Option<(Run, String, i64)> = db
        .prepare_cached(&text)?
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
                batch.last_entry,
                batch.last_seq,
                batch.first_entry - 1,
                batch.first_seq - 1,
                most.input_tokens,
                most.output_tokens,
            ],
            |row| Ok((runs::read(row)?, row.get(runs::MORE)?, row.get(runs::MORE + 1)?)),
        )
        .optional()?;
    let Some((run, user, branch)) = settled else { return Err(unsettled(db, held, settlement)?) };
    append::insert_row(db, held, batch)?;
    usage::add(db, (held.workspace, &user), (settlement.usage, 1), settlement.now)?;
    if let (Some(conversation), Some(assistant)) = (run.conversation, &settlement.assistant) {
        let tokens = run.usage.input_tokens + run.usage.output_tokens;
        add_answer(db, held, (conversation, branch), assistant, tokens, settlement.now)?;
    }
    let queue =
        run.conversation.map_or(Ok(false), |conversation| has_queue(db, held.workspace, conversation))?;
    Ok(Settled { run, queue })
}

fn has_queue(db: &Connection, workspace: Uuid, conversation: Uuid) -> Result<bool> {
    let text = "SELECT 1 FROM runs INDEXED BY idx_runs_queue \
                WHERE workspace_id = ?1 AND conversation_id = ?2 AND status = 'queued'";
    Ok(db.prepare_cached(text)?.exists(params![workspace, conversation])?)
}

fn unsettled(db: &Connection, held: &Held, settlement: &Settlement) -> Result<StoreError> {
    let text = "SELECT upload_used_at IS NOT NULL, input_tokens, output_tokens, e.last_entry, e.last_seq \
                FROM runs r CROSS JOIN run_events e ON e.workspace_id = r.workspace_id AND e.run_id = r.id \
                WHERE r.workspace_id = ?1 AND r.id = ?2 AND r.fence = ?3 AND r.status = 'running' \
                ORDER BY e.last_entry DESC LIMIT 1";
    let Lease { run, fence } = held.lease;
    let found = db.prepare_cached(text)?.query_row(params![held.workspace, run, fence], |row| {
        let counted = Usage { input_tokens: row.get(1)?, output_tokens: row.get(2)? };
        Ok((row.get(0)?, counted, (row.get(3)?, row.get(4)?)))
    });
    let Some((files, counted, stored)) = found.optional()? else { return Ok(StoreError::Lost) };
    let hindrance = settlement.hindrance(files, counted);
    Ok(hindrance.unwrap_or_else(|| settlement.batch.misplaced(stored)))
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
    let seq = branches::head_seq(db, &scope, conversation, branch)? + 1;
    messages::insert(db, &scope, conversation, (branch, seq), assistant)?;
    // The conversation may have been deleted meanwhile: what the user saw is kept all the same.
    let found = match conversations::find(db, &scope, conversation, false, false)? {
        Some(found) => Some(found),
        None => conversations::find(db, &scope, conversation, true, false)?,
    };
    let (mut thread, pk) = found.ok_or(StoreError::NotFound)?;
    let shown = thread.message_count;
    thread.note_message(assistant.id, false, &assistant.text, tokens, now);
    thread.message_count = if branches::current(db, &scope, conversation)? == branch { seq } else { shown };
    conversations::save_turn(db, pk, &thread)
}
