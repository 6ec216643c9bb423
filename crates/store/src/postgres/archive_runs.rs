//! Settled runs with their logs, out and in: those of a conversation, and executions.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use async_trait::async_trait;
use domain::approval::Approval;
use domain::file::Bag;
use domain::scope::Scope;
use domain::transfer::{ArchivedExecution, ArchivedRun, Trace};
use tokio_postgres::Row;
use uuid::Uuid;

use super::archive::insert_files;
use super::transaction::{Query, Settings, Transaction, inside, transaction};
use super::{PostgresStore, approvals, files, log, runs, workspaces};
use crate::error::{Result, StoreError};
use crate::list::{Dialect, Sql, Value};
use crate::parts;
use crate::store::archive_runs::ArchivedRuns;
use crate::transfer::{Pieces, read_piece};
use crate::turns::{parse_json, to_json};

#[async_trait]
impl ArchivedRuns for PostgresStore {
    async fn list_executions(&self, scope: &Scope, after: Option<Uuid>, limit: usize) -> Result<Vec<Uuid>> {
        let mut sql = Sql::new(self.database.dialect);
        let inside_workspace = sql.inside(scope, "r.workspace_id");
        let own = files::own_execution(&mut sql, self.database.dialect, scope, "r.user_id");
        let after = sql.bind(Value::Uuid(after.unwrap_or_default()));
        sql.text = format!(
            "SELECT r.execution_id FROM runs r WHERE {inside_workspace} AND r.execution_id > {after} AND {own} \
             AND r.status NOT IN ('queued', 'running') ORDER BY r.execution_id LIMIT {limit}"
        );
        let [rows] = self.database.read(&Settings::of(scope), [(&sql).into()]).await?;
        rows.iter().map(|row| Ok(row.try_get(0)?)).collect()
    }

    async fn get_archived_execution(&self, scope: &Scope, id: Uuid) -> Result<ArchivedExecution> {
        let (found, asked) = (
            query(self.database.dialect, "execution_id"),
            approvals_query(self.database.dialect, "execution_id"),
        );
        let of_bag = files::archived_query(self.database.dialect, Bag::Execution(id));
        let owner = Some(id);
        let queries = [
            Query { text: &found, params: vec![&scope.workspace, &id] },
            Query { text: &asked, params: vec![&scope.workspace, &id] },
            Query { text: &of_bag, params: vec![&scope.workspace, &owner] },
        ];
        let [found, asked, of_bag] = self.database.read(&Settings::of(scope), queries).await?;
        let (_, run) = read(&found, &asked)?
            .pop()
            .filter(|(_, run)| scope.owns(&run.user))
            .ok_or(StoreError::NotFound)?;
        let response = found.first().ok_or(StoreError::NotFound)?.try_get(runs::MORE + 6)?;
        let files = of_bag.iter().map(files::read_archived).collect::<Result<_>>()?;
        Ok(ArchivedExecution { id, run, response, files })
    }

    async fn import_execution(
        &self,
        scope: &Scope,
        execution: Arc<ArchivedExecution>,
        traces: Arc<dyn Pieces<Trace>>,
    ) -> Result<bool> {
        transaction!(self.database, begin_write, Settings::of(scope), |tx| import_execution(
            tx, scope, &execution, &*traces
        ))
    }

    /// Whether nothing is there that an import could bring.
    async fn is_empty(&self, scope: &Scope) -> Result<bool> {
        let own = inside(self.database.dialect, "workspace_id");
        let text = ["chat_conversations", "runs", "files", "agents", "pages", "user_tables"]
            .map(|table| format!("EXISTS (SELECT 1 FROM {table} WHERE {own})"))
            .join(" OR ");
        let text = format!("SELECT {text}");
        let query = Query { text: &text, params: vec![&scope.workspace] };
        let [rows] = self.database.read(&Settings::of(scope).seeing_all(), [query]).await?;
        Ok(!rows.first().ok_or(StoreError::NotFound)?.try_get::<_, bool>(0)?)
    }
}

/// After the columns of a run `r`.
const COLUMNS: &str = "r.branch, r.user_id, r.request, r.assets, r.forgotten, r.last_entry";

/// The settled runs whose `column` is `$2`.
pub(super) fn query(dialect: Dialect, column: &str) -> String {
    format!(
        "SELECT {}, {COLUMNS}, r.response FROM runs r \
         WHERE {} AND r.{column} = $2 AND r.status NOT IN ('queued', 'running') ORDER BY r.id",
        runs::COLUMNS,
        inside(dialect, "r.workspace_id")
    )
}

/// The approvals of the runs whose `column` is `$2`.
pub(super) fn approvals_query(dialect: Dialect, column: &str) -> String {
    format!(
        "SELECT {}, a.run_id FROM approvals a JOIN runs r ON r.workspace_id = a.workspace_id AND r.id = a.run_id \
         WHERE {} AND r.{column} = $2 ORDER BY a.run_id, a.id",
        approvals::COLUMNS,
        inside(dialect, "a.workspace_id")
    )
}

/// Runs, each with the number of its branch.
pub(super) fn read(rows: &[Row], approvals: &[Row]) -> Result<Vec<(i32, ArchivedRun)>> {
    let mut asked: HashMap<Uuid, Vec<Approval>> = HashMap::new();
    for row in approvals {
        asked.entry(row.try_get(approvals::MORE)?).or_default().push(approvals::read(row)?);
    }
    let read_one = |row: &Row| {
        let at = |number| runs::MORE + number;
        let (request, assets): (String, Option<String>) = (row.try_get(at(2))?, row.try_get(at(3))?);
        let run = runs::read(row)?;
        let of = ArchivedRun {
            branch: 0,
            user: row.try_get(at(1))?,
            asked: Some(request).filter(|request| request != "{}"),
            assets: assets.as_deref().map(parse_json).transpose()?,
            forgotten: row.try_get(at(4))?,
            approvals: asked.remove(&run.id).unwrap_or_default(),
            entries: row.try_get(at(5))?,
            run,
        };
        Ok((row.try_get(at(0))?, of))
    };
    rows.iter().map(read_one).collect()
}

/// A settled run whose log is over.
pub(super) async fn insert(
    tx: &Transaction,
    scope: &Scope,
    of: &ArchivedRun,
    response: Option<&str>,
) -> Result<()> {
    let run = &of.run;
    let (code, message) = run.error.as_ref().map(|error| (&*error.code, &*error.message)).unzip();
    tx.insert(
        "a run's id",
        "INSERT INTO runs (workspace_id, id, conversation_id, execution_id, status, message_id, \
         assistant_message_id, input_tokens, output_tokens, error_code, error_message, last_event, created_at, \
         started_at, ended_at, user_id, on_disconnect, branch, request, assets, forgotten, response, log_expired) \
         VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15, $16, $17, $18, $19, $20, $21, $22, \
         true)",
        &[
            &scope.workspace,
            &run.id,
            &run.conversation,
            &run.execution,
            &run.status.as_str(),
            &run.message,
            &run.assistant_message,
            &run.usage.input_tokens,
            &run.usage.output_tokens,
            &code,
            &message,
            &run.last_event,
            &run.created_at,
            &run.started_at,
            &run.ended_at,
            &of.user,
            &run.on_disconnect.as_str(),
            &(of.branch as i32),
            &of.asked.as_deref().unwrap_or("{}"),
            &of.assets.as_ref().map(to_json).transpose()?,
            &of.forgotten,
            &response,
        ],
    )
    .await?;
    for approval in &of.approvals {
        let decision = approval.decision.as_ref();
        let round = i32::try_from(approval.round).unwrap_or(i32::MAX);
        tx.execute(
            "INSERT INTO approvals (workspace_id, run_id, id, round, call, approve, reason, decided_by, decided_at, \
             started, result) VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11)",
            &[
                &scope.workspace,
                &run.id,
                &approval.id,
                &round,
                &to_json(&approval.call)?,
                &decision.map(|decision| decision.approve),
                &decision.and_then(|decision| decision.reason.as_ref()),
                &decision.map(|decision| &decision.by),
                &decision.map(|decision| decision.at),
                &approval.started,
                &decision.and_then(|decision| decision.result.as_ref()),
            ],
        )
        .await?;
    }
    Ok(())
}

/// The logs of these runs, which are there without; those of others are passed over.
pub(super) async fn insert_traces(
    tx: &Transaction,
    scope: &Scope,
    ids: HashSet<Uuid>,
    traces: &dyn Pieces<Trace>,
) -> Result<()> {
    // Each with its newest event.
    let mut known: HashMap<Uuid, i64> = ids.into_iter().map(|id| (id, 0)).collect();
    for at in 0.. {
        let Some(Trace { run, first, entries }) = read_piece(traces, at)? else { break };
        let Some(last_seq) = known.get_mut(&run) else { continue };
        for part in parts::cut(first, &entries, *last_seq)? {
            log::insert_part(tx, (scope.workspace, run), &part).await?;
            *last_seq = part.last_seq;
        }
        let text = format!("UPDATE runs SET last_entry = $3 WHERE {} AND id = $2", tx.inside("workspace_id"));
        tx.execute(&text, &[&scope.workspace, &run, &(first - 1 + entries.len() as i64)]).await?;
    }
    Ok(())
}

async fn import_execution(
    tx: &Transaction,
    scope: &Scope,
    of: &ArchivedExecution,
    traces: &dyn Pieces<Trace>,
) -> Result<bool> {
    workspaces::get(tx, scope, "FOR KEY SHARE").await?;
    let text = format!("SELECT 1 FROM runs WHERE {} AND execution_id = $2", tx.inside("workspace_id"));
    if tx.row(&text, &[&scope.workspace, &of.id]).await?.is_some() {
        return Ok(false);
    }
    insert(tx, scope, &of.run, of.response.as_deref()).await?;
    insert_traces(tx, scope, HashSet::from([of.run.run.id]), traces).await?;
    insert_files(tx, scope, &of.files).await?;
    Ok(true)
}
