//! What is swept away for good: stale reservations, deleted conversations and files, what removed workspaces leave.

use async_trait::async_trait;
use jiff::Timestamp;
use uuid::Uuid;

use crate::error::Result;
use crate::files::{Doomed, Purgeable};

#[async_trait]
pub trait Purge: Send + Sync {
    /// Reservations made before `before`, promised ones that have expired by then, and their keys. From then on they
    /// can no longer be kept, so that their bytes can go.
    async fn system_list_stale(&self, before: Timestamp, limit: usize) -> Result<Vec<Doomed>>;

    /// Which of these keys have a row, reserved and soft-deleted ones included.
    async fn system_known_keys(&self, keys: &[String]) -> Result<Vec<bool>>;

    /// Conversations soft-deleted before `before`, oldest first.
    async fn system_list_purgeable(&self, before: Timestamp, limit: usize) -> Result<Vec<Purgeable>>;

    /// Forks that never became whole, begun before `before`, oldest first. Where a fork is one transaction there are none.
    async fn system_list_unmade_forks(&self, before: Timestamp, limit: usize) -> Result<Vec<Purgeable>>;

    /// All files of a conversation.
    async fn system_list_files_of(&self, conversation: &Purgeable) -> Result<Vec<Doomed>>;

    /// Marks a deleted conversation, which can no longer be restored, or a fork that is not whole and no longer becomes
    /// it, and answers its files. `NotFound` when it is live or gone.
    async fn system_begin_purge(&self, conversation: &Purgeable) -> Result<Vec<Doomed>>;

    /// Removes a marked conversation and every row that belongs to it, its words in the search index too. Its files'
    /// bytes are gone already. Broken off in between, it can be asked for again. Nobody else's write waits for all of it.
    async fn system_purge(&self, conversation: &Purgeable) -> Result<()>;

    /// Files soft-deleted before `before` in conversations that live, and in workspaces.
    async fn system_list_deleted_files(&self, before: Timestamp, limit: usize) -> Result<Vec<Doomed>>;

    /// Workspaces removed before `before`, oldest first.
    async fn system_list_removed(&self, before: Timestamp) -> Result<Vec<Uuid>>;

    /// One step of removing a removed workspace with all that belongs to no conversation of it. At most `limit` executions
    /// with their logs go; when there are none, it answers at most `limit` files, whose bytes and rows are to be removed;
    /// when there are none of those either, the workspace goes with its agents and tool servers, and the answer is none.
    /// Its audit log and token counts stay. `NotFound` when it is live or gone, or still has conversations.
    async fn system_purge_removed(&self, workspace: Uuid, limit: usize) -> Result<Option<Vec<Doomed>>>;

    /// Gives the space of what was removed back to the disk, overwriting it. Slow; nothing waits for it.
    async fn system_compact(&self) -> Result<()>;
}
