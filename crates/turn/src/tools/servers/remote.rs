//! One tool of somebody else's: how a model knows it, and how it is called.

use std::sync::Arc;

use async_trait::async_trait;
use domain::model::ToolSpec;
use domain::tool_server::{Pin, offered_name, safe_name};
use serde_json::Value;
use serde_json::value::{RawValue, to_raw_value};
use upstream::composio::Composio;
use upstream::mcp::{self, Given, McpClient};

use crate::tools::{Output, Place, Tool};

/// A tool of an MCP server.
pub(super) struct McpTool {
    client: Arc<McpClient>,
    spec: ToolSpec,
    /// As its server knows it.
    name: String,
    read_only: bool,
    pub(super) pin: Pin,
    /// It was agreed to as another one.
    pub(super) changed: bool,
}

/// A tool of a service behind Composio.
pub(super) struct ComposioTool {
    composio: Arc<Composio>,
    spec: ToolSpec,
    slug: String,
    read_only: bool,
}

fn spec(name: String, tool: &mcp::Tool) -> ToolSpec {
    let schema = to_raw_value(&tool.schema).unwrap_or_else(|_| RawValue::NULL.to_owned());
    ToolSpec { name, description: tool.description.clone(), schema }
}

fn output(Given { value, failed }: Given) -> Result<Output, String> {
    match value {
        Value::String(reason) if failed => Err(reason),
        other if failed => Err(other.to_string()),
        value => Ok(Output::json(value)),
    }
}

impl McpTool {
    pub(super) fn new(client: &Arc<McpClient>, server: &str, tool: &mcp::Tool) -> Self {
        Self {
            client: Arc::clone(client),
            spec: spec(offered_name(server, &tool.name), tool),
            name: tool.name.clone(),
            read_only: tool.read_only,
            pin: Pin::of(&tool.name, &tool.description, &tool.schema.to_string(), tool.read_only),
            changed: false,
        }
    }

    /// Its server's name for it, or the models'.
    pub(super) fn is(&self, name: &str) -> bool {
        self.name == name || self.spec.name == name
    }
}

#[async_trait]
impl Tool for McpTool {
    fn spec(&self) -> ToolSpec {
        self.spec.clone()
    }

    fn is_read_only(&self) -> bool {
        self.read_only
    }

    fn goes_by(&self, name: &str) -> bool {
        self.is(name)
    }

    async fn call(&self, _: &Place, args: Value) -> Result<Output, String> {
        self.client.call(&self.name, args).await.and_then(output)
    }
}

impl ComposioTool {
    pub(super) fn new(composio: &Arc<Composio>, tool: &mcp::Tool) -> Self {
        Self {
            composio: Arc::clone(composio),
            spec: spec(safe_name(&tool.name), tool),
            slug: tool.name.clone(),
            read_only: tool.read_only,
        }
    }
}

#[async_trait]
impl Tool for ComposioTool {
    fn spec(&self) -> ToolSpec {
        self.spec.clone()
    }

    fn is_read_only(&self) -> bool {
        self.read_only
    }

    fn goes_by(&self, name: &str) -> bool {
        self.slug == name
    }

    async fn call(&self, place: &Place, args: Value) -> Result<Output, String> {
        self.composio.call(&self.slug, &place.user, args).await.and_then(output)
    }
}
