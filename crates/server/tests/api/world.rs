//! One server, and a person with a workspace on it. In: requests. Out: answers that have passed what every
//! answer must: no 5xx, the common headers, a valid JSON:API document or a whole problem.

use std::sync::Arc;

use domain::conversation::{ConversationPatch, NewConversation, Write};
use domain::message::{MessageRole, NewMessage};
use domain::scope::{Role, Scope};
use domain::time::{Clock as _, SystemClock};
use jiff::Timestamp;
use reqwest::{Method, RequestBuilder};
use serde_json::{Value, json};
use server::config::Config;
use testkit::server::{Answer, Backend, TestServer, token};
use uuid::Uuid;

use crate::document;

pub const MEDIA_TYPE: &str = "application/vnd.api+json";
pub const CONVERSATIONS: &str = "/v1/chat-conversations";
pub const ALL_FIELDS: &str = "thread_id,title,mode,source,page_path,total_tokens,messages,context,tabs,\
    active_tab_key,deleted_at,created_at,updated_at,kind,workflow_id,agent_id,model,user_id,org_id,preview,\
    message_count,conversation_id,visibility,workspace";

/// Makes each story a test on each database.
macro_rules! stories {
    ($($name:ident),+ $(,)?) => {
        mod sqlite {
            $(#[tokio::test] async fn $name() {
                crate::world::tell(testkit::server::Backend::Sqlite, super::$name).await;
            })+
        }
        mod postgres {
            $(#[tokio::test] async fn $name() {
                crate::world::tell(testkit::server::Backend::Postgres, super::$name).await;
            })+
        }
    };
}
pub(crate) use stories;

/// Runs a story where there is such a database.
pub async fn tell(backend: Backend, story: impl AsyncFnOnce(World)) {
    if let Some(world) = World::start(backend, |_| {}).await {
        story(world).await;
    }
}

#[derive(Clone)]
pub struct World {
    pub server: Arc<TestServer>,
    bearer: String,
    user: String,
    org: String,
    pub workspace: Uuid,
}

impl World {
    /// A server without a rate limit, and Ann.
    pub async fn start(backend: Backend, change: impl FnOnce(&mut Config)) -> Option<Self> {
        let server = TestServer::start_with(backend, |config| {
            config.limits.requests_per_second = 0;
            change(config);
        });
        Some(Self::person(Arc::new(server.await?), "ann", "acme").await)
    }

    async fn person(server: Arc<TestServer>, user: &str, org: &str) -> Self {
        let workspace = server.person(user, org).create_workspace(&format!("{user}'s")).await.unwrap();
        let (user, org) = (user.to_owned(), org.to_owned());
        Self { server, bearer: token(&user, &org), user, org, workspace: workspace.parse().unwrap() }
    }

    /// Somebody else on the same server, in a workspace of their own.
    pub async fn other(&self, user: &str, org: &str) -> Self {
        Self::person(Arc::clone(&self.server), user, org).await
    }

    /// Somebody else in the same workspace, as a member.
    pub async fn member(&self, user: &str) -> Self {
        let path = format!("/v1/workspaces/{}/members", self.workspace);
        let body = json!({ "user": user, "role": "member" });
        let request = self.request(Method::POST, &path).header("content-type", "application/json");
        assert_eq!(self.send(request.body(body.to_string())).await.status, 201);
        Self { bearer: token(user, &self.org), user: user.to_owned(), ..self.clone() }
    }

    pub fn bearer(&self) -> &str {
        &self.bearer
    }

    pub fn request(&self, method: Method, path: &str) -> RequestBuilder {
        self.server.request(method, path).bearer_auth(&self.bearer)
    }

    /// A request with a JSON:API body, as it is.
    pub fn with_body(&self, method: Method, path: &str, body: impl Into<reqwest::Body>) -> RequestBuilder {
        self.request(method, path).header("content-type", MEDIA_TYPE).body(body)
    }

    pub async fn send(&self, request: RequestBuilder) -> Answer {
        let (client, request) = request.build_split();
        let request = request.expect("a request that can be sent");
        let url = request.url().clone();
        let answer =
            Answer::read(client.execute(request).await.expect("an answer")).await.expect("a whole answer");
        let sparse = url.query().is_some_and(|query| query.contains("fields"));
        check(url.path(), sparse, &answer);
        answer
    }

    pub async fn get(&self, path: &str) -> Answer {
        self.send(self.request(Method::GET, path)).await
    }

    /// The list with this query, which must be fine.
    pub async fn list(&self, query: &str) -> Value {
        let answer = self.get(&format!("{CONVERSATIONS}?{query}")).await;
        assert_eq!(answer.status, 200, "{query}: {}", answer.text);
        answer.body
    }

    /// Follows a link of an answer as it is.
    pub async fn follow(&self, link: &Value) -> Answer {
        let link = link.as_str().expect("a link");
        let path = link.strip_prefix(self.server.url()).expect("a link to this server");
        self.get(path).await
    }

    pub async fn post(&self, body: impl Into<reqwest::Body>) -> Answer {
        self.send(self.with_body(Method::POST, CONVERSATIONS, body)).await
    }

    /// Creates a conversation, which must work, and answers its resource.
    pub async fn create(&self, attributes: Value) -> Value {
        let answer = self.post(creation(&attributes)).await;
        assert_eq!(answer.status, 201, "{attributes}: {}", answer.text);
        answer.body["data"].clone()
    }

    pub async fn patch(&self, id: &str, attributes: &Value) -> Answer {
        self.send(self.with_body(Method::PATCH, &item(id), change(id, attributes))).await
    }

    /// A conversation's resource, which must be there.
    pub async fn retrieve(&self, id: &str) -> Value {
        let answer = self.get(&item(id)).await;
        assert_eq!(answer.status, 200, "{}", answer.text);
        answer.body["data"].clone()
    }

    pub async fn delete(&self, id: &str) -> Answer {
        self.send(self.request(Method::DELETE, &item(id))).await
    }

    pub async fn restore(&self, id: &str) -> Answer {
        self.send(self.request(Method::POST, &format!("{}/restore", item(id)))).await
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

    /// Adds messages to a thread, for which there is no route.
    pub async fn say(&self, id: &str, messages: &[NewMessage]) {
        let now = SystemClock.now();
        let id = id.parse().unwrap();
        self.server.store().append_messages(&self.scope(), id, None, messages, now).await.unwrap();
    }

    /// Adds one message of a user.
    pub async fn ask(&self, id: &str, text: &str) -> Uuid {
        let message = message(MessageRole::User, text);
        self.say(id, std::slice::from_ref(&message)).await;
        message.id
    }

    /// A conversation as if it had been made at some time.
    pub async fn create_at(&self, title: Option<&str>, at: Timestamp) -> Uuid {
        let patch =
            ConversationPatch { title: Some(title.map(str::to_owned)), ..ConversationPatch::default() };
        let new = NewConversation { patch, ..NewConversation::default() };
        let write = Write { now: at, max_tabs: 50 };
        let store = self.server.store();
        store.create_conversation(&self.scope(), &new, SystemClock.new_id(), &write).await.unwrap().id
    }

    /// Everything there is of the workspace's conversations, live and deleted, to tell that nothing changed.
    pub async fn everything(&self) -> Vec<Value> {
        let mut found = Vec::new();
        for deleted in [false, true] {
            let query = format!(
                "filter[deleted]={deleted}&sort=created_at&page[size]=100&fields[chat_conversation]={ALL_FIELDS}"
            );
            let mut page = self.list(&query).await;
            loop {
                found.extend(page["data"].as_array().unwrap().clone());
                if page["links"]["next"].is_null() {
                    break;
                }
                page = self.follow(&page["links"]["next"]).await.body;
            }
        }
        found
    }
}

/// What holds for every answer of the server.
fn check(path: &str, sparse: bool, answer: &Answer) {
    assert!(answer.status < 500, "{path}: {} {}", answer.status, answer.text);
    assert!(!answer.header("x-request-id").is_empty(), "{path}");
    assert_eq!(answer.header("x-content-type-options"), "nosniff", "{path}");
    let kept = if path == "/" { "no-cache" } else { "no-store" };
    assert_eq!(answer.header("cache-control"), kept, "{path}");
    if speaks_jsonapi(path) {
        assert!(answer.header("vary").to_ascii_lowercase().contains("accept"), "{path}");
        if matches!(answer.status, 204 | 304) {
            assert_eq!(answer.text, "", "{path}");
            return;
        }
        assert_eq!(answer.header("content-type"), MEDIA_TYPE, "{path}: {}", answer.text);
        document::check(&answer.body, sparse);
        let errors = answer.body["errors"].as_array();
        assert_eq!(errors.is_some(), answer.status >= 400, "{path}: {} {}", answer.status, answer.text);
        if let Some([only]) = errors.map(Vec::as_slice) {
            assert_eq!(only["status"], answer.status.to_string(), "{path}");
        }
    } else if answer.status >= 400 {
        check_problem(answer);
    }
}

/// An error outside JSON:API.
pub fn check_problem(answer: &Answer) {
    assert_eq!(answer.header("content-type"), "application/problem+json", "{}", answer.text);
    for name in ["type", "title", "detail", "code"] {
        let text = answer.body[name].as_str();
        assert!(text.is_some_and(|text| !text.is_empty()), "a problem has a {name}: {}", answer.text);
    }
    assert_eq!(answer.body["status"], answer.status, "{}", answer.text);
}

pub fn speaks_jsonapi(path: &str) -> bool {
    let parts: Vec<&str> = path.split('/').collect();
    matches!(parts[..], ["", "v1", "chat-conversations"] | ["", "v1", "chat-conversations", _])
        || matches!(parts[..], ["", "v1", "chat-conversations", _, "restore" | "fork"])
}

/// The path of a conversation.
pub fn item(id: &str) -> String {
    format!("{CONVERSATIONS}/{id}")
}

/// The document of a create.
pub fn creation(attributes: &Value) -> String {
    json!({ "data": { "type": "chat_conversation", "attributes": attributes } }).to_string()
}

/// The document of an update.
pub fn change(id: &str, attributes: &Value) -> String {
    json!({ "data": { "type": "chat_conversation", "id": id, "attributes": attributes } }).to_string()
}

pub fn message(role: MessageRole, text: &str) -> NewMessage {
    NewMessage::text(SystemClock.new_id(), role, text, SystemClock.now())
}

/// The id of a resource.
pub fn id_of(resource: &Value) -> String {
    resource["id"].as_str().expect("an id").to_owned()
}

/// The ids of a list, in order.
pub fn ids(document: &Value) -> Vec<String> {
    document["data"].as_array().expect("a list").iter().map(id_of).collect()
}

/// The titles of a list, in order.
pub fn titles(document: &Value) -> Vec<&str> {
    document["data"].as_array().expect("a list").iter().map(title_of).collect()
}

fn title_of(item: &Value) -> &str {
    item["attributes"]["title"].as_str().unwrap_or("")
}

/// What an answer's only error points at.
pub fn pointer(answer: &Answer) -> &str {
    answer.body["errors"][0]["source"]["pointer"].as_str().unwrap_or("none")
}

pub fn parameter(answer: &Answer) -> &str {
    answer.body["errors"][0]["source"]["parameter"].as_str().unwrap_or("none")
}

pub fn code(answer: &Answer) -> &str {
    answer.body["errors"][0]["code"].as_str().unwrap_or("none")
}

pub fn detail(answer: &Answer) -> &str {
    answer.body["errors"][0]["detail"].as_str().unwrap_or("none")
}

/// A text as it may stand in a query string.
pub fn encoded(text: &str) -> String {
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-._~".contains(&byte);
    text.bytes().map(|b| if plain(b) { char::from(b).to_string() } else { format!("%{b:02X}") }).collect()
}
