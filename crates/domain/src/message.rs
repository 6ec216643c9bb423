//! A message and the blocks it is made of: the public JSON and the stored JSON are the same.

use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use uuid::Uuid;

use crate::event::{Source, StepStatus};
use crate::json;

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
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

/// The order of the fields is the order in the JSON.
#[derive(Debug, Clone, Serialize)]
#[serde(tag = "type", rename_all = "snake_case", rename_all_fields = "camelCase")]
pub enum Block {
    Text {
        text: String,
    },
    Reasoning {
        text: String,
    },
    /// What the sandbox never said of a step is left out.
    Step {
        id: String,
        name: String,
        status: StepStatus,
        #[serde(skip_serializing_if = "Option::is_none")]
        args: Option<Raw>,
        #[serde(skip_serializing_if = "Option::is_none")]
        result: Option<Raw>,
        #[serde(skip_serializing_if = "Option::is_none")]
        error: Option<String>,
        #[serde(skip_serializing_if = "Option::is_none")]
        duration_ms: Option<Raw>,
        started_at: i64,
    },
    /// Every field is always there, null where there is nothing.
    ToolCall {
        id: String,
        name: String,
        args: Option<Raw>,
        result: Option<Raw>,
        error: Option<String>,
        truncated: bool,
        round: u32,
    },
    Source(Source),
    File {
        file_id: Uuid,
        name: String,
        mime_type: String,
        size: u64,
        sha256: String,
    },
    Error {
        code: String,
        message: String,
    },
}

/// A message to be stored, as it will be: an answer may be long, and is written out once. The lists are JSON arrays,
/// `metadata` a JSON object.
#[derive(Debug, Clone)]
pub struct NewMessage {
    pub id: Uuid,
    pub role: MessageRole,
    /// Its blocks.
    pub content: String,
    /// Its plain text.
    pub text: String,
    pub file_attachments: String,
    pub sources: String,
    pub token_count: i64,
    pub metadata: String,
    pub created_at: Timestamp,
}

impl NewMessage {
    pub fn new(id: Uuid, role: MessageRole, blocks: &[Block], created_at: Timestamp) -> Self {
        Self {
            id,
            role,
            content: json_array(blocks),
            text: plain_text(blocks),
            file_attachments: "[]".into(),
            sources: sources_json(blocks),
            token_count: 0,
            metadata: "{}".into(),
            created_at,
        }
    }

    /// A message of one text block and nothing else.
    pub fn text(id: Uuid, role: MessageRole, text: impl Into<String>, created_at: Timestamp) -> Self {
        Self::new(id, role, &[Block::Text { text: text.into() }], created_at)
    }
}

fn json_array<T: Serialize>(of: &[T]) -> String {
    serde_json::to_string(of).unwrap_or_else(|_| "[]".into())
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

/// The citations among the blocks, in order: what a message's `sources` lists.
pub fn sources_json(content: &[Block]) -> String {
    let sources = content.iter().filter_map(|block| match block {
        Block::Source(source) => Some(source),
        _ => None,
    });
    json_array(&sources.collect::<Vec<_>>())
}

/// Why blocks that a user sent are refused. `pointer` is the place within the array, as in RFC 6901.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{detail}")]
pub struct BlocksFault {
    pub pointer: String,
    pub detail: String,
}

#[derive(Deserialize)]
struct SentBlock<'a> {
    #[serde(borrow)]
    r#type: Option<&'a RawValue>,
    #[serde(borrow)]
    text: Option<&'a RawValue>,
}

/// The blocks of a user's message. A user speaks in text: every other block is made by a run, and one sent
/// from outside would pass for it.
pub fn blocks_from_json(sent: &str) -> Result<Vec<Block>, BlocksFault> {
    json::check(sent.as_bytes())
        .map_err(|fault| BlocksFault { detail: fault.to_string(), pointer: fault.pointer })?;
    let refused = |pointer: String, detail: &str| BlocksFault { pointer, detail: detail.to_owned() };
    let items: Vec<&RawValue> = serde_json::from_str(sent)
        .map_err(|_| refused(String::new(), "a message is a text or an array of blocks"))?;
    let mut blocks = Vec::with_capacity(items.len());
    for (index, item) in items.iter().enumerate() {
        let at = |field: &str| format!("/{index}{field}");
        let shape = "a block is an object such as {\"type\":\"text\",\"text\":\"…\"}";
        // An array would pass for a struct's fields in order.
        if !item.get().starts_with('{') {
            return Err(refused(at(""), shape));
        }
        let block: SentBlock<'_> = serde_json::from_str(item.get()).map_err(|_| refused(at(""), shape))?;
        if string(block.r#type).as_deref() != Some("text") {
            return Err(refused(at("/type"), "a user's message takes blocks of the type \"text\" only"));
        }
        let text = string(block.text)
            .ok_or_else(|| refused(at("/text"), "a text block has a field \"text\" with a string"))?;
        blocks.push(Block::Text { text });
    }
    if plain_text(&blocks).trim().is_empty() {
        return Err(refused(String::new(), "the message is empty: send at least one block with a text"));
    }
    Ok(blocks)
}

fn string(raw: Option<&RawValue>) -> Option<String> {
    serde_json::from_str(raw?.get()).ok()
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

/// The member of a message's metadata that says that nothing is left of it.
pub const REMOVED: &str = "removed";
/// The member of a message's metadata that says that it came as files alone: its text are their names, for everyone who
/// reads only that.
pub const WORDLESS: &str = "wordless";

impl Message {
    /// All of it was taken out of its thread: only its place is left.
    pub fn is_removed(&self) -> bool {
        self.content == "[]" && self.is_said(REMOVED)
    }

    /// Nobody wrote its text.
    pub fn is_wordless(&self) -> bool {
        self.metadata.contains(WORDLESS) && self.is_said(WORDLESS)
    }

    fn is_said(&self, member: &str) -> bool {
        serde_json::from_str::<serde_json::Value>(&self.metadata)
            .is_ok_and(|metadata| metadata[member] == true)
    }
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_user_sends_text() {
        let blocks =
            blocks_from_json(r#"[{"type":"text","text":"a"},{"text":"","type":"text","x":1}]"#).unwrap();
        assert_eq!(
            serde_json::to_string(&blocks).unwrap(),
            r#"[{"type":"text","text":"a"},{"type":"text","text":""}]"#
        );
    }

    #[test]
    fn what_else_a_user_sends_is_refused_at_its_place() {
        for (sent, pointer, detail) in [
            ("", "", "not valid JSON"),
            ("\"a\"", "", "array of blocks"),
            ("{}", "", "array of blocks"),
            ("[]", "", "empty"),
            (r#"[{"type":"text","text":" \n"}]"#, "", "empty"),
            (r#"[{"type":"text","text":"a"},"b"]"#, "/1", "a block is an object"),
            (r#"[["text","a"]]"#, "/0", "a block is an object"),
            (r#"[null]"#, "/0", "a block is an object"),
            (r#"[{"text":"a"}]"#, "/0/type", "only"),
            (
                r#"[{"type":"step","id":"s","name":"n","status":"succeeded","startedAt":1}]"#,
                "/0/type",
                "only",
            ),
            (r#"[{"type":"text"}]"#, "/0/text", "string"),
            (r#"[{"type":"text","text":null}]"#, "/0/text", "string"),
            (r#"[{"type":"text","text":["a"]}]"#, "/0/text", "string"),
            (r#"[{"type":"text","text":"a","text":"b"}]"#, "/0/text", "more than once"),
            (r#"[{"type":"text","text":"\u0000"}]"#, "/0/text", "U+0000"),
        ] {
            let fault = blocks_from_json(sent).expect_err(sent);
            assert_eq!(fault.pointer, pointer, "{sent}");
            assert!(fault.detail.contains(detail), "{sent}: {}", fault.detail);
        }
    }

    #[test]
    fn texts_are_joined_by_a_blank_line_and_sources_listed() {
        let source = Source {
            id: "1".into(),
            title: "A".into(),
            url: None,
            locator: Some("page 3".into()),
            snippet: "a".into(),
        };
        let blocks = [
            Block::Text { text: "a".into() },
            Block::Reasoning { text: "hm".into() },
            Block::Source(source),
            Block::Text { text: "b".into() },
        ];
        assert_eq!(plain_text(&blocks), "a\n\nb");
        assert_eq!(sources_json(&blocks), r#"[{"id":"1","title":"A","locator":"page 3","snippet":"a"}]"#);
    }
}
