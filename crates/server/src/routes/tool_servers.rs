//! Tool servers: `/v1/tool-servers`, those of the operator and those that admins add; and `/v1/tools`, what agents can
//! use. What a server is reached with is never shown again.

use axum::extract::State;
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use domain::secret::Secret;
use domain::time::rfc3339;
use domain::tool_server::{MAX_NAME, Pin, ToolServer, is_name, is_token};
use serde::{Deserialize, Deserializer, Serialize};
use store::StoreError;
use turn::tools::Tool;
use turn::tools::servers::{Listed, MAX_SERVERS};
use utoipa::ToSchema;
use uuid::Uuid;

use crate::extract::paging::{List, text_cursor};
use crate::extract::{Caller, JsonBody, Named, Paging, Path};
use crate::problem::Problem;
use crate::state::{App, AppState};

#[derive(Debug, Serialize, ToSchema)]
pub struct ToolServerView {
    name: String,
    /// Where it is, without a query's values; null of the operator's.
    url: Option<String>,
    /// `operator` or `workspace`: who has set it up.
    source: &'static str,
    created_by: Option<String>,
    created_at: Option<String>,
}

#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct ToolServerRequest {
    workspace: Option<Uuid>,
    /// Up to 64 letters, digits, `-` and `_`.
    name: String,
    /// The address of an MCP server's streamable HTTP endpoint.
    url: String,
    /// Sent to it as a bearer token.
    #[serde(default, deserialize_with = "secret")]
    #[schema(value_type = Option<String>)]
    token: Option<Secret>,
}

#[derive(Debug, Serialize, ToSchema)]
pub struct ToolView {
    /// As models know it, and as an agent's `approval` names it.
    name: String,
    description: String,
    /// Whether it says that it changes nothing.
    read_only: bool,
    /// `own`, `mcp` or `composio`.
    source: &'static str,
    /// The tool server or toolkit that it is of; null of Threadkeep's own.
    server: Option<String>,
    /// Of a tool server's: how it describes itself, to agree to.
    hash: Option<String>,
    /// Whether it describes itself anew since it was agreed to; then no agent has it.
    changed: bool,
}

#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct ToolApproval {
    workspace: Option<Uuid>,
    /// As its server knows it, with or without the server's name before it.
    tool: String,
    /// As `GET /v1/tools` has it.
    hash: String,
}

fn secret<'de, D: Deserializer<'de>>(from: D) -> Result<Option<Secret>, D::Error> {
    Ok(Option::<String>::deserialize(from)?.map(Secret::new))
}

fn shape(server: ToolServer) -> ToolServerView {
    ToolServerView {
        name: server.name,
        url: Some(server.url),
        source: "workspace",
        created_by: Some(server.created_by),
        created_at: Some(rfc3339(server.created_at)),
    }
}

fn is_operators(app: &App, name: &str) -> bool {
    app.tool_servers.operators().any(|known| known == name)
}

/// The tool servers that agents of the workspace can use.
#[utoipa::path(get, path = "/v1/tool-servers", operation_id = "list_tool_servers", tag = "models",
    params(("workspace" = Option<Uuid>, Query), ("limit" = Option<u32>, Query), ("after" = Option<String>, Query)),
    responses((status = 200, description = "A page of them, by name", body = List<ToolServerView>)))]
pub async fn list(
    State(app): State<AppState>,
    caller: Caller,
    named: Named,
    paging: Paging,
) -> Result<Response, Problem> {
    let scope = caller.scope(named).await?;
    let after = paging.after_text()?;
    let after = after.as_deref();
    let mut rows: Vec<ToolServerView> = app
        .tool_servers
        .operators()
        .filter(|name| after.is_none_or(|after| *name > after))
        .map(|name| ToolServerView {
            name: name.to_owned(),
            url: None,
            source: "operator",
            created_by: None,
            created_at: None,
        })
        .collect();
    let added = app.store.list_tool_servers(&scope, after, paging.rows()).await?;
    // One that the operator has set up since goes before it.
    rows.extend(added.into_iter().filter(|server| !is_operators(&app, &server.name)).map(shape));
    rows.sort_by(|one, other| one.name.cmp(&other.name));
    Ok(axum::Json(paging.list(rows, |server| text_cursor(&server.name), |server| server)).into_response())
}

/// Adds a tool server to a workspace.
#[utoipa::path(post, path = "/v1/tool-servers", operation_id = "add_tool_server", tag = "models",
    params(("workspace" = Option<Uuid>, Query)), request_body = ToolServerRequest,
    responses((status = 201, body = ToolServerView), (status = 403), (status = 409), (status = 422)))]
pub async fn add(
    State(app): State<AppState>,
    caller: Caller,
    named: Named,
    _: Paging,
    JsonBody(body): JsonBody<ToolServerRequest>,
) -> Result<Response, Problem> {
    let scope = caller.admin_scope(named.and(body.workspace)?).await?;
    if !is_name(&body.name) {
        let detail = format!("name must be up to {MAX_NAME} letters, digits, - and _.");
        return Err(Problem::invalid_value("/name", detail));
    }
    if body.token.as_ref().is_some_and(|token| !is_token(token.expose())) {
        let detail = "token must be up to 4096 visible ASCII characters without spaces.";
        return Err(Problem::invalid_value("/token", detail));
    }
    if is_operators(&app, &body.name) {
        return Err(StoreError::Taken("name").into());
    }
    if app.store.list_tool_servers(&scope, None, MAX_SERVERS).await?.len() >= MAX_SERVERS {
        let detail = "a workspace has at most 100 tool servers; remove one first";
        return Err(StoreError::Conflict { code: "too_many_tool_servers", detail }.into());
    }
    let id = app.clock.new_id();
    let sealed = app.tool_servers.seal(scope.workspace, id, &body.url, body.token.as_ref()).await;
    let (url, sealed) = sealed.map_err(|reason| Problem::invalid_value("/url", format!("url {reason}.")))?;
    let server = ToolServer {
        id,
        name: body.name,
        url,
        sealed,
        created_by: scope.user.clone(),
        created_at: app.clock.now(),
    };
    app.store.add_tool_server(&scope, &server).await?;
    Ok((StatusCode::CREATED, axum::Json(shape(server))).into_response())
}

/// Removes a tool server from a workspace; agents that name it go on without.
#[utoipa::path(delete, path = "/v1/tool-servers/{name}", operation_id = "remove_tool_server", tag = "models",
    params(("name" = String, Path), ("workspace" = Option<Uuid>, Query)),
    responses((status = 204), (status = 403), (status = 404)))]
pub async fn remove(
    State(app): State<AppState>,
    caller: Caller,
    named: Named,
    Path(name): Path<String>,
    _: Paging,
) -> Result<StatusCode, Problem> {
    let scope = caller.admin_scope(named).await?;
    if !is_name(&name) {
        return Err(Problem::not_found());
    }
    let known = app.store.list_tool_servers(&scope, None, MAX_SERVERS).await?;
    let known = known.into_iter().find(|server| server.name == name);
    if known.is_none() && is_operators(&app, &name) {
        let detail = "This tool server is the operator's: it is set up in the configuration file.";
        return Err(Problem::forbidden(detail));
    }
    app.store.remove_tool_server(&scope, &name, app.clock.now()).await?;
    if let Some(server) = known {
        app.tool_servers.forget(server.id).await;
    }
    Ok(StatusCode::NO_CONTENT)
}

/// Agrees to a tool of a tool server as it describes itself now, so that agents have it again.
#[utoipa::path(post, path = "/v1/tool-servers/{name}/approve", operation_id = "approve_tool", tag = "models",
    params(("name" = String, Path), ("workspace" = Option<Uuid>, Query)), request_body = ToolApproval,
    responses((status = 204), (status = 403), (status = 404, description = "No such tool was seen there"), (status = 422)))]
pub async fn approve(
    State(app): State<AppState>,
    caller: Caller,
    named: Named,
    Path(name): Path<String>,
    _: Paging,
    JsonBody(body): JsonBody<ToolApproval>,
) -> Result<StatusCode, Problem> {
    let scope = caller.admin_scope(named.and(body.workspace)?).await?;
    if body.hash.len() != 64 || !body.hash.bytes().all(|byte| byte.is_ascii_hexdigit()) {
        return Err(Problem::invalid_value("/hash", "hash must be the tool's, as GET /v1/tools has it."));
    }
    let tool = body.tool.strip_prefix(&format!("{name}__")).unwrap_or(&body.tool).to_owned();
    let pin = Pin { tool, hash: body.hash.to_ascii_lowercase() };
    app.tool_servers.approve(&scope, &name, &pin, app.clock.now()).await?;
    Ok(StatusCode::NO_CONTENT)
}

/// What agents of the workspace can use now: Threadkeep's own tools, those of tool servers that answer, and those of
/// the toolkits of Composio that its agents name.
#[utoipa::path(get, path = "/v1/tools", operation_id = "list_tools", tag = "models",
    params(("workspace" = Option<Uuid>, Query), ("limit" = Option<u32>, Query), ("after" = Option<String>, Query)),
    responses((status = 200, description = "A page of them", body = List<ToolView>)))]
pub async fn tools(
    State(app): State<AppState>,
    caller: Caller,
    named: Named,
    paging: Paging,
) -> Result<Response, Problem> {
    let scope = caller.scope(named).await?;
    let view = |tool: &dyn Tool, source: &'static str| {
        let spec = tool.spec();
        let (name, description, read_only) = (spec.name, spec.description, tool.is_read_only());
        ToolView { name, description, read_only, source, server: None, hash: None, changed: false }
    };
    let mut data: Vec<ToolView> = app.turns.tools().iter().map(|tool| view(&**tool, "own")).collect();
    let others = app.tool_servers.list(&scope).await?;
    data.extend(others.into_iter().map(|Listed { server, tool, pin }| {
        let source = if pin.is_some() { "mcp" } else { "composio" };
        let (hash, changed) = pin.map_or((None, false), |(pin, changed)| (Some(pin.hash), changed));
        ToolView { server: Some(server), hash, changed, ..view(&*tool, source) }
    }));
    let cursor =
        |tool: &ToolView| text_cursor(&format!("{}/{}", tool.server.as_deref().unwrap_or(""), tool.name));
    Ok(axum::Json(paging.cut(data, cursor, |tool| tool)?).into_response())
}
