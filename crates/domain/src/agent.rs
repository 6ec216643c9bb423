//! An agent: a name for instructions, a model and tools that go together.

use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use uuid::Uuid;

/// Characters of the longest instructions that an agent may have.
pub const MAX_INSTRUCTIONS_CHARS: usize = 32_000;

/// What executes a run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Runner {
    #[default]
    Model,
    Sandbox,
}

/// Tools that an agent has.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(untagged, expecting = "a tool must be a name, { mcp, allow? } or { composio }")]
pub enum ToolChoice {
    /// One of the server's own.
    Native(String),
    /// Those of an MCP server, or the named ones of them.
    Mcp {
        mcp: String,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        allow: Option<Vec<String>>,
    },
    /// Those of a Composio toolkit.
    Composio { composio: String },
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Agent {
    pub id: Uuid,
    pub name: String,
    pub settings: AgentSettings,
    pub created_at: Timestamp,
    pub updated_at: Timestamp,
}

/// Stored as JSON.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct AgentSettings {
    pub instructions: String,
    /// As `provider/model`; none is the workspace's.
    pub model: Option<String>,
    pub runner: Runner,
    pub tools: Vec<ToolChoice>,
    /// Names of tools that a person must agree to, call by call.
    pub approval: Vec<String>,
    /// Rounds of calls in one turn; none is the server's limit.
    pub max_rounds: Option<u32>,
}

impl AgentSettings {
    /// Whether one of the server's own tools is among this agent's.
    pub fn has_native(&self, name: &str) -> bool {
        self.tools.iter().any(|choice| matches!(choice, ToolChoice::Native(own) if own == name))
    }

    pub fn asks_for(&self, name: &str) -> bool {
        self.approval.iter().any(|asked| asked == name)
    }
}
