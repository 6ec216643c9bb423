//! The bytes of a file as an answer: whole or one range of it, never something a browser would run.

use std::ops::Range;
use std::sync::Arc;

use axum::body::Body;
use axum::http::{HeaderMap, HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use domain::file::File;
use domain::media::shows_inline;
use domain::scope::Scope;
use store::StoreError;

use crate::problem::Problem;
use crate::state::App;
use crate::watched::watched;

/// What the `Range` header asks for, of a file that is there.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Asked {
    Whole,
    Part(Range<u64>),
    /// Outside of the file.
    Nothing,
}

/// The answer to a request for a file that the scope may see, for as long as it may.
pub async fn serve(app: &App, scope: &Scope, file: &File, request: &HeaderMap) -> Result<Response, Problem> {
    let tag = format!("\"{}\"", file.sha256_hex());
    if has(request, &tag) {
        let mut response = StatusCode::NOT_MODIFIED.into_response();
        describe(response.headers_mut(), file, &tag);
        return Ok(response);
    }
    let size = file.digest.size;
    // Bytes are put together only where the tag is this one exactly.
    let ranged = request.get(header::IF_RANGE).is_none_or(|value| value == tag.as_str());
    let (status, part) = match if ranged { asked(request, size) } else { Asked::Whole } {
        Asked::Whole => (StatusCode::OK, 0..size),
        Asked::Part(part) => (StatusCode::PARTIAL_CONTENT, part),
        Asked::Nothing => return Ok(unsatisfiable(size)),
    };
    let body = match part.is_empty() {
        true => Body::empty(),
        false => {
            let bytes = app.blobs.read(&file.storage_key, Some(part.clone())).await?;
            let (store, scope, id) = (Arc::clone(&app.store), scope.clone(), file.id);
            Body::from_stream(watched(bytes, move || {
                let (store, scope) = (Arc::clone(&store), scope.clone());
                async move { !matches!(store.get_file(&scope, id).await, Err(StoreError::NotFound)) }
            }))
        }
    };
    let mut response = (status, body).into_response();
    let headers = response.headers_mut();
    describe(headers, file, &tag);
    headers.insert(header::CONTENT_LENGTH, (part.end - part.start).into());
    if status == StatusCode::PARTIAL_CONTENT {
        put(headers, header::CONTENT_RANGE, &format!("bytes {}-{}/{size}", part.start, part.end - 1));
    }
    Ok(response)
}

/// Whatever the bytes are, no page of ours runs them.
fn describe(headers: &mut HeaderMap, file: &File, tag: &str) {
    put(headers, header::ETAG, tag);
    put(headers, header::CONTENT_TYPE, &content_type(&file.mime_type));
    put(headers, header::CONTENT_DISPOSITION, &disposition(shows_inline(&file.mime_type), &file.name));
    put(headers, header::ACCEPT_RANGES, "bytes");
    put(headers, header::X_CONTENT_TYPE_OPTIONS, "nosniff");
    put(headers, header::CONTENT_SECURITY_POLICY, "default-src 'none'; sandbox");
    put(headers, header::CACHE_CONTROL, "private, no-cache");
    headers.insert("cross-origin-resource-policy", HeaderValue::from_static("same-origin"));
}

fn content_type(mime_type: &str) -> String {
    if mime_type.starts_with("text/") { format!("{mime_type}; charset=utf-8") } else { mime_type.to_owned() }
}

pub fn put(headers: &mut HeaderMap, name: header::HeaderName, value: &str) {
    if let Ok(value) = HeaderValue::from_str(value) {
        headers.insert(name, value);
    }
}

/// RFC 6266: a plain name that every client can read, and the real one beside it.
pub fn disposition(inline: bool, name: &str) -> String {
    let kind = if inline { "inline" } else { "attachment" };
    let plain: String = name
        .chars()
        .map(|c| if (c.is_ascii_graphic() || c == ' ') && !matches!(c, '"' | '\\' | '%') { c } else { '_' })
        .collect();
    let mut exact = String::new();
    for byte in name.bytes() {
        if byte.is_ascii_alphanumeric() || b"!#$&+-.^_`|~".contains(&byte) {
            exact.push(byte.into());
        } else {
            exact.push_str(&format!("%{byte:02X}"));
        }
    }
    format!("{kind}; filename=\"{plain}\"; filename*=UTF-8''{exact}")
}

/// Whether the sender has these bytes already.
fn has(request: &HeaderMap, tag: &str) -> bool {
    let values = request.get_all(header::IF_NONE_MATCH).iter().filter_map(|value| value.to_str().ok());
    values
        .flat_map(|value| value.split(','))
        .map(|one| one.trim().trim_start_matches("W/"))
        .any(|one| one == tag || one == "*")
}

/// One range is served; several, or what is no range of bytes, is the whole file, as HTTP allows.
fn asked(request: &HeaderMap, size: u64) -> Asked {
    let mut values = request.get_all(header::RANGE).iter();
    let (Some(value), None) = (values.next().and_then(|value| value.to_str().ok()), values.next()) else {
        return Asked::Whole;
    };
    let Some((unit, set)) = value.split_once('=') else { return Asked::Whole };
    if !unit.trim().eq_ignore_ascii_case("bytes") || set.contains(',') {
        return Asked::Whole;
    }
    let Some((first, last)) = set.trim().split_once('-') else { return Asked::Whole };
    match (number(first), number(last)) {
        (Ok(None), Ok(Some(0))) => Asked::Nothing,
        (Ok(None), Ok(Some(_))) if size == 0 => Asked::Nothing,
        (Ok(None), Ok(Some(suffix))) => Asked::Part(size.saturating_sub(suffix)..size),
        (Ok(Some(first)), Ok(last)) => match last {
            Some(last) if last < first => Asked::Whole,
            _ if first >= size => Asked::Nothing,
            last => Asked::Part(first..last.map_or(size, |last| last.saturating_add(1).min(size))),
        },
        _ => Asked::Whole,
    }
}

/// None for nothing; an error for what is no number.
fn number(text: &str) -> Result<Option<u64>, ()> {
    match text {
        "" => Ok(None),
        // A number too large for us is still one: it is past every file.
        digits if digits.bytes().all(|byte| byte.is_ascii_digit()) => {
            Ok(Some(digits.parse().unwrap_or(u64::MAX)))
        }
        _ => Err(()),
    }
}

fn unsatisfiable(size: u64) -> Response {
    let mut response = Problem::new(
        StatusCode::RANGE_NOT_SATISFIABLE,
        "range_not_satisfiable",
        "Range not satisfiable",
        format!("The file has {size} bytes; the range is outside of it."),
    )
    .into_response();
    put(response.headers_mut(), header::CONTENT_RANGE, &format!("bytes */{size}"));
    response
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_are_read_as_http_says() {
        let cases = [
            ("bytes=0-0", Asked::Part(0..1)),
            ("bytes=2-4", Asked::Part(2..5)),
            ("bytes=2-", Asked::Part(2..10)),
            ("bytes=-3", Asked::Part(7..10)),
            ("bytes=-30", Asked::Part(0..10)),
            ("bytes=9-99999999999999999999999999", Asked::Part(9..10)),
            ("BYTES=0-1", Asked::Part(0..2)),
            ("bytes=10-", Asked::Nothing),
            ("bytes=99999999999999999999999999-", Asked::Nothing),
            ("bytes=-0", Asked::Nothing),
            ("bytes=4-2", Asked::Whole),
            ("bytes=0-1,3-4", Asked::Whole),
            ("bytes=", Asked::Whole),
            ("bytes=-", Asked::Whole),
            ("bytes=a-b", Asked::Whole),
            ("bytes=+1-2", Asked::Whole),
            ("lines=1-2", Asked::Whole),
            ("0-1", Asked::Whole),
        ];
        for (value, expected) in cases {
            let headers = HeaderMap::from_iter([(header::RANGE, HeaderValue::from_static(value))]);
            assert_eq!(asked(&headers, 10), expected, "{value}");
        }
        assert_eq!(asked(&HeaderMap::new(), 10), Asked::Whole);
        let headers = HeaderMap::from_iter([(header::RANGE, HeaderValue::from_static("bytes=-1"))]);
        assert_eq!(asked(&headers, 0), Asked::Nothing);
    }

    #[test]
    fn a_name_cannot_leave_its_header() {
        for name in ["a\"b.txt", "a\\b", "naïve – 報告.pdf", "x; filename=evil.html", "100%.txt", "a'b"]
        {
            let value = disposition(false, name);
            assert!(HeaderValue::from_str(&value).is_ok(), "{value}");
            let plain = value.split('"').nth(1).unwrap();
            assert_eq!(value.matches('"').count(), 2, "{value}");
            assert!(plain.is_ascii() && !plain.contains('\\'), "{value}");
        }
        assert_eq!(disposition(true, "a b.png"), "inline; filename=\"a b.png\"; filename*=UTF-8''a%20b.png");
    }
}
