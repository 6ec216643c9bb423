//! Workspaces, and the audit log of who may do what in them.

use async_trait::async_trait;
use domain::audit::AuditEntry;
use domain::scope::Scope;
use domain::workspace::{Membership, Workspace, WorkspacePatch};
use jiff::Timestamp;
use uuid::Uuid;

use crate::error::{Result, StoreError};

pub(crate) const WORKSPACE_NOT_EMPTY: StoreError = StoreError::Conflict {
    code: "workspace_not_empty",
    detail: "the workspace still holds conversations; remove it with cascade=true to delete them with it",
};

#[async_trait]
pub trait Workspaces: Send + Sync {
    /// Makes a workspace with the scope's user as its admin; `workspace.id` is the scope's workspace.
    async fn create_workspace(&self, scope: &Scope, workspace: &Workspace) -> Result<()>;

    /// The workspaces that a user is a member of, oldest first: all of them after `after`, at most
    /// `limit`; only `workspace` when it is named.
    async fn list_memberships(
        &self,
        user: &str,
        workspace: Option<Uuid>,
        after: Option<Uuid>,
        limit: usize,
    ) -> Result<Vec<Membership>>;

    async fn find_workspace(&self, scope: &Scope) -> Result<Option<Workspace>>;

    async fn update_workspace(
        &self,
        scope: &Scope,
        patch: &WorkspacePatch,
        now: Timestamp,
    ) -> Result<Workspace>;

    /// Removes the scope's workspace with its members and keys. `Conflict` while it holds live
    /// conversations, unless `cascade`: then they are soft-deleted with their bags.
    async fn remove_workspace(&self, scope: &Scope, cascade: bool, now: Timestamp) -> Result<()>;

    /// The audit log, oldest first, after entry number `after`.
    async fn list_audit(&self, scope: &Scope, after: i64, limit: usize) -> Result<Vec<AuditEntry>>;
}
