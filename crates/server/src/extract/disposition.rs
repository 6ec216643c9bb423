//! The file name in a part's `Content-Disposition`, as the many senders of forms spell it: quoted as browsers do, bare,
//! or percent-encoded (`filename*`), which wins where both are there.

use axum::http::{HeaderMap, header};

/// None for a part that is no file. Bytes that are no UTF-8 do not make it one.
pub(super) fn file_name(headers: &HeaderMap) -> Option<String> {
    let value = headers.get(header::CONTENT_DISPOSITION)?.as_bytes();
    let value = String::from_utf8_lossy(value);
    let (mut plain, mut rest) = (None, value.split_once(';')?.1);
    while let Some((key, after)) = rest.split_once('=') {
        let (text, after) = parameter(after.trim_start());
        match key.trim_matches([';', ' ', '\t']).to_ascii_lowercase().as_str() {
            "filename*" => {
                if let Some(name) = decoded(&text) {
                    return Some(name);
                }
            }
            "filename" => plain = plain.or(Some(text)),
            _ => {}
        }
        rest = after;
    }
    plain
}

/// A value and what follows it. A backslash hides the quote after it, as long as there is another quote to end with:
/// browsers write the backslashes of a name as they are.
fn parameter(text: &str) -> (String, &str) {
    let Some(quoted) = text.strip_prefix('"') else {
        let end = text.find(';').unwrap_or(text.len());
        return (text[..end].trim_end().to_owned(), &text[end..]);
    };
    let mut from = 0;
    while let Some(at) = quoted[from..].find('"').map(|at| from + at) {
        let hidden = quoted[..at].ends_with('\\') && quoted[at + 1..].contains('"');
        if !hidden {
            return (quoted[..at].replace("\\\"", "\""), &quoted[at + 1..]);
        }
        from = at + 1;
    }
    (quoted.to_owned(), "")
}

/// RFC 8187: character set, language, bytes.
fn decoded(text: &str) -> Option<String> {
    let mut parts = text.splitn(3, '\'');
    let (charset, encoded) = (parts.next()?, parts.nth(1)?);
    if !charset.eq_ignore_ascii_case("utf-8") {
        return None;
    }
    let (mut bytes, mut rest) = (Vec::new(), encoded.as_bytes());
    while let Some((&byte, after)) = rest.split_first() {
        let hex = after.get(..2).filter(|_| byte == b'%').and_then(|hex| std::str::from_utf8(hex).ok());
        match hex.and_then(|hex| u8::from_str_radix(hex, 16).ok()) {
            Some(byte) => {
                bytes.push(byte);
                rest = &after[2..];
            }
            None => {
                bytes.push(byte);
                rest = after;
            }
        }
    }
    Some(String::from_utf8_lossy(&bytes).into_owned())
}

#[cfg(test)]
mod tests {
    use axum::http::HeaderValue;

    use super::*;

    #[test]
    fn names_as_senders_write_them() {
        for (value, name) in [
            (r#"form-data; name="f"; filename="a b.txt""#, Some("a b.txt")),
            (r#"form-data; name="f"; filename="a\"b.txt""#, Some("a\"b.txt")),
            (r#"form-data; name="f"; filename="C:\dir\""#, Some("C:\\dir\\")),
            (r#"form-data; name="f"; filename="x;filename=y""#, Some("x;filename=y")),
            ("form-data; name=f; filename=plain.txt", Some("plain.txt")),
            ("form-data; filename=plain.txt ; name=f", Some("plain.txt")),
            ("form-data; name=\"f\"; filename=\"naïve 報告.pdf\"", Some("naïve 報告.pdf")),
            ("form-data; name=\"f\"; filename*=UTF-8''na%C3%AFve%20%25.pdf", Some("naïve %.pdf")),
            ("form-data; name=\"f\"; filename=\"x\"; filename*=utf-8'en'%E2%82%AC", Some("€")),
            ("form-data; name=\"f\"; filename=\"x\"; filename*=latin1''y", Some("x")),
            ("form-data; name=\"f\"; filename*=utf-8''100%", Some("100%")),
            ("form-data; name=\"f\"; filename=\"\"", Some("")),
            ("form-data; name=\"f\"; FileName=\"x\"", Some("x")),
            ("form-data; name=\"filename=x\"", None),
            ("form-data; name=\"f\"", None),
            ("form-data", None),
            ("form-data; name=\"f\"; filename=\"open", Some("open")),
        ] {
            let value = HeaderValue::from_bytes(value.as_bytes()).unwrap();
            let headers = HeaderMap::from_iter([(header::CONTENT_DISPOSITION, value.clone())]);
            assert_eq!(file_name(&headers).as_deref(), name, "{value:?}");
        }
        assert_eq!(file_name(&HeaderMap::new()), None);
    }
}
