//! Media type negotiation of JSON:API 1.1: header values come in as bytes, the verdict goes out.
//! No extension is supported, so an `ext` that names one is refused; profiles are ignored.

use super::error::{ApiError, Source, shown};

pub const MEDIA_TYPE: &str = "application/vnd.api+json";

/// The `Content-Type` of a request that has a body; 415 when it is not the bare media type.
pub fn check_content_type<'a>(values: impl IntoIterator<Item = &'a [u8]>) -> Result<(), ApiError> {
    let refuse = |detail| Err(ApiError::unsupported_media_type(Source::header("Content-Type"), detail));
    let mut values = values.into_iter();
    let Some(value) = values.next() else {
        return refuse(format!("The request has a body but no Content-Type; send {MEDIA_TYPE}."));
    };
    if values.next().is_some() {
        return refuse(format!("There are several Content-Type headers; send one, {MEDIA_TYPE}."));
    }
    let sent = shown(&String::from_utf8_lossy(value));
    match parse(value) {
        Some(range) if range.is_ours() && range.is_plain() && range.weight.is_none() => Ok(()),
        Some(range) if range.is_ours() => refuse(format!(
            "{sent} has parameters that are not supported; send {MEDIA_TYPE} with none but `profile`."
        )),
        _ => refuse(format!("{sent} is not supported here; send {MEDIA_TYPE}.")),
    }
}

/// The `Accept` headers of a request; 406 when none of them lets the answer be JSON:API.
pub fn check_accept<'a>(values: impl IntoIterator<Item = &'a [u8]>) -> Result<(), ApiError> {
    let mut seen = Seen::default();
    let mut sent = None;
    for value in values {
        for piece in split_list(value).into_iter().filter(|piece| !piece.trim_ascii().is_empty()) {
            sent.get_or_insert(value);
            if let Some(range) = parse(piece) {
                seen.add(&range);
            }
        }
    }
    match sent {
        Some(first) if !seen.acceptable() => Err(ApiError::not_acceptable(
            Source::header("Accept"),
            format!(
                "{} does not allow {MEDIA_TYPE} without parameters, the only type served here.",
                shown(&String::from_utf8_lossy(first))
            ),
        )),
        _ => Ok(()),
    }
}

/// What the ranges of all `Accept` headers say; the most specific range that speaks of us decides.
#[derive(Default)]
struct Seen {
    /// Instances of our media type: whether any usable one has q > 0.
    ours: Option<bool>,
    application: Option<bool>,
    any: Option<bool>,
}

impl Seen {
    fn add(&mut self, range: &Range) {
        let wanted = range.weight.unwrap_or(true);
        let (slot, value) = match (range.kind.as_str(), range.subtype.as_str()) {
            // Modified instances are ignored, yet where all are modified the request must fail.
            _ if range.is_ours() => (&mut self.ours, wanted && range.is_plain()),
            ("application", "*") => (&mut self.application, wanted),
            ("*", "*") => (&mut self.any, wanted),
            _ => return,
        };
        *slot = Some(slot.unwrap_or(false) || value);
    }

    fn acceptable(&self) -> bool {
        self.ours.or(self.application).or(self.any).unwrap_or(false)
    }
}

/// A media type or range with its parameters, names in lower case, values unquoted.
struct Range {
    kind: String,
    subtype: String,
    /// Whether q > 0, where there is a q.
    weight: Option<bool>,
    parameters: Vec<(String, String)>,
}

impl Range {
    fn is_ours(&self) -> bool {
        MEDIA_TYPE.split_once('/') == Some((&self.kind, &self.subtype))
    }

    /// Only what we understand: profiles, and an `ext` that names no extension.
    fn is_plain(&self) -> bool {
        self.parameters.iter().all(|(name, value)| match name.as_str() {
            "ext" => value.trim().is_empty(),
            name => name == "profile",
        })
    }
}

/// `0`, `1` or a number between with at most three decimals; true when it is not zero.
fn is_wanted(value: &str) -> Option<bool> {
    let (whole, decimals) = value.split_once('.').unwrap_or((value, ""));
    let zeros = decimals.bytes().all(|b| b == b'0');
    if decimals.len() > 3 || !decimals.bytes().all(|b| b.is_ascii_digit()) {
        return None;
    }
    match whole {
        "0" => Some(!zeros),
        "1" if zeros => Some(true),
        _ => None,
    }
}

/// Cuts a header value at the commas that are not inside a quoted string.
fn split_list(value: &[u8]) -> Vec<&[u8]> {
    let (mut quoted, mut escaped) = (false, false);
    value
        .split(|&byte| {
            if byte == b'"' && !escaped {
                quoted = !quoted;
            }
            escaped = quoted && !escaped && byte == b'\\';
            byte == b',' && !quoted
        })
        .collect()
}

fn parse(value: &[u8]) -> Option<Range> {
    let mut rest = Rest(std::str::from_utf8(value).ok()?.trim_matches([' ', '\t']));
    let kind = rest.token()?.to_ascii_lowercase();
    rest.eat('/')?;
    let subtype = rest.token()?.to_ascii_lowercase();
    let (mut weight, mut parameters) = (None, Vec::new());
    loop {
        rest.skip_blanks();
        if rest.0.is_empty() {
            return Some(Range { kind, subtype, weight, parameters });
        }
        rest.eat(';')?;
        rest.skip_blanks();
        // `a/b;` and `a/b;;q=1` are legal: a parameter may be empty.
        if let Some(name) = rest.token() {
            rest.eat('=')?;
            let (name, value) = (name.to_ascii_lowercase(), rest.value()?);
            if name == "q" {
                weight = Some(is_wanted(&value)?);
            } else {
                parameters.push((name, value));
            }
        }
    }
}

/// What is left of a header value that is being read.
struct Rest<'a>(&'a str);

impl<'a> Rest<'a> {
    fn token(&mut self) -> Option<&'a str> {
        let is_token = |c: char| c.is_ascii_alphanumeric() || "!#$%&'*+-.^_`|~".contains(c);
        let end = self.0.find(|c| !is_token(c)).unwrap_or(self.0.len());
        let (token, rest) = self.0.split_at(end);
        self.0 = rest;
        (!token.is_empty()).then_some(token)
    }

    fn eat(&mut self, c: char) -> Option<()> {
        self.0 = self.0.strip_prefix(c)?;
        Some(())
    }

    fn skip_blanks(&mut self) {
        self.0 = self.0.trim_start_matches([' ', '\t']);
    }

    fn value(&mut self) -> Option<String> {
        if self.eat('"').is_none() {
            return self.token().map(str::to_owned);
        }
        let mut value = String::new();
        let mut chars = self.0.chars();
        loop {
            match chars.next()? {
                '"' => break,
                '\\' => value.push(chars.next()?),
                c => value.push(c),
            }
        }
        self.0 = chars.as_str();
        Some(value)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn content_types() {
        let cases: [(&[&str], bool); 25] = [
            (&["application/vnd.api+json"], true),
            (&["Application/VND.api+JSON"], true),
            (&[" application/vnd.api+json \t"], true),
            (&["application/vnd.api+json;"], true),
            (&["application/vnd.api+json ; profile=\"https://a.example/x https://b.example/y\""], true),
            (&["application/vnd.api+json;PROFILE=x"], true),
            (&["application/vnd.api+json;ext=\"\""], true),
            (&["application/vnd.api+json;ext=\"https://jsonapi.org/ext/atomic\""], false),
            (&["application/vnd.api+json;ext=x"], false),
            (&["application/vnd.api+json;charset=utf-8"], false),
            (&["application/vnd.api+json; profile=\"a\"; charset=utf-8"], false),
            (&["application/vnd.api+json;profile"], false),
            (&["application/vnd.api+json;profile=\"open"], false),
            (&["application/vnd.api+json;profile=\"a\\\""], false),
            (&["application/vnd.api+json;profile=\"a\\\";x=\";charset=utf-8"], false),
            (&["application/vnd.api+json, application/vnd.api+json"], false),
            (&["application/vnd.api+json x"], false),
            (&["application/vnd.api+json;q=1"], false),
            (&["application/json"], false),
            (&["application/*"], false),
            (&["*/*"], false),
            (&["application"], false),
            (&[""], false),
            (&[], false),
            (&["application/vnd.api+json", "application/vnd.api+json"], false),
        ];
        for (values, fine) in cases {
            let verdict = check_content_type(values.iter().map(|v| v.as_bytes()));
            assert_eq!(verdict.is_ok(), fine, "{values:?}");
            if let Err(error) = verdict {
                assert_eq!((error.status, error.source), (415, Some(Source::header("Content-Type"))));
            }
        }
        assert!(check_content_type([&b"application/vnd.api+json;profile=\"\xff\""[..]]).is_err());
    }

    #[test]
    fn accept_headers() {
        let cases: [(&[&str], bool); 33] = [
            (&[], true),
            (&[""], true),
            (&[" , "], true),
            (&["*/*"], true),
            (&["application/*"], true),
            (&["application/vnd.api+json"], true),
            (&["APPLICATION/vnd.api+json;Q=0.5"], true),
            (&["text/html, application/vnd.api+json;q=0.001"], true),
            (&["text/html", "application/vnd.api+json"], true),
            (&["text/html;x=\"a,b;c\\\",\", application/vnd.api+json"], true),
            (&["application/vnd.api+json;profile=\"https://a.example/x,y\""], true),
            (&["application/vnd.api+json;ext=\"\""], true),
            (&["application/vnd.api+json;charset=utf-8, application/vnd.api+json"], true),
            (&["application/vnd.api+json;ext=\"a\", application/vnd.api+json;q=0.1"], true),
            (&["text/html, application/xml;q=0.9, */*;q=0.8"], true),
            (&["application/vnd.api+json;q=0, application/vnd.api+json"], true),
            (&["bad range, application/vnd.api+json"], true),
            (&["application/vnd.api+json, application/*;q=0, */*;q=0"], true),
            (&["application/*, */*;q=0"], true),
            (&["application/vnd.api+json;q=0"], false),
            (&["application/vnd.api+json;q=0.000, */*"], false),
            (&["application/*;q=0, */*"], false),
            (&["*/*;q=0"], false),
            (&["application/vnd.api+json;charset=utf-8"], false),
            (&["application/vnd.api+json;charset=utf-8, */*"], false),
            (&["application/vnd.api+json;ext=\"https://jsonapi.org/ext/atomic\""], false),
            (&["application/vnd.api+json;ext=a, application/vnd.api+json;version=1"], false),
            (&["application/json"], false),
            (&["text/html, text/*"], false),
            (&["text/html;x=\"application/vnd.api+json, */*\""], false),
            (&["application/vnd.api+json;q=2"], false),
            (&["application/vnd.api+json;q=0.1234"], false),
            (&[";;;"], false),
        ];
        for (values, fine) in cases {
            let verdict = check_accept(values.iter().map(|v| v.as_bytes()));
            assert_eq!(verdict.is_ok(), fine, "{values:?}");
            if let Err(error) = verdict {
                assert_eq!((error.status, error.source), (406, Some(Source::header("Accept"))));
            }
        }
    }

    proptest! {
        #[test]
        fn no_bytes_panic(values in prop::collection::vec(prop::collection::vec(any::<u8>(), 0..60), 0..3)) {
            let _ = check_accept(values.iter().map(Vec::as_slice));
            let _ = check_content_type(values.iter().map(Vec::as_slice));
        }

        #[test]
        fn no_header_like_text_panics(value in "(application/vnd\\.api\\+json|\\*/\\*|[;,=\"\\\\ q01.é]){0,12}") {
            let _ = check_accept([value.as_bytes()]);
            let _ = check_content_type([value.as_bytes()]);
        }
    }
}
