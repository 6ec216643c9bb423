//! Conversations: making, finding, changing, deleting and restoring them.

use async_trait::async_trait;
use domain::conversation::{
    Conversation, ConversationPatch, ConversationQuery, ConversationSearch, Found, NewConversation, Page,
    Write,
};
use domain::scope::Scope;
use jiff::Timestamp;
use uuid::Uuid;

use crate::error::Result;

#[async_trait]
pub trait Conversations: Send + Sync {
    /// Creates a conversation owned by the scope's user, with `id` unless the client brought one.
    /// `Taken` if that id exists in the workspace, deleted or not.
    async fn create_conversation(
        &self,
        scope: &Scope,
        new: &NewConversation,
        id: Uuid,
        write: &Write,
    ) -> Result<Conversation>;

    /// Live (or deleted) conversations in the order asked for. The cost does not depend on how many
    /// there are, for newest-first lists with or without a source.
    async fn list_conversations(
        &self,
        scope: &Scope,
        query: &ConversationQuery,
    ) -> Result<Page<Conversation>>;

    /// Conversations whose title or messages match, best first, each with what matched.
    async fn search_conversations(&self, scope: &Scope, search: &ConversationSearch) -> Result<Page<Found>>;

    /// Applies a patch under a row lock, refused whole when a rule is broken or `if_version` is not
    /// the stored version.
    async fn update_conversation(
        &self,
        scope: &Scope,
        id: Uuid,
        patch: &ConversationPatch,
        if_version: Option<i64>,
        write: &Write,
    ) -> Result<Conversation>;

    /// Soft-deletes a conversation and the files of its bag; what is only reserved there can no longer be kept, also
    /// after a restore. A second delete is `NotFound`.
    /// `Stale` (as `Refused`) when `if_version` is not the stored version.
    async fn delete_conversation(
        &self,
        scope: &Scope,
        id: Uuid,
        if_version: Option<i64>,
        now: Timestamp,
    ) -> Result<()>;

    /// Undoes a delete, with the files that went with it. A live one is answered as it is; one that is being purged
    /// is `NotFound`.
    async fn restore_conversation(&self, scope: &Scope, id: Uuid, now: Timestamp) -> Result<Conversation>;
}
