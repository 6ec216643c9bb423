//! Executions: runs outside any conversation, seen by who started them and by those who see all.

use async_trait::async_trait;
use domain::file::Bag;
use domain::run::Lease;
use domain::scope::Scope;
use uuid::Uuid;

use super::transaction::{Query, Settings, Transaction, inside, transaction};
use super::turns::append;
use super::turns::idempotency::{remember, repeated};
use super::turns::open_runs::open_runs;
use super::{PostgresStore, files, leases, run_files, runs, usage};
use crate::error::{Result, StoreError};
use crate::files::{Execution, NewExecution, execution_opening, execution_turn};
use crate::list::{Sql, Value};
use crate::store::executions::Executions;
use crate::turns::{Begun, Held, to_json};

#[async_trait]
impl Executions for PostgresStore {
    async fn begin_execution(&self, scope: &Scope, new: &NewExecution) -> Result<Begun> {
        transaction!(self.database, begin_write, Settings::of(scope), |tx| begin(tx, scope, new))
    }

    async fn get_execution(&self, scope: &Scope, id: Uuid) -> Result<Execution> {
        let mut sql = Sql::new(self.database.dialect);
        let (workspace, execution) = (sql.bind(Value::Uuid(scope.workspace)), sql.bind(Value::Uuid(id)));
        debug_assert_eq!(workspace, "$1");
        let own = files::own_execution(&mut sql, self.database.dialect, scope, "r.user_id");
        sql.text = format!(
            "SELECT {}, r.response FROM runs r WHERE {} AND r.execution_id = {execution} AND {own}",
            runs::COLUMNS,
            inside(self.database.dialect, "r.workspace_id")
        );
        let text = format!(
            "SELECT {} FROM files f JOIN runs r ON r.workspace_id = f.workspace_id AND r.id = f.run_id \
             WHERE {} AND r.execution_id = $2 AND {} ORDER BY f.id",
            files::COLUMNS,
            inside(self.database.dialect, "f.workspace_id"),
            files::VISIBLE
        );
        let results = Query { text: &text, params: vec![&scope.workspace, &id] };
        let [found, results] = self.database.read(&Settings::of(scope), [(&sql).into(), results]).await?;
        let found = found.first().ok_or(StoreError::NotFound)?;
        let files = files::read_all(&results)?;
        Ok(Execution { id, run: runs::read(found)?, response: found.try_get(runs::MORE)?, files })
    }
}

async fn begin(tx: &Transaction, scope: &Scope, new: &NewExecution) -> Result<Begun> {
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
    let bag = Bag::Execution(new.id);
    if files::lock_bag(tx, scope, bag).await?.is_some() {
        return Err(StoreError::Taken("id"));
    }
    files::keep_in(tx, scope, bag, None, &new.files, (new.max_bag_bytes, new.now)).await?;
    insert_run(tx, scope, new).await?;
    remember(tx, scope, new.idempotency.as_ref(), new.run, new.now).await?;
    let run = runs::by_id(tx, scope.workspace, new.run).await?;
    let (lease, opening) = (Lease { run: new.run, fence: 1 }, execution_opening(new)?);
    append::open_log(tx, &Held { workspace: scope.workspace, lease }, &opening).await?;
    Ok(Begun::Started { run, lease, opening, open, dispatch: None })
}

async fn insert_run(tx: &Transaction, scope: &Scope, new: &NewExecution) -> Result<()> {
    let turn = execution_turn(new)?;
    let text = format!(
        "INSERT INTO runs (workspace_id, id, execution_id, status, user_id, on_disconnect, request, fence, node, \
         lease_until, created_at, started_at, last_entry, last_event, assets) \
         VALUES ($1, $2, $3, 'running', $4, $5, $6, 1, $7, {}, $9, $9, 1, 1, {})",
        leases::until("$8"),
        run_files::assets(tx.dialect, ("execution_id", "$3"))
    );
    tx.insert(
        "id",
        &text,
        &[
            &scope.workspace,
            &new.run,
            &new.id,
            &scope.user,
            &to_json(&turn.on_disconnect)?.trim_matches('"'),
            &to_json(&turn)?,
            &new.node.to_string(),
            &(new.lease_seconds as f64),
            &new.now,
        ],
    )
    .await
}
