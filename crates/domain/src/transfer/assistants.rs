//! Threads of OpenAI's Assistants API: a thread with its messages as the API lists them, newest first or not, and
//! perhaps the steps of its runs.

use serde_json::value::RawValue;

use super::Refusal;
use super::fields::{Fields, quoted};
use super::row::read_role;
use super::thread::{Asset, Node, Thread};
use crate::conversation::Mode;
use crate::event::Source;
use crate::message::{Block, Raw};

/// A thread, or what the API answers when it is asked for a thread's messages.
pub fn read(of: &Fields<'_>) -> Result<Thread, Refusal> {
    let about = of.object(&["thread"]).unwrap_or_else(|| of.clone());
    let messages = list(of, "messages")?.or(list(of, "data")?).unwrap_or_default();
    let named = messages.first().and_then(|first| Fields::read(first.get()).ok()?.text(&["thread_id"]));
    let own = about.text(&["id"]).filter(|id| !id.starts_with("msg_"));
    let id = own.or(named).ok_or_else(|| Refusal::new("it has no id, and its messages name no thread"))?;
    read_messages(id, &about, &messages, &list(of, "run_steps")?.unwrap_or_default())
}

pub fn read_messages(
    id: String,
    about: &Fields<'_>,
    messages: &[&RawValue],
    steps: &[&RawValue],
) -> Result<Thread, Refusal> {
    let metadata = about.object(&["metadata"]).unwrap_or_default();
    let mut thread = Thread {
        source_id: id,
        title: metadata.text(&["title", "name"]),
        mode: Some(Mode::Ask),
        created_at: about.time(&["created_at"]),
        ..Thread::default()
    };
    let mut read =
        messages.iter().map(|message| Fields::read(message.get())).collect::<Result<Vec<_>, _>>()?;
    let times = || read.iter().filter_map(|message| message.time(&["created_at"]));
    if times().next() > times().next_back() {
        read.reverse();
    }
    read.sort_by_key(|message| message.time(&["created_at"]));
    let steps: Vec<Fields<'_>> = steps.iter().filter_map(|step| Fields::read(step.get()).ok()).collect();
    for (at, message) in read.iter().enumerate() {
        let node = read_message(message, at.checked_sub(1), &steps)
            .map_err(|fault| Refusal(format!("message {}: {fault}", at + 1)))?;
        thread.nodes.push(node);
    }
    thread.current = thread.nodes.len().checked_sub(1);
    Ok(thread)
}

/// An array, or a list as the API answers it.
fn list<'a>(of: &Fields<'a>, name: &str) -> Result<Option<Vec<&'a RawValue>>, Refusal> {
    match of.raw(&[name]) {
        None => Ok(None),
        Some(raw) if raw.get().starts_with('{') => {
            of.object(&[name]).map(|page| page.list(&["data"])).transpose()
        }
        Some(_) => of.list(&[name]).map(Some),
    }
}

fn read_message(of: &Fields<'_>, parent: Option<usize>, steps: &[Fields<'_>]) -> Result<Node, Refusal> {
    let mut node = Node::new(read_role(of)?, parent);
    node.source_id = of.text(&["id"]);
    node.created_at = of.time(&["created_at"]);
    node.metadata = of.raw(&["metadata"]).map(|metadata| metadata.get().to_owned());
    let run = of.text(&["run_id"]);
    for step in steps.iter().filter(|step| run.is_some() && step.text(&["run_id"]) == run) {
        let details = step.object(&["step_details"]).unwrap_or_default();
        details.elements(&["tool_calls"]).into_iter().for_each(|call| add_call(&mut node, call));
    }
    match of.text(&["content"]) {
        Some(text) => node.add_text(&text),
        None => {
            for part in of.elements(&["content"]) {
                node.add_content(part);
                add_annotations(&mut node, part);
            }
        }
    }
    for attachment in of.elements(&["attachments"]) {
        if let Some(id) = Fields::read(attachment.get()).ok().and_then(|file| file.text(&["file_id"])) {
            node.assets.push(Asset { name: id.clone(), names: vec![id], ..Asset::default() });
        }
    }
    Ok(node)
}

/// A call of a step: its input, and what came of it.
fn add_call(node: &mut Node, call: &RawValue) {
    let Ok(of) = Fields::read(call.get()) else { return };
    let name = of.text(&["type"]).unwrap_or_else(|| "tool".into());
    if name == "function" {
        return node.add_called(call);
    }
    let about = of.object(&[name.as_str()]).unwrap_or_default();
    let logs: Vec<String> = about
        .elements(&["outputs"])
        .into_iter()
        .filter_map(|output| Fields::read(output.get()).ok()?.text(&["logs"]))
        .collect();
    let code = |text: &str| -> Option<Raw> {
        RawValue::from_string(format!("{{\"code\":{}}}", quoted(text)?.get())).ok()
    };
    let result =
        if logs.is_empty() { about.passed_on(&["results", "output"]) } else { quoted(&logs.join("\n")) };
    node.blocks.push(Block::ToolCall {
        id: of.text(&["id"]).unwrap_or_else(|| format!("call-{}", node.blocks.len())),
        name,
        args: about.text(&["input"]).as_deref().and_then(code),
        result,
        error: None,
        truncated: false,
        round: 0,
    });
    for output in about.elements(&["outputs"]) {
        let image =
            Fields::read(output.get()).ok().and_then(|output| output.object(&["image"])?.text(&["file_id"]));
        node.assets.extend(image.map(|id| Asset {
            name: format!("image {id}"),
            names: vec![id],
            ..Asset::default()
        }));
    }
}

/// Where a text cites a file.
fn add_annotations(node: &mut Node, part: &RawValue) {
    let text = Fields::read(part.get()).ok().and_then(|part| part.object(&["text"])).unwrap_or_default();
    for annotation in text.elements(&["annotations"]) {
        let Ok(of) = Fields::read(annotation.get()) else { continue };
        let about = of.object(&["file_citation", "file_path", "url_citation"]).unwrap_or_else(|| of.clone());
        let number = node.blocks.iter().filter(|block| matches!(block, Block::Source(_))).count() + 1;
        let locator = about.text(&["file_id"]);
        node.blocks.push(Block::Source(Source {
            id: number.to_string(),
            title: about.text(&["title"]).or_else(|| of.text(&["text"])).unwrap_or_else(|| "source".into()),
            url: about.text(&["url"]),
            locator,
            snippet: about.text(&["quote"]).unwrap_or_default(),
        }));
    }
}
