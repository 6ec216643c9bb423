//! The ETag of a conversation is its version; `If-Match` and `If-None-Match` compare with it.

use axum::http::{HeaderMap, header};
use domain::conversation::PatchFault;

use crate::problem::Problem;

pub fn of(version: i64) -> String {
    format!("\"{version}\"")
}

/// What `If-Match` asks for.
pub enum IfMatch {
    /// No header, or `*`: whatever is there.
    Any,
    /// One of these versions; a tag of another form is none of ours and matches nothing.
    OneOf(Vec<i64>),
}

impl IfMatch {
    pub fn from_headers(headers: &HeaderMap) -> Self {
        let mut versions = Vec::new();
        let mut any = true;
        for value in headers.get_all(header::IF_MATCH) {
            any = false;
            for tag in value.to_str().unwrap_or("").split(',').map(str::trim) {
                if tag == "*" {
                    return Self::Any;
                }
                versions.extend(version_in(tag));
            }
        }
        if any { Self::Any } else { Self::OneOf(versions) }
    }

    /// The version to insist on in the write itself, or 412 if the stored one is not among those named.
    pub fn version(&self, stored: i64) -> Result<Option<i64>, Problem> {
        match self {
            Self::Any => Ok(None),
            Self::OneOf(versions) if versions.contains(&stored) => Ok(Some(stored)),
            Self::OneOf(_) => Err(PatchFault::Stale.into()),
        }
    }
}

/// The version in a strong tag of ours.
fn version_in(tag: &str) -> Option<i64> {
    tag.strip_prefix('"')?.strip_suffix('"')?.parse().ok()
}

/// Whether `If-None-Match` names the stored version; weak comparison, as HTTP asks for reads.
pub fn not_modified(headers: &HeaderMap, version: i64) -> bool {
    headers
        .get_all(header::IF_NONE_MATCH)
        .iter()
        .filter_map(|value| value.to_str().ok())
        .flat_map(|value| value.split(','))
        .map(|tag| tag.trim().trim_start_matches("W/"))
        .any(|tag| tag == "*" || version_in(tag) == Some(version))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn headers(name: header::HeaderName, values: &[&str]) -> HeaderMap {
        values.iter().map(|value| (name.clone(), value.parse().unwrap())).collect()
    }

    #[test]
    fn if_match_compares_strongly() {
        type Case = (&'static [&'static str], Result<Option<i64>, ()>);
        let cases: [Case; 8] = [
            (&[], Ok(None)),
            (&["*"], Ok(None)),
            (&["\"3\""], Ok(Some(3))),
            (&["\"1\", \"3\""], Ok(Some(3))),
            (&["\"1\"", "\"3\""], Ok(Some(3))),
            (&["\"2\""], Err(())),
            (&["W/\"3\""], Err(())),
            (&["3"], Err(())),
        ];
        for (values, expected) in cases {
            let found = IfMatch::from_headers(&headers(header::IF_MATCH, values)).version(3);
            assert_eq!(found.map_err(|_| ()), expected, "{values:?}");
        }
    }

    #[test]
    fn if_none_match_compares_weakly() {
        for (value, expected) in
            [("\"3\"", true), ("W/\"3\"", true), ("\"1\", \"3\"", true), ("*", true), ("\"4\"", false)]
        {
            assert_eq!(not_modified(&headers(header::IF_NONE_MATCH, &[value]), 3), expected, "{value}");
        }
    }
}
