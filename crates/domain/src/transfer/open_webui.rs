//! Open WebUI's export of chats: a history of messages by id, each with its parent; reasoning and tool calls stand as
//! `<details>` in the text.

use serde_json::value::RawValue;

use super::Refusal;
use super::fields::{Fields, json, quoted, unquoted};
use super::part::{asset_of_url, read_attachment};
use super::row::read_role;
use super::thread::{Node, Thread};
use super::tree;
use crate::conversation::Mode;
use crate::message::{Block, Raw};

pub fn read(of: &Fields<'_>) -> Result<Thread, Refusal> {
    let chat = of.object(&["chat"]).unwrap_or_else(|| of.clone());
    let mut thread = Thread {
        source_id: of
            .text(&["id"])
            .or_else(|| chat.text(&["id"]))
            .ok_or_else(|| Refusal::new("it has no id"))?,
        title: of.text(&["title"]).or_else(|| chat.text(&["title"])),
        mode: Some(Mode::Ask),
        created_at: of.time(&["created_at"]).or_else(|| chat.time(&["timestamp", "created_at"])),
        updated_at: of.time(&["updated_at"]).or_else(|| chat.time(&["updated_at"])),
        ..Thread::default()
    };
    let history = chat.object(&["history"]).unwrap_or_default();
    let mut read: Vec<(String, Fields<'_>)> = Vec::new();
    for (id, message) in history.object(&["messages"]).unwrap_or_default().iter() {
        read.push((id.to_owned(), Fields::read(message.get())?));
    }
    // Siblings in the order of their times, and of ids where those are equal.
    read.sort_by_cached_key(|(id, message)| (message.time(&["timestamp"]), id.clone()));
    if read.is_empty() {
        // Of an old chat there is the line alone.
        for (at, message) in chat.list(&["messages"])?.into_iter().enumerate() {
            let message = Fields::read(message.get())?;
            read.push((message.text(&["id"]).unwrap_or_else(|| format!("#{at}")), message));
        }
    }
    let in_a_tree = read.iter().any(|(_, message)| message.raw(&["parentId"]).is_some());
    let mut items: Vec<(String, Option<String>)> = Vec::with_capacity(read.len());
    for (id, message) in &read {
        let before = items.last().map(|(id, _)| id.clone());
        items.push((id.clone(), if in_a_tree { message.text(&["parentId"]) } else { before }));
    }
    let leaf = history.text(&["currentId"]);
    let mut into = vec![0; read.len()];
    for (at, parent) in tree::order(&items)? {
        let Some((id, message)) = read.get(at) else { continue };
        let parent = parent.and_then(|parent| into.get(parent).copied());
        if let Some(place) = into.get_mut(at) {
            *place = thread.nodes.len();
        }
        if leaf.as_ref() == Some(id) {
            thread.current = Some(thread.nodes.len());
        }
        let node =
            read_message(message, id, parent).map_err(|fault| Refusal(format!("message {id}: {fault}")))?;
        thread.nodes.push(node);
    }
    thread.current = thread.current.or_else(|| thread.nodes.len().checked_sub(1));
    Ok(thread)
}

fn read_message(of: &Fields<'_>, id: &str, parent: Option<usize>) -> Result<Node, Refusal> {
    let mut node = Node::new(read_role(of)?, parent);
    node.source_id = Some(id.to_owned());
    node.created_at = of.time(&["timestamp"]);
    node.metadata = of.raw(&["model"]).map(|model| format!("{{\"model\":{}}}", model.get()));
    match of.text(&["content"]) {
        Some(text) => add_text(&mut node, &text),
        None => of.elements(&["content"]).into_iter().for_each(|part| node.add_content(part)),
    }
    if let Some(error) = of.object(&["error"]) {
        let message = error.text(&["content", "message", "detail"]).unwrap_or_default();
        node.blocks.push(Block::Error { code: "model_error".into(), message });
    }
    for source in of.elements(&["sources", "citations"]) {
        if let Ok(source) = Fields::read(source.get()) {
            add_source(&mut node, &source);
        }
    }
    for file in of.elements(&["files"]) {
        add_file(&mut node, file);
    }
    Ok(node)
}

/// A file by its address, which may hold it, or by what is told of it within.
fn add_file(node: &mut Node, file: &RawValue) {
    let Ok(of) = Fields::read(file.get()) else { return };
    let kind = of.text(&["type"]).unwrap_or_else(|| "file".into());
    let url = of.text(&["url"]);
    if let Some(url) = url.filter(|url| url.starts_with("data:") || kind == "image") {
        return node.assets.push(asset_of_url(&url, None, &kind));
    }
    if let Some(mut asset) = of.raw(&["file"]).and_then(read_attachment).or_else(|| read_attachment(file)) {
        asset.names.extend(of.text(&["id"]));
        asset.id = None;
        if let Some(name) = of.text(&["name"]) {
            asset.name = name;
        }
        // The text that was taken out of it.
        let data = of.object(&["file"]).unwrap_or_else(|| of.clone()).object(&["data"]);
        let text = data.and_then(|data| data.text(&["content"])).filter(|text| !text.is_empty());
        asset.bytes = text.map(String::into_bytes);
        node.assets.push(asset);
    }
}

/// One source with its passages.
fn add_source(node: &mut Node, of: &Fields<'_>) {
    let passages = of.elements(&["document"]).into_iter();
    let passages: Vec<String> = passages.filter_map(|text| serde_json::from_str(text.get()).ok()).collect();
    let about = of.object(&["source"]).unwrap_or_else(|| of.clone());
    node.add_source(&about);
    if let Some(Block::Source(source)) = node.blocks.last_mut()
        && source.snippet.is_empty()
    {
        source.snippet = passages.join("\n\n");
    }
}

/// The text, with what stands in `<details>` of a known kind as blocks of their own.
fn add_text(node: &mut Node, text: &str) {
    let mut rest = text;
    while let Some(start) = rest.find("<details type=\"") {
        let (before, from) = rest.split_at(start);
        let Some((head, after)) = from.split_once('>') else { break };
        let Some((body, after)) = after.split_once("</details>") else { break };
        if !add_details(node, before, head, body) {
            let end = rest.len() - after.len();
            node.add_text(rest.get(..end).unwrap_or_default());
        }
        rest = after;
    }
    node.add_text(rest.trim_matches('\n'));
}

/// False where the kind is not known: it stays text.
fn add_details(node: &mut Node, before: &str, head: &str, body: &str) -> bool {
    let attribute = |name: &str| -> Option<String> {
        let (_, rest) = head.split_once(&format!(" {name}=\""))?;
        Some(unescaped(rest.split_once('"')?.0))
    };
    let body = body.split_once("</summary>").map_or(body, |(_, body)| body).trim();
    let kind = attribute("type");
    if !matches!(kind.as_deref(), Some("reasoning" | "tool_calls" | "code_interpreter")) {
        return false;
    }
    node.add_text(before.trim_matches('\n'));
    if kind.as_deref() == Some("reasoning") {
        // Some versions escape the marks of the quote, too.
        let body = unescaped(body);
        let lines: Vec<&str> = body
            .lines()
            .map(|line| line.strip_prefix("> ").unwrap_or_else(|| line.strip_prefix('>').unwrap_or(line)))
            .collect();
        node.add_reasoning(&lines.join("\n"));
        return true;
    }
    // A text that holds JSON, some versions write as JSON once more.
    let told =
        |text: String| -> Option<Raw> { Some(unquoted(&json(text.clone()).or_else(|| quoted(&text))?)) };
    let code = kind.as_deref() == Some("code_interpreter");
    let args = if code {
        quoted(&unescaped(body))
            .and_then(|code| RawValue::from_string(format!("{{\"code\":{}}}", code.get())).ok())
    } else {
        attribute("arguments").and_then(told)
    };
    node.blocks.push(Block::ToolCall {
        id: attribute("id").unwrap_or_else(|| format!("call-{}", node.blocks.len())),
        name: attribute("name").unwrap_or_else(|| if code { "code_interpreter" } else { "tool" }.into()),
        args,
        result: attribute(if code { "output" } else { "result" }).and_then(told),
        error: None,
        truncated: false,
        round: 0,
    });
    true
}

fn unescaped(text: &str) -> String {
    text.replace("&quot;", "\"")
        .replace("&#x27;", "'")
        .replace("&#39;", "'")
        .replace("&lt;", "<")
        .replace("&gt;", ">")
        .replace("&amp;", "&")
}

#[cfg(test)]
mod tests {
    use crate::message::MessageRole;

    use super::*;

    #[test]
    fn details_are_read_as_every_version_writes_them() {
        let reasoning = |body: &str| {
            format!(
                "<details type=\"reasoning\" done=\"true\">\n<summary>Thought</summary>\n{body}\n</details>\n"
            )
        };
        let call = |args: &str, result: &str| {
            format!(
                "<details type=\"tool_calls\" id=\"c\" name=\"f\" arguments=\"{args}\" result=\"{result}\">\n</details>\n"
            )
        };
        let thought = r#"{"type":"reasoning","text":"I think <b>\n> second"}"#;
        let called = r#"{"type":"tool_call","id":"c","name":"f","args":{"tz":"UTC"},"result":{"a":1},"error":null,"truncated":false,"round":0}"#;
        let once = call("{&quot;tz&quot;:&quot;UTC&quot;}", "{&quot;a&quot;:1}");
        let twice =
            call(r"&quot;{\&quot;tz\&quot;:\&quot;UTC\&quot;}&quot;", r"&quot;{\&quot;a\&quot;:1}&quot;");
        for (text, block) in [
            (reasoning("> I think &lt;b&gt;\n> &gt; second"), thought),
            (reasoning("&gt; I think &lt;b&gt;\n&gt; &gt; second"), thought),
            (once, called),
            (twice, called),
        ] {
            let mut node = Node::new(MessageRole::Assistant, None);
            add_text(&mut node, &text);
            assert_eq!(serde_json::to_string(&node.blocks).unwrap(), format!("[{block}]"), "{text}");
        }
    }
}
