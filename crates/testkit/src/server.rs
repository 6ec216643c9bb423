//! A whole server in the test's own process: a real listener on a free loopback port, a real store, tokens
//! signed by the test. In: which database, which settings. Out: a URL, and clients for people.

use std::sync::Arc;

use anyhow::Context as _;
use domain::secret::Secret;
use domain::time::{Clock, SystemClock};
use jsonwebtoken::{EncodingKey, Header, encode};
use reqwest::{Client, Method, RequestBuilder, Response};
use serde_json::{Value, json};
use server::Server;
use server::config::{Blobs, Config};
use store::Store;
use store::postgres::{PostgresOptions, PostgresStore};
use store::sqlite::{SqliteStore, Use};
use tempfile::TempDir;
use tokio::net::TcpListener;
use tokio::sync::oneshot;
use tokio::task::JoinHandle;

use crate::postgres::{TestDatabase, database};

pub const JWT_SECRET: &str = "a secret for tests, longer than thirty-two bytes";

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Backend {
    Sqlite,
    Postgres,
    /// PostgreSQL with the application's own filter switched off: row level security alone.
    PostgresUnfiltered,
}

pub struct TestServer {
    url: String,
    store: Arc<dyn Store>,
    client: Client,
    data: TempDir,
    database: Option<TestDatabase>,
    stop: Option<oneshot::Sender<()>>,
    task: Option<JoinHandle<()>>,
}

impl TestServer {
    /// A server that verifies user tokens; `None` where there is no PostgreSQL (which fails in CI).
    pub async fn start(backend: Backend) -> Option<Self> {
        Self::start_with(backend, |_| {}).await
    }

    /// As `start`, with the configuration changed first.
    ///
    /// # Panics
    /// Where the server cannot be made.
    #[expect(clippy::panic, reason = "a test that cannot have its server has failed")]
    pub async fn start_with(backend: Backend, change: impl FnOnce(&mut Config)) -> Option<Self> {
        let database = match backend {
            Backend::Sqlite => None,
            Backend::Postgres | Backend::PostgresUnfiltered => Some(database().await?),
        };
        match Self::build(backend, database, change).await {
            Ok(server) => Some(server),
            Err(error) => panic!("the test server cannot start: {error:#}"),
        }
    }

    #[expect(clippy::disallowed_methods, reason = "the task is awaited by stop, or ends with the test")]
    async fn build(
        backend: Backend,
        database: Option<TestDatabase>,
        change: impl FnOnce(&mut Config),
    ) -> anyhow::Result<Self> {
        let data = tempfile::tempdir()?;
        let mut config =
            Config { data: data.path().to_owned(), blobs: Blobs::within(data.path()), ..Config::default() };
        config.auth.jwt_secret = Some(Secret::new(JWT_SECRET));
        config.secret = Some(Secret::new("the server's own secret, also longer than 32 bytes"));
        change(&mut config);
        let store: Arc<dyn Store> = match &database {
            None => Arc::new(SqliteStore::open(&data.path().join("test.db"), Use::Serve)?),
            Some(database) => {
                let application_filter = backend != Backend::PostgresUnfiltered;
                let options = PostgresOptions { application_filter, ..PostgresOptions::default() };
                Arc::new(PostgresStore::open(&Secret::new(database.url()), &options).await?)
            }
        };
        let listener = TcpListener::bind("127.0.0.1:0").await?;
        let url = format!("http://{}", listener.local_addr()?);
        let server = Server::prepare(&config, Arc::clone(&store), Arc::new(SystemClock), listener).await?;
        let (stop, stopped) = oneshot::channel();
        let task = tokio::spawn(server.run(async move {
            let _ = stopped.await;
        }));
        let client = Client::builder().no_proxy().redirect(reqwest::redirect::Policy::none()).build()?;
        Ok(Self { url, store, client, data, database, stop: Some(stop), task: Some(task) })
    }

    #[must_use]
    pub fn url(&self) -> &str {
        &self.url
    }

    #[must_use]
    pub fn data(&self) -> &std::path::Path {
        self.data.path()
    }

    /// Its PostgreSQL, to do something behind its back.
    #[must_use]
    pub fn database(&self) -> Option<&TestDatabase> {
        self.database.as_ref()
    }

    /// The server's own store, for what has no route yet.
    #[must_use]
    pub fn store(&self) -> &Arc<dyn Store> {
        &self.store
    }

    /// A request with no credential.
    pub fn request(&self, method: Method, path: &str) -> RequestBuilder {
        self.client.request(method, format!("{}{path}", self.url))
    }

    /// A caller with this bearer credential.
    #[must_use]
    pub fn caller(&self, bearer: &str) -> TestCaller<'_> {
        TestCaller { server: self, bearer: bearer.to_owned() }
    }

    /// A person with a fresh token.
    #[must_use]
    pub fn person(&self, user: &str, org: &str) -> TestCaller<'_> {
        self.caller(&token(user, org))
    }

    /// Stops the server as a shutdown would, and waits for it.
    pub async fn stop(mut self) {
        self.stop.take();
        if let Some(task) = self.task.take() {
            let _ = task.await;
        }
    }
}

/// A valid token for an hour.
#[must_use]
pub fn token(user: &str, org: &str) -> String {
    token_by(JWT_SECRET, user, org)
}

/// A valid token for an hour, signed with another secret.
#[must_use]
pub fn token_by(secret: &str, user: &str, org: &str) -> String {
    let exp = SystemClock.now().as_second() + 3600;
    let claims = json!({ "sub": user, "org_id": org, "exp": exp });
    encode(&Header::default(), &claims, &EncodingKey::from_secret(secret.as_bytes())).unwrap_or_default()
}

pub struct TestCaller<'a> {
    server: &'a TestServer,
    bearer: String,
}

impl TestCaller<'_> {
    pub fn request(&self, method: Method, path: &str) -> RequestBuilder {
        self.server.request(method, path).bearer_auth(&self.bearer)
    }

    /// Sends a request, with a JSON body where one is given (as JSON:API on the conversations' paths).
    ///
    /// # Errors
    /// Where no answer came.
    pub async fn send(&self, method: Method, path: &str, body: Option<&Value>) -> anyhow::Result<Answer> {
        let mut request = self.request(method, path);
        if let Some(body) = body {
            let jsonapi = path.starts_with("/v1/chat-conversations");
            let kind = if jsonapi { "application/vnd.api+json" } else { "application/json" };
            request = request.header("content-type", kind).body(body.to_string());
        }
        Answer::read(request.send().await?).await
    }

    /// # Errors
    /// Where no answer came.
    pub async fn get(&self, path: &str) -> anyhow::Result<Answer> {
        self.send(Method::GET, path, None).await
    }

    /// Makes a workspace and answers its id.
    ///
    /// # Errors
    /// Where the server refused.
    pub async fn create_workspace(&self, name: &str) -> anyhow::Result<String> {
        let answer = self.send(Method::POST, "/v1/workspaces", Some(&json!({ "name": name }))).await?;
        answer.body["id"].as_str().map(str::to_owned).with_context(|| format!("no workspace: {answer:?}"))
    }

    /// Makes a conversation with these attributes and answers its id.
    ///
    /// # Errors
    /// Where the server refused.
    pub async fn create_conversation(&self, attributes: Value) -> anyhow::Result<String> {
        let document = json!({ "data": { "type": "chat_conversation", "attributes": attributes } });
        let answer = self.send(Method::POST, "/v1/chat-conversations", Some(&document)).await?;
        answer.body["data"]["id"]
            .as_str()
            .map(str::to_owned)
            .with_context(|| format!("no conversation: {answer:?}"))
    }
}

/// A whole answer; `body` is null where it is not JSON.
#[derive(Debug)]
pub struct Answer {
    pub status: u16,
    pub headers: reqwest::header::HeaderMap,
    pub text: String,
    pub body: Value,
}

impl Answer {
    /// # Errors
    /// Where the body broke off.
    pub async fn read(response: Response) -> anyhow::Result<Self> {
        let (status, headers) = (response.status().as_u16(), response.headers().clone());
        let text = response.text().await?;
        let body = serde_json::from_str(&text).unwrap_or_default();
        Ok(Self { status, headers, text, body })
    }

    #[must_use]
    pub fn header(&self, name: &str) -> &str {
        self.headers.get(name).and_then(|value| value.to_str().ok()).unwrap_or("")
    }
}
