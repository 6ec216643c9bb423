//! What a model may call on the server. A tool is told who it works for and gives back text or JSON, with what it
//! cites; the loop cuts, stores and sends that on.
//!
//! To add one: a file with its `Tool`, and a line where the server makes the list of them (`boot.rs`).

#[cfg(feature = "failpoints")]
pub(crate) mod effect;
pub mod files;
pub mod knowledge;
pub mod servers;

use async_trait::async_trait;
use domain::event::Source;
use domain::model::ToolSpec;
use domain::scope::{Role, Scope};
use serde_json::Value;
use serde_json::value::{RawValue, to_raw_value};
use uuid::Uuid;

#[async_trait]
pub trait Tool: Send + Sync {
    fn spec(&self) -> ToolSpec;

    /// Whether it leaves everything as it is. Others are not offered in the mode `ask`, unless an agent has them.
    fn is_read_only(&self) -> bool;

    /// Another name that an agent may know it by.
    fn goes_by(&self, _name: &str) -> bool {
        false
    }

    /// The arguments fit the schema. Dropping the call ends it. The error is for the model to read.
    async fn call(&self, place: &Place, args: Value) -> Result<Output, String>;
}

/// Where a call is made.
#[derive(Debug, Clone)]
pub struct Place {
    pub workspace: Uuid,
    pub conversation: Option<Uuid>,
    /// Set where there is no conversation.
    pub execution: Option<Uuid>,
    pub run: Uuid,
    /// Whom the run works for: the owner of the conversation, or who asked for the execution.
    pub user: String,
}

impl Place {
    /// The run works in its own workspace, whoever may see its conversation.
    fn scope(&self) -> Scope {
        Scope {
            workspace: self.workspace,
            org: String::new(),
            user: self.user.clone(),
            role: Role::Service,
            key: None,
            administers: false,
        }
    }
}

fn spec(name: &str, description: &str, schema: &Value) -> ToolSpec {
    let schema = to_raw_value(schema).unwrap_or_else(|_| RawValue::NULL.to_owned());
    ToolSpec { name: name.to_owned(), description: description.to_owned(), schema }
}

/// What a call gives.
#[derive(Debug, Clone, Default)]
pub struct Output {
    /// A text, or anything else as JSON.
    pub value: Value,
    pub sources: Vec<Source>,
}

impl Output {
    pub fn text(text: impl Into<String>) -> Self {
        Self { value: Value::String(text.into()), sources: Vec::new() }
    }

    pub fn json(value: Value) -> Self {
        Self { value, sources: Vec::new() }
    }
}
