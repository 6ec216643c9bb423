//! What other people's clients ask for beside our own API.

use async_trait::async_trait;
use domain::message::Message;
use domain::scope::Scope;
use jiff::Timestamp;
use uuid::Uuid;

use crate::error::Result;
use crate::turns::Asking;

#[async_trait]
pub trait Clients: Send + Sync {
    async fn get_asking(&self, scope: &Scope, run: Uuid) -> Result<Asking>;

    /// Takes a run out of the API that made it; everything else goes on knowing it.
    async fn forget_response(&self, scope: &Scope, run: Uuid) -> Result<()>;

    /// The clients' own pairs of these conversations, which the scope is known to see; as JSON.
    async fn list_metadata(&self, scope: &Scope, ids: &[Uuid]) -> Result<Vec<(Uuid, Option<String>)>>;

    async fn set_metadata(&self, scope: &Scope, conversation: Uuid, metadata: &str) -> Result<()>;

    /// Puts other content into a message: text, content, attachments, sources and metadata, and its words. False when
    /// it is no longer what it `was`: nothing is changed then.
    async fn rewrite_message(
        &self,
        scope: &Scope,
        conversation: Uuid,
        was: &Message,
        message: &Message,
        now: Timestamp,
    ) -> Result<bool>;

    /// One message of a conversation, on whichever branch.
    async fn get_message(&self, scope: &Scope, conversation: Uuid, message: Uuid) -> Result<Message>;
}
