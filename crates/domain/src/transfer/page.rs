//! Conversations to read: the branch that readers see, as Markdown, or as one HTML page without a script, in which
//! everything that somebody wrote is escaped.

use pulldown_cmark::{CodeBlockKind, Event, Parser, Tag};
use serde_json::value::RawValue;

use super::archive::Archive;
use super::block::read_block;
use crate::file::Attachment;
use crate::message::{Block, Message, MessageRole, Raw};
use crate::time::rfc3339;

const NO_TITLE: &str = "Untitled";

/// What stands before the first conversation of an HTML page.
pub const HTML_HEAD: &str = "<!doctype html>\n<html lang=\"en\"><head><meta charset=\"utf-8\">\
<meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; style-src 'unsafe-inline'\">\
<meta name=\"viewport\" content=\"width=device-width, initial-scale=1\"><title>Conversations</title><style>\
:root{color-scheme:light dark}body{font:16px/1.5 system-ui,sans-serif;max-width:48rem;margin:2rem auto;padding:0 1rem}\
article{border-top:1px solid #8884;margin-top:3rem}.message{margin:1.5rem 0}.message h3{font-size:.9rem;margin:0 0 .3rem}\
.user{border-left:3px solid #68c;padding-left:.8rem}time{color:#888;font-weight:normal}\
p{white-space:pre-wrap;overflow-wrap:anywhere;margin:.4rem 0}pre{overflow-x:auto;background:#8882;padding:.6rem;white-space:pre-wrap}\
details{color:#888}.error{color:#c44}</style></head><body>\n";
pub const HTML_END: &str = "</body></html>\n";

fn blocks(message: &Message) -> Vec<Block> {
    let raw: Vec<&RawValue> = serde_json::from_str(&message.content).unwrap_or_default();
    raw.into_iter().filter_map(|block| read_block(block).ok()).collect()
}

fn attachments(message: &Message) -> Vec<Attachment> {
    serde_json::from_str(&message.file_attachments).unwrap_or_default()
}

fn role(message: &Message) -> &'static str {
    match message.role {
        MessageRole::User => "User",
        MessageRole::Assistant => "Assistant",
        MessageRole::System => "System",
    }
}

/// A text as it is, any other JSON as it was spelled.
fn json(raw: &Raw) -> String {
    serde_json::from_str(raw.get()).unwrap_or_else(|_| raw.get().to_owned())
}

/// A fence that nothing in the text closes.
fn fenced(text: &str) -> String {
    let longest = text.split(|c| c != '`').map(str::len).max().unwrap_or(0);
    let fence = "`".repeat(longest.max(2) + 1);
    format!("{fence}\n{text}\n{fence}\n\n")
}

/// How often a text is looked at again: what is no HTML any more may leave some where there was code.
const ROUNDS: usize = 8;

/// A text whose HTML is shown, as it was where it was written: an open comment or element would take all that comes
/// after it.
fn without_html(text: &str) -> String {
    let mut text = text.to_owned();
    for _ in 0..ROUNDS {
        let html = Parser::new(&text).into_offset_iter().filter_map(|(event, place)| {
            matches!(event, Event::Html(_) | Event::InlineHtml(_)).then_some(place)
        });
        let (mut out, mut done) = (String::with_capacity(text.len()), 0);
        for place in html {
            let (before, within) = (text.get(done..place.start), text.get(place.clone()));
            out += before.unwrap_or_default();
            out += &within.unwrap_or_default().replace('<', "\\<");
            done = place.end;
        }
        if done == 0 {
            return text;
        }
        out += text.get(done..).unwrap_or_default();
        text = out;
    }
    text.replace('<', "&lt;")
}

/// A name in its line: no markup, and no line of its own.
fn name_of(text: &str) -> String {
    text.replace('\\', "\\\\").replace('<', "\\<").replace(['\n', '\r'], " ")
}

/// What somebody wrote: nothing of it reaches what comes after.
fn written(text: &str) -> String {
    closed(&without_html(text))
}

/// A text with the fence closed that it left open: whatever came after it would be code. One within a list or a quote
/// ends with that.
fn closed(text: &str) -> String {
    let (mut depth, mut last) = (0_usize, None);
    for (event, place) in Parser::new(text).into_offset_iter() {
        match event {
            Event::Start(tag) => {
                let fenced = matches!(tag, Tag::CodeBlock(CodeBlockKind::Fenced(_)));
                last = (depth == 0 && fenced).then_some(place);
                depth += 1;
            }
            Event::End(_) => depth = depth.saturating_sub(1),
            _ => {}
        }
    }
    let block = last.and_then(|place| text.get(place)).unwrap_or_default();
    let mark = block.chars().next().filter(|mark| matches!(mark, '`' | '~')).unwrap_or('`');
    let fence: String = block.chars().take_while(|c| *c == mark).collect();
    let line = block.trim_end().lines().skip(1).last().unwrap_or_default();
    let end = line.trim_start_matches(' ');
    // Further in it is code.
    let ends = end.len() >= fence.len() && end.chars().all(|c| c == mark) && line.len() < end.len() + 4;
    if fence.is_empty() || ends { text.to_owned() } else { format!("{text}\n{fence}") }
}

pub fn markdown(archive: &Archive) -> String {
    let of = &archive.conversation;
    let title = name_of(of.title.as_deref().unwrap_or(NO_TITLE));
    let mut out = format!("# {title}\n\n`{}` · {}\n\n", of.id, rfc3339(of.created_at));
    for message in archive.thread(archive.current) {
        out += &format!("## {} · {}\n\n", role(message), rfc3339(message.created_at));
        for block in blocks(message) {
            out += &markdown_block(&block);
        }
        for file in attachments(message) {
            out += &format!("📎 {} ({} bytes)\n\n", name_of(&file.name), file.size);
        }
    }
    out += "---\n\n";
    out
}

fn markdown_block(block: &Block) -> String {
    let parts = |head: String, given: &Option<Raw>, came: &Option<Raw>, error: &Option<String>| {
        let mut out = format!("{head}\n\n");
        for raw in [given, came].into_iter().flatten() {
            out += &fenced(&json(raw));
        }
        if let Some(error) = error {
            out += &format!("Error: {}\n\n", written(error));
        }
        out
    };
    match block {
        Block::Text { text } => format!("{}\n\n", written(text)),
        Block::Reasoning { text } => {
            let text = without_html(text);
            let quoted: Vec<String> = text.lines().map(|line| format!("> {line}")).collect();
            format!("{}\n\n", quoted.join("\n"))
        }
        Block::Step { name, status, args, result, error, .. } => {
            parts(format!("**Step** {} ({})", name_of(name), status.as_str()), args, result, error)
        }
        Block::ToolCall { name, args, result, error, .. } => {
            parts(format!("**Tool** {}", name_of(name)), args, result, error)
        }
        Block::Source(source) => {
            let place = source.url.as_deref().or(source.locator.as_deref()).unwrap_or_default();
            format!("[{}] {} {}\n\n", name_of(&source.id), name_of(&source.title), name_of(place))
        }
        Block::File { name, size, .. } => format!("📎 {} ({size} bytes)\n\n", name_of(name)),
        Block::Error { code, message } => format!("**Error** {}: {}\n\n", name_of(code), written(message)),
    }
}

fn escaped(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '&' => out += "&amp;",
            '<' => out += "&lt;",
            '>' => out += "&gt;",
            '"' => out += "&quot;",
            '\'' => out += "&#39;",
            // Not in a document.
            '\0' => out.push('\u{fffd}'),
            c => out.push(c),
        }
    }
    out
}

pub fn html(archive: &Archive) -> String {
    let of = &archive.conversation;
    let title = escaped(of.title.as_deref().unwrap_or(NO_TITLE));
    let mut out =
        format!("<article id=\"{}\"><h2>{title}</h2><time>{}</time>\n", of.id, rfc3339(of.created_at));
    for message in archive.thread(archive.current) {
        let name = role(message);
        let class = name.to_lowercase();
        let at = rfc3339(message.created_at);
        out += &format!("<section class=\"message {class}\"><h3>{name} <time>{at}</time></h3>\n");
        for block in blocks(message) {
            out += &html_block(&block);
        }
        for file in attachments(message) {
            out += &format!("<p>📎 {} ({} bytes)</p>\n", escaped(&file.name), file.size);
        }
        out += "</section>\n";
    }
    out += "</article>\n";
    out
}

fn html_block(block: &Block) -> String {
    let parts = |head: String, given: &Option<Raw>, came: &Option<Raw>, error: &Option<String>| {
        let mut out = format!("<details><summary>{}</summary>", escaped(&head));
        for raw in [given, came].into_iter().flatten() {
            out += &format!("<pre>{}</pre>", escaped(&json(raw)));
        }
        if let Some(error) = error {
            out += &format!("<p class=\"error\">{}</p>", escaped(error));
        }
        out + "</details>\n"
    };
    match block {
        Block::Text { text } => format!("<p>{}</p>\n", escaped(text)),
        Block::Reasoning { text } => {
            format!("<details><summary>Reasoning</summary><p>{}</p></details>\n", escaped(text))
        }
        Block::Step { name, status, args, result, error, .. } => {
            parts(format!("{name} ({})", status.as_str()), args, result, error)
        }
        Block::ToolCall { name, args, result, error, .. } => parts(name.clone(), args, result, error),
        Block::Source(source) => {
            let place = source.url.as_deref().or(source.locator.as_deref()).unwrap_or_default();
            format!("<p>[{}] {} {}</p>\n", escaped(&source.id), escaped(&source.title), escaped(place))
        }
        Block::File { name, size, .. } => format!("<p>📎 {} ({size} bytes)</p>\n", escaped(name)),
        Block::Error { code, message } => {
            format!("<p class=\"error\">{}: {}</p>\n", escaped(code), escaped(message))
        }
    }
}

#[cfg(test)]
mod tests {
    use pulldown_cmark::TagEnd;

    use super::*;

    #[test]
    fn nothing_that_was_written_is_markup() {
        assert_eq!(escaped("<script>&\"'\0"), "&lt;script&gt;&amp;&quot;&#39;\u{fffd}");
        assert!(!HTML_HEAD.contains("<script") && HTML_HEAD.contains("default-src 'none'"));
    }

    #[test]
    fn a_fence_is_longer_than_those_within() {
        assert_eq!(fenced("a ``` b"), "````\na ``` b\n````\n\n");
        assert_eq!(fenced("a"), "```\na\n```\n\n");
    }

    #[test]
    fn a_fence_that_was_left_open_is_closed() {
        for (text, end) in [
            ("a\n```rust\nfn", "\n```"),
            ("```", "\n```"),
            ("````md\n```\nx\n```", "\n````"),
            ("~~~\nx\n```\n", "\n~~~"),
            ("```\nx\n```\n```\ny\n", "\n```"),
            ("```\nx\n    ```", "\n```"),
            ("```\nx\n```", ""),
            ("```\nx\n  `````  \n\n", ""),
            ("1. ```\n   x\n   ```\n\n```\ny\n```", ""),
            ("- ```\n  x", ""),
            ("> ```\n> x", ""),
            ("`x` and ```y```", ""),
            ("    ```\n    x", ""),
            ("", ""),
        ] {
            assert_eq!(closed(text), format!("{text}{end}"), "{text:?}");
        }
    }

    /// The heading after a text, and what of it is HTML to a reader of Markdown.
    fn read(text: &str) -> (bool, usize) {
        let text = format!("{text}\n\n# next\n");
        let events: Vec<_> = Parser::new(&text).collect();
        let html = events.iter().filter(|event| matches!(event, Event::Html(_) | Event::InlineHtml(_)));
        let next = matches!(&events[..], [.., Event::Text(text), Event::End(TagEnd::Heading(_))] if &**text == "next");
        (next, html.count())
    }

    #[test]
    fn html_is_shown_and_takes_nothing_with_it() {
        for (text, shown) in [
            ("<!-- how do I write a comment?", "\\<!-- how do I write a comment?"),
            ("<script>\nlet a=1", "\\<script>\nlet a=1"),
            ("<details>\n<summary>x</summary>\n\nopen", "\\<details>\n\\<summary>x\\</summary>\n\nopen"),
            ("a <b>bold</b> word", "a \\<b>bold\\</b> word"),
            ("<?php\n```\nx", "\\<?php\n```\nx\n```"),
            ("> <!-- x", "> \\<!-- x"),
            ("<b title='`'> `<i>`", "\\<b title='`'> `\\<i>`"),
            ("`<b>` and\n```html\n<!-- x -->\n```", "`<b>` and\n```html\n<!-- x -->\n```"),
            ("see <https://example.org> if 1 < 2", "see <https://example.org> if 1 < 2"),
            (r"\<b>", r"\<b>"),
        ] {
            assert_eq!(written(text), shown);
            assert_eq!(read(&written(text)), (true, 0), "{text:?}");
        }
        for name in ["<b>n</b>", r"\<!-- x", "a\n<script>"] {
            assert_eq!(read(&format!("**Tool** {}", name_of(name))), (true, 0), "{name:?}");
        }
    }

    #[test]
    fn arguments_are_spelled_as_they_are_stored() {
        for (raw, shown) in [(r#"{"z":1.50, "a":1e2}"#, r#"{"z":1.50, "a":1e2}"#), (r#""a\nb""#, "a\nb")] {
            assert_eq!(json(&RawValue::from_string(raw.into()).unwrap()), shown);
        }
    }
}
