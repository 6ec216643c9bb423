//! A server and people in workspaces of their own. In: requests. Out: answers, and the frames of a turn.

use std::sync::Arc;
use std::time::Duration;

use reqwest::{Method, RequestBuilder};
use serde_json::{Value, json};
use server::config::Config;
use testkit::server::{Answer, Backend, TestServer, token};

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
    bearer: String,
    pub workspace: String,
}

impl World {
    /// A server, and Ann with a workspace.
    pub async fn start(backend: Backend) -> Option<Self> {
        Self::start_with(backend, |_| {}).await
    }

    pub async fn start_with(backend: Backend, change: impl FnOnce(&mut Config)) -> Option<Self> {
        let server = TestServer::start_with(backend, |config| {
            config.limits.requests_per_second = 0;
            change(config);
        });
        let server = Arc::new(server.await?);
        let workspace = server.person("ann", "acme").create_workspace("Ann's").await.unwrap();
        Some(Self { server, bearer: token("ann", "acme"), workspace })
    }

    /// Somebody in a workspace of their own.
    pub async fn stranger(&self) -> Self {
        let workspace = self.server.person("eve", "elsewhere").create_workspace("Theirs").await.unwrap();
        Self { bearer: token("eve", "elsewhere"), workspace, ..self.clone() }
    }

    /// A member of the same workspace.
    pub async fn member(&self) -> Self {
        let path = format!("/v1/workspaces/{}/members", self.workspace);
        let added = self.post(&path, &json!({ "user": "mel", "role": "member" })).await;
        assert_eq!(added.status, 201, "{}", added.text);
        Self { bearer: token("mel", "acme"), ..self.clone() }
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

    pub async fn post(&self, path: &str, body: &Value) -> Answer {
        self.send(Method::POST, path, Some(body)).await
    }

    pub async fn put(&self, path: &str, body: &Value) -> Answer {
        self.send(Method::PUT, path, Some(body)).await
    }

    pub async fn delete(&self, path: &str) -> Answer {
        self.send(Method::DELETE, path, None).await
    }

    /// Makes something and answers it.
    pub async fn made(&self, path: &str, body: &Value) -> Value {
        let made = self.post(path, body).await;
        assert_eq!(made.status, 201, "{}", made.text);
        made.body
    }

    pub async fn page(&self, title: &str, body: &str) -> String {
        text(&self.made("/v1/pages", &json!({ "title": title, "body": body })).await["id"])
    }

    /// A table with these columns, each as `name:type`.
    pub async fn table(&self, name: &str, columns: &[&str]) -> String {
        let column = |column: &&str| {
            let (name, kind) = column.rsplit_once(':').unwrap();
            json!({ "name": name, "type": kind })
        };
        let columns: Vec<Value> = columns.iter().map(column).collect();
        let made = self.made("/v1/tables", &json!({ "name": name, "columns": columns })).await;
        format!("/v1/tables/{}", text(&made["id"]))
    }

    /// The rows of a table, without their ids.
    pub async fn rows(&self, table: &str) -> Vec<Value> {
        let (mut all, mut after) = (Vec::new(), String::new());
        loop {
            let page = self.get(&format!("{table}/rows?limit=100{after}")).await;
            assert_eq!(page.status, 200, "{}", page.text);
            all.extend(page.body["data"].as_array().unwrap().clone());
            match page.body["next"].as_str() {
                Some(next) => after = format!("&after={next}"),
                None => break,
            }
        }
        for row in &mut all {
            assert!(row.as_object_mut().unwrap().remove("_id").is_some());
        }
        all
    }

    pub async fn import(&self, table: &str, kind: &str, file: impl Into<reqwest::Body>) -> Answer {
        let request = self.request(Method::POST, &format!("{table}/import"));
        ask(request.header("content-type", kind).body(file)).await
    }

    /// A whole turn: its conversation, and its events by name and data.
    pub async fn turn(&self, body: &Value) -> (String, Vec<(String, Value)>) {
        let answer = self.post("/v1/turns", body).await;
        assert_eq!(answer.status, 200, "{}", answer.text);
        (answer.header("threadkeep-conversation").to_owned(), frames(&answer.text))
    }
}

pub fn frames(text: &str) -> Vec<(String, Value)> {
    let frames = text.split("\n\n").filter(|frame| frame.starts_with("id: "));
    let read = |frame: &str| {
        let line = |name: &str| frame.lines().find_map(|line| line.strip_prefix(name)).unwrap();
        (line("event: ").to_owned(), serde_json::from_str(line("data: ")).unwrap())
    };
    frames.map(read).collect()
}

pub async fn ask(request: RequestBuilder) -> Answer {
    Answer::read(request.send().await.expect("an answer")).await.expect("a whole answer")
}

pub fn text(value: &Value) -> String {
    value.as_str().unwrap_or_else(|| panic!("{value} is no text")).to_owned()
}

/// Status and code of a refusal, which is a whole problem.
#[track_caller]
pub fn refused(answer: &Answer, status: u16, code: &str) {
    assert_eq!((answer.status, answer.body["code"].as_str()), (status, Some(code)), "{}", answer.text);
    assert_eq!(answer.header("content-type"), "application/problem+json");
    assert!(answer.body["detail"].as_str().is_some_and(|text| !text.is_empty()), "{}", answer.text);
}
