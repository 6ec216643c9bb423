//! The third of the three writes: a run ends, with its answer, if it is still whose it was.

use domain::run::{Run, RunStatus, Usage};
use futures_util::future::{join, try_join};

use crate::error::{Result, StoreError};
use crate::postgres::branches::{self, Head};
use crate::postgres::runs::RUNNING;
use crate::postgres::transaction::Transaction;
use crate::postgres::{conversations, messages, runs, usage};
use crate::turns::{Held, Settled, Settlement, own_scope};

pub(super) async fn settle(tx: &Transaction, held: &Held, settlement: &Settlement) -> Result<Settled> {
    debug_assert!(RunStatus::Running.may_become(settlement.status));
    let scope = own_scope(held.workspace);
    // The conversation may have been deleted meanwhile: what the user saw is kept all the same.
    let thread = conversations::find_locked_of_run(tx, held).await?;
    let (run, queue) = if let (Some(mut thread), Some(assistant)) = (thread, &settlement.assistant) {
        let (ended, current) =
            join(end(tx, held, settlement), branches::head(tx, &scope, thread.id, None)).await;
        let ((run, branch, queue), current) = (ended?, current?);
        let head = match current.branch == branch {
            true => current,
            false => branches::head(tx, &scope, thread.id, Some(branch)).await?,
        };
        let shown = thread.message_count;
        let place = Head { branch, seq: head.seq + 1 };
        // With what was counted while it went on.
        let tokens = run.usage.input_tokens + run.usage.output_tokens;
        thread.note_message(assistant.id, false, &assistant.text, tokens, settlement.now);
        thread.message_count = if current.branch == branch { place.seq } else { shown };
        let inserted = messages::insert(tx, &scope, (thread.id, None), place, assistant);
        tx.ending(try_join(inserted, conversations::save(tx, &thread))).await?;
        (run, queue)
    } else {
        let (run, _, queue) = end(tx, held, settlement).await?;
        (run, queue)
    };
    Ok(Settled { run, queue })
}

/// Ends the run with its last batch, under its row's lock, or not at all. Answers its branch too, and whether
/// another run waits: a begin that put one there held the conversation's lock, which is this settlement's by now.
async fn end(tx: &Transaction, held: &Held, settlement: &Settlement) -> Result<(Run, i32, bool)> {
    let text = format!(
        "WITH ended AS (UPDATE runs r SET status = $4, ended_at = greatest($5, r.started_at), \
             lease_until = NULL, error_code = $6, error_message = $7, assistant_message_id = $8, \
             input_tokens = r.input_tokens + $9, output_tokens = r.output_tokens + $10, \
             last_entry = $11::bigint, last_event = $12::bigint, response = $16 \
             WHERE {} AND r.id = $2 AND r.fence = $3 AND r.{RUNNING} \
               AND r.last_entry = $13::bigint - 1 AND r.last_event = $14::bigint - 1 \
               AND ($17::boolean OR r.upload_used_at IS NULL) \
               AND r.input_tokens <= $18 AND r.output_tokens <= $19 \
             RETURNING {columns}, r.branch), \
         counted AS ({}), \
         logged AS (INSERT INTO run_events (workspace_id, run_id, first_entry, last_entry, last_seq, entries) \
             SELECT r.workspace_id, r.id, $13, $11, $12, $15 FROM ended r WHERE $15::text <> '') \
         SELECT {columns}, r.branch, EXISTS (SELECT 1 FROM runs q WHERE q.workspace_id = r.workspace_id \
             AND q.conversation_id = r.conversation_id AND q.status = 'queued') FROM ended r",
        tx.inside("r.workspace_id"),
        usage::add_from("ended r", ["$20", "$21", "$9", "$10", "1"]),
        columns = runs::COLUMNS
    );
    let (day, part) = usage::place(held.lease.run, settlement.now);
    let (error, batch, most) = (settlement.error.as_ref(), &settlement.batch, settlement.most_counted());
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
                &most.input_tokens,
                &most.output_tokens,
                &day,
                &part,
            ],
        )
        .await?;
    match row {
        Some(row) => Ok((runs::read(&row)?, row.try_get(runs::MORE)?, row.try_get(runs::MORE + 1)?)),
        None => Err(why_not_ended(tx, held, settlement).await?),
    }
}

async fn why_not_ended(tx: &Transaction, held: &Held, settlement: &Settlement) -> Result<StoreError> {
    let text = format!(
        "SELECT upload_used_at IS NOT NULL, input_tokens, output_tokens, last_entry, last_event FROM runs \
         WHERE {} AND id = $2 AND fence = $3 AND {RUNNING}",
        tx.inside("workspace_id")
    );
    let row = tx.row(&text, &[&held.workspace, &held.lease.run, &held.lease.fence]).await?;
    let Some(row) = row else { return Ok(StoreError::Lost) };
    let counted = Usage { input_tokens: row.try_get(1)?, output_tokens: row.try_get(2)? };
    let stored = (row.try_get(3)?, row.try_get(4)?);
    let hindrance = settlement.hindrance(row.try_get(0)?, counted);
    Ok(hindrance.unwrap_or_else(|| settlement.batch.misplaced(stored)))
}
