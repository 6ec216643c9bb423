//! ChatGPT's `conversations.json`: a tree of nodes, many of which nobody saw. What the assistant and its tools said in
//! one go becomes one message: code and its output a call and its result, thoughts reasoning, quotes citations.

use std::collections::HashMap;

use serde_json::value::RawValue;

use super::Refusal;
use super::fields::{Fields, json, quoted};
use super::thread::{Asset, Node, Thread};
use super::tree;
use crate::conversation::Mode;
use crate::message::{Block, MessageRole, Raw};

pub fn read(of: &Fields<'_>) -> Result<Thread, Refusal> {
    let mut thread = Thread {
        source_id: of.text(&["conversation_id", "id"]).ok_or_else(|| Refusal::new("it has no id"))?,
        title: of.text(&["title"]),
        mode: Some(Mode::Ask),
        created_at: of.time(&["create_time"]),
        updated_at: of.time(&["update_time"]),
        ..Thread::default()
    };
    let mapping = of.object(&["mapping"]).ok_or_else(|| Refusal::new("mapping is not an object"))?;
    let nodes = read_nodes(&mapping)?;
    let mut siblings: HashMap<&str, usize> = HashMap::new();
    for (_, parent, _) in &nodes {
        *siblings.entry(parent.as_deref().unwrap_or_default()).or_default() += 1;
    }
    let current = of.text(&["current_node"]);
    let items: Vec<_> = nodes.iter().map(|(id, parent, _)| (id.clone(), parent.clone())).collect();
    // The message that each node went into.
    let mut into: Vec<Option<usize>> = vec![None; nodes.len()];
    for (at, parent) in tree::order(&items)? {
        let before = parent.and_then(|parent| into.get(parent).copied().flatten());
        let Some((id, of, node)) = nodes.get(at) else { continue };
        let alone = siblings.get(of.as_deref().unwrap_or_default()) == Some(&1);
        let place = match node.object(&["message"]) {
            Some(message) => add_message(&mut thread, &message, before, alone)?,
            None => before,
        };
        if let Some(slot) = into.get_mut(at) {
            *slot = place;
        }
        if current.as_ref() == Some(id) {
            thread.current = place;
        }
    }
    thread.current = thread.current.or_else(|| thread.nodes.len().checked_sub(1));
    Ok(thread)
}

type MappedNode<'a> = (String, Option<String>, Fields<'a>);

/// The nodes with their parents, siblings in the order that their parent lists them in.
fn read_nodes<'a>(mapping: &Fields<'a>) -> Result<Vec<MappedNode<'a>>, Refusal> {
    let mut nodes = Vec::new();
    let mut listed: HashMap<String, usize> = HashMap::new();
    for (id, node) in mapping.iter() {
        let node = Fields::read(node.get()).map_err(|fault| Refusal(format!("the node {id:?}: {fault}")))?;
        for (place, child) in node.elements(&["children"]).into_iter().enumerate() {
            let child: Option<String> = serde_json::from_str(child.get()).ok();
            listed.extend(child.map(|child| (child, place)));
        }
        nodes.push((id.to_owned(), node.text(&["parent"]), node));
    }
    nodes.sort_by_cached_key(|(id, _, node)| {
        let time = node.object(&["message"]).and_then(|message| message.time(&["create_time"]));
        (listed.get(id).copied().unwrap_or(usize::MAX), time, id.clone())
    });
    Ok(nodes)
}

/// Adds a node's message, to the one before it where both are of one answer. Answers where what follows goes on from.
fn add_message(
    thread: &mut Thread,
    message: &Fields<'_>,
    before: Option<usize>,
    alone: bool,
) -> Result<Option<usize>, Refusal> {
    let author = message.object(&["author"]).unwrap_or_default();
    let metadata = message.object(&["metadata"]).unwrap_or_default();
    let role = author.text(&["role"]).unwrap_or_default();
    let Some(content) = message.object(&["content"]) else { return Ok(before) };
    let kind = content.text(&["content_type"]).unwrap_or_default();
    let hidden = metadata.flag(&["is_visually_hidden_from_conversation"]) == Some(true);
    if hidden || kind.ends_with("_editable_context") {
        return Ok(before);
    }
    let node_role = match role.as_str() {
        "user" => MessageRole::User,
        "assistant" | "tool" => MessageRole::Assistant,
        "system" => MessageRole::System,
        other => return Err(Refusal(format!("role cannot be {other:?}"))),
    };
    let mut said = Node::new(node_role, before);
    said.source_id = message.text(&["id"]);
    said.created_at = message.time(&["create_time"]);
    let name = author.text(&["name"]);
    match role.as_str() {
        "tool" => add_output(&mut said, &content, &kind, name.as_deref(), &metadata),
        _ => {
            let recipient = message.text(&["recipient"]).filter(|to| to != "all");
            add_content(&mut said, &content, &kind, recipient.as_deref());
        }
    }
    add_citations(&mut said, &metadata);
    add_attachments(&mut said, &metadata);
    if said.blocks.is_empty() && said.assets.is_empty() {
        return Ok(before);
    }
    said.metadata = metadata.raw(&["model_slug"]).map(|model| format!("{{\"model\":{}}}", model.get()));
    if let Some(place) = before
        && alone
        && node_role == MessageRole::Assistant
        && let Some(answer) = thread.nodes.get_mut(place)
        && answer.role == MessageRole::Assistant
    {
        join(answer, said);
        return Ok(Some(place));
    }
    thread.nodes.push(said);
    Ok(Some(thread.nodes.len() - 1))
}

/// Adds what was said next to an answer: an output to the call that it is of.
fn join(answer: &mut Node, said: Node) {
    for block in said.blocks {
        match block {
            Block::ToolCall { id, name, args: None, result, error, .. } if id.starts_with(OUTPUT) => {
                let open = answer
                    .blocks
                    .iter()
                    .rposition(|block| matches!(block, Block::ToolCall { result: None, error: None, .. }));
                match open.and_then(|at| answer.blocks.get_mut(at)) {
                    Some(Block::ToolCall { result: own, error: failed, .. }) => {
                        (*own, *failed) = (result, error)
                    }
                    _ => answer.blocks.push(call(answer.blocks.len(), &name, None, result, error)),
                }
            }
            Block::ToolCall { name, args, result, error, .. } => {
                answer.blocks.push(call(answer.blocks.len(), &name, args, result, error));
            }
            Block::Source(mut source) => {
                // Each node counts its own from 1.
                let known = |block: &&Block| matches!(block, Block::Source(_));
                let taken = |block: &Block| matches!(block, Block::Source(own) if own.id == source.id);
                if answer.blocks.iter().any(taken) {
                    source.id = (answer.blocks.iter().filter(known).count() + 1).to_string();
                }
                answer.blocks.push(Block::Source(source));
            }
            block => answer.blocks.push(block),
        }
    }
    answer.assets.extend(said.assets);
    answer.metadata = said.metadata.or_else(|| answer.metadata.take());
}

/// How the id of an output begins whose call is not found yet.
const OUTPUT: &str = "output-";

fn call(at: usize, name: &str, args: Option<Raw>, result: Option<Raw>, error: Option<String>) -> Block {
    Block::ToolCall {
        id: format!("call-{at}"),
        name: name.to_owned(),
        args,
        result,
        error,
        truncated: false,
        round: 0,
    }
}

fn add_content(said: &mut Node, content: &Fields<'_>, kind: &str, recipient: Option<&str>) {
    match (kind, recipient) {
        ("code", to) => {
            let code = content.text(&["text"]).unwrap_or_default();
            let Some(to) = to else {
                let language = content.text(&["language"]).filter(|language| language != "unknown");
                return said.add_text(&format!("```{}\n{code}\n```", language.unwrap_or_default()));
            };
            said.blocks.push(call(said.blocks.len(), to, arguments(&code), None, None));
        }
        ("thoughts", _) => {
            for thought in content.elements(&["thoughts"]) {
                if let Ok(thought) = Fields::read(thought.get()) {
                    let parts = [thought.text(&["summary"]), thought.text(&["content"])];
                    said.add_reasoning(&parts.into_iter().flatten().collect::<Vec<_>>().join("\n\n"));
                }
            }
        }
        ("reasoning_recap", _) => said.add_reasoning(&content.text(&["content"]).unwrap_or_default()),
        // What the assistant wrote to a tool in plain text.
        (_, Some(to)) => {
            let text = texts(content).join("\n");
            said.blocks.push(call(said.blocks.len(), to, arguments(&text), None, None));
        }
        (_, None) => add_parts(said, content),
    }
}

/// What was sent to a tool: JSON as it is, code as `{"code": …}`.
fn arguments(text: &str) -> Option<Raw> {
    match json(text.trim().to_owned()) {
        Some(raw) if raw.get().starts_with('{') => Some(raw),
        _ => RawValue::from_string(format!("{{\"code\":{}}}", quoted(text)?.get())).ok(),
    }
}

fn texts(content: &Fields<'_>) -> Vec<String> {
    let parts = content.elements(&["parts"]).into_iter();
    let texts: Vec<String> = parts.filter_map(|part| serde_json::from_str(part.get()).ok()).collect();
    if texts.is_empty() { content.text(&["text", "result"]).into_iter().collect() } else { texts }
}

fn add_parts(said: &mut Node, content: &Fields<'_>) {
    let parts = content.elements(&["parts"]);
    if parts.is_empty() {
        return said.add_text(&unmarked(&content.text(&["text", "result", "content"]).unwrap_or_default()));
    }
    for part in parts {
        if let Ok(text) = serde_json::from_str::<String>(part.get()) {
            said.add_text(&unmarked(&text));
        } else if let Ok(part) = Fields::read(part.get())
            && !add_pointers(said, &part)
        {
            said.add_text(&part.text(&["text"]).unwrap_or_default());
        }
    }
}

/// The text without the marks that stand for its citations, which are told beside it: `\u{e200}cite\u{e202}turn0search0\u{e201}`.
/// Of other marks what they name stays.
fn unmarked(text: &str) -> String {
    let (mut out, mut rest) = (String::new(), text);
    while let Some((before, from)) = rest.split_once('\u{e200}') {
        let Some((mark, after)) = from.split_once('\u{e201}') else { break };
        let (kind, about) = mark.split_once('\u{e202}').unwrap_or((mark, ""));
        if kind.ends_with("cite") {
            out += before.strip_suffix(' ').unwrap_or(before);
        } else {
            let named =
                serde_json::from_str::<Vec<String>>(about).ok().and_then(|about| about.into_iter().nth(1));
            out.extend([before, named.as_deref().filter(|_| kind == "entity").unwrap_or(mark)]);
        }
        rest = after;
    }
    out + rest
}

/// The assets that a part points to, itself or, as what was said and shown in a call, within. False when there are none.
fn add_pointers(said: &mut Node, part: &Fields<'_>) -> bool {
    let frames = part.elements(&["frames_asset_pointers"]);
    let within = [part.raw(&["audio_asset_pointer"]), part.raw(&["video_container_asset_pointer"])];
    let within =
        within.into_iter().flatten().chain(frames).filter_map(|inner| Fields::read(inner.get()).ok());
    let mut any = false;
    for of in std::iter::once(part.clone()).chain(within) {
        if let Some(pointer) = of.text(&["asset_pointer"]) {
            add_asset(said, &pointer, of.text(&["content_type"]).as_deref());
            any = true;
        }
    }
    any
}

/// Bytes that lie beside `conversations.json`, under a name that begins with what the pointer ends with.
fn add_asset(said: &mut Node, pointer: &str, kind: Option<&str>) {
    let name = pointer.rsplit('/').next().unwrap_or(pointer).split(['?', '#']).next().unwrap_or(pointer);
    if name.is_empty() || said.assets.iter().any(|asset| asset.names.iter().any(|own| own == name)) {
        return;
    }
    let what = match kind {
        Some(kind) if kind.contains("audio") => "audio",
        Some(kind) if kind.contains("video") => "video",
        _ => "image",
    };
    said.assets.push(Asset {
        name: format!("{what} {name}"),
        names: vec![name.to_owned()],
        ..Asset::default()
    });
}

fn add_output(said: &mut Node, content: &Fields<'_>, kind: &str, name: Option<&str>, metadata: &Fields<'_>) {
    let name = name.unwrap_or("tool");
    if kind == "tether_quote" {
        return said.add_source(content);
    }
    let text = texts(content).join("\n");
    let error = (kind == "system_error").then(|| text.clone());
    let result = if error.is_some() { None } else { quoted(&text) };
    // A picture that a tool made is an answer of its own; a result beside it only says so.
    let id = format!("{OUTPUT}{}", said.blocks.len());
    let name = name.to_owned();
    said.blocks.push(Block::ToolCall { id, name, args: None, result, error, truncated: false, round: 0 });
    for part in content.elements(&["parts"]) {
        if let Some(pointer) = Fields::read(part.get()).ok().and_then(|part| part.text(&["asset_pointer"])) {
            add_asset(said, &pointer, None);
        }
    }
    let aggregate = metadata.object(&["aggregate_result"]).unwrap_or_default();
    for message in aggregate.elements(&["messages"]) {
        if let Some(url) = Fields::read(message.get()).ok().and_then(|message| message.text(&["image_url"])) {
            add_asset(said, &url, None);
        }
    }
}

fn add_citations(said: &mut Node, metadata: &Fields<'_>) {
    let mut found = Vec::new();
    for citation in metadata.elements(&["citations"]) {
        found.extend(Fields::read(citation.get()).ok().and_then(|citation| citation.object(&["metadata"])));
    }
    for reference in metadata.elements(&["content_references"]) {
        let Ok(reference) = Fields::read(reference.get()) else { continue };
        // Several pages, or the one that the reference itself is.
        let items = [reference.elements(&["items"]), reference.elements(&["sources"])].concat();
        found.extend(items.into_iter().filter_map(|item| Fields::read(item.get()).ok()));
        if reference.text(&["type"]).is_some_and(|kind| kind.starts_with("webpage")) {
            found.push(reference);
        }
    }
    for source in found {
        let Some(url) = source.text(&["url"]) else { continue };
        if !said.cites(&url) {
            said.add_source(&source);
        }
    }
}

fn add_attachments(said: &mut Node, metadata: &Fields<'_>) {
    for attachment in metadata.elements(&["attachments"]) {
        let Ok(of) = Fields::read(attachment.get()) else { continue };
        let Some(id) = of.text(&["id"]) else { continue };
        let name = of.text(&["name"]).unwrap_or_else(|| id.clone());
        // A picture stands among the parts, too, without its name.
        if let Some(known) = said.assets.iter_mut().find(|asset| asset.names.contains(&id)) {
            known.name = name;
            continue;
        }
        said.assets.push(Asset {
            name,
            names: vec![id],
            mime_type: of.text(&["mime_type"]),
            ..Asset::default()
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn marks_of_citations_are_not_text() {
        for (text, left) in [
            ("News \u{e200}cite\u{e202}turn0search0\u{e202}turn1view2\u{e201} here.", "News here."),
            ("A\u{e200}filecite\u{e202}turn0file1\u{e201}. B \u{e200}cite\u{e202}turn0\u{e201}", "A. B"),
            ("In \u{e200}entity\u{e202}[\"city\",\"Paris\",\"France\"]\u{e201}!", "In Paris!"),
            (
                "\u{e200}video\u{e202}Title\u{e202}turn0video1\u{e201}",
                "video\u{e202}Title\u{e202}turn0video1",
            ),
            ("cut \u{e200}cite\u{e202}turn0", "cut \u{e200}cite\u{e202}turn0"),
            ("as it was", "as it was"),
        ] {
            assert_eq!(unmarked(text), left);
        }
    }
}
