//! The writes of a turn: begin, append and settle, each one transaction guarded by a fence.
//!
//! Whoever needs both locks a conversation before its runs, so that no two transactions wait for each other.

pub(super) mod append;
mod begin;
mod dispatch;
pub(super) mod idempotency;
pub(super) mod open_runs;
mod settle;
mod start;

use std::sync::{Mutex, PoisonError};

use async_trait::async_trait;
use domain::open_runs::{OpenRuns, RunLimits};
use domain::run::{Lease, Run};
use domain::scope::Scope;
use jiff::Timestamp;

use super::transaction::{Settings, transaction};
use super::{PostgresStore, runs};
use crate::error::Result;
use crate::store::turns::Turns;
use crate::turns::{
    Batch, Begun, Dispatch, Held, Idempotency, NewTurn, QueueStart, Settled, Settlement, Waiting,
};

#[async_trait]
impl Turns for PostgresStore {
    async fn begin_turn(&self, scope: &Scope, new: &NewTurn) -> Result<Begun> {
        transaction!(self.database, begin_write, Settings::of(scope), |tx| begin::begin(tx, scope, new))
    }

    async fn find_repeated(
        &self,
        scope: &Scope,
        idempotency: &Idempotency,
        now: Timestamp,
    ) -> Result<Option<Begun>> {
        // What was committed while it waited in line counts.
        transaction!(self.database, begin_write, Settings::of(scope), |tx| idempotency::repeated(
            tx,
            scope,
            Some(idempotency),
            now
        ))
    }

    async fn get_open_runs(&self, scope: &Scope, limits: RunLimits) -> Result<OpenRuns> {
        open_runs::get_open(&self.database, scope, limits).await
    }

    async fn start_queued(
        &self,
        waiting: &Waiting,
        start: &QueueStart,
    ) -> Result<Option<(Run, Lease, Batch)>> {
        let settings = Settings::workspace(waiting.workspace).seeing_all();
        loop {
            // The one that was tried last.
            let tried = Mutex::new(None);
            let started =
                transaction!(self.database, begin_write, settings.clone(), |tx| start::start_queued(
                    tx, waiting, start, &tried
                ));
            let tried = *tried.lock().unwrap_or_else(PoisonError::into_inner);
            let (Some(run), Err(error)) = (tried, &started) else { return started };
            if error.may_pass() {
                return started;
            }
            tracing::error!(%run, %error, "a queued run that cannot be started has failed");
            let workspace = waiting.workspace;
            transaction!(self.database, begin_write, settings.clone(), |tx| runs::fail_queued(
                tx, workspace, run, start.now
            ))?;
        }
    }

    async fn get_dispatch(&self, held: &Held, replay: usize) -> Result<Dispatch> {
        let settings = Settings::workspace(held.workspace).seeing_all();
        transaction!(self.database, begin_read, settings, |tx| dispatch::get_dispatch(tx, held, replay))
    }

    async fn append_events(&self, held: &Held, batch: &Batch) -> Result<()> {
        append::append(&self.database, &self.appends, held, batch).await
    }

    async fn settle_turn(&self, held: &Held, settlement: &Settlement) -> Result<Settled> {
        let settings = Settings::workspace(held.workspace).seeing_all();
        transaction!(self.database, begin_write, settings, |tx| settle::settle(tx, held, settlement))
    }
}
