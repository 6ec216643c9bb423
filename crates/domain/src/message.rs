//! A message and the blocks it is made of: the public JSON and the stored JSON are the same.

use jiff::Timestamp;
use serde::Serialize;
use serde_json::value::RawValue;
use uuid::Uuid;

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum MessageRole {
    User,
    Assistant,
    System,
}

impl MessageRole {
    pub fn as_str(self) -> &'static str {
        match self {
            Self::User => "user",
            Self::Assistant => "assistant",
            Self::System => "system",
        }
    }

    pub fn parse(text: &str) -> Option<Self> {
        match text {
            "user" => Some(Self::User),
            "assistant" => Some(Self::Assistant),
            "system" => Some(Self::System),
            _ => None,
        }
    }
}

/// JSON text of someone else's making, passed on as it came.
pub type Raw = Box<RawValue>;

#[derive(Debug, Clone, Serialize)]
#[serde(tag = "type", rename_all = "snake_case", rename_all_fields = "camelCase")]
pub enum Block {
    Text {
        text: String,
    },
    Reasoning {
        text: String,
    },
    Step {
        id: String,
        name: String,
        status: String,
        #[serde(skip_serializing_if = "Option::is_none")]
        args: Option<Raw>,
        #[serde(skip_serializing_if = "Option::is_none")]
        result: Option<Raw>,
        #[serde(skip_serializing_if = "Option::is_none")]
        error: Option<String>,
        #[serde(skip_serializing_if = "Option::is_none")]
        duration_ms: Option<u64>,
        started_at: i64,
    },
    Error {
        code: String,
        message: String,
    },
}

/// A message to be stored. The lists are JSON arrays, `metadata` a JSON object.
#[derive(Debug, Clone)]
pub struct NewMessage {
    pub id: Uuid,
    pub role: MessageRole,
    pub content: Vec<Block>,
    pub file_attachments: String,
    pub sources: String,
    pub token_count: i64,
    pub metadata: String,
    pub created_at: Timestamp,
}

impl NewMessage {
    /// A message of one text block and nothing else.
    pub fn text(id: Uuid, role: MessageRole, text: impl Into<String>, created_at: Timestamp) -> Self {
        Self {
            id,
            role,
            content: vec![Block::Text { text: text.into() }],
            file_attachments: "[]".into(),
            sources: "[]".into(),
            token_count: 0,
            metadata: "{}".into(),
            created_at,
        }
    }
}

/// The plain text of a message: its text blocks joined by a blank line.
pub fn plain_text(content: &[Block]) -> String {
    let texts: Vec<&str> = content
        .iter()
        .filter_map(|block| match block {
            Block::Text { text } => Some(text.as_str()),
            _ => None,
        })
        .collect();
    texts.join("\n\n")
}

/// A stored message; the JSON parts are text, ready to be written into an answer.
#[derive(Debug, Clone, PartialEq)]
pub struct Message {
    pub id: Uuid,
    /// Its place in the thread, from 1.
    pub seq: i64,
    pub role: MessageRole,
    pub text: String,
    pub content: String,
    pub file_attachments: String,
    pub sources: String,
    pub token_count: i64,
    pub metadata: String,
    pub created_at: Timestamp,
}

/// Which messages of a thread to read, always in thread order.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Window {
    All,
    /// The newest `limit`.
    Newest {
        limit: usize,
    },
    /// The newest `limit` of those before a message.
    Before {
        message: Uuid,
        limit: usize,
    },
}
