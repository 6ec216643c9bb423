//! A store, a scripted provider and tools. In: scripts and turns. Out: events, requests, threads.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use async_trait::async_trait;
use domain::agent::{Agent, AgentSettings};
use domain::conversation::{Mode, Visibility};
use domain::event::Source;
use domain::limits::Limits;
use domain::message::Window;
use domain::model::ToolSpec;
use domain::run::{OnBusy, OnDisconnect, Run, StartTurn, TurnMessage};
use domain::scope::{Role, Scope};
use domain::secret::Secret;
use domain::time::{Clock, SystemClock};
use domain::workspace::Workspace;
use serde_json::value::to_raw_value;
use serde_json::{Value, json};
use store::Store;
use store::blobs::Blobs;
use store::sqlite::{SqliteStore, Use};
use tempfile::TempDir;
use testkit::sandbox::{Action, ScriptedSandbox};
use tokio_util::task::TaskTracker;
use turn::tools::servers::{self, ToolServers};
use turn::tools::{Output, Place, Tool};
use turn::{Access, Agents, Parts, Turns};
use upstream::guard::{Allowed, Guarded};
use upstream::llm::models::{ModelSettings, Models, ProviderSettings};
use uuid::Uuid;

const PATIENCE: Duration = Duration::from_secs(60);

pub struct World {
    pub turns: Turns,
    pub store: Arc<dyn Store>,
    pub provider: ScriptedSandbox,
    pub scope: Scope,
    pub limits: Limits,
    /// How often the tool with an effect was called.
    pub effects: Arc<AtomicUsize>,
    data: TempDir,
}

struct Nowhere;

impl Agents for Nowhere {
    fn access(&self, _: Uuid, _: Uuid, _: i64) -> Access {
        Access { agent_url: String::new(), config_token: String::new(), upload_otp: String::new() }
    }
}

impl World {
    pub async fn start(change: impl FnOnce(&mut Limits)) -> Self {
        let data = tempfile::tempdir().unwrap();
        let store: Arc<dyn Store> =
            Arc::new(SqliteStore::open(&data.path().join("test.db"), Use::Serve).unwrap());
        let mut limits = Limits { model_retries: 0, ..Limits::default() };
        change(&mut limits);
        let provider = ScriptedSandbox::start(says("Nothing more.")).await.unwrap();
        let effects = Arc::new(AtomicUsize::new(0));
        let scope = Scope {
            workspace: SystemClock.new_id(),
            org: "acme".into(),
            user: "ann".into(),
            role: Role::Admin,
            key: None,
            administers: true,
        };
        let workspace = Workspace {
            id: scope.workspace,
            org: "acme".into(),
            name: "Ann's".into(),
            default_visibility: Visibility::Private,
            created_at: SystemClock.now(),
        };
        store.create_workspace(&scope, &workspace).await.unwrap();
        let turns = open(&store, &provider, &limits, &effects, data.path()).await;
        Self { turns, store, provider, scope, limits, effects, data }
    }

    /// Another process on the same store: what the one before left is taken over.
    pub async fn restart(&mut self) {
        self.turns = open(&self.store, &self.provider, &self.limits, &self.effects, self.data.path()).await;
    }

    /// The provider's answers to the next calls, in order.
    pub fn script(&self, answers: Vec<Vec<Action>>) {
        for answer in answers {
            self.provider.play(answer);
        }
    }

    pub async fn agent(&self, settings: Value) -> String {
        let settings: AgentSettings = serde_json::from_value(settings).unwrap();
        let (id, now) = (SystemClock.new_id(), SystemClock.now());
        let agent = Agent { id, name: "An agent".into(), settings, created_at: now, updated_at: now };
        self.store.put_agent(&self.scope, &agent).await.unwrap();
        id.to_string()
    }

    pub async fn begin(&self, conversation: Option<Uuid>, text: &str, agent: Option<String>) -> Run {
        self.begin_as(text, |turn| (turn.conversation, turn.agent) = (conversation, agent)).await
    }

    /// A turn that asks for more than words.
    pub async fn begin_as(&self, text: &str, change: impl FnOnce(&mut StartTurn)) -> Run {
        let content = json!([{ "type": "text", "text": text }]).to_string();
        let mut turn = StartTurn {
            conversation: None,
            replace: None,
            attachments: None,
            message: Some(TurnMessage { content, text: text.into(), wordless: false }),
            agent: None,
            model: Some("openai/m".into()),
            workflow: None,
            mode: Some(Mode::Ask),
            source: None,
            page_path: None,
            on_busy: OnBusy::Reject,
            on_disconnect: OnDisconnect::Continue,
            brought: Default::default(),
        };
        change(&mut turn);
        self.turns.start(&self.scope, turn, None).await.unwrap().run
    }

    /// A run's events from the first on, until one of this kind, or all.
    pub async fn follow(&self, run: &Run, until: &str) -> Vec<(String, Value)> {
        let stream = self.turns.open_stream(&self.scope).unwrap();
        let mut follower = self.turns.follow(stream, run.id, 0).await.unwrap();
        let mut events = Vec::new();
        let reading = async {
            while let Some(batch) = follower.next().await.unwrap() {
                for event in batch {
                    events.push((event.kind.to_owned(), serde_json::from_str(&event.data).unwrap()));
                    if event.kind == until {
                        return;
                    }
                }
            }
        };
        tokio::time::timeout(PATIENCE, reading).await.expect("the run is stuck");
        events
    }

    /// The calls of the run in the order they ended in, once there are as many.
    pub async fn results(&self, run: &Run, count: usize) -> Vec<String> {
        let stream = self.turns.open_stream(&self.scope).unwrap();
        let mut follower = self.turns.follow(stream, run.id, 0).await.unwrap();
        let mut ended = Vec::new();
        let reading = async {
            while ended.len() < count {
                let batch = follower.next().await.unwrap().expect("more ends");
                for event in batch.iter().filter(|event| event.kind == "tool_result") {
                    let data: Value = serde_json::from_str(&event.data).unwrap();
                    ended.push(data["id"].as_str().unwrap().to_owned());
                }
            }
        };
        tokio::time::timeout(PATIENCE, reading).await.expect("the run is stuck");
        ended
    }

    /// A whole turn.
    pub async fn tell(
        &self,
        conversation: Option<Uuid>,
        text: &str,
        agent: Option<String>,
    ) -> (Run, Vec<(String, Value)>) {
        let run = self.begin(conversation, text, agent).await;
        let events = self.follow(&run, "").await;
        (self.store.get_run(&self.scope, run.id).await.unwrap(), events)
    }

    /// The blocks of the newest message.
    pub async fn last_blocks(&self, run: &Run) -> Value {
        let window = Some(Window::Newest { limit: 1 });
        let thread =
            self.store.get_thread(&self.scope, run.conversation.unwrap(), window.into()).await.unwrap();
        serde_json::from_str(&thread.messages[0].content).unwrap()
    }

    pub fn sent(&self) -> Vec<Value> {
        self.provider.requests().into_iter().map(|request| request.body).collect()
    }

    pub fn made(&self) -> usize {
        self.effects.load(Ordering::SeqCst)
    }
}

async fn open(
    store: &Arc<dyn Store>,
    provider: &ScriptedSandbox,
    limits: &Limits,
    effects: &Arc<AtomicUsize>,
    data: &Path,
) -> Turns {
    let openai = ProviderSettings {
        base_url: Some(format!("{}/v1", provider.url())),
        inputs: vec!["image".into()],
        ..ProviderSettings::default()
    };
    let anthropic = ProviderSettings { base_url: Some(provider.url()), ..ProviderSettings::default() };
    let settings = ModelSettings { openai, anthropic, ..ModelSettings::default() };
    let models = Models::new(settings, limits, upstream::http::client().unwrap()).unwrap();
    let tool = |name, read_only| -> Arc<dyn Tool> {
        Arc::new(TestTool { name, read_only, effects: Arc::clone(effects) })
    };
    Turns::open(Parts {
        store: Arc::clone(store),
        clock: Arc::new(SystemClock),
        limits: limits.clone(),
        tasks: TaskTracker::new(),
        sandbox: None,
        agents: Arc::new(Nowhere),
        models: Arc::new(models),
        tools: vec![
            tool("echo", true),
            tool("long", true),
            tool("json", true),
            tool("never", true),
            tool("broken", true),
            tool("panics", true),
            tool("effect", false),
        ],
        tool_servers: Arc::new(ToolServers::new(servers::Parts {
            store: Arc::clone(store),
            operators: BTreeMap::new(),
            composio: None,
            guarded: Guarded::new(Allowed::default()).unwrap(),
            secret: Secret::new("a secret for tests"),
        })),
        blobs: Blobs::folder(&data.join("blobs")).await.unwrap(),
        context_summary: false,
    })
    .await
    .unwrap()
}

struct TestTool {
    name: &'static str,
    read_only: bool,
    effects: Arc<AtomicUsize>,
}

#[async_trait]
impl Tool for TestTool {
    fn spec(&self) -> ToolSpec {
        let schema = json!({ "type": "object", "properties": { "text": { "type": "string" } } });
        ToolSpec {
            name: self.name.into(),
            description: "A tool".into(),
            schema: to_raw_value(&schema).unwrap(),
        }
    }

    fn is_read_only(&self) -> bool {
        self.read_only
    }

    async fn call(&self, place: &Place, args: Value) -> Result<Output, String> {
        assert_eq!(place.user, "ann");
        let text = args["text"].as_str().unwrap_or("").to_owned();
        match self.name {
            "echo" => {
                let source = Source {
                    id: text.clone(),
                    title: "T".into(),
                    url: None,
                    locator: None,
                    snippet: "s".into(),
                };
                Ok(Output { value: json!(text), sources: vec![source] })
            }
            "long" => Ok(Output::text("é\0".repeat(3000))),
            "json" => Ok(Output::json(json!({ "rows": [1, 2] }))),
            "broken" => Err("it is broken".into()),
            "panics" => panic!("a bug of a tool"),
            "effect" => {
                self.effects.fetch_add(1, Ordering::SeqCst);
                Ok(Output::text("done"))
            }
            _ => std::future::pending().await,
        }
    }
}

fn stream(events: &[Value]) -> Vec<Action> {
    let mut text: String = events.iter().map(|event| format!("data: {event}\n\n")).collect();
    text.push_str("data: [DONE]\n\n");
    sse(text)
}

pub fn sse(text: String) -> Vec<Action> {
    let headers = vec![("content-type", "text/event-stream".to_owned())];
    vec![Action::Headers("200 OK", headers), Action::Bytes(text.into_bytes())]
}

pub fn says(text: &str) -> Vec<Action> {
    stream(&[
        json!({ "choices": [{ "delta": { "content": text } }] }),
        json!({ "choices": [{ "delta": {}, "finish_reason": "stop" }] }),
        json!({ "choices": [], "usage": { "prompt_tokens": 10, "completion_tokens": 5 } }),
    ])
}

/// An answer that calls: (id, name, arguments) each.
pub fn calls(text: &str, calls: &[(&str, &str, &str)]) -> Vec<Action> {
    let calls: Vec<Value> = calls
        .iter()
        .enumerate()
        .map(|(index, (id, name, args))| {
            json!({ "index": index, "id": id, "function": { "name": name, "arguments": args } })
        })
        .collect();
    stream(&[
        json!({ "choices": [{ "delta": { "content": text } }] }),
        json!({ "choices": [{ "delta": { "tool_calls": calls } }] }),
        json!({ "choices": [{ "delta": {}, "finish_reason": "tool_calls" }] }),
        json!({ "choices": [], "usage": { "prompt_tokens": 10, "completion_tokens": 5 } }),
    ])
}

/// Panics unless a provider that checks roles and pairs accepts the request.
pub fn accepted(body: &Value) {
    let messages = body["messages"].as_array().unwrap();
    let mut open: Vec<String> = Vec::new();
    let mut last = "";
    for message in messages {
        let role = message["role"].as_str().unwrap();
        if role == "tool" {
            let id = message["tool_call_id"].as_str().unwrap();
            let at =
                open.iter().position(|open| open == id).unwrap_or_else(|| panic!("answers nothing: {body}"));
            open.remove(at);
        } else {
            assert!(open.is_empty(), "calls without answers: {body}");
            assert_ne!(role, last, "{body}");
        }
        let calls = message["tool_calls"].as_array().into_iter().flatten();
        open.extend(calls.map(|call| call["id"].as_str().unwrap().to_owned()));
        last = role;
    }
    assert!(open.is_empty() && last != "assistant", "{body}");
}
