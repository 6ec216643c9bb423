//! One part of a message, as any of the exports spell it, as blocks: text, reasoning, steps, tool calls with their
//! results, citations, images and files.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use serde_json::value::RawValue;

use super::block::read_block;
use super::fields::{Fields, unquoted, uuid};
use super::thread::{Asset, Node};
use crate::event::{Source, StepStatus};
use crate::message::{Block, Raw};

const IDS: &[&str] = &["id", "toolCallId", "tool_call_id", "tool_use_id", "call_id", "callId"];
const NAMES: &[&str] = &["name", "toolName", "tool_name", "tool"];

impl Node {
    /// Adds a text, unless there is nothing in it.
    pub fn add_text(&mut self, text: &str) {
        if !text.trim().is_empty() {
            self.blocks.push(Block::Text { text: text.to_owned() });
        }
    }

    pub fn add_reasoning(&mut self, text: &str) {
        if !text.trim().is_empty() {
            self.blocks.push(Block::Reasoning { text: text.to_owned() });
        }
    }

    /// A text, a part, or a list of both.
    pub fn add_content(&mut self, content: &RawValue) {
        let text = content.get();
        match text.as_bytes().first() {
            Some(b'"') => self.add_text(&serde_json::from_str::<String>(text).unwrap_or_default()),
            Some(b'[') => {
                let parts: Vec<&RawValue> = serde_json::from_str(text).unwrap_or_default();
                parts.into_iter().for_each(|part| self.add_content(part));
            }
            Some(b'{') => self.add_part(content),
            _ => {}
        }
    }

    fn add_part(&mut self, part: &RawValue) {
        let Ok(of) = Fields::read(part.get()) else { return };
        let kind = of.text(&["type", "kind"]).unwrap_or_default();
        match kind.as_str() {
            "step" | "tool_call" | "source" | "file" | "error" if read_block(part).is_ok() => {
                self.blocks.extend(read_block(part));
            }
            "text" | "output_text" | "input_text" | "markdown" | "refusal" | ""
                if of.has("text") || of.has("content") =>
            {
                // A text may be an object with the text as its value.
                let inner = of.object(&["text"]).and_then(|inner| inner.text(&["value"]));
                if let Some(text) = inner.or_else(|| of.text(&["text", "content", "refusal"])) {
                    self.add_text(&text);
                }
            }
            "reasoning" | "thinking" | "think" | "thought" => {
                let text = of.text(&["text", "thinking", "think", "reasoning", "content"]);
                self.add_reasoning(&text.unwrap_or_default());
            }
            "step" => self.add_step(&of),
            "steps" | "step_trace" | "trace" => {
                for step in of.elements(&["steps", "items", "trace"]) {
                    if let Ok(step) = Fields::read(step.get()) {
                        self.add_step(&step);
                    }
                }
            }
            "step-start" | "step-finish" | "step-end" => {}
            "tool_result" | "tool-result" | "tool_output" | "tool-output" | "function_call_output" => {
                self.add_result(&of, &["result", "output", "content", "data"]);
            }
            "source" | "source-url" | "source-document" | "citation" => self.add_source(&of),
            "image" | "image_url" | "input_image" | "image_file" | "file" | "input_file" | "audio"
            | "video" | "document" => {
                self.add_media(&of, &kind);
            }
            "error" => {
                let code = of.text(&["code"]).unwrap_or_else(|| "error".into());
                let message = of.text(&["message", "error", "text"]).unwrap_or_default();
                self.blocks.push(Block::Error { code, message });
            }
            call if is_call(call) => self.add_call(&of, call),
            // A structured output of something: kept as the result of its block.
            other => self.push_call(&of, other, None, Some(part.to_owned())),
        }
    }

    fn add_step(&mut self, of: &Fields<'_>) {
        let at = self.blocks.len();
        let status = match of.text(&["status", "state"]).as_deref() {
            Some("succeeded" | "success" | "completed" | "done" | "ok") => StepStatus::Succeeded,
            Some("failed" | "error") => StepStatus::Failed,
            None if of.raw(&["error"]).is_some() => StepStatus::Failed,
            None if of.raw(&["result", "output"]).is_some() => StepStatus::Succeeded,
            _ => StepStatus::Interrupted,
        };
        let started_at = of.time(&["startedAt", "started_at", "ts"]).or(self.created_at);
        let spent = of.raw(&["durationMs", "duration_ms", "duration"]);
        self.blocks.push(Block::Step {
            id: of.text(&["id", "stepId"]).unwrap_or_else(|| format!("step-{at}")),
            name: of.text(&["name", "title", "tool"]).unwrap_or_else(|| "step".into()),
            status,
            args: of.passed_on(&["args", "arguments", "input"]),
            result: of.passed_on(&["result", "output"]),
            error: of.text(&["error", "errorText"]),
            duration_ms: spent.filter(|spent| spent.get().parse::<f64>().is_ok()).map(ToOwned::to_owned),
            started_at: started_at.map_or(0, jiff::Timestamp::as_millisecond),
        });
    }

    pub fn add_call(&mut self, of: &Fields<'_>, kind: &str) {
        // Some put the call into a member of its own, named for its kind.
        let inner = of.object(&["tool_call", "function", "toolInvocation", kind]);
        let args = ["args", "input", "arguments", "parameters"];
        let (given, result) = match &inner {
            Some(inner) => {
                let function = inner.object(&["function"]);
                let named = function.as_ref().unwrap_or(inner);
                (
                    named.passed_on(&args).or_else(|| of.passed_on(&args)),
                    inner.passed_on(&["result", "output"]),
                )
            }
            None => (of.passed_on(&args), None),
        };
        let result = result.or_else(|| of.passed_on(&["result", "output"]));
        self.push_call(of, kind, given, result);
    }

    /// A call that is over: what it has no result of ended without one.
    fn push_call(&mut self, of: &Fields<'_>, kind: &str, args: Option<Raw>, result: Option<Raw>) {
        let inner = of.object(&["tool_call", "function", "toolInvocation", kind]);
        let function = inner.as_ref().and_then(|inner| inner.object(&["function"]));
        let places = || [function.as_ref(), inner.as_ref(), Some(of)].into_iter().flatten();
        let name = places().find_map(|place| place.text(NAMES));
        let id = places().find_map(|place| place.text(IDS));
        let stem = kind.strip_prefix("tool-").unwrap_or(kind);
        self.blocks.push(Block::ToolCall {
            id: id.unwrap_or_else(|| format!("call-{}", self.blocks.len())),
            name: name.unwrap_or_else(|| if stem.is_empty() { "tool" } else { stem }.to_owned()),
            args,
            result,
            error: of.text(&["error", "errorText"]),
            truncated: false,
            round: 0,
        });
    }

    /// The result of a call before it, or one of its own.
    fn add_result(&mut self, of: &Fields<'_>, names: &[&str]) {
        let result = of.raw(names).map(unquoted);
        let failed = of.flag(&["is_error", "isError"]) == Some(true);
        self.answer_call(of.text(IDS).as_deref(), of.text(NAMES).as_deref(), result, failed);
    }

    /// Gives a call its result: the one with this id, else the last that has none, else a new one.
    pub fn answer_call(&mut self, id: Option<&str>, name: Option<&str>, result: Option<Raw>, failed: bool) {
        let open = |block: &Block| match block {
            Block::ToolCall { id: own, result, error, .. } => match id {
                Some(id) => own == id,
                None => result.is_none() && error.is_none(),
            },
            _ => false,
        };
        let place = self.blocks.iter().rposition(open);
        if place.is_none() {
            let id = id.map_or_else(|| format!("call-{}", self.blocks.len()), str::to_owned);
            let name = name.unwrap_or("tool").to_owned();
            self.blocks.push(Block::ToolCall {
                id,
                name,
                args: None,
                result: None,
                error: None,
                truncated: false,
                round: 0,
            });
        }
        let place = place.unwrap_or(self.blocks.len() - 1);
        if let Some(Block::ToolCall { result: own, error, .. }) = self.blocks.get_mut(place) {
            if failed {
                let said = result
                    .as_deref()
                    .map(|raw| serde_json::from_str(raw.get()).unwrap_or_else(|_| raw.get().to_owned()));
                *error = Some(said.unwrap_or_else(|| "failed".into()));
            }
            *own = result;
        }
    }

    /// Whether a source with this address is there.
    pub fn cites(&self, url: &str) -> bool {
        let same = |block: &Block| matches!(block, Block::Source(own) if own.url.as_deref() == Some(url));
        self.blocks.iter().any(same)
    }

    pub fn add_source(&mut self, of: &Fields<'_>) {
        let number = self.blocks.iter().filter(|block| matches!(block, Block::Source(_))).count() + 1;
        let url = of.text(&["url", "link", "href"]);
        let locator = of.text(&["locator", "path", "page", "file", "table", "location"]);
        let title =
            of.text(&["title", "name", "filename"]).or_else(|| url.clone()).or_else(|| locator.clone());
        self.blocks.push(Block::Source(Source {
            id: of.text(&["id", "sourceId", "page_id"]).unwrap_or_else(|| number.to_string()),
            title: title.unwrap_or_else(|| "source".into()),
            url,
            locator,
            snippet: of
                .text(&["snippet", "text", "quote", "cited_text", "excerpt", "content"])
                .unwrap_or_default(),
        }));
    }

    /// An image or another file, whose bytes stand in the text, beside it, or nowhere.
    fn add_media(&mut self, of: &Fields<'_>, kind: &str) {
        let inner = of.object(&["image_url", "source", "image_file", "file", "input_audio"]);
        let url_of = |fields: &Fields<'_>| fields.text(&["url", "image_url", "data", "image", "file_data"]);
        let url = url_of(of).or_else(|| inner.as_ref().and_then(url_of));
        let places = || [Some(of), inner.as_ref()].into_iter().flatten();
        let text = |names: &[&str]| places().find_map(|place| place.text(names));
        let mime = text(&["mediaType", "mimeType", "mime_type", "media_type"]);
        let file_id = text(&["file_id", "fileId"]);
        let name = text(&["filename", "name", "file_name"]).or_else(|| file_id.clone());
        let mut asset = match url.as_deref() {
            Some(url) => asset_of_url(url, mime.as_deref(), kind),
            None => Asset { name: kind.to_owned(), ..Asset::default() },
        };
        if let Some(name) = name {
            asset.name = name;
        }
        asset.names.extend(file_id);
        asset.mime_type = asset.mime_type.or(mime);
        self.assets.push(asset);
    }
}

fn is_call(kind: &str) -> bool {
    kind.starts_with("tool-")
        || matches!(
            kind,
            "tool_call"
                | "tool_calls"
                | "tool_use"
                | "dynamic-tool"
                | "function_call"
                | "function"
                | "server_tool_use"
                | "mcp_tool_use"
        )
}

/// What an address of bytes says: the bytes themselves in a `data:` URL, a name beside the text in any other.
pub fn asset_of_url(url: &str, mime: Option<&str>, kind: &str) -> Asset {
    if let Some(rest) = url.strip_prefix("data:") {
        let (head, data) = rest.split_once(',').unwrap_or((rest, ""));
        let kind_of = head.split(';').next().filter(|kind| !kind.is_empty());
        let bytes = head.ends_with(";base64").then(|| BASE64.decode(data.trim()).ok()).flatten();
        let mime_type = kind_of.or(mime).map(str::to_owned);
        let ending = mime_type.as_deref().and_then(ending).unwrap_or("bin");
        return Asset { name: format!("{kind}.{ending}"), mime_type, bytes, ..Asset::default() };
    }
    let path = url.split(['?', '#']).next().unwrap_or(url);
    let name = path.rsplit('/').find(|part| !part.is_empty()).unwrap_or(kind).to_owned();
    Asset { names: vec![name.clone()], name, mime_type: mime.map(str::to_owned), ..Asset::default() }
}

fn ending(mime: &str) -> Option<&'static str> {
    Some(match mime {
        "image/png" => "png",
        "image/jpeg" => "jpg",
        "image/gif" => "gif",
        "image/webp" => "webp",
        "application/pdf" => "pdf",
        "text/plain" => "txt",
        _ => return None,
    })
}

/// An attachment of a message: a path, or an object that tells of a file.
pub fn read_attachment(raw: &RawValue) -> Option<Asset> {
    if raw.get().starts_with('"') {
        let path: String = serde_json::from_str(raw.get()).ok()?;
        return Some(Asset { names: vec![path.clone()], ..asset_of_url(&path, None, "file") });
    }
    let of = Fields::read(raw.get()).ok()?;
    let path = of.text(&["path", "storageKey", "storage_key", "url", "filepath", "key"]);
    let mut asset = path.as_deref().map(|path| asset_of_url(path, None, "file")).unwrap_or_default();
    asset.names.extend(path);
    asset.id = of.text(&["fileId", "file_id", "id"]).as_deref().and_then(uuid);
    if let Some(name) = of.text(&["name", "file_name", "filename", "title"]) {
        asset.names.push(name.clone());
        asset.name = name;
    }
    if asset.name.is_empty() {
        asset.name = "file".into();
    }
    asset.mime_type = of.text(&["mimeType", "mime_type", "type", "contentType", "file_type"]);
    asset.size = of.integer(&["size", "file_size", "bytes"]).and_then(|size| u64::try_from(size).ok());
    asset.sha256 = of.text(&["sha256"]);
    Some(asset)
}
