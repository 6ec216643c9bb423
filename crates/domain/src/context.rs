//! The `context` of a conversation: the documented fields are checked, whatever else a client puts
//! there is left alone. In: the JSON text as it was sent, which is also what is stored. Out: faults.

use serde_json::Value;

use crate::json;

pub const MAX_CONTEXT_BYTES: usize = 256 * 1024;

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ContextFault {
    /// JSON pointer below the resource's attributes: `/context/selectionType`.
    pub pointer: String,
    pub detail: String,
}

#[derive(Clone, Copy)]
enum Shape {
    Text,
    Texts,
    Count,
    Object,
    Array,
    ObjectOrArray,
    TextOrObject,
    Selection,
}

/// `queryResult` is documented as well, and may be anything.
const FIELDS: [(&str, Shape); 13] = [
    ("root", Shape::Text),
    ("lastGqlQuery", Shape::Text),
    ("columns", Shape::Texts),
    ("rowCount", Shape::Count),
    ("sampleRow", Shape::Object),
    ("whereClause", Shape::Object),
    ("orderBy", Shape::ObjectOrArray),
    ("fields", Shape::Array),
    ("selectionType", Shape::Selection),
    ("selectedCells", Shape::ObjectOrArray),
    ("selectedColumns", Shape::ObjectOrArray),
    ("documentAnalysisSummary", Shape::TextOrObject),
    ("gcsPath", Shape::Text),
];

/// Checks a context that is not null and whose text has passed `json::check_kept`.
pub fn check_context(raw: &str) -> Vec<ContextFault> {
    let whole = |detail: String| vec![ContextFault { pointer: "/context".to_owned(), detail }];
    if raw.len() > MAX_CONTEXT_BYTES {
        return whole(format!("context has {} bytes, at most {MAX_CONTEXT_BYTES} are kept", raw.len()));
    }
    let Value::Object(context) = json::value(raw) else {
        return whole("context must be an object or null".to_owned());
    };
    FIELDS
        .iter()
        .filter_map(|(name, shape)| {
            let value = context.get(*name).filter(|value| !value.is_null() && !shape.fits(value))?;
            let detail = format!("{name} must be {} or null, not {}", shape.name(), kind(value));
            Some(ContextFault { pointer: format!("/context/{name}"), detail })
        })
        .collect()
}

impl Shape {
    fn fits(self, value: &Value) -> bool {
        match self {
            Self::Text => value.is_string(),
            Self::Texts => value.as_array().is_some_and(|items| items.iter().all(Value::is_string)),
            // `7.0` and `1e3` are integers too.
            Self::Count => value.as_f64().is_some_and(|n| n >= 0.0 && n.fract() == 0.0),
            Self::Object => value.is_object(),
            Self::Array => value.is_array(),
            Self::ObjectOrArray => value.is_object() || value.is_array(),
            Self::TextOrObject => value.is_string() || value.is_object(),
            Self::Selection => matches!(value.as_str(), Some("cells" | "rows" | "columns" | "none")),
        }
    }

    fn name(self) -> &'static str {
        match self {
            Self::Text => "a string",
            Self::Texts => "an array of strings",
            Self::Count => "an integer of at least 0",
            Self::Object => "an object",
            Self::Array => "an array",
            Self::ObjectOrArray => "an object, an array",
            Self::TextOrObject => "a string, an object",
            Self::Selection => "one of cells, rows, columns, none",
        }
    }
}

fn kind(value: &Value) -> String {
    match value {
        Value::Null => "null".to_owned(),
        Value::Bool(value) => value.to_string(),
        Value::Number(value) => value.to_string(),
        Value::String(value) => format!("{:?}", value.chars().take(40).collect::<String>()),
        Value::Array(_) => "this array".to_owned(),
        Value::Object(_) => "an object".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SEED: &str = r#"{ "root": "invoices", "lastGqlQuery": "{ invoices { id } }", "queryResult": null,
        "columns": ["id", "amount"], "rowCount": 7, "sampleRow": { "id": "inv_001", "amount": 4800 },
        "whereClause": { "status": { "_eq": "unpaid" } }, "orderBy": { "field": "due_date" },
        "fields": [["id"], ["amount"]], "selectionType": "rows", "selectedCells": null,
        "selectedColumns": null, "documentAnalysisSummary": null, "gcsPath": null }"#;

    #[test]
    fn sound_contexts_pass() {
        for raw in [
            SEED,
            "{}",
            r#"{"ours":{"selectionType":9},"x":[1e2]}"#,
            r#"{"queryResult":[1]}"#,
            r#"{"queryResult":"text"}"#,
            r#"{"rowCount":7.0}"#,
            r#"{"rowCount":1e3}"#,
            r#"{"rowCount":18446744073709551616}"#,
            r#"{"queryResult":1e400,"x":[-1e400]}"#,
            r#"{"orderBy":[{"field":"a"}],"columns":[],"selectedCells":[{"row":1}]}"#,
            r#"{"selectedCells":{"rows":[1]},"selectedColumns":{"id":true}}"#,
            r#"{"selectedColumns":["id"],"documentAnalysisSummary":"A bill"}"#,
            r#"{"documentAnalysisSummary":{"pages":3,"kind":"bill"}}"#,
        ] {
            assert_eq!(check_context(raw), [], "{raw}");
        }
    }

    #[test]
    fn every_documented_field_may_be_null_and_refuses_another_type() {
        for (name, _) in FIELDS {
            assert_eq!(check_context(&format!(r#"{{"{name}":null}}"#)), [], "{name}");
            let faults = check_context(&format!(r#"{{"{name}":true}}"#));
            assert_eq!(faults.len(), 1, "{name}");
            assert_eq!(faults[0].pointer, format!("/context/{name}"));
        }
    }

    #[test]
    fn wrong_values_are_named() {
        for (raw, pointer) in [
            (r#"{"selectionType":"Rows"}"#, "/context/selectionType"),
            (r#"{"selectionType":""}"#, "/context/selectionType"),
            (r#"{"columns":["a",1]}"#, "/context/columns"),
            (r#"{"columns":"a"}"#, "/context/columns"),
            (r#"{"rowCount":-1}"#, "/context/rowCount"),
            (r#"{"rowCount":1.5}"#, "/context/rowCount"),
            (r#"{"rowCount":"7"}"#, "/context/rowCount"),
            (r#"{"sampleRow":[]}"#, "/context/sampleRow"),
            (r#"{"whereClause":"a"}"#, "/context/whereClause"),
            (r#"{"orderBy":"a"}"#, "/context/orderBy"),
            (r#"{"fields":{}}"#, "/context/fields"),
            (r#"{"selectedCells":7}"#, "/context/selectedCells"),
            (r#"{"selectedColumns":"id"}"#, "/context/selectedColumns"),
            (r#"{"documentAnalysisSummary":7}"#, "/context/documentAnalysisSummary"),
            (r#"{"documentAnalysisSummary":["a"]}"#, "/context/documentAnalysisSummary"),
            ("[]", "/context"),
            ("\"text\"", "/context"),
            ("{", "/context"),
        ] {
            let pointers: Vec<_> = check_context(raw).into_iter().map(|fault| fault.pointer).collect();
            assert_eq!(pointers, [pointer], "{raw}");
        }
        let twice = check_context(r#"{"root":1,"gcsPath":2}"#);
        assert_eq!(twice.len(), 2);
        assert_eq!(twice[0].detail, "root must be a string or null, not 1");
    }

    #[test]
    fn the_size_is_that_of_the_text_as_sent() {
        let padded = |bytes: usize| format!("{{{}}}", " ".repeat(bytes - 2));
        assert_eq!(check_context(&padded(MAX_CONTEXT_BYTES)), []);
        assert_eq!(check_context(&padded(MAX_CONTEXT_BYTES + 1))[0].pointer, "/context");
    }
}
