//! Executions: runs outside any conversation, seen by who started them and by those who see all.

use async_trait::async_trait;
use domain::file::Bag;
use domain::run::Lease;
use domain::scope::Scope;
use rusqlite::{Connection, OptionalExtension, params};
use uuid::Uuid;

use super::leases::NOW_MS;
use super::turns::append;
use super::turns::idempotency::{remember, repeated};
use super::turns::open_runs::open_runs;
use super::writer::Durability;
use super::{SqliteStore, files, is_taken, run_files, runs, usage, workspaces};
use crate::error::{Result, StoreError};
use crate::files::{Execution, NewExecution, execution_opening, execution_turn};
use crate::store::executions::Executions;
use crate::turns::{Begun, Held, to_json};

#[async_trait]
impl Executions for SqliteStore {
    async fn begin_execution(&self, scope: &Scope, new: &NewExecution) -> Result<Begun> {
        let (scope, new) = (scope.clone(), new.clone());
        self.writer.write(Durability::Full, move |db| begin(db, &scope, &new)).await
    }

    async fn get_execution(&self, scope: &Scope, id: Uuid) -> Result<Execution> {
        let scope = scope.clone();
        self.readers.read(move |db| get(db, &scope, id)).await
    }
}

fn begin(db: &Connection, scope: &Scope, new: &NewExecution) -> Result<Begun> {
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
    workspaces::find(db, scope)?.ok_or(StoreError::NotFound)?;
    let bag = Bag::Execution(new.id);
    files::keep_in(db, scope.workspace, (bag, None), &new.files, new.max_bag_bytes, new.now)?;
    let lease = insert_run(db, scope, new)?;
    let opening = execution_opening(new)?;
    append::insert_row(db, &Held { workspace: scope.workspace, lease }, &opening)?;
    remember(db, scope, new.idempotency.as_ref(), new.run, new.now)?;
    let run = runs::by_id(db, scope.workspace, new.run)?;
    Ok(Begun::Started { run, lease, opening, open: open.and_one(), dispatch: None })
}

fn insert_run(db: &Connection, scope: &Scope, new: &NewExecution) -> Result<Lease> {
    let turn = execution_turn(new)?;
    let assets = run_files::visible_ids("idx_files_execution", "execution_id = ?3");
    let text = format!(
        "INSERT INTO runs (workspace_id, id, execution_id, status, user_id, on_disconnect, request, fence, node, \
         lease_until, created_at, started_at, last_entry, last_event, assets) \
         VALUES (?1, ?2, ?3, 'running', ?4, ?5, ?6, 1, ?7, {NOW_MS} + ?8, ?9, ?9, 1, 1, {assets})"
    );
    let inserted = db.prepare_cached(&text)?.execute(params![
        scope.workspace,
        new.run,
        new.id,
        scope.user,
        to_json(&turn.on_disconnect)?.trim_matches('"'),
        to_json(&turn)?,
        new.node.to_string(),
        new.lease_seconds as i64 * 1000,
        new.now.as_millisecond(),
    ]);
    match inserted {
        Ok(_) => Ok(Lease { run: new.run, fence: 1 }),
        Err(error) if is_taken(&error) => Err(StoreError::Taken("id")),
        Err(error) => Err(error.into()),
    }
}

/// The run of an execution with its caller and its answer.
fn find(db: &Connection, scope: &Scope, id: Uuid) -> Result<Option<(Uuid, String, Option<String>)>> {
    Ok(db
        .prepare_cached(
            "SELECT id, user_id, response FROM runs WHERE workspace_id = ?1 AND execution_id = ?2",
        )?
        .query_row(params![scope.workspace, id], |row| Ok((row.get(0)?, row.get(1)?, row.get(2)?)))
        .optional()?)
}

pub(super) fn exists(db: &Connection, scope: &Scope, id: Uuid) -> Result<bool> {
    Ok(find(db, scope, id)?.is_some())
}

/// `NotFound` unless the scope may see the execution.
pub(super) fn check(db: &Connection, scope: &Scope, id: Uuid) -> Result<()> {
    match find(db, scope, id)? {
        Some((_, user, _)) if scope.owns(&user) => Ok(()),
        _ => Err(StoreError::NotFound),
    }
}

fn get(db: &Connection, scope: &Scope, id: Uuid) -> Result<Execution> {
    let found = find(db, scope, id)?.filter(|(_, user, _)| scope.owns(user));
    let (run, _, response) = found.ok_or(StoreError::NotFound)?;
    let files = run_files::of_run(db, scope.workspace, run)?;
    Ok(Execution { id, run: runs::by_id(db, scope.workspace, run)?, response, files })
}
