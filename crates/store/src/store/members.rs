//! Members of a workspace and their roles.

use async_trait::async_trait;
use domain::scope::{Role, Scope};
use domain::workspace::Member;
use jiff::Timestamp;

use crate::error::{Result, StoreError};

pub(crate) const LAST_ADMIN: StoreError = StoreError::Conflict {
    code: "last_admin",
    detail: "a workspace needs an admin: make another member an admin first",
};

#[async_trait]
pub trait Members: Send + Sync {
    /// Members by user id, after `after`.
    async fn list_members(&self, scope: &Scope, after: Option<&str>, limit: usize) -> Result<Vec<Member>>;

    async fn find_member(&self, scope: &Scope, user: &str) -> Result<Option<Member>>;

    /// Adds a member, or gives an existing one another role. True when it was added. `Conflict` when
    /// the workspace would be left without an admin.
    async fn put_member(
        &self,
        scope: &Scope,
        user: &str,
        role: Role,
        now: Timestamp,
    ) -> Result<(Member, bool)>;

    /// Removes a member. The keys that member made stop working, service keys aside. `Conflict` when
    /// it is the last admin.
    async fn remove_member(&self, scope: &Scope, user: &str, now: Timestamp) -> Result<()>;
}
