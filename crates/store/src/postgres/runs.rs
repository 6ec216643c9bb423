//! Runs as their readers see them, and the queue.

use async_trait::async_trait;
use domain::run::{Lease, OnDisconnect, Run, RunError, RunStatus, StartTurn, TurnMessage, Usage};
use domain::scope::Scope;
use jiff::Timestamp;
use tokio_postgres::Row;
use uuid::Uuid;

use super::conversations::{self, bad_column};
use super::transaction::{Query, Settings, Transaction, inside, params, transaction};
use super::{PostgresStore, files};
use crate::error::{Result, StoreError};
use crate::list::{Dialect, Sql, Value};
use crate::store::runs::{Runs, UNSTARTABLE};
use crate::turns::{Held, own_scope, parse_json, to_json};

#[async_trait]
impl Runs for PostgresStore {
    async fn get_run(&self, scope: &Scope, run: Uuid) -> Result<Run> {
        let sql = visible(self.database.dialect, scope, run);
        let [rows] = self.database.read(&Settings::of(scope), [(&sql).into()]).await?;
        read(rows.first().ok_or(StoreError::NotFound)?)
    }

    async fn list_runs(
        &self,
        scope: &Scope,
        conversation: Uuid,
        before: Option<Uuid>,
        limit: usize,
    ) -> Result<Vec<Run>> {
        let sql = conversations::by_id(self.database.dialect, scope, conversation, false);
        let text = format!(
            "SELECT {COLUMNS} FROM runs r WHERE {} AND r.conversation_id = $2 AND ($3::uuid IS NULL OR r.id < $3) \
             ORDER BY r.id DESC LIMIT $4",
            inside(self.database.dialect, "r.workspace_id")
        );
        let limit = limit as i64;
        let runs = Query { text: &text, params: vec![&scope.workspace, &conversation, &before, &limit] };
        let [found, rows] = self.database.read(&Settings::of(scope), [(&sql).into(), runs]).await?;
        if found.is_empty() {
            return Err(StoreError::NotFound);
        }
        rows.iter().map(read).collect()
    }

    async fn list_answering(&self, scope: &Scope, conversations: &[Uuid]) -> Result<Vec<Uuid>> {
        let text = format!(
            "SELECT r.conversation_id FROM runs r WHERE {} AND r.conversation_id = ANY($2) AND r.status = 'running'",
            inside(self.database.dialect, "r.workspace_id")
        );
        let running = Query { text: &text, params: vec![&scope.workspace, &conversations] };
        let [rows] = self.database.read(&Settings::of(scope), [running]).await?;
        rows.iter().map(|row| Ok(row.try_get(0)?)).collect()
    }

    async fn list_queue(&self, scope: &Scope, conversation: Uuid) -> Result<Vec<(Run, StartTurn)>> {
        let sql = conversations::by_id(self.database.dialect, scope, conversation, false);
        let text = queue(self.database.dialect);
        let queued = Query { text: &text, params: vec![&scope.workspace, &conversation] };
        let [found, rows] = self.database.read(&Settings::of(scope), [(&sql).into(), queued]).await?;
        if found.is_empty() {
            return Err(StoreError::NotFound);
        }
        read_queue(&rows)
    }

    async fn edit_queued(&self, scope: &Scope, run: Uuid, message: &TurnMessage) -> Result<Run> {
        transaction!(self.database, begin_write, Settings::of(scope), |tx| edit_queued(
            tx, scope, run, message
        ))
    }

    async fn request_cancel(&self, scope: &Scope, run: Uuid, now: Timestamp) -> Result<Run> {
        transaction!(self.database, begin_write, Settings::of(scope), |tx| request_cancel(
            tx, scope, run, now
        ))
    }

    async fn cancel_unread(&self, held: &Held, now: Timestamp) -> Result<bool> {
        let settings = Settings::workspace(held.workspace).seeing_all();
        transaction!(self.database, begin_write, settings, |tx| cancel_unread(tx, held, now))
    }
}

/// That a run is under way, for statements that know its key. Said plainly, a plan may take an index of the runs under
/// way instead of the key, and walk over all of them.
pub(super) const RUNNING: &str = "status || '' = 'running'";

pub(super) const COLUMNS: &str = "r.id, r.workspace_id, r.conversation_id, r.execution_id, r.status, r.message_id, \
     r.assistant_message_id, r.input_tokens, r.output_tokens, r.error_code, r.error_message, r.last_event, \
     r.on_disconnect, r.cancel_requested, r.created_at, r.started_at, r.ended_at, r.user_id";
/// Where a query's own columns begin.
pub(super) const MORE: usize = 18;

pub(super) fn read(row: &Row) -> Result<Run> {
    let (code, message): (Option<String>, Option<String>) = (row.try_get(9)?, row.try_get(10)?);
    let on_disconnect: &str = row.try_get(12)?;
    Ok(Run {
        id: row.try_get(0)?,
        workspace: row.try_get(1)?,
        conversation: row.try_get(2)?,
        execution: row.try_get(3)?,
        status: RunStatus::parse(row.try_get(4)?).ok_or_else(|| bad_column(4))?,
        message: row.try_get(5)?,
        assistant_message: row.try_get(6)?,
        usage: Usage { input_tokens: row.try_get(7)?, output_tokens: row.try_get(8)? },
        error: code.zip(message).map(|(code, message)| RunError { code, message }),
        last_event: row.try_get(11)?,
        on_disconnect: parse_json(&format!("\"{on_disconnect}\""))?,
        cancel_requested: row.try_get(13)?,
        created_at: row.try_get(14)?,
        started_at: row.try_get(15)?,
        ended_at: row.try_get(16)?,
        user: row.try_get::<_, Option<String>>(17)?.filter(|user| !user.is_empty()),
    })
}

/// A run by id, whoever asks.
pub(super) async fn by_id(tx: &Transaction, workspace: Uuid, run: Uuid) -> Result<Run> {
    let text = format!("SELECT {COLUMNS} FROM runs r WHERE {} AND r.id = $2", tx.inside("r.workspace_id"));
    read(&tx.row(&text, &[&workspace, &run]).await?.ok_or(StoreError::NotFound)?)
}

/// A run whose conversation the scope may see and is not deleted, or an execution's own, with `log_expired` after its columns.
pub(super) fn visible(dialect: Dialect, scope: &Scope, run: Uuid) -> Sql {
    let mut sql = Sql::new(dialect);
    let own = sql.inside(scope, "r.workspace_id");
    let visible = sql.visible(scope, false);
    let execution = files::own_execution(&mut sql, dialect, scope, "r.user_id");
    let id = sql.bind(Value::Uuid(run));
    let conversation = conversations::asked("r", &format!("c.deleted_at IS NULL AND {visible}"));
    sql.text = format!(
        "SELECT {COLUMNS}, r.log_expired FROM runs r WHERE {own} AND r.id = {id} \
         AND CASE WHEN r.conversation_id IS NULL THEN {execution} ELSE {conversation} END"
    );
    sql
}

/// A run the scope may see, which nobody starts, edits or ends until this transaction is over. The conversation
/// is locked first, as everywhere.
/// Those that wait, of the conversation `$2`.
pub(super) fn queue(dialect: Dialect) -> String {
    format!(
        "SELECT {COLUMNS}, r.request FROM runs r \
         WHERE {} AND r.conversation_id = $2 AND r.status = 'queued' ORDER BY r.queue_position",
        inside(dialect, "r.workspace_id")
    )
}

pub(super) fn read_queue(rows: &[Row]) -> Result<Vec<(Run, StartTurn)>> {
    rows.iter().map(|row| Ok((read(row)?, parse_json(row.try_get(MORE)?)?))).collect()
}

async fn get_locked(tx: &Transaction, scope: &Scope, run: Uuid) -> Result<(Run, String)> {
    let sql = visible(tx.dialect, scope, run);
    let found = read(&tx.row(&sql.text, &params(&sql)).await?.ok_or(StoreError::NotFound)?)?;
    if let Some(conversation) = found.conversation {
        conversations::get_locked(tx, scope, conversation).await?;
    }
    let text = format!(
        "SELECT {COLUMNS}, r.request FROM runs r WHERE {} AND r.id = $2 FOR NO KEY UPDATE OF r",
        tx.inside("r.workspace_id")
    );
    let row = tx.row(&text, &[&scope.workspace, &run]).await?.ok_or(StoreError::NotFound)?;
    Ok((read(&row)?, row.try_get(MORE)?))
}

async fn edit_queued(tx: &Transaction, scope: &Scope, run: Uuid, message: &TurnMessage) -> Result<Run> {
    let (found, request) = get_locked(tx, scope, run).await?;
    if found.status != RunStatus::Queued {
        return Err(crate::store::runs::RUN_STARTED);
    }
    let mut turn: StartTurn = parse_json(&request)?;
    // A new answer to an old message has no message of its own.
    if turn.message.is_none() {
        return Err(crate::store::runs::NO_OWN_MESSAGE);
    }
    turn.message = Some(message.clone());
    let text = format!("UPDATE runs SET request = $3 WHERE {} AND id = $2", tx.inside("workspace_id"));
    tx.execute(&text, &[&scope.workspace, &run, &to_json(&turn)?]).await?;
    Ok(found)
}

async fn request_cancel(tx: &Transaction, scope: &Scope, run: Uuid, now: Timestamp) -> Result<Run> {
    let (found, _) = get_locked(tx, scope, run).await?;
    let own = tx.inside("r.workspace_id");
    match found.status {
        RunStatus::Queued => cancel_queued(tx, scope, &found, now).await,
        RunStatus::Running => {
            let text = format!(
                "UPDATE runs r SET cancel_requested = true WHERE {own} AND r.id = $2 RETURNING {COLUMNS}"
            );
            read(&tx.row(&text, &[&scope.workspace, &run]).await?.ok_or(StoreError::NotFound)?)
        }
        _ => Ok(found),
    }
}

async fn cancel_unread(tx: &Transaction, held: &Held, now: Timestamp) -> Result<bool> {
    let (scope, Lease { run, fence }) = (own_scope(held.workspace), held.lease);
    let (found, _) = get_locked(tx, &scope, run).await?;
    match (found.status, found.on_disconnect) {
        (RunStatus::Queued, OnDisconnect::Cancel) if fence == 0 => {
            cancel_queued(tx, &scope, &found, now).await.map(|_| true)
        }
        (RunStatus::Running, OnDisconnect::Cancel) => {
            let own = tx.inside("workspace_id");
            let text =
                format!("UPDATE runs SET cancel_requested = true WHERE {own} AND id = $2 AND fence = $3");
            Ok(tx.execute(&text, &[&held.workspace, &run, &fence]).await? > 0)
        }
        _ => Ok(false),
    }
}

pub(super) async fn cancel_queued(tx: &Transaction, scope: &Scope, run: &Run, now: Timestamp) -> Result<Run> {
    let why = (RunStatus::Cancelled, "cancelled", "cancelled before it started");
    end_queued(tx, scope, run, why, now).await
}

/// Ends a run that cannot be started, if it is queued still.
pub(super) async fn fail_queued(tx: &Transaction, workspace: Uuid, run: Uuid, now: Timestamp) -> Result<()> {
    let scope = own_scope(workspace);
    let (found, _) = get_locked(tx, &scope, run).await?;
    match found.status {
        RunStatus::Queued => end_queued(tx, &scope, &found, UNSTARTABLE, now).await.map(|_| ()),
        _ => Ok(()),
    }
}

/// Takes a run out of the queue. Its message takes no place in the thread, so no file is one of that message's.
async fn end_queued(
    tx: &Transaction,
    scope: &Scope,
    run: &Run,
    (status, code, message): (RunStatus, &str, &str),
    now: Timestamp,
) -> Result<Run> {
    let text = format!(
        "UPDATE runs r SET status = $4, ended_at = $3, error_code = $5, error_message = $6, queue_position = NULL \
         WHERE {} AND r.id = $2 RETURNING {COLUMNS}",
        tx.inside("r.workspace_id")
    );
    let row = tx.row(&text, &[&scope.workspace, &run.id, &now, &status.as_str(), &code, &message]).await?;
    let text = format!(
        "UPDATE files f SET message_id = NULL WHERE {} AND f.conversation_id = $2 AND f.message_id = $3 \
         AND NOT EXISTS (SELECT 1 FROM messages m WHERE m.workspace_id = f.workspace_id \
             AND m.conversation_id = f.conversation_id AND m.id = f.message_id)",
        tx.inside("f.workspace_id")
    );
    tx.execute(&text, &[&scope.workspace, &run.conversation, &run.message]).await?;
    read(&row.ok_or(StoreError::NotFound)?)
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
    if conversation.is_some() {
        // As `cancel_queued`: the conversation may be restored, and none of them comes into its thread.
        let text = format!(
            "UPDATE files f SET message_id = NULL WHERE {} AND f.conversation_id = $2 AND f.message_id IN ( \
             SELECT message_id FROM runs WHERE {own} AND conversation_id = $2 AND status = 'queued') \
             AND NOT EXISTS (SELECT 1 FROM messages m WHERE m.workspace_id = f.workspace_id \
                 AND m.conversation_id = f.conversation_id AND m.id = f.message_id)",
            tx.inside("f.workspace_id")
        );
        tx.execute(&text, &[&scope.workspace, &conversation]).await?;
    }
    let text = format!(
        "UPDATE runs SET status = 'cancelled', ended_at = $3, queue_position = NULL, error_code = 'cancelled', \
         error_message = 'the conversation was deleted' WHERE {which} AND status = 'queued'"
    );
    tx.execute(&text, &[&scope.workspace, &conversation, &now]).await.map(|_| ())
}
