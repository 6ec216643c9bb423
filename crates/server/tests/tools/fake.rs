//! A scripted MCP server over HTTP. In: what it answers to which request, where that is not what a good server would.
//! Out: every request, with its headers.

use std::net::SocketAddr;
use std::sync::{Arc, Mutex};

use axum::Router;
use axum::body::{Body, Bytes};
use axum::extract::State;
use axum::http::{HeaderMap, Method, Response, Uri};
use futures_util::StreamExt as _;
use serde_json::{Value, json};
use tokio::task::JoinHandle;

/// A request as it came.
#[derive(Debug, Clone)]
pub struct Asked {
    pub http: Method,
    /// With its query.
    pub path: String,
    pub headers: HeaderMap,
    pub body: Value,
}

impl Asked {
    pub fn header(&self, name: &str) -> &str {
        self.headers.get(name).and_then(|value| value.to_str().ok()).unwrap_or("")
    }

    pub fn method(&self) -> &str {
        self.body["method"].as_str().unwrap_or("")
    }

    fn tool(&self) -> &str {
        self.body["params"]["name"].as_str().unwrap_or("")
    }

    fn id(&self) -> &Value {
        &self.body["id"]
    }
}

#[derive(Debug, Clone)]
pub enum Reply {
    /// The result of the request.
    Result(Value),
    Error(u16, Value),
    /// The good answer to a handshake, with the name of a session.
    Session(String),
    Json(Value),
    /// A stream of events with these data, and its end.
    Events(Vec<Value>),
    /// Status, content type, body.
    Raw(u16, &'static str, Vec<u8>),
    /// A body of so many bytes, after this.
    Flood(&'static str, Vec<u8>, usize),
    /// A header and no more.
    Elsewhere(String),
    Hang,
}

type Script = dyn Fn(&Asked) -> Option<Reply> + Send + Sync;

pub struct Fake {
    address: SocketAddr,
    state: Arc<Shared>,
    task: JoinHandle<()>,
}

struct Shared {
    script: Mutex<Arc<Script>>,
    asked: Mutex<Vec<Asked>>,
}

impl Fake {
    /// What the script has no reply for is answered as a good server would, that has the tool `echo`.
    #[expect(clippy::disallowed_methods, reason = "the task ends with the fake")]
    pub async fn start(script: impl Fn(&Asked) -> Option<Reply> + Send + Sync + 'static) -> Self {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let state = Arc::new(Shared { script: Mutex::new(Arc::new(script)), asked: Mutex::default() });
        let router = Router::new().fallback(handle).with_state(Arc::clone(&state));
        let task = tokio::spawn(async move { axum_serve(listener, router).await });
        Self { address, state, task }
    }

    pub fn url(&self) -> String {
        format!("http://{}/mcp", self.address)
    }

    pub fn play(&self, script: impl Fn(&Asked) -> Option<Reply> + Send + Sync + 'static) {
        *self.state.script.lock().unwrap() = Arc::new(script);
    }

    pub fn asked(&self) -> Vec<Asked> {
        self.state.asked.lock().unwrap().clone()
    }

    /// Requests for this method.
    pub fn of(&self, method: &str) -> Vec<Asked> {
        self.asked().into_iter().filter(|asked| asked.method() == method).collect()
    }
}

impl Drop for Fake {
    fn drop(&mut self) {
        self.task.abort();
    }
}

async fn axum_serve(listener: tokio::net::TcpListener, router: Router) {
    use hyper_util::rt::{TokioExecutor, TokioIo};
    use hyper_util::server::conn::auto::Builder;
    use hyper_util::service::TowerToHyperService;
    let mut connections = tokio::task::JoinSet::new();
    while let Ok((stream, _)) = listener.accept().await {
        let service = TowerToHyperService::new(router.clone());
        connections.spawn(async move {
            let builder = Builder::new(TokioExecutor::new());
            let _ = builder.serve_connection(TokioIo::new(stream), service).await;
        });
    }
}

async fn handle(
    State(state): State<Arc<Shared>>,
    http: Method,
    uri: Uri,
    headers: HeaderMap,
    body: Bytes,
) -> Response<Body> {
    let body = serde_json::from_slice(&body).unwrap_or_default();
    let asked = Asked { http, path: uri.to_string(), headers, body };
    state.asked.lock().unwrap().push(asked.clone());
    let script = Arc::clone(&state.script.lock().unwrap());
    let reply = script(&asked).unwrap_or_else(|| good(&asked));
    answer(&asked, reply).await
}

pub fn tool(name: &str) -> Value {
    let schema = json!({ "type": "object", "properties": { "text": { "type": "string" } } });
    json!({ "name": name, "description": format!("The tool {name}"), "inputSchema": schema })
}

pub fn text(text: &str) -> Value {
    json!({ "content": [{ "type": "text", "text": text }] })
}

fn hello(asked: &Asked) -> Value {
    json!({ "protocolVersion": asked.body["params"]["protocolVersion"], "capabilities": { "tools": {} },
        "serverInfo": { "name": "fake", "version": "1" } })
}

/// What a good server of the handshake's era answers.
fn good(asked: &Asked) -> Reply {
    match asked.method() {
        "initialize" => Reply::Result(hello(asked)),
        "tools/list" => Reply::Result(json!({ "tools": [tool("echo")] })),
        "tools/call" if asked.tool() == "echo" => {
            Reply::Result(text(asked.body["params"]["arguments"]["text"].as_str().unwrap_or("")))
        }
        "ping" => Reply::Result(json!({})),
        method if asked.body.get("id").is_none() || method.is_empty() => {
            Reply::Raw(202, "text/plain", Vec::new())
        }
        _ => Reply::Error(200, json!({ "code": -32601, "message": "Method not found" })),
    }
}

async fn answer(asked: &Asked, reply: Reply) -> Response<Body> {
    let whole = |status: u16, kind: &str, body: Body| {
        Response::builder().status(status).header("content-type", kind).body(body).unwrap()
    };
    let json = |status, value: Value| whole(status, "application/json", value.to_string().into());
    match reply {
        Reply::Result(result) => json(200, json!({ "jsonrpc": "2.0", "id": asked.id(), "result": result })),
        Reply::Error(status, error) => {
            json(status, json!({ "jsonrpc": "2.0", "id": asked.id(), "error": error }))
        }
        Reply::Session(session) => {
            let mut answer = json(200, json!({ "jsonrpc": "2.0", "id": asked.id(), "result": hello(asked) }));
            answer.headers_mut().insert("mcp-session-id", session.parse().unwrap());
            answer
        }
        Reply::Json(value) => json(200, value),
        Reply::Events(events) => {
            let body: String =
                events.iter().map(|event| format!("event: message\ndata: {event}\n\n")).collect();
            whole(200, "text/event-stream", body.into())
        }
        Reply::Raw(status, kind, body) => whole(status, kind, body.into()),
        Reply::Flood(kind, first, count) => {
            let block = Bytes::from(vec![b'a'; 64 * 1024]);
            let blocks = futures_util::stream::repeat(block).take(count / (64 * 1024));
            let all = futures_util::stream::iter([Bytes::from(first)]).chain(blocks);
            whole(200, kind, Body::from_stream(all.map(Ok::<_, std::io::Error>)))
        }
        Reply::Elsewhere(url) => {
            Response::builder().status(307).header("location", url).body(Body::empty()).unwrap()
        }
        Reply::Hang => std::future::pending().await,
    }
}
