//! A client of tool servers that speak MCP, in both of its eras: with a handshake (2024-11-05 to 2025-11-25), and
//! without (2026-07-28). What a server is asked for are its tools and calls of them, nothing else is offered to it.
//! Everything it sends is bounded in size and time.

mod content;
mod http;
mod rpc;
mod stdio;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use domain::secret::Secret;
use serde_json::{Value, json};
use sha2::{Digest as _, Sha256};
use tokio::sync::Mutex;
use tokio::time::{Instant, timeout};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

pub use content::{Given, Tool};
pub use http::HttpEndpoint;
pub use rpc::Fault;
pub use stdio::StdioEndpoint;

pub(crate) use content::schema;
use http::HttpWire;
use rpc::{Era, METHOD_NOT_FOUND, agreed, hello};
use stdio::StdioWire;

/// Of one answer.
const MAX_ANSWER_BYTES: usize = 8 * 1024 * 1024;
/// From a start to the list of tools, all its pages.
const LISTING: Duration = Duration::from_secs(20);
/// How long a list is good for; how long one that could not be had is not asked for again.
const FRESH: Duration = Duration::from_secs(5);
const FAILED: Duration = Duration::from_secs(2);
const HUNG: Duration = Duration::from_secs(30);
const MAX_PAGES: usize = 64;
/// How often a call is made once more because its server wants its state back.
const MAX_AGAIN: usize = 5;
const LIST_CHANGED: &str = "notifications/tools/list_changed";

#[derive(Debug, Clone)]
pub enum Endpoint {
    Http(HttpEndpoint),
    Stdio(StdioEndpoint),
}

/// One server. What connects to it is made at its first use, and again after it was lost.
pub struct McpClient {
    name: String,
    endpoint: Endpoint,
    session: Mutex<Option<Arc<Session>>>,
    listed: Mutex<Option<Listed>>,
    /// The server said that its list is another one now.
    changed: Arc<AtomicBool>,
    tasks: TaskTracker,
    stop: CancellationToken,
}

struct Session {
    wire: Wire,
    era: Era,
}

enum Wire {
    Http(Arc<HttpWire>),
    Stdio(Arc<StdioWire>),
}

struct Listed {
    at: Instant,
    outcome: Result<Arc<[Tool]>, Fault>,
}

impl McpClient {
    /// Its tasks run on `tasks`, and end with `stop`.
    pub fn new(name: &str, endpoint: Endpoint, tasks: TaskTracker, stop: CancellationToken) -> Self {
        Self {
            name: name.to_owned(),
            endpoint,
            session: Mutex::default(),
            listed: Mutex::default(),
            changed: Arc::default(),
            tasks,
            stop,
        }
    }

    /// The tools there are, as of a few seconds ago at most.
    pub async fn tools(&self) -> Result<Arc<[Tool]>, Fault> {
        let mut listed = self.listed.lock().await;
        let changed = self.changed.load(Ordering::Relaxed);
        if let Some(known) = listed.as_ref().filter(|known| known.is_good() && !changed) {
            return known.outcome.clone();
        }
        self.changed.store(false, Ordering::Relaxed);
        let asked = timeout(LISTING, self.list()).await;
        let outcome =
            asked.unwrap_or(Err(Fault::Timeout(LISTING.as_secs()))).map_err(|fault| self.clean(fault));
        *listed = Some(Listed { at: Instant::now(), outcome: outcome.clone() });
        outcome
    }

    /// Makes a call. Dropping it gives it up, and the server is told. The error is for the model to read.
    pub async fn call(&self, tool: &str, args: Value) -> Result<Given, String> {
        let first = json!({ "name": tool, "arguments": args });
        let (mut params, mut again) = (first.clone(), 0);
        let result = loop {
            let asked = self.ask("tools/call", params).await;
            let result = asked.map_err(|fault| self.clean(fault).to_string())?;
            match content::once_more(&result) {
                Some(more) if again < MAX_AGAIN => {
                    again += 1;
                    params = first.clone();
                    for (name, value) in more {
                        params[name.as_str()] = value;
                    }
                }
                _ => break result,
            }
        };
        let given = content::given(&result)?;
        Ok(Given { value: self.clean_value(given.value), ..given })
    }

    /// Ends the session, if there is one.
    pub async fn close(&self) {
        if let Some(session) = self.session.lock().await.take() {
            match &session.wire {
                Wire::Http(wire) => wire.close(&session.era).await,
                Wire::Stdio(wire) => wire.close(),
            }
        }
    }

    async fn list(&self) -> Result<Arc<[Tool]>, Fault> {
        let (mut tools, mut params) = (Vec::new(), json!({}));
        for _ in 0..MAX_PAGES {
            let page = match self.ask("tools/list", params).await {
                // A server may have no tools at all.
                Err(Fault::Refused { code: METHOD_NOT_FOUND, .. }) => break,
                page => page?,
            };
            let listed =
                page["tools"].as_array().ok_or_else(|| Fault::Broken("it is no list of tools".into()))?;
            tools.extend(listed.iter().filter_map(content::tool));
            if tools.len() > content::MAX_TOOLS {
                return Err(Fault::Broken(format!("it has more than {} tools", content::MAX_TOOLS)));
            }
            match page["nextCursor"].as_str() {
                Some(next) => params = json!({ "cursor": next }),
                None => return Ok(tools.into()),
            }
        }
        Ok(tools.into())
    }

    async fn ask(&self, method: &str, params: Value) -> Result<Value, Fault> {
        let session = self.session().await?;
        match session.ask(method, params.clone()).await {
            // It was not looked at, so it may be asked again.
            Err(Fault::SessionLost) => {
                let mut known = self.session.lock().await;
                known.take_if(|known| Arc::ptr_eq(known, &session));
                drop(known);
                self.session().await?.ask(method, params).await
            }
            answer => answer,
        }
    }

    async fn session(&self) -> Result<Arc<Session>, Fault> {
        let mut known = self.session.lock().await;
        if let Some(session) = known.as_ref().filter(|session| session.is_alive()) {
            return Ok(Arc::clone(session));
        }
        if self.stop.is_cancelled() {
            return Err(Fault::Unreachable("this server is stopping".to_owned()));
        }
        let opened = timeout(LISTING, self.open()).await.unwrap_or(Err(Fault::Timeout(LISTING.as_secs())))?;
        let opened = Arc::new(opened);
        *known = Some(Arc::clone(&opened));
        Ok(opened)
    }

    async fn open(&self) -> Result<Session, Fault> {
        let (changed, tasks) = (Arc::clone(&self.changed), self.tasks.clone());
        let wire = match &self.endpoint {
            Endpoint::Http(endpoint) => Wire::Http(HttpWire::new(endpoint.clone(), changed, tasks)),
            Endpoint::Stdio(endpoint) => {
                let end = self.stop.child_token();
                Wire::Stdio(StdioWire::start(&self.name, endpoint, changed, tasks, end)?)
            }
        };
        let mut session = Session { wire, era: Era::Unknown };
        match session.ask("initialize", hello()).await {
            Ok(answer) => {
                session.era = agreed(&answer)?;
                if session.era != Era::Stateless {
                    session.tell("notifications/initialized").await?;
                }
            }
            Err(first @ (Fault::Refused { .. } | Fault::Status(_))) if first != Fault::Status(401) => {
                session.era = Era::Stateless;
                session.ask("server/discover", json!({})).await.map_err(|_| first)?;
            }
            Err(fault) => return Err(fault),
        }
        Ok(session)
    }

    /// Tells this server apart from others, in a way that says nothing of where it is.
    pub fn fingerprint(&self) -> String {
        let parts: Vec<&str> = match &self.endpoint {
            Endpoint::Http(endpoint) => vec!["http", endpoint.url.as_str()],
            Endpoint::Stdio(endpoint) => {
                let args = endpoint.args.iter().map(Secret::expose);
                ["stdio", &endpoint.command].into_iter().chain(args).collect()
            }
        };
        let hash = Sha256::digest(json!(parts).to_string());
        hash.iter().take(8).map(|byte| format!("{byte:02x}")).collect()
    }

    /// What must not be repeated, though the server may say it.
    fn secrets(&self) -> Vec<Secret> {
        match &self.endpoint {
            Endpoint::Http(HttpEndpoint { url, token, .. }) => {
                let query = url.query().map(Secret::new);
                let values = url.query_pairs().map(|(_, value)| Secret::new(value));
                token.iter().cloned().chain(query).chain(values).collect()
            }
            Endpoint::Stdio(_) => Vec::new(),
        }
    }

    fn clean(&self, fault: Fault) -> Fault {
        let clean = |text: String| redact(&text, &self.secrets());
        match fault {
            Fault::Unreachable(reason) => Fault::Unreachable(clean(reason)),
            Fault::Refused { code, message } => Fault::Refused { code, message: clean(message) },
            Fault::Broken(reason) => Fault::Broken(clean(reason)),
            other => other,
        }
    }

    fn clean_value(&self, value: Value) -> Value {
        let secrets = self.secrets();
        match value {
            Value::String(text) => Value::String(redact(&text, &secrets)),
            other => {
                let text = other.to_string();
                let cleaned = redact(&text, &secrets);
                if cleaned == text {
                    other
                } else {
                    serde_json::from_str(&cleaned).unwrap_or(Value::String(cleaned))
                }
            }
        }
    }
}

impl Session {
    fn is_alive(&self) -> bool {
        match &self.wire {
            Wire::Http(_) => true,
            Wire::Stdio(wire) => wire.is_alive(),
        }
    }

    async fn ask(&self, method: &str, params: Value) -> Result<Value, Fault> {
        match &self.wire {
            Wire::Http(wire) => wire.ask(&self.era, method, params).await,
            Wire::Stdio(wire) => wire.ask(&self.era, method, params).await,
        }
    }

    async fn tell(&self, method: &str) -> Result<(), Fault> {
        match &self.wire {
            Wire::Http(wire) => wire.tell(&self.era, method, json!({})).await,
            Wire::Stdio(wire) => wire.tell(&self.era, method, json!({})).await,
        }
    }
}

impl Listed {
    fn is_good(&self) -> bool {
        let good = match &self.outcome {
            Ok(_) => FRESH,
            Err(Fault::Timeout(_)) => HUNG,
            Err(_) => FAILED,
        };
        self.at.elapsed() < good
    }
}

/// The text with stars in place of every secret that is long enough to be one.
fn redact(text: &str, secrets: &[Secret]) -> String {
    let mut text = text.to_owned();
    for secret in secrets.iter().map(Secret::expose).filter(|secret| secret.len() >= 6) {
        if text.contains(secret) {
            text = text.replace(secret, "****");
        }
    }
    text
}
