//! Open tabs of a conversation, as a client sends them and gets them back, and the rules for them.
//! In: the tabs, the active key, and how many are allowed. Out: every broken rule with its place.

use std::borrow::Cow;
use std::collections::HashSet;

use serde::{Deserialize, Serialize};
use uuid::Uuid;

pub const MAX_KEY_CHARS: usize = 64;
pub const MAX_SUB_PATH_CHARS: usize = 512;

/// The one destination that may be open several times, and whose tabs are therefore told apart by UUIDs.
pub(crate) const NEW_TAB: &str = "new_tab";

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Tab {
    pub key: String,
    pub destination_id: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sub_path: Option<String>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TabFault {
    /// JSON pointer below the resource's attributes: `/tabs/3/subPath`, `/active_tab_key`.
    pub pointer: String,
    pub detail: String,
}

/// The tabs and the active key of one document, checked together.
pub fn check_tabs(tabs: &[Tab], active: Option<&str>, max: usize) -> Vec<TabFault> {
    if tabs.len() > max {
        let detail = format!("{} tabs are open, at most {max} are kept: close some", tabs.len());
        return vec![TabFault { pointer: "/tabs".to_owned(), detail }];
    }
    let mut faults = Vec::new();
    let mut keys = HashSet::new();
    for (index, tab) in tabs.iter().enumerate() {
        let mut fault = |field: &str, detail: String| {
            faults.push(TabFault { pointer: format!("/tabs/{index}/{field}"), detail })
        };
        if tab.destination_id.is_empty() {
            fault("destinationId", "destinationId must not be empty".to_owned());
        }
        if let Some(detail) = key_fault(tab) {
            fault("key", detail);
        } else if !keys.insert(tab.key.as_str()) {
            fault("key", format!("the key {:?} is used by another tab: keys are unique", tab.key));
        }
        if let Some(Err(reason)) = tab.sub_path.as_deref().map(is_safe_sub_path) {
            fault("subPath", format!("subPath {reason}"));
        }
    }
    if let Some(active) = active
        && !tabs.iter().any(|tab| tab.key == active)
    {
        let shown: String = active.chars().take(MAX_KEY_CHARS).collect();
        let detail =
            format!("active_tab_key {shown:?} is not the key of a tab in tabs: use one of those, or null");
        faults.push(TabFault { pointer: "/active_tab_key".to_owned(), detail });
    }
    faults
}

fn key_fault(tab: &Tab) -> Option<String> {
    if tab.key.chars().count() > MAX_KEY_CHARS {
        return Some(format!("key is longer than {MAX_KEY_CHARS} characters"));
    }
    if tab.destination_id == NEW_TAB {
        // `try_parse` also takes the braced, URN and bare spellings; only the usual one is a key.
        let is_uuid = tab.key.len() == 36 && Uuid::try_parse(&tab.key).is_ok();
        return (!is_uuid).then(|| format!("the key of a {NEW_TAB} must be a UUID, not {:?}", tab.key));
    }
    (tab.key != tab.destination_id)
        .then(|| format!("key {:?} must equal the tab's destinationId, {:?}", tab.key, tab.destination_id))
}

/// A path that, put behind the application's own address, cannot lead out of it: not in a browser, which
/// takes `\` for `/` and drops white space, and not in a client that decodes it once more, or twice.
pub fn is_safe_sub_path(path: &str) -> Result<(), &'static str> {
    if path.chars().count() > MAX_SUB_PATH_CHARS {
        return Err("is longer than 512 characters");
    }
    let mut layer = Cow::Borrowed(path);
    loop {
        check_layer(&layer)?;
        match percent_decode(&layer)? {
            // Each decoding makes the text shorter, so this ends.
            Some(decoded) => layer = Cow::Owned(decoded),
            None => return Ok(()),
        }
    }
}

fn check_layer(layer: &str) -> Result<(), &'static str> {
    if layer.chars().any(char::is_control) {
        return Err("holds a control character");
    }
    let path = layer.trim_matches(is_blank).replace('\\', "/");
    if starts_with_scheme(&path) {
        return Err("is an absolute URL: give a path inside the application");
    }
    // `/.//host` and `.//host` come out of a browser's resolver as `//host`.
    let mut rest = path.strip_prefix('/').unwrap_or(&path);
    while let Some(after_dot) = rest.strip_prefix("./") {
        rest = after_dot;
    }
    if path.starts_with("//") || rest.starts_with('/') {
        return Err("starts like a protocol-relative URL: give a path inside the application");
    }
    // A query or fragment ends the last segment of the path.
    if path.split(['/', '?', '#']).any(|segment| segment.trim_matches(is_blank) == "..") {
        return Err("climbs with `..`: give a path without it");
    }
    Ok(())
}

/// What `String.prototype.trim` and URL parsers strip.
fn is_blank(c: char) -> bool {
    c.is_whitespace() || c == '\u{feff}'
}

fn starts_with_scheme(path: &str) -> bool {
    path.split_once(':').is_some_and(|(scheme, _)| {
        scheme.starts_with(|c: char| c.is_ascii_alphabetic())
            && scheme.chars().all(|c| c.is_ascii_alphanumeric() || matches!(c, '+' | '-' | '.'))
    })
}

/// The text with every `%xx` replaced, or `None` when it has none. A `%` without two hex digits stays.
fn percent_decode(text: &str) -> Result<Option<String>, &'static str> {
    let bytes = text.as_bytes();
    let mut out = Vec::with_capacity(bytes.len());
    let mut at = 0;
    while let Some(&byte) = bytes.get(at) {
        let escaped = if byte == b'%' { bytes.get(at + 1..at + 3).and_then(hex_byte) } else { None };
        out.push(escaped.unwrap_or(byte));
        at += if escaped.is_some() { 3 } else { 1 };
    }
    if out.len() == bytes.len() {
        return Ok(None);
    }
    // Also refuses overlong spellings of `.` and `/`.
    String::from_utf8(out).map(Some).map_err(|_| "holds percent-escapes that are not UTF-8")
}

fn hex_byte(digits: &[u8]) -> Option<u8> {
    let digit = |at: usize| digits.get(at).and_then(|d| char::from(*d).to_digit(16));
    u8::try_from(digit(0)? * 16 + digit(1)?).ok()
}

#[cfg(test)]
#[path = "tab_tests.rs"]
mod tests;
