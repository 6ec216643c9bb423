//! LibreChat's export of a conversation: messages in a list that name their parents, or nested in each other.

use serde_json::value::RawValue;

use super::Refusal;
use super::fields::Fields;
use super::part::read_attachment;
use super::thread::{Node, Thread};
use super::tree;
use crate::conversation::Mode;
use crate::message::{Block, MessageRole};

/// How much text is gone through to undo a nesting: every level of it is read once for each level above.
const MAX_NESTED: usize = 2 * 1024 * 1024 * 1024;

pub fn read(of: &Fields<'_>) -> Result<Thread, Refusal> {
    let mut thread = Thread {
        source_id: of.text(&["conversationId"]).ok_or_else(|| Refusal::new("it has no conversationId"))?,
        title: of.text(&["title"]).filter(|title| title != "New Chat"),
        mode: Some(Mode::Ask),
        created_at: of.time(&["createdAt"]),
        updated_at: of.time(&["updatedAt"]),
        ..Thread::default()
    };
    let messages = of.list(&["messages", "messagesTree"])?;
    let (mut items, mut read) = (Vec::new(), Vec::new());
    let mut open: Vec<(&RawValue, Option<String>)> =
        messages.into_iter().rev().map(|message| (message, None)).collect();
    let mut gone_through = 0;
    while let Some((message, above)) = open.pop() {
        gone_through += message.get().len();
        if gone_through > MAX_NESTED {
            return Err(Refusal::new("its messages are nested too deeply"));
        }
        let message = Fields::read(message.get())?;
        let id = message.text(&["messageId"]).unwrap_or_else(|| format!("#{}", items.len()));
        let children = message.elements(&["children"]);
        open.extend(children.into_iter().rev().map(|child| (child, Some(id.clone()))));
        items.push((id, message.text(&["parentMessageId"]).or(above)));
        read.push(message);
    }
    let mut into = vec![0; read.len()];
    for (at, parent) in tree::order(&items)? {
        let (Some(message), Some((id, _))) = (read.get(at), items.get(at)) else { continue };
        let parent = parent.and_then(|parent| into.get(parent).copied());
        if let Some(place) = into.get_mut(at) {
            *place = thread.nodes.len();
        }
        let node =
            read_message(message, parent).map_err(|fault| Refusal(format!("message {id}: {fault}")))?;
        thread.nodes.push(node);
    }
    thread.current = newest_leaf(&thread.nodes);
    Ok(thread)
}

/// Where its reader was last, as far as can be told.
fn newest_leaf(nodes: &[Node]) -> Option<usize> {
    let mut has_child = vec![false; nodes.len()];
    for parent in nodes.iter().filter_map(|node| node.parent) {
        if let Some(has) = has_child.get_mut(parent) {
            *has = true;
        }
    }
    let leaves = (0..nodes.len()).filter(|at| has_child.get(*at) == Some(&false));
    leaves.max_by_key(|at| (nodes.get(*at).and_then(|node| node.created_at), *at))
}

fn read_message(of: &Fields<'_>, parent: Option<usize>) -> Result<Node, Refusal> {
    let role = match of.flag(&["isCreatedByUser"]) {
        Some(true) => MessageRole::User,
        Some(false) => MessageRole::Assistant,
        None => match of.text(&["role", "sender"]).map(|name| name.to_lowercase()).as_deref() {
            Some("user") => MessageRole::User,
            Some(_) => MessageRole::Assistant,
            None => return Err(Refusal::new("it does not say whose it is")),
        },
    };
    let mut node = Node::new(role, parent);
    node.source_id = of.text(&["messageId"]);
    node.created_at = of.time(&["createdAt", "updatedAt"]);
    node.token_count = of.integer(&["tokenCount"]).unwrap_or(0);
    node.metadata = of.raw(&["model"]).map(|model| format!("{{\"model\":{}}}", model.get()));
    for part in of.elements(&["content"]) {
        node.add_content(part);
    }
    let text = of.text(&["text"]).unwrap_or_default();
    if of.flag(&["error"]) == Some(true) {
        node.blocks.push(Block::Error { code: "model_error".into(), message: text });
    } else if !node.blocks.iter().any(|block| matches!(block, Block::Text { .. })) {
        node.add_text(&text);
    }
    for file in of.elements(&["files", "attachments"]) {
        let Some(mut asset) = read_attachment(file) else { continue };
        asset.names.extend(Fields::read(file.get()).ok().and_then(|file| file.text(&["file_id"])));
        asset.id = None;
        node.assets.push(asset);
    }
    Ok(node)
}
