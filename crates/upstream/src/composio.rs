//! Tools of other services through Composio's API, version 3: the tools of a toolkit, and calls of them for a user.

use std::time::Duration;

use domain::secret::Secret;
use reqwest::header::{ACCEPT_ENCODING, HeaderValue};
use reqwest::{RequestBuilder, Url};
use serde_json::{Value, json};
use tokio::time::timeout;

use crate::error::{UpstreamError, causes};
use crate::mcp::{Given, Tool, schema};

const ITS_OWN: &str = "https://backend.composio.dev";
const API: &str = "/api/v3";
const LISTING: Duration = Duration::from_secs(20);
const MAX_ANSWER_BYTES: usize = 8 * 1024 * 1024;
/// Tools of one toolkit; models take no more in all.
const MAX_TOOLS: usize = 128;
const MAX_PAGES: usize = 8;
const WORDS_CHARS: usize = 500;
const DESCRIPTION_CHARS: usize = 4_000;

pub struct Composio {
    client: reqwest::Client,
    base: Url,
    key: Secret,
}

impl Composio {
    /// `client` is the one of `upstream::http`. `base` may or may not name the API's version.
    pub fn new(base: Option<&str>, key: Secret, client: reqwest::Client) -> Result<Self, UpstreamError> {
        let base = base.unwrap_or(ITS_OWN).trim_end_matches('/').trim_end_matches(API);
        let base = Url::parse(&format!("{base}{API}/")).map_err(|error| UpstreamError::Url {
            setting: "COMPOSIO_BASE_URL",
            reason: error.to_string(),
        })?;
        Ok(Self { client, base, key })
    }

    /// The tools of a toolkit: those that Composio calls important, or all where it does so of none.
    pub async fn tools(&self, toolkit: &str) -> Result<Vec<Tool>, String> {
        let listing = async {
            match self.list(toolkit, true).await? {
                none if none.is_empty() => self.list(toolkit, false).await,
                tools => Ok(tools),
            }
        };
        let late = format!("Composio did not answer within {} s", LISTING.as_secs());
        timeout(LISTING, listing).await.unwrap_or(Err(late))
    }

    /// Makes a call for a user. Dropping it gives it up. The error is for the model to read.
    pub async fn call(&self, tool: &str, user: &str, args: Value) -> Result<Given, String> {
        let mut url = self.base.clone();
        if let Ok(mut path) = url.path_segments_mut() {
            path.pop_if_empty().extend(["tools", "execute", tool]);
        }
        let body = json!({ "user_id": user, "arguments": args });
        let answer = self.send(self.client.post(url).json(&body)).await?;
        if answer["successful"] == true {
            return Ok(Given { value: answer["data"].clone(), failed: false });
        }
        let reason = said(&answer).unwrap_or_else(|| "the tool failed and did not say why".to_owned());
        Ok(Given { value: Value::String(self.clean(&reason)), failed: true })
    }

    async fn list(&self, toolkit: &str, important: bool) -> Result<Vec<Tool>, String> {
        let (mut tools, mut cursor) = (Vec::new(), None::<String>);
        for _ in 0..MAX_PAGES {
            let mut url = self.base.join("tools").map_err(|error| error.to_string())?;
            url.query_pairs_mut().append_pair("toolkit_slug", toolkit).append_pair("limit", "100");
            if important {
                url.query_pairs_mut().append_pair("important", "true");
            }
            if let Some(cursor) = &cursor {
                url.query_pairs_mut().append_pair("cursor", cursor);
            }
            let page = self.send(self.client.get(url)).await?;
            let items = page["items"].as_array().ok_or("Composio's answer is no list of tools")?;
            tools.extend(items.iter().filter_map(tool));
            cursor = page["next_cursor"].as_str().filter(|next| !next.is_empty()).map(str::to_owned);
            if cursor.is_none() || tools.len() >= MAX_TOOLS {
                break;
            }
        }
        tools.truncate(MAX_TOOLS);
        Ok(tools)
    }

    async fn send(&self, request: RequestBuilder) -> Result<Value, String> {
        let mut key = HeaderValue::from_str(self.key.expose())
            .map_err(|_| "COMPOSIO_API_KEY cannot be sent in a header")?;
        key.set_sensitive(true);
        let sent = request.header("x-api-key", key).header(ACCEPT_ENCODING, "identity").send().await;
        let unreachable = |error| format!("Composio cannot be reached: {}", self.clean(&causes(error)));
        let mut response = sent.map_err(unreachable)?;
        let (status, mut body) = (response.status(), Vec::new());
        while let Some(chunk) = response.chunk().await.map_err(unreachable)? {
            if body.len() + chunk.len() > MAX_ANSWER_BYTES {
                return Err(format!("Composio's answer has more than {MAX_ANSWER_BYTES} bytes"));
            }
            body.extend_from_slice(&chunk);
        }
        let answer = serde_json::from_slice::<Value>(&body);
        if !status.is_success() {
            let reason = answer.ok().and_then(|answer| said(&answer)).unwrap_or_default();
            return Err(self
                .clean(format!("Composio answered with status {status}: {reason}").trim_end_matches(": ")));
        }
        answer.map_err(|_| "Composio's answer is not JSON".to_owned())
    }

    fn clean(&self, text: &str) -> String {
        text.replace(self.key.expose(), "****")
    }
}

fn tool(item: &Value) -> Option<Tool> {
    let slug = item["slug"].as_str().filter(|slug| !slug.is_empty() && slug.len() <= 256)?;
    let text = |field: &str| item[field].as_str().filter(|text| !text.trim().is_empty());
    let about = text("description").or_else(|| text("name")).unwrap_or_default();
    let tags = item["tags"].as_array().map(Vec::as_slice).unwrap_or_default();
    Some(Tool {
        name: slug.to_owned(),
        description: about.chars().take(DESCRIPTION_CHARS).collect(),
        schema: schema(&item["input_parameters"])?,
        read_only: tags.iter().any(|tag| tag == "readOnlyHint"),
    })
}

/// What an answer says went wrong: `error` is a text, or an object with a message.
fn said(answer: &Value) -> Option<String> {
    let error = &answer["error"];
    let text = error.as_str().or_else(|| error["message"].as_str()).or_else(|| answer["message"].as_str())?;
    Some(text.chars().take(WORDS_CHARS).collect())
}
