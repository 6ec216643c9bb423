//! What is used of models: by runs beside their own calls, by callers, and by everyone day by day.

use async_trait::async_trait;
use domain::run::{Lease, Usage};
use domain::scope::Scope;
use domain::tokens::{DayUsage, OutOfTokens, TokenLimits, TokensUsed, day};
use jiff::Timestamp;
use rusqlite::{Connection, params};
use uuid::Uuid;

use super::SqliteStore;
use super::writer::Durability;
use crate::error::{Result, StoreError};
use crate::store::usage::UsageCounts;
use crate::turns::Held;

#[async_trait]
impl UsageCounts for SqliteStore {
    async fn count_usage(
        &self,
        held: &Held,
        usage: Usage,
        total: Option<Usage>,
        now: Timestamp,
    ) -> Result<()> {
        let held = *held;
        self.writer.write(Durability::Full, move |db| count(db, &held, (usage, total), now)).await
    }

    async fn count_call(&self, scope: &Scope, _: Uuid, usage: Usage, now: Timestamp) -> Result<()> {
        let scope = scope.clone();
        self.writer
            .write(Durability::Full, move |db| add(db, (scope.workspace, &scope.user), (usage, 0), now))
            .await
    }

    async fn get_tokens_used(&self, scope: &Scope, now: Timestamp) -> Result<TokensUsed> {
        let scope = scope.clone();
        self.readers.read(move |db| used(db, &scope, now)).await
    }

    async fn list_usage(&self, scope: &Scope, since: &str) -> Result<Vec<DayUsage>> {
        let (scope, since) = (scope.clone(), since.to_owned());
        self.readers.read(move |db| list(db, &scope, &since)).await
    }
}

fn count(db: &Connection, held: &Held, (usage, total): (Usage, Option<Usage>), now: Timestamp) -> Result<()> {
    if let Some(Usage { input_tokens, output_tokens }) = total {
        let Lease { run, fence } = held.lease;
        let text = "SELECT 1 FROM runs WHERE workspace_id = ?1 AND id = ?2 AND fence = ?3 AND status = 'running' \
                    AND input_tokens = ?4 AND output_tokens = ?5";
        let reached = params![held.workspace, run, fence, input_tokens, output_tokens];
        if db.prepare_cached(text)?.exists(reached)? {
            return Ok(());
        }
    }
    let counted = db
        .prepare_cached(
            "UPDATE runs SET input_tokens = input_tokens + ?4, output_tokens = output_tokens + ?5 \
             WHERE workspace_id = ?1 AND id = ?2 AND fence = ?3 AND status = 'running'",
        )?
        .execute(params![
            held.workspace,
            held.lease.run,
            held.lease.fence,
            usage.input_tokens,
            usage.output_tokens
        ])?;
    if counted == 0 {
        return Err(StoreError::Lost);
    }
    add_of_run(db, held.workspace, held.lease.run, (usage, 0), now)
}

/// Into the day of who asked for the run.
fn add_of_run(
    db: &Connection,
    workspace: Uuid,
    run: Uuid,
    (usage, runs): (Usage, i64),
    now: Timestamp,
) -> Result<()> {
    let user: String = db
        .prepare_cached("SELECT user_id FROM runs WHERE workspace_id = ?1 AND id = ?2")?
        .query_row(params![workspace, run], |row| row.get(0))?;
    add(db, (workspace, &user), (usage, runs), now)
}

pub(super) fn add(
    db: &Connection,
    (workspace, user): (Uuid, &str),
    (usage, runs): (Usage, i64),
    now: Timestamp,
) -> Result<()> {
    db.prepare_cached(
        "INSERT INTO usage_days (workspace_id, day, user_id, input_tokens, output_tokens, runs) \
         VALUES (?1, ?2, ?3, ?4, ?5, ?6) ON CONFLICT DO UPDATE SET input_tokens = input_tokens + excluded.input_tokens, \
         output_tokens = output_tokens + excluded.output_tokens, runs = runs + excluded.runs",
    )?
    .execute(params![workspace, day(now), user, usage.input_tokens, usage.output_tokens, runs])?;
    Ok(())
}

fn used(db: &Connection, scope: &Scope, now: Timestamp) -> Result<TokensUsed> {
    let used = db
        .prepare_cached(
            "SELECT coalesce(sum(input_tokens + output_tokens) FILTER (WHERE user_id = ?3), 0), \
             coalesce(sum(input_tokens + output_tokens), 0) FROM usage_days WHERE workspace_id = ?1 AND day = ?2",
        )?
        .query_row(params![scope.workspace, day(now), scope.user], |row| {
            Ok(TokensUsed { user: row.get(0)?, workspace: row.get(1)? })
        })?;
    Ok(used)
}

/// The limit that the caller has reached, if any.
pub(super) fn spent(
    db: &Connection,
    scope: &Scope,
    limits: TokenLimits,
    now: Timestamp,
) -> Result<Option<OutOfTokens>> {
    if !limits.is_set() {
        return Ok(None);
    }
    Ok(limits.check(used(db, scope, now)?).err())
}

fn list(db: &Connection, scope: &Scope, since: &str) -> Result<Vec<DayUsage>> {
    let mut statement = db.prepare_cached(
        "SELECT day, sum(input_tokens), sum(output_tokens), sum(runs) FROM usage_days \
         WHERE workspace_id = ?1 AND day >= ?2 GROUP BY day ORDER BY day DESC",
    )?;
    let rows = statement.query_map(params![scope.workspace, since], |row| {
        let usage = Usage { input_tokens: row.get(1)?, output_tokens: row.get(2)? };
        Ok(DayUsage { day: row.get(0)?, usage, runs: row.get(3)? })
    })?;
    Ok(rows.collect::<rusqlite::Result<_>>()?)
}
