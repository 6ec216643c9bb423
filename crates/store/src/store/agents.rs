//! Agents, and the workspace's own choice of a model.

use async_trait::async_trait;
use domain::agent::Agent;
use domain::scope::Scope;
use uuid::Uuid;

use crate::error::Result;

#[async_trait]
pub trait Agents: Send + Sync {
    /// Makes an agent, or changes the one with its id.
    async fn put_agent(&self, scope: &Scope, agent: &Agent) -> Result<()>;

    /// Agents in the order they were made, after `after`.
    async fn list_agents(&self, scope: &Scope, after: Option<Uuid>, limit: usize) -> Result<Vec<Agent>>;

    async fn find_agent(&self, scope: &Scope, id: Uuid) -> Result<Option<Agent>>;

    async fn remove_agent(&self, scope: &Scope, id: Uuid) -> Result<()>;

    /// The model that the workspace's conversations have where neither they nor their agents name one.
    async fn get_workspace_model(&self, scope: &Scope) -> Result<Option<String>>;

    async fn set_workspace_model(&self, scope: &Scope, model: Option<&str>) -> Result<()>;
}
