//! Settled runs with their logs, out and in: those of a conversation, and executions.

use std::collections::HashMap;
use std::sync::Arc;

use async_trait::async_trait;
use domain::file::Bag;
use domain::scope::Scope;
use domain::transfer::{ArchivedExecution, ArchivedRun, Trace};
use jiff::Timestamp;
use rusqlite::{Connection, OptionalExtension, Row, params};
use uuid::Uuid;

use super::archive::{insert_file, taken};
use super::writer::Durability;
use super::{SqliteStore, approvals, executions, files, log, runs, workspaces};
use crate::error::{Result, StoreError};
use crate::parts;
use crate::store::archive_runs::ArchivedRuns;
use crate::transfer::{Pieces, read_piece};
use crate::turns::{parse_json, to_json};

#[async_trait]
impl ArchivedRuns for SqliteStore {
    async fn list_executions(&self, scope: &Scope, after: Option<Uuid>, limit: usize) -> Result<Vec<Uuid>> {
        let scope = scope.clone();
        self.readers.read(move |db| list_executions(db, &scope, after, limit)).await
    }

    async fn get_archived_execution(&self, scope: &Scope, id: Uuid) -> Result<ArchivedExecution> {
        let scope = scope.clone();
        self.readers.read(move |db| get_execution(db, &scope, id)).await
    }

    async fn import_execution(
        &self,
        scope: &Scope,
        execution: Arc<ArchivedExecution>,
        traces: Arc<dyn Pieces<Trace>>,
    ) -> Result<bool> {
        let scope = scope.clone();
        let work = move |db: &_| import_execution(db, &scope, &execution, &*traces);
        self.writer.write(Durability::Full, work).await
    }

    async fn is_empty(&self, scope: &Scope) -> Result<bool> {
        let scope = scope.clone();
        self.readers.read(move |db| is_empty(db, &scope)).await
    }
}

/// After the columns of a run.
const COLUMNS: &str = "branch, user_id, request, assets, forgotten, last_entry";

/// A run, and the number of its branch. `MORE` columns after those of a run.
fn read(db: &Connection, row: &Row<'_>) -> Result<(i64, ArchivedRun)> {
    let at = |number| runs::MORE + number;
    let (asked, assets): (String, Option<String>) = (row.get(at(2))?, row.get(at(3))?);
    let run = runs::read(row)?;
    let of = ArchivedRun {
        branch: 0,
        user: row.get(at(1))?,
        asked: Some(asked).filter(|asked| asked != "{}"),
        assets: assets.as_deref().map(parse_json).transpose()?,
        forgotten: row.get(at(4))?,
        approvals: approvals::list(db, run.workspace, run.id)?,
        entries: row.get(at(5))?,
        run,
    };
    Ok((row.get(at(0))?, of))
}

/// The settled runs of a conversation, each with the number of its branch.
pub(super) fn of_conversation(
    db: &Connection,
    scope: &Scope,
    conversation: Uuid,
) -> Result<Vec<(i64, ArchivedRun)>> {
    let text = format!(
        "SELECT {}, {COLUMNS} FROM runs INDEXED BY idx_runs_conversation \
         WHERE workspace_id = ?1 AND conversation_id = ?2 AND status NOT IN ('queued', 'running') ORDER BY id",
        runs::COLUMNS
    );
    let mut statement = db.prepare_cached(&text)?;
    let mut rows = statement.query(params![scope.workspace, conversation])?;
    let mut found = Vec::new();
    while let Some(row) = rows.next()? {
        found.push(read(db, row)?);
    }
    Ok(found)
}

/// A settled run whose log is over.
pub(super) fn insert(db: &Connection, scope: &Scope, of: &ArchivedRun, response: Option<&str>) -> Result<()> {
    let run = &of.run;
    let inserted = db
        .prepare_cached(
            "INSERT INTO runs (workspace_id, id, conversation_id, execution_id, status, message_id, \
             assistant_message_id, input_tokens, output_tokens, error_code, error_message, last_event, created_at, \
             started_at, ended_at, user_id, on_disconnect, branch, request, assets, forgotten, response, log_expired) \
             VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13, ?14, ?15, ?16, ?17, ?18, ?19, ?20, ?21, \
             ?22, 1)",
        )?
        .execute(params![
            scope.workspace,
            run.id,
            run.conversation,
            run.execution,
            run.status.as_str(),
            run.message,
            run.assistant_message,
            run.usage.input_tokens,
            run.usage.output_tokens,
            run.error.as_ref().map(|error| &error.code),
            run.error.as_ref().map(|error| &error.message),
            run.last_event,
            run.created_at.as_millisecond(),
            run.started_at.map(Timestamp::as_millisecond),
            run.ended_at.map(Timestamp::as_millisecond),
            of.user,
            run.on_disconnect.as_str(),
            of.branch as i64,
            of.asked.as_deref().unwrap_or("{}"),
            of.assets.as_ref().map(to_json).transpose()?,
            of.forgotten,
            response,
        ]);
    inserted.map_err(|error| taken(error, "a run's id"))?;
    for approval in &of.approvals {
        let decision = approval.decision.as_ref();
        db.prepare_cached(
            "INSERT INTO approvals (workspace_id, run_id, id, round, call, approve, reason, decided_by, decided_at, \
             started, result) VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11)",
        )?
        .execute(params![
            scope.workspace,
            run.id,
            approval.id,
            approval.round,
            to_json(&approval.call)?,
            decision.map(|decision| decision.approve),
            decision.and_then(|decision| decision.reason.as_ref()),
            decision.map(|decision| &decision.by),
            decision.map(|decision| decision.at.as_millisecond()),
            approval.started,
            decision.and_then(|decision| decision.result.as_ref()),
        ])?;
    }
    Ok(())
}

/// The logs of these runs, which are there without; those of others are passed over.
pub(super) fn insert_traces<'a>(
    db: &Connection,
    scope: &Scope,
    of: impl IntoIterator<Item = &'a ArchivedRun>,
    traces: &dyn Pieces<Trace>,
) -> Result<()> {
    // Each with its newest event.
    let mut known: HashMap<Uuid, i64> = of.into_iter().map(|of| (of.run.id, 0)).collect();
    for at in 0.. {
        let Some(Trace { run, first, entries }) = read_piece(traces, at)? else { break };
        let Some(last_seq) = known.get_mut(&run) else { continue };
        for part in parts::cut(first, &entries, *last_seq)? {
            log::insert_part(db, (scope.workspace, run), &part)?;
            *last_seq = part.last_seq;
        }
        db.prepare_cached("UPDATE runs SET last_entry = ?3 WHERE workspace_id = ?1 AND id = ?2")?
            .execute(params![scope.workspace, run, first - 1 + entries.len() as i64])?;
    }
    Ok(())
}

fn list_executions(db: &Connection, scope: &Scope, after: Option<Uuid>, limit: usize) -> Result<Vec<Uuid>> {
    let mut statement = db.prepare_cached(
        "SELECT execution_id FROM runs INDEXED BY idx_runs_execution WHERE workspace_id = ?1 AND execution_id > ?2 \
         AND status NOT IN ('queued', 'running') AND (?3 OR user_id = ?4) ORDER BY execution_id LIMIT ?5",
    )?;
    let after = after.unwrap_or_default();
    let bound = params![scope.workspace, after, scope.sees_all(), scope.user, limit as i64];
    Ok(statement.query_map(bound, |row| row.get(0))?.collect::<rusqlite::Result<_>>()?)
}

fn get_execution(db: &Connection, scope: &Scope, id: Uuid) -> Result<ArchivedExecution> {
    executions::check(db, scope, id)?;
    let text = format!(
        "SELECT {}, {COLUMNS}, response FROM runs WHERE workspace_id = ?1 AND execution_id = ?2",
        runs::COLUMNS
    );
    let mut statement = db.prepare_cached(&text)?;
    let mut rows = statement.query(params![scope.workspace, id])?;
    let row = rows.next()?.ok_or(StoreError::NotFound)?;
    let (_, run) = read(db, row)?;
    let response = row.get(runs::MORE + 6)?;
    Ok(ArchivedExecution { id, run, response, files: files::archived(db, scope, Bag::Execution(id))? })
}

fn import_execution(
    db: &Connection,
    scope: &Scope,
    of: &ArchivedExecution,
    traces: &dyn Pieces<Trace>,
) -> Result<bool> {
    workspaces::find(db, scope)?.ok_or(StoreError::NotFound)?;
    if executions::exists(db, scope, of.id)? {
        return Ok(false);
    }
    insert(db, scope, &of.run, of.response.as_deref())?;
    insert_traces(db, scope, [&of.run], traces)?;
    of.files.iter().try_for_each(|file| insert_file(db, scope, file))?;
    Ok(true)
}

/// Whether nothing is there that an import could bring.
fn is_empty(db: &Connection, scope: &Scope) -> Result<bool> {
    let found: Option<i64> = ["chat_conversations", "runs", "files", "agents", "pages", "user_tables"]
        .into_iter()
        .find_map(|table| {
            let text = format!("SELECT 1 FROM {table} WHERE workspace_id = ?1 LIMIT 1");
            db.prepare_cached(&text)
                .and_then(|mut statement| statement.query_row([scope.workspace], |row| row.get(0)).optional())
                .transpose()
        })
        .transpose()?;
    Ok(found.is_none())
}
