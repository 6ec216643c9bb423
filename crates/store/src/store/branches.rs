//! Branches of a conversation, and forks: conversations of their own with the thread up to a message.

use async_trait::async_trait;
use domain::conversation::Conversation;
use domain::file::File;
use domain::scope::Scope;
use jiff::Timestamp;
use uuid::Uuid;

use crate::error::Result;
use crate::files::Fork;
use crate::turns::{Branch, WayOn};

#[async_trait]
pub trait Branches: Send + Sync {
    /// The visible files that belong to the thread up to and including `through`: those that its messages name, and
    /// those that no message names and that were there when it was written.
    async fn list_fork_files(&self, scope: &Scope, conversation: Uuid, through: Uuid) -> Result<Vec<File>>;

    /// A new conversation with the thread up to and including `through`, and copies of these files, whose bytes
    /// are there: its messages name the copies. Nobody sees it before it is whole, and nobody else's write waits for all of
    /// it.
    async fn fork_conversation(
        &self,
        scope: &Scope,
        conversation: Uuid,
        through: Uuid,
        fork: &Fork,
    ) -> Result<Conversation>;

    /// The cost does not depend on the length of the threads, and grows with the number of branches alone.
    async fn list_branches(&self, scope: &Scope, conversation: Uuid) -> Result<Vec<Branch>>;

    /// How the conversation goes on after a message: on the current branch where that has it, else on the one that it
    /// was written on. `None` where there is no such message. What lies before it is not read.
    async fn find_way_on(&self, scope: &Scope, conversation: Uuid, message: Uuid) -> Result<Option<WayOn>>;

    /// Makes a branch the one that readers see and turns go on from.
    async fn select_branch(
        &self,
        scope: &Scope,
        conversation: Uuid,
        branch: Uuid,
        now: Timestamp,
    ) -> Result<Conversation>;
}
