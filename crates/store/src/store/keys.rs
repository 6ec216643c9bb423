//! API keys, kept as hashes.

use async_trait::async_trait;
use domain::scope::Scope;
use domain::workspace::{ApiKey, KeyGrant};
use jiff::Timestamp;
use uuid::Uuid;

use crate::error::Result;

#[async_trait]
pub trait Keys: Send + Sync {
    /// Keeps a key by its hash. `key.created_by` is the maker.
    async fn create_key(&self, scope: &Scope, key: &ApiKey, hash: [u8; 32]) -> Result<()>;

    /// Keys in the order they were made, after `after`.
    async fn list_keys(&self, scope: &Scope, after: Option<Uuid>, limit: usize) -> Result<Vec<ApiKey>>;

    async fn remove_key(&self, scope: &Scope, id: Uuid, now: Timestamp) -> Result<()>;

    /// What the key with this hash stands for in that workspace; `None` for an unknown, removed or
    /// foreign one.
    async fn find_key(&self, workspace: Uuid, hash: [u8; 32]) -> Result<Option<KeyGrant>>;
}
