//! Leases: liveness by the database's own clock, and how nodes hear of each other.

use async_trait::async_trait;
use domain::scope::Scope;
use futures_util::stream::BoxStream;
use uuid::Uuid;

use crate::error::Result;
use crate::turns::{Heartbeat, Held, Lock, News, Waiting};

#[async_trait]
pub trait Leases: Send + Sync {
    /// This node's runs; with `renew`, their leases are extended.
    async fn system_heartbeat(&self, node: Uuid, lease_seconds: u64, renew: bool) -> Result<Heartbeat>;

    /// Takes over runs whose lease has run out, with a higher fence.
    async fn system_take_expired(&self, node: Uuid, lease_seconds: u64, limit: usize) -> Result<Vec<Held>>;

    /// Takes over the conversation's run under way, whoever holds it.
    async fn take_over(
        &self,
        scope: &Scope,
        conversation: Uuid,
        node: Uuid,
        lease_seconds: u64,
    ) -> Result<Option<Held>>;

    /// The runs under way that hold a conversation, by workspace and run, after one of them.
    async fn system_list_locks(&self, after: Option<(Uuid, Uuid)>, limit: usize) -> Result<Vec<Lock>>;

    /// Conversations with a queued run and none under way. Any of them, where there are more: those whose run does not
    /// start for now keep no others out.
    async fn system_list_waiting(&self, limit: usize) -> Result<Vec<Waiting>>;

    /// Tells all nodes. Its own statement, never part of another verb's transaction.
    async fn system_announce(&self, news: &[News]) -> Result<()>;

    /// What all nodes announce, this one's own news too, from when it is first polled; it reconnects by itself and
    /// may skip; `Missed` tells of that. `None` where there is only one node. Each call makes one connection that listens.
    fn system_news(&self) -> Option<BoxStream<'static, News>>;

    /// Whether other nodes may take what this one does not renew.
    fn is_shared(&self) -> bool;
}
