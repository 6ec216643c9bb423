//! The files of a run: what it was given when it started, what its sandbox sent back.

use async_trait::async_trait;
use domain::file::File;
use jiff::Timestamp;
use uuid::Uuid;

use crate::error::Result;
use crate::files::Stored;
use crate::turns::Held;

#[async_trait]
pub trait RunFiles: Send + Sync {
    /// Makes what a run's sandbox sent back visible and uses up its upload token, in one transaction, synced.
    /// `Lost` when the run is over, cancelled, another writer's, or has used it.
    async fn keep_results(
        &self,
        held: &Held,
        stored: &[Stored],
        max_bag_bytes: u64,
        now: Timestamp,
    ) -> Result<Vec<File>>;

    /// What the run's sandbox sent back and is still visible, in the order it came. `Lost` unless the run is under
    /// way with this fence.
    async fn list_results(&self, held: &Held) -> Result<Vec<File>>;

    /// The visible files that a run was given when it started, in the order of their names; also of a run that is
    /// over. `NotFound` when its conversation is deleted.
    async fn list_run_assets(&self, workspace: Uuid, run: Uuid) -> Result<Vec<File>>;
}
