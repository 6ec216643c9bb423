//! A scripted provider for each vendor, and an answer of it gathered.

use std::time::Duration;

use domain::model::{Ask, Gathered, ModelEvent, Prompt, Said};
use domain::secret::Secret;
use futures_util::StreamExt as _;
use testkit::sandbox::{Action, ScriptedSandbox};
use upstream::llm::anthropic::Anthropic;
use upstream::llm::openai::OpenAi;
use upstream::llm::{LanguageModel, ModelLimits};

pub const KEY: &str = "sk-canary-5c1e";

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Vendor {
    OpenAi,
    Anthropic,
}

pub const VENDORS: [Vendor; 2] = [Vendor::OpenAi, Vendor::Anthropic];

/// Limits no script runs into by chance, and no second try.
pub const WIDE: ModelLimits = ModelLimits {
    first_token: Duration::from_secs(30),
    idle: Duration::from_secs(30),
    retries: 0,
    backoff: Duration::from_millis(1),
};

impl Vendor {
    pub fn model(self, url: &str, limits: ModelLimits) -> Box<dyn LanguageModel> {
        let (client, key) = (upstream::http::client().unwrap(), Some(Secret::new(KEY)));
        match self {
            Self::OpenAi => Box::new(OpenAi::new(Some(&format!("{url}/v1")), key, client, limits).unwrap()),
            Self::Anthropic => {
                Box::new(Anthropic::new(Some(url), key, "2023-06-01", client, limits).unwrap())
            }
        }
    }

    /// As the files have it.
    pub fn name(self) -> &'static str {
        match self {
            Self::OpenAi => "openai",
            Self::Anthropic => "anthropic",
        }
    }

    pub fn path(self) -> &'static str {
        match self {
            Self::OpenAi => "/v1/chat/completions",
            Self::Anthropic => "/v1/messages",
        }
    }

    /// "Hello wörld" as this vendor streams it, with 7 tokens in and 3 out.
    pub fn hello(self) -> String {
        match self {
            Self::OpenAi => [
                r#"data: {"choices":[{"index":0,"delta":{"role":"assistant","content":""}}]}"#,
                r#"data: {"choices":[{"index":0,"delta":{"content":"Hello"}}]}"#,
                r#"data: {"choices":[{"index":0,"delta":{"content":" wörld"}}]}"#,
                r#"data: {"choices":[{"index":0,"delta":{},"finish_reason":"stop"}]}"#,
                r#"data: {"choices":[],"usage":{"prompt_tokens":7,"completion_tokens":3}}"#,
                "data: [DONE]",
                "",
            ]
            .join("\n\n"),
            Self::Anthropic => [
                r#"event: message_start
data: {"type":"message_start","message":{"usage":{"input_tokens":4,"cache_read_input_tokens":3,"output_tokens":1}}}"#,
                r#"event: content_block_start
data: {"type":"content_block_start","index":0,"content_block":{"type":"text","text":""}}"#,
                "event: ping\ndata: {\"type\":\"ping\"}",
                r#"event: content_block_delta
data: {"type":"content_block_delta","index":0,"delta":{"type":"text_delta","text":"Hello"}}"#,
                r#"event: content_block_delta
data: {"type":"content_block_delta","index":0,"delta":{"type":"text_delta","text":" wörld"}}"#,
                "event: content_block_stop\ndata: {\"type\":\"content_block_stop\",\"index\":0}",
                r#"event: message_delta
data: {"type":"message_delta","delta":{"stop_reason":"end_turn"},"usage":{"output_tokens":3}}"#,
                "event: message_stop\ndata: {\"type\":\"message_stop\"}",
                "",
            ]
            .join("\n\n"),
        }
    }

    /// The end of `hello` after which the answer is whole, whatever follows.
    pub fn whole_after(self) -> usize {
        let hello = self.hello();
        let mark = match self {
            Self::OpenAi => "\"finish_reason\":\"stop\"}]}\n\n",
            Self::Anthropic => "\"output_tokens\":3}}\n\n",
        };
        hello.find(mark).unwrap() + mark.len()
    }

    /// The beginning of `hello`, up to and with its first word.
    pub fn spoken(self) -> String {
        let mut hello = self.hello();
        let word = hello.find("Hello").unwrap_or_default();
        let end = hello[word..].find("\n\n").unwrap_or_default();
        hello.truncate(word + end + 2);
        hello
    }

    /// An error in the middle of a stream.
    pub fn error(self, kind: &str, message: &str) -> String {
        match self {
            Self::OpenAi => {
                format!("data: {{\"error\":{{\"type\":\"{kind}\",\"message\":\"{message}\"}}}}\n\n")
            }
            Self::Anthropic => format!(
                "event: error\ndata: {{\"type\":\"error\",\"error\":{{\"type\":\"{kind}\",\"message\":\"{message}\"}}}}\n\n"
            ),
        }
    }
}

pub fn head() -> Action {
    Action::Headers("200 OK", vec![("content-type", "text/event-stream".into())])
}

pub fn body(text: &str) -> Vec<Action> {
    body_bytes(text.as_bytes())
}

pub fn body_bytes(bytes: &[u8]) -> Vec<Action> {
    vec![head(), Action::Bytes(bytes.to_vec())]
}

pub fn refusal(status: &'static str, headers: Vec<(&'static str, String)>, text: &str) -> Vec<Action> {
    vec![Action::Headers(status, headers), Action::Bytes(text.as_bytes().to_vec())]
}

pub fn ask() -> Ask {
    let prompt = Prompt { system: "Be brief.".into(), messages: vec![Said::User("Hi".into())] };
    Ask { model: "m".into(), prompt, ..Ask::default() }
}

/// A whole answer, and its events. Nothing comes after the one end, and the key is nowhere in it.
pub async fn listen(model: &dyn LanguageModel) -> (Gathered, Vec<ModelEvent>) {
    let batches: Vec<Vec<ModelEvent>> =
        tokio::time::timeout(Duration::from_secs(60), model.stream(ask()).collect()).await.expect("an end");
    assert!(batches.iter().all(|batch| !batch.is_empty()));
    let events = batches.concat();
    let ends = events.iter().filter(|event| matches!(event, ModelEvent::End(_))).count();
    assert_eq!(ends, 1, "{events:?}");
    assert!(matches!(events.last(), Some(ModelEvent::End(_))), "{events:?}");
    assert!(!format!("{events:?}").contains(KEY), "{events:?}");
    let mut gathered = Gathered::default();
    events.iter().for_each(|event| gathered.push(event));
    (gathered, events)
}

pub async fn play(vendor: Vendor, script: Vec<Action>) -> Gathered {
    let server = ScriptedSandbox::start(script).await.unwrap();
    listen(&*vendor.model(&server.url(), WIDE)).await.0
}
