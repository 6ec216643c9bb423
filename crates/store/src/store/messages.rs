//! Threads: a conversation with its messages, read and appended to.

use async_trait::async_trait;
use domain::conversation::Conversation;
use domain::message::{Message, NewMessage, Window};
use domain::scope::Scope;
use jiff::Timestamp;
use uuid::Uuid;

use crate::error::Result;

/// A conversation with the messages that were asked for.
#[derive(Debug, Clone, PartialEq)]
pub struct Thread {
    pub conversation: Conversation,
    pub messages: Vec<Message>,
    /// Whether older messages lie before the window.
    pub has_before: bool,
}

/// What of a thread to read.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct ThreadRead {
    /// `None` reads no messages.
    pub window: Option<Window>,
    /// `None` is the current branch; the conversation's own id is the first one.
    pub branch: Option<Uuid>,
}

impl From<Option<Window>> for ThreadRead {
    fn from(window: Option<Window>) -> Self {
        Self { window, branch: None }
    }
}

#[async_trait]
pub trait Messages: Send + Sync {
    /// A live conversation that the scope may see, and the window of its messages.
    /// `NotFound` also when the window names a message that is not in the thread.
    /// The thread is the current branch, or the one named.
    /// The newest messages cost the same however long the thread is, and whatever was edited in it.
    async fn get_thread(&self, scope: &Scope, id: Uuid, read: ThreadRead) -> Result<Thread>;

    /// Appends messages to a thread, in order, and keeps its counters, preview, title and the search index. Files of
    /// the conversation that their attachments name are tied to them.
    /// The cost does not depend on the length of the thread. With a version only while the conversation is of that.
    async fn append_messages(
        &self,
        scope: &Scope,
        conversation: Uuid,
        if_version: Option<i64>,
        messages: &[NewMessage],
        now: Timestamp,
    ) -> Result<Conversation>;
}
