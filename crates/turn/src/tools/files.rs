//! The files of the conversation: `list_files` and `read_file`.

use std::sync::Arc;

use async_trait::async_trait;
use domain::file::{Bag, File};
use domain::media::decoded;
use domain::model::ToolSpec;
use futures_util::StreamExt as _;
use serde_json::{Value, json};
use store::blobs::Blobs;
use store::{Store, StoreError};

use super::{Output, Place, Tool, spec};

/// Files that are listed.
const LISTED: usize = 200;
/// Bytes of a file that are looked at, and characters that are given at once.
const READ_BYTES: u64 = 8 * 1024 * 1024;
const GIVEN_CHARS: usize = 3_500;

/// Lists the files of the conversation.
pub struct ListFiles {
    pub store: Arc<dyn Store>,
}

/// Reads a text file of the conversation, piece by piece.
pub struct ReadFile {
    pub store: Arc<dyn Store>,
    pub blobs: Blobs,
}

fn bag(place: &Place) -> Option<Bag> {
    place.conversation.map(Bag::Conversation).or(place.execution.map(Bag::Execution))
}

fn away(_: StoreError) -> String {
    "the files cannot be read now".to_owned()
}

#[async_trait]
impl Tool for ListFiles {
    fn spec(&self) -> ToolSpec {
        let schema = json!({ "type": "object", "properties": {}, "additionalProperties": false });
        spec("list_files", "Lists the files of this conversation: name, type and size.", &schema)
    }

    fn is_read_only(&self) -> bool {
        true
    }

    async fn call(&self, place: &Place, _: Value) -> Result<Output, String> {
        let files = match bag(place) {
            Some(bag) => self.store.list_files(&place.scope(), bag, None, LISTED + 1).await.map_err(away)?,
            None => Vec::new(),
        };
        if files.is_empty() {
            return Ok(Output::text("There are no files in this conversation."));
        }
        let line = |file: &File| format!("- {} ({}, {} bytes)", file.name, file.mime_type, file.digest.size);
        let mut lines: Vec<String> = files.iter().take(LISTED).map(line).collect();
        if files.len() > LISTED {
            // What comes at the end of a long answer is cut off.
            lines.insert(
                0,
                format!("There are more than {LISTED} files, of which read_file reads every one:"),
            );
        }
        Ok(Output::text(lines.join("\n")))
    }
}

#[async_trait]
impl Tool for ReadFile {
    fn spec(&self) -> ToolSpec {
        let schema = json!({ "type": "object", "required": ["name"], "additionalProperties": false, "properties": {
            "name": { "type": "string", "description": "As list_files gives it" },
            "offset": { "type": "integer", "description": "Characters to skip; 0 when left out" } } });
        let about =
            "Reads a text file of this conversation. Of a long one it gives a piece and says where to go on.";
        spec("read_file", about, &schema)
    }

    fn is_read_only(&self) -> bool {
        true
    }

    async fn call(&self, place: &Place, args: Value) -> Result<Output, String> {
        let name = args["name"].as_str().unwrap_or_default();
        let offset = usize::try_from(args["offset"].as_i64().unwrap_or(0)).unwrap_or(0);
        let found = match bag(place) {
            Some(bag) => self.store.find_file(&place.scope(), bag, name).await.map_err(away)?,
            None => None,
        };
        let file = found.ok_or_else(|| format!("there is no file {name:?} in this conversation"))?;
        Ok(Output::text(piece(&self.text(&file).await?, offset)))
    }
}

impl ReadFile {
    async fn text(&self, file: &File) -> Result<String, String> {
        let away = |_| format!("{:?} cannot be read now", file.name);
        let mut bytes = Vec::new();
        if file.digest.size > 0 {
            let end = file.digest.size.min(READ_BYTES);
            let mut read = self.blobs.read(&file.storage_key, Some(0..end)).await.map_err(away)?;
            while let Some(chunk) = read.next().await {
                bytes.extend_from_slice(&chunk.map_err(away)?);
            }
        }
        // Of a longer file the last character may have been cut in two.
        let text = decoded(&bytes, file.digest.size <= READ_BYTES);
        let text = text.ok_or_else(|| format!("{:?} is {}, not a text", file.name, file.mime_type))?;
        Ok(text.into_owned())
    }
}

/// The text from `offset` on, and where it goes on.
fn piece(text: &str, offset: usize) -> String {
    let all = text.chars().count();
    let mut given: String = text.chars().skip(offset).take(GIVEN_CHARS).collect();
    let end = offset.saturating_add(GIVEN_CHARS);
    if end < all {
        given.push_str(&format!("\n[{all} characters in all; go on with offset {end}]"));
    }
    given
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_long_text_is_given_in_pieces_that_make_the_whole() {
        assert_eq!(piece("abc", 0), "abc");
        assert_eq!(piece("abc", 9), "");
        let text: String = (0..8000).map(|n| char::from(b'a' + (n % 26) as u8)).collect();
        let (mut whole, mut offset) = (String::new(), 0);
        loop {
            let given = piece(&text, offset);
            let (body, more) = given.split_once("\n[").unwrap_or((&given, ""));
            whole.push_str(body);
            match more.rsplit("offset ").next().and_then(|at| at.trim_end_matches(']').parse().ok()) {
                Some(next) => offset = next,
                None => break,
            }
        }
        assert_eq!(whole, text);
    }
}
