//! What a run is told: the envelope that comes in, and the configuration that is fetched with it.

use std::time::Duration;

use domain::secret::Secret;
use serde::{Deserialize, Deserializer};
use serde_json::Value;
use uuid::Uuid;

const CONFIG_TIMEOUT: Duration = Duration::from_secs(20);
const CONFIG_BYTES: usize = 8 * 1024 * 1024;

/// The skill that asks for a plan before the work.
pub const TASK_FLOW: &str = "task_flow";

#[derive(Debug, Deserialize)]
pub struct Envelope {
    pub version: u64,
    pub session_id: Uuid,
    pub agent_url: String,
    #[serde(deserialize_with = "secret")]
    pub config_token: Secret,
    #[serde(deserialize_with = "secret")]
    pub upload_otp: Secret,
    pub message: Message,
    #[serde(default)]
    pub conversation: Vec<ChatTurn>,
    #[serde(default)]
    pub accepts: Vec<String>,
}

impl Envelope {
    pub fn takes_deltas(&self) -> bool {
        self.accepts.iter().any(|kind| kind == "delta")
    }
}

#[derive(Debug, Deserialize)]
pub struct Message {
    pub content: String,
}

#[derive(Debug, Deserialize)]
pub struct ChatTurn {
    pub role: String,
    pub content: String,
}

fn secret<'de, D: Deserializer<'de>>(from: D) -> Result<Secret, D::Error> {
    String::deserialize(from).map(Secret::new)
}

#[derive(Debug, Deserialize)]
pub struct Config {
    pub model: Model,
    pub assets: Option<Assets>,
    #[serde(default)]
    pub skills: Vec<Skill>,
    #[serde(default)]
    pub recipes: Vec<Recipe>,
}

#[derive(Debug, Clone, Deserialize)]
pub struct Model {
    pub base_url: String,
    #[serde(deserialize_with = "secret")]
    pub api_key: Secret,
    pub model: String,
}

#[derive(Debug, Clone, Deserialize)]
pub struct Assets {
    pub url: String,
    #[serde(default)]
    pub files: Vec<AssetFile>,
}

#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
pub struct AssetFile {
    pub name: String,
    pub size: u64,
    pub sha256: String,
}

/// Markdown that is read into the prompt.
#[derive(Debug, Clone, Deserialize)]
pub struct Skill {
    pub name: String,
    pub content: String,
}

/// A script that the model may call: its arguments come as JSON on its standard input.
#[derive(Debug, Clone, Deserialize)]
pub struct Recipe {
    /// Such as `add-node.sh`.
    pub name: String,
    pub content: String,
    /// Where it is left out, the comment at the script's top says it.
    #[serde(default)]
    pub description: Option<String>,
    /// JSON Schema of an object.
    #[serde(default)]
    pub parameters: Option<Value>,
}

/// Fetches the run's configuration.
pub async fn config(client: &reqwest::Client, envelope: &Envelope) -> Result<Config, String> {
    let asked = async {
        let url = format!("{}/config", envelope.agent_url);
        let request = client.get(url).bearer_auth(envelope.config_token.expose());
        let mut response = request.send().await.map_err(|error| words(&error))?;
        let status = response.status();
        let mut body = Vec::new();
        while let Some(chunk) = response.chunk().await.map_err(|error| words(&error))? {
            body.extend_from_slice(&chunk);
            if body.len() > CONFIG_BYTES {
                return Err("it is too large".to_owned());
            }
        }
        if !status.is_success() {
            return Err(format!("the answer has status {}", status.as_u16()));
        }
        serde_json::from_slice(&body).map_err(|error| format!("it is malformed: {error}"))
    };
    match tokio::time::timeout(CONFIG_TIMEOUT, asked).await {
        Ok(config) => config,
        Err(_) => Err(format!("no answer within {} s", CONFIG_TIMEOUT.as_secs())),
    }
}

/// An error of the client without the URL, which may hold a signature.
pub fn words(error: &reqwest::Error) -> String {
    let mut text = if error.is_timeout() { "timed out".to_owned() } else { "the request failed".to_owned() };
    let mut cause = std::error::Error::source(error);
    while let Some(inner) = cause {
        text = format!("{text}: {inner}");
        cause = inner.source();
    }
    text
}
