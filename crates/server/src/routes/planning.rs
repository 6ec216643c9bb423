//! The planning prompt of the mode `task_flow`, as the skill by which a sandbox knows that it is to plan first.

use domain::conversation::Mode;
use serde_json::{Value, json};

const PROMPT: &str = "Plan before you work. Answer with a numbered list of three to ten short steps that lead to what \
the user asks for, one line each, and nothing else. Do not do any of it yet.";

/// The skills of a run: in `task_flow` the one that holds the planning prompt.
pub fn skills(mode: Option<Mode>) -> Value {
    match mode {
        Some(Mode::TaskFlow) => json!([{ "name": "task_flow", "content": PROMPT }]),
        Some(Mode::Ask | Mode::Agent) | None => json!([]),
    }
}
