//! The writes of a turn: begin, append and settle, each one transaction guarded by a fence.
//!
//! Where a statement names its index: without statistics SQLite takes a table's own key before an index that leads
//! with the same workspace, and would walk over all of the workspace's rows.

pub(super) mod append;
mod begin;
mod dispatch;
pub(super) mod idempotency;
pub(super) mod open_runs;
mod settle;
mod start;
#[cfg(test)]
mod sync_tests;

use std::sync::{Arc, Mutex, PoisonError};

use async_trait::async_trait;
use domain::open_runs::{OpenRuns, RunLimits};
use domain::run::{Lease, Run};
use domain::scope::Scope;
use jiff::Timestamp;
use rusqlite::Connection;

use super::writer::Durability;
use super::{SqliteStore, runs};
use crate::error::Result;
use crate::store::turns::Turns;
use crate::turns::{
    Batch, Begun, Dispatch, Held, Idempotency, NewTurn, QueueStart, Settled, Settlement, Waiting,
};

/// A batch of events up to this many bytes is written where it is made.
const SMALL: usize = 64 * 1024;

#[async_trait]
impl Turns for SqliteStore {
    async fn begin_turn(&self, scope: &Scope, new: &NewTurn) -> Result<Begun> {
        let (scope, new) = (scope.clone(), new.clone());
        self.writer.write(Durability::Full, move |db| begin::begin(db, &scope, &new)).await
    }

    async fn find_repeated(
        &self,
        scope: &Scope,
        idempotency: &Idempotency,
        now: Timestamp,
    ) -> Result<Option<Begun>> {
        let (scope, idempotency) = (scope.clone(), idempotency.clone());
        self.readers.read(move |db| idempotency::repeated(db, &scope, Some(&idempotency), now)).await
    }

    async fn get_open_runs(&self, scope: &Scope, limits: RunLimits) -> Result<OpenRuns> {
        let scope = scope.clone();
        self.readers.read(move |db| open_runs::open_runs(db, &scope, limits)).await
    }

    async fn start_queued(
        &self,
        waiting: &Waiting,
        start: &QueueStart,
    ) -> Result<Option<(Run, Lease, Batch)>> {
        let (waiting, start) = (*waiting, *start);
        loop {
            // The one that was tried last.
            let tried = Arc::new(Mutex::new(None));
            let noted = Arc::clone(&tried);
            let work = move |db: &Connection| start::start_queued(db, &waiting, &start, &noted);
            let started = self.writer.write(Durability::Full, work).await;
            let tried = *tried.lock().unwrap_or_else(PoisonError::into_inner);
            let (Some(run), Err(error)) = (tried, &started) else { return started };
            if error.may_pass() {
                return started;
            }
            tracing::error!(%run, %error, "a queued run that cannot be started has failed");
            let fail = move |db: &Connection| runs::fail_queued(db, waiting.workspace, run, start.now);
            self.writer.write(Durability::Full, fail).await?;
        }
    }

    async fn get_dispatch(&self, held: &Held, replay: usize) -> Result<Dispatch> {
        let held = *held;
        self.readers.read(move |db| dispatch::get_dispatch(db, &held, replay)).await
    }

    async fn append_events(&self, held: &Held, batch: &Batch) -> Result<()> {
        let (held, batch) = (*held, batch.clone());
        let small = batch.entries.len() <= SMALL;
        let append = move |db: &Connection| append::append(db, &held, &batch);
        match small {
            true => self.writer.write_small(append).await,
            false => self.writer.write(Durability::Normal, append).await,
        }
    }

    async fn settle_turn(&self, held: &Held, settlement: &Settlement) -> Result<Settled> {
        let (held, settlement) = (*held, settlement.clone());
        self.writer.write(Durability::Full, move |db| settle::settle(db, &held, &settlement)).await
    }
}
