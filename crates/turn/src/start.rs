//! Accepting a turn. What comes back is durable: the message, the run and the idempotency record are committed.

use std::time::{Duration, Instant};

use domain::open_runs::OpenRuns;
use domain::run::{Run, StartTurn, TurnMessage, Usage};
use domain::scope::Scope;
use domain::tokens::seconds_left;
use store::StoreError;
use store::files::{NewExecution, Stored};
use store::turns::{Begun, Held, Idempotency, NewTurn, News};
use upstream::trace::{self, Kind};
use uuid::Uuid;

use crate::Turns;
use crate::error::TurnError;
use crate::failpoint::point;

/// For how long a sandbox waits at most until its files are in the log: what it says next stands after them.
const RESULTS_LOGGED: Duration = Duration::from_secs(1);

/// An accepted turn.
#[derive(Debug, Clone, PartialEq)]
pub struct Started {
    pub run: Run,
    /// An earlier request with the same idempotency key made it.
    pub repeated: bool,
    /// What is open with it, where it is new.
    pub open: Option<OpenRuns>,
}

/// An execution to start.
#[derive(Debug, Clone)]
pub struct StartExecution {
    pub id: Uuid,
    pub prompt: String,
    pub agent: Option<String>,
    pub workflow: Option<String>,
    pub model: Option<String>,
    /// Reserved in its bag, and stored.
    pub files: Vec<Stored>,
    pub idempotency: Option<Idempotency>,
}

impl Turns {
    pub async fn start(
        &self,
        scope: &Scope,
        turn: StartTurn,
        idempotency: Option<Idempotency>,
    ) -> Result<Started, TurnError> {
        let inner = &self.inner;
        let under_way = self.take_on()?;
        let checked = self.check_turn(scope, &turn).await;
        self.unless_repeated(scope, idempotency.as_ref(), checked).await?;
        let clock = &inner.clock;
        let brought = &turn.brought;
        let new = NewTurn {
            message: brought.message.unwrap_or_else(|| clock.new_id()),
            // The answer has the run's id: it comes after the message, also in the order of ids.
            run: clock.new_id(),
            conversation: brought.conversation.unwrap_or_else(|| clock.new_id()),
            branch: clock.new_id(),
            turn,
            idempotency,
            node: inner.node,
            lease_seconds: inner.limits.lease_seconds,
            open_runs: inner.limits.open_runs(),
            tokens: inner.limits.tokens(),
            now: clock.now(),
        };
        let (turns, scope) = (self.clone(), scope.clone());
        self.to_its_end(under_way, async move { turns.begin(&scope, new).await }).await
    }

    async fn check_turn(&self, scope: &Scope, turn: &StartTurn) -> Result<(), TurnError> {
        self.check_agent(scope, turn.agent.as_deref()).await?;
        self.check_tools(scope, turn).await?;
        self.check_length(scope, turn).await
    }

    async fn check_execution(&self, scope: &Scope, execution: &StartExecution) -> Result<(), TurnError> {
        let agent = execution.agent.as_deref();
        self.check_agent(scope, agent).await?;
        self.check_prompt(scope, &execution.prompt, agent).await
    }

    /// What was accepted once is not refused when it comes again, whatever has gone since: its run is the answer.
    async fn unless_repeated(
        &self,
        scope: &Scope,
        idempotency: Option<&Idempotency>,
        checked: Result<(), TurnError>,
    ) -> Result<(), TurnError> {
        match checked {
            Err(_) if self.is_repeated(scope, idempotency).await? => Ok(()),
            checked => checked,
        }
    }

    /// Whether the caller has sent this key before.
    pub async fn is_repeated(
        &self,
        scope: &Scope,
        idempotency: Option<&Idempotency>,
    ) -> Result<bool, TurnError> {
        let Some(idempotency) = idempotency else { return Ok(false) };
        let now = self.inner.clock.now();
        Ok(self.inner.store.find_repeated(scope, idempotency, now).await?.is_some())
    }

    /// The run that a request with this key has made before, wherever its conversation has come since.
    pub async fn find_repeated(
        &self,
        scope: &Scope,
        idempotency: Option<&Idempotency>,
    ) -> Result<Option<Run>, TurnError> {
        let Some(idempotency) = idempotency else { return Ok(None) };
        let store = &self.inner.store;
        match store.find_repeated(scope, idempotency, self.inner.clock.now()).await? {
            None => Ok(None),
            Some(Begun::Repeated(run)) => Ok(Some(store.get_run(scope, run.id).await?)),
            Some(_) => Err(TurnError::KeyReused),
        }
    }

    async fn begin(&self, scope: &Scope, new: NewTurn) -> Result<Started, TurnError> {
        let inner = &self.inner;
        let (interrupts, conversation) = (new.turn.on_busy.interrupts(), new.turn.conversation);
        let asked = Instant::now();
        point!("accept.before");
        let begin = inner.store.begin_turn(scope, &new);
        let begun =
            trace::span(|| "turn.begin".into(), Kind::Internal, begin, |begun, _| begun.is_err()).await?;
        point!("accept.after");
        match begun {
            Begun::Started { run, lease, opening, open, dispatch } => {
                let held = Held { workspace: scope.workspace, lease };
                self.drive((held, asked), &run, &opening, dispatch);
                Ok(Started { run, repeated: false, open: Some(open) })
            }
            Begun::Queued(run, open) => {
                if let (true, Some(conversation)) = (interrupts, conversation) {
                    self.act_on_cancels(scope.workspace, conversation).await;
                }
                Ok(Started { run, repeated: false, open: Some(open) })
            }
            Begun::Repeated(run) => {
                // Its conversation may have been deleted since.
                let run = inner.store.get_run(scope, run.id).await?;
                Ok(Started { run, repeated: true, open: None })
            }
            Begun::Busy(run) => Err(TurnError::Busy(run)),
            Begun::KeyReused => Err(TurnError::KeyReused),
            Begun::TooManyRuns(full) => Err(TurnError::TooManyRuns(full)),
            Begun::OutOfTokens(spent) => {
                Err(TurnError::OutOfTokens { spent, retry_after: seconds_left(new.now) })
            }
        }
    }

    /// Changes the message of a queued run, where a model can be sent it.
    pub async fn edit(&self, scope: &Scope, run: Uuid, message: &TurnMessage) -> Result<Run, TurnError> {
        let store = &self.inner.store;
        let found = store.get_run(scope, run).await?;
        if let Some(conversation) = found.conversation {
            let queue = store.list_queue(scope, conversation).await?;
            if let Some((_, turn)) = queue.into_iter().find(|(queued, _)| queued.id == run) {
                let edited =
                    StartTurn { message: Some(message.clone()), conversation: Some(conversation), ..turn };
                self.check_length(scope, &edited).await?;
            }
        }
        Ok(store.edit_queued(scope, run, message).await?)
    }

    /// Accepts a run outside any conversation. Its files are in its bag already.
    pub async fn start_execution(
        &self,
        scope: &Scope,
        execution: StartExecution,
    ) -> Result<Started, TurnError> {
        let inner = &self.inner;
        let under_way = self.take_on()?;
        let checked = self.check_execution(scope, &execution).await;
        self.unless_repeated(scope, execution.idempotency.as_ref(), checked).await?;
        let StartExecution { id, prompt, agent, workflow, model, files, idempotency } = execution;
        let new = NewExecution {
            id,
            run: inner.clock.new_id(),
            prompt,
            agent,
            workflow,
            model,
            files,
            idempotency,
            node: inner.node,
            lease_seconds: inner.limits.lease_seconds,
            open_runs: inner.limits.open_runs(),
            tokens: inner.limits.tokens(),
            max_bag_bytes: inner.limits.max_bag_bytes,
            now: inner.clock.now(),
        };
        let (turns, scope) = (self.clone(), scope.clone());
        self.to_its_end(under_way, async move { turns.begin_execution(&scope, new).await }).await
    }

    async fn begin_execution(&self, scope: &Scope, new: NewExecution) -> Result<Started, TurnError> {
        let asked = Instant::now();
        match self.inner.store.begin_execution(scope, &new).await? {
            Begun::Started { run, lease, opening, open, dispatch } => {
                let held = Held { workspace: scope.workspace, lease };
                self.drive((held, asked), &run, &opening, dispatch);
                Ok(Started { run, repeated: false, open: Some(open) })
            }
            Begun::Repeated(run) => Ok(Started { run, repeated: true, open: None }),
            Begun::KeyReused => Err(TurnError::KeyReused),
            Begun::TooManyRuns(full) => Err(TurnError::TooManyRuns(full)),
            Begun::OutOfTokens(spent) => {
                Err(TurnError::OutOfTokens { spent, retry_after: seconds_left(new.now) })
            }
            Begun::Queued(..) | Begun::Busy(_) => {
                Err(StoreError::Internal("an execution waits for nothing".into()).into())
            }
        }
    }

    /// A run's sandbox has used a model.
    pub fn note_usage(&self, run: Uuid, usage: Usage) {
        self.inner.live.note_usage(run, usage);
    }

    /// A run's sandbox has sent files back: whoever drives it puts them into its log. Where that is this node it is
    /// waited for.
    pub async fn note_results(&self, run: Uuid) {
        let Some(live) = self.inner.live.note_results(run) else {
            return self.tell(&[News::Results(run)]).await;
        };
        let _ = tokio::time::timeout(RESULTS_LOGGED, live.results_logged()).await;
    }
}
