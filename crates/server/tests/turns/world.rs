//! A server, the scripted sandbox that it runs turns in, and a person with a workspace. In: turns. Out: streams
//! and answers.

use std::sync::Arc;
use std::time::Duration;

use domain::scope::{Role, Scope};
use reqwest::{Method, RequestBuilder};
use serde_json::{Value, json};
use server::config::Config;
use testkit::sandbox::{Action, ScriptedSandbox};
use testkit::server::{Answer, Backend, TestServer, token};
use uuid::Uuid;

use crate::scripts;
use crate::sse::{Stream, Told};

pub const CONVERSATIONS: &str = "/v1/chat-conversations";
/// A story that takes longer is stuck.
const STORY: Duration = Duration::from_secs(120);

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

/// Runs a story; one that needs a database that is not there ends at its first line.
pub async fn tell(backend: Backend, story: impl AsyncFnOnce(Backend) -> Option<()>) {
    tokio::time::timeout(STORY, story(backend)).await.expect("the story is stuck");
}

#[derive(Clone)]
pub struct World {
    pub server: Arc<TestServer>,
    pub sandbox: Arc<ScriptedSandbox>,
    bearer: String,
    pub user: String,
    org: String,
    pub workspace: Uuid,
}

impl World {
    /// A server whose sandbox answers "Hello." until it is told otherwise, and Ann.
    /// `None` where there is no such database.
    pub async fn start(backend: Backend) -> Option<Self> {
        Self::start_with(backend, |_| {}).await
    }

    pub async fn start_with(backend: Backend, change: impl FnOnce(&mut Config)) -> Option<Self> {
        let sandbox = ScriptedSandbox::start(scripts::answer("Hello.")).await.unwrap();
        let server = TestServer::start_with(backend, |config| {
            config.limits.requests_per_second = 0;
            config.sandbox.url = Some(sandbox.url());
            change(config);
        });
        let server = Arc::new(server.await?);
        let workspace = server.person("ann", "acme").create_workspace("Ann's").await.unwrap();
        Some(Self {
            server,
            sandbox: Arc::new(sandbox),
            bearer: token("ann", "acme"),
            user: "ann".into(),
            org: "acme".into(),
            workspace: workspace.parse().unwrap(),
        })
    }

    /// Somebody in a workspace of their own.
    pub async fn stranger(&self, user: &str) -> Self {
        let workspace = self.server.person(user, "elsewhere").create_workspace("Theirs").await.unwrap();
        Self {
            bearer: token(user, "elsewhere"),
            user: user.into(),
            org: "elsewhere".into(),
            workspace: workspace.parse().unwrap(),
            ..self.clone()
        }
    }

    /// Somebody else in the same workspace, as a member.
    pub async fn member(&self, user: &str) -> Self {
        let path = format!("/v1/workspaces/{}/members", self.workspace);
        let added = self.send(Method::POST, &path, Some(&json!({ "user": user, "role": "member" }))).await;
        assert_eq!(added.status, 201, "{}", added.text);
        Self { bearer: token(user, &self.org), user: user.into(), ..self.clone() }
    }

    pub fn scope(&self) -> Scope {
        Scope {
            workspace: self.workspace,
            org: self.org.clone(),
            user: self.user.clone(),
            role: Role::Admin,
            key: None,
            administers: true,
        }
    }

    pub fn bearer(&self) -> &str {
        &self.bearer
    }

    /// What the sandbox does for the next run that it has no script for yet.
    pub fn play(&self, script: Vec<Action>) {
        self.sandbox.play(script);
    }

    pub fn request(&self, method: Method, path: &str) -> RequestBuilder {
        self.server.request(method, path).bearer_auth(&self.bearer)
    }

    pub async fn send(&self, method: Method, path: &str, body: Option<&Value>) -> Answer {
        let mut request = self.request(method, path);
        if let Some(body) = body {
            request = request.header("content-type", "application/json").body(body.to_string());
        }
        ask(request).await
    }

    pub async fn get(&self, path: &str) -> Answer {
        self.send(Method::GET, path, None).await
    }

    pub async fn post(&self, path: &str) -> Answer {
        self.send(Method::POST, path, None).await
    }

    /// A turn to be sent.
    pub fn turn(&self, body: &Value) -> RequestBuilder {
        self.request(Method::POST, "/v1/turns")
            .header("content-type", "application/json")
            .body(body.to_string())
    }

    /// A turn's stream.
    pub async fn begin(&self, body: &Value) -> Stream {
        let response = self.turn(body).send().await.expect("an answer");
        if response.status() != 200 {
            panic!("{body}: {} {}", response.status(), response.text().await.unwrap());
        }
        Stream::new(response)
    }

    /// A whole turn.
    pub async fn tell(&self, body: &Value) -> Told {
        self.begin(body).await.rest().await
    }

    /// A turn whose ids alone come back.
    pub async fn begin_async(&self, body: &Value) -> Value {
        let answer = ask(self.turn(body).header("prefer", "respond-async")).await;
        assert_eq!(answer.status, 202, "{}", answer.text);
        answer.body
    }

    /// A run's events from after `after` on.
    pub async fn follow(&self, run: &str, after: i64) -> Stream {
        let path = format!("/v1/runs/{run}/events?after={after}");
        Stream::new(self.request(Method::GET, &path).send().await.expect("an answer"))
    }

    /// All of a run's events, once it has ended.
    pub async fn log(&self, run: &str) -> Told {
        self.follow(run, 0).await.rest().await
    }

    pub async fn run(&self, run: &str) -> Value {
        let answer = self.get(&format!("/v1/runs/{run}")).await;
        assert_eq!(answer.status, 200, "{}", answer.text);
        answer.body
    }

    /// A run, once it has ended.
    pub async fn settled(&self, run: &str) -> Value {
        self.log(run).await;
        self.run(run).await
    }

    pub async fn cancel(&self, run: &str) -> Answer {
        self.post(&format!("/v1/runs/{run}/cancel")).await
    }

    /// Every entry of a run's trace, with `rejected`.
    pub async fn trace(&self, run: &str) -> (Vec<Value>, u64) {
        let answer = self.get(&format!("/v1/runs/{run}/trace?limit=100")).await;
        assert_eq!((answer.status, &answer.body["next"]), (200, &Value::Null), "{}", answer.text);
        (answer.body["data"].as_array().unwrap().clone(), answer.body["rejected"].as_u64().unwrap())
    }

    /// The attributes of a conversation.
    pub async fn conversation(&self, id: &str) -> Value {
        let fields = "title,preview,mode,source,page_path,messages,message_count,conversation_id,user_id,model,\
            agent_id,workflow_id,kind,total_tokens,updated_at,visibility";
        let answer = self.get(&format!("{CONVERSATIONS}/{id}?fields[chat_conversation]={fields}")).await;
        assert_eq!(answer.status, 200, "{}", answer.text);
        answer.body["data"]["attributes"].clone()
    }

    /// The thread as (role, text).
    pub async fn thread(&self, id: &str) -> Vec<(String, String)> {
        said(&self.conversation(id).await["messages"])
    }

    /// The assistant's last parts.
    pub async fn last_parts(&self, id: &str) -> Value {
        let thread = self.conversation(id).await;
        let last = thread["messages"].as_array().unwrap().last().unwrap().clone();
        assert_eq!(last["role"], "assistant");
        last["parts"].clone()
    }

    /// How many conversations and runs there are: what a refused request must not change.
    pub async fn count(&self) -> (usize, usize) {
        let answer = self.get(&format!("{CONVERSATIONS}?page[size]=100")).await;
        let all = answer.body["data"].as_array().unwrap().clone();
        let mut runs = 0;
        for one in &all {
            let path = format!("{CONVERSATIONS}/{}/runs?limit=100", one["id"].as_str().unwrap());
            // One that was deleted meanwhile has none.
            runs += self.get(&path).await.body["data"].as_array().map_or(0, Vec::len);
        }
        (all.len(), runs)
    }
}

/// Messages as (role, text).
pub fn said(messages: &Value) -> Vec<(String, String)> {
    let text = |value: &Value| value.as_str().unwrap().to_owned();
    let messages = messages.as_array().unwrap().iter();
    messages.map(|message| (text(&message["role"]), text(&message["content"]))).collect()
}

/// For comparing with `thread`.
pub fn thread(messages: &[(&str, &str)]) -> Vec<(String, String)> {
    messages.iter().map(|(role, text)| ((*role).to_owned(), (*text).to_owned())).collect()
}

pub async fn ask(request: RequestBuilder) -> Answer {
    Answer::read(request.send().await.expect("an answer")).await.expect("a whole answer")
}

/// Status and code of a refusal, which is a whole problem.
#[track_caller]
pub fn refused(answer: &Answer, status: u16, code: &str) {
    assert_eq!((answer.status, answer.body["code"].as_str()), (status, Some(code)), "{}", answer.text);
    assert_eq!(answer.header("content-type"), "application/problem+json");
    for name in ["type", "title", "detail"] {
        assert!(answer.body[name].as_str().is_some_and(|text| !text.is_empty()), "{name}: {}", answer.text);
    }
    assert_eq!(answer.body["status"], status);
}
