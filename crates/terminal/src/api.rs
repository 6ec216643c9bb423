//! The server's HTTP API, as much of it as a chat needs. Every call is a question and its whole answer; a run's
//! events are in `follow`, files in `files`.

use std::fmt::Write as _;
use std::time::Duration;

use domain::secret::Secret;
use reqwest::{Client, Method, RequestBuilder, Response, header};
use serde::Deserialize;
use serde_json::{Value, json};
use uuid::Uuid;

use crate::failure::{Failure, reason};

const JSON_API: &str = "application/vnd.api+json";
const PATIENCE: Duration = Duration::from_secs(30);
const CONVERSATIONS: &str = "/v1/chat-conversations";

/// A server and who we are to it.
#[derive(Debug, Clone)]
pub struct Server {
    pub(crate) client: Client,
    base: String,
    key: Option<Secret>,
    workspace: Option<Uuid>,
}

/// A row of the history.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Listed {
    pub id: Uuid,
    pub title: String,
    pub preview: String,
    /// `today`, `yesterday`, … or a month.
    pub group: String,
}

/// A stored message.
#[derive(Debug, Clone, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Stored {
    pub id: Uuid,
    pub role: String,
    #[serde(default)]
    pub content: String,
    #[serde(default)]
    pub parts: Vec<Value>,
    #[serde(default)]
    pub file_attachments: Vec<Value>,
}

/// A conversation and its newest messages.
#[derive(Debug, Clone)]
pub struct Thread {
    pub title: String,
    pub messages: Vec<Stored>,
}

#[derive(Debug, Clone, Deserialize)]
pub struct RunState {
    pub id: Uuid,
    pub status: String,
}

impl Server {
    /// `base` has no slash at its end.
    pub fn new(base: &str, key: Option<Secret>, workspace: Option<Uuid>) -> Result<Self, Failure> {
        let client = upstream::http::client().map_err(|error| Failure::Here(error.to_string()))?;
        Ok(Self { client, base: base.trim_end_matches('/').to_owned(), key, workspace })
    }

    pub fn base(&self) -> &str {
        &self.base
    }

    pub(crate) fn request(&self, method: Method, path: &str) -> RequestBuilder {
        let mut request = self.client.request(method, format!("{}{path}", self.base));
        if let Some(key) = &self.key {
            request = request.bearer_auth(key.expose());
        }
        if let Some(workspace) = self.workspace {
            request = request.header("threadkeep-workspace", workspace.to_string());
        }
        request
    }

    /// The answer, if it is a good one.
    pub(crate) async fn send(&self, request: RequestBuilder) -> Result<Response, Failure> {
        let response = request.send().await.map_err(|error| {
            if error.is_connect() {
                Failure::Unreachable { base: self.base.clone(), reason: reason(error) }
            } else {
                Failure::Lost(reason(error))
            }
        })?;
        if response.status().is_success() { Ok(response) } else { Err(self.refusal(response).await) }
    }

    async fn refusal(&self, response: Response) -> Failure {
        let status = response.status().as_u16();
        let body: Value = match response.bytes().await {
            Ok(bytes) => serde_json::from_slice(&bytes).unwrap_or_default(),
            Err(_) => Value::Null,
        };
        let problem = if body["errors"].is_array() { &body["errors"][0] } else { &body };
        let text = |name: &str| problem[name].as_str().map(str::to_owned);
        let mut detail = text("detail").unwrap_or_else(|| "the server refused".to_owned());
        if status == 401 {
            detail = match self.key {
                Some(_) => {
                    format!("the server does not know this key: {detail} Give --key or THREADKEEP_KEY")
                }
                None => "the server asks for a key: give one with --key or THREADKEEP_KEY; \
                         `threadkeep keys create --name terminal --role member` on its machine makes one"
                    .to_owned(),
            };
        }
        let code = text("code").unwrap_or_else(|| "unknown".to_owned());
        Failure::Refused { status, code, detail }
    }

    /// Whether anything answers there, whatever it says.
    pub async fn answers(&self) -> bool {
        let asked = self.send(self.request(Method::GET, "/healthz").timeout(PATIENCE)).await;
        !asked.is_err_and(|failure| failure.unanswered())
    }

    pub(crate) async fn json(&self, request: RequestBuilder) -> Result<Value, Failure> {
        let bytes = self.send(request.timeout(PATIENCE)).await?.bytes().await;
        let bytes = bytes.map_err(|error| Failure::Lost(reason(error)))?;
        serde_json::from_slice(&bytes).map_err(|error| Failure::Unreadable(error.to_string()))
    }

    /// Conversations, newest first, or those that match what was typed, best first.
    pub async fn list(&self, query: &str, most: usize) -> Result<Vec<Listed>, Failure> {
        let mut path = format!("{CONVERSATIONS}?page%5Bsize%5D={most}&timeZone={}", percent(&time_zone()));
        path.push_str("&fields%5Bchat_conversation%5D=title,preview");
        if !query.trim().is_empty() {
            let _ = write!(path, "&filter%5Bquery%5D={}", percent(query.trim()));
        }
        let found = self.json(self.request(Method::GET, &path).header(header::ACCEPT, JSON_API)).await?;
        let rows = found["data"].as_array().map(Vec::as_slice).unwrap_or_default();
        Ok(rows.iter().filter_map(listed).collect())
    }

    pub async fn create_conversation(&self, mode: Option<&str>) -> Result<Uuid, Failure> {
        let mut attributes = json!({});
        if let Some(mode) = mode {
            attributes["mode"] = mode.into();
        }
        let document = json!({ "data": { "type": "chat_conversation", "attributes": attributes } });
        let request = self
            .request(Method::POST, CONVERSATIONS)
            .header(header::CONTENT_TYPE, JSON_API)
            .header(header::ACCEPT, JSON_API)
            .body(document.to_string());
        let made = self.json(request).await?;
        made["data"]["id"]
            .as_str()
            .and_then(|id| id.parse().ok())
            .ok_or_else(|| Failure::Unreadable("a new conversation without an id".to_owned()))
    }

    pub async fn delete_conversation(&self, id: Uuid) -> Result<(), Failure> {
        let request = self.request(Method::DELETE, &format!("{CONVERSATIONS}/{id}"));
        self.send(request.timeout(PATIENCE)).await.map(drop)
    }

    /// The newest `most` messages.
    pub async fn thread(&self, conversation: Uuid, most: usize) -> Result<Thread, Failure> {
        let path = format!(
            "{CONVERSATIONS}/{conversation}?page%5Bmessages%5D={most}&fields%5Bchat_conversation%5D=title,messages"
        );
        let mut found = self.json(self.request(Method::GET, &path).header(header::ACCEPT, JSON_API)).await?;
        let attributes = &mut found["data"]["attributes"];
        let title = attributes["title"].as_str().unwrap_or_default().to_owned();
        let messages = serde_json::from_value(attributes["messages"].take())
            .map_err(|error| Failure::Unreadable(error.to_string()))?;
        Ok(Thread { title, messages })
    }

    /// The run of a conversation that is queued or under way.
    pub async fn open_run(&self, conversation: Uuid) -> Result<Option<RunState>, Failure> {
        let path = format!("{CONVERSATIONS}/{conversation}/runs?limit=20");
        let mut found = self.json(self.request(Method::GET, &path)).await?;
        let runs: Vec<RunState> = serde_json::from_value(found["data"].take())
            .map_err(|error| Failure::Unreadable(error.to_string()))?;
        // One that is under way comes before those that wait for it.
        let open = |status: &str| runs.iter().rev().find(|run| run.status == status).cloned();
        Ok(open("running").or_else(|| open("queued")))
    }

    pub async fn cancel(&self, run: Uuid) -> Result<(), Failure> {
        self.json(self.request(Method::POST, &format!("/v1/runs/{run}/cancel"))).await.map(drop)
    }

    /// Decides on a call that waits for a person.
    pub async fn decide(
        &self,
        run: Uuid,
        approval: &str,
        approve: bool,
        why: Option<&str>,
    ) -> Result<(), Failure> {
        let mut body = json!({ "id": approval, "approve": approve });
        if let Some(why) = why {
            body["reason"] = why.into();
        }
        let request = self.request(Method::POST, &format!("/v1/runs/{run}/approvals")).json(&body);
        self.send(request.timeout(PATIENCE)).await.map(drop)
    }
}

fn listed(row: &Value) -> Option<Listed> {
    let text = |name: &str| row["attributes"][name].as_str().unwrap_or_default().to_owned();
    Some(Listed {
        id: row["id"].as_str()?.parse().ok()?,
        title: text("title"),
        preview: text("preview"),
        group: row["meta"]["group"].as_str().unwrap_or_default().to_owned(),
    })
}

/// The reader's own time zone by its name, as far as this machine knows it.
fn time_zone() -> String {
    jiff::tz::TimeZone::system().iana_name().unwrap_or("UTC").to_owned()
}

/// Every byte that means something in a URL, written out.
pub(crate) fn percent(text: &str) -> String {
    text.bytes().fold(String::new(), |mut out, byte| {
        if byte.is_ascii_alphanumeric() || b"-_.~".contains(&byte) {
            out.push(byte.into());
        } else {
            let _ = write!(out, "%{byte:02X}");
        }
        out
    })
}
