//! Tools that a client of the Responses API brings: functions, whose calls it makes itself. In: `tools` of a request. Out:
//! what a model is offered, and what the response repeats.

use std::collections::HashSet;

use domain::run::BroughtTool;
use serde_json::{Value, json};

use super::member;
use crate::problem::Problem;

/// As many as OpenAI takes.
const MAX_TOOLS: usize = 128;
/// Every provider takes a name of these: 64 ASCII letters, digits, `_` and `-`.
const NAME_CHARS: usize = 64;

pub fn read_tools(body: &Value) -> Result<Vec<BroughtTool>, Problem> {
    let tools = match &body["tools"] {
        Value::Null => return Ok(Vec::new()),
        Value::Array(tools) => tools,
        _ => return Err(Problem::invalid_value("/tools", "tools must be a list.")),
    };
    if tools.len() > MAX_TOOLS {
        let detail = format!("There are {} tools; send at most {MAX_TOOLS}.", tools.len());
        return Err(Problem::invalid_value("/tools", detail));
    }
    let (mut names, mut read) = (HashSet::new(), Vec::with_capacity(tools.len()));
    for (n, tool) in tools.iter().enumerate() {
        let tool = read_tool(tool, &format!("/tools/{n}"))?;
        if !names.insert(tool.name.clone()) {
            let detail = format!("Another tool before it is called {:?}.", tool.name);
            return Err(Problem::invalid_value(&format!("/tools/{n}/name"), detail));
        }
        read.push(tool);
    }
    Ok(read)
}

fn read_tool(tool: &Value, at: &str) -> Result<BroughtTool, Problem> {
    if tool["type"] != "function" {
        let detail = "The tools of a client are of the type function; all others run on the server: give them to an \
                      agent, and name the agent as the model.";
        return Err(Problem::invalid_value(&format!("{at}/type"), detail));
    }
    let name: String = member(tool, at, "name")?.unwrap_or_default();
    let fits = |one: char| one.is_ascii_alphanumeric() || one == '_' || one == '-';
    if name.is_empty() || name.len() > NAME_CHARS || !name.chars().all(fits) {
        let detail = format!("A tool's name is 1 to {NAME_CHARS} letters (a to z), digits, _ and -.");
        return Err(Problem::invalid_value(&format!("{at}/name"), detail));
    }
    let parameters = match &tool["parameters"] {
        Value::Null => json!({ "type": "object", "properties": {} }),
        parameters @ Value::Object(_) => parameters.clone(),
        _ => {
            let detail = "parameters must be a JSON Schema, which is an object.";
            return Err(Problem::invalid_value(&format!("{at}/parameters"), detail));
        }
    };
    member::<bool>(tool, at, "strict")?;
    Ok(BroughtTool { name, description: member(tool, at, "description")?.unwrap_or_default(), parameters })
}

/// The same as the response repeats it.
pub fn repeated(body: &Value) -> Value {
    let tools = body["tools"].as_array().into_iter().flatten();
    let told = |tool: &Value| {
        json!({ "type": "function", "name": tool["name"], "description": tool["description"],
            "parameters": tool["parameters"], "strict": tool["strict"] })
    };
    tools.map(told).collect()
}
