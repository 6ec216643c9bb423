//! Names of files: what was sent, made safe for every place it may be written to, and kept apart from its like.

use unicode_normalization::UnicodeNormalization as _;
use unicode_segmentation::UnicodeSegmentation as _;

/// The longest name that common file systems take.
const MAX_NAME_BYTES: usize = 255;
/// Anything longer after a dot is part of the name, not an extension worth keeping whole.
const MAX_EXTENSION_BYTES: usize = 32;
/// For a name of which nothing is left.
const STAND_IN: &str = "file";
/// A run finds the files of its bag beside the folder that it leaves its own in.
const RESULTS_FOLDER: &str = "assets";

/// The name as it was sent, as far as it is safe: the last part of a path, in NFC, without characters that cannot be
/// seen, nothing that a file system takes for something else, at most 255 bytes. A safe name stays as it is.
pub fn safe_name(sent: &str) -> String {
    let visible: String = sent.chars().filter(|&c| !is_invisible(c)).collect();
    let last = visible.rsplit(['/', '\\']).find(|part| !part.is_empty()).unwrap_or_default();
    let mut name = ended(&fitted(last.nfc().collect(), ""));
    if is_device(&name) || is_results_folder(&name) {
        name = ended(&fitted(format!("_{name}"), ""));
    }
    if name.is_empty() { STAND_IN.to_owned() } else { name }
}

/// Whether a stored name is one that could have been made safe so: today, or before `assets` was kept free.
pub fn is_safe_name(name: &str) -> bool {
    safe_name(name) == name || is_results_folder(name)
}

/// Equal for two names that differ in case, width or composition alone.
pub fn name_key(name: &str) -> String {
    // Folding can undo a normal form and the other way round; twice is enough (Unicode, D146).
    folded(&folded(name)).nfkc().collect()
}

/// The name with a number before its extension, for one that is taken.
pub fn numbered(name: &str, n: u32) -> String {
    fitted(name.to_owned(), &format!("-{n}"))
}

/// Lower case by way of upper case, because `ẞ`, `ß` and `ss`, or `ς` and `σ`, meet only there.
fn folded(text: &str) -> String {
    let lower = text.nfkd().flat_map(char::to_lowercase);
    lower.flat_map(char::to_uppercase).flat_map(char::to_lowercase).collect()
}

/// The name with `mark` before its extension; where that is too long, the stem gives way.
fn fitted(name: String, mark: &str) -> String {
    let (stem, extension) = name.split_at(extension_at(&name));
    let room = MAX_NAME_BYTES.saturating_sub(mark.len() + extension.len());
    format!("{}{mark}{extension}", cut(stem, room))
}

/// Where the extension begins: the end, if there is none. A leading dot begins none.
fn extension_at(name: &str) -> usize {
    let is_extension =
        |text: &str| (2..=MAX_EXTENSION_BYTES).contains(&text.len()) && !text.contains(char::is_whitespace);
    let Some(dot) = name.rfind('.').filter(|&dot| dot > 0 && is_extension(&name[dot..])) else {
        return name.len();
    };
    let inner = dot.saturating_sub(".tar".len());
    let is_tar = inner > 0 && name.get(inner..dot).is_some_and(|text| text.eq_ignore_ascii_case(".tar"));
    if is_tar { inner } else { dot }
}

/// At most `room` bytes, ending after a whole character as a reader sees it, where one fits.
fn cut(text: &str, room: usize) -> &str {
    if text.len() <= room {
        return text;
    }
    let end = text.grapheme_indices(true).map(|(at, _)| at).take_while(|&at| at <= room).last();
    match end {
        Some(end) if end > 0 => &text[..end],
        _ => &text[..text.floor_char_boundary(room)],
    }
}

/// Without the dots and spaces at the end that Windows drops; this leaves nothing of `.` and `..`.
fn ended(name: &str) -> String {
    name.trim_end_matches(|c: char| c == '.' || c.is_whitespace()).to_owned()
}

/// Characters that are not seen but change what is: controls, line ends, bidi marks, zero widths, blanks that are no
/// spaces. Variation selectors stay, they choose between looks of what stands before them.
fn is_invisible(c: char) -> bool {
    c.is_control()
        || matches!(c,
            '\u{ad}' | '\u{34f}' | '\u{61c}' | '\u{115f}' | '\u{1160}' | '\u{17b4}' | '\u{17b5}' | '\u{180e}'
            | '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2060}'..='\u{206f}' | '\u{3164}'
            | '\u{feff}' | '\u{ffa0}' | '\u{fff0}'..='\u{fffb}' | '\u{1bca0}'..='\u{1bca3}'
            | '\u{1d173}'..='\u{1d17a}' | '\u{e0000}'..='\u{e00ff}' | '\u{e01f0}'..='\u{e0fff}')
}

/// Whether a file system, one that does not know case included, takes the name for that folder.
fn is_results_folder(name: &str) -> bool {
    name_key(name) == RESULTS_FOLDER
}

/// Whether Windows takes the name, whatever its extension, for a device.
fn is_device(name: &str) -> bool {
    let stem = name.split(['.', ':']).next().unwrap_or_default().trim().to_ascii_uppercase();
    match stem.as_str() {
        "CON" | "PRN" | "AUX" | "NUL" | "CONIN$" | "CONOUT$" | "CLOCK$" => true,
        stem => stem.strip_prefix("COM").or_else(|| stem.strip_prefix("LPT")).is_some_and(|port| {
            let mut port = port.chars();
            matches!((port.next(), port.next()), (Some('0'..='9' | '¹' | '²' | '³'), None))
        }),
    }
}

#[cfg(test)]
#[path = "name_tests.rs"]
mod tests;
