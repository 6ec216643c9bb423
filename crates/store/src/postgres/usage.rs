//! What is used of models: by runs beside their own calls, by callers, and by everyone day by day.

use async_trait::async_trait;
use domain::run::Usage;
use domain::scope::Scope;
use domain::tokens::{DayUsage, OutOfTokens, TokenLimits, TokensUsed, day};
use jiff::Timestamp;
use tokio_postgres::types::ToSql;
use uuid::Uuid;

use super::PostgresStore;
use super::runs::RUNNING;
use super::transaction::{Query, Settings, Transaction, inside, transaction};
use crate::error::{Result, StoreError};
use crate::store::usage::UsageCounts;
use crate::turns::Held;

#[async_trait]
impl UsageCounts for PostgresStore {
    async fn count_usage(
        &self,
        held: &Held,
        usage: Usage,
        total: Option<Usage>,
        now: Timestamp,
    ) -> Result<()> {
        let settings = Settings::workspace(held.workspace).seeing_all();
        transaction!(self.database, begin_write, settings, |tx| count(tx, held, (usage, total), now))
    }

    async fn count_call(&self, scope: &Scope, call: Uuid, usage: Usage, now: Timestamp) -> Result<()> {
        let settings = Settings::of(scope);
        transaction!(self.database, begin_write, settings, |tx| add(tx, scope, call, usage, now))
    }

    async fn get_tokens_used(&self, scope: &Scope, now: Timestamp) -> Result<TokensUsed> {
        let text = format!("{USED} {} AND day = $2", inside(self.database.dialect, "workspace_id"));
        let day = day(now);
        let query = Query { text: &text, params: vec![&scope.workspace, &day, &scope.user] };
        let [rows] = self.database.read(&Settings::of(scope), [query]).await?;
        let row = rows.first().ok_or(StoreError::NotFound)?;
        Ok(TokensUsed { user: row.try_get(0)?, workspace: row.try_get(1)? })
    }

    async fn list_usage(&self, scope: &Scope, since: &str) -> Result<Vec<DayUsage>> {
        let text = format!(
            "SELECT day, sum(input_tokens)::bigint, sum(output_tokens)::bigint, sum(runs)::bigint FROM usage_days \
             WHERE {} AND day >= $2 GROUP BY day ORDER BY day DESC",
            inside(self.database.dialect, "workspace_id")
        );
        let query = Query { text: &text, params: vec![&scope.workspace, &since] };
        let [rows] = self.database.read(&Settings::of(scope), [query]).await?;
        let read = |row: &tokio_postgres::Row| {
            let usage = Usage { input_tokens: row.try_get(1)?, output_tokens: row.try_get(2)? };
            Ok(DayUsage { day: row.try_get(0)?, usage, runs: row.try_get(3)? })
        };
        rows.iter().map(read).collect()
    }
}

/// In how many parts a user's day is kept: so many runs of one user end side by side.
const PARTS: u128 = 8;

async fn count(
    tx: &Transaction,
    held: &Held,
    (usage, total): (Usage, Option<Usage>),
    now: Timestamp,
) -> Result<()> {
    if let Some(Usage { input_tokens, output_tokens }) = total {
        let text = format!(
            "SELECT 1 FROM runs WHERE {} AND id = $2 AND fence = $3 AND {RUNNING} \
             AND input_tokens = $4 AND output_tokens = $5",
            tx.inside("workspace_id")
        );
        let params: [&(dyn ToSql + Sync); 5] =
            [&held.workspace, &held.lease.run, &held.lease.fence, &input_tokens, &output_tokens];
        if tx.row(&text, &params).await?.is_some() {
            return Ok(());
        }
    }
    let text = format!(
        "UPDATE runs SET input_tokens = input_tokens + $4, output_tokens = output_tokens + $5 \
         WHERE {} AND id = $2 AND fence = $3 AND {RUNNING}",
        tx.inside("workspace_id")
    );
    let Usage { input_tokens, output_tokens } = usage;
    let params: [&(dyn ToSql + Sync); 5] =
        [&held.workspace, &held.lease.run, &held.lease.fence, &input_tokens, &output_tokens];
    if tx.execute(&text, &params).await? == 0 {
        return Err(StoreError::Lost);
    }
    add_of_run(tx, held, (usage, 0), now).await
}

fn part(id: Uuid) -> i16 {
    (id.as_u128() % PARTS) as i16
}

const ADD: &str = "ON CONFLICT (workspace_id, day, user_id, part) DO UPDATE \
     SET input_tokens = usage_days.input_tokens + excluded.input_tokens, \
     output_tokens = usage_days.output_tokens + excluded.output_tokens, runs = usage_days.runs + excluded.runs";
const COLUMNS: &str = "(workspace_id, day, user_id, part, input_tokens, output_tokens, runs)";

/// Which day and part of it a run is counted in.
pub(super) fn place(run: Uuid, now: Timestamp) -> (String, i16) {
    (day(now), part(run))
}

/// Counts into the day of who asked for the run that `from` has as `r`: its day, part, input, output and runs.
pub(super) fn add_from(from: &str, [day, part, input, output, runs]: [&str; 5]) -> String {
    format!(
        "INSERT INTO usage_days {COLUMNS} SELECT r.workspace_id, {day}::text, r.user_id, {part}::smallint, \
         {input}::bigint, {output}::bigint, {runs}::bigint FROM {from} {ADD}"
    )
}

/// Into the day of who asked for the run. The last of a transaction's writes: others wait for the row until its end.
pub(super) async fn add_of_run(
    tx: &Transaction,
    held: &Held,
    (usage, runs): (Usage, i64),
    now: Timestamp,
) -> Result<()> {
    let from = format!("runs r WHERE {} AND r.id = $2", tx.inside("r.workspace_id"));
    let text = add_from(&from, ["$3", "$4", "$5", "$6", "$7"]);
    let (run, (day, part)) = (held.lease.run, place(held.lease.run, now));
    let Usage { input_tokens, output_tokens } = usage;
    let params: [&(dyn ToSql + Sync); 7] =
        [&held.workspace, &run, &day, &part, &input_tokens, &output_tokens, &runs];
    tx.execute(&text, &params).await.map(|_| ())
}

/// Into the caller's day; `call` is any id of what was counted.
async fn add(tx: &Transaction, scope: &Scope, call: Uuid, usage: Usage, now: Timestamp) -> Result<()> {
    let text = format!("INSERT INTO usage_days {COLUMNS} VALUES ($1, $2, $3, $4, $5, $6, 0) {ADD}");
    let Usage { input_tokens, output_tokens } = usage;
    let params: [&(dyn ToSql + Sync); 6] =
        [&scope.workspace, &day(now), &scope.user, &part(call), &input_tokens, &output_tokens];
    tx.execute(&text, &params).await.map(|_| ())
}

const USED: &str = "SELECT coalesce(sum(input_tokens + output_tokens) FILTER (WHERE user_id = $3), 0)::bigint, \
     coalesce(sum(input_tokens + output_tokens), 0)::bigint FROM usage_days WHERE";

/// The limit that the caller has reached, if any.
pub(super) async fn spent(
    tx: &Transaction,
    scope: &Scope,
    limits: TokenLimits,
    now: Timestamp,
) -> Result<Option<OutOfTokens>> {
    if !limits.is_set() {
        return Ok(None);
    }
    let text = format!("{USED} {} AND day = $2", tx.inside("workspace_id"));
    let row = tx.row(&text, &[&scope.workspace, &day(now), &scope.user]).await?;
    let row = row.ok_or(StoreError::NotFound)?;
    Ok(limits.check(TokensUsed { user: row.try_get(0)?, workspace: row.try_get(1)? }).err())
}
