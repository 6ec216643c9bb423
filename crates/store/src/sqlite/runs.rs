//! Runs as their readers see them, and the queue.

use async_trait::async_trait;
use domain::run::{Lease, OnDisconnect, Run, RunError, RunStatus, StartTurn, TurnMessage, Usage};
use domain::scope::Scope;
use domain::time::from_ms;
use jiff::Timestamp;
use rusqlite::{Connection, OptionalExtension, Row, params};
use uuid::Uuid;

use super::writer::Durability;
use super::{SqliteStore, conversations, executions};
use crate::error::{Result, StoreError};
use crate::store::runs::{Runs, UNSTARTABLE};
use crate::turns::{Held, own_scope, parse_json, to_json};

#[async_trait]
impl Runs for SqliteStore {
    async fn get_run(&self, scope: &Scope, run: Uuid) -> Result<Run> {
        let scope = scope.clone();
        self.readers.read(move |db| get(db, &scope, run)).await
    }

    async fn list_runs(
        &self,
        scope: &Scope,
        conversation: Uuid,
        before: Option<Uuid>,
        limit: usize,
    ) -> Result<Vec<Run>> {
        let scope = scope.clone();
        self.readers.read(move |db| list(db, &scope, conversation, before, limit)).await
    }

    async fn list_answering(&self, scope: &Scope, conversations: &[Uuid]) -> Result<Vec<Uuid>> {
        let (workspace, conversations) = (scope.workspace, conversations.to_vec());
        self.readers.read(move |db| answering(db, workspace, &conversations)).await
    }

    async fn list_queue(&self, scope: &Scope, conversation: Uuid) -> Result<Vec<(Run, StartTurn)>> {
        let scope = scope.clone();
        self.readers.read(move |db| list_queue(db, &scope, conversation)).await
    }

    async fn edit_queued(&self, scope: &Scope, run: Uuid, message: &TurnMessage) -> Result<Run> {
        let (scope, message) = (scope.clone(), message.clone());
        self.writer.write(Durability::Full, move |db| edit_queued(db, &scope, run, &message)).await
    }

    async fn request_cancel(&self, scope: &Scope, run: Uuid, now: Timestamp) -> Result<Run> {
        let scope = scope.clone();
        self.writer.write(Durability::Full, move |db| request_cancel(db, &scope, run, now)).await
    }

    async fn cancel_unread(&self, held: &Held, now: Timestamp) -> Result<bool> {
        let held = *held;
        self.writer.write(Durability::Full, move |db| cancel_unread(db, &held, now)).await
    }
}

macro_rules! columns {
    ($last_event:literal) => {
        concat!(
            "id, workspace_id, conversation_id, execution_id, status, message_id, assistant_message_id, \
             input_tokens, output_tokens, error_code, error_message, ",
            $last_event,
            ", on_disconnect, cancel_requested, created_at, started_at, ended_at, user_id"
        )
    };
}

/// While a run is under way its log alone knows the newest event, so that an append writes in one place.
pub(super) const COLUMNS: &str = columns!(
    "CASE status WHEN 'running' THEN (SELECT e.last_seq FROM run_events e \
     WHERE e.workspace_id = runs.workspace_id AND e.run_id = runs.id ORDER BY e.last_entry DESC LIMIT 1) \
     ELSE last_event END"
);
/// As a statement answers them that writes the log's numbers.
pub(super) const WRITTEN: &str = columns!("last_event");
/// Where a query's own columns begin.
pub(super) const MORE: usize = 18;

fn bad(index: usize) -> rusqlite::Error {
    rusqlite::Error::InvalidColumnType(index, "run".into(), rusqlite::types::Type::Text)
}

pub(super) fn read(row: &Row<'_>) -> rusqlite::Result<Run> {
    let (status, on_disconnect): (String, String) = (row.get(4)?, row.get(12)?);
    let (code, message): (Option<String>, Option<String>) = (row.get(9)?, row.get(10)?);
    Ok(Run {
        id: row.get(0)?,
        workspace: row.get(1)?,
        conversation: row.get(2)?,
        execution: row.get(3)?,
        status: RunStatus::parse(&status).ok_or_else(|| bad(4))?,
        message: row.get(5)?,
        assistant_message: row.get(6)?,
        usage: Usage { input_tokens: row.get(7)?, output_tokens: row.get(8)? },
        error: code.zip(message).map(|(code, message)| RunError { code, message }),
        last_event: row.get(11)?,
        on_disconnect: parse_json(&format!("\"{on_disconnect}\"")).map_err(|_| bad(12))?,
        cancel_requested: row.get(13)?,
        created_at: from_ms(row.get(14)?),
        started_at: row.get::<_, Option<i64>>(15)?.map(from_ms),
        ended_at: row.get::<_, Option<i64>>(16)?.map(from_ms),
        user: row.get::<_, Option<String>>(17)?.filter(|user| !user.is_empty()),
    })
}

/// A run by id, whoever asks.
pub(super) fn by_id(db: &Connection, workspace: Uuid, run: Uuid) -> Result<Run> {
    let text = format!("SELECT {COLUMNS} FROM runs WHERE workspace_id = ?1 AND id = ?2");
    db.prepare_cached(&text)?.query_row(params![workspace, run], read).optional()?.ok_or(StoreError::NotFound)
}

/// A run whose conversation the scope may see, and which is not deleted; or one whose execution it may see.
pub(super) fn get(db: &Connection, scope: &Scope, run: Uuid) -> Result<Run> {
    let run = by_id(db, scope.workspace, run)?;
    if let Some(conversation) = run.conversation {
        conversations::find(db, scope, conversation, false, false)?.ok_or(StoreError::NotFound)?;
    }
    if let Some(execution) = run.execution {
        executions::check(db, scope, execution)?;
    }
    Ok(run)
}

fn list(
    db: &Connection,
    scope: &Scope,
    conversation: Uuid,
    before: Option<Uuid>,
    limit: usize,
) -> Result<Vec<Run>> {
    conversations::find(db, scope, conversation, false, false)?.ok_or(StoreError::NotFound)?;
    let text = format!(
        "SELECT {COLUMNS} FROM runs INDEXED BY idx_runs_conversation \
         WHERE workspace_id = ?1 AND conversation_id = ?2 AND id < ?3 ORDER BY id DESC LIMIT ?4"
    );
    let mut statement = db.prepare_cached(&text)?;
    let before = before.unwrap_or(Uuid::max());
    let rows = statement.query_map(params![scope.workspace, conversation, before, limit as i64], read)?;
    Ok(rows.collect::<rusqlite::Result<_>>()?)
}

fn list_queue(db: &Connection, scope: &Scope, conversation: Uuid) -> Result<Vec<(Run, StartTurn)>> {
    conversations::find(db, scope, conversation, false, false)?.ok_or(StoreError::NotFound)?;
    queue(db, scope, conversation)
}

/// Those that wait, of a conversation that the scope may see.
pub(super) fn queue(db: &Connection, scope: &Scope, conversation: Uuid) -> Result<Vec<(Run, StartTurn)>> {
    let text = format!(
        "SELECT {COLUMNS}, request FROM runs \
         WHERE workspace_id = ?1 AND conversation_id = ?2 AND status = 'queued' ORDER BY queue_position"
    );
    let mut statement = db.prepare_cached(&text)?;
    let rows = statement.query_map(params![scope.workspace, conversation], |row| {
        Ok((read(row)?, row.get::<_, String>(MORE)?))
    })?;
    rows.map(|row| {
        let (run, request) = row?;
        Ok((run, parse_json(&request)?))
    })
    .collect()
}

fn answering(db: &Connection, workspace: Uuid, conversations: &[Uuid]) -> Result<Vec<Uuid>> {
    let mut statement = db.prepare_cached(
        "SELECT EXISTS (SELECT 1 FROM runs WHERE workspace_id = ?1 AND conversation_id = ?2 AND status = 'running')",
    )?;
    let mut found = Vec::new();
    for conversation in conversations {
        if statement.query_row(params![workspace, conversation], |row| row.get(0))? {
            found.push(*conversation);
        }
    }
    Ok(found)
}

fn edit_queued(db: &Connection, scope: &Scope, run: Uuid, message: &TurnMessage) -> Result<Run> {
    let found = get(db, scope, run)?;
    if found.status != RunStatus::Queued {
        return Err(crate::store::runs::RUN_STARTED);
    }
    let request: String = db.query_row(
        "SELECT request FROM runs WHERE workspace_id = ?1 AND id = ?2",
        params![scope.workspace, run],
        |row| row.get(0),
    )?;
    let mut turn: StartTurn = parse_json(&request)?;
    // A new answer to an old message has no message of its own.
    if turn.message.is_none() {
        return Err(crate::store::runs::NO_OWN_MESSAGE);
    }
    turn.message = Some(message.clone());
    db.execute(
        "UPDATE runs SET request = ?3 WHERE workspace_id = ?1 AND id = ?2",
        params![scope.workspace, run, to_json(&turn)?],
    )?;
    Ok(found)
}

fn request_cancel(db: &Connection, scope: &Scope, run: Uuid, now: Timestamp) -> Result<Run> {
    let found = get(db, scope, run)?;
    match found.status {
        RunStatus::Queued => cancel_queued(db, scope, &found, now)?,
        RunStatus::Running => {
            db.execute(
                "UPDATE runs SET cancel_requested = 1 WHERE workspace_id = ?1 AND id = ?2",
                params![scope.workspace, run],
            )?;
        }
        _ => {}
    }
    by_id(db, scope.workspace, run)
}

fn cancel_unread(db: &Connection, held: &Held, now: Timestamp) -> Result<bool> {
    let (scope, Lease { run, fence }) = (own_scope(held.workspace), held.lease);
    let found = get(db, &scope, run)?;
    match (found.status, found.on_disconnect) {
        (RunStatus::Queued, OnDisconnect::Cancel) if fence == 0 => {
            cancel_queued(db, &scope, &found, now)?;
            Ok(true)
        }
        (RunStatus::Running, OnDisconnect::Cancel) => {
            let text =
                "UPDATE runs SET cancel_requested = 1 WHERE workspace_id = ?1 AND id = ?2 AND fence = ?3";
            Ok(db.prepare_cached(text)?.execute(params![held.workspace, run, fence])? > 0)
        }
        _ => Ok(false),
    }
}

pub(super) fn cancel_queued(db: &Connection, scope: &Scope, run: &Run, now: Timestamp) -> Result<()> {
    let why = (RunStatus::Cancelled, "cancelled", "cancelled before it started");
    end_queued(db, scope, run, why, now)
}

/// Ends a run that cannot be started, if it is queued still.
pub(super) fn fail_queued(db: &Connection, workspace: Uuid, run: Uuid, now: Timestamp) -> Result<()> {
    let found = by_id(db, workspace, run)?;
    match found.status {
        RunStatus::Queued => end_queued(db, &own_scope(workspace), &found, UNSTARTABLE, now),
        _ => Ok(()),
    }
}

/// Takes a run out of the queue. Its message takes no place in the thread, so no file is one of that message's.
fn end_queued(
    db: &Connection,
    scope: &Scope,
    run: &Run,
    (status, code, message): (RunStatus, &str, &str),
    now: Timestamp,
) -> Result<()> {
    db.execute(
        "UPDATE runs SET status = ?4, ended_at = ?3, error_code = ?5, error_message = ?6, queue_position = NULL \
         WHERE workspace_id = ?1 AND id = ?2",
        params![scope.workspace, run.id, now.as_millisecond(), status.as_str(), code, message],
    )?;
    db.execute(FREE_OF_ONE, params![scope.workspace, run.conversation, run.message])?;
    Ok(())
}

/// Frees the files of a message that comes into no thread: of one, or of all that the conversation's queue has.
const FREE_OF_ONE: &str = "UPDATE files INDEXED BY idx_files_bag SET message_id = NULL \
     WHERE workspace_id = ?1 AND conversation_id = ?2 AND message_id = ?3 \
     AND NOT EXISTS (SELECT 1 FROM messages m WHERE m.workspace_id = ?1 AND m.conversation_id = ?2 AND m.id = ?3)";
const FREE_OF_ALL: &str = "UPDATE files INDEXED BY idx_files_bag SET message_id = NULL \
     WHERE workspace_id = ?1 AND conversation_id = ?2 AND message_id IN ( \
         SELECT message_id FROM runs INDEXED BY idx_runs_queue \
         WHERE workspace_id = ?1 AND conversation_id = ?2 AND status = 'queued') \
     AND NOT EXISTS (SELECT 1 FROM messages m WHERE m.workspace_id = ?1 AND m.conversation_id = ?2 \
     AND m.id = files.message_id)";

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
    if conversation.is_some() {
        // As `cancel_queued`: the conversation may be restored, and none of them comes into its thread.
        db.execute(FREE_OF_ALL, params![scope.workspace, conversation])?;
    }
    let text = format!(
        "UPDATE runs {queued} SET status = 'cancelled', ended_at = ?3, queue_position = NULL, \
         error_code = 'cancelled', error_message = 'the conversation was deleted' \
         WHERE workspace_id = ?1 AND {whose} AND status = 'queued'"
    );
    db.execute(&text, params![scope.workspace, conversation, now.as_millisecond()])?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sqlite::open::plan;

    #[test]
    fn the_files_of_a_message_are_found_in_their_bag() {
        let ids = [Uuid::nil(), Uuid::nil(), Uuid::nil()];
        for plan in [plan(FREE_OF_ONE, ids), plan(FREE_OF_ALL, [ids[0], ids[1]])] {
            assert!(
                plan.contains(
                    "SEARCH files USING INDEX idx_files_bag (workspace_id=? AND conversation_id=?)"
                ),
                "{plan}"
            );
            assert!(!plan.contains("files USING PRIMARY KEY"), "{plan}");
        }
    }
}
