//! Claude's `conversations.json`: messages in a line, or in a tree where they name their parents; content in blocks.

use super::Refusal;
use super::fields::Fields;
use super::part::read_attachment;
use super::row::read_role;
use super::thread::{Asset, Node, Thread};
use super::tree;
use crate::conversation::Mode;

pub fn read(of: &Fields<'_>) -> Result<Thread, Refusal> {
    let mut thread = Thread {
        source_id: of.text(&["uuid", "id"]).ok_or_else(|| Refusal::new("it has no uuid"))?,
        title: of.text(&["name", "title"]),
        mode: Some(Mode::Ask),
        created_at: of.time(&["created_at"]),
        updated_at: of.time(&["updated_at"]),
        ..Thread::default()
    };
    let mut read = Vec::new();
    for message in of.list(&["chat_messages"])? {
        read.push(Fields::read(message.get())?);
    }
    // Without parents every message comes after the one before it.
    let in_a_tree = read.iter().any(|message| message.raw(&["parent_message_uuid"]).is_some());
    let mut items: Vec<(String, Option<String>)> = Vec::with_capacity(read.len());
    for (at, message) in read.iter().enumerate() {
        let id = message.text(&["uuid"]).unwrap_or_else(|| format!("#{at}"));
        let before = items.last().map(|(id, _)| id.clone());
        let parent = if in_a_tree { message.text(&["parent_message_uuid"]) } else { before };
        items.push((id, parent));
    }
    let leaf = of.text(&["current_leaf_message_uuid"]);
    let mut into = vec![0; read.len()];
    for (at, parent) in tree::order(&items)? {
        let (Some(message), Some((id, _))) = (read.get(at), items.get(at)) else { continue };
        let parent = parent.and_then(|parent| into.get(parent).copied());
        if let Some(place) = into.get_mut(at) {
            *place = thread.nodes.len();
        }
        if leaf.as_ref() == Some(id) {
            thread.current = Some(thread.nodes.len());
        }
        let node =
            read_message(message, parent).map_err(|fault| Refusal(format!("message {id}: {fault}")))?;
        thread.nodes.push(node);
    }
    thread.current = thread.current.or_else(|| thread.nodes.len().checked_sub(1));
    Ok(thread)
}

fn read_message(of: &Fields<'_>, parent: Option<usize>) -> Result<Node, Refusal> {
    let mut node = Node::new(read_role(of)?, parent);
    node.source_id = of.text(&["uuid"]);
    node.created_at = of.time(&["created_at"]);
    for part in of.elements(&["content"]) {
        let fields = Fields::read(part.get()).unwrap_or_default();
        // How much was left to think is not what was said.
        if fields.text(&["type"]).as_deref() != Some("token_budget") {
            node.add_content(part);
        }
        add_citations(&mut node, &fields);
    }
    if node.blocks.is_empty() {
        node.add_text(&of.text(&["text"]).unwrap_or_default());
    }
    for attachment in of.elements(&["attachments"]) {
        let Ok(attachment) = Fields::read(attachment.get()) else { continue };
        let text = attachment.text(&["extracted_content"]);
        let name = attachment.text(&["file_name"]).filter(|name| !name.is_empty());
        node.assets.push(Asset {
            name: name.unwrap_or_else(|| "pasted.txt".into()),
            bytes: text.map(String::into_bytes),
            ..Asset::default()
        });
    }
    for file in of.elements(&["files", "files_v2"]) {
        let Some(mut asset) = read_attachment(file) else { continue };
        asset.id = None;
        asset.names.extend(Fields::read(file.get()).ok().and_then(|file| file.text(&["file_uuid", "uuid"])));
        // Its text came with it.
        if !node.assets.iter().any(|known| known.name == asset.name) {
            node.assets.push(asset);
        }
    }
    Ok(node)
}

/// What a text cites. The address may stand in the details.
fn add_citations(node: &mut Node, part: &Fields<'_>) {
    for citation in part.elements(&["citations"]) {
        let Ok(citation) = Fields::read(citation.get()) else { continue };
        let mut of = citation.object(&["details"]).unwrap_or_default();
        for name in ["url", "title", "snippet", "cited_text"] {
            if of.raw(&[name]).is_none() {
                of.take_from(&citation, name);
            }
        }
        if let Some(url) = of.text(&["url"])
            && !node.cites(&url)
        {
            node.add_source(&of);
        }
    }
}
