//! Error objects: what went wrong, with a stable code and the place in the request, and the document that
//! carries them. Every JSON:API failure of the server is built here.

use serde::ser::{Serialize, SerializeMap, SerializeStruct, Serializer};
use serde_json::{Map, Value};

/// A request can be wrong in very many places; telling the first ones is enough, and bounds the answer.
const MAX_ERRORS: usize = 50;

/// Which part of the request an error is about.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Source {
    /// A JSON pointer into the request document.
    Pointer(String),
    /// The name of a query parameter, decoded.
    Parameter(String),
    /// The name of a request header.
    Header(String),
}

impl Source {
    pub fn pointer(pointer: impl Into<String>) -> Self {
        Self::Pointer(pointer.into())
    }

    pub fn parameter(name: impl Into<String>) -> Self {
        Self::Parameter(name.into())
    }

    pub fn header(name: impl Into<String>) -> Self {
        Self::Header(name.into())
    }
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ApiError {
    pub status: u16,
    pub code: &'static str,
    pub title: &'static str,
    pub detail: String,
    pub source: Option<Source>,
    /// What else helps the client: `limit`, `retry_after`.
    pub meta: Map<String, Value>,
}

/// One constructor for each code: `name(source, detail)` where the request can be pointed at, `name(detail)`
/// where it cannot. Codes are part of the API and never change.
macro_rules! errors {
    ($($(#[$doc:meta])* $code:ident($source:ident?) = $status:literal, $title:literal;)*) => {
        impl ApiError { $(errors!(@one $(#[$doc])* $code, $source, $status, $title);)* }
    };
    (@one $(#[$doc:meta])* $code:ident, source, $status:literal, $title:literal) => {
        $(#[$doc])*
        pub fn $code(source: Source, detail: impl Into<String>) -> Self {
            Self { source: Some(source), ..errors!(@new $code, detail, $status, $title) }
        }
    };
    (@one $(#[$doc:meta])* $code:ident, plain, $status:literal, $title:literal) => {
        $(#[$doc])*
        pub fn $code(detail: impl Into<String>) -> Self {
            errors!(@new $code, detail, $status, $title)
        }
    };
    (@new $code:ident, $detail:ident, $status:literal, $title:literal) => {
        Self {
            status: $status,
            code: stringify!($code),
            title: $title,
            detail: $detail.into(),
            source: None,
            meta: Map::new(),
        }
    };
}

errors! {
    malformed_document(source?) = 400, "The document is malformed";
    unknown_parameter(source?) = 400, "Unknown query parameter";
    invalid_parameter(source?) = 400, "Invalid query parameter";
    /// A field name that the resource does not have, in a document or in `fields[…]`.
    unknown_field(source?) = 400, "Unknown field";
    workspace_required(plain?) = 400, "A workspace must be named";
    unauthenticated(plain?) = 401, "Authentication is required";
    forbidden(plain?) = 403, "Not allowed";
    read_only_field(source?) = 403, "The field is read-only";
    not_found(plain?) = 404, "Not found";
    not_acceptable(source?) = 406, "Not acceptable";
    conflict(plain?) = 409, "Conflict";
    type_conflict(source?) = 409, "Wrong resource type";
    /// The document's id is not the one in the path.
    id_conflict(source?) = 409, "Wrong resource id";
    client_id_taken(source?) = 409, "The id is taken";
    precondition_failed(source?) = 412, "Precondition failed";
    body_too_large(plain?) = 413, "The request body is too large";
    unsupported_media_type(source?) = 415, "Unsupported media type";
    invalid_value(source?) = 422, "Invalid value";
    rate_limited(plain?) = 429, "Too many requests";
    internal(plain?) = 500, "Internal error";
    unavailable(plain?) = 503, "Temporarily unavailable";
}

impl Serialize for ApiError {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut object = serializer.serialize_map(None)?;
        object.serialize_entry("status", &self.status.to_string())?;
        object.serialize_entry("code", self.code)?;
        object.serialize_entry("title", self.title)?;
        object.serialize_entry("detail", &self.detail)?;
        if let Some(source) = &self.source {
            object.serialize_entry("source", source)?;
        }
        if !self.meta.is_empty() {
            object.serialize_entry("meta", &self.meta)?;
        }
        object.end()
    }
}

impl Serialize for Source {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut object = serializer.serialize_struct("source", 1)?;
        match self {
            Self::Pointer(pointer) => object.serialize_field("pointer", pointer)?,
            Self::Parameter(name) => object.serialize_field("parameter", name)?,
            Self::Header(name) => object.serialize_field("header", name)?,
        }
        object.end()
    }
}

/// The errors of one request, gathered while it is read and then sent as one document.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct ErrorDocument(Vec<ApiError>);

impl ErrorDocument {
    /// Adds an error; past the first fifty they are not kept.
    pub fn push(&mut self, error: ApiError) {
        if self.0.len() < MAX_ERRORS {
            self.0.push(error);
        }
    }

    pub fn errors(&self) -> &[ApiError] {
        &self.0
    }

    /// The value if nothing was wrong, and otherwise everything that was.
    pub fn or<T>(self, value: T) -> Result<T, Self> {
        if self.0.is_empty() { Ok(value) } else { Err(self) }
    }

    /// The status that all errors share; else 500 when the server is to blame for one, else 400.
    pub fn status(&self) -> u16 {
        match self.0.as_slice() {
            [] => 500,
            [first, rest @ ..] if rest.iter().all(|e| e.status == first.status) => first.status,
            all if all.iter().any(|e| e.status >= 500) => 500,
            _ => 400,
        }
    }

    pub fn to_json(&self) -> Vec<u8> {
        // Strings and maps with string keys always serialise.
        serde_json::to_vec(self).unwrap_or_default()
    }
}

impl From<ApiError> for ErrorDocument {
    fn from(error: ApiError) -> Self {
        Self(vec![error])
    }
}

impl Serialize for ErrorDocument {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut object = serializer.serialize_map(Some(2))?;
        object.serialize_entry("errors", &self.0)?;
        object.serialize_entry("jsonapi", &serde_json::json!({ "version": "1.1" }))?;
        object.end()
    }
}

/// A piece of input as it may stand in a `detail`: quoted, escaped and not long.
pub fn shown(input: &str) -> String {
    const LONGEST: usize = 60;
    let mut quoted = String::from("\"");
    quoted.extend(input.chars().take(LONGEST).flat_map(char::escape_debug));
    quoted.push_str(if input.chars().nth(LONGEST).is_some() { "…\"" } else { "\"" });
    quoted
}

/// As `shown`, of a value in a document: what is no text has no quotes.
pub fn shown_json(value: &str) -> String {
    match serde_json::from_str::<String>(value) {
        Ok(text) => shown(&text),
        Err(_) => shown(value).trim_matches('"').to_owned(),
    }
}

/// A reason as a sentence of its own; a name of ours at its start keeps its spelling.
pub fn sentence(text: &str) -> String {
    let first_word = text.split(' ').next().unwrap_or("");
    let is_name = first_word.contains('_') || first_word.chars().skip(1).any(char::is_uppercase);
    let mut chars = text.chars();
    let first: String = match is_name {
        true => chars.next().into_iter().collect(),
        false => chars.next().into_iter().flat_map(char::to_uppercase).collect(),
    };
    format!("{first}{}{}", chars.as_str(), if text.ends_with(['.', '…']) { "" } else { "." })
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn document(errors: Vec<ApiError>) -> ErrorDocument {
        let mut document = ErrorDocument::default();
        errors.into_iter().for_each(|e| document.push(e));
        document
    }

    #[test]
    fn a_document_carries_every_member() {
        let found: Value = serde_json::from_slice(
            &document(vec![
                ApiError::invalid_value(Source::pointer("/data/attributes/title"), "too long"),
                ApiError::not_found("no such conversation"),
            ])
            .to_json(),
        )
        .unwrap();
        let expected = json!({
            "errors": [
                {
                    "status": "422", "code": "invalid_value", "title": "Invalid value", "detail": "too long",
                    "source": { "pointer": "/data/attributes/title" }
                },
                {
                    "status": "404", "code": "not_found", "title": "Not found",
                    "detail": "no such conversation"
                }
            ],
            "jsonapi": { "version": "1.1" }
        });
        assert_eq!(found, expected);
    }

    #[test]
    fn sources_name_their_kind() {
        let cases = [
            (Source::pointer("/a"), json!({ "pointer": "/a" })),
            (Source::parameter("page[size]"), json!({ "parameter": "page[size]" })),
            (Source::header("Accept"), json!({ "header": "Accept" })),
        ];
        for (source, expected) in cases {
            assert_eq!(serde_json::to_value(&source).unwrap(), expected);
        }
    }

    #[test]
    fn the_status_is_the_common_one() {
        let at = || Source::pointer("");
        let bad = || ApiError::malformed_document(at(), "");
        let value = || ApiError::invalid_value(at(), "");
        let down = || ApiError::unavailable("");
        let cases = [
            (vec![value()], 422),
            (vec![value(), value()], 422),
            (vec![value(), bad()], 400),
            (vec![value(), ApiError::read_only_field(at(), "")], 400),
            (vec![down()], 503),
            (vec![down(), down()], 503),
            (vec![down(), value()], 500),
            (vec![down(), ApiError::internal("")], 500),
        ];
        for (errors, status) in cases {
            let codes: Vec<_> = errors.iter().map(|e| e.code).collect();
            assert_eq!(document(errors).status(), status, "{codes:?}");
        }
    }

    #[test]
    fn the_number_of_errors_is_bounded() {
        let many = document((0..1000).map(|_| ApiError::internal("")).collect());
        assert_eq!(many.errors().len(), MAX_ERRORS);
    }

    #[test]
    fn sentences_keep_the_spelling_of_names() {
        for (reason, expected) in [
            ("only the owner may", "Only the owner may."),
            ("active_tab_key must be a key", "active_tab_key must be a key."),
            ("subPath climbs.", "subPath climbs."),
        ] {
            assert_eq!(sentence(reason), expected);
        }
    }

    #[test]
    fn shown_input_is_short_and_escaped() {
        assert_eq!(shown("a\"b\n\u{1b}"), r#""a\"b\n\u{1b}""#);
        assert_eq!(shown(&"é".repeat(60)), format!("\"{}\"", "é".repeat(60)));
        assert_eq!(shown(&"é".repeat(61)), format!("\"{}…\"", "é".repeat(60)));
        for (json, expected) in [(r#""x\u0041""#, r#""xA""#), ("5", "5"), ("null", "null")] {
            assert_eq!(shown_json(json), expected);
        }
    }
}
