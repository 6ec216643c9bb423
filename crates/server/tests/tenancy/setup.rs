//! The few words that all stories use: asking, reading the answer, and a server whose folder, database and
//! printed address the test itself holds.

use std::sync::Arc;

use domain::time::SystemClock;
use reqwest::{Client, Method, RequestBuilder};
use serde_json::{Value, json};
use server::Server;
use server::config::Config;
use store::Store;
use testkit::server::{Answer, TestCaller, TestServer};
use tokio::net::TcpListener;
use tokio::sync::oneshot;
use tokio::task::JoinHandle;

pub async fn ask(request: RequestBuilder) -> Answer {
    Answer::read(request.send().await.unwrap()).await.unwrap()
}

pub async fn get(caller: &TestCaller<'_>, path: &str) -> Answer {
    caller.get(path).await.unwrap()
}

pub async fn post(caller: &TestCaller<'_>, path: &str, body: Value) -> Answer {
    caller.send(Method::POST, path, Some(&body)).await.unwrap()
}

pub async fn patch(caller: &TestCaller<'_>, path: &str, body: Value) -> Answer {
    caller.send(Method::PATCH, path, Some(&body)).await.unwrap()
}

pub async fn delete(caller: &TestCaller<'_>, path: &str) -> Answer {
    caller.send(Method::DELETE, path, None).await.unwrap()
}

/// A JSON:API document that creates a conversation, or changes the one with this id.
pub fn document(id: Option<&str>, attributes: Value) -> Value {
    let mut data = json!({ "type": "chat_conversation", "attributes": attributes });
    if let Some(id) = id {
        data["id"] = id.into();
    }
    json!({ "data": data })
}

/// The code of a problem or of the first error of a JSON:API document; empty for an answer without one.
pub fn code(answer: &Answer) -> &str {
    answer.body["code"].as_str().or(answer.body["errors"][0]["code"].as_str()).unwrap_or("")
}

#[track_caller]
pub fn expect(answer: &Answer, status: u16, expected: &str) {
    assert_eq!((answer.status, code(answer)), (status, expected), "{answer:?}");
}

/// The ids of a list, JSON:API or plain.
pub fn ids(answer: &Answer) -> Vec<&str> {
    answer.body["data"].as_array().unwrap().iter().map(|item| item["id"].as_str().unwrap()).collect()
}

/// A workspace with `boss` as its admin and `mate` as a member.
pub struct Team<'a> {
    pub workspace: String,
    pub boss: TestCaller<'a>,
    pub mate: TestCaller<'a>,
}

impl<'a> Team<'a> {
    pub async fn new(server: &'a TestServer) -> Self {
        let (boss, mate) = (server.person("boss", "acme"), server.person("mate", "acme"));
        let workspace = boss.create_workspace("Team").await.unwrap();
        let team = Self { workspace, boss, mate };
        team.member("mate", "member").await;
        team
    }

    /// Adds a member or changes the role of one.
    pub async fn member(&self, user: &str, role: &str) -> Answer {
        post(&self.boss, &self.members(""), json!({ "user": user, "role": role })).await
    }

    pub fn members(&self, user: &str) -> String {
        format!("/v1/workspaces/{}/members{user}", self.workspace)
    }

    /// A key made by this caller: its id and its text.
    pub async fn key(&self, maker: &TestCaller<'_>, role: &str) -> (String, String) {
        let body = json!({ "name": "a key", "role": role, "workspace": self.workspace });
        let made = post(maker, "/v1/api-keys", body).await;
        expect(&made, 201, "");
        (made.body["id"].as_str().unwrap().to_owned(), made.body["key"].as_str().unwrap().to_owned())
    }
}

/// A server on a folder and a database of the test's own.
pub struct Running {
    pub url: String,
    /// What `serve` prints for a person to open.
    pub address: String,
    pub client: Client,
    stop: oneshot::Sender<()>,
    task: JoinHandle<()>,
}

impl Running {
    #[expect(clippy::disallowed_methods, reason = "the task is awaited by stop, or ends with the test")]
    pub async fn start(config: &Config, store: Arc<dyn Store>) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let server = Server::prepare(config, store, Arc::new(SystemClock), listener).await.unwrap();
        let address = server.address();
        let (stop, stopped) = oneshot::channel::<()>();
        let task = tokio::spawn(server.run(async move {
            let _ = stopped.await;
        }));
        let client =
            Client::builder().no_proxy().redirect(reqwest::redirect::Policy::none()).build().unwrap();
        Self { url, address, client, stop, task }
    }

    pub fn request(&self, method: Method, path: &str) -> RequestBuilder {
        self.client.request(method, format!("{}{path}", self.url))
    }

    pub async fn get(&self, path: &str, bearer: &str) -> Answer {
        ask(self.request(Method::GET, path).bearer_auth(bearer)).await
    }

    pub async fn stop(self) {
        drop(self.stop);
        drop(self.client);
        self.task.await.unwrap();
    }
}
