//! Calls that wait for a person.

use async_trait::async_trait;
use domain::approval::{Approval, Decision};
use domain::scope::Scope;
use uuid::Uuid;

use crate::error::{Result, StoreError};
use crate::turns::Held;

pub(crate) const APPROVAL_DECIDED: StoreError = StoreError::Conflict {
    code: "approval_decided",
    detail: "the call was decided otherwise before; a decision stands",
};

pub(crate) const RUN_ENDED: StoreError =
    StoreError::Conflict { code: "run_ended", detail: "the run is over: nothing of it waits any more" };

#[async_trait]
pub trait Approvals: Send + Sync {
    /// Keeps calls that wait. `Lost` unless the run is under way with this fence.
    async fn add_approvals(&self, held: &Held, approvals: &[Approval]) -> Result<()>;

    /// The calls of a run that were kept, as they stand, whoever asks.
    async fn list_approvals(&self, workspace: Uuid, run: Uuid) -> Result<Vec<Approval>>;

    /// Decides on a call, once, or says what its client made of it: the same again changes nothing, another decision is
    /// `Conflict`, and so is one after the run's end.
    async fn decide_approval(&self, scope: &Scope, run: Uuid, id: Uuid, decision: &Decision) -> Result<()>;

    /// Notes that an approved call is about to be made. True once in its life.
    async fn start_approved(&self, held: &Held, id: Uuid) -> Result<bool>;
}
