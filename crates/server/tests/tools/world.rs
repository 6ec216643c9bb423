//! A server, a scripted provider whose model calls the tools that a story wants, and an admin. In: calls. Out: what
//! came of them.

use std::time::Duration;

use domain::secret::Secret;
use reqwest::Method;
use serde_json::{Value, json};
use server::config::{Config, McpServer};
use testkit::sandbox::{Action, ScriptedSandbox};
use testkit::server::{Answer, Backend, TestServer, token};

use crate::sse::Stream;

/// A story that takes longer is stuck.
const STORY: Duration = Duration::from_secs(120);

pub async fn tell(backend: Backend, story: impl AsyncFnOnce(Backend) -> Option<()>) {
    tokio::time::timeout(STORY, story(backend)).await.expect("the story is stuck");
}

/// Makes each story a test on each database.
macro_rules! stories {
    ($($name:ident),+ $(,)?) => {
        mod sqlite {
            $(#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
            async fn $name() {
                crate::world::tell(testkit::server::Backend::Sqlite, super::$name).await;
            })+
        }
        mod postgres {
            $(#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
            async fn $name() {
                crate::world::tell(testkit::server::Backend::Postgres, super::$name).await;
            })+
        }
    };
}
pub(crate) use stories;

pub struct World {
    pub server: TestServer,
    pub provider: ScriptedSandbox,
}

/// A turn that has ended.
#[derive(Debug)]
pub struct Turn {
    pub run: Value,
    /// The assistant's parts.
    pub parts: Vec<Value>,
    /// Everything that was streamed.
    pub streamed: String,
    /// The trace, as one text.
    pub trace: String,
}

impl World {
    pub async fn start(backend: Backend, change: impl FnOnce(&mut Config)) -> Option<Self> {
        let provider = ScriptedSandbox::start(says("Done.")).await.unwrap();
        let server = TestServer::start_with(backend, |config| {
            config.limits.requests_per_second = 0;
            config.openai.api_key = Some(Secret::new("sk-canary-openai"));
            config.openai.base_url = Some(format!("{}/v1", provider.url()));
            config.limits.model_retries = 0;
            change(config);
        });
        let world = Self { server: server.await?, provider };
        world.server.person("ann", "acme").create_workspace("Ann's").await.unwrap();
        Some(world)
    }

    pub async fn send(&self, method: Method, path: &str, body: Option<&Value>) -> Answer {
        self.server.person("ann", "acme").send(method, path, body).await.unwrap()
    }

    pub async fn get(&self, path: &str) -> Answer {
        self.send(Method::GET, path, None).await
    }

    pub async fn add(&self, body: &Value) -> Answer {
        self.send(Method::POST, "/v1/tool-servers", Some(body)).await
    }

    /// An agent with these tools; its id.
    pub async fn agent(&self, tools: Value, approval: Value) -> String {
        let body = json!({ "name": "Helper", "model": "openai/m", "tools": tools, "approval": approval });
        let made = self.send(Method::POST, "/v1/agents", Some(&body)).await;
        assert_eq!(made.status, 201, "{}", made.text);
        made.body["id"].as_str().unwrap().to_owned()
    }

    /// The model makes these calls in one round of the next turn, then says "Done.".
    pub fn plan(&self, calls: &[(&str, Value)]) {
        let calls = calls.iter().enumerate().map(|(at, (name, args))| {
            let function = json!({ "name": name, "arguments": args.to_string() });
            json!({ "index": at, "id": format!("call_{at}"), "type": "function", "function": function })
        });
        let calls: Vec<Value> = calls.collect();
        let delta = json!({ "choices": [{ "index": 0, "delta": { "tool_calls": calls } }] });
        let end = json!({ "choices": [{ "index": 0, "delta": {}, "finish_reason": "tool_calls" }] });
        self.provider.play(stream(&[delta, end]));
    }

    pub async fn begin(&self, agent: &str) -> Stream {
        let body = json!({ "message": "Go", "agent": agent }).to_string();
        let sent = self.server.request(Method::POST, "/v1/turns").bearer_auth(token("ann", "acme"));
        let response = sent.header("content-type", "application/json").body(body).send().await.unwrap();
        assert_eq!(response.status(), 200);
        Stream::new(response)
    }

    pub async fn end(&self, stream: Stream) -> Turn {
        let (run, conversation) = (stream.run(), stream.conversation());
        let streamed = String::from_utf8_lossy(&stream.rest().await.bytes).into_owned();
        let shown = self.get(&format!("/v1/chat-conversations/{conversation}")).await;
        let messages = shown.body["data"]["attributes"]["messages"].as_array().unwrap().clone();
        Turn {
            run: self.get(&format!("/v1/runs/{run}")).await.body,
            parts: messages.last().unwrap()["parts"].as_array().unwrap().clone(),
            streamed,
            trace: self.get(&format!("/v1/runs/{run}/trace?limit=100")).await.text,
        }
    }

    /// A turn in which the model makes these calls; each must have come to an end, and the run to a good one.
    pub async fn turn(&self, agent: &str, calls: &[(&str, Value)]) -> Turn {
        if !calls.is_empty() {
            self.plan(calls);
        }
        let turn = self.end(self.begin(agent).await).await;
        assert_eq!(turn.run["status"], "succeeded", "{turn:?}");
        turn
    }

    /// Names of the tools that the model was offered last.
    pub fn offered(&self) -> Vec<String> {
        let last = self.provider.requests().pop().unwrap().body;
        let tools = last["tools"].as_array().cloned().unwrap_or_default();
        tools.iter().map(|tool| tool["function"]["name"].as_str().unwrap().to_owned()).collect()
    }

    /// What the model was given for its calls, in the last request.
    pub fn answers(&self) -> Vec<String> {
        let last = self.provider.requests().pop().unwrap().body;
        let messages = last["messages"].as_array().unwrap().clone();
        let answers = messages.iter().filter(|message| message["role"] == "tool");
        answers.map(|message| message["content"].as_str().unwrap().to_owned()).collect()
    }
}

impl Turn {
    pub fn call(&self, at: usize) -> &Value {
        let calls: Vec<&Value> = self.parts.iter().filter(|part| part["type"] == "tool_call").collect();
        calls[at]
    }

    /// The error that a call came to.
    #[track_caller]
    pub fn failed(&self, at: usize) -> &str {
        self.call(at)["error"].as_str().unwrap_or_else(|| panic!("{self:?}"))
    }
}

fn stream(events: &[Value]) -> Vec<Action> {
    let headers = vec![("content-type", "text/event-stream".to_owned())];
    let body: String = events.iter().map(|event| format!("data: {event}\n\n")).collect();
    vec![Action::Headers("200 OK", headers), Action::Bytes(body.into_bytes())]
}

fn says(text: &str) -> Vec<Action> {
    let word = json!({ "choices": [{ "index": 0, "delta": { "content": text } }] });
    let end = json!({ "choices": [{ "index": 0, "delta": {}, "finish_reason": "stop" }] });
    stream(&[word, end])
}

/// A server of the operator's, over HTTP.
pub fn http(url: &str) -> McpServer {
    McpServer::Http { url: Secret::new(url), token: None }
}

/// A server of the operator's that is a program.
pub fn program(command: &str, args: &[&str]) -> McpServer {
    McpServer::Stdio {
        command: command.to_owned(),
        args: args.iter().map(|arg| Secret::new(*arg)).collect(),
        env: Vec::new(),
    }
}

/// Waits until something holds.
pub async fn until(what: &str, mut holds: impl AsyncFnMut() -> bool) {
    let waiting = async {
        while !holds().await {
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    };
    tokio::time::timeout(Duration::from_secs(30), waiting).await.unwrap_or_else(|_| panic!("never: {what}"));
}
