//! Calls that wait for a person, or for the client that brought their tool. They are kept before they are told of, and
//! noted as made before they are: a restart goes on waiting, and makes no call twice.

use std::time::{Duration, Instant};

use domain::approval::{Approval, denial};
use domain::event::{Approval as Asked, RunEvent};
use domain::fold::INTERRUPTED;
use domain::run::Run;
use domain::tool::Planned;
use store::turns::Held;

use super::{Halt, ModelRun};
use crate::Turns;
use crate::drive::Beginning;
use crate::error::TurnError;
use crate::failpoint::point;
use crate::log::{RunLog, retry};
use crate::settle::Stored;

/// How often it is looked whether someone has decided, on whichever node.
pub(super) const LOOK: Duration = Duration::from_millis(250);

impl ModelRun<'_> {
    /// Keeps the calls that people are to decide on, and those that the client is to make.
    pub(super) async fn keep_calls(
        &mut self,
        round: u32,
        planned: &[Planned],
    ) -> Result<Vec<Approval>, Halt> {
        let inner = &self.turns.inner;
        let fresh = |planned: &Planned| {
            let (id, call) = (inner.clock.new_id(), planned.call.clone());
            Approval { id, round, call, decision: None, started: false }
        };
        let asked: Vec<Approval> = planned.iter().map(fresh).collect();
        if asked.is_empty() {
            return Ok(asked);
        }
        retry(self.log.live(), || inner.store.add_approvals(&self.log.held, &asked)).await?;
        point!("approvals.kept");
        Ok(asked)
    }

    /// Asks for a decision on each.
    pub(super) async fn ask_people(&mut self, asked: &[Approval]) -> Result<(), TurnError> {
        // Before it is told: whoever hears of it may leave.
        if self.comes_back && !asked.is_empty() {
            self.log.live().keep();
        }
        self.tell_people(asked).await
    }

    async fn tell_people(&mut self, asked: &[Approval]) -> Result<(), TurnError> {
        for approval in asked {
            let client = self.is_brought(&approval.call.name);
            let event = Asked { id: approval.id.to_string(), call: approval.call.clone(), client };
            self.log.event(self.turns.now(), &RunEvent::Approval(event))?;
        }
        self.log.flush().await
    }

    /// Takes what was decided since out of those that are open: what was not allowed or has come back ends, what may be
    /// made is noted as begun, and handed back to be made.
    pub(super) async fn hear_people(
        &mut self,
        round: u32,
        open: &mut Vec<Approval>,
    ) -> Result<Vec<Planned>, Halt> {
        let store = &self.turns.inner.store;
        let (workspace, run) = (self.log.held.workspace, self.log.held.lease.run);
        let mut known = retry(self.log.live(), || store.list_approvals(workspace, run)).await?;
        known.retain(|known| open.iter().any(|open| open.id == known.id));
        let decided: Vec<Approval>;
        (decided, *open) = known.into_iter().partition(|known| known.decision.is_some());
        let mut approved = Vec::new();
        for Approval { id, call, decision, .. } in decided {
            let Some(decision) = decision else { continue };
            if let Some(result) = decision.result {
                self.end_brought(round, call, result)?;
            } else if !decision.approve {
                self.end_call(round, call, denial(decision.reason.as_deref()))?;
            } else if retry(self.log.live(), || store.start_approved(&self.log.held, id)).await? {
                let args = serde_json::from_str(call.args.get()).map_err(|error| error.to_string());
                approved.push(Planned { call, args });
            } else {
                self.end_call(round, call, INTERRUPTED.to_owned())?;
            }
        }
        self.log.flush().await?;
        if !approved.is_empty() {
            point!("approvals.started");
        }
        Ok(approved)
    }

    /// Goes on with a run that another node left waiting; answers the round it was in.
    pub(super) async fn go_on(&mut self) -> Result<u32, Halt> {
        let (workspace, run) = (self.log.held.workspace, self.log.held.lease.run);
        let store = &self.turns.inner.store;
        let mut waiting = retry(self.log.live(), || store.list_approvals(workspace, run)).await?;
        let open = self.log.fold.open_calls();
        waiting.retain(|one| !one.started && open.contains(&(one.round, one.call.id.as_str())));
        let round = open.iter().map(|(round, _)| *round).max().unwrap_or(0);
        // What else is open may have been made: it is not made again.
        let is_waiting =
            |(round, id): &(u32, &str)| waiting.iter().any(|one| one.round == *round && one.call.id == *id);
        let unknown: Vec<(u32, String)> = open
            .into_iter()
            .filter(|call| !is_waiting(call))
            .map(|(round, id)| (round, id.to_owned()))
            .collect();
        for (round, id) in unknown {
            self.end_unknown(round, &id)?;
        }
        let untold =
            |one: &&Approval| one.decision.is_none() && !self.log.fold.has_asked(&one.id.to_string());
        let untold: Vec<Approval> = waiting.iter().filter(untold).cloned().collect();
        self.tell_people(&untold).await?;
        self.see_through(round, Vec::new(), waiting).await?;
        Ok(round)
    }
}

impl Turns {
    /// Whether a run whose node went away waits for a person; then this node goes on with it, under the lease that
    /// was asked for at `leased`.
    pub(crate) async fn go_on_waiting(&self, held: Held, leased: Instant) -> bool {
        match self.find_waiting(&held).await {
            Ok(Some((run, left))) => {
                self.drive_from((held, leased), &run, left, Beginning::Left);
                self.ask_who_follows(held.lease.run).await;
                true
            }
            Ok(None) => false,
            Err(error) => {
                tracing::warn!(run = %held.lease.run, %error, "whether a left run waits is not known");
                false
            }
        }
    }

    async fn find_waiting(&self, held: &Held) -> Result<Option<(Run, RunLog)>, TurnError> {
        let (store, live) = (&self.inner.store, self.inner.live.run(held.lease.run));
        let known = retry(&live, || store.list_approvals(held.workspace, held.lease.run)).await?;
        if known.iter().all(|one| one.started) {
            return Ok(None);
        }
        let Stored { run, log, .. } = self.stored_log(*held, &live).await?;
        let open = log.fold.open_calls();
        let waits = known.iter().any(|one| !one.started && open.contains(&(one.round, one.call.id.as_str())));
        Ok(waits.then_some((run, log)))
    }
}
