//! Agents: `/v1/agents`. Every member may use them; admins make and change them.

use axum::extract::State;
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use domain::agent::{Agent, AgentSettings, MAX_INSTRUCTIONS_CHARS, Runner, ToolChoice};
use domain::time::rfc3339;
use serde::{Deserialize, Deserializer, Serialize};
use utoipa::ToSchema;
use uuid::Uuid;

use super::workspaces::{check_name, path_id};
use crate::extract::paging::List;
use crate::extract::{Caller, JsonBody, Named, Paging, Path};
use crate::jsonapi::error::shown;
use crate::problem::Problem;
use crate::state::{App, AppState};
use crate::words;

const MAX_TOOLS: usize = 100;
const MAX_NAME_CHARS: usize = 128;

/// A tool, as `ToolChoice` writes it: the name of one of the server's own, or what another server has.
#[derive(Debug, Serialize, ToSchema)]
#[serde(untagged)]
#[expect(dead_code, reason = "described for clients")]
pub enum ToolDocument {
    Own(String),
    Mcp { mcp: String, allow: Option<Vec<String>> },
    Composio { composio: String },
}

#[derive(Debug, Serialize, ToSchema)]
pub struct AgentView {
    id: Uuid,
    name: String,
    instructions: String,
    model: Option<String>,
    /// `model` or `sandbox`.
    #[schema(value_type = words::Runner)]
    runner: Runner,
    #[schema(value_type = Vec<ToolDocument>)]
    tools: Vec<ToolChoice>,
    /// Tools that a person must agree to, call by call.
    approval: Vec<String>,
    max_rounds: Option<u32>,
    created_at: String,
    updated_at: String,
}

/// What is left out stays as it is; of a new agent, empty.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct AgentRequest {
    workspace: Option<Uuid>,
    #[serde(default, deserialize_with = "not_null")]
    #[schema(value_type = String)]
    name: Option<String>,
    #[serde(default, deserialize_with = "not_null")]
    #[schema(value_type = String)]
    instructions: Option<String>,
    #[serde(default, deserialize_with = "given")]
    #[schema(value_type = Option<String>)]
    model: Option<Option<String>>,
    #[serde(default, deserialize_with = "not_null")]
    #[schema(value_type = words::Runner)]
    runner: Option<Runner>,
    #[serde(default, deserialize_with = "not_null")]
    #[schema(value_type = Vec<ToolDocument>)]
    tools: Option<Vec<ToolChoice>>,
    #[serde(default, deserialize_with = "not_null")]
    #[schema(value_type = Vec<String>)]
    approval: Option<Vec<String>>,
    #[serde(default, deserialize_with = "given")]
    #[schema(value_type = Option<u32>)]
    max_rounds: Option<Option<u32>>,
}

/// A new agent needs a name.
#[derive(Debug, Deserialize, ToSchema)]
#[expect(dead_code, reason = "described for clients")]
pub struct CreateAgent {
    #[serde(flatten)]
    request: AgentRequest,
    name: String,
}

/// Tells a null that was sent from a field that was left out.
pub(super) fn given<'de, T: Deserialize<'de>, D: Deserializer<'de>>(
    from: D,
) -> Result<Option<Option<T>>, D::Error> {
    Option::<T>::deserialize(from).map(Some)
}

/// Refuses a null where there is no such value: it would be taken for a field that was left out.
pub(super) fn not_null<'de, T: Deserialize<'de>, D: Deserializer<'de>>(
    from: D,
) -> Result<Option<T>, D::Error> {
    T::deserialize(from).map(Some)
}

fn shape(agent: Agent) -> AgentView {
    let AgentSettings { instructions, model, runner, tools, approval, max_rounds } = agent.settings;
    AgentView {
        id: agent.id,
        name: agent.name,
        instructions,
        model,
        runner,
        tools,
        approval,
        max_rounds,
        created_at: rfc3339(agent.created_at),
        updated_at: rfc3339(agent.updated_at),
    }
}

/// The name of a model, as far as it can be told without asking its provider.
pub(super) fn check_model(model: Option<&str>) -> Result<(), Problem> {
    let named = |name: &str| {
        name.chars().count() <= 255
            && !name.chars().any(char::is_control)
            && name.split_once('/').is_some_and(|(provider, model)| !provider.is_empty() && !model.is_empty())
    };
    match model {
        Some(name) if !named(name) => {
            Err(Problem::invalid_value("/model", "model must be null or provider/model."))
        }
        _ => Ok(()),
    }
}

/// The agent with what was asked for, or what is wrong with that.
fn apply(app: &App, agent: &mut Agent, body: AgentRequest) -> Result<(), Problem> {
    if let Some(name) = body.name {
        check_name(&name)?;
        agent.name = name;
    }
    let settings = &mut agent.settings;
    if let Some(instructions) = body.instructions {
        if instructions.chars().count() > MAX_INSTRUCTIONS_CHARS {
            let detail = format!("instructions must be at most {MAX_INSTRUCTIONS_CHARS} characters.");
            return Err(Problem::invalid_value("/instructions", detail));
        }
        settings.instructions = instructions;
    }
    if let Some(model) = body.model {
        check_model(model.as_deref())?;
        settings.model = model;
    }
    settings.runner = body.runner.unwrap_or(settings.runner);
    let short = |name: &String| !name.is_empty() && name.chars().count() <= MAX_NAME_CHARS;
    if let Some(tools) = body.tools {
        if tools.len() > MAX_TOOLS {
            return Err(Problem::invalid_value("/tools", format!("tools must be at most {MAX_TOOLS}.")));
        }
        let own: Vec<String> = app.turns.tools().iter().map(|tool| tool.spec().name).collect();
        // Other servers come and go, the server's own tools do not; what the agent has already it may keep.
        for (at, tool) in tools.iter().enumerate() {
            if let ToolChoice::Native(name) = tool
                && !own.contains(name)
                && !settings.has_native(name)
            {
                let detail = format!("There is no tool {} here; there are {}.", shown(name), own.join(", "));
                return Err(Problem::invalid_value(&format!("/tools/{at}"), detail));
            }
        }
        settings.tools = tools;
    }
    if let Some(approval) = body.approval {
        if approval.len() > MAX_TOOLS || !approval.iter().all(short) {
            let detail = format!("approval must be at most {MAX_TOOLS} names of tools.");
            return Err(Problem::invalid_value("/approval", detail));
        }
        settings.approval = approval;
    }
    if let Some(rounds) = body.max_rounds {
        // What it has already it may keep: the server's limit may have been another.
        let most = app.limits.max_tool_rounds;
        let within = |rounds: u32| (1..=most).contains(&rounds.into());
        if !rounds.is_none_or(within) && rounds != settings.max_rounds {
            let detail = format!("max_rounds must be null or from 1 to {most}, the server's limit.");
            return Err(Problem::invalid_value("/max_rounds", detail));
        }
        settings.max_rounds = rounds;
    }
    Ok(())
}

/// The workspace's agents.
#[utoipa::path(get, path = "/v1/agents", operation_id = "list_agents", tag = "models",
    params(("workspace" = Option<Uuid>, Query), ("limit" = Option<u32>, Query), ("after" = Option<String>, Query)),
    responses((status = 200, description = "A page of them", body = List<AgentView>)))]
pub async fn list(
    State(app): State<AppState>,
    caller: Caller,
    named: Named,
    paging: Paging,
) -> Result<Response, Problem> {
    let scope = caller.scope(named).await?;
    let rows = app.store.list_agents(&scope, paging.after()?, paging.rows()).await?;
    Ok(axum::Json(paging.list(rows, |agent| agent.id.to_string(), shape)).into_response())
}

/// Makes an agent.
#[utoipa::path(post, path = "/v1/agents", operation_id = "create_agent", tag = "models", params(("workspace" = Option<Uuid>, Query)),
    request_body = CreateAgent, responses((status = 201, body = AgentView), (status = 403)))]
pub async fn create(
    State(app): State<AppState>,
    caller: Caller,
    named: Named,
    _: Paging,
    JsonBody(body): JsonBody<AgentRequest>,
) -> Result<Response, Problem> {
    let scope = caller.admin_scope(named.and(body.workspace)?).await?;
    if body.name.is_none() {
        return Err(Problem::invalid_value("/name", "name is missing."));
    }
    let (id, now) = (app.clock.new_id(), app.clock.now());
    let mut agent = Agent {
        id,
        name: String::new(),
        settings: AgentSettings::default(),
        created_at: now,
        updated_at: now,
    };
    apply(&app, &mut agent, body)?;
    app.store.put_agent(&scope, &agent).await?;
    Ok((StatusCode::CREATED, axum::Json(shape(agent))).into_response())
}

/// One agent.
#[utoipa::path(get, path = "/v1/agents/{id}", operation_id = "get_agent", tag = "models",
    params(("id" = Uuid, Path), ("workspace" = Option<Uuid>, Query)),
    responses((status = 200, body = AgentView), (status = 404)))]
pub async fn show(
    State(app): State<AppState>,
    caller: Caller,
    named: Named,
    Path(id): Path<String>,
    _: Paging,
) -> Result<Response, Problem> {
    let scope = caller.scope(named).await?;
    let agent = app.store.find_agent(&scope, path_id(&id)?).await?.ok_or_else(Problem::not_found)?;
    Ok(axum::Json(shape(agent)).into_response())
}

/// Changes an agent: runs that start from now on have it.
#[utoipa::path(patch, path = "/v1/agents/{id}", operation_id = "update_agent", tag = "models",
    params(("id" = Uuid, Path), ("workspace" = Option<Uuid>, Query)), request_body = AgentRequest,
    responses((status = 200, body = AgentView), (status = 403), (status = 404)))]
pub async fn update(
    State(app): State<AppState>,
    caller: Caller,
    named: Named,
    Path(id): Path<String>,
    _: Paging,
    JsonBody(body): JsonBody<AgentRequest>,
) -> Result<Response, Problem> {
    let scope = caller.admin_scope(named.and(body.workspace)?).await?;
    let found = app.store.find_agent(&scope, path_id(&id)?).await?;
    let mut agent = found.ok_or_else(Problem::not_found)?;
    apply(&app, &mut agent, body)?;
    agent.updated_at = app.clock.now();
    app.store.put_agent(&scope, &agent).await?;
    Ok(axum::Json(shape(agent)).into_response())
}

/// Removes an agent; conversations that name it go on without.
#[utoipa::path(delete, path = "/v1/agents/{id}", operation_id = "remove_agent", tag = "models",
    params(("id" = Uuid, Path), ("workspace" = Option<Uuid>, Query)),
    responses((status = 204), (status = 403), (status = 404)))]
pub async fn remove(
    State(app): State<AppState>,
    caller: Caller,
    named: Named,
    Path(id): Path<String>,
    _: Paging,
) -> Result<StatusCode, Problem> {
    let scope = caller.admin_scope(named).await?;
    app.store.remove_agent(&scope, path_id(&id)?).await?;
    Ok(StatusCode::NO_CONTENT)
}
