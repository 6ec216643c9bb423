//! Tool servers, and how their tools described themselves.

use async_trait::async_trait;
use domain::scope::Scope;
use domain::tool_server::{Pin, ToolServer};
use jiff::Timestamp;

use crate::error::Result;

#[async_trait]
pub trait ToolServers: Send + Sync {
    /// `Taken` if the workspace has one of that name.
    async fn add_tool_server(&self, scope: &Scope, server: &ToolServer) -> Result<()>;

    /// Those that admins have added, by name, after `after`.
    async fn list_tool_servers(
        &self,
        scope: &Scope,
        after: Option<&str>,
        limit: usize,
    ) -> Result<Vec<ToolServer>>;

    async fn remove_tool_server(&self, scope: &Scope, name: &str, now: Timestamp) -> Result<()>;

    /// How the tools of a server described themselves when they were first seen, or agreed to since. `server` tells
    /// apart those of the same name.
    async fn list_tool_pins(&self, scope: &Scope, server: &str) -> Result<Vec<Pin>>;

    /// Keeps those that were not seen before; the others stay as they are.
    async fn pin_tools(&self, scope: &Scope, server: &str, pins: &[Pin]) -> Result<()>;

    /// From now on the tool is one that describes itself so. `NotFound` when it was never seen.
    async fn approve_tool(
        &self,
        scope: &Scope,
        server: (&str, &str),
        pin: &Pin,
        now: Timestamp,
    ) -> Result<()>;
}
