//! Accepting a turn. What comes back is durable: the message, the run and the idempotency record are committed.

use domain::run::{Run, StartTurn};
use domain::scope::Scope;
use store::turns::{Begun, Held, Idempotency, NewTurn};

use crate::Turns;
use crate::error::TurnError;
use crate::failpoint::point;

/// An accepted turn.
#[derive(Debug, Clone, PartialEq)]
pub struct Started {
    pub run: Run,
    /// An earlier request with the same idempotency key made it.
    pub repeated: bool,
}

impl Turns {
    pub async fn start(
        &self,
        scope: &Scope,
        turn: StartTurn,
        idempotency: Option<Idempotency>,
    ) -> Result<Started, TurnError> {
        let inner = &self.inner;
        if inner.draining.is_cancelled() {
            return Err(TurnError::Draining);
        }
        self.check_length(scope, &turn).await?;
        let clock = &inner.clock;
        let interrupts =
            matches!(turn.on_busy, domain::run::OnBusy::Interrupt | domain::run::OnBusy::Rollback);
        let conversation = turn.conversation;
        let new = NewTurn {
            run: clock.new_id(),
            message: clock.new_id(),
            conversation: clock.new_id(),
            branch: clock.new_id(),
            turn,
            idempotency,
            node: inner.node,
            lease_seconds: inner.limits.lease_seconds,
            max_open_runs: inner.limits.max_open_runs_per_user,
            now: clock.now(),
        };
        point!("accept.before");
        let begun = inner.store.begin_turn(scope, &new).await?;
        point!("accept.after");
        match begun {
            Begun::Started(run, lease) => {
                self.drive(Held { workspace: scope.workspace, lease }, &run);
                Ok(Started { run, repeated: false })
            }
            Begun::Queued(run) => {
                if let (true, Some(conversation)) = (interrupts, conversation) {
                    self.act_on_cancels(scope.workspace, conversation).await;
                }
                Ok(Started { run, repeated: false })
            }
            Begun::Repeated(run) => Ok(Started { run, repeated: true }),
            Begun::Busy(run) => Err(TurnError::Busy(run)),
            Begun::KeyReused => Err(TurnError::KeyReused),
            Begun::TooManyRuns => Err(TurnError::TooManyRuns { limit: inner.limits.max_open_runs_per_user }),
        }
    }
}
