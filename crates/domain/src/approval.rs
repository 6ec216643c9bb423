//! A call that waits for a person. It is kept, so that a restart neither forgets it nor makes the call twice.

use jiff::Timestamp;
use uuid::Uuid;

use crate::event::ToolCall;

#[derive(Debug, Clone)]
pub struct Approval {
    pub id: Uuid,
    pub round: u32,
    pub call: ToolCall,
    pub decision: Option<Decision>,
    /// The call may have been made.
    pub started: bool,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Decision {
    pub approve: bool,
    pub reason: Option<String>,
    pub by: String,
    pub at: Timestamp,
}
