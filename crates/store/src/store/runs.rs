//! Runs as they stand: under way, queued, settled.

use async_trait::async_trait;
use domain::run::{Run, RunStatus, StartTurn, TurnMessage};
use domain::scope::Scope;
use jiff::Timestamp;
use uuid::Uuid;

use crate::error::{Result, StoreError};
use crate::turns::Held;

pub(crate) const RUN_STARTED: StoreError = StoreError::Conflict {
    code: "run_started",
    detail: "the run is not queued any more; only a queued one can be edited",
};

pub(crate) const NO_OWN_MESSAGE: StoreError = StoreError::Conflict {
    code: "no_own_message",
    detail: "the run answers an earlier message again and has none of its own to edit; cancel it and send a turn",
};

/// How a queued run ends that cannot be started.
pub(crate) const UNSTARTABLE: (RunStatus, &str, &str) =
    (RunStatus::Failed, "internal", "the turn could not be started");

#[async_trait]
pub trait Runs: Send + Sync {
    async fn get_run(&self, scope: &Scope, run: Uuid) -> Result<Run>;

    /// A conversation's runs, newest first, older than `before`.
    async fn list_runs(
        &self,
        scope: &Scope,
        conversation: Uuid,
        before: Option<Uuid>,
        limit: usize,
    ) -> Result<Vec<Run>>;

    /// Those of these conversations in which a run is under way. They are ones that the scope has just been shown.
    async fn list_answering(&self, scope: &Scope, conversations: &[Uuid]) -> Result<Vec<Uuid>>;

    /// The queued runs of a conversation with their messages, in the order they will start.
    async fn list_queue(&self, scope: &Scope, conversation: Uuid) -> Result<Vec<(Run, StartTurn)>>;

    /// Changes the message of a run that is still queued; `Conflict` once it has started.
    async fn edit_queued(&self, scope: &Scope, run: Uuid, message: &TurnMessage) -> Result<Run>;

    /// A queued run is cancelled at once; one under way is marked for its node; a settled one stays as it is.
    async fn request_cancel(&self, scope: &Scope, run: Uuid, now: Timestamp) -> Result<Run>;

    /// As `request_cancel`, for want of readers. False for a run that needs none, and for one that is no longer held so;
    /// a queued one is held by nobody, under the fence 0.
    async fn cancel_unread(&self, held: &Held, now: Timestamp) -> Result<bool>;
}
