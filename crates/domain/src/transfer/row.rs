//! What the rows of the three seeds' tables have in common: attributes by their names in either spelling, and messages
//! whose content is text, blocks or both.

use serde_json::value::RawValue;

use super::fields::{Fields, unquoted, uuid};
use super::part::read_attachment;
use super::thread::{Asset, Node, Thread};
use super::{Refusal, derived_id};
use crate::conversation::{Kind, Mode, Source as Surface, Visibility};
use crate::message::{Block, MessageRole};

/// A closed set of words: none is fine, another word is not.
fn word<T>(of: &Fields<'_>, names: &[&str], parse: fn(&str) -> Option<T>) -> Result<Option<T>, Refusal> {
    match of.text(names).filter(|text| !text.is_empty()) {
        None => Ok(None),
        Some(text) => parse(&text).map(Some).ok_or_else(|| {
            let shown: String = text.chars().take(40).collect();
            Refusal(format!("{} cannot be {shown:?}", names.first().copied().unwrap_or_default()))
        }),
    }
}

/// The attributes of a row, messages aside.
pub fn read_attributes(of: &Fields<'_>) -> Result<Thread, Refusal> {
    let source_id = of.text(&["thread_id", "threadId", "id"]).ok_or_else(|| Refusal::new("it has no id"))?;
    let filled = |names: &[&str]| of.text(names).filter(|text| !text.is_empty());
    let context = of.raw(&["context"]).map(unquoted).map(|context| context.get().to_owned());
    Ok(Thread {
        id: uuid(&source_id),
        source_id,
        title: filled(&["title"]),
        owner: filled(&["user_id", "userId"]),
        mode: word(of, &["mode"], Mode::parse)?,
        kind: word(of, &["kind"], Kind::parse)?
            .or_else(|| of.text(&["type"]).as_deref().and_then(Kind::parse)),
        source: word(of, &["source"], Surface::parse)?,
        page_path: filled(&["page_path", "pagePath"]),
        workflow_id: filled(&["workflow_id", "workflowId"]),
        agent_id: filled(&["agent_id", "agentId"]),
        model: filled(&["model"]),
        visibility: word(of, &["visibility"], Visibility::parse)?,
        total_tokens: of.integer(&["total_tokens", "totalTokens"]).unwrap_or(0),
        context: context.filter(|context| context != "null" && context != "\"\""),
        created_at: of.time(&["created_at", "createdAt"]),
        updated_at: of.time(&["updated_at", "updatedAt"]),
        deleted_at: of.time(&["deleted_at", "deletedAt"]),
        ..Thread::default()
    })
}

/// Adds messages as one line, each after the one before it.
pub fn add_messages(thread: &mut Thread, messages: &[&RawValue]) -> Result<(), Refusal> {
    for message in messages {
        let at = thread.nodes.len();
        let parent = at.checked_sub(1);
        let node =
            read_message(message, parent).map_err(|fault| Refusal(format!("message {}: {fault}", at + 1)))?;
        thread.nodes.push(node);
    }
    thread.current = thread.nodes.len().checked_sub(1);
    Ok(())
}

pub fn read_role(of: &Fields<'_>) -> Result<MessageRole, Refusal> {
    match of.text(&["role", "sender"]).as_deref() {
        Some("user" | "human") => Ok(MessageRole::User),
        Some("assistant" | "bot" | "ai" | "model") => Ok(MessageRole::Assistant),
        Some("system" | "developer") => Ok(MessageRole::System),
        Some(other) => {
            let shown: String = other.chars().take(40).collect();
            Err(Refusal(format!("role cannot be {shown:?}: it is user, assistant or system")))
        }
        None => Err(Refusal::new("it has no role")),
    }
}

fn read_message(message: &RawValue, parent: Option<usize>) -> Result<Node, Refusal> {
    let of = Fields::read(message.get())?;
    let mut node = Node::new(read_role(&of)?, parent);
    node.source_id = of.text(&["id"]);
    node.created_at = of.time(&["createdAt", "created_at", "ts", "timestamp"]);
    node.token_count = of.integer(&["token_count", "tokenCount"]).unwrap_or(0);
    let metadata = of.raw(&["metadata"]).map(unquoted);
    if let Some(metadata) = &metadata {
        add_calls(&mut node, metadata);
    }
    let parts = of.elements(&["parts"]);
    if parts.is_empty() {
        if let Some(content) = of.raw(&["content", "text"]) {
            // Structured content that came as text, out of a table.
            let structured = unquoted(content);
            let is_parts = structured.get().starts_with("[{") && structured.get().contains("\"type\"");
            node.add_content(if is_parts { &structured } else { content });
        }
    } else {
        parts.into_iter().for_each(|part| node.add_content(part));
        let told = node.blocks.iter().any(|block| matches!(block, Block::Text { .. }));
        if let (false, Some(text)) = (told, of.text(&["content"])) {
            node.add_text(&text);
        }
    }
    for source in of.elements(&["sources"]) {
        if let Ok(source) = Fields::read(source.get()) {
            node.add_source(&source);
        }
    }
    let attachments = of.elements(&["fileAttachments", "attachments", "file_attachments"]);
    node.assets.extend(attachments.into_iter().filter_map(read_attachment).map(with_chip));
    node.metadata = metadata.map(|metadata| metadata.get().to_owned());
    Ok(node)
}

/// An attachment in a bucket stays one when its bytes did not come along: known by the UUID that its path ends with, or by
/// the path.
fn with_chip(mut asset: Asset) -> Asset {
    let path = asset.names.iter().find(|name| name.contains('/'));
    asset.chip = path.map(|path| {
        let last = path.rsplit('/').next().unwrap_or_default();
        uuid(last.split('.').next().unwrap_or_default()).unwrap_or_else(|| derived_id(&["attachment", path]))
    });
    asset
}

/// The calls that a message's metadata tells of, with their results, before its text.
fn add_calls(node: &mut Node, metadata: &RawValue) {
    let Ok(of) = Fields::read(metadata.get()) else { return };
    for call in of.elements(&["tool_calls", "toolCalls", "function_calls"]) {
        node.add_called(call);
    }
    for result in of.elements(&["tool_results", "toolResults", "function_results"]) {
        node.add_answered(result);
    }
}

impl Node {
    /// A call as the chat APIs tell of it: whatever its type says, it stands where calls stand.
    pub fn add_called(&mut self, call: &RawValue) {
        if let Ok(of) = Fields::read(call.get()) {
            self.add_call(&of, "tool_call");
        }
    }

    pub fn add_answered(&mut self, result: &RawValue) {
        let Ok(of) = Fields::read(result.get()) else { return };
        let id = of.text(&["tool_call_id", "toolCallId", "id", "call_id"]);
        let said = of.raw(&["result", "output", "content"]).map(unquoted);
        let failed = of.flag(&["is_error", "isError"]) == Some(true);
        self.answer_call(id.as_deref(), of.text(&["name", "tool", "toolName"]).as_deref(), said, failed);
    }
}
