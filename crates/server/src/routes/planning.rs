//! The planning prompt of the mode `task_flow`, as the skill by which a sandbox knows that it is to plan first.

use domain::conversation::Mode;
use serde_json::{Value, json};

/// The skill's name.
pub const TASK_FLOW: &str = "task_flow";

const PROMPT: &str = "Plan before you work. Answer with a numbered list of three to ten short steps that lead to what \
the user asks for, one line each, and nothing else. Do not do any of it yet.";

/// In `task_flow`, the skill that holds the planning prompt.
pub fn skill(mode: Option<Mode>) -> Option<Value> {
    (mode == Some(Mode::TaskFlow)).then(|| json!({ "name": TASK_FLOW, "content": PROMPT }))
}
