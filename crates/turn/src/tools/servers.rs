//! Tools of other servers: MCP servers that the operator configured or that admins added to a workspace, and Composio.
//! Which there are is looked up for each run; one that cannot be had is missing, and the run goes on without it.

mod remote;

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use domain::agent::ToolChoice;
use domain::scope::Scope;
use domain::sealed;
use domain::secret::Secret;
use domain::tool_server::{Pin, ToolServer};
use futures_util::future::join_all;
use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use store::{Store, StoreError};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use upstream::composio::Composio;
use upstream::guard::Guarded;
use upstream::mcp::{self, Endpoint, McpClient};
use uuid::Uuid;

use super::Tool;
use remote::{ComposioTool, McpTool};

/// Tools that a model is offered in all: providers take no more.
const MAX_OFFERED: usize = 128;
/// Servers that a workspace may have.
pub const MAX_SERVERS: usize = 100;
/// Agents whose toolkits are listed.
const MAX_AGENTS: usize = 1000;
/// A connection that nobody used for so long is given up.
const IDLE: Duration = Duration::from_secs(15 * 60);
/// How long a toolkit's tools are good for.
const TOOLKIT: Duration = Duration::from_secs(60);

pub struct ToolServers {
    store: Arc<dyn Store>,
    operators: BTreeMap<String, Arc<McpClient>>,
    /// Connections to servers of workspaces, by the server's id.
    added: Mutex<Connections>,
    composio: Option<Arc<Composio>>,
    toolkits: Mutex<Toolkits>,
    guarded: Guarded,
    secret: Secret,
    tasks: TaskTracker,
    stop: CancellationToken,
}

/// What `ToolServers` is made of.
pub struct Parts {
    pub store: Arc<dyn Store>,
    /// Those of the operator, by name.
    pub operators: BTreeMap<String, Endpoint>,
    pub composio: Option<Composio>,
    /// The way to servers of admins.
    pub guarded: Guarded,
    /// Seals what they are kept with.
    pub secret: Secret,
}

/// What a run's model may call, and what it may not though its agent names it.
pub struct Offered {
    pub tools: Vec<Arc<dyn Tool>>,
    pub missing: Vec<String>,
}

/// A tool of a server, for a list.
pub struct Listed {
    /// The server's name, or the toolkit's.
    pub server: String,
    pub tool: Arc<dyn Tool>,
    /// How a tool of an MCP server describes itself now, and whether that is not what it was agreed to be.
    pub pin: Option<(Pin, bool)>,
}

/// How a server is reached, which is kept sealed.
#[derive(Serialize, Deserialize)]
struct Connection {
    url: String,
    token: Option<String>,
}

/// With when each was last used.
type Connections = HashMap<Uuid, (Arc<McpClient>, Instant)>;
/// With when each was asked for.
type Toolkits = HashMap<String, (Arc<[mcp::Tool]>, Instant)>;
type Found = Result<Vec<Arc<dyn Tool>>, String>;

impl Offered {
    fn none(reason: String) -> Self {
        Self { tools: Vec::new(), missing: vec![reason] }
    }
}

impl ToolServers {
    pub fn new(parts: Parts) -> Self {
        let Parts { store, operators, composio, guarded, secret } = parts;
        let (tasks, stop) = (TaskTracker::new(), CancellationToken::new());
        let connect = |(name, endpoint): (String, Endpoint)| {
            let client = McpClient::new(&name, endpoint, tasks.clone(), stop.clone());
            (name, Arc::new(client))
        };
        Self {
            store,
            operators: operators.into_iter().map(connect).collect(),
            added: Mutex::default(),
            composio: composio.map(Arc::new),
            toolkits: Mutex::default(),
            guarded,
            secret,
            tasks,
            stop,
        }
    }

    /// Names of the operator's servers.
    pub fn operators(&self) -> impl Iterator<Item = &str> {
        self.operators.keys().map(String::as_str)
    }

    /// Whether a workspace's server may be there; answers how it is shown and how it is kept.
    pub async fn seal(
        &self,
        workspace: Uuid,
        id: Uuid,
        url: &str,
        token: Option<&Secret>,
    ) -> Result<(String, Vec<u8>), String> {
        let (url, shown) = self.guarded.admit(url).await?;
        let token = token.map(|token| token.expose().to_owned());
        let whole = serde_json::to_string(&Connection { url, token }).unwrap_or_default();
        let owner = ToolServer::owner(workspace, id);
        let sealed = sealed::seal(&Secret::new(whole), &owner, &self.secret);
        Ok((shown, sealed.ok_or("cannot be kept: this machine has no randomness")?))
    }

    /// Ends the connection to a server that is no more.
    pub async fn forget(&self, id: Uuid) {
        let known = self.added().remove(&id);
        if let Some((client, _)) = known {
            client.close().await;
        }
    }

    /// An agent's tools: the server's `own`, and those of its choices that can be had.
    pub async fn offered(&self, scope: &Scope, own: Vec<Arc<dyn Tool>>, choices: &[ToolChoice]) -> Offered {
        let mut offered = Offered { tools: own, missing: Vec::new() };
        let added = match choices.iter().any(|choice| matches!(choice, ToolChoice::Mcp { .. })) {
            true => self.store.list_tool_servers(scope, None, MAX_SERVERS).await,
            false => Ok(Vec::new()),
        };
        let added = added.unwrap_or_else(|error| {
            offered.missing.push("the workspace's tool servers cannot be read now".to_owned());
            tracing::warn!(%error, "tool servers cannot be read");
            Vec::new()
        });
        let found = join_all(choices.iter().map(|choice| self.choose(scope, &added, choice))).await;
        let mut names: HashSet<String> = offered.tools.iter().map(|tool| tool.spec().name).collect();
        for found in found {
            offered.missing.extend(found.missing);
            offered.tools.extend(found.tools.into_iter().filter(|tool| names.insert(tool.spec().name)));
        }
        if offered.tools.len() > MAX_OFFERED {
            let all = offered.tools.len();
            offered
                .missing
                .push(format!("{MAX_OFFERED} of the agent's {all} tools are offered, which is the most"));
            offered.tools.truncate(MAX_OFFERED);
        }
        for reason in &offered.missing {
            tracing::warn!(workspace = %scope.workspace, %reason, "an agent's tools are missing");
        }
        offered
    }

    /// Every tool of every server that the workspace can use now.
    pub async fn list(&self, scope: &Scope) -> Result<Vec<Listed>, StoreError> {
        let added = self.store.list_tool_servers(scope, None, MAX_SERVERS).await?;
        let own = self.operators.keys();
        let others =
            added.iter().map(|server| &server.name).filter(|name| !self.operators.contains_key(*name));
        let names: Vec<&String> = own.chain(others).collect();
        let asked = names.iter().map(|name| self.tools_of(scope, &added, name));
        let found = join_all(asked).await.into_iter().zip(&names);
        let listed = found.flat_map(|(tools, server)| {
            let tools = tools.unwrap_or_default().into_iter();
            tools.map(|tool| Listed {
                server: (*server).clone(),
                pin: Some((tool.pin.clone(), tool.changed)),
                tool: Arc::new(tool),
            })
        });
        let mut listed: Vec<Listed> = listed.collect();
        let toolkits = self.toolkits_of(scope).await?;
        let asked = join_all(toolkits.iter().map(|toolkit| self.toolkit(toolkit))).await;
        for (server, tools) in toolkits.into_iter().zip(asked) {
            let tools = tools.unwrap_or_default().into_iter();
            listed.extend(tools.map(|tool| Listed { server: server.clone(), tool, pin: None }));
        }
        Ok(listed)
    }

    /// The toolkits that agents of the workspace name.
    async fn toolkits_of(&self, scope: &Scope) -> Result<BTreeSet<String>, StoreError> {
        if self.composio.is_none() {
            return Ok(BTreeSet::new());
        }
        let agents = self.store.list_agents(scope, None, MAX_AGENTS).await?;
        let choices = agents.into_iter().flat_map(|agent| agent.settings.tools);
        let named = choices.filter_map(|choice| match choice {
            ToolChoice::Composio { composio } => Some(composio),
            _ => None,
        });
        Ok(named.collect())
    }

    /// From now on a tool of the server is one that describes itself so.
    pub async fn approve(
        &self,
        scope: &Scope,
        server: &str,
        pin: &Pin,
        now: Timestamp,
    ) -> Result<(), StoreError> {
        let key = match self.operators.get(server) {
            Some(client) => operators_key(server, client),
            None => {
                let added = self.store.list_tool_servers(scope, None, MAX_SERVERS).await?;
                let known = added.iter().find(|known| known.name == server);
                known.ok_or(StoreError::NotFound)?.id.to_string()
            }
        };
        self.store.approve_tool(scope, (&key, server), pin, now).await
    }

    /// Ends every connection and every process, and waits for that.
    pub async fn stop(&self) {
        let added: Vec<_> = self.added().drain().map(|(_, (client, _))| client).collect();
        join_all(self.operators.values().chain(&added).map(|client| client.close())).await;
        self.stop.cancel();
        self.tasks.close();
        self.tasks.wait().await;
    }

    async fn choose(&self, scope: &Scope, added: &[ToolServer], choice: &ToolChoice) -> Offered {
        let found = match choice {
            ToolChoice::Native(_) => Ok(Vec::new()),
            ToolChoice::Composio { composio } => self.toolkit(composio).await,
            ToolChoice::Mcp { mcp, allow } => match self.tools_of(scope, added, mcp).await {
                Ok(mut tools) => {
                    if let Some(allow) = allow {
                        tools.retain(|tool| allow.iter().any(|name| tool.is(name)));
                    }
                    return as_agreed(mcp, tools);
                }
                Err(reason) => Err(reason),
            },
        };
        found.map_or_else(Offered::none, |tools| Offered { tools, missing: Vec::new() })
    }

    async fn tools_of(
        &self,
        scope: &Scope,
        added: &[ToolServer],
        name: &str,
    ) -> Result<Vec<McpTool>, String> {
        let (client, key) = match self.operators.get(name) {
            Some(client) => (Arc::clone(client), operators_key(name, client)),
            None => {
                let server = added.iter().find(|server| server.name == name);
                let server = server.ok_or_else(|| format!("there is no tool server {name:?}"))?;
                let client = self.connection(scope.workspace, server);
                let client = client.map_err(|reason| format!("tool server {name}: {reason}"))?;
                (client, server.id.to_string())
            }
        };
        let tools = client.tools().await.map_err(|fault| format!("tool server {name}: {fault}"))?;
        let mut tools: Vec<McpTool> = tools.iter().map(|tool| McpTool::new(&client, name, tool)).collect();
        self.compare(scope, &key, &mut tools).await.map_err(|error| {
            tracing::warn!(%error, "what tools were agreed to cannot be read");
            format!("tool server {name}: what its tools were agreed to be cannot be read now")
        })?;
        Ok(tools)
    }

    /// Marks the tools that describe themselves anew since they were agreed to. One that was never seen is agreed to.
    async fn compare(&self, scope: &Scope, key: &str, tools: &mut [McpTool]) -> Result<(), StoreError> {
        let known = self.store.list_tool_pins(scope, key).await?;
        let known: HashMap<String, String> = known.into_iter().map(|pin| (pin.tool, pin.hash)).collect();
        let mut fresh = Vec::new();
        for tool in tools {
            match known.get(&tool.pin.tool) {
                Some(hash) => tool.changed = *hash != tool.pin.hash,
                None => fresh.push(tool.pin.clone()),
            }
        }
        if fresh.is_empty() { Ok(()) } else { self.store.pin_tools(scope, key, &fresh).await }
    }

    async fn toolkit(&self, toolkit: &str) -> Found {
        let composio =
            self.composio.as_ref().ok_or("there is no Composio here: COMPOSIO_API_KEY is not set")?;
        let known = self.toolkits().get(toolkit).filter(|(_, at)| at.elapsed() < TOOLKIT).cloned();
        let tools = match known {
            Some((tools, _)) => tools,
            None => {
                let found = composio.tools(toolkit).await;
                let found: Arc<[mcp::Tool]> =
                    found.map_err(|reason| format!("toolkit {toolkit}: {reason}"))?.into();
                let mut toolkits = self.toolkits();
                toolkits.retain(|_, (_, at)| at.elapsed() < TOOLKIT);
                toolkits.insert(toolkit.to_owned(), (Arc::clone(&found), Instant::now()));
                found
            }
        };
        Ok(tools.iter().map(|tool| Arc::new(ComposioTool::new(composio, tool)) as Arc<dyn Tool>).collect())
    }

    fn connection(&self, workspace: Uuid, server: &ToolServer) -> Result<Arc<McpClient>, String> {
        let mut added = self.added();
        if let Some((client, used)) = added.get_mut(&server.id) {
            *used = Instant::now();
            return Ok(Arc::clone(client));
        }
        let owner = ToolServer::owner(workspace, server.id);
        let opened = sealed::open(&server.sealed, &owner, &self.secret);
        let opened = opened.and_then(|text| serde_json::from_str::<Connection>(text.expose()).ok());
        let Connection { url, token } =
            opened.ok_or("THREADKEEP_SECRET is another one than when it was added; add it again")?;
        let endpoint = Endpoint::Http(self.guarded.endpoint(&url, token.map(Secret::new))?);
        let client = McpClient::new(&server.name, endpoint, self.tasks.clone(), self.stop.clone());
        let client = Arc::new(client);
        added.retain(|_, (_, used)| used.elapsed() < IDLE);
        added.insert(server.id, (Arc::clone(&client), Instant::now()));
        Ok(client)
    }

    fn added(&self) -> MutexGuard<'_, Connections> {
        self.added.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn toolkits(&self) -> MutexGuard<'_, Toolkits> {
        self.toolkits.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Tells an operator's server apart from one of the same name that is somewhere else.
fn operators_key(name: &str, client: &McpClient) -> String {
    format!("operator {name} {}", client.fingerprint())
}

/// The tools that are as they were agreed to be. What a model is told of the others nobody has looked at.
fn as_agreed(server: &str, tools: Vec<McpTool>) -> Offered {
    let (changed, agreed): (Vec<_>, Vec<_>) = tools.into_iter().partition(|tool| tool.changed);
    let changed = changed.into_iter().map(|tool| {
        format!(
            "tool server {server}: {} describes itself anew; an admin agrees to that with POST \
             /v1/tool-servers/{server}/approve",
            tool.pin.tool
        )
    });
    let missing = changed.collect();
    Offered { tools: agreed.into_iter().map(|tool| Arc::new(tool) as Arc<dyn Tool>).collect(), missing }
}
