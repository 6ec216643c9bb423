//! Files that are shown to a model with the words they came with: which of them, in what form, and what they count
//! against the budget. Decided from what a message says of its files, so that it is the same from turn to turn.

use std::sync::Arc;

use serde::{Deserialize, Serialize, Serializer};
use uuid::Uuid;

use crate::media::{Family, family};
use crate::message::Message;

/// What a picture counts at least: about what it costs in tokens, at four characters each.
const PICTURE_CHARS: usize = 6_400;
/// Bytes of a picture, and of a PDF, that count as one character.
const PICTURE_BYTES: usize = 50;
const PDF_BYTES: usize = 4;
/// The largest picture that both vendors take, once it is written in base64.
const LARGEST_PICTURE: u64 = 3_750_000;
/// What the name around a text counts beside it, with the name twice.
const FRAME_CHARS: usize = 32;

/// What a model can be shown beside text.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize)]
pub struct Takes {
    pub images: bool,
    pub pdf: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum PartKind {
    /// Its text, as part of the words.
    Text,
    Image,
    Pdf,
}

/// A file that is shown.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Part {
    /// Nil for one that came with a request.
    pub file: Uuid,
    pub name: String,
    pub mime_type: String,
    pub kind: PartKind,
    /// What it counts against the budget.
    pub chars: usize,
    /// How many bytes of the words come before it.
    #[serde(skip_serializing_if = "is_first")]
    pub at: usize,
    /// The text, the bytes in base64, or where a request says they are; empty until it is read.
    #[serde(serialize_with = "length")]
    pub data: Arc<str>,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "the signature that serde asks for")]
fn is_first(at: &usize) -> bool {
    *at == 0
}

fn length<S: Serializer>(data: &Arc<str>, to: S) -> Result<S::Ok, S::Error> {
    to.serialize_u64(data.len() as u64)
}

impl Part {
    /// The address that a provider is to fetch it from; base64 has no colon.
    pub fn url(&self) -> Option<&str> {
        (self.kind != PartKind::Text && self.data.contains(':')).then_some(&*self.data)
    }

    /// A text with its name around it.
    pub fn as_text(&self) -> String {
        format!("[File {}]\n{}\n[End of {}]", self.name, self.data, self.name)
    }
}

/// A file as a message tells of it.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Attached {
    file_id: Uuid,
    name: String,
    mime_type: String,
    size: u64,
}

/// The files of a message: those that are shown, and all of them in words.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Shown {
    pub parts: Vec<Part>,
    /// Put behind the message's text; empty where nothing was attached.
    pub note: String,
    /// Files that are not shown, and why.
    pub withheld: Vec<String>,
}

/// What of a message's files a model is shown, within so many characters.
pub fn shown(message: &Message, takes: Takes, room: usize) -> Shown {
    let attached: Vec<Attached> = serde_json::from_str(&message.file_attachments).unwrap_or_default();
    let mut shown = Shown::default();
    let (mut left, mut names) = (room, Vec::new());
    for file in attached {
        let Attached { file_id, name, mime_type, size } = file;
        let about = format!("{name} ({mime_type}, {size} bytes");
        let reason = match form(&mime_type, size, takes) {
            Ok((kind, chars)) => {
                let chars = chars + name.chars().count() * 2;
                if chars <= left {
                    left -= chars;
                    names.push(format!("{about})"));
                    let (file, data) = (file_id, "".into());
                    shown.parts.push(Part { file, name, mime_type, kind, chars, at: 0, data });
                    continue;
                }
                if kind == PartKind::Text {
                    "too long to be shown; read_file reads it"
                } else {
                    "too large to be shown"
                }
            }
            Err(reason) => reason,
        };
        shown.withheld.push(format!("the file {name}: {reason}"));
        names.push(format!("{about}; {reason})"));
    }
    if !names.is_empty() {
        shown.note = format!("\n\n[Attached files: {}]", names.join(", "));
    }
    shown
}

/// How a file can be shown, and what it counts; or why it is not.
fn form(mime_type: &str, size: u64, takes: Takes) -> Result<(PartKind, usize), &'static str> {
    let bytes = usize::try_from(size).unwrap_or(usize::MAX);
    match family(mime_type) {
        _ if size == 0 => Err("it is empty"),
        Some(Family::Image) if !takes.images => Err("this model is not shown pictures"),
        Some(Family::Image) if !is_common(mime_type) => Err("models are not shown pictures of this type"),
        Some(Family::Image) if size > LARGEST_PICTURE => Err("too large to be shown"),
        Some(Family::Image) => Ok((PartKind::Image, PICTURE_CHARS.max(bytes / PICTURE_BYTES))),
        Some(Family::Pdf) if !takes.pdf => Err("this model is not shown PDF files"),
        Some(Family::Pdf) => Ok((PartKind::Pdf, PICTURE_CHARS.max(bytes / PDF_BYTES))),
        // It has at most as many characters as bytes.
        Some(Family::Text) => Ok((PartKind::Text, bytes.saturating_add(FRAME_CHARS))),
        _ => Err("models are not shown files of this type"),
    }
}

/// The pictures that every provider takes.
fn is_common(mime_type: &str) -> bool {
    matches!(mime_type, "image/png" | "image/jpeg" | "image/gif" | "image/webp")
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::message::MessageRole;
    use crate::prompt::tests::message;

    fn with(files: &[(&str, &str, u64)]) -> Message {
        let each = files.iter().map(|(name, mime, size)| {
            json!({ "fileId": Uuid::from_u128(1), "name": name, "mimeType": mime, "size": size, "sha256": "" })
        });
        let file_attachments = json!(each.collect::<Vec<_>>()).to_string();
        Message { file_attachments, ..message(1, MessageRole::User, &json!([])) }
    }

    #[test]
    fn a_file_is_shown_as_what_the_model_takes() {
        let all = Takes { images: true, pdf: true };
        let text_only = Takes::default();
        for (mime, size, takes, kind) in [
            ("image/png", 100, all, Some(PartKind::Image)),
            ("image/webp", 3_750_000, all, Some(PartKind::Image)),
            ("image/png", 3_750_001, all, None),
            ("image/png", 100, text_only, None),
            ("image/svg+xml", 100, all, None),
            ("image/bmp", 100, all, None),
            ("application/pdf", 100, all, Some(PartKind::Pdf)),
            ("application/pdf", 100, text_only, None),
            ("text/plain", 100, text_only, Some(PartKind::Text)),
            ("application/json", 100, text_only, Some(PartKind::Text)),
            ("text/plain", 0, all, None),
            ("text/plain", 200_000, all, None),
            ("application/zip", 100, all, None),
            ("audio/mpeg", 100, all, None),
        ] {
            let shown = shown(&with(&[("f", mime, size)]), takes, 100_000);
            assert_eq!(shown.parts.first().map(|part| part.kind), kind, "{mime} {size}");
            assert_eq!(shown.withheld.len(), usize::from(kind.is_none()));
            assert!(
                shown.note.contains(&format!("[Attached files: f ({mime}, {size} bytes")),
                "{}",
                shown.note
            );
        }
    }

    #[test]
    fn files_are_shown_in_their_order_while_there_is_room() {
        let files = [("a.png", "image/png", 10), ("b.txt", "text/plain", 9_000), ("c.txt", "text/plain", 10)];
        let shown = shown(&with(&files), Takes { images: true, pdf: false }, 10_000);
        let names: Vec<&str> = shown.parts.iter().map(|part| part.name.as_str()).collect();
        assert_eq!(names, ["a.png", "c.txt"]);
        assert_eq!(shown.withheld, ["the file b.txt: too long to be shown; read_file reads it"]);
        assert!(shown.parts.iter().map(|part| part.chars).sum::<usize>() <= 10_000);
        assert_eq!(shown.parts[0].chars, 6_410);
        assert_eq!(
            shown.note,
            "\n\n[Attached files: a.png (image/png, 10 bytes), \
             b.txt (text/plain, 9000 bytes; too long to be shown; read_file reads it), c.txt (text/plain, 10 bytes)]"
        );
    }

    #[test]
    fn a_text_counts_what_it_takes() {
        let file = "f".repeat(20);
        let shown = shown(&with(&[(&file, "text/plain", 12)]), Takes::default(), 1000);
        let part = Part { data: "twelve bytes".into(), ..shown.parts[0].clone() };
        assert!(part.as_text().chars().count() <= part.chars, "{} > {}", part.as_text().len(), part.chars);
        assert!(super::shown(&with(&[]), Takes::default(), 1000).note.is_empty());
    }
}
