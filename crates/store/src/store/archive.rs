//! Whole conversations, out and in.

use std::sync::Arc;

use async_trait::async_trait;
use domain::scope::Scope;
use domain::transfer::growth::Growth;
use domain::transfer::{Archive, ArchivedFile, Trace};
use uuid::Uuid;

use crate::error::{Result, StoreError};
use crate::files::Stored;
use crate::transfer::Pieces;

pub(crate) const TURN_UNDER_WAY: StoreError = StoreError::Conflict {
    code: "conversation_busy",
    detail: "a turn of it is under way or queued: import it again when that has ended",
};

#[async_trait]
pub trait Archives: Send + Sync {
    /// Live conversations that the scope may see, by id, after `after`.
    async fn list_archivable(&self, scope: &Scope, after: Option<Uuid>, limit: usize) -> Result<Vec<Uuid>>;

    /// A live conversation with all that belongs to it, from one snapshot: every branch, settled runs, visible files.
    /// The logs of its runs are `read_trace`.
    async fn get_archive(&self, scope: &Scope, id: Uuid) -> Result<Archive>;

    /// The visible files of the workspace itself, by id.
    async fn list_archived_files(&self, scope: &Scope) -> Result<Vec<ArchivedFile>>;

    /// Which of these ids conversations of the workspace have, deleted ones too.
    async fn known_conversations(&self, scope: &Scope, ids: &[Uuid]) -> Result<Vec<bool>>;

    /// Writes a checked conversation with all that belongs to it, in one transaction, synced; the bytes of its files
    /// lie under their keys, the logs of its runs are `traces`, each in its order. False, and nothing is changed, when
    /// the workspace has one with its id, deleted or not.
    async fn import_archive(
        &self,
        scope: &Scope,
        archive: Arc<Archive>,
        traces: Arc<dyn Pieces<Trace>>,
    ) -> Result<bool>;

    /// The ids of a live conversation's messages, on all branches.
    async fn list_message_ids(&self, scope: &Scope, conversation: Uuid) -> Result<Vec<Uuid>>;

    /// Adds what a conversation has become at its source, in one transaction, synced. Its files are reserved, and
    /// `stored` in their order. False, and nothing is changed, when the conversation is no longer the one that it was
    /// made for; `Conflict` while a turn of it is under way or queued.
    async fn extend_archive(&self, scope: &Scope, growth: Arc<Growth>, stored: &[Stored]) -> Result<bool>;
}
