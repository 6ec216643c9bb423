//! What a file is: by its bytes first, by its name only among kinds of text. Nobody's word is taken for it.

mod markup;

use std::borrow::Cow;

use markup::Markup;

/// How much of a file is looked at.
pub const SNIFF_BYTES: usize = 8 * 1024;

const UNKNOWN: &str = "application/octet-stream";
const WORD: &str = "application/vnd.openxmlformats-officedocument.wordprocessingml.document";
const SHEET: &str = "application/vnd.openxmlformats-officedocument.spreadsheetml.sheet";
const SLIDES: &str = "application/vnd.openxmlformats-officedocument.presentationml.presentation";
const OLE: &[u8] = &[0xd0, 0xcf, 0x11, 0xe0, 0xa1, 0xb1, 0x1a, 0xe1];

/// What uploads can be narrowed to.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Family {
    Image,
    Pdf,
    Text,
    Office,
    Audio,
    Video,
    Archive,
}

impl Family {
    pub const ALL: [Self; 7] =
        [Self::Image, Self::Pdf, Self::Text, Self::Office, Self::Audio, Self::Video, Self::Archive];

    pub fn as_str(self) -> &'static str {
        match self {
            Self::Image => "image",
            Self::Pdf => "pdf",
            Self::Text => "text",
            Self::Office => "office",
            Self::Audio => "audio",
            Self::Video => "video",
            Self::Archive => "archive",
        }
    }

    pub fn parse(text: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|family| family.as_str() == text)
    }
}

/// The type of a file that begins with these bytes and is called this.
pub fn sniff(head: &[u8], name: &str) -> String {
    let named = mime_guess::from_path(name).first_raw();
    let kind = match as_text(head) {
        Some(text) => text_kind(&text, named),
        None => binary_kind(&head[..head.len().min(SNIFF_BYTES)], named),
    };
    kind.to_owned()
}

pub fn family(mime: &str) -> Option<Family> {
    let (kind, subtype) = mime.split_once('/')?;
    match (kind, subtype) {
        ("image", _) => Some(Family::Image),
        ("audio", _) => Some(Family::Audio),
        ("video", _) => Some(Family::Video),
        ("application", "pdf") => Some(Family::Pdf),
        _ if is_office(mime) => Some(Family::Office),
        _ if is_text(mime) => Some(Family::Text),
        ("application", subtype) => is_archive(subtype).then_some(Family::Archive),
        _ => None,
    }
}

/// Whether a browser may show it in place: pictures made of dots, in which nothing runs.
pub fn shows_inline(mime: &str) -> bool {
    matches!(mime, "image/png" | "image/jpeg" | "image/gif" | "image/webp" | "image/avif" | "image/bmp")
}

/// Bytes as text: UTF-8, or UTF-16 where a byte order mark says so. What is not `whole` may end within a character.
pub fn decoded(bytes: &[u8], whole: bool) -> Option<Cow<'_, str>> {
    let (units, read): (_, fn([u8; 2]) -> u16) = match bytes {
        [0xff, 0xfe, units @ ..] => (units, u16::from_le_bytes),
        [0xfe, 0xff, units @ ..] => (units, u16::from_be_bytes),
        _ => {
            return match std::str::from_utf8(bytes) {
                Ok(text) => Some(text.into()),
                Err(error) if error.error_len().is_none() && !whole => {
                    std::str::from_utf8(&bytes[..error.valid_up_to()]).ok().map(Cow::from)
                }
                Err(_) => None,
            };
        }
    };
    let (units, rest) = units.as_chunks();
    let mut units: Vec<u16> = units.iter().map(|unit| read(*unit)).collect();
    let is_first_half = |unit: &u16| (0xd800..0xdc00).contains(unit);
    if !whole && units.last().is_some_and(is_first_half) {
        units.pop();
    }
    if whole && !rest.is_empty() { None } else { String::from_utf16(&units).ok().map(Cow::from) }
}

/// The beginning of the file as text, without the control characters that only binary formats have.
fn as_text(head: &[u8]) -> Option<Cow<'_, str>> {
    let looked_at = &head[..head.len().min(SNIFF_BYTES)];
    // A character may be cut by the end of what is looked at, not by the end of the file.
    let text = decoded(looked_at, looked_at.len() < SNIFF_BYTES)?;
    let is_binary = |byte| matches!(byte, 0..=0x08 | 0x0b | 0x0e..=0x1a | 0x1c..=0x1f);
    (!text.bytes().any(is_binary)).then_some(text)
}

/// Magic numbers made of letters prove nothing here: a letter may begin with `BM` or `GIF`.
fn text_kind(text: &str, named: Option<&'static str>) -> &'static str {
    let start = text.trim_start_matches('\u{feff}').trim_start();
    for (magic, kind) in
        [("%PDF-", "application/pdf"), ("{\\rtf", "application/rtf"), ("%!PS", "application/postscript")]
    {
        if start.starts_with(magic) {
            return kind;
        }
    }
    let named = named.filter(|kind| is_text(kind) || *kind == "image/svg+xml");
    match markup::of(start) {
        Some(Markup::Html) => named.filter(|kind| *kind == "application/xhtml+xml").unwrap_or("text/html"),
        Some(Markup::Svg) => named.filter(|kind| *kind == "image/svg+xml").unwrap_or("text/xml"),
        Some(Markup::Xml) => named.filter(|kind| is_xml(kind)).unwrap_or("text/xml"),
        None => {
            let by_content = || infer::get(start.as_bytes()).map(|kind| kind.mime_type());
            let named = named.filter(|kind| is_text(kind));
            named.or_else(|| by_content().filter(|kind| is_text(kind))).unwrap_or("text/plain")
        }
    }
}

fn binary_kind(head: &[u8], named: Option<&'static str>) -> &'static str {
    if head.starts_with(OLE) {
        // Which program's it is stands further back than we look.
        let old = ["application/msword", "application/vnd.ms-excel", "application/vnd.ms-powerpoint"];
        return named.filter(|kind| old.contains(kind)).unwrap_or("application/x-ole-storage");
    }
    if head.starts_with(b"PK\x03\x04")
        && let Some(kind) = office_zip(head, named)
    {
        return kind;
    }
    let Some(kind) = infer::get(head) else { return UNKNOWN };
    // Those that are shown in place are held to more than the two or three letters that `infer` asks for.
    let holds = match kind.mime_type() {
        "image/gif" => head.starts_with(b"GIF87a") || head.starts_with(b"GIF89a"),
        "image/webp" => head.starts_with(b"RIFF"),
        "image/bmp" => matches!(head.get(14..18), Some([12 | 40 | 52 | 56 | 64 | 108 | 124, 0, 0, 0])),
        _ => true,
    };
    if holds { kind.mime_type() } else { UNKNOWN }
}

/// A zip that begins as Office's do is the program's whose folder is in it; if that lies too far back, the name tells.
fn office_zip(head: &[u8], named: Option<&'static str>) -> Option<&'static str> {
    let folders = [("word/", WORD), ("xl/", SHEET), ("ppt/", SLIDES)];
    let firsts = ["[Content_Types].xml", "_rels/", "docProps/", "word/", "xl/", "ppt/"];
    let mut entries = head.windows(4).enumerate().filter(|(_, window)| window == b"PK\x03\x04");
    let name_at = |at: usize| head.get(at + 30..).unwrap_or_default();
    if !firsts.iter().any(|first| name_at(0).starts_with(first.as_bytes())) {
        return None;
    }
    let by_folder = entries.find_map(|(at, _)| {
        folders
            .into_iter()
            .find_map(|(folder, kind)| name_at(at).starts_with(folder.as_bytes()).then_some(kind))
    });
    by_folder.or_else(|| named.filter(|kind| [WORD, SHEET, SLIDES].contains(kind)))
}

fn is_xml(mime: &str) -> bool {
    matches!(mime, "text/xml" | "application/xml") || (mime.ends_with("+xml") && !mime.starts_with("image/"))
}

/// Types whose files are read as text, though some are not called so.
fn is_text(mime: &str) -> bool {
    let Some((kind, subtype)) = mime.split_once('/') else { return false };
    match kind {
        "text" => true,
        "message" => subtype == "rfc822",
        "application" => {
            subtype.ends_with("+json")
                || subtype.ends_with("+xml")
                || matches!(
                    subtype.trim_start_matches("x-"),
                    "csh"
                        | "ecmascript"
                        | "graphql"
                        | "httpd-php"
                        | "javascript"
                        | "json"
                        | "json5"
                        | "jsonl"
                        | "latex"
                        | "ndjson"
                        | "perl"
                        | "python"
                        | "sh"
                        | "sql"
                        | "subrip"
                        | "tcl"
                        | "tex"
                        | "texinfo"
                        | "toml"
                        | "typescript"
                        | "xml"
                        | "yaml"
                )
        }
        _ => false,
    }
}

fn is_office(mime: &str) -> bool {
    let prefixes = [
        "application/vnd.openxmlformats-officedocument.",
        "application/vnd.oasis.opendocument.",
        "application/vnd.ms-word",
        "application/vnd.ms-excel",
        "application/vnd.ms-powerpoint",
    ];
    matches!(mime, "application/msword" | "application/rtf" | "text/rtf")
        || prefixes.iter().any(|prefix| mime.starts_with(prefix))
}

fn is_archive(subtype: &str) -> bool {
    matches!(
        subtype.trim_start_matches("x-").trim_start_matches("vnd."),
        "7z-compressed"
            | "bzip2"
            | "bzip3"
            | "compress"
            | "cpio"
            | "debian.binary-package"
            | "gzip"
            | "lz4"
            | "lzip"
            | "ms-cab-compressed"
            | "rar"
            | "rpm"
            | "tar"
            | "unix-archive"
            | "xz"
            | "zip"
            | "zstd"
    )
}

#[cfg(test)]
#[path = "media/media_tests.rs"]
mod tests;
